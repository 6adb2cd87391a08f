"""Published objects drawn in floating point: for the planner, tests and benches, never for data.

In: true counts, parameters, a numpy generator. Out: `Observed`. Touches: nothing.
The noise has the right law but guarantees no privacy: it comes from an insecure generator.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Ints
from sketchstream.kinds.profile.estimate.observed import Observed, ObservedForm
from sketchstream.kinds.profile.mechanism import LAWS
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.spec import ClosedDomain, NoPrivacyWarning, OpenDomain, Unit


def laplace(rng: np.random.Generator, epsilon: float, size: int | tuple[int, ...]) -> Ints:
    """Discrete Laplace numbers: the difference of two geometric ones."""
    p = -np.expm1(-epsilon)
    return np.asarray(rng.geometric(p, size) - rng.geometric(p, size), dtype=np.int64)


def response(rng: np.random.Generator, epsilon: float, p: int, size: int) -> Ints:
    """Randomized response on Z_p: 0 with probability e^eps/(e^eps+p-1), else a uniform other value."""
    moved = rng.random(size) >= np.exp(epsilon) / (np.exp(epsilon) + p - 1)
    return np.where(moved, rng.integers(1, p, size), 0).astype(np.int64)


def hash_counts(items: npt.NDArray[Any], slots: int, levels: int, rng: np.random.Generator) -> list[Ints]:
    """True counts of the slots of each level after items with these counts are hashed into them."""
    m = slots // levels
    level = np.minimum(rng.geometric(0.5, items.size) - 1, levels - 1)
    place = rng.integers(0, m, items.size)
    cell = np.bincount(level * m + place, items, m * levels)
    return [part.astype(np.int64) for part in cell.reshape(levels, m)]


def _add_layer(
    rng: np.random.Generator, value: Ints, times: Ints, epsilon: float, modulus: int | None
) -> tuple[Ints, Ints]:
    """Histogram of the counters after one layer; all slots with a frequent value take one multinomial draw."""
    if modulus is None:
        reach = max(1, int(np.ceil(40.0 / epsilon)))  # a share e^-40 of the noise is beyond it
        shift = np.arange(-reach, reach + 1)
        law = np.exp(-epsilon * np.abs(shift))
    else:
        shift = np.arange(modulus)
        law = np.where(shift == 0, np.exp(epsilon), 1.0)
    many = times > 64
    rest = np.repeat(value[~many], times[~many])
    rest = rest + (laplace(rng, epsilon, rest.size) if modulus is None else response(rng, epsilon, modulus, rest.size))
    moved = [rest, *(v + shift for v in value[many])]
    weights = [np.ones(rest.size, dtype=np.int64), *(rng.multinomial(t, law / law.sum()) for t in times[many])]
    where = np.concatenate(moved) if modulus is None else np.concatenate(moved) % modulus
    seen, index = np.unique(where, return_inverse=True)
    total = _sum_by_index(index, np.concatenate(weights), seen.size)
    return seen[total > 0], total[total > 0]


def _sum_by_index(where: npt.NDArray[np.integer[Any]], times: Ints, size: int) -> Ints:
    """Sums of `times` by index."""
    return np.rint(np.bincount(where, times, size)).astype(np.int64)


def publish(
    counters: Sequence[Ints],
    *,
    epsilon: str | int | Fraction,
    rng: np.random.Generator,
    unit: Unit = "event",
    form: ObservedForm = "state",
    cost: str | int | Fraction | None = None,
    layers: int = 1,
    max_count: int = 300,
    modulus: int | None = None,
    max_weight: int = 1,
    open_domain: bool = False,
    grouped: bool = False,
) -> Observed:
    """Simulate the publication of true slot counts, one array for each level.

    Args:
        counters: true counts of the slots of each level.
        epsilon: epsilon of each layer.
        rng: generator of the noise.
        unit: "event" or "item".
        form: "state", "cumulative" or "bins".
        cost: cost of the publication (default: epsilon).
        layers: number of noise layers.
        max_count: largest count to resolve; determines the published edges.
        modulus: modulus of the counters, for unit "item".
        max_weight: largest weight of one event.
        open_domain: whether the domain is open.
        grouped: draw the noise of slots with equal counts at once: faster, with the same law but other numbers.
    """
    exact = Fraction(epsilon)
    effective = exact / max_weight
    noisy: list[tuple[Ints, Ints]] = []
    for h in counters:
        if grouped:
            seen = np.unique(np.asarray(h, dtype=np.int64), return_counts=True)
            for _ in range(layers):
                seen = _add_layer(rng, *seen, float(effective), modulus if unit == "item" else None)
            noisy.append((seen[0], seen[1].astype(np.int64)))
            continue
        x = np.asarray(h, dtype=np.int64).copy()
        for _ in range(layers):
            if unit == "item":
                assert modulus is not None
                x = (x + response(rng, float(effective), modulus, x.size)) % modulus
            else:
                x += laplace(rng, float(effective), x.size)
        value, times = np.unique(x, return_counts=True)
        noisy.append((value, times.astype(np.int64)))
    slots = tuple(int(times.sum()) for _, times in noisy)
    n_levels = len(noisy)
    shares = tuple(OpenDomain(sum(slots), n_levels).level_shares().tolist()) if open_domain else (1.0,)
    price = None if form == "state" else Fraction(epsilon if cost is None else cost)
    if form == "state":
        edges = np.unique(np.concatenate([value for value, _ in noisy]))
        values = np.stack([_sum_by_index(np.searchsorted(edges, value), times, edges.size) for value, times in noisy])
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
            below = [np.searchsorted(value, edges) for value, _ in noisy]
            sums = [np.append(0, np.cumsum(times)) for _, times in noisy]
            exact_values = np.stack([total[-1] - total[at] for total, at in zip(sums, below, strict=True)])
            values = exact_values + laplace(rng, float(price), exact_values.shape)
        else:
            exact_values = np.stack(
                [_sum_by_index(np.searchsorted(edges, v, side="right") - 1, times, edges.size) for v, times in noisy]
            )
            values = exact_values + laplace(rng, float(price) / 2.0, exact_values.shape)
    law = LAWS[unit]
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
