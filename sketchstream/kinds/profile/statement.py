"""The statement of a profile sketch: what is protected, by which promises about groups, and what that assumes.

In: a spec, the ledger of its sketch, what is known of its deployment. Out: a `Guarantee`. Touches: nothing.
Source: docs/theory/privacy.md; docs/theory/overlap.md for patterns of groups.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from sketchstream.privacy.deployments.guarantee import (
    PACKED,
    RELATION,
    Guarantee,
    assumptions,
    merged_from,
    not_protected,
)
from sketchstream.privacy.deployments.surroundings import Context

if TYPE_CHECKING:
    from sketchstream.kinds.groups.group_list import GroupRule
    from sketchstream.kinds.profile.spec import ProfileSpec
    from sketchstream.privacy.ledgers.ledger import Ledger


def statement(spec: ProfileSpec, ledger: Ledger, context: Context | None = None) -> Guarantee:
    """The guarantee of a sketch with this ledger, in this deployment."""
    context = context or Context()
    states = spec.publish == "state"
    bare = states and not spec.intrusion
    return Guarantee.build(
        spec,
        ledger,
        context,
        delta=Fraction(0),
        protects=_protects(spec, ledger),
        not_protected=not_protected(spec, ledger, context, states=states, bare=bare),
        assumes=(*assumptions(spec, context), *assumed_of_groups(spec)),
    )


def _protects(spec: ProfileSpec, ledger: Ledger) -> tuple[str, ...]:
    """Sentences that define the unit."""
    if spec.unit == "event":
        weight = "" if spec.max_weight == 1 else f", of any weight up to {spec.max_weight} in absolute value"
        unit = f"one event: whether it counted, and for which item{weight}; an event and its later deletion are two"
    else:
        unit = (
            "everything that one item did in this sketch (one name, one window, one partition), "
            "with any number, weights and signs of events"
        )
    groups = spec.group_rule
    if groups is not None and spec.unit == "event":
        unit += "; an event is in one group and pays for that one: to change its group is two events"
    if groups is not None and spec.unit == "item":
        unit += f", in all of its {len(groups):,} groups" if groups.of_one_item > 1 else ""
        unit += _promised_groups(groups)
        unit += _patterns(spec, groups)
    return (
        unit,
        *_choosing(spec),
        PACKED.format("item"),
        f"{RELATION}to swap someone for someone else, or to flip the sign of a weight: twice every number below",
        *merged_from(ledger),
    )


def _choosing(spec: ProfileSpec) -> tuple[str, ...]:
    """What is protected of the fields that decide in which group a record counts, and whether it does."""
    out = []
    deciding = ["its group"] if spec.group_rule is not None else []
    deciding += ["the fields of where"] if spec.where else []
    if deciding:
        out.append(f"{' and '.join(deciding)}: part of a record's payload, and protected with it")
    if spec.group_rule is not None:
        out.append(
            "which groups had records: all groups of a window exist as soon as it does, and are written, sealed and "
            "published together"
        )
    return tuple(out)


def _patterns(spec: ProfileSpec, groups: GroupRule) -> str:
    """What an item pays for the patterns of groups: once, in however many it is."""
    if not spec.pattern_cost:
        return ""
    text = f"; for what the groups have in common it pays {spec.pattern_cost} once, in however many of them it is"
    if spec.overlap is not None and not spec.overlap.histograms:
        text += ", and readers see nothing else of it"
        if spec.overlap.presence:
            text += "; its counters tell that it was in a group, not how often"
        if spec.overlap.joint:
            text += f"; for the noise of all groups together it pays {spec.epsilon} once too"
        return text
    replaced = groups.of_one_replaced > groups.of_one_item
    return text + (", against other payloads of the same item too" if replaced else "")


def _promised_groups(groups: GroupRule) -> str:
    """What the source promises about an item's groups, and the loss for each neighbouring relation."""
    if groups.of_item:
        return "; its group follows from the item, as its source promises: it pays for one group"
    number, replaced = groups.of_one_item, groups.of_one_replaced
    if groups.ranked:
        return (
            f"; it counts in at most {number:,} of them, those that a keyed hash of it ranks first, whatever its "
            f"records say, and pays for {number:,}, against other payloads of the same item too"
        )
    text = f"; it pays for {number:,} of them" if number > 1 else "; it pays for one group"
    if groups.max_groups is not None:
        text += ", which its source promises to be the most that it has events in (max_groups)"
    if replaced > number:
        text += (
            f"; against other payloads of the same item, in {replaced:,} groups: {replaced}/{number} of every number"
        )
    return text


def assumed_of_groups(spec: ProfileSpec) -> tuple[str, ...]:
    """What the numbers assume if the source promises something about an item's groups."""
    groups = spec.group_rule
    if groups is None:
        return ()
    lines = ["the list of groups was not chosen from the data"]
    if groups.of_item:
        lines.append(
            "the group of an item never changes, as its source promises: nothing checks that, and an item that breaks "
            "it pays for each group that it was in"
        )
    elif groups.ranked:
        lines.append(
            "the answers, not the losses, assume that whoever sends items does not know the key: with it he could send "
            "items that all count in one group"
        )
    elif groups.max_groups is not None:
        lines.append(
            f"an item has events in at most {groups.max_groups:,} groups of one window, as its source promises: "
            "nothing checks that, and an item that breaks it pays for each group that it was in"
        )
    return tuple(lines)
