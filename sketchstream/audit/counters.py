"""Audit of the counters beside the slots: totals, events counted, records admitted.

In: cases of every kind. Out: outcomes. Touches: entropy, through the sketches it creates.
Source: docs/theory/privacy.md section 3 (components of a sketch).

Every counter has noise of its own in each layer and each view, at its share of the cost. The audit reads the counters
of an open sketch from its bytes, so that each step's noise is seen alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from sketchstream.audit.cases import Case, Check
from sketchstream.audit.draws import MAX_DEVIATION
from sketchstream.audit.observed import UNLIKELY, Outcome, counters_of, resolution
from sketchstream.noise import laws

ADMITTED: Final = "admitted"


def checks(case: Case, number: int) -> Iterator[Check]:
    """Names and checks of the counters of one case."""
    yield f"counters, {case.name}", lambda: counters(case, number)


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
        released = {counter.name: counter.value for counter in sketch.release(*case.asked).counters}
        if set(released) != inside:
            return f"a release shows {', '.join(released) or 'none'}"
        for name in inside:
            drawn["release", name].append(released[name] - after[name])
    final = {counter.name: counter.value for counter in sketch.seal().counters}
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
    """The law of what a step adds to a counter."""
    if name == ADMITTED:
        assert case.admitted is not None
        return case.admitted
    law: Mapping[str, Any] = case.counters(case.costs[verb])  # type: ignore[index]
    return law[name]


def _test_spread(values: Any, law: Any) -> float:
    """p-value of the sum of squares, on both sides; its law is nearly normal for this many values."""
    import math

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
