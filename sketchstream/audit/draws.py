"""Audit of draws: noise is drawn afresh for every slot, every further counter, every sketch and every step.

In: cases of every kind. Out: outcomes. Touches: entropy, through the sketches it creates.
Source: docs/theory/privacy.md section 3 (components of a sketch) and section 6 (what two sketches of one spec may have
in common: nothing).

A law can be right in every slot although two slots, two sketches or two steps share their noise, or a few slots have
none. So the noise of many draws is laid out as a matrix: one row for each draw, one column for each slot. Equal columns
are slots that share their noise, or that have none; rows that agree more often than chance are draws that share it.

Counters (totals, events counted, records admitted) have noise of their own in each layer and each view, at their share
of the cost. Those of an open sketch are read from its bytes, so that each step's noise is seen alone.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Mapping
from itertools import combinations
from typing import Any, Final

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.audit.cases import Case
from sketchstream.audit.observed import UNLIKELY, Outcome, counters_of, noise_added, resolution, state_of
from sketchstream.noise import laws

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
ADMITTED: Final = "admitted"


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
            rows.append(noise_added(state_of(sketch), before, case.modulus))
        now = state_of(sketch)
        if "release" in case.costs:
            for _ in range(2):
                seen = sketch.release(*case.asked).noised.astype(np.int64)
                if seen.size == now.size:
                    rows.append(noise_added(seen.ravel(), now, case.modulus))
        if case.publishes == "fresh":
            rows.append(noise_added(sketch.seal().state.astype(np.int64).ravel(), now, case.modulus))
    wrong = shared_rows(np.stack(rows), case)
    found = wrong or f"{len(rows)} draws, all different"
    return wrong is None, "noise of its own in every step", found, "half of a draw used again"


def tells_columns_apart(drawn: Ints, rows: int) -> bool:
    """Whether this number of rows tells all columns apart that have noise of their own.

    Args:
        drawn: (n, slots) a sample of draws.
        rows: number of draws that are compared.
    """
    _, counts = np.unique(np.abs(drawn), return_counts=True)
    coincidence = float(((counts / drawn.size) ** 2).sum())  # probability that two draws agree in a slot, up to signs
    return -rows * math.log(coincidence) > 2 * math.log(drawn.shape[1]) + LOG_ODDS


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
    sizes = np.sqrt((real.astype(np.float64) ** 2).mean(axis=1, keepdims=True))
    values: Floats = real / np.where(sizes > 0, sizes, 1.0)
    limit = MAX_DEVIATION / math.sqrt(n)
    if not case.independent or n <= 4 * MAX_DEVIATION**2:  # of few values, luck correlates more
        limit = max(CORRELATED, min(0.999, math.tanh(MAX_DEVIATION / math.sqrt(max(n - 3, 1)))))
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


# Counters in addition to the slots.


def counters(case: Case, number: int) -> Outcome:
    """Check names, noise by every step and moves of the counters, in many small sketches."""
    names = {*case.counters(case.costs["create"]), *([ADMITTED] if case.admitted else [])}
    claim = f"{', '.join(sorted(names)) or 'no counters'}; each with its noise, moved by what an event adds"
    drawn: dict[tuple[str, str], list[int]] = defaultdict(list)
    for at in range(number if names else 3):
        wrong = _follow_one_sketch(case, at, names, drawn)
        if wrong:
            return False, claim, f"WRONG: {wrong}", "one event in any sketch"
    if not names:
        return True, claim, "none", "any counter"
    shared = _find_shared_noise(drawn)
    if shared:
        return False, claim, shared, "half of a draw used again"
    tests = []
    for (verb, name), values in drawn.items():
        law = _law(case, verb, name)
        tests += [(test.p_value, verb, name, test.name) for test in laws.battery(np.array(values), law)]
        tests.append((_test_spread(np.array(values), law), verb, name, "variance"))
    worst, verb, name, test = min(tests)
    found = f"p = {worst:.2g} ({name} by {verb}, {test}), n = {number} of each noise"
    power = max(resolution(_law(case, verb, name), number) for verb, name in drawn)
    return worst > UNLIKELY, claim, found, f"epsilon or sigma wrong by {power:.0%}"


def _follow_one_sketch(case: Case, at: int, names: set[str], drawn: dict[tuple[str, str], list[int]]) -> str | None:
    """Follow the counters of one sketch; text on what is wrong, None if nothing is."""
    sketch = case.few()
    before = counters_of(sketch)
    if set(before) != names:
        return f"the counters are {', '.join(before) or 'none'}"
    inside = names - {ADMITTED}
    for name in names:
        drawn["create", name].append(before[name])
    items, weights, moves = case.moves[at % len(case.moves)] if case.moves else ([], None, {})
    if len(items):
        sketch.update(list(items), None if weights is None else list(weights), invalid="noop")
    sketch.admit(at % 4)
    after = counters_of(sketch)
    expected = {name: before[name] + moves.get(name, 0) + (at % 4 if name == ADMITTED else 0) for name in names}
    if after != expected:
        return f"events add { ({name: after[name] - before[name] for name in names}) }"
    if "refresh" in case.costs:
        sketch.refresh(*case.asked)
        before, after = after, counters_of(sketch)
        for name in names:
            drawn["refresh", name].append(after[name] - before[name])
    if "release" in case.costs:
        released = counters_of(sketch.release(*case.asked))
        if set(released) != inside:
            return f"a release shows {', '.join(released) or 'none'}"
        for name in inside:
            drawn["release", name].append(released[name] - after[name])
    final = counters_of(sketch.seal())
    if set(final) != names:
        return f"the seal shows {', '.join(final) or 'none'}"
    for name in names:
        if name == ADMITTED or case.publishes == "bare":
            if final[name] != after[name]:
                return f"the seal changes {name}"
        else:
            drawn["seal", name].append(final[name] - after[name])
    return None


def _law(case: Case, verb: str, name: str) -> Any:
    if name == ADMITTED:
        assert case.admitted is not None
        return case.admitted
    law: Mapping[str, Any] = case.counters(case.costs[verb])  # type: ignore[index]
    return law[name]


def _test_spread(values: Any, law: Any) -> float:
    """p-value of the sum of squares, on both sides; its law is nearly normal for this many values."""
    n, variance = values.size, law.variance
    kurtosis = 6.0 if isinstance(law, laws.DiscreteLaplace) else 3.0
    if variance < 1:
        return 1.0  # few values are not 0: the battery says more
    spread = float((values.astype(np.float64) ** 2).mean()) / variance
    error = (spread - 1) / math.sqrt((kurtosis - 1) / n)
    # the upper tail of Laplace values is heavier than a normal one, so only far outliers count there
    return math.erfc(abs(error) / math.sqrt(2)) if error < 0 else math.erfc(max(0.0, error - 3) / math.sqrt(2))


def _find_shared_noise(drawn: Mapping[tuple[str, str], list[int]]) -> str | None:
    """Text on two noises of the same sketches that correlate, or on one that repeats; None if there are none."""
    varied = {key: np.array(values, np.float64) for key, values in drawn.items() if len(set(values)) > 1}
    for key in drawn:
        if key not in varied:
            return f"WITHOUT NOISE: {key[1]} by {key[0]}"
    ranks = np.stack([np.clip(values / values.std(), -4, 4) for values in varied.values()])
    products = np.abs(np.corrcoef(ranks)) if len(ranks) > 1 else np.zeros((1, 1))
    np.fill_diagonal(products, 0)
    worst = float(products.max())
    n = ranks.shape[1]
    if worst > MAX_DEVIATION / np.sqrt(n):
        return f"SHARED NOISE: two counters, or two steps, correlate by {worst:.2f}"
    following = max(float(abs((rank[1:] * rank[:-1]).mean())) for rank in ranks)
    return None if following < MAX_DEVIATION / np.sqrt(n) else "SHARED NOISE: sketches that follow each other"
