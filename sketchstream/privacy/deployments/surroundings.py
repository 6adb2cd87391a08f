"""The deployment around one sketch: its windows and partitions, the other sketches, and the losses over all of them.

In: what is known of a deployment, the losses to one window. Out: losses over a day, and over everything that is kept.
Touches: nothing.
Source: docs/theory/privacy.md section 5 (what adds and what does not).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, Literal

from sketchstream.privacy.ledgers.ledger import Ledger
from sketchstream.privacy.losses.composition import Losses
from sketchstream.privacy.losses.gaussian import GaussianLoss
from sketchstream.privacy.losses.history import Loss

DAY_MS: Final = 86_400_000


@dataclass(frozen=True)
class OtherSketch:
    """Another sketch on the same topic, and the losses to one of its windows.

    Args:
        name: name of the sketch.
        event: largest losses of an event to it, in all windows that hold the event.
        item: largest losses of an item to it in one window; infinite for unit "event" (no bound without a bound on
            the item's events).
        window_ms: length of its windows; None for one sketch without windows.
        a_day: most of its windows in one day, as in `Context`.
        overlap: windows that hold one instant, as in `Context`.
        every_ms: time from the beginning of a window to that of the next, as in `Context`.
        records: loss of a record to its numbers of records, in all windows that hold the record.
    """

    name: str
    event: Losses
    item: Losses
    window_ms: int | None
    a_day: int | None = None
    overlap: int = 1
    every_ms: int | None = None
    records: Fraction = Fraction(0)

    @classmethod
    def of(
        cls,
        name: str,
        ledger: Any,
        window_ms: int | None,
        a_day: int | None = None,
        overlap: int = 1,
        *,
        every_ms: int | None = None,
        groups: int = 1,
        records: Fraction = Fraction(0),
    ) -> OtherSketch:
        """The losses in the ledger of one window.

        Args:
            name: name of the sketch.
            ledger: ledger of one window.
            window_ms: length of its windows.
            a_day: most of its windows in one day.
            overlap: windows that hold one instant.
            every_ms: time from the beginning of a window to that of the next.
            groups: groups whose losses the ledger adds for an item; an event is in one of them.
            records: loss of a record to the numbers of records in one window.
        """
        loss = ledger.most_of_event / groups if isinstance(ledger, Ledger) else ledger.loss()
        event, item = Losses.of_sketch(loss).times(overlap), Losses.unlimited()
        if ledger.unit == "item":
            item = Losses.of_sketch(ledger.loss())
        return cls(name, event, item, window_ms, a_day, overlap, every_ms, records * overlap)


@dataclass(frozen=True)
class Context:
    """The deployment around a sketch, as far as it is known. The statement says what is unknown.

    Args:
        window_ms: length of the sketch's windows; None: no windows.
        retention_ms: time for which the input topic keeps records; `math.inf` for ever, None unknown.
        published_ms: time for which publications are kept; None: for ever.
        partitions: number of partitions of the input; None: it has no partitions.
        keyed: whether an item's records all lie in one partition, and that is checked.
        counts: distinct numbers of partitions that were valid while any part of the window was open.
        diagnostics: exact counters of payload-dependent outcomes at the operator's endpoint, or off.
        store: place of the snapshots: "kafka" (encrypted, keys in the offsets topic), "dir" (plain, 0600), "file"
            (an open sketch's own file), None (memory only).
        dead_letters: whether refused records go to a topic, and with their payload.
        late_records: whether records that come too late go to a topic.
        others: other sketches on the same topic.
        a_day: most of the sketch's windows in one day of its time zone, the longest one where clocks change; None:
            a day has 24 hours.
        overlap: windows of the sketch that hold one instant: more than 1 where windows hop.
        every_ms: least time from the beginning of a window to that of the next; None: `window_ms` / `overlap`.
        refused: epsilon of the noise of the numbers of refused records; 0: not published.
        misplaced: epsilon of the noise of the numbers of misplaced events or items; 0: not published.
        early: answers that are published from a window before it is sealed, at most.
        epsilon_early: cost of each of them.
        table: name and snapshot of the table that was counted, whose raw data are kept; None: it was a stream.
        with_copy: loss with one copy of the open state, of the part of a stack that loses most to it; None: that of
            the sketch.
    """

    window_ms: int | None = None
    retention_ms: float | None = None
    published_ms: int | None = None
    partitions: int | None = None
    keyed: bool = True
    counts: int = 1
    diagnostics: Literal["exact", "off"] = "off"
    store: Literal["kafka", "dir", "file"] | None = None
    dead_letters: Literal["none", "envelope", "payload"] = "none"
    late_records: bool = False
    refused: Fraction = Fraction(0)
    misplaced: Fraction = Fraction(0)
    early: int = 0
    epsilon_early: Fraction = Fraction(0)
    table: tuple[str, str] | None = None
    others: tuple[OtherSketch, ...] = ()
    a_day: int | None = None
    overlap: int = 1
    every_ms: int | None = None
    with_copy: Loss | GaussianLoss | None = None


def duration(milliseconds: float) -> str:
    """A length of time for a sentence."""
    if milliseconds == math.inf:
        return "for ever"
    for name, length in (("day", DAY_MS), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000)):
        if milliseconds >= length:
            number = f"{milliseconds / length:.4g}"
            return f"{number} {name}" + ("" if number == "1" else "s")
    return f"{milliseconds:g} ms"


def windows_of(window_ms: int | None, span_ms: float, overlap: int = 1, every_ms: int | None = None) -> int:
    """Number of windows that can touch a span that begins where a window begins.

    Args:
        window_ms: length of a window.
        span_ms: length of the span.
        overlap: windows that hold one instant: all but one of those that hold the span's first count as well.
        every_ms: time from the beginning of a window to that of the next; None: `window_ms` / `overlap`.
    """
    if window_ms is None:
        return 1
    begun = span_ms * overlap / window_ms if every_ms is None else span_ms / every_ms
    return max(1, math.ceil(begun)) + overlap - 1


def windows_a_day(sketch: Context | OtherSketch) -> int:
    """Most windows of a sketch in one day."""
    return sketch.a_day or windows_of(sketch.window_ms, DAY_MS, sketch.overlap, sketch.every_ms)


def copies_of_item(context: Context) -> int:
    """Number of partitions that can hold one item's records of one window."""
    if not context.keyed:
        return context.partitions or 1
    return context.counts if context.partitions is None else min(context.counts, context.partitions)


def over_a_day(ledger: Any, context: Context, *, whole: bool = False) -> Losses:
    """Losses over all sketches of the deployment: of an event, or of an item on one day.

    Args:
        ledger: ledger of one window of the sketch.
        context: deployment of the sketch.
        whole: whether one promise bounds an item over all partitions of a window together.
    """
    own, number = Losses.of_sketch(ledger.loss()), context.overlap
    if ledger.unit == "item":
        number = windows_a_day(context) * (1 if whole else copies_of_item(context))
    if number == 1 and not context.others and isinstance(ledger, Ledger):
        return replace(own, rho=ledger.zcdp())  # one sketch by its history (Theorem 5b), several by their pure losses
    total = own.times(number)
    copies = copies_of_item(context)
    for other in context.others:
        total += other.event if ledger.unit == "event" else other.item.times(windows_a_day(other) * copies)
    return total


def over_all_windows(ledger: Any, context: Context, *, whole: bool = False) -> Losses:
    """Losses to all publications that are kept: an event lies in the windows that hold its time, an item in all.

    Args:
        ledger: ledger of one window of the sketch.
        context: deployment of the sketch.
        whole: as in `over_a_day`.
    """
    if ledger.unit == "event":
        return over_a_day(ledger, context)
    windowed = context.window_ms is not None or any(other.window_ms is not None for other in context.others)
    if context.published_ms is None and windowed:
        return Losses.unlimited()
    span, copies = context.published_ms or 0, copies_of_item(context)
    number = windows_of(context.window_ms, span, context.overlap, context.every_ms) * (1 if whole else copies)
    total = Losses.of_sketch(ledger.loss()).times(number)
    for other in context.others:
        total += other.item.times(windows_of(other.window_ms, span, other.overlap, other.every_ms) * copies)
    return total
