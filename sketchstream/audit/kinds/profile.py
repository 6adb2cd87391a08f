"""Audit of kind `profile`: laws of the results of `create`, `release`, `refresh`, `seal`, `merge` and a worker.

In: specs of every sort. Out: findings for `sketchstream.audit.report`. Touches: entropy, through the sketches it
creates.
Source: docs/theory/privacy.md sections 2 and 6.

Nothing here calls internals of sketches. Expected results are computed again: laws from the fields of a
spec, histograms by counting, ledgers entry by entry. So a build with correct parts that are combined wrongly
fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np

from sketchstream.array_types import Ints
from sketchstream.audit.cases import Case, Number
from sketchstream.audit.observed import (
    REFUSED_FROM,
    UNLIKELY,
    Outcome,
    check_untouched,
    find_repeated_noise,
    judge,
    noise_added,
    state_of,
)
from sketchstream.items.key import Key
from sketchstream.kinds.groups.group_list import Groups
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.noise import laws
from sketchstream.sketch import Sketch
from sketchstream.spec import ClosedDomain, OpenDomain

LOOK = Fraction(1, 3)
FRESH = Fraction(2, 3)
OUTSIDE: Final = 1 << 40
"""An item outside of every closed domain here."""


@lru_cache(maxsize=8)
def specs(slots: int) -> dict[str, ProfileSpec]:
    """Specs of every sort: units, domains, forms, weights, publications, groups, counters."""
    closed, opened = ClosedDomain(size=slots), OpenDomain(slots=slots, levels=4)
    state: dict[str, Any] = {"publish": "state"}
    names = ("north", "east", "south")
    item: dict[str, Any] = {"epsilon": "1", "unit": "item", "modulus": 16}
    alone = {
        "epsilon": "1",
        "unit": "item",
        "groups": Groups(names),
        "overlap": True,
        "epsilon_overlap": "1/2",
        "epsilon_publish": None,
        "max_count": None,
    }
    more: dict[str, dict[str, Any]] = {
        "event, closed": {"epsilon": "1", "domain": closed},
        "event, open": {"epsilon": "1/2", "domain": opened},
        "event, weights to 5": {"epsilon": "2", "domain": closed, "max_weight": 5},
        "event, open, weights to 3": {"epsilon": "1", "domain": opened, "max_weight": 3},
        "event, large weights": {"epsilon": "2", "domain": closed, "max_weight": 100_000, "bits": 64},
        "event, no total": {"epsilon": "1", "domain": opened, "total_share": 0},
        "event, counted": {
            "epsilon": "1", "domain": closed, "total_share": "1/4", "counted": True, "epsilon_records": "1/5"
        },
        "event, groups": {"epsilon": "1", "domain": closed, "max_weight": 2, "groups": Groups(names)},
        "event, fresh state": {"epsilon": "1", "domain": opened, "intrusion": True, **state},
        "event, bare state": {"epsilon": "1", "domain": closed, "intrusion": False, **state},
        "event, fresh state, weights to 5": {
            "epsilon": "2", "domain": closed, "max_weight": 5, "intrusion": True, **state
        },
        "item, closed": {**item, "domain": closed},
        "item, open": {"epsilon": "2", "unit": "item", "modulus": 8, "domain": opened},
        "item, total": {**item, "domain": closed, "max_total": 20},
        "item, groups to 2": {
            **item, "domain": closed, "max_total": 20, "groups": Groups(names, max_groups=2)
        },
        "item, ranked groups": {**item, "domain": opened, "groups": Groups(names, max_groups=2, limit="ranked")},
        "item, overlap": {**item, "domain": opened, "groups": Groups(names), "overlap": True, "epsilon_overlap": "1/2"},
        "item, overlap alone": {
            **item, "domain": closed, "groups": Groups(names, max_groups=2), "overlap": ["south", "north"],
            "epsilon_overlap": "1/2", "epsilon_publish": None, "histograms": False,
        },
        "item, presence": {**alone, "domain": closed, "counts": "presence"},
        "item, joint": {**alone, "domain": opened, "modulus": 4, "noise": "joint"},
        "item, joint presence": {**alone, "domain": closed, "counts": "presence", "noise": "joint"},
        "item, fresh state of groups": {
            **item, "domain": closed, "intrusion": True, "groups": Groups(names), **state
        },
        "item, fresh state": {**item, "domain": opened, "intrusion": True, **state},
        "item, bare state": {**item, "domain": closed, "intrusion": False, **state},
    }  # fmt: skip
    return {name: ProfileSpec(**{"epsilon_publish": "3/4", "max_count": 7, **given}) for name, given in more.items()}


def _moves(spec: ProfileSpec) -> list[tuple[list[Any], list[int], Mapping[str, int]]]:
    """Batches of events, and what they add to the counters: invalid ones nothing."""
    most, event = spec.max_weight, spec.unit == "event"
    inside = isinstance(spec.domain, ClosedDomain)
    batches: list[tuple[list[int], list[int], int, int]] = [
        ([3, 5, 3], [1, -1, most], most, 3),
        ([3, OUTSIDE], [1, 1], 1 if inside else 2, 1 if inside else 2),
        ([3], [most + 1], 0 if event else most + 1, 0 if event else 1),
    ]
    if spec.groups is None:
        return [(items, weights, {"total": total, "counted": counted}) for items, weights, total, counted in batches]
    if spec.groups.ranked:
        return []
    out: list[tuple[list[Any], list[int], Mapping[str, int]]] = []
    for at, (items, weights, total, counted) in enumerate(batches):
        pairs = [(spec.groups.names[at], item) for item in items]
        out.append((pairs, weights, {f"total.{at}": total, f"counted.{at}": counted}))
    return [*out, ([("west", 3)], [1], {})]


WORKERS: Final = {
    f"{unit}, {publish}": f'''
epsilon = {1 if publish == "state" else 40}
epsilon_publish = "3/4"
unit = "{unit}"
publish = "{publish}"
max_count = 100
{"modulus = 1000" if unit == "item" else 'epsilon_records = "1/5"'}
{"intrusion = false" if publish == "state" else ""}
domain = {{ size = 2000 }}
'''
    for unit in ("event", "item")
    for publish in ("histogram", "state")
}


class ProfileAudit:
    """See `sketchstream.audit.cases.Audit`."""

    SECTION: Final = "sketches"
    """Name of the section of these checks, instead of the name of the kind."""
    WORKERS: Final = WORKERS
    """Blocks for the audit of a worker's windows; those for histograms have next to no other noise."""

    def cases(self, slots: int = 64) -> tuple[Case, ...]:
        """Cases of the checks that all kinds share; each group has `slots` slots where many are needed."""
        small, many, fewer = specs(64), specs(slots), specs(slots // 4)  # slots of each group
        return tuple(
            self.promises(name, spec, small[name], (many if spec.groups is None else fewer)[name])
            for name, spec in specs(2_048).items()
        )

    def promises(
        self, name: str, spec: ProfileSpec, small: ProfileSpec | None = None, many: ProfileSpec | None = None
    ) -> Case:
        """The promises of one spec: an item pays in each group that it may be in."""
        k = _groups(spec)
        costs: dict[Any, Number] = {"create": spec.epsilon * _paid(spec), "release": LOOK, "refresh": LOOK}
        if spec.publish == "histogram" or spec.intrusion:
            costs["seal"] = spec.epsilon_publish * k if _shows_groups(spec) else 0
            costs["seal"] += 0 if spec.overlap is None else spec.overlap.epsilon  # once, for however many groups

        def counters(cost: Number) -> dict[str, laws.Law]:
            most = spec.max_weight if spec.max_total is None else 2 * spec.max_total
            share = Fraction(spec.total_share) / (2 if spec.counted else 1) * Fraction(cost) / k
            named: dict[str, laws.Law] = {"total": laws.DiscreteLaplace(share / most)} if share else {}
            named |= {"counted": laws.DiscreteLaplace(share)} if spec.counted else {}
            return (
                named if spec.groups is None else {f"{key}.{at}": law for key, law in named.items() for at in range(3)}
            )

        return Case(
            name,
            spec,
            costs,
            "epsilon",
            (LOOK,),
            counters,
            laws.DiscreteLaplace(spec.epsilon_records) if spec.epsilon_records else None,
            _moves(spec),
            modulus=spec.modulus,
            small=small,
            many=many,
        )

    def checks(self, quick: bool) -> Iterator[tuple[str, Callable[[], Outcome]]]:
        """Names and checks of all tests, for each spec; fewer samples are drawn if they must be quick."""
        slots = 100_000 if quick else 1_000_000
        for name, spec in specs(slots).items():
            small = specs(64)[name]
            yield f"create, {name}", partial(_create, spec)
            yield f"release, {name}", partial(_release, small)
            yield f"refresh, {name}", partial(_refresh, spec)
            yield f"seal, {name}", partial(_seal, small if spec.publish == "histogram" else spec)
            if spec.groups is not None:
                yield f"groups, {name}", partial(_in_groups, small)
            if _presence(spec):
                yield f"residues, {name}", partial(_residues, spec)

    def windows(self, case: Case, parts: Sequence[Any]) -> Outcome:
        """Judge what was published of sketches without events."""
        # workers' specs for histograms have so large an epsilon that the counters are 0 before the seal
        spec = case.spec
        if case.publishes == "bare":
            return judge(np.concatenate([part.state.astype(np.int64) for part in parts]), _layer(spec, spec.epsilon))
        noise = [(part.noised - _histogram(spec, np.zeros(part.slots, np.int64))).ravel() for part in parts]
        return judge(np.concatenate(noise), _view(spec, spec.epsilon_publish))


# Expected values, from the fields of a spec.


def _share(spec: ProfileSpec) -> Fraction:
    """Share of the slots in every layer and view."""
    return 1 - Fraction(spec.total_share)


def _groups(spec: ProfileSpec) -> int:
    """Groups in which the unit has losses."""
    if spec.groups is None or spec.unit == "event":
        return 1
    return spec.groups.max_groups or len(spec.groups.names)


def _paid(spec: ProfileSpec) -> int:
    """Groups in which the unit pays for a layer: one where they have their noise together."""
    return 1 if spec.overlap is not None and spec.overlap.noise == "joint" else _groups(spec)


def _groups_drawn_together(spec: ProfileSpec) -> int:
    """Groups whose noise is drawn together."""
    return len(spec.groups.names) if spec.groups is not None and _paid(spec) < _groups(spec) else 1


def _vectors(spec: ProfileSpec, drawn: Ints) -> Ints:
    """One number for the noise of each slot, or of the counters that have it together: digits in base p."""
    rows = drawn.reshape(_groups_drawn_together(spec), -1)
    return np.asarray((spec.modulus or 1) ** np.arange(len(rows)) @ rows)


def _of_presence(epsilon: Fraction, modulus: int, groups: int) -> Fraction:
    """The largest parameter of randomized response with which presence in some groups costs no more than epsilon.

    Events in j of them make j counters uniform; a vector that agrees with the old one in the others is then more likely
    than the rest.
    """
    low, high = 0.0, 64.0
    for _ in range(80):
        middle = (low + high) / 2
        each = 1 / (math.exp(middle) + modulus**groups - 1)
        agree = [(math.exp(middle) - 1) * each / modulus**made + each for made in range(groups + 1)]
        cost = math.log(max(agree[0] / agree[-1], agree[1] / each))
        low, high = (middle, high) if cost <= epsilon else (low, middle)
    return Fraction(low)


def _layer(spec: ProfileSpec, epsilon: Fraction) -> laws.Law:
    """The law of one layer in every slot."""
    if spec.modulus is None:
        return laws.DiscreteLaplace(epsilon * _share(spec) / spec.max_weight)
    parameter = epsilon * _share(spec)
    if _presence(spec):
        parameter = _of_presence(parameter, spec.modulus, _groups_drawn_together(spec))
    return laws.RandomizedResponse(spec.modulus ** _groups_drawn_together(spec), parameter)


def _presence(spec: ProfileSpec) -> bool:
    """Whether events add residues."""
    return spec.overlap is not None and spec.overlap.counts == "presence"


def _view(spec: ProfileSpec, cost: Fraction) -> laws.Law:
    """The law of the noise on every entry of a histogram: one entry moves by one in cumulative form, two in bins."""
    cumulative = spec.unit == "event" and spec.max_weight == 1
    return laws.DiscreteLaplace(cost * _share(spec) / (1 if cumulative else 2))


def _histogram(spec: ProfileSpec, state: Ints) -> Ints:
    """(groups x levels, B) histogram of the counters, counted one edge at a time."""
    levels = state.reshape(spec.levels * (1 if spec.groups is None else len(spec.groups.names)), -1)
    if spec.unit == "event" and spec.max_weight == 1:
        half, whole = 1 << (8 * spec.dtype.itemsize - 1), 1 << (8 * spec.dtype.itemsize)
        columns = [((levels - edge) % whole < half).sum(axis=1) for edge in spec.edges.tolist()]
        return np.stack(columns, axis=1)
    columns = []
    for low, high in zip(spec.edges.tolist(), [*spec.edges.tolist()[1:], None], strict=True):
        inside = levels >= low if high is None else (levels >= low) & (levels < high)
        columns.append(inside.sum(axis=1))
    counts: Ints = np.stack(columns, axis=1)
    counts[:, 0] += (levels < spec.edges[0]).sum(axis=1)
    return counts


def _shows_groups(spec: ProfileSpec) -> bool:
    """Whether the counters' histograms are published, not only the patterns over groups."""
    return spec.overlap is None or spec.overlap.histograms


def _patterns(spec: ProfileSpec, state: Ints) -> Ints:
    """(levels x 2^m,) number of slots of each pattern, counted slot by slot; the first group's bit is the highest."""
    assert spec.overlap is not None
    assert spec.groups is not None
    levels, m = spec.levels, len(spec.overlap.groups)
    every = state.reshape(len(spec.groups.names), levels, -1)
    counts = np.zeros((levels, 2**m), np.int64)
    for level in range(levels):
        for slot in range(every.shape[2]):
            pattern = 0
            for name in spec.overlap.groups:
                pattern = 2 * pattern + int(every[spec.groups.names.index(name), level, slot] != 0)
            counts[level, pattern] += 1
    return counts.ravel()


def _sketch(spec: ProfileSpec) -> Any:
    return Sketch.create(spec, Key.generate() if spec.needs_key else None)


# Checks.


def _create(spec: ProfileSpec) -> Outcome:
    return judge(_vectors(spec, state_of(_sketch(spec))), _layer(spec, spec.epsilon))


def _release(spec: ProfileSpec) -> Outcome:
    """Check that releases of one sketch have fresh noise of their law in every entry."""
    noise: list[Ints] = []
    count, law = _histogram, _view(spec, LOOK / _groups(spec))
    if not _shows_groups(spec):
        count, law = _patterns, laws.DiscreteLaplace(LOOK / 2)
    while sum(drawn.size for drawn in noise) < 20_000:
        sketch = _sketch(spec)
        exact = count(spec, state_of(sketch))
        noise += [sketch.release(LOOK).noised - exact for _ in range(20)]
    drawn = np.stack([release.ravel() for release in noise])
    return find_repeated_noise(drawn) or judge(drawn.ravel(), law)


def _refresh(spec: ProfileSpec) -> Outcome:
    sketch = _sketch(spec)
    before = state_of(sketch)
    sketch.refresh(FRESH)
    moved = _vectors(spec, noise_added(state_of(sketch), before, spec.modulus))
    return judge(moved, _layer(spec, FRESH / _paid(spec)))


def _seal(spec: ProfileSpec) -> Outcome:
    """Check the publication of a seal against the state before it."""
    if spec.publish == "histogram":
        noise, common = [], []
        for _ in range(max(20, 10_000 // (spec.levels * spec.edges.size))):
            sketch = _sketch(spec)
            state = state_of(sketch)
            exact = _histogram(spec, state).ravel() if _shows_groups(spec) else np.zeros(0, np.int64)
            published = sketch.seal().noised.ravel()
            noise.append(published[: exact.size] - exact)
            if spec.overlap is not None:
                common.append(published[exact.size :] - _patterns(spec, state))
        outcomes = [(noise, _view(spec, spec.epsilon_publish))] if _shows_groups(spec) else []
        if spec.overlap is not None:
            outcomes.append((common, laws.DiscreteLaplace(spec.overlap.epsilon / 2)))
        judged = [judge(np.concatenate(some), law) for some, law in outcomes]
        return next((outcome for outcome in judged if not outcome[0]), judged[-1])
    sketch = _sketch(spec)
    before = state_of(sketch)
    moved = noise_added(sketch.seal().state.astype(np.int64), before, spec.modulus)
    if spec.intrusion:
        return judge(moved, _layer(spec, spec.epsilon_publish))
    return check_untouched(moved)


def _residues(spec: ProfileSpec) -> Outcome:
    """Check that each event adds a residue of its own, uniform, to the counter of its item and group."""
    sketch, size, p = _sketch(spec), spec.domain.size or 0, spec.modulus or 0
    before, moved = state_of(sketch), []
    for _ in range(2):
        sketch.update([("south", item) for item in range(size)])
        moved.append(noise_added(state_of(sketch), before, spec.modulus).reshape(3, -1))
        before = state_of(sketch)
    if any(batch[:2].any() for batch in moved):
        return False, "uniform residues in one group", "WRONG: other groups moved", "one counter"
    seen = (moved[0][2], moved[1][2], (moved[1][2] - moved[0][2]) % p)
    worst = min(
        laws.chi_square("uniform", np.bincount(drawn, minlength=p), np.full(p, size / p)).p_value for drawn in seen
    )
    power = f"a residue likelier by {REFUSED_FROM * math.sqrt(p / size):.1%}"
    return worst > UNLIKELY, "uniform residues of their own", f"p = {worst:.2g}, n = {3 * size}", power


def _in_groups(spec: ProfileSpec) -> Outcome:
    """Check that an item with events in all groups moves one slot of each group in which it counts, and no other."""
    assert spec.groups is not None
    names, most = spec.groups.names, _groups(spec) if spec.groups.ranked else len(spec.groups.names)
    key = Key.generate()
    empty = Sketch.create(spec, key if spec.needs_key else None).to_bytes()
    wrong = 0
    seen: set[tuple[bool, ...]] = set()
    for item in range(60):
        states = []
        for times in (0, 3):
            sketch = Sketch.from_bytes(empty, key if spec.needs_key else None)
            if times:
                sketch.update([(name, item) for name in names for _ in range(times)])
            states.append(state_of(sketch).reshape(len(names), -1))
        moved = states[1] != states[0]
        counts = moved.sum(axis=1)
        few = _presence(spec) and int(moved.sum()) < most  # a residue may be 0
        wrong += int(counts.max() > 1 or (int(moved.sum()) != most and not few))
        seen.add(tuple((counts > 0).tolist()))
    chosen = _presence(spec) or len(seen) == (len(names) if spec.groups.ranked else 1)
    verdict = f"{len(seen)} choices of groups for 60 items" if not wrong else f"WRONG for {wrong} of 60 items"
    return not wrong and chosen, f"one slot in each of {most} groups", verdict, "a group more, for any of 60 items"


AUDIT: Final = ProfileAudit()
