"""Noisy evidence about each window of a sketch in one partition: records that were refused, items that were misplaced.

In: refused times, misplaced items, which windows are sealed. Out: numbers for frontiers and snapshots. Touches:
entropy.
Source: docs/streams.md, "Quality"; docs/theory/privacy.md, section 5; Dwork, Naor, Pitassi, Rothblum & Yekhanin, ICS
2010 (cells that are redrawn by the items that hash to them).

Every number is noisy from the moment it exists. Refused records (late, future, or of an unreadable time) are counted
by their times alone, so they depend on envelopes. Misplaced items depend on payloads, so their number gets fresh noise
when it is published, once, with the window.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from sketchstream import noise
from sketchstream.items.arrays import Items
from sketchstream.spec import read_rational
from sketchstream.stream.input.partitioner import public_hashes
from sketchstream.stream.published.evidence import (
    EvidenceNoise,
    PublishedEvidence,
    Span,
    WindowNumbers,
    misplaced_law,
)
from sketchstream.stream.published.values import digits, integer, read_signed
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream.stream.windows.plans import SketchPlan

Times = npt.NDArray[np.int64]

WINDOWS_KEPT = 64
"""Number of the newest sealed windows with a count of refused records each; earlier windows share one count."""
MAX_FRONTIER_WINDOWS = 512
"""Most windows in a frontier: the last `WINDOWS_KEPT`, and earlier ones whose numbers are more than noise."""
MAX_WINDOWS_AHEAD = 64
"""Most windows that are not open yet and have a count of refused records; those that begin first are kept."""
MAX_FORMER_SETTINGS = 4
"""Most former settings of the noise whose windows are still judged; windows before them have no numbers."""
OLDER_EVERY = 16
"""The number of records that windows older than all those refused is published with every 16th frontier."""


def laplace(epsilon: Fraction) -> int:
    """One exact draw of discrete Laplace noise."""
    return draws(1, epsilon)[0]


def draws(number: int, epsilon: Fraction) -> list[int]:
    """Draw `number` independent, exact values of discrete Laplace noise under one key: making a key takes longest."""
    out = np.zeros(number, np.int64)
    if number:
        noise.discrete_laplace(out, epsilon)
    numbers: list[int] = out.tolist()
    return numbers


def responses(number: int, epsilon: Fraction) -> npt.NDArray[np.int16]:
    """(number,) independent bits, each 1 with probability 1 / (1 + e^epsilon)."""
    bits = np.zeros(number, np.int16)
    noise.randomized_response(bits, 2, epsilon)
    return bits


@dataclass
class WindowEvidence:
    """The evidence about one window in one partition.

    Args:
        start: start of the window, ms.
        end: end of the window, ms.
        refused: records refused since the last publication of their number, with one draw of noise.
        shown: published number of refused records.
        draws: draws of noise in the published number.
        age: frontiers since the window was sealed; -1: it is not sealed.
        contradicted: records that were written inside the window came after idleness had closed it.
        opened: whether the window has a sketch in this partition.
        misplaced: misplaced events with one draw of noise; after the seal the published number.
        cells: unit "item", until the seal: bits of misplaced items.
        published: whether `misplaced` is the published number, with all its noise.
    """

    start: int
    end: int
    refused: int = 0
    shown: int = 0
    draws: int = 0
    age: int = -1
    contradicted: bool = False
    opened: bool = False
    misplaced: int = 0
    cells: npt.NDArray[np.int16] | None = None
    published: bool = False


class Evidence:
    """The evidence about the windows of one sketch in one partition.

    Args:
        noise: noise of its numbers.
    """

    def __init__(self, noise: EvidenceNoise) -> None:
        self.noise = noise
        self.windows: dict[Span, WindowEvidence] = {}
        self.since = NO_TIME
        self._frontiers = 0
        self._older = laplace(noise.refused) if noise.refused else 0
        self._older_shown = 0
        self._older_draws = 0
        self.former: list[Evidence] = []

    def __repr__(self) -> str:
        """How many windows have evidence."""
        return f"<Evidence of {len(self.windows)} windows>"

    @property
    def kept(self) -> bool:
        """Whether numbers are kept, of any window."""
        return bool(self.noise.refused or self.former)

    @property
    def known(self) -> set[Span]:
        """The windows with evidence."""
        return {window for part in (self, *self.former) for window in part.windows}

    @property
    def young_ms(self) -> int | None:
        """Length of the shortest sealed window whose number is still published anew; None: there is none."""
        windows = (window for part in (self, *self.former) for window in part.windows.values())
        return min((window.end - window.start for window in windows if 0 <= window.age < WINDOWS_KEPT), default=None)

    def _holder(self, start: int, end: int) -> Evidence:
        """The evidence that holds a window, perhaps that of a former noise; this one if none holds it."""
        return next((former for former in self.former if (start, end) in former.windows), self)

    def open(self, start: int, end: int) -> WindowEvidence:
        """The evidence about a window that has a sketch in this partition, from which items can be missing."""
        noise, window = self._holder(start, end).noise, self.window(start, end)
        if not window.opened:
            window.opened = True
            if noise.cells:
                window.cells = responses(noise.cells, noise.misplaced)
            elif noise.misplaced:
                window.misplaced = laplace(noise.misplaced)
        return window

    def window(self, start: int, end: int) -> WindowEvidence:
        """The evidence about a window, created with its noise if necessary."""
        window = self._holder(start, end).windows.get((start, end))
        if window is None:
            window = self.windows[start, end] = WindowEvidence(start, end)
            if self.noise.refused:
                window.refused = laplace(self.noise.refused)
        return window

    # ----------------------------------------------------------------------------------------------- what happened

    def refuse(self, times: Times, windows: Iterable[Span], through: int) -> None:
        """Count refused records for the windows that hold their times.

        Args:
            times: (n,) event times of the records.
            windows: windows that may hold them, each of which refuses all of them.
            through: windows that end by then are sealed.
        """
        if not times.size:
            return
        first, last = int(times.min()), int(times.max())
        for start, end in windows:
            if end <= first or last < start:  # dozens are known, and few are near
                continue
            n = int(np.count_nonzero((times >= start) & (times < end)))
            holder = self._holder(start, end)
            if not n or not holder.noise.refused:
                continue
            if (start, end) not in holder.windows and end <= through:
                self._older += n
            else:
                self.window(start, end).refused += n
        self._bound_ahead(through)

    def _bound_ahead(self, through: int) -> None:
        """Forget the farthest windows that are not open and only refused records: one wrong clock makes any number."""
        if len(self.windows) > MAX_WINDOWS_AHEAD:
            ahead = sorted(span for span, window in self.windows.items() if span[1] > through and not window.opened)
            for span in ahead[MAX_WINDOWS_AHEAD:]:
                del self.windows[span]

    def misplace(self, start: int, end: int, items: Items, partition: int, partitions: int) -> None:
        """Count events whose items do not belong to the partition.

        With unit "item", an item is noted at most in one other partition, which a hash of it names, and in one cell
        there: the cell is drawn anew, and is 1 with probability 1 - 1 / (1 + e^epsilon) instead of
        1 / (1 + e^epsilon), however many records the item has.

        Args:
            start: start of the window, ms.
            end: end of the window, ms.
            items: misplaced items, one for each event.
            partition: this partition.
            partitions: number of partitions of the input.
        """
        noise = self._holder(start, end).noise
        if not noise.misplaced:
            return
        window = self.open(start, end)
        if not noise.cells:
            window.misplaced += len(items)
            return
        hashed = public_hashes(items)
        noted = hashed[hashed % np.uint64(partitions) == np.uint64(partition)] // np.uint64(partitions)
        places = np.unique(noted % np.uint64(noise.cells)).astype(np.intp)
        if places.size and window.cells is not None:
            window.cells[places] = 1 - responses(places.size, noise.misplaced)

    def contradict(self, stamps: Times, ranges: Iterable[Span], lateness_ms: int) -> bool:
        """Mark the windows that idleness closed and in which records were written that came afterwards.

        Args:
            stamps: (n,) timestamps of the records themselves.
            ranges: (from, to] watermarks that no record voted for.
            lateness_ms: how long windows stay open behind the watermark.

        Returns:
            Whether a window was marked.
        """
        marked = sum(former.contradict(stamps, ranges, lateness_ms) for former in self.former) > 0
        for window in self.windows.values():
            if window.age < 0 or window.contradicted:
                continue
            closed = window.end + lateness_ms
            if any(low < closed <= high for low, high in ranges) and bool(
                ((stamps >= window.start) & (stamps < window.end)).any()
            ):
                window.contradicted = marked = True
        return marked

    # ---------------------------------------------------------------------------------------------- publication

    def seal(self, plan: SketchPlan | None, before: int, through: int) -> None:
        """Note that windows were sealed, or passed without a record; their numbers are published from now on.

        Args:
            plan: plan of the sketch; None: only its open windows are left.
            before: windows that end by then were sealed earlier, ms.
            through: windows that end by then are sealed now, ms.
        """
        for former in self.former:
            former.seal(None, before, through)
        if plan is not None and through != NO_TIME:
            for start, end in windows_passed(plan, before, through):
                self.window(start, end)
        closed = [window for window in self.windows.values() if window.age < 0 and window.end <= through]
        for window in closed:
            window.age = 0
        opened = [window for window in closed if window.opened and self.noise.misplaced]
        for window, drawn in zip(opened, draws(len(opened), self.noise.misplaced), strict=True):
            if window.cells is not None:
                window.misplaced = int(window.cells.sum())
            window.misplaced += drawn
            window.published, window.cells = True, None

    def report(self, most: int = WINDOWS_KEPT) -> PublishedEvidence:
        """The evidence to publish now; each publication of a changed number brings noise of its own.

        Args:
            most: sealed windows to keep whose numbers are no more than noise.
        """
        self._frontiers += 1
        if self.noise.refused and self._frontiers % OLDER_EVERY == 1:
            self._older_shown += self._older
            self._older_draws += 1
            self._older = laplace(self.noise.refused)
        sealed = sorted((window for window in self.windows.values() if window.age >= 0), key=lambda window: window.end)
        again = [window for window in sealed if self.noise.refused and due(window.age)]
        for window, drawn in zip(again, draws(len(again), self.noise.refused), strict=True):
            window.shown += window.refused
            window.draws += 1
            window.refused = drawn
        for window in sealed:
            window.age += 1
        old, last = sealed[: max(0, len(sealed) - most)], sealed[max(0, len(sealed) - most) :]
        news = [window for window in old if self._is_news(window)]
        for window in news[: -(MAX_FRONTIER_WINDOWS - WINDOWS_KEPT)]:
            self.since = max(self.since, window.end)
        news = news[-(MAX_FRONTIER_WINDOWS - WINDOWS_KEPT) :]
        stays = {(window.start, window.end) for window in (*news, *last)}
        self.windows = {span: window for span, window in self.windows.items() if window.age < 0 or span in stays}
        for former in self.former:
            most = max(0, most - len(last))
            former.report(most)
            last = list(former.windows.values())
        return self.reported()

    def reported(self) -> PublishedEvidence:
        """What the last `report` gave."""
        windows = {
            span: WindowNumbers(
                window.shown, window.draws, window.contradicted, window.misplaced if window.published else None
            )
            for span, window in self.windows.items()
            if window.age > 0
        }
        former = tuple(former.reported() for former in self.former)
        return PublishedEvidence(self.noise, self.since, self._older_shown, self._older_draws, windows, former)

    def _is_news(self, window: WindowEvidence) -> bool:
        """Whether published numbers of an old window are more than three standard deviations of their noise."""
        if window.contradicted:
            return True
        refused = float(self.noise.refused)
        if refused and window.shown * refused > 3.0 * (2.0 * window.draws) ** 0.5 + refused:
            return True
        if not window.published:
            return False
        mean, variance = misplaced_law(self.noise, 1)
        return bool(window.misplaced > mean + 3.0 * variance**0.5 + 1.0)

    # ------------------------------------------------------------------------------------------------- snapshots

    def fields(self) -> dict[str, Any]:
        """Plain data for a snapshot; its size does not depend on values."""
        return {
            "since": self.since,
            "frontiers": self._frontiers,
            "older": [digits(self._older), digits(self._older_shown), self._older_draws],
            "noise": self._laws,
            **({"former": [former.fields() for former in self.former]} if self.former else {}),
            "windows": [
                [
                    window.start,
                    window.end,
                    digits(window.refused),
                    digits(window.shown),
                    window.draws,
                    window.age,
                    [int(flag) for flag in (window.contradicted, window.opened, window.published)],
                    digits(window.misplaced),
                    None if window.cells is None else np.packbits(window.cells.astype(np.uint8)).tobytes().hex(),
                ]
                for window in self.windows.values()
            ],
        }

    @property
    def _laws(self) -> list[str | int]:
        """The noise, for a snapshot; older ones lack the last number."""
        noise = self.noise
        return [str(noise.refused), str(noise.misplaced), noise.cells, int(noise.unkeyed)]

    @classmethod
    def _former(cls, fields: Mapping[str, Any]) -> Evidence:
        """The evidence of a former noise."""
        refused, misplaced, cells, unkeyed = fields["noise"]
        noise = EvidenceNoise(read_rational(refused), read_rational(misplaced), integer(cells), bool(unkeyed))
        former = cls(noise)
        former.restore(fields, NO_TIME)
        return former

    def restore(self, fields: Mapping[str, Any] | None, known: int) -> None:
        """Restore the evidence of a snapshot; after a change of its noise, the known windows keep theirs.

        Args:
            fields: what `fields` gave; None: nothing was kept.
            known: windows that end by then (ms) were sealed, or open, when nothing was kept.
        """
        if fields is None:
            self.since = known
            return
        before, now = list(fields["noise"]), self._laws
        before += now[len(before) :]
        changed = [{**fields, "noise": before, "former": []}] if before != now else []
        former = [part for part in (*changed, *fields.get("former", ())) if part["noise"][0] != "0"]
        self.former = [self._former(part) for part in former[:MAX_FORMER_SETTINGS]]
        if changed:
            self.since = known
            return
        self.since, self._frontiers = integer(fields["since"]), integer(fields["frontiers"])
        pending, shown, self._older_draws = fields["older"]
        self._older, self._older_shown = read_signed(pending), read_signed(shown)
        for start, end, refused, shown, draws, age, flags, misplaced, cells in fields["windows"]:
            window = WindowEvidence(start, end, read_signed(refused), read_signed(shown), draws, age)
            window.contradicted, window.opened, window.published = (bool(flag) for flag in flags)
            window.misplaced = read_signed(misplaced)
            if cells is not None:
                bits = np.unpackbits(np.frombuffer(bytes.fromhex(cells), np.uint8))[: self.noise.cells]
                window.cells = bits.astype(np.int16)
            self.windows[start, end] = window


def windows_passed(plan: SketchPlan, before: int, through: int) -> list[Span]:
    """The last `WINDOWS_KEPT` windows of a plan that end after `before` and by `through`, ascending."""
    spans: list[Span] = []
    step = plan.calendar.window(through - 1)[0]
    for _ in range(WINDOWS_KEPT * plan.stride):
        end = plan.calendar.end(step)
        if end <= before or len(spans) == WINDOWS_KEPT:
            break
        if end <= through:
            spans += [window for window in plan.holding(step) if window[1] == end]
        step = plan.calendar.before(step)
    return spans[::-1]


def due(age: int) -> bool:
    """Whether the number of a window is published anew this many frontiers after its seal: 0 to 4, 6, 8, 12, 16, ..."""
    return age < 5 or age & (age - 1) == 0 or (age % 3 == 0 and (age // 3) & (age // 3 - 1) == 0)
