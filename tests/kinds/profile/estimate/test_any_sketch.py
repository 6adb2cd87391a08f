"""Small sketches of any form, unit and method have an answer, or an error that says why."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from sketchstream.errors import EstimateError
from sketchstream.items.key import Key
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.sketch import Sketch
from sketchstream.spec import ClosedDomain, OpenDomain

NAMES = ("distinct", "total", "mean", "entropy", "one_hit_ratio", "coverage", "at_least.2", "exactly.1", "quantile.0.5")
KEY = Key(bytes(range(16)))


def drawn(rng: np.random.Generator) -> ProfileSpec:
    """A spec that may be."""
    more: dict[str, Any] = {"unit": str(rng.choice(["item", "event"]))}
    more["domain"] = (
        OpenDomain(int(rng.choice([64, 256, 1024, 4096])), int(rng.choice([1, 2, 4, 6])))
        if rng.random() < 0.7
        else ClosedDomain(size=int(rng.choice([1, 2, 5, 50, 1000])))
    )
    more["epsilon"] = Fraction(int(rng.choice([1, 4, 20, 80])), int(rng.choice([1, 2, 10])))
    if more["unit"] == "item":
        more["modulus"] = int(rng.choice([2, 3, 5, 8, 32, 64, 256, 513, 600]))
    else:
        more["max_count"] = int(rng.choice([1, 2, 5, 40, 300]))
        more["max_weight"] = int(rng.choice([1, 1, 3, 10]))
    if rng.random() < 0.3:
        more |= {"publish": "state", "intrusion": bool(rng.random() < 0.5)}
    else:
        more["epsilon_publish"] = Fraction(int(rng.choice([1, 4, 20])), int(rng.choice([1, 5])))
    more["epsilon"] = min(more["epsilon"], Fraction(50))
    return ProfileSpec(**more)


@pytest.mark.statistics
@pytest.mark.parametrize("seed", range(60))
def test_every_number_lies_in_its_interval_or_is_refused_with_a_reason(seed: int) -> None:
    rng = np.random.default_rng(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec = drawn(rng)
        sketch = Sketch.create(spec, KEY)
        known = spec.domain.size if isinstance(spec.domain, ClosedDomain) else 10**6
        number = min(int(rng.choice([0, 0, 1, 2, 10, 100, 1000])), known or 0)
        items = rng.permutation(known)[:number]
        same = rng.random() < 0.4
        counts = (
            np.full(number, rng.choice([1, 2, 25, 31, 100])) if same else rng.geometric(rng.choice([0.1, 0.9]), number)
        )
        if number:
            sketch.update(np.repeat(items, counts).astype(np.int64))
        published = sketch.seal()
        for method in ("likelihood", "inverse", "monotone"):
            try:
                profile = published.profile(method=method)
            except EstimateError:
                continue
            for name in NAMES:
                one = profile.number(name)
                assert one.low <= one.value <= one.high or math.isnan(one.value), (spec, method, name, one)
            assert str(profile)
