"""Crowded sketches of people: cases of unit item in an open domain, and how often intervals hold the truth.

In: a cell of the grid. Out: shares of runs, claimed, planned and least possible errors. Touches: nothing. Every single
count is below the modulus: sums wrap. `python bench/crowded.py` prints a table of cells.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.stats import nbinom, poisson

from helpers.thrown import thrown
from sketchstream.array_types import Floats
from sketchstream.errors import EstimateError
from sketchstream.kinds.profile.estimate.observed import Observed
from sketchstream.kinds.profile.estimate.open_domain.collisions import alike, read_levels
from sketchstream.kinds.profile.estimate.open_domain.residues import Residues
from sketchstream.kinds.profile.estimate.simulate import publish
from sketchstream.kinds.profile.planner import plan
from sketchstream.kinds.profile.reconstruction import reconstruct
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.spec import OpenDomain

USERS, MEANS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0), (1.0, 2.0, 5.0, 10.0)
LAWS, MODULI, LEVELS, PARTS = ("poisson", "geometric", "zipf", "negative binomial"), (32, 64, 256), (4, 8, 10), (1, 6)
NAMES = ("distinct", "at_least.2", "at_least.5", "at_least.10", "total", "mean")


@dataclass(frozen=True)
class Cell:
    """One case.

    Args:
        users: users for each slot of a part, all levels together.
        mean: mean of the law of their counts before it is cut to 1..modulus-1 (of Zipf's law: after).
        law: its name.
        modulus: modulus of the counters.
        levels: levels of the domain.
        parts: stacked.
    """

    users: float
    mean: float
    law: str
    modulus: int
    levels: int
    parts: int

    @property
    def crowd(self) -> float:
        """Mean sum of counts in a slot of the emptiest level."""
        return self.users * self.mean * self.levels / 2.0 ** (self.levels - 1)


def grid() -> Iterator[Cell]:
    """Every cell."""
    yield from itertools.starmap(Cell, itertools.product(USERS, MEANS, LAWS, MODULI, LEVELS, PARTS))


def spread_out(number: int, seed: int = 7, users: Sequence[float] = USERS) -> list[Cell]:
    """So many cells over the whole grid: users and means in turn, everything else as evenly as it goes."""
    rng = np.random.default_rng(seed)
    both = list(itertools.product(users, MEANS))

    def turns(size: int) -> list[int]:
        return np.concatenate([rng.permutation(size) for _ in range(-(-number // size))])[:number].tolist()

    rest = [[values[i] for i in turns(len(values))] for values in (LAWS, MODULI, LEVELS, PARTS)]
    return [Cell(*both[i], *more) for i, *more in zip(turns(len(both)), *rest, strict=True)]


def shares(cell: Cell) -> Floats:
    """(modulus-1,) law of the counts 1..modulus-1."""
    t = np.arange(1.0, cell.modulus)
    if cell.law == "poisson":
        out = poisson.pmf(t, cell.mean)
    elif cell.law == "negative binomial":
        out = nbinom.pmf(t, 0.5, 0.5 / (0.5 + cell.mean))
    elif cell.law == "geometric":
        out = (1.0 - 1.0 / cell.mean) ** (t - 1.0)
    else:
        low, high = -1.0, 40.0
        for _ in range(80):
            middle = (low + high) / 2.0
            out = t**-middle
            low, high = (middle, high) if out @ t > cell.mean * out.sum() else (low, middle)
    return np.asarray(out / out.sum())


def seen(cell: Cell, slots: int, rng: np.random.Generator) -> tuple[list[Observed], Floats]:
    """Published parts, added as they are read, and the true number of users at each count."""
    law, t = shares(cell), np.arange(1, cell.modulus)
    truth, parts = np.zeros(cell.modulus), []
    for _ in range(cell.parts):
        numbers = rng.multinomial(round(cell.users * slots), law)
        truth[1:] += numbers
        counters = thrown(t, numbers, slots, cell.levels, rng)
        parts.append(publish(counters, epsilon=4, cost=1, rng=rng, unit="item", form="bins", modulus=cell.modulus,
                             open_domain=True, grouped=True))  # fmt: skip
    if cell.parts == 1:
        return parts, truth
    groups = [[parts[i] for i in group] for group in alike(parts)]
    return [
        replace(
            one[0],
            slots=tuple(m * len(one) for m in one[0].slots),
            values=np.sum([part.values for part in one], axis=0),
            parts=len(one),
        )
        for one in groups
    ], truth


def truths(numbers: Floats) -> dict[str, float]:
    """The numbers of `NAMES`."""
    items, total = float(numbers.sum()), float(np.arange(numbers.size) @ numbers)
    reach = {f"at_least.{k}": float(numbers[k:].sum()) for k in (2, 5, 10)}
    return {"distinct": items, **reach, "total": total, "mean": total / items}


def spec(cell: Cell, slots: int) -> ProfileSpec:
    """The sketch of a cell's part: like README's."""
    domain = OpenDomain(slots - slots % cell.levels, cell.levels)
    return ProfileSpec("4", "item", domain, epsilon_publish="1", modulus=cell.modulus, max_count=cell.modulus - 1)


def planned(cell: Cell, slots: int) -> dict[str, float]:
    """Standard deviations that the planner foretells; none if it refuses the cell."""
    try:
        found = plan(spec(cell, slots), items=cell.users * slots * cell.parts, law=shares(cell).tolist(),
                     parts=cell.parts)  # fmt: skip
    except EstimateError:
        return {}
    return {name: found[name].sd for name in NAMES if name in found.numbers}


def least(parts: list[Observed], cell: Cell, slots: int) -> dict[str, float]:
    """Standard deviations by the inverse of the Fisher information of all levels and parts, at the true law."""
    law, t = shares(cell), np.arange(1.0, cell.modulus)
    covariance = np.zeros((t.size, t.size))
    for part in parts:
        items = cell.users * slots * part.parts * np.append(0.0, law)
        covariance += Residues(read_levels(part, cell.modulus - 1)).estimate(items).covariance
    items, mean = cell.users * slots * cell.parts, float(t @ law)
    scores = {"distinct": np.ones(t.size), "total": t, "mean": (t - mean) / items}
    scores |= {f"at_least.{k}": (t >= k).astype(float) for k in (2, 5, 10)}
    return {name: math.sqrt(max(float(one @ covariance @ one), 0.0)) for name, one in scores.items()}


@dataclass
class Found:
    """What intervals said of one number.

    Args:
        runs: runs with an answer.
        held: runs in which the interval held the truth.
        unknown: runs without an upper end.
        errors: estimates minus truths.
        deviations: half widths / 1.96 of intervals with two ends, neither of them a limit of the possible.
        planned: standard deviation that the planner foretells, if it does.
        least: standard deviation by the inverse of the Fisher information.
    """

    planned: float | None = None
    least: float = math.nan
    runs: int = 0
    held: int = 0
    unknown: int = 0
    errors: list[float] = field(default_factory=list)
    deviations: list[float] = field(default_factory=list)

    @property
    def told(self) -> bool:
        """Whether the number is told by nearly all runs, and none at the limits of the possible: errors compare."""
        return self.runs > 0 and len(self.deviations) >= 0.95 * self.runs

    @property
    def measured(self) -> float:
        """Root mean squared error."""
        return math.sqrt(sum(one * one for one in self.errors) / max(len(self.errors), 1))

    @property
    def claimed(self) -> float:
        """Mean standard deviation behind the intervals."""
        return sum(self.deviations) / max(len(self.deviations), 1)


def covered(
    cell: Cell, runs: int, slots: int, method: str = "likelihood", seed: int = 0
) -> tuple[dict[str, Found], int]:
    """What is found in so many runs, and how many of them were refused."""
    foretold = planned(cell, slots)
    out, refused = {name: Found(foretold.get(name)) for name in NAMES}, 0
    for run in range(runs):
        parts, numbers = seen(cell, slots, np.random.default_rng([seed, run]))
        if run == 0:
            for name, one in least(parts, cell, slots).items():
                out[name].least = one
        try:
            profile = reconstruct(parts, max_count=cell.modulus - 1, method=method)
        except EstimateError:
            refused += 1
            continue
        for name, truth in truths(numbers).items():
            one, found = profile.interval(name), out[name]
            found.runs += 1
            found.held += one.low <= truth <= one.high
            found.unknown += math.isinf(one.high)
            found.errors.append(one.value - truth)
            if math.isfinite(one.high) and one.low > (1.0 if name == "mean" else 0.0):
                found.deviations.append((one.high - one.low) / 3.92)
    return out, refused
