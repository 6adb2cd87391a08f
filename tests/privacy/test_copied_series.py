"""Series whose positions are published when they close: one regular series is one sketch, two copies are an incident.

In: series, copied or not. Out: verdicts. Touches: nothing.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import sketchstream as ss
from sketchstream.errors import MergeError
from sketchstream.privacy.deployments.deployment import Deployment
from sketchstream.provenance import Origin
from sketchstream.stream.state.window_sketch import WindowSketch

F = Fraction
WINDOW = (0, 6000)
SPECS = {
    "counts": ss.ConvolutionSpec("sum", 6, noise="counts", publish="closed", intrusion=False, epsilon=1, step_ms=1000),
    "gaussian": ss.ConvolutionSpec(
        "sum", 6, noise="gaussian", layout="time", publish="closed", intrusion=False, epsilon=1, delta="1e-6",
        step_ms=1000,
    ),
}  # fmt: skip
each_noise = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)


def series(spec: Any) -> WindowSketch:
    return WindowSketch.create(spec, origin=Origin("series", window=WINDOW, partition=0))


def copy(sketch: WindowSketch) -> WindowSketch:
    return WindowSketch.from_bytes(sketch.to_bytes())


def loss(found: Deployment) -> Any:
    total = found.total()
    return total.event_gaussian.mu2 or total.event


@each_noise
def test_a_regular_series_is_one_sketch_in_any_order_and_with_repetitions(spec: Any) -> None:
    sketch = series(spec)
    published: list[Any] = []
    for first, stop in ((0, 2), (2, 3), (3, 6)):
        sketch.update(np.arange(first, 6))
        published.append(sketch.close_positions(first, stop))
        sketch = copy(sketch)  # a snapshot, from which the worker goes on
    once = loss(Deployment.of(published[:1]))
    published.append(sketch.seal())
    for some in (*itertools.permutations(published), published[:1], published[1:3], published * 2):
        found = Deployment.of(some)
        assert found.copied() == found.conflicts() == []
        assert len(found.records) == 1
        assert loss(found) == once
        assert "INCIDENT" not in str(found)


def test_releases_and_fresh_layers_between_instalments_are_of_the_same_series() -> None:
    sketch = series(SPECS["counts"])
    published: list[Any] = [sketch.close_positions(0, 2), sketch.release("1/8"), sketch.close_positions(2, 4)]
    sketch.refresh()
    sketch.update([4, 5])
    published += [sketch.close_positions(4, 5), sketch.seal()]
    for some in itertools.permutations(published):
        found = Deployment.of(some)
        assert found.copied() == found.conflicts() == []
        assert loss(found) == loss(Deployment.of(published[-1:]))


@each_noise
@pytest.mark.parametrize("published", ["early early", "early seal", "seal early", "early elsewhere", "seal seal"])
def test_two_copies_of_a_series_have_no_bound(spec: Any, published: str) -> None:
    one = series(spec)
    two = copy(one)
    two.update([0, 1, 1])
    first: Any = one.seal() if published.startswith("seal") else one.close_positions(0, 3)
    if published.endswith("early"):
        second: list[Any] = [two.close_positions(0, 3)]
    elif published.endswith("elsewhere"):  # other cuts of the same positions
        second = [two.close_positions(0, 2), two.close_positions(2, 6)]
    else:
        second = [two.seal()]
    found = Deployment.of([first, *second])
    assert len(found.copied()) == 1
    assert loss(found) == math.inf
    assert "INCIDENT" in str(found)
    assert "without a bound" in str(found)


@each_noise
def test_two_copies_that_publish_the_same_words_are_copies_too(spec: Any) -> None:
    """Equal words say that no event was counted in one copy alone, which is exact data."""
    one = series(spec)
    two = copy(one)
    assert loss(Deployment.of([one.close_positions(0, 3), two.close_positions(0, 3)])) == math.inf


def test_a_ledger_of_copies_is_never_below_what_they_show() -> None:
    """Random copies with random data, instalments and seals: finite only where no word is shown with two contents."""
    draw = random.Random(11)
    seen = [0, 0]
    for _ in range(150):
        one = series(SPECS["counts"])
        copies = [one] if draw.random() < 0.4 else [one, copy(one)]
        published: list[Any] = []
        shown: dict[int, set[int]] = {}
        for sketch in copies:
            sketch.update(draw.choices(range(6), k=draw.randrange(4)))
            at = 0
            while at < 6 and draw.random() < 0.7:
                stop = draw.randint(at + 1, 6)
                published.append(sketch.close_positions(at, stop))
                for position, word in zip(range(at, stop), published[-1].words, strict=True):
                    shown.setdefault(position, set()).add(int(word))
                at = stop
            if draw.random() < 0.6:
                published.append(sketch.seal())
                for position, word in enumerate(published[-1].state):
                    shown.setdefault(position, set()).add(int(word))
        draw.shuffle(published)
        if published:
            found = loss(Deployment.of(published))
            differ = any(len(words) > 1 for words in shown.values())
            assert found >= (math.inf if differ else 1)
            if len(copies) == 1:
                assert found == 1
            seen[differ] += 1
    assert min(seen) > 20


def test_open_series_that_close_positions_are_not_merged() -> None:
    parts = [series(SPECS["counts"]) for _ in range(2)]
    parts[0].close_positions(0, 2)
    with pytest.raises(MergeError, match="would be published again under other noise"):
        ss.merge(parts)
    sealed = [part.seal() for part in parts]
    early = replace(sealed[0], seal_id=bytes(16))
    assert Deployment.of([*sealed, ss.merge(sealed)]).copied() == []
    assert len(Deployment.of([*sealed, early]).copied()) == 1
