"""The deployment's ledger: every published sketch, and their total privacy loss.

In: published objects (their headers carry ledger, origin and revision). Out: totals for an event and for an item, by
day and over everything kept, pure and in zCDP, as table and plain data; BudgetError where a limit would be broken.
Touches: nothing.
Source: docs/theory/privacy.md section 5 (what adds and what does not).

An event lies in one partition of each sketch name, and in one window, or in all windows that overlap at its time. Its
loss is the sum over these, over names and over revisions. An item has losses in every window, and in every partition
that can hold its records: if the topic is keyed by the item, one for each number of partitions that was valid while the
window was open; otherwise all partitions. Publications are told apart by their seal ids. Two publications of the same
noise come from a copied state, an incident with rules of its own (`copies`). Losses to other deployments or consumer
groups on the same topic are not included: the operator has to add them.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from sketchstream.errors import BudgetError
from sketchstream.privacy.deployments import publications
from sketchstream.privacy.deployments.copies import UNKNOWN, CopiedPositions, copied_loss, families
from sketchstream.privacy.deployments.guarantee import approximate
from sketchstream.privacy.deployments.publications import FrontierNoise
from sketchstream.privacy.deployments.surroundings import DAY_MS
from sketchstream.privacy.ledgers.gaussian_ledger import GaussianLedger
from sketchstream.privacy.ledgers.ledger import Ledger
from sketchstream.privacy.losses.composition import Composed, Losses, compose
from sketchstream.privacy.losses.gaussian import ROUNDINGS, GaussianLoss, Smoothed
from sketchstream.privacy.losses.history import Loss
from sketchstream.privacy.losses.loss_numbers import loss_number
from sketchstream.privacy.losses.measures import rho_of_pure
from sketchstream.privacy.losses.zcdp import DELTA, to_approximate
from sketchstream.spec import Rational

if TYPE_CHECKING:
    from sketchstream.instalment import Instalment
    from sketchstream.published import Release, SealedState

_DELTA = str(DELTA)
_NOTHING = GaussianLoss.none()
WindowSpan = tuple[int, int]


class Periods(Protocol):
    """The parts of a budget that are needed here: a limit, and the periods that a window overlaps."""

    @property
    def epsilon(self) -> Fraction:
        """Largest permitted loss of a unit in one period."""

    @property
    def delta(self) -> Fraction | None:
        """The delta that epsilon is stated for; None: pure losses only."""

    def span_of(self, window: WindowSpan) -> WindowSpan:
        """The periods that a window overlaps, from the beginning of the first to the end of the last."""


Measured = Callable[["Record"], Loss]
"""What a sketch adds to a total: its pure loss, the square of that halved in zCDP (Theorem 5a), or its mu^2."""
AnyLedger = Ledger | GaussianLedger


@dataclass(frozen=True)
class Record:
    """One sketch of the deployment: (name, revision, window, partition) and its ledger.

    Args:
        name: the sketch's name in the configuration.
        revision: raised by `sketchstream reset`.
        window: start and end, ms since 1970, end excluded.
        partition: input partition.
        counts: numbers of partitions that are known to have been valid while it was open.
        ledger: newest published ledger of the sketch.
        seal_id: identifies the newest publication of the sketch.
        records: epsilon of one record in the sketch's numbers of records.
        positions: what the newest publication shows of a sketch that publishes positions when they close.
        conflicts: other states, with other noise, that were published in the same place: their losses add.
        copies: ledgers of other states that descend from the same noise: a copied or restored file.
    """

    name: str
    revision: int
    window: WindowSpan | None
    partition: int | None
    counts: tuple[int, ...]
    ledger: AnyLedger
    seal_id: bytes = UNKNOWN
    records: Fraction = Fraction(0)
    positions: CopiedPositions | None = field(default=None, repr=False, compare=False)
    conflicts: int = 0
    copies: tuple[AnyLedger, ...] = ()

    @classmethod
    def of(cls, published: Release | SealedState | Instalment) -> Record:
        """The record of a published object.

        Raises:
            SpecError: it has a number that is on no entry of `privacy.deployments.publications`.
        """
        origin = published.origin
        publications.require_listed(counter.name for counter in getattr(published, "counters", ()))
        ledger: Any = published.ledger
        return cls(
            name=origin.name,
            revision=origin.revision,
            window=origin.window,
            partition=origin.partition,
            counts=origin.partition_counts,
            ledger=ledger,
            seal_id=published.seal_id,
            records=publications.cost_of_record(published.spec),
            positions=getattr(published, "positions", None),
        )

    @property
    def place(self) -> tuple[str, int, WindowSpan | None, int | None]:
        """The record's place: name, revision, window and partition."""
        return self.name, self.revision, self.window, self.partition

    @property
    def gaussian(self) -> bool:
        """Whether the record's losses are mu^2: of Gaussian noise, or of noise whose rho is mu^2 / 2."""
        return isinstance(self.ledger, GaussianLedger)

    def event(self) -> Loss:
        """Largest pure loss of an event to this record; Gaussian noise has none."""
        if self.gaussian:
            return math.inf
        if self.copies:
            return self._copied()
        assert isinstance(self.ledger, Ledger)
        return self.ledger.most_of_event

    def item(self) -> Loss:
        """Largest pure loss of an item to this record; infinite for unit "event" and for Gaussian noise."""
        if not isinstance(self.ledger, Ledger):
            return math.inf
        return self._copied() if self.copies and self.ledger.unit == "item" else self.ledger.most_of_item

    @cached_property
    def mu(self) -> GaussianLoss:
        """Largest loss of the unit to Gaussian noise in this record; none if the noise is of another kind."""
        if not isinstance(self.ledger, GaussianLedger):
            return GaussianLoss.none()
        if self.copies:
            return self.ledger.of_copies(self._copied())
        return self.ledger.most

    def _copied(self) -> Loss:
        """Largest loss of an event, or of an item, to all copies together, in the ledger's measure."""
        return copied_loss([ledger.counted for ledger in (self.ledger, *self.copies)])

    def parts(self) -> Iterator[Record]:
        """The parts of a merge of published states, as adding them published nothing; else the record itself."""
        history = self.ledger.history
        if not history.parts or history.entries or any(part.seal is None for part in history.parts):
            yield self
            return
        for part in history.parts:
            part_ledger: AnyLedger = replace(self.ledger, history=part)
            yield from replace(self, ledger=part_ledger, seal_id=UNKNOWN, positions=None).parts()


@dataclass(frozen=True, kw_only=True)
class Total:
    """Total losses over a stretch of time.

    Args:
        event: largest loss of one event (it lies in one window of each sketch).
        event_zcdp: the same, in zCDP (rho).
        item: largest loss of one item to the sketches of unit "item", over all windows of the stretch.
        item_zcdp: the same, in zCDP (rho).
        event_gaussian: loss of one event to the sketches with Gaussian noise, not included in the other fields.
        item_gaussian: loss of one item to the sketches with Gaussian noise, not included in the other fields.
        record: loss of one record to the numbers of records, in none of the other fields.
        misplaced: loss of one item with records in partitions where it does not belong to the numbers of such items,
            in none of the other fields.
    """

    event: Loss
    event_zcdp: Loss
    item: Loss
    item_zcdp: Loss
    event_gaussian: GaussianLoss = _NOTHING
    item_gaussian: GaussianLoss = _NOTHING
    record: Fraction = Fraction(0)
    misplaced: Fraction = Fraction(0)

    def event_at(self, delta: Rational) -> Composed:
        """One (epsilon, delta) for an event, over sketches of all measures."""
        return compose(self.event, self.event_zcdp, self.event_gaussian, delta)

    def item_at(self, delta: Rational) -> Composed:
        """One (epsilon, delta) for an item, over sketches of all measures."""
        return compose(self.item, self.item_zcdp, self.item_gaussian, delta)

    def to_dict(self) -> dict[str, Any]:
        """Losses as strings; with Gaussian noise also mu^2, and all measures together."""
        out: dict[str, Any] = {
            "event": loss_number(self.event),
            "event_zcdp": loss_number(self.event_zcdp),
            "item": loss_number(self.item),
            "item_zcdp": loss_number(self.item_zcdp),
        }
        if self.record:
            out["record"] = loss_number(self.record)
        if self.misplaced:
            out["misplaced_item"] = loss_number(self.misplaced)
        for unit, loss, together in (
            ("event", self.event_gaussian, self.event_at),
            ("item", self.item_gaussian, self.item_at),
        ):
            if loss.mu2:
                out[f"{unit}_gaussian"] = loss.to_dict(_DELTA)
                out[f"{unit}_together"] = together(_DELTA).to_dict()
        return out


@dataclass(frozen=True)
class Deployment:
    """Everything that one deployment has published on one topic.

    Args:
        records: one for each (name, revision, window, partition), in order.
        keyed: whether all records of an item lie in one partition, and that is checked.
        limit: `privacy.max_epsilon`, or None.
        budget: `privacy.budget`, or None.
        evidence: noise of the numbers in a sketch's frontiers, by its name.
    """

    records: tuple[Record, ...]
    keyed: bool = True
    limit: Fraction | None = None
    budget: Periods | None = None
    evidence: Mapping[str, FrontierNoise] = field(default_factory=dict)

    @classmethod
    def of(cls, published: Iterable[Release | SealedState | Instalment], *, keyed: bool = True) -> Deployment:
        """The deployment that published these objects, in any order, duplicates allowed.

        The releases of one sketch, its instalments and its seal carry one growing ledger, of which the longest counts.
        States with different noise in one place are two sketches: both count, and the record lists the second as a
        conflict. Publications with the same noise that cannot come from one sketch are copies: one record holds them
        all.
        """
        return cls.from_records(map(Record.of, published), keyed=keyed)

    @classmethod
    def from_records(
        cls,
        records: Iterable[Record],
        *,
        keyed: bool = True,
        limit: Fraction | None = None,
        budget: Periods | None = None,
        evidence: Mapping[str, FrontierNoise] | None = None,
    ) -> Deployment:
        """Make a deployment from records.

        Args:
            records: in any order; those of one state, and copies of one, may occur several times.
            keyed: whether all records of an item lie in one partition, and that is checked.
            limit: `privacy.max_epsilon`; None: there is none.
            budget: `privacy.budget`; None: there is none.
            evidence: noise of the numbers in a sketch's frontiers, by its name.
        """
        parts = [part for record in records for part in record.parts()]
        distinct: list[Record] = []
        named = [(part.ledger.history.without_copies(), part.seal_id) for part in parts]
        for family in families(named, [part.positions for part in parts]):
            heads = [parts[chain.members[0]] for chain in family]
            places: set[Any] = set()
            for number, head in enumerate(heads):
                if head.place not in places:
                    places.add(head.place)
                    others = tuple(head.ledger for at, head in enumerate(heads) if at != number)
                    distinct.append(replace(head, copies=others, positions=None))
        by_place = Counter(record.place for record in distinct)
        # sketches without a name are different sketches
        distinct = [replace(record, conflicts=by_place[record.place] - 1 if record.name else 0) for record in distinct]
        return cls(tuple(in_order(distinct)), keyed, limit, budget, evidence or {})

    def total(self, records: Sequence[Record] | None = None, within: WindowSpan | None = None) -> Total:
        """Total losses to some of the records, or to all of them.

        Args:
            records: those that count; None: all.
            within: events and records of this time only, ms; None: of any time.
        """
        chosen = self.records if records is None else records
        pure = [record for record in chosen if not record.gaussian]
        gaussian = [record for record in chosen if record.gaussian]
        of_items = [record for record in gaussian if record.ledger.unit == "item"]
        return Total(
            event=event_sum(pure, Record.event, within),
            event_zcdp=event_sum(pure, lambda record: rho_of_pure(record.event()), within),
            item=self._item_total(pure, Record.item),
            item_zcdp=self._item_total(pure, lambda record: rho_of_pure(record.item())),
            event_gaussian=gaussian_total(gaussian, lambda loss: event_sum(gaussian, loss, within)),
            item_gaussian=gaussian_total(of_items, lambda loss: self._item_total(gaussian, loss)),
            record=most_of_record(chosen, within, self.evidence),
            misplaced=self.misplaced_item(chosen),
        )

    def misplaced_item(self, records: Iterable[Record]) -> Fraction:
        """Loss of an item to the numbers of misplaced items of these sketches, if it is misplaced in every window.

        It is noted in one partition besides its own, or in one for each number of partitions.
        """
        windows: dict[Any, set[int]] = {}
        costs: dict[Any, Fraction] = {}
        for record in records:
            noise = self.evidence.get(record.name, FrontierNoise())
            key = record.name, record.revision, record.window
            costs[key] = publications.cost_in_frontiers("misplaced", record.ledger.unit, noise)
            windows.setdefault(key, set()).update(record.counts)
        return sum((cost * max(1, len(windows[key])) for key, cost in costs.items()), Fraction(0))

    def by_day(self) -> dict[str, Total]:
        """Losses of events of one UTC day, and of an item by what it does on that day.

        Every window with a part in the day counts. Sketches without windows count on every day; without any window
        they are under "always".
        """
        always = [record for record in self.records if record.window is None]
        days: dict[int, list[Record]] = {}
        for record in self.records:
            for day in days_of(record.window) if record.window is not None else ():
                days.setdefault(day, []).append(record)
        if not days and always:
            return {"always": self.total(always)}
        return {
            utc_day(day * DAY_MS): self.total(always + records, (day * DAY_MS, (day + 1) * DAY_MS))
            for day, records in sorted(days.items())
        }

    def period(self) -> tuple[Loss, Loss]:
        """Largest losses of an event and of an item in any one period of the budget: epsilon, at the budget's delta.

        Without a delta pure losses are added exactly, and Gaussian noise is not allowed.
        """
        event, item = self._period()
        assert self.budget is not None
        return event.epsilon(self.budget.delta), item.epsilon(self.budget.delta)

    def _period(self) -> tuple[Losses, Losses]:
        """Losses of an event and of an item within the budget's period, in all measures."""
        if self.budget is None:
            raise ValueError("this deployment has no budget")
        total = self.total()
        items = [record for record in self.records if record.gaussian and record.ledger.unit == "item"]
        item = Losses(
            self._worst_period(Record.item),
            self._worst_period(lambda record: rho_of_pure(record.item())),
            gaussian_total(items, lambda loss: self._worst_period(loss, gaussian=True)),
        )
        return Losses(total.event, total.event_zcdp, total.event_gaussian), item

    def _worst_period(self, loss: Measured, *, gaussian: bool = False) -> Loss:
        """Largest loss of an item in any one period of the budget, to sketches of one measure."""
        assert self.budget is not None
        always: Loss = Fraction(0)
        steps: list[tuple[int, int, Loss]] = []
        chosen = [record for record in self.records if record.gaussian == gaussian]
        for window, lost in self._item_windows(chosen, loss):
            if window is None:
                always = always + lost
            else:
                start, end = self.budget.span_of(window)
                steps += [(start, 1, lost), (end, 0, lost)]
        return always + sweep(steps)

    def unbounded_for_items(self) -> list[str]:
        """Names of sketches of unit "event": an item loses m times an event's loss to them, for its m events."""
        return sorted({record.name for record in self.records if record.ledger.unit == "event"})

    def conflicts(self) -> list[Record]:
        """One record for each place under which states of different noise were published: an incident."""
        return list({record.place: record for record in self.records if record.conflicts}.values())

    def copied(self) -> list[Record]:
        """Records of states that were copied and published more than once: an incident."""
        return [record for record in self.records if record.copies]

    def require_room(self, ledgers: Iterable[AnyLedger], items_again: Losses | None = None) -> None:
        """Refuse to count the same events again if that would exceed the limit or the budget.

        Args:
            ledgers: first ledgers of the new sketches, one for each window that holds an event.
            items_again: losses of an item to the new sketches in one period.

        Raises:
            BudgetError: the losses so far and the new ones exceed the limit together.
        """
        if not self.records:
            return
        if self.budget is not None and items_again is not None:
            lost = self._period()[1]
            spent, again = lost.epsilon(self.budget.delta), items_again.epsilon(self.budget.delta)
            if again and (lost + items_again).epsilon(self.budget.delta) > self.budget.epsilon:
                msg = (
                    f"items have lost up to {loss_number(spent)} in one period by what was published, and would lose "
                    f"{loss_number(again)} more by being counted again, above privacy.budget = {self.budget}: count "
                    "only new events, or raise it"
                )
                price = again if isinstance(again, Fraction) else self.budget.epsilon
                raise BudgetError(msg, asked=price, spent=spent, limit=self.budget.epsilon)
        if self.limit is None:
            return
        recount = [
            Record(name="", revision=0, window=None, partition=None, counts=(), ledger=ledger) for ledger in ledgers
        ]
        total, more = self.total(), event_sum(recount, Record.event)
        spent = total.event_at(_DELTA).epsilon if total.event_gaussian.mu2 else total.event
        if spent + more > self.limit:
            msg = (
                f"events have lost up to {loss_number(spent)} by what was published, and would lose "
                f"{loss_number(more)} more by being counted again, above privacy.max_epsilon = {self.limit}: count "
                "only new events, or raise it"
            )
            price = more if isinstance(more, Fraction) else self.limit
            raise BudgetError(msg, asked=price, spent=spent, limit=self.limit)

    def rows(self) -> list[dict[str, str]]:
        """One row for each name and revision: windows, partitions, and what one window and all of them cost."""
        groups: dict[tuple[str, int], list[Record]] = {}
        for record in self.records:
            groups.setdefault((record.name, record.revision), []).append(record)
        return [
            table_row(
                name,
                revision,
                records,
                windows=len({record.window for record in records}),
                total=self.total(records),
            )
            for (name, revision), records in groups.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data: records with their ledgers, totals by day and over everything."""
        return {**self.summary(), "sketches": [_record_fields(record) for record in self.records]}

    def summary(self) -> dict[str, Any]:
        """Plain data: totals by day and over everything."""
        return {
            "keyed": self.keyed,
            "limit": None if self.limit is None else str(self.limit),
            "budget": self._budget_fields(),
            "total": self.total().to_dict(),
            "days": {day: total.to_dict() for day, total in self.by_day().items()},
            "unbounded_for_items": self.unbounded_for_items(),
            "conflicts": len(self.conflicts()),
            "copied": len(self.copied()),
        }

    def __str__(self) -> str:
        """Text for people: the table of `rows`, then the sentences."""
        rows = self.rows()
        names = ["sketch", "revision", "unit", "windows", "partitions", "one window", "all windows"]
        wide = {name: max(len(name), *(len(row[name]) for row in rows)) if rows else len(name) for name in names}
        lines = ["  ".join(name.ljust(wide[name]) for name in names).rstrip()]
        lines += ["  ".join(row[name].ljust(wide[name]) for name in names).rstrip() for row in rows]
        return "\n".join([*lines, *self.sentences()])

    def sentences(self) -> list[str]:
        """The totals, limits and incidents as sentences that begin with a small letter and have no full stop."""
        total = self.total()
        of_items = ' of unit "item"' if self.unbounded_for_items() else ""  # what the bounds of an item are of
        lines = [*self._tell_losses(total, of_items), *self._tell_limits(of_items), *self._tell_incidents()]
        if total.record:
            lines.append(
                f"one record loses at most {loss_number(total.record)} to the published numbers of records, which is "
                "in none of the numbers above"
            )
        if total.misplaced:
            lines.append(
                "one item with records in partitions where it does not belong loses at most "
                f"{loss_number(total.misplaced)} more to the published numbers of such items, which is in none of the "
                "numbers above"
            )
        return [*lines, publications.not_counted()]

    def _tell_losses(self, total: Total, of_items: str) -> Iterator[str]:
        """Sentences on the total losses of an event and of an item."""
        mixed = " of pure epsilon" if any(record.gaussian for record in self.records) else ""
        yield f"one event loses at most {loss_number(total.event)} in all sketches{mixed} together"
        if any(record.ledger.unit == "item" and not record.gaussian for record in self.records):
            worst = max(self.by_day().values(), key=lambda day: day.item)
            less = to_approximate(total.item_zcdp, DELTA) < total.item
            yield (
                f"one item loses at most {loss_number(worst.item)} by what it does in one UTC day and "
                f"{loss_number(total.item)} over everything published{of_items}"
            ) + (f" ({approximate(total.item_zcdp)} by zCDP)" if less else "")
        for unit, loss, together, pure in (
            ("event", total.event_gaussian, total.event_at, total.event),
            ("item", total.item_gaussian, total.item_at, total.item),
        ):
            if loss.mu2:
                which = f" and{of_items}" if of_items and unit == "item" else ""
                text = f"mu^2 {loss_number(loss.mu2)}, {loss.at(_DELTA)}" if loss.mu2 != math.inf else "no bound"
                yield f"one {unit} loses at most {text} in all sketches counted in mu^2{which} together"
                if pure:
                    yield f"one {unit} loses at most {together(_DELTA)} in all sketches of both measures{which}"
        for name in self.unbounded_for_items():
            yield (
                f"no bound on what one item loses to {name or 'the sketch'}: somebody with m events loses up to m "
                "times an event's loss"
            )

    def _tell_limits(self, of_items: str) -> Iterator[str]:
        """Sentences on the limit and the budget, with the losses in one period of it."""
        if self.limit is not None:
            yield f"the limit privacy.max_epsilon is {self.limit}"
        if self.budget is not None:
            event, item = self.period()
            over = ": ABOVE THE BUDGET" if max(event, item) > self.budget.epsilon else ""
            yield (
                f"the limit privacy.budget is {self.budget}; in one period one event lost at most "
                f"{loss_number(event)}, one item at most {loss_number(item)}{of_items}{over}"
            )

    def _tell_incidents(self) -> Iterator[str]:
        """Sentences on places with several states, and on copies of one state."""
        for record in self.conflicts():
            yield f"INCIDENT: {_place_text(record)}: {record.conflicts + 1} states were published under one name"
        for record in self.copied():
            lost = record.mu.mu2 if record.gaussian else record._copied()
            measure = "mu^2 " if record.gaussian else ""
            yield (
                f"INCIDENT: {_place_text(record) if record.name else 'a sketch'}: {len(record.copies) + 1} copies of "
                f"one state were published; together they cost an {record.ledger.unit} "
                f"{'without a bound' if lost == math.inf else measure + loss_number(lost)}"
            )

    def _budget_fields(self) -> dict[str, Any] | None:
        """The budget and how much of it was spent, as plain data."""
        if self.budget is None:
            return None
        event, item = self.period()
        within = max(event, item) <= self.budget.epsilon
        return {"limit": str(self.budget), "event": loss_number(event), "item": loss_number(item), "kept": within}

    def _item_total(self, records: Sequence[Record], loss: Measured) -> Loss:
        """Loss of an item to all windows: its losses in them add up."""
        return sum((lost for _, lost in self._item_windows(records, loss)), Fraction(0))

    def _item_windows(self, records: Sequence[Record], loss: Measured) -> Iterator[tuple[WindowSpan | None, Loss]]:
        """Loss of an item in each window of each sketch, over the partitions that can hold it."""
        windows: dict[Any, dict[Any, Loss]] = {}
        counts: dict[Any, set[int]] = {}
        for record in records:
            if record.ledger.unit == "item":
                key = record.name, record.revision, record.window
                by_partition = windows.setdefault(key, {})
                by_partition[record.partition] = by_partition.get(record.partition, Fraction(0)) + loss(record)
                counts.setdefault(key, set()).update(record.counts)
        for key, by_partition in windows.items():
            lies_in = max(1, len(counts[key])) if self.keyed else len(by_partition)
            yield key[2], sum(sorted(by_partition.values(), reverse=True)[:lies_in], Fraction(0))


def table_row(name: str, revision: int, records: Sequence[Record], *, windows: int, total: Total) -> dict[str, str]:
    """A row of `Deployment.rows`."""
    unit = records[0].ledger.unit
    if records[0].gaussian:
        worst = str(GaussianLoss.worst(record.mu for record in records).at(_DELTA))
        every = str((total.event_gaussian if unit == "event" else total.item_gaussian).at(_DELTA))
    else:
        worst = loss_number(max(record.event() if unit == "event" else record.item() for record in records))
        every = loss_number(total.event if unit == "event" else total.item)
    return {
        "sketch": name or "-",
        "revision": str(revision),
        "unit": unit,
        "windows": str(windows),
        "partitions": str(len({record.partition for record in records})),
        "one window": worst,
        "all windows": every,
    }


def _place_text(record: Record) -> str:
    """The place of a record, for a sentence."""
    return f"{record.name}, revision {record.revision}, window {record.window}, partition {record.partition}"


def _record_fields(record: Record) -> dict[str, Any]:
    """Plain data of one record."""
    return {
        "sketch": record.name,
        "revision": record.revision,
        "window": None if record.window is None else list(record.window),
        "partition": record.partition,
        "partition_counts": list(record.counts),
        "event": loss_number(record.event()),
        "item": loss_number(record.item()),
        **({"gaussian": record.mu.to_dict(_DELTA)} if record.gaussian else {}),
        "conflicts": record.conflicts,
        "copies": len(record.copies),
        "ledger": record.ledger.to_dict(),
    }


def in_order(records: Iterable[Record]) -> list[Record]:
    """Records by name, revision, window, partition; those without a window or a partition first."""

    def order(record: Record) -> tuple[str, int, WindowSpan, int]:
        partition = -1 if record.partition is None else record.partition
        return record.name, record.revision, record.window or (0, 0), partition

    return sorted(records, key=order)


def gaussian_total(records: Sequence[Record], total: Callable[[Measured], Loss]) -> GaussianLoss:
    """A total of losses to Gaussian noise: mu^2 and every bound of delta, each added up separately."""
    if not records:
        return GaussianLoss.none()
    if len(records) == 1:
        return records[0].mu
    bounds = []
    for at, rounding in enumerate(ROUNDINGS):
        distance = total(lambda record, at=at: _exact(record.mu.smoothed[at].kappa))  # type: ignore[misc]
        mu2 = total(lambda record, at=at: record.mu.smoothed[at].mu2)  # type: ignore[misc]
        bounds.append(Smoothed(rounding, mu2, float(distance) * (1 + 1e-15)))
    normal = all(record.mu.normal for record in records)
    return GaussianLoss(total(lambda record: record.mu.mu2), tuple(bounds), normal=normal)


def _exact(value: float) -> Loss:
    """A float as a fraction, so that sums of intervals cancel."""
    return Fraction(value) if math.isfinite(value) else math.inf


def most_of_event(records: Sequence[Record]) -> Losses:
    """Largest losses of one event to these sketches together."""
    total = Deployment(tuple(records)).total()
    return Losses(total.event, total.event_zcdp, total.event_gaussian)


def most_of_item(records: Sequence[Record]) -> Losses:
    """Largest losses of one item to any one of these sketches; infinite for unit "event"."""
    if any(record.ledger.unit == "event" for record in records):
        return Losses.unlimited()
    pure = max((record.item() for record in records if not record.gaussian), default=Fraction(0))
    gaussian = GaussianLoss.worst(record.mu for record in records if record.gaussian)
    return Losses(pure, rho_of_pure(pure), gaussian)


def most_of_record(
    records: Sequence[Record], within: WindowSpan | None = None, evidence: Mapping[str, FrontierNoise] | None = None
) -> Fraction:
    """Largest loss of one record to the numbers of records of these sketches, whatever it does to each of them.

    A record that is late for a window of a sketch is not admitted to that window, and counted as late once. Where the
    refused records of each window are counted, it is also among those of every window that refused it.

    Args:
        records: records of the sketches.
        within: records of this time only, ms; None: of any time.
        evidence: noise of the numbers in a sketch's frontiers, by its name.
    """
    by_sketch: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        by_sketch.setdefault((record.name, record.revision), []).append(record)
    total = Fraction(0)
    for (name, _), some in by_sketch.items():
        noise, unit = (evidence or {}).get(name, FrontierNoise()), some[0].ledger.unit
        refused = publications.cost_in_frontiers("record", unit, noise)
        admitted = max(record.records for record in some)  # as late, the record is counted by the same noise
        every = event_sum(some, lambda record: record.records, within)
        if refused > admitted:
            every = admitted + event_sum(some, lambda record, cost=refused: cost, within)  # type: ignore[misc]
        elif refused:
            every += refused
        assert isinstance(every, Fraction)
        total += every
    return total


def event_sum(records: Sequence[Record], loss: Measured, within: WindowSpan | None = None) -> Loss:
    """The largest sum of losses to sketches that count the same event, over all instants and partitions."""
    first, last = within or (-math.inf, math.inf)
    always = sum((loss(record) for record in records if record.window is None), Fraction(0))
    partitions = {record.partition for record in records if record.window is not None}
    worst: Loss = Fraction(0)
    for partition in partitions or {None}:
        steps: list[tuple[float, int, Loss]] = []
        for record in records:
            if record.window is not None and record.partition in (partition, None):
                lost, (start, end) = loss(record), record.window
                if start < last and first < end:
                    steps += [(max(start, first), 1, lost), (min(end, last), 0, lost)]
        worst = max(worst, sweep(steps))
    return always + worst


def sweep(steps: Sequence[tuple[float, int, Loss]]) -> Loss:
    """The largest sum of losses of intervals that share an instant; their ends are excluded."""
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


def days_of(window: WindowSpan) -> range:
    """Numbers of the UTC days that a window has a part in, counted from 1970."""
    return range(window[0] // DAY_MS, (window[1] - 1) // DAY_MS + 1)


def utc_day(at: int) -> str:
    """The UTC day of a time, ms since 1970."""
    return (dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=at)).date().isoformat()
