"""The lemma of looks: the privacy loss of one event, or one item, through a history of noise layers and views.

In: a history, a measure. Out: losses in that measure. Touches: nothing.
Source: Dwork, Naor, Pitassi, Rothblum & Yekhanin, ICS 2010 (pan-privacy, one intrusion). The lemma and its proof:
docs/theory/privacy.md section 3; for Gaussian noise docs/theory/gaussian_ledger.md.

A history is a line of layers and views, or a tree of lines that are merged. An event at a gap of it shifts all later
views. The shift can be hidden behind layers before the gap, layers after it, and the noise of the views themselves.
`sides` walks every line forwards and backwards, and finds the lowest cost on either side of every gap. Views add to a
cost (in series), layers join it (in parallel), and the loss of an event joins both sides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from typing import Generic, TypeVar

from sketchstream.privacy.losses.history import LOOK, Entry, Gap, History, LayerEntry, Loss, View
from sketchstream.privacy.losses.measures import PURE, Measure

Cost = TypeVar("Cost")
PartPath = tuple[int, ...]


@dataclass(frozen=True)
class GapCosts(Generic[Cost]):
    """One gap of a history.

    Args:
        part: path of indices to the merged part, () for the sketch itself.
        after: number of entries of that part that came before it.
        before: cost of hiding a shift behind layers before the gap; views between them and the gap are included.
        later: cost of hiding it behind what follows: views that see it, layers after it, layers of other parts.
    """

    part: PartPath
    after: int
    before: Cost
    later: Cost


def sides(history: History, measure: Measure[Cost], earlier: Measure[Cost] | None = None) -> list[GapCosts[Cost]]:
    """The costs on both sides of every gap at which an event can have been applied; linear in the history.

    Args:
        history: layers and views; gaps of the sketch come first, those of its parts follow.
        measure: says how costs add.
        earlier: the measure for what lies before a gap, if it differs.
    """
    return list(_sides(history, measure, earlier or measure, (), measure.nothing))


def _sides(
    history: History, measure: Measure[Cost], earlier: Measure[Cost], path: PartPath, end: Cost
) -> Iterator[GapCosts[Cost]]:
    """The places of `sides`, for a part after whose end a shift costs `end`."""
    before, later = _before(history, earlier), [end]
    for entry in reversed(history.entries):
        later.append(_step(entry, later[-1], measure))
    later.reverse()
    yield from (GapCosts(path, gap, before[gap], later[gap]) for gap in history.moments)
    if history.parts:
        # A shift at the end of one part is hidden by the layers of the others, or by what follows the merge.
        ends = [_before(part, earlier)[-1] for part in history.parts]
        left = list(accumulate(ends, measure.join, initial=later[0]))
        right = list(accumulate(reversed(ends), measure.join, initial=measure.unbounded))[::-1]
        for index, part in enumerate(history.parts):
            rest = measure.join(left[index], right[index + 1])
            yield from _sides(part, measure, earlier, (*path, index), rest)


def _before(history: History, measure: Measure[Cost]) -> list[Cost]:
    """Cost of hiding a shift behind the layers that came before each gap, from the first gap to the last."""
    first = measure.unbounded
    for part in history.parts:
        first = measure.join(first, _before(part, measure)[-1])
    return list(accumulate(history.entries, lambda cost, entry: _step(entry, cost, measure), initial=first))


def _step(entry: Entry, cost: Cost, measure: Measure[Cost]) -> Cost:
    """The cost one entry further away."""
    if isinstance(entry, LayerEntry):
        return measure.join(cost, measure.layer(entry))
    return measure.view(cost, entry)


def event_losses(history: History, measure: Measure[Loss] = PURE) -> list[Gap]:
    """Loss of an event of full weight, for every gap in which it can have been applied.

    In the pure measure this is the smaller of the cost of all views that see it, and, over the layers, of the layer's
    epsilon plus the views that see only one of the event and the layer (docs/theory/privacy.md, Theorem 3).
    """
    return [Gap(place.part, place.after, measure.join(place.before, place.later)) for place in sides(history, measure)]


def item_loss(history: History) -> Loss:
    """Largest loss of an item, for any activity between the views.

    The worst path shows a new shift to every view, so a shift of the layers can spare one view only and a new one
    costs another layer's epsilon: a two-state dynamic programme (no shift in hand, one bought and not yet used).
    """
    return min(_item_states(history))


def _item_states(history: History) -> tuple[Loss, Loss]:
    """Lowest cost without an unused shift, and with one unused shift in hand."""
    idle: Loss = Fraction(0)
    armed: Loss = math.inf
    for part in history.parts:
        part_idle, part_armed = _item_states(part)
        idle, armed = idle + part_idle, min(armed + part_idle, idle + part_armed)
    for entry in history.entries:
        idle, armed = _item_step(entry, idle, armed)
    return idle, armed


def _cost(view: View) -> Loss:
    """The pure cost of one view."""
    return math.inf if view.cost is None else view.cost


def _item_step(entry: Entry, idle: Loss, armed: Loss) -> tuple[Loss, Loss]:
    """Both costs after one more entry: a layer lets a shift be bought; a view is paid, or met by the shift in hand."""
    if isinstance(entry, LayerEntry):
        return idle, min(armed, idle + entry.cost)
    cost = _cost(entry)
    return min(idle + cost, armed), armed + cost


def with_one_more_look(history: History, since: int = 0) -> Iterator[History]:
    """The history with one unannounced raw look, at every moment at which an open state existed.

    Args:
        history: layers and views.
        since: only after this many entries; above 0 merged parts are left out, as they no longer exist.
    """
    for at in history.moments:
        if at >= since:
            yield replace(history, entries=(*history.entries[:at], LOOK, *history.entries[at:]))
    for index, part in enumerate(history.parts if since == 0 else ()):
        for looked in with_one_more_look(part):
            yield replace(history, parts=(*history.parts[:index], looked, *history.parts[index + 1 :]))


def worst_loss(history: History, *, unit: str, measure: Measure[Loss] = PURE) -> Loss:
    """Largest loss of any event (the maximum over gaps) or of any item.

    Args:
        history: layers and views.
        unit: "event" or "item".
        measure: measure of the loss. If it bounds the total shift of an item, an item loses as much as one event
            of that size does.
    """
    if unit == "item" and not measure.bounded_items:
        return item_loss(history)
    return max((gap.loss for gap in event_losses(history, measure)), default=Fraction(0))


def worst_loss_with_look(history: History, *, unit: str, measure: Measure[Loss] = PURE, since: int = 0) -> Loss:
    """The loss of `worst_loss`, with one unannounced raw look at the worst moment after `since` entries.

    Linear, but for unbounded items of merged histories, where every moment is tried.
    """
    quiet = worst_loss(history, unit=unit, measure=measure)
    if unit == "item" and not measure.bounded_items:
        if history.parts:
            looks = with_one_more_look(history, since)
            return max((item_loss(look) for look in looks), default=quiet)
        if len(history.moments) == 0 or history.moments[-1] < since:
            return quiet
        return max(quiet, _item_loss_with_look(history, since))
    return max(quiet, *_event_losses_with_look(history, measure, since), Fraction(0))


def _event_losses_with_look(history: History, measure: Measure[Loss], since: int) -> Iterator[Loss]:
    """Losses of events in every gap, the look at its worst moment.

    A look just after the event leaves only what lies before it, one just before it only what follows. For an event
    applied before `since` the look at `since` is the worst.
    """
    for place in sides(history, measure):
        if not since or (not place.part and place.after >= since):
            yield max(place.before, place.later)
    if since and len(history.moments) and history.moments[-1] >= since:
        at = max(since, history.moments[0])
        looked = replace(history, entries=(*history.entries[:at], LOOK, *history.entries[at:]))
        yield from (
            measure.join(place.before, place.later)
            for place in sides(looked, measure)
            if place.part or place.after < since
        )


def _item_loss_with_look(history: History, since: int) -> Loss:
    """Forward and backward programmes meet at the look, on which the shift in hand must be spent."""
    forward: list[tuple[Loss, Loss]] = [(Fraction(0), math.inf)]
    for entry in history.entries:
        forward.append(_item_step(entry, *forward[-1]))
    still: list[Loss] = [Fraction(0)]
    still_armed: Loss = Fraction(0)
    for entry in reversed(history.entries):
        idle = still[-1]
        if isinstance(entry, LayerEntry):
            idle = min(idle, entry.cost + still_armed)
        else:
            cost = _cost(entry)
            idle, still_armed = cost + idle, min(idle, cost + still_armed)
        still.append(idle)
    still.reverse()
    return max((forward[at][1] + still[at] for at in history.moments if at >= since), default=Fraction(0))
