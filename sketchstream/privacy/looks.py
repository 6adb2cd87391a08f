"""The lemma of looks: what a history of noise layers and views costs one event, or one item.

In: a history (layers and views in the order in which they met the sketch, and the histories of merged parts).
Out: losses, exact rationals or infinity. Touches: nothing.
Source: Dwork, Naor, Pitassi, Rothblum & Yekhanin, ICS 2010 (pan-privacy, one intrusion). The lemma and its proof:
docs/theory/privacy.md section 3.

A *layer* is one independent noise vector summed into the state. A *view* is something that somebody sees: a raw
view (cost None) shows the state as it is, a release of cost c shows the counters' histogram with noise of cost c.
For every way to shift the layers by integers s_j the loss is at most the price of the shifts plus the costs of the
views whose total shift (data and layers) is not zero. An event is best absorbed by one layer, or by none; an item
may have moved before every view, so it is charged the best shifts against the worst path.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

Law = Literal["discrete-laplace", "randomized-response"]
ViewKind = Literal["release", "publication", "look", "copy"]
Loss = Fraction | float
"""An exact rational, or `math.inf`; no other float ever."""


@dataclass(frozen=True)
class LayerEntry:
    """One noise vector summed into the state.

    Args:
        lineage: 16 random bytes that name this draw.
        law: of each coordinate.
        epsilon: of an event of weight `max_weight`, or of an item; not divided by the weight.
        max_weight: largest absolute weight of one event.
    """

    lineage: bytes
    law: str
    epsilon: Fraction
    max_weight: int = 1


@dataclass(frozen=True)
class View:
    """Something that somebody saw, or may see.

    Args:
        kind: "release", "publication", "look" (somebody saw the open state) or "copy" (a secret file of ours).
        cost: of a noisy histogram; None = the state itself, raw.
    """

    kind: ViewKind
    cost: Fraction | None


Entry = LayerEntry | View


@dataclass(frozen=True)
class History:
    """Layers and views in order of application.

    Args:
        entries: of this sketch.
        parts: histories that were merged into it before the first entry.
        seal: None while the state is open; afterwards the number of last entries that belong to the seal, between
            which nothing was applied and after which no state exists.
    """

    entries: tuple[Entry, ...] = ()
    parts: tuple[History, ...] = ()
    seal: int | None = None

    def then(self, *entries: Entry) -> History:
        """This history with more entries at its end."""
        return replace(self, entries=self.entries + entries)

    def sealed_by(self, *entries: Entry) -> History:
        """This history ended by the entries of its seal."""
        return replace(self, entries=self.entries + entries, seal=len(entries))

    @property
    def moments(self) -> range:
        """Numbers of entries after which an open state existed, and events may have been applied."""
        last = len(self.entries) - (self.seal or 0)
        if self.parts:
            first = 0 if any(part.seal is None for part in self.parts) else last + 1
        else:
            first = next((at + 1 for at, entry in enumerate(self.entries) if isinstance(entry, LayerEntry)), last + 1)
        return range(first, last + 1)

    def layers(self) -> Iterator[LayerEntry]:
        """Every layer, those of merged parts first."""
        for part in self.parts:
            yield from part.layers()
        yield from (entry for entry in self.entries if isinstance(entry, LayerEntry))

    def without_copies(self) -> History:
        """This history without the copies that nobody is known to have seen."""
        kept = tuple(entry for entry in self.entries if not (isinstance(entry, View) and entry.kind == "copy"))
        return replace(self, entries=kept, parts=tuple(part.without_copies() for part in self.parts))


@dataclass(frozen=True)
class Gap:
    """A place where an event may have been applied, and what it loses.

    Args:
        part: path of indices to the merged part, () for the sketch itself.
        after: number of entries of that part that came before the event.
        loss: of an event of full weight (or of an item that is active in this gap only).
    """

    part: tuple[int, ...]
    after: int
    loss: Loss


@dataclass(frozen=True)
class _Sum:
    """A sum of view costs, raw views counted apart so that sums can be subtracted."""

    raw: int = 0
    finite: Fraction = Fraction(0)

    def __add__(self, other: _Sum) -> _Sum:
        return _Sum(self.raw + other.raw, self.finite + other.finite)

    def __sub__(self, other: _Sum) -> _Sum:
        return _Sum(self.raw - other.raw, self.finite - other.finite)

    @property
    def loss(self) -> Loss:
        """Infinite as soon as one raw view is in it."""
        return math.inf if self.raw else self.finite


def _cost(view: View) -> _Sum:
    """The cost of one view."""
    return _Sum(1) if view.cost is None else _Sum(0, view.cost)


@dataclass(frozen=True)
class _Place:
    """One part of a history with `seen[g]`: the cost of all views that see what was applied at its gap g."""

    path: tuple[int, ...]
    history: History
    seen: tuple[_Sum, ...]


def _places(history: History, path: tuple[int, ...] = (), above: _Sum | None = None) -> list[_Place]:
    """Every part of the history; a merge sees everything that its parts hold."""
    seen = [above or _Sum()]
    for entry in reversed(history.entries):
        seen.append(seen[-1] + _cost(entry) if isinstance(entry, View) else seen[-1])
    seen.reverse()
    found = [_Place(path, history, tuple(seen))]
    for index, part in enumerate(history.parts):
        found += _places(part, (*path, index), seen[0])
    return found


def _between(
    places: dict[tuple[int, ...], _Place], one: tuple[tuple[int, ...], int], two: tuple[tuple[int, ...], int]
) -> Loss:
    """Cost of the views that see exactly one of two locations (part, gap)."""
    (path, gap), (other, at) = one, two
    shared = 0
    while shared < min(len(path), len(other)) and path[shared] == other[shared]:
        shared += 1
    meeting = path[:shared]
    if path == other:
        first = max(gap, at)
    elif len(path) == shared:
        first = gap
    elif len(other) == shared:
        first = at
    else:
        first = 0
    both = places[meeting].seen[first]
    return (places[path].seen[gap] - both + places[other].seen[at] - both).loss


def event_losses(history: History, *, max_weight: int = 1) -> list[Gap]:
    """What an event of full weight loses, for every gap in which it can have been applied.

    Per gap: the smaller of the cost of all views after it, and, over the layers, of the layer's epsilon plus the
    views that see only one of the event and the layer. One layer is enough: docs/theory/privacy.md, Lemma 2.
    """
    places = {place.path: place for place in _places(history)}
    layers = [
        ((path, index + 1), entry.epsilon * max_weight / entry.max_weight)
        for path, place in places.items()
        for index, entry in enumerate(place.history.entries)
        if isinstance(entry, LayerEntry)
    ]
    gaps = []
    for path, place in places.items():
        for gap in place.history.moments:
            best = place.seen[gap].loss
            for location, price in layers:
                best = min(best, price + _between(places, (path, gap), location))
            gaps.append(Gap(path, gap, best))
    return gaps


def item_loss(history: History) -> Loss:
    """What an item loses at most, whatever it did between any two views.

    The worst path shows a new shift to every view, so a shift of the layers can spare one view only and a new one
    costs another layer's epsilon: a two-state dynamic programme (no shift in hand, one bought and not yet used).
    """
    return min(_item_states(history))


def _item_states(history: History) -> tuple[Loss, Loss]:
    """Smallest price with no unused shift, and with one unused shift in hand."""
    idle: Loss = Fraction(0)
    armed: Loss = math.inf
    for part in history.parts:
        part_idle, part_armed = _item_states(part)
        idle, armed = idle + part_idle, min(armed + part_idle, idle + part_armed)
    for entry in history.entries:
        idle, armed = _item_step(entry, idle, armed)
    return idle, armed


def _item_step(entry: Entry, idle: Loss, armed: Loss) -> tuple[Loss, Loss]:
    """One layer (buy a shift) or one view (pay it, or spend the shift on it)."""
    if isinstance(entry, LayerEntry):
        return idle, min(armed, idle + entry.epsilon)
    cost = _cost(entry).loss
    return min(idle + cost, armed), armed + cost


LOOK = View("look", None)


def with_one_more_look(history: History, since: int = 0) -> Iterator[History]:
    """The history with one unannounced raw look, at every moment at which an open state existed.

    Args:
        history: layers and views.
        since: only after this many entries; above 0 merged parts are left out, their life is over.
    """
    for at in history.moments:
        if at >= since:
            yield replace(history, entries=(*history.entries[:at], LOOK, *history.entries[at:]))
    for index, part in enumerate(history.parts if since == 0 else ()):
        for looked in with_one_more_look(part):
            yield replace(history, parts=(*history.parts[:index], looked, *history.parts[index + 1 :]))


def worst_loss(history: History, *, unit: str, max_weight: int = 1) -> Loss:
    """The most that any event (the maximum over gaps) or any item loses."""
    if unit == "item":
        return item_loss(history)
    return max((gap.loss for gap in event_losses(history, max_weight=max_weight)), default=Fraction(0))


def worst_loss_with_look(history: History, *, unit: str, max_weight: int = 1, since: int = 0) -> Loss:
    """As `worst_loss`, with one unannounced raw look at the worst moment after `since` entries.

    Histories without parts in linear time; merged ones by trying every moment.
    """
    quiet = worst_loss(history, unit=unit, max_weight=max_weight)
    if history.parts:
        looks = with_one_more_look(history, since)
        found = (worst_loss(look, unit=unit, max_weight=max_weight) for look in looks)
        return max(found, default=quiet)
    if len(history.moments) == 0 or history.moments[-1] < since:
        return quiet
    if unit == "item":
        return max(quiet, _item_loss_with_look(history, since))
    return max(quiet, _event_loss_with_look(history, max_weight, since))


def _event_loss_with_look(history: History, max_weight: int, since: int) -> Loss:
    """A look just after the event spares only layers before it; one just before it spares only what comes after.

    For an event applied before `since` the look at `since` is the worst: it spares the layers before it.
    """
    seen = _places(history)[0].seen
    layers = [
        (index + 1, entry.epsilon * max_weight / entry.max_weight)
        for index, entry in enumerate(history.entries)
        if isinstance(entry, LayerEntry)
    ]
    worst: Loss = Fraction(0)
    for gap in history.moments:
        look = max(gap, since)
        spared: Loss = math.inf
        later: Loss = seen[gap].loss
        for at, price in layers:
            if at <= gap:
                spared = min(spared, price + (seen[at] - seen[gap]).loss)
            else:
                cost = price + (seen[gap] - seen[at]).loss
                later = min(later, cost)
                spared = min(spared, cost) if at <= look else spared
        worst = max(worst, spared) if gap < since else max(worst, spared, later)
    return worst


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
            idle = min(idle, entry.epsilon + still_armed)
        else:
            cost = _cost(entry).loss
            idle, still_armed = cost + idle, min(idle, cost + still_armed)
        still.append(idle)
    still.reverse()
    return max((forward[at][1] + still[at] for at in history.moments if at >= since), default=Fraction(0))
