"""Audit of draws: noise is drawn afresh for every slot, every sketch and every step.

In: cases of every kind. Out: outcomes. Touches: entropy, through the sketches it creates.
Source: docs/theory/privacy.md section 6 (what two sketches of one spec may have in common: nothing).

A law can be right in every slot although two slots, two sketches or two steps share their noise, or a few slots have
none. So the noise of many draws is laid out as a matrix: one row for each draw, one column for each slot. Equal columns
are slots that share their noise, or that have none; rows that agree more often than chance are draws that share it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import combinations
from typing import Final

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.audit.cases import Case, Check
from sketchstream.audit.observed import Outcome, state_of

MIN_DRAWS: Final = 24
"""Draws of a matrix at least; more where values of a slot often coincide."""
LOG_ODDS: Final = 32.0
"""Logarithm of the odds against equal columns by chance."""
MAX_DEVIATION: Final = 7.5
"""Standard errors of a correlation, which luck exceeds less than once in 10^13."""
CORRELATED: Final = 0.6
"""Largest correlation of draws whose slots depend on each other; they are then as good as few slots."""
FRESH: Final = 6
"""Rows of each step after creation."""


def checks(case: Case) -> Iterator[Check]:
    """Names and checks of the draws of one case."""
    yield f"slots, {case.name}", lambda: slots(case)
    yield f"steps, {case.name}", lambda: steps(case)


def slots(case: Case) -> Outcome:
    """Check that no two slots and no two sketches share noise, and that every slot has some."""
    spec = case.spec if case.many is None else case.many
    rows = [state_of(case.sketch(spec)) for _ in range(MIN_DRAWS)]
    while len(rows) < 400 and not tells_columns_apart(np.stack(rows[:MIN_DRAWS]), len(rows)):
        rows += [state_of(case.sketch(spec)) for _ in range(8)]
    drawn = np.stack(rows)
    wrong = shared_columns(drawn, case.modulus) or shared_rows(drawn, case)
    found = wrong or f"{drawn.shape[1]:,} slots of {len(drawn)} sketches, all different"
    return wrong is None, "noise of its own in every slot of every sketch", found, "one slot without, or two that share"


def steps(case: Case) -> Outcome:
    """Check that creation, refresh, release and seal of one sketch share no noise."""
    rows: list[Ints] = []
    for _ in range(FRESH):
        sketch = case.sketch()
        rows.append(state_of(sketch))
        if "refresh" in case.costs:
            before = rows[-1]
            sketch.refresh(*case.asked)
            rows.append(_noise_added(state_of(sketch), before, case))
        now = state_of(sketch)
        if "release" in case.costs:
            for _ in range(2):
                seen = sketch.release(*case.asked).noised.astype(np.int64)
                if seen.size == now.size:
                    rows.append(_noise_added(seen.ravel(), now, case))
        if case.publishes == "fresh":
            rows.append(_noise_added(sketch.seal().state.astype(np.int64).ravel(), now, case))
    wrong = shared_rows(np.stack(rows), case)
    found = wrong or f"{len(rows)} draws, all different"
    return wrong is None, "noise of its own in every step", found, "half of a draw used again"


def tells_columns_apart(drawn: Ints, rows: int) -> bool:
    """Whether this number of rows tells all columns apart that have noise of their own.

    Args:
        drawn: (n, slots) a sample of draws.
        rows: number of draws that are compared.
    """
    n = drawn.shape[1]
    return -rows * math.log(_chance_of_coincidence(drawn)) > 2 * math.log(n) + LOG_ODDS


def _chance_of_coincidence(drawn: Ints) -> float:
    """Probability that two draws are equal in a slot, or opposite."""
    _, counts = np.unique(np.abs(drawn), return_counts=True)
    return float(((counts / drawn.size) ** 2).sum())


def shared_columns(drawn: Ints, modulus: int | None = None) -> str | None:
    """Text on slots that share their noise, up to its sign, or that have none; None if there are none."""
    still = (drawn == drawn[0]).all(axis=0)
    if still.any():
        return f"WITHOUT NOISE: {int(still.sum()):,} slots"
    alike = drawn.copy() if modulus is None else np.where(2 * drawn > modulus, drawn - modulus, drawn)
    own = 2 * drawn == modulus if modulus is not None else np.zeros(drawn.shape, np.bool_)  # its own opposite
    alike[own] = 0
    alike *= np.sign(alike[(alike != 0).argmax(axis=0), np.arange(drawn.shape[1])])
    alike[own] = modulus or 0
    rng = random.Random(11)  # noqa: S311 - names of columns, not noise
    names = np.zeros(drawn.shape[1], np.int64)
    with np.errstate(over="ignore"):
        for row in alike:
            names += row * rng.getrandbits(62)
    again = names.size - np.unique(names).size
    return f"SHARED NOISE: {again:,} slots repeat another's" if again else None


def shared_rows(drawn: Ints, case: Case) -> str | None:
    """Text on draws that agree or correlate more than independent ones; None if there are none."""
    if case.modulus is not None:
        return _shared_residues(drawn, case.modulus) or _two_equal(drawn)
    real = drawn if case.coordinates is None else np.stack([case.coordinates(draw) for draw in drawn])
    n = real.shape[1]
    values = _standardise(real)
    many = case.independent and n > 4 * MAX_DEVIATION**2
    limit = MAX_DEVIATION / math.sqrt(n) if many else max(CORRELATED, _least_limit(n))
    products = np.abs(values @ values.T) / n
    np.fill_diagonal(products, 0)
    worst = float(products.max())
    if worst > limit:
        return f"SHARED NOISE: two draws correlate by {worst:.3f}, at most {limit:.3f} by chance"
    equal = _two_equal(drawn)
    if equal is None and case.independent:
        sums = values.sum(axis=1) / math.sqrt(n)
        if float(np.abs(sums).max()) > MAX_DEVIATION:
            return f"SHARED NOISE: the slots of a draw add up to {float(np.abs(sums).max()):.1f} standard errors"
    return equal


def _two_equal(drawn: Ints) -> str | None:
    """Text on two draws that are the same; two numbers may be by chance."""
    again = drawn.shape[1] > 2 and len({row.tobytes() for row in drawn}) < len(drawn)
    return "SHARED NOISE: two draws are equal" if again else None


def _shared_residues(drawn: Ints, modulus: int) -> str | None:
    """Text on residues that are equal, or opposite, in more slots of two draws than by chance; None: none are.

    Slots of independent draws agree as often as slots that are paired at random, whose mean follows from how often each
    draw has each value; Bernstein's bound says how many more luck allows. (Correlations do not tell: residues that few
    slots have are alike by luck.)
    """
    n = drawn.shape[1]
    shares = np.stack([np.bincount(row, minlength=modulus) for row in drawn]) / n
    mirrored = np.roll(shares[:, ::-1], 1, axis=1)
    for first, other in combinations(range(len(drawn)), 2):
        for word, seen, law in (("equal", drawn[other], shares[other]), ("opposite", -drawn[other], mirrored[other])):
            equal = int(np.count_nonzero((drawn[first] - seen) % modulus == 0))
            mean = n * float(shares[first] @ law)
            most = mean + math.sqrt(2 * LOG_ODDS * mean) + 2 * LOG_ODDS / 3
            if equal > most:
                return f"SHARED NOISE: two draws are {word} in {equal:,} slots, at most {most:,.0f} by chance"
    return None


def _least_limit(n: int) -> float:
    """Correlation of few independent values that luck does not reach."""
    return min(0.999, math.tanh(MAX_DEVIATION / math.sqrt(max(n - 3, 1))))


def _standardise(drawn: Ints | Floats) -> Floats:
    """Draws with variance 1."""
    values = drawn.astype(np.float64)
    sizes = np.sqrt((values**2).mean(axis=1, keepdims=True))
    out: Floats = values / np.where(sizes > 0, sizes, 1.0)
    return out


def _noise_added(after: Ints, before: Ints, case: Case) -> Ints:
    """The noise that was added to a state."""
    return after - before if case.modulus is None else (after - before) % case.modulus
