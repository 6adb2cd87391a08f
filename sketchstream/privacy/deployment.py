"""The deployment's ledger: every sketch that was published, and what they cost together.

In: published objects (their headers carry ledger, origin and revision). Out: totals for an event and for an item, by
day and over everything kept, pure and in zCDP, as table and plain data; BudgetError where a limit would be broken.
Touches: nothing.
Source: docs/theory/privacy.md section 5 (what adds and what does not).

An event lies in one window and one partition of each sketch name; it pays the sum over names and revisions. An item
pays in every window, and in every partition in which its records can lie: one if the topic is keyed by it, two where
the number of partitions changed inside the window, all of them if it is not keyed. What another deployment, another
consumer group or a restored old file published on the same topic is the operator's sum: nothing here can see it.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sketchstream.errors import BudgetError
from sketchstream.privacy.guarantee import DELTA, approximate
from sketchstream.privacy.ledger import LayerEntry, Ledger, Loss, Promise, show
from sketchstream.privacy.looks import event_losses, item_loss
from sketchstream.privacy.zcdp import concentrated

if TYPE_CHECKING:
    from sketchstream.published import Origin, Release, SealedState
    from sketchstream.spec import ProfileSpec

Window = tuple[int, int]
Measure = Callable[[Loss], Loss]
"""What a sketch's loss adds to a total: itself, or its square halved in zCDP (Theorem 5a)."""


@dataclass(frozen=True)
class Record:
    """One sketch of the deployment: (name, revision, window, partition) and its ledger.

    Args:
        name, revision, window, partition: where it belongs; window in ms since 1970, end excluded.
        repartitioned: the number of partitions changed while it was open.
        ledger: its newest published one.
        conflicts: other states that were published under the same place: their losses add.
        shared: one of them has a noise layer in common with this one: two states from one noise have no bound.
    """

    name: str
    revision: int
    window: Window | None
    partition: int | None
    repartitioned: bool
    ledger: Ledger
    conflicts: int = 0
    shared: bool = False

    @classmethod
    def of(cls, origin: Origin, ledger: Ledger) -> Record:
        """The record of a published object."""
        repartitioned = origin.partitions_open != origin.partitions_seal
        return cls(origin.name, origin.revision, origin.window, origin.partition, repartitioned, ledger)

    @property
    def place(self) -> tuple[str, int, Window | None, int | None]:
        """What names it."""
        return self.name, self.revision, self.window, self.partition

    def event(self) -> Loss:
        """Most that an event loses here."""
        if self.shared:
            return math.inf
        history = _public(self.ledger)
        gaps = event_losses(history, max_weight=self.ledger.max_weight)
        return max((gap.loss for gap in gaps), default=Fraction(0))

    def item(self) -> Loss:
        """Most that an item loses here; infinite for unit "event"."""
        if self.shared:
            return math.inf
        return item_loss(_public(self.ledger)) if self.ledger.unit == "item" else math.inf


def _pure(loss: Loss) -> Loss:
    """Pure losses add as they are."""
    return loss


def _public(ledger: Ledger) -> Any:
    """The history that counts: without copies, with the promised publication."""
    history = ledger.history.without_copies()
    return history if history.seal is not None else history.sealed_by(*ledger.promised.entries(ledger.max_weight))


def planned(spec: ProfileSpec) -> Ledger:
    """The ledger that a sketch of this spec will begin with."""
    law = "discrete-laplace" if spec.unit == "event" else "randomized-response"
    layer = LayerEntry(b"", law, spec.epsilon, spec.max_weight)
    return Ledger.create(
        spec.unit, spec.max_weight, layer, Promise.of(spec.publish, spec.epsilon_publish, spec.intrusion)
    )


@dataclass(frozen=True)
class Total:
    """What a stretch of time cost.

    Args:
        event, event_zcdp: most that one event loses (it lies in one window of each sketch).
        item, item_zcdp: most that one item loses to the sketches of unit "item", over all windows of the stretch.
    """

    event: Loss
    event_zcdp: Loss
    item: Loss
    item_zcdp: Loss

    def to_dict(self) -> dict[str, str]:
        """Losses as strings."""
        return {
            "event": show(self.event),
            "event_zcdp": show(self.event_zcdp),
            "item": show(self.item),
            "item_zcdp": show(self.item_zcdp),
        }


@dataclass(frozen=True)
class Deployment:
    """Everything that one deployment has published on one topic.

    Args:
        records: one for each (name, revision, window, partition), in order.
        keyed: whether all records of an item lie in one partition, and that is checked.
        limit: `privacy.max_epsilon`, or None.
    """

    records: tuple[Record, ...]
    keyed: bool = True
    limit: Fraction | None = None

    @classmethod
    def of(
        cls, published: Iterable[Release | SealedState], *, keyed: bool = True, limit: Fraction | None = None
    ) -> Deployment:
        """The deployment that published these objects, in any order, duplicates allowed.

        Releases of one sketch and its seal carry one growing ledger: the longest counts. Ledgers under one name
        that do not continue each other are two sketches: both count, and the record says so.
        """
        return cls.from_records((Record.of(one.origin, one.ledger) for one in published), keyed=keyed, limit=limit)

    @classmethod
    def from_records(
        cls, records: Iterable[Record], *, keyed: bool = True, limit: Fraction | None = None
    ) -> Deployment:
        """The same from records."""
        groups: dict[Any, list[Record]] = {}
        for record in records:
            groups.setdefault(record.place, []).append(record)
        kept: list[Record] = []
        for place in sorted(groups, key=_order):
            kept += _newest(groups[place])
        return cls(tuple(kept), keyed, limit)

    def total(self, records: Sequence[Record] | None = None) -> Total:
        """What some of the records, or all of them, cost together."""
        chosen = self.records if records is None else records
        return Total(
            _event_total(chosen, _pure),
            _event_total(chosen, concentrated),
            self._item_total(chosen, _pure),
            self._item_total(chosen, concentrated),
        )

    def by_day(self) -> dict[str, Total]:
        """Totals by the UTC day in which a window begins; sketches without windows are under "always"."""
        days: dict[str, list[Record]] = {}
        for record in self.records:
            days.setdefault(_day(record.window), []).append(record)
        return {day: self.total(records) for day, records in sorted(days.items())}

    def unbounded_for_items(self) -> list[str]:
        """Names of sketches of unit "event": an item loses m times an event's loss to them, for its m events."""
        return sorted({record.name for record in self.records if record.ledger.unit == "event"})

    def conflicts(self) -> list[Record]:
        """One record for each place under which more than one state was published: an incident."""
        return list({record.place: record for record in self.records if record.conflicts}.values())

    def require_room(self, specs: Mapping[str, ProfileSpec]) -> None:
        """Refuse to count the same events once more, by sketches of these specs, beyond the limit.

        Raises:
            BudgetError: what events have lost, and would lose again, is above the limit together.
        """
        if self.limit is None or not self.records:
            return
        again = [Record(name, 0, None, None, repartitioned=False, ledger=planned(specs[name])) for name in specs]
        spent, more = self.total().event, _event_total(again, _pure)
        if spent + more > self.limit:
            msg = (
                f"events have lost up to {show(spent)} by what was published, and would lose {show(more)} more by "
                f"being counted again, above privacy.max_epsilon = {self.limit}: count only new events, or raise it"
            )
            asked = more if isinstance(more, Fraction) else self.limit
            raise BudgetError(msg, asked=asked, spent=spent, limit=self.limit)

    def rows(self) -> list[dict[str, str]]:
        """One row for each name and revision: windows, partitions, and what one window and all of them cost."""
        groups: dict[tuple[str, int], list[Record]] = {}
        for record in self.records:
            groups.setdefault((record.name, record.revision), []).append(record)
        rows = []
        for (name, revision), records in groups.items():
            total = self.total(records)
            unit = records[0].ledger.unit
            worst = max(record.event() if unit == "event" else record.item() for record in records)
            rows.append(
                {
                    "sketch": name or "-",
                    "revision": str(revision),
                    "unit": unit,
                    "windows": str(len({record.window for record in records})),
                    "partitions": str(len({record.partition for record in records})),
                    "one window": show(worst),
                    "all windows": show(total.event if unit == "event" else total.item),
                }
            )
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Plain data: records with their ledgers, totals by day and over everything."""
        return {
            "keyed": self.keyed,
            "limit": None if self.limit is None else str(self.limit),
            "total": self.total().to_dict(),
            "days": {day: total.to_dict() for day, total in self.by_day().items()},
            "unbounded_for_items": self.unbounded_for_items(),
            "conflicts": len(self.conflicts()),
            "sketches": [
                {
                    "sketch": record.name,
                    "revision": record.revision,
                    "window": None if record.window is None else list(record.window),
                    "partition": record.partition,
                    "repartitioned": record.repartitioned,
                    "event": show(record.event()),
                    "item": show(record.item()),
                    "conflicts": record.conflicts,
                    "ledger": record.ledger.to_dict(),
                }
                for record in self.records
            ],
        }

    def __str__(self) -> str:
        """Tables for people."""
        rows = self.rows()
        names = ["sketch", "revision", "unit", "windows", "partitions", "one window", "all windows"]
        wide = {name: max(len(name), *(len(row[name]) for row in rows)) if rows else len(name) for name in names}
        lines = ["  ".join(name.ljust(wide[name]) for name in names).rstrip()]
        lines += ["  ".join(row[name].ljust(wide[name]) for name in names).rstrip() for row in rows]
        total = self.total()
        lines.append(f"one event loses at most {show(total.event)} in all sketches together")
        days = self.by_day()
        if any(record.ledger.unit == "item" for record in self.records):
            worst = max(days.values(), key=lambda one: one.item)
            lines.append(
                f"one item loses at most {show(worst.item)} in a day and {show(total.item)} over everything published "
                f"({approximate(total.item_zcdp)} by zCDP, delta {DELTA:g})"
            )
        for name in self.unbounded_for_items():
            lines.append(f"{name or 'the sketch'}: somebody with m events loses up to m times an event's loss")
        if self.limit is not None:
            lines.append(f"privacy.max_epsilon is {self.limit}")
        for record in self.conflicts():
            lines.append(
                f"INCIDENT: {record.name}, revision {record.revision}, window {record.window}, partition "
                f"{record.partition}: {record.conflicts + 1} states were published under one name"
            )
        lines.append("not counted: other deployments, other consumer groups and restored old files on the same topic")
        return "\n".join(lines)

    def _item_total(self, records: Sequence[Record], measure: Measure) -> Loss:
        """Over windows the losses of an item add; over partitions as the topic's key says."""
        windows: dict[Any, dict[Any, Loss]] = {}
        moved: set[Any] = set()
        for record in records:
            if record.ledger.unit == "item":
                key = record.name, record.revision, record.window
                held = windows.setdefault(key, {})
                held[record.partition] = held.get(record.partition, Fraction(0)) + measure(record.item())
                moved |= {key} if record.repartitioned else set()
        total: Loss = Fraction(0)
        for key, held in windows.items():
            lies_in = len(held) if not self.keyed else 2 if key in moved else 1
            total = total + sum(sorted(held.values(), reverse=True)[:lies_in], Fraction(0))
        return total


def _order(place: tuple[str, int, Window | None, int | None]) -> tuple[str, int, Window, int]:
    """A sorting key of places."""
    name, revision, window, partition = place
    return name, revision, window or (0, 0), -1 if partition is None else partition


def _newest(group: Sequence[Record]) -> list[Record]:
    """The longest of ledgers that continue each other; those that do not are kept beside it, marked."""
    kept: list[Record] = []
    for record in sorted(group, key=lambda one: len(one.ledger.history.entries), reverse=True):
        if not any(_continues(one.ledger, record.ledger) for one in kept):
            kept.append(record)
    if len(kept) == 1 or not kept[0].name:  # sketches without a name are different sketches
        return [replace(record, shared=_shares(record, kept)) for record in kept]
    return [replace(record, conflicts=len(kept) - 1, shared=_shares(record, kept)) for record in kept]


def _shares(record: Record, others: Sequence[Record]) -> bool:
    """Whether another of the records was made from the same noise."""
    own = {layer.lineage for layer in record.ledger.layers}
    return any(own & {layer.lineage for layer in one.ledger.layers} for one in others if one is not record)


def _continues(longer: Ledger, shorter: Ledger) -> bool:
    """Whether one history begins with the other."""
    one, two = longer.history.without_copies(), shorter.history.without_copies()
    if two.seal is not None and len(one.entries) > len(two.entries):
        return False
    return one.entries[: len(two.entries)] == two.entries and one.parts == two.parts


def _event_total(records: Sequence[Record], measure: Measure) -> Loss:
    """The largest sum, over one instant and one partition, of the sketches that count it."""
    always = sum((measure(record.event()) for record in records if record.window is None), Fraction(0))
    partitions = {record.partition for record in records if record.window is not None}
    worst: Loss = Fraction(0)
    for partition in partitions or {None}:
        steps: list[tuple[int, int, Loss]] = []
        for record in records:
            if record.window is not None and record.partition in (partition, None):
                loss = measure(record.event())
                steps += [(record.window[0], 1, loss), (record.window[1], 0, loss)]
        worst = max(worst, _sweep(steps))
    return always + worst


def _sweep(steps: list[tuple[int, int, Loss]]) -> Loss:
    """The largest sum of losses of intervals that hold one instant; ends come before beginnings."""
    now, unlimited = Fraction(0), 0
    worst: Loss = Fraction(0)
    for _, begins, loss in sorted(steps, key=lambda step: step[:2]):
        sign = 1 if begins else -1
        if isinstance(loss, Fraction):
            now += sign * loss
        else:
            unlimited += sign
        worst = max(worst, math.inf if unlimited else now)
    return worst


def _day(window: Window | None) -> str:
    """The UTC day in which a window begins."""
    if window is None:
        return "always"
    return (dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=window[0])).date().isoformat()
