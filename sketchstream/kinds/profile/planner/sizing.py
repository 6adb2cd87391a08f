"""Sizing: a complete sketch from the numbers wanted, their errors, and the trust in the machine.

In: number of items, numbers wanted, target error, unit of privacy, trust in the machine. Out: a `Sizing`: the
smallest sufficient sketch, its block of the configuration, its plan. Touches: nothing; no data.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, Unpack

from sketchstream.errors import EstimateError, SpecError
from sketchstream.kinds.groups.group_list import Groups
from sketchstream.kinds.profile.planner.forecast import Plan
from sketchstream.kinds.profile.planner.planning import Expectation, plan, smallest_plan
from sketchstream.kinds.profile.spec import MODULUS, ProfileSpec
from sketchstream.spec import OpenDomain, Rational, Unit, exact_epsilon, require_choice

Machine = Literal["trusted", "untrusted"]
"""Whether those who could seize the machine that counts are trusted more than the readers of results."""

TRUSTED_EPSILON: Final = Fraction(4)
"""epsilon of the state on a trusted machine: a bound for the day on which it is seized after all."""
LEVELS: Final = (8, 4, 2)
"""Most levels first: more levels bear a wrong number of items better, fewer are more accurate at the right one."""
CROWDING_RESERVE: Final = 4
"""Multiple of the expected items that must not crowd the sketch."""
RESOLVED: Final = 2
"""Counts are resolved up to this many times the largest k of the numbers, so that none of these is at the end."""


@dataclass(frozen=True)
class Sizing:
    """The smallest sketch that reaches an error.

    Args:
        plan: plan of that sketch.
        numbers: names of the numbers that reach the error.
        target: largest relative error, one standard deviation.
    """

    plan: Plan
    numbers: tuple[str, ...]
    target: float

    @property
    def spec(self) -> ProfileSpec:
        """Spec of the sketch."""
        return self.plan.spec

    @property
    def memory(self) -> int:
        """Bytes of counters in each open window and partition."""
        return self.spec.domain.size * self.spec.group_count * self.spec.dtype.itemsize

    def block(self, name: str, window: str, group_by: str = "group", listed: str | None = None) -> str:
        """The sketch's block of a configuration file.

        Args:
            name: name of the sketch.
            window: width of its windows, such as "1d".
            group_by: field of the records that holds the group, if there are groups.
            listed: file of the list of groups; None: the block has their names.
        """
        spec = self.spec
        each = "" if spec.groups is None else " of each group"
        lines = [
            ("name", f'"{name}"', ""),
            ("window", f'"{window}"', ""),
            ("unit", f'"{spec.unit}"', _UNITS[spec.unit]),
            ("epsilon", f'"{spec.epsilon}"', f"the state{each}: against somebody who seizes the machine"),
            ("epsilon_publish", f'"{spec.epsilon_publish}"', f"what is published{each}: against its readers"),
        ]
        if spec.modulus is not None:
            lines.append(("modulus", str(spec.modulus), f"counts up to {spec.max_count}"))
        else:
            lines.append(("max_count", str(spec.max_count), "largest count that is resolved"))
        lines.append(("domain", f"{{ slots = {spec.domain.size}, levels = {spec.levels} }}", ""))
        lines += _group_lines(spec, group_by, listed)
        text = [(f"{key} = {value}", why) for key, value, why in lines]
        wide = max(len(line) for line, why in text if why)
        return "\n".join(["[[sketch]]", *(f"{line:<{wide}}  # {why}" if why else line for line, why in text)])


def _group_lines(spec: ProfileSpec, group_by: str, listed: str | None) -> list[tuple[str, str, str]]:
    """Keys, values and meanings of the lines of a block that declare groups."""
    groups = spec.groups
    if groups is None:
        return []
    names = json.dumps(list(groups.names) if listed is None else listed, ensure_ascii=False)
    lines = [("group_by", json.dumps(group_by, ensure_ascii=False), "field of the records")]
    lines.append(("groups", names, "" if listed is None else f"a file, one a line: {len(groups.names):,} groups"))
    if groups.other:
        lines.append(("other_group", "true", "all other values"))
    if groups.max_groups is not None:
        lines.append(("max_groups", str(groups.max_groups), f"in which one {spec.unit} counts"))
    if groups.ranked:
        lines.append(("group_limit", '"ranked"', "the key chooses them; answers are scaled up"))
    if groups.of_item:
        lines.append(("group_of_item", "true", "promised"))
    return lines


def _roomy(sufficient: Plan, items: float, expectation: Expectation) -> Plan:
    """The plan of this sketch, or of the next larger one that has room for `CROWDING_RESERVE` times as many items."""
    while True:
        spec = sufficient.spec
        try:
            plan(spec, items=CROWDING_RESERVE * items, **expectation)
        except EstimateError:
            larger = OpenDomain(2 * spec.domain.size, spec.levels)
            sufficient = plan(spec.changed(domain=larger), items=items, **expectation)
        else:
            return sufficient


_UNITS: Final = {
    "item": "protected: everything that one item does in a window",
    "event": "protected: each single event",
}


class Dials(Expectation, total=False):
    """What protects people, and what is expected of the stream: arguments of `_Requirement.of`."""

    unit: Unit
    machine: Machine
    epsilon_publish: Rational
    epsilon: Rational | None
    largest: int | None
    groups: Groups | None


def size(
    *, items: float, numbers: Sequence[str] = ("distinct",), target: float = 0.02, **dials: Unpack[Dials]
) -> Sizing:
    """Find the smallest sketch of an open domain that reaches a relative error in all numbers.

    Args:
        items: distinct items expected in a window (over all parts); with groups: in one group.
        numbers: names of the numbers that matter: "distinct", "at_least.5", "mean", ...
        target: largest relative error, one standard deviation.
        dials: unit, epsilons, groups and expectations; see `_Requirement.of`.

    Raises:
        SpecError: no sketch within the limits reaches the error; the message names the best one.
    """
    requirement = _Requirement.of(numbers=numbers, target=target, **dials)
    smallest: Plan | None = None
    refusal: SpecError | None = None
    for levels in LEVELS:
        try:
            sufficient = requirement.plan(items, levels)
        except SpecError as error:
            refusal = refusal or error
            continue
        if smallest is None or sufficient.spec.domain.size < smallest.spec.domain.size:
            smallest = sufficient
    if smallest is None:
        raise SpecError(
            f"{refusal}: allow a larger error or a larger epsilon, or choose wider windows, which hold more items"
        )
    return Sizing(smallest, tuple(numbers), target)


def fewest_items(*, numbers: Sequence[str] = ("distinct",), target: float = 0.02, **dials: Unpack[Dials]) -> Sizing:
    """Find the fewest items of which a sketch tells all numbers with this relative error, and that sketch.

    The number of items (`plan.items` of the result) is one of 1, 1.5, 2, 3, 5 and 7 times a power of ten. The sketch
    has many levels, so it stays accurate with a hundred times as many items.

    Args:
        numbers: names of the numbers that matter.
        target: largest relative error, one standard deviation.
        dials: unit, epsilons, groups and expectations; see `_Requirement.of`.

    Raises:
        SpecError: not even 700 million items reach the error.
    """
    requirement = _Requirement.of(numbers=numbers, target=target, **dials)
    candidates = [step * 10**power for power in range(2, 9) for step in (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)]
    best: Plan | None = None
    refusal: SpecError | None = None
    low, high = 0, len(candidates)
    while low < high:
        middle = (low + high) // 2
        try:
            best, high = requirement.plan(candidates[middle], LEVELS[0]), middle
        except SpecError as error:
            refusal, low = error, middle + 1
    if best is None:
        raise SpecError(f"{refusal}: allow a larger error or a larger epsilon")
    return Sizing(best, tuple(numbers), target)


@dataclass(frozen=True)
class _Requirement:
    """What a sketch must reach, checked once: all fields of its spec but slots and levels."""

    numbers: tuple[str, ...]
    target: float
    unit: Unit
    epsilon: Fraction
    published: Fraction
    groups: Groups | None
    max_count: int
    expectation: Expectation

    @classmethod
    def of(
        cls,
        *,
        numbers: Sequence[str],
        target: float,
        unit: Unit = "item",
        machine: Machine = "trusted",
        epsilon_publish: Rational = 1,
        epsilon: Rational | None = None,
        largest: int | None = None,
        groups: Groups | None = None,
        **expectation: Unpack[Expectation],
    ) -> _Requirement:
        """Check the requirement.

        Args:
            numbers: names of the numbers: "distinct", "at_least.5", "mean", ...
            target: relative error, one standard deviation.
            unit: unit of privacy.
            machine: "untrusted": the state is protected as strictly as publications.
            epsilon_publish: largest loss of the unit to readers.
            epsilon: epsilon of the state; by default `machine` decides it.
            largest: largest count to resolve; default: twice the largest k of the numbers, 31 at least (unit "item").
            groups: groups, each with answers of that error. An item loses the epsilons in all groups in which it may
                count together, so each group has its part of them.
            expectation: arguments of `plan`, such as `parts` and `mean`.
        """
        require_choice(machine, "machine", ("trusted", "untrusted"))
        if not numbers:
            raise SpecError("numbers must name what matters, such as distinct or at_least.5, found none")
        published = exact_epsilon(epsilon_publish, "epsilon_publish")
        state = max(TRUSTED_EPSILON, published) if machine == "trusted" else published
        counts = [int(name[9:]) for name in numbers if name.startswith("at_least.") and name[9:].isdecimal()]
        resolved = largest or RESOLVED * max(counts, default=0)
        return cls(
            tuple(numbers),
            target,
            unit,
            state if epsilon is None else exact_epsilon(epsilon),
            published,
            groups,
            max(resolved, MODULUS - 1) if unit == "item" else largest or 300,
            expectation,
        )

    def plan(self, items: float, levels: int) -> Plan:
        """Plan of the smallest sufficient sketch with this number of levels.

        Raises:
            SpecError: none reaches the error.
        """
        shared = 1 if self.groups is None or self.unit == "event" else self.groups.of_one_item
        spec = ProfileSpec(
            self.epsilon / shared,
            self.unit,
            OpenDomain(1024, levels),
            self.max_count,
            epsilon_publish=self.published / shared,
            groups=self.groups,
        )
        sufficient = smallest_plan(spec, target=self.target, number=self.numbers, items=items, **self.expectation)
        return _roomy(sufficient, items, self.expectation)
