"""Published objects drawn in floating point: for the planner, tests and benches, never for data.

In: true counts, parameters, a numpy generator. Out: `Observed`. Touches: nothing.
The noise has the right law and none of the guarantee: it comes from an insecure generator.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from sketchstream.estimate.observed import (
    DISCRETE_LAPLACE,
    RANDOMIZED_RESPONSE,
    Form,
    Ints,
    Observed,
    Unit,
)
from sketchstream.spec import ClosedDomain, NoPrivacyWarning, OpenDomain, ProfileSpec


def laplace(rng: np.random.Generator, epsilon: float, size: int | tuple[int, ...]) -> Ints:
    """Discrete Laplace numbers: the difference of two geometric ones."""
    p = -np.expm1(-epsilon)
    return np.asarray(rng.geometric(p, size) - rng.geometric(p, size), dtype=np.int64)


def response(rng: np.random.Generator, epsilon: float, p: int, size: int) -> Ints:
    """Randomized response on Z_p: 0 with chance e^eps/(e^eps+p-1), else any other value."""
    moved = rng.random(size) >= np.exp(epsilon) / (np.exp(epsilon) + p - 1)
    return np.where(moved, rng.integers(1, p, size), 0).astype(np.int64)


def hashed(items: npt.NDArray[Any], slots: int, levels: int, rng: np.random.Generator) -> list[Ints]:
    """True counts of the slots of each level when items with these counts are thrown into them."""
    m = slots // levels
    level = np.minimum(rng.geometric(0.5, items.size) - 1, levels - 1)
    place = rng.integers(0, m, items.size)
    cell = np.bincount(level * m + place, items, m * levels)
    return [part.astype(np.int64) for part in cell.reshape(levels, m)]


def publish(
    counters: Sequence[Ints],
    *,
    epsilon: str | int | Fraction,
    rng: np.random.Generator,
    unit: Unit = "event",
    form: Form = "state",
    cost: str | int | Fraction | None = None,
    layers: int = 1,
    max_count: int = 300,
    modulus: int | None = None,
    max_weight: int = 1,
    open_domain: bool = False,
) -> Observed:
    """What would be published of true slot counts, one array for each level.

    Args:
        counters: true counts of the slots of each level.
        epsilon: of each layer.
        rng: where the noise comes from.
        unit: "event" or "item".
        form: "state", "cumulative" or "bins".
        cost: of the publication (default: epsilon).
        layers: how many.
        max_count: rules the published edges.
        modulus: for unit "item".
        max_weight: largest weight of one event.
        open_domain: whether the slots are those of an open domain.
    """
    exact = Fraction(epsilon)
    effective = exact / max_weight
    noisy = []
    for h in counters:
        x = np.asarray(h, dtype=np.int64).copy()
        for _ in range(layers):
            if unit == "item":
                assert modulus is not None
                x = (x + response(rng, float(effective), modulus, x.size)) % modulus
            else:
                x += laplace(rng, float(effective), x.size)
        noisy.append(x)
    slots = tuple(x.size for x in noisy)
    n_levels = len(noisy)
    shares = tuple(OpenDomain(sum(slots), n_levels).level_shares().tolist()) if open_domain else (1.0,)
    price = None if form == "state" else Fraction(epsilon if cost is None else cost)
    if form == "state":
        edges = np.unique(np.concatenate(noisy))
        values = np.stack([np.bincount(np.searchsorted(edges, x), minlength=edges.size) for x in noisy])
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoPrivacyWarning)
            edges = ProfileSpec(
                epsilon=exact,
                unit=unit,
                domain=ClosedDomain(size=max(sum(slots), 1)),
                max_count=None if unit == "item" else max_count,
                modulus=modulus,
                max_weight=max_weight if form == "cumulative" or max_weight > 1 or unit == "item" else 2,
            ).edges
        assert price is not None
        if form == "cumulative":
            exact_values = np.stack([x.size - np.searchsorted(np.sort(x), edges) for x in noisy])
            values = exact_values + laplace(rng, float(price), exact_values.shape)
        else:
            exact_values = np.stack(
                [np.bincount(np.searchsorted(edges, x, side="right") - 1, minlength=edges.size) for x in noisy]
            )
            values = exact_values + laplace(rng, float(price) / 2.0, exact_values.shape)
    law = DISCRETE_LAPLACE if unit == "event" else RANDOMIZED_RESPONSE
    return Observed(
        unit=unit,
        form=form,
        open_domain=open_domain,
        layers=tuple((law, effective) for _ in range(layers)),
        slots=slots,
        hashed_into=slots if open_domain else (),
        shares=shares if open_domain else (),
        edges=edges,
        values=values,
        cost=price,
        modulus=modulus,
        max_weight=max_weight,
        digest=values.tobytes()[:32],
    )
