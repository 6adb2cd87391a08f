"""Which groups are combined, what that costs, and how counters are kept for it: the fields of a spec, checked.

In: parameters from a user. Out: an `OverlapRule`. Touches: nothing.
Source: docs/theory/overlap.md, sections 1 and 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

from sketchstream.errors import SpecError
from sketchstream.kinds.groups.group_list import Groups
from sketchstream.privacy.losses.law_names import JOINT, PRESENCE_RESPONSE, RANDOMIZED_RESPONSE
from sketchstream.spec import Domain, Rational, exact_epsilon, flag, require_choice

PatternCounts = Literal["modulus", "presence"]
"""What counters hold: sums of weights modulo p, or whether an item was there."""
PatternNoise = Literal["groups", "joint"]
"""Whether each group's counters have noise of their own, or a slot's counters have it together."""
MAX_JOINT = 4
"""Groups whose noise is drawn together."""
MAX_COMBINED = 12
"""Groups whose patterns are published: 2^12 cells in every level."""
LARGE = 1 << 18
"""Slots of a group from which on a quarter is enough for `epsilon_overlap`."""


@dataclass(frozen=True)
class OverlapRule:
    """The groups whose patterns are published at seal.

    A pattern of a slot says in which of these groups its counter is not 0.

    Args:
        groups: names of the groups, in the order of the patterns' bits, the highest first.
        epsilon: cost of the histogram of patterns, once for an item in however many groups.
        histograms: whether the groups' own histograms are published too.
        counts: what counters hold.
        noise: whether the counters' noise is drawn for each group, or jointly.
    """

    groups: tuple[str, ...]
    epsilon: Fraction
    histograms: bool = True
    counts: PatternCounts = "modulus"
    noise: PatternNoise = "groups"

    @classmethod
    def of(
        cls,
        overlap: bool | Sequence[str | int] | None,
        epsilon: Rational | None,
        histograms: bool | None,
        *,
        counts: PatternCounts,
        noise: PatternNoise,
        groups: Groups | None,
        unit: str,
        publish: str,
        domain: Domain,
    ) -> OverlapRule | None:
        """Check the fields of a spec; None: no patterns are published.

        Args:
            overlap: names of groups, True for all, False or None for none.
            epsilon: epsilon as a user writes it; None: a quarter for groups with many slots, else one.
            histograms: as in `OverlapRule`; None: true for sums of weights with noise of each group's own.
            counts: content of counters, as in `OverlapRule`.
            noise: "groups" or "joint", as in `OverlapRule`.
            groups: groups of the spec.
            unit: unit of the spec.
            publish: publication of the spec.
            domain: domain of the spec.

        Raises:
            SpecError: the groups cannot be combined, or a field is given without `overlap`.
        """
        content: PatternCounts = require_choice(counts, "counts", get_args(PatternCounts))
        drawn: PatternNoise = require_choice(noise, "noise", get_args(PatternNoise))
        plain = (content, drawn) == ("modulus", "groups")
        own_histograms = plain if histograms is None else flag(histograms, "histograms")
        if overlap is None or overlap is False:
            if epsilon is not None or not own_histograms or not plain:
                raise SpecError(
                    "epsilon_overlap, histograms, counts and noise belong to overlap: the list of the groups to "
                    "combine, or True"
                )
            return None
        if groups is None:
            raise SpecError("overlap needs groups: it says what groups have in common")
        names = _names(overlap, groups)
        _require_combinable(groups, unit, publish)
        usual = Fraction(1, 4) if (domain.size or 0) >= LARGE else Fraction(1)
        cost = usual if epsilon is None else exact_epsilon(epsilon, "epsilon_overlap")
        if own_histograms and not plain:
            raise SpecError(
                "counts = 'presence' and noise = 'joint' publish patterns alone, as counters do not hold counts that a "
                "group's histogram could show: leave histograms out"
            )
        if drawn == "joint" and len(groups) > MAX_JOINT:
            raise SpecError(
                f"noise = 'joint' is for up to {MAX_JOINT} groups, found {len(groups)}: with more it hides more than "
                "noise = 'groups' at the same loss; use that, or several sketches"
            )
        return cls(names, cost, own_histograms, content, drawn)

    @property
    def cells(self) -> int:
        """Patterns of a slot."""
        return int(2 ** len(self.groups))

    def to_dict(self) -> dict[str, Any]:
        """Fields of a spec, canonical."""
        out: dict[str, Any] = {"overlap": list(self.groups), "epsilon_overlap": str(self.epsilon)}
        out |= {} if self.histograms else {"histograms": False}
        out |= {} if self.counts == "modulus" else {"counts": self.counts}
        return out if self.noise == "groups" else {**out, "noise": self.noise}

    @property
    def presence(self) -> bool:
        """Whether events add uniform residues."""
        return self.counts == "presence"

    @property
    def joint(self) -> bool:
        """Whether a slot's counters have their noise together, so that an item pays for it once."""
        return self.noise == "joint"

    @property
    def law(self) -> str:
        """Name of the law of a layer."""
        return (JOINT if self.joint else "") + (PRESENCE_RESPONSE if self.presence else RANDOMIZED_RESPONSE)


def _names(overlap: object, groups: Groups) -> tuple[str, ...]:
    """The groups to combine, each of which must be declared."""
    if overlap is True:
        names = groups.all
    elif isinstance(overlap, str) or not isinstance(overlap, Sequence):
        raise SpecError(f"overlap must be True or a list of names of groups, found {overlap!r:.60}")
    else:
        names = tuple(str(one) for one in overlap)
    unknown = [name for name in names if name not in groups.all]
    if unknown:
        raise SpecError(f"overlap names {unknown[0]!r:.60}, which is none of the {len(groups):,} groups")
    if len(set(names)) < len(names):
        raise SpecError("overlap names a group twice")
    if not 2 <= len(names) <= MAX_COMBINED:
        raise SpecError(
            f"overlap combines 2 to {MAX_COMBINED} groups, found {len(names):,}: name the ones to combine "
            '(overlap = ["spring", "summer"]); the other groups keep their own histograms'
        )
    return names


def _require_combinable(groups: Groups, unit: str, publish: str) -> None:
    """Refuse groups whose patterns would not describe the items in them.

    Raises:
        SpecError: with the way out.
    """
    if unit != "item":
        msg = (
            "overlap needs unit = 'item': it counts items by the groups that they are in. With unit 'event' the noise "
            "of a counter is as large as one event, so whether it is above 0 says little of whether an item was there; "
            "add a sketch with unit = 'item' beside this one"
        )
    elif groups.of_item:
        msg = "overlap says nothing of groups that follow from the item (group_of_item): none has two; unions are sums"
    elif groups.ranked:
        msg = (
            "overlap does not go with group_limit = 'ranked': ranked groups count different people, so that what they "
            "have in common is not what is counted; use counts = 'presence', or max_groups as a promise of the source"
        )
    elif publish != "histogram":
        msg = "overlap needs publish = 'histogram': a published state is not a histogram of patterns"
    else:
        return
    raise SpecError(msg)
