"""Totals of a deployment with very many windows: windows of one kind are counted, not listed.

In: windows, each with the kind of its publications; the records of each kind. Out: the totals that a `Deployment` of
all of them would give. Touches: nothing.
Source: docs/theory/privacy.md section 5 (what adds and what does not).

A stream that runs for years publishes the same kind of window every hour. The loss of an event at one instant depends
only on the kinds of the windows that are open then, and the loss of an item in one window only on the kind of that
window. Both take few different values.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

from sketchstream.privacy.deployments.deployment import (
    Deployment,
    Measured,
    Periods,
    Record,
    Total,
    WindowSpan,
    days_of,
    event_sum,
    gaussian_total,
    in_order,
    most_of_record,
    sweep,
    table_row,
    utc_day,
)
from sketchstream.privacy.deployments.publications import FrontierNoise
from sketchstream.privacy.deployments.surroundings import DAY_MS
from sketchstream.privacy.losses.composition import Losses
from sketchstream.privacy.losses.gaussian import GaussianLoss
from sketchstream.privacy.losses.history import Loss
from sketchstream.privacy.losses.measures import rho_of_pure

INSTANT: Final = (0, 1)
"""The window of records of a kind: all of them are open at the same time."""
WindowClass = tuple[Any, ...]
"""Name, revision, and what tells kinds of one sketch apart."""
Instant = frozenset[tuple[WindowClass, int]]
"""Kinds of windows that are open at one time, and how many of each."""


@dataclass(frozen=True)
class Census(Deployment):
    """Everything that one deployment has published on one topic, as windows of a few kinds.

    `records` holds one example of each kind of record.

    Args:
        windows: the kind and the [start, end) of each window of each sketch and revision; ms since 1970.
        kinds: the records of one window of each kind.
    """

    windows: Sequence[tuple[WindowClass, WindowSpan]] = ()
    kinds: Mapping[WindowClass, tuple[Record, ...]] = field(default_factory=dict)

    @classmethod
    def count(
        cls,
        windows: Iterable[tuple[WindowClass, WindowSpan]],
        kinds: Mapping[WindowClass, Sequence[Record]],
        *,
        keyed: bool = True,
        limit: Fraction | None = None,
        budget: Periods | None = None,
        evidence: Mapping[str, FrontierNoise] | None = None,
    ) -> Census:
        """The deployment that has published these windows.

        Args:
            windows: the kind and the [start, end) of each window of each sketch and revision.
            kinds: the records of one window of each kind; a kind begins with the name and the revision of the sketch.
            keyed: whether all records of an item lie in one partition, and that is checked.
            limit: `privacy.max_epsilon`, or None.
            budget: `privacy.budget`, or None.
            evidence: see `Deployment`.
        """
        records = in_order([record for found in kinds.values() for record in found])
        at_once = {kind: tuple(replace(record, window=INSTANT) for record in found) for kind, found in kinds.items()}
        return cls(tuple(records), keyed, limit, budget, evidence or {}, list(windows), at_once)

    def total(self, records: Sequence[Record] | None = None, within: WindowSpan | None = None) -> Total:
        """See `Deployment.total`."""
        return self._everything if records is None and within is None else super().total(records, within)

    @cached_property
    def _everything(self) -> Total:
        return self._total(self.windows)

    def by_day(self) -> dict[str, Total]:
        """See `Deployment.by_day`; days with equal windows are added up once."""
        return self._days

    @cached_property
    def _days(self) -> dict[str, Total]:
        days: dict[int, list[tuple[WindowClass, WindowSpan]]] = defaultdict(list)
        for kind, (start, end) in self.windows:
            for day in days_of((start, end)):
                begins = day * DAY_MS
                days[day].append((kind, (max(start - begins, 0), min(end - begins, DAY_MS))))
        totals: dict[frozenset[Any], Total] = {}
        out = {}
        for day, windows in sorted(days.items()):
            alike = frozenset(Counter(windows).items())
            if alike not in totals:
                totals[alike] = self._total(windows)
            out[utc_day(day * DAY_MS)] = totals[alike]
        return out

    def rows(self) -> list[dict[str, str]]:
        """One row for each name and revision: windows, partitions, and what one window and all of them cost."""
        return self._rows

    @cached_property
    def _rows(self) -> list[dict[str, str]]:
        groups: dict[tuple[str, int], list[tuple[WindowClass, WindowSpan]]] = defaultdict(list)
        for kind, window in self.windows:
            groups[kind[0], kind[1]].append((kind, window))
        return [
            table_row(
                *place,
                [record for kind in {kind for kind, _ in windows} for record in self.kinds[kind]],
                windows=len({window for _, window in windows}),
                total=self._total(windows),
            )
            for place, windows in sorted(groups.items())
        ]

    def _total(self, windows: Sequence[tuple[WindowClass, WindowSpan]]) -> Total:
        """Total loss to some windows."""
        counts = Counter(kind for kind, _ in windows)
        instants = self._instants(windows)

        def event(loss: Measured, gaussian: bool) -> Loss:
            return max((self._at(instant, loss, gaussian) for instant in instants), default=Fraction(0))

        def item(loss: Measured, gaussian: bool) -> Loss:
            losses = ((times, self._window_item(kind, loss, gaussian)) for kind, times in counts.items())
            return sum((times * lost for times, lost in losses if lost), Fraction(0))

        misplaced = (times * self.misplaced_item(self.kinds[kind]) for kind, times in counts.items())
        return Total(
            event=event(Record.event, False),
            event_zcdp=event(lambda record: rho_of_pure(record.event()), False),
            item=item(Record.item, False),
            item_zcdp=item(lambda record: rho_of_pure(record.item()), False),
            event_gaussian=self._gaussian(counts, lambda loss: event(loss, True), lambda record: True),
            item_gaussian=self._gaussian(
                counts, lambda loss: item(loss, True), lambda record: record.ledger.unit == "item"
            ),
            record=self._record(windows),
            misplaced=sum(misplaced, Fraction(0)),
        )

    def _record(self, windows: Sequence[tuple[WindowClass, WindowSpan]]) -> Fraction:
        """Loss of one record to the numbers of records, as in `deployment.most_of_record`."""
        by_sketch: dict[tuple[str, int], list[tuple[WindowClass, WindowSpan]]] = defaultdict(list)
        for kind, window in windows:
            by_sketch[kind[0], kind[1]].append((kind, window))
        total = Fraction(0)
        for some in by_sketch.values():
            worst = (most_of_record(self._open(instant), None, self.evidence) for instant in self._instants(some))
            total += max(worst, default=Fraction(0))
        return total

    def _gaussian(
        self, counts: Mapping[WindowClass, int], total: Callable[[Measured], Loss], belongs: Callable[[Record], bool]
    ) -> GaussianLoss:
        """A total of losses to Gaussian noise."""
        measured = [
            record
            for kind, times in counts.items()
            for record in self.kinds[kind]
            if record.gaussian and belongs(record)
            for _ in range(min(times, 2))  # one record has its own loss; for several only the sums matter
        ]
        return gaussian_total(measured, total)

    def _instants(self, windows: Sequence[tuple[WindowClass, WindowSpan]]) -> set[Instant]:
        """The sets of windows that are open at an instant before something ends, each set once."""
        begins: dict[int, list[WindowClass]] = defaultdict(list)
        ends: dict[int, list[WindowClass]] = defaultdict(list)
        for kind, (start, end) in windows:
            begins[start].append(kind)
            ends[end].append(kind)
        now: Counter[WindowClass] = Counter()
        instants: set[Instant] = set()
        for at in sorted(begins.keys() | ends.keys()):
            now.subtract(ends.get(at, ()))
            now.update(begins.get(at, ()))
            if at in ends:
                now = +now
            if at in begins:
                instants.add(frozenset(now.items()))
        return instants

    def _at(self, instant: Instant, loss: Measured, gaussian: bool) -> Loss:
        """Loss of one event that lies in all windows that are open."""
        return event_sum([record for record in self._open(instant) if record.gaussian == gaussian], loss)

    def _open(self, instant: Instant) -> list[Record]:
        """The records of all windows that are open."""
        return [record for kind, times in instant for record in self.kinds[kind] for _ in range(times)]

    def _window_item(self, kind: WindowClass, loss: Measured, gaussian: bool) -> Loss:
        """Loss of one item in a window of this kind."""
        chosen = [record for record in self.kinds[kind] if record.gaussian == gaussian]
        return self._item_total(chosen, loss)

    def _period(self) -> tuple[Losses, Losses]:
        """See `Deployment._period`; computed once."""
        return self._periods

    @cached_property
    def _periods(self) -> tuple[Losses, Losses]:
        return super()._period()

    def _worst_period(self, loss: Measured, *, gaussian: bool = False) -> Loss:
        """Most that an item has lost in any one period of the budget, to sketches of one measure."""
        assert self.budget is not None
        lost = {kind: self._window_item(kind, loss, gaussian) for kind in self.kinds}
        spans: dict[WindowSpan, WindowSpan] = {}
        sums: dict[WindowSpan, Loss] = defaultdict(Fraction)
        for kind, window in self.windows:
            if lost[kind]:
                if window not in spans:
                    spans[window] = self.budget.span_of(window)
                where = spans[window]
                sums[where] = sums[where] + lost[kind]
        steps = [(at, begins, losses) for (start, end), losses in sums.items() for at, begins in ((start, 1), (end, 0))]
        return sweep(steps)
