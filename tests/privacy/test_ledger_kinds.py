"""Ledgers of every kind against enumeration: random lives of small sketches, with the shift that a real update makes.

In: specs of all kinds, random steps. Out: verdicts. Touches: nothing.

The shift of a unit is read from a state before and after an update, the noise of each step from the kind. Words of
Laplace noise are independent: their exact losses, or divergences, are enumerated one by one and add up. Losses to
Gaussian noise are compared with the covariance of everything that is seen.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import sketchstream as ss
from helpers.convolution_losses import Neighbour, exact_loss, spectral_loss
from sketchstream import kinds
from sketchstream.audit import oracle
from sketchstream.privacy.ledgers.gaussian_ledger import GaussianLedger
from sketchstream.privacy.ledgers.ledger import Ledger
from sketchstream.privacy.losses.history import History, LayerEntry, Loss, View

F = Fraction
KEY = ss.Key(bytes(range(16)))
SERIES: dict[str, Any] = {"epsilon": 1, "delta": "1e-6"}
SPECS: dict[str, tuple[Any, list[Any]]] = {
    "profile, histogram": (ss.ProfileSpec("1", domain=ss.ClosedDomain(size=4)), [1]),
    "profile, state": (ss.ProfileSpec("1", domain=ss.ClosedDomain(size=4), publish="state", intrusion=True), [1]),
    "profile, item": (ss.ProfileSpec("1", "item", ss.ClosedDomain(size=4), modulus=3, total_share=0), [1]),
    "workload, laplace": (ss.WorkloadSpec("prefix:5", "1", 0, "laplace"), [0, 2, 4]),
    "workload, gaussian": (ss.WorkloadSpec("ranges:5", "1", "1e-6", "gaussian", counted_share="1/20"), [0, 2, 4]),
    "gaussian": (ss.GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(size=4), total_share="1/40"), [3]),
    "gaussian, weights": (ss.GaussianSpec("2", "1e-6", domain=ss.ClosedDomain(size=4), max_weight=3), [3]),
    "convolution, counts": (ss.ConvolutionSpec([1, 0.5], 6, noise="counts", max_weight=2, **SERIES), [0, 5]),
    "convolution, gaussian": (ss.ConvolutionSpec("sum", 6, noise="gaussian", **SERIES), [0, 3, 5]),
    "convolution, by time": (ss.ConvolutionSpec("sum", 6, noise="gaussian", layout="time", **SERIES), [0, 5]),
    "convolution, laplace": (ss.ConvolutionSpec("sum", 6, noise="laplace", epsilon=8, delta="1e-6"), [0, 3, 5]),
    "convolution, pure": (ss.ConvolutionSpec("sum", 6, noise="laplace_pure", epsilon=1), [0, 3, 5]),
    "projection": (ss.ProjectionSpec(3, 6, 4, "1", "1e-6", max_weight=2, matrix="rademacher"), [(0, 0), (2, 5)]),
}
each_kind = pytest.mark.parametrize("name", SPECS)


def random_life(spec: Any, rng: random.Random, views: int = 3) -> tuple[Any, History]:
    """A ledger after random releases, looks and fresh layers, and perhaps the seal; and what happened, noted apart."""
    kind = kinds.kind_of(spec)
    ledger: Any = kind.accounting.ledger(spec, bytes(16))
    happened = History((kinds.layer_entry(spec, bytes(16), kind.accounting.creation_cost(spec)),))
    made, seen = 1, 0
    for _ in range(rng.randrange(4)):
        step, cost = rng.random(), kind.accounting.creation_cost(spec) * rng.choice((F(1), F(1, 2), F(1, 4)))
        if step < 0.25 and made < 2:
            layer = kinds.layer_entry(spec, bytes(16), cost)
            ledger, made, seen = ledger.record_look().add_layer(layer), 2, seen + 1
            happened = happened.then(View("look", None), layer)
        elif seen < views - 1 and getattr(spec, "layout", "") != "time":
            ledger, seen = ledger.charge_release(cost), seen + 1
            happened = happened.then(View("release", cost))
    ledger = ledger.charge_publication(bytes(16)) if rng.random() < 0.7 else ledger
    accounting = kind.accounting
    seal = accounting.promise(spec).entries(accounting.unit_weight(spec), bytes(16), accounting.law(spec))
    return ledger, happened.sealed_by(*seal)


def shift_of(spec: Any, item: Any) -> list[tuple[int, str]]:
    """How far a unit of full weight moves each part of a state: the number, and "slots" or the name of a counter."""
    sketch = ss.Sketch.create(spec, KEY if spec.needs_key else None)
    state, counters = sketch._state.copy(), sketch._content.counters.values.copy()  # type: ignore[union-attr]
    weight = getattr(spec, "max_weight", None) or 1
    sketch.update([item], [int(weight)])
    moved = (sketch._state - state).ravel()  # type: ignore[operator]
    if getattr(spec, "modulus", None):
        moved = moved % spec.modulus
    names = [one.name for one in kinds.kind_of(spec).accounting.components(spec)[1:]]
    beside = sketch._content.counters.values - counters
    found = [(int(abs(one)), "slots") for one in moved]
    return [*found, *((int(abs(one)), name) for one, name in zip(beside, names, strict=True))]


def noise_of(spec: Any, part: str, cost: Fraction) -> Fraction:
    """Parameter of the noise of one part of a state in a layer or view of this cost."""
    kind = kinds.kind_of(spec)
    if part == "slots":
        return kind.accounting.parameter(spec, cost)
    return next(one for one in kind.accounting.components(spec) if one.name == part).parameter(cost)


def words_of(spec: Any, item: Any) -> list[float]:
    """Share of the cost of a layer that each word has: how far the unit moves it, over the scale of its noise."""
    cost = kinds.kind_of(spec).accounting.creation_cost(spec)
    if spec.kind == "convolution" and spec.layout == "fourier":
        moved = spec.bound * spec.scheme.columns(np.array([item]))[0]
        return [
            float(abs(a) / one / float(cost))
            for a, one in zip(moved, spec.scheme.lattice_scales(spec.layer()), strict=True)
        ]
    return [float(moved * noise_of(spec, part, cost) / cost) for moved, part in shift_of(spec, item)]


def fresh_law(size: int, cost: float) -> oracle.Floats:
    """A view that shows the state under fresh noise."""
    law = oracle.wrapped_laplace(size, cost)
    found: oracle.Floats = np.stack([np.roll(law, x) for x in range(size)])
    return found


def ring_for(history: History) -> oracle.Ring:
    """A ring for states that are shown under fresh noise: wide where few noises and views leave room for it."""
    transcript = oracle.Transcript.of(history)
    places = len(transcript.layers) + len(transcript.views)
    size = {2: 201, 3: 41, 4: 15}.get(places, 9 if places > 2 else 201)
    return oracle.Ring(size, oracle.wrapped_laplace, fresh_law, (1,))


def scaled(history: History, factor: float) -> History:
    """The history of one word: every cost is multiplied by its share of the whole."""
    entries = tuple(
        entry if entry.cost is None else replace(entry, cost=F(factor) * entry.cost) for entry in history.entries
    )
    return replace(history, entries=entries)


def pure_loss(spec: Any, happened: History, item: Any) -> float:
    """Exact loss of an event: the sum over the words that it moves, in the gap where that is largest."""
    gaps: dict[Any, float] = {}
    for share, times in Counter(round(one, 12) for one in words_of(spec, item) if one > 1e-9).items():
        history = scaled(happened, share)
        if spec.kind == "profile":
            found = oracle.exact_event_losses(history, oracle.EVENT_RING)
        else:
            views = len(oracle.Transcript.of(history).views)
            found = oracle.exact_event_losses(history, ring_for(history), baselines=[[0] * views])
        for gap, loss in found.items():
            gaps[gap] = gaps.get(gap, 0.0) + times * loss
    return max(gaps.values())


def concentrated_loss(spec: Any, happened: History, item: Any) -> float:
    """Largest Renyi divergence over its order, of both directions, in the gap where that is largest; words add up."""
    gaps: dict[Any, float] = {}
    for share, times in Counter(round(one, 12) for one in words_of(spec, item) if one > 1e-9).items():
        transcript = oracle.Transcript.of(scaled(happened, share))
        ring = ring_for(happened)
        quiet = transcript.law(ring, [0] * len(transcript.views))
        for place in transcript.places:
            active = transcript.law(ring, [int(transcript.sees(view, place)) for view in transcript.views])
            for order in (1.01, 2.0, 8.0):
                for first, second in ((quiet, active), (active, quiet)):
                    possible = first > 0
                    if bool((second[possible] == 0).any()):
                        found = math.inf
                    else:
                        p, q = first[possible], second[possible]
                        found = math.log((p**order * q ** (1 - order)).sum()) / (order - 1) / order
                    key = (place, order, first is quiet)
                    gaps[key] = gaps.get(key, 0.0) + times * found
    return max(gaps.values())


def squared_shift(spec: Any, item: Any) -> float:
    """mu^2 of a single layer of cost 1 to this unit, by the sum over all parts of the state."""
    cost = kinds.kind_of(spec).accounting.creation_cost(spec)
    if spec.kind == "convolution":
        of_layer = spectral_loss(spec) if spec.layout == "time" else exact_loss(spec, Neighbour((item,), (spec.bound,)))
        return float(of_layer) / float(cost)
    return float(sum((F(m**2) / noise_of(spec, part, cost) for m, part in shift_of(spec, item)), F(0)) / cost)


def by_covariance(history: History) -> Loss:
    """Largest i' C^-1 i of any gap, for noises whose variance is 1 over the cost: what is seen by one word."""
    worst: Loss = F(0)
    for gap in history.moments:
        noises: list[Fraction] = []
        views: list[tuple[set[int], bool]] = []
        held: set[int] = set()
        for at, entry in enumerate(history.entries):
            if isinstance(entry, LayerEntry):
                noises.append(1 / entry.cost)
                held = {*held, len(noises) - 1}
            else:
                fresh = set()
                if entry.cost is not None:
                    noises.append(1 / entry.cost)
                    fresh = {len(noises) - 1}
                views.append((held | fresh, at >= gap))
        if not any(seen for _, seen in views):
            continue
        covariance = np.array([[float(sum(noises[k] for k in one & two)) for two, _ in views] for one, _ in views])
        moved = np.array([float(seen) for _, seen in views])
        found, *_ = np.linalg.lstsq(covariance, moved, rcond=1e-10)
        if not np.allclose(covariance @ found, moved, atol=1e-7):
            return math.inf
        worst = max(worst, F(float(moved @ found)).limit_denominator(10**12))
    return worst


def check(name: str, seed: int) -> float:
    """Compare a ledger with the truth; gives the share of the claim that is reached."""
    spec, items = SPECS[name]
    rng = random.Random(f"{name} {seed}")
    ledger, happened = random_life(spec, rng)
    item, loss = rng.choice(items), ledger.loss()
    if name == "profile, item":
        exact, claimed = oracle.exact_item_loss(happened), loss
    elif isinstance(ledger, Ledger):
        exact, claimed = pure_loss(spec, happened, item), loss
    elif getattr(spec, "noise", "") == "laplace":
        exact, claimed = concentrated_loss(spec, happened, item), loss.rho
    else:
        exact, claimed = squared_shift(spec, item) * float(by_covariance(happened)), loss.mu2
    assert exact <= float(claimed) * (1 + 1e-9) + 1e-9, (name, seed)
    assert (claimed == math.inf) == (exact == math.inf)
    return 1.0 if claimed == math.inf else exact / float(claimed)


@each_kind
def test_no_ledger_is_below_the_exact_loss(name: str) -> None:
    reached = [check(name, seed) for seed in range(15)]
    assert max(reached) > 0.3, "and none is far above"


def check_all(seeds: range) -> None:
    """Compare many lives of every kind."""
    for name in SPECS:
        for seed in seeds:
            check(name, seed)


@pytest.mark.slow
@each_kind
def test_no_ledger_of_a_thousand_lives_is_below_the_exact_loss(name: str) -> None:
    for seed in range(1000):
        check(name, seed)


def charges_a_tenth(self: Any, cost: Fraction) -> Any:
    """A release is charged at a tenth of its cost."""
    return self._with(View("release", cost / 10))


def charges_nothing(self: Any, cost: Fraction) -> Any:
    """A release is not charged."""
    del cost
    return self


def forgets_the_look(self: Any) -> Any:
    """Somebody has seen the state, and the ledger does not say so."""
    return self


@pytest.mark.parametrize(
    ("method", "mutant"),
    [
        ("charge_release", charges_a_tenth),
        ("charge_release", charges_nothing),
        ("record_look", forgets_the_look),
    ],
)
@pytest.mark.parametrize(
    "name", ["profile, item", "workload, laplace", "gaussian", "convolution, laplace", "projection"]
)
def test_mutants_of_a_ledger_are_refused(name: str, method: str, mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for ledger in (Ledger, GaussianLedger):
        monkeypatch.setattr(ledger, method, mutant)
    monkeypatch.setattr(f"{__name__}.SPECS", {name: SPECS[name]})
    with pytest.raises(AssertionError):
        check_all(range(60))
