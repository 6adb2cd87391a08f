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
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from sketchstream import kinds, noise
from sketchstream.components import DISCRETE_GAUSSIAN
from sketchstream.items.arrays import Items
from sketchstream.kinds.interface import Spec
from sketchstream.privacy.deployments import publications
from sketchstream.spec import read_rational
from sketchstream.stream.input.partitioner import spread
from sketchstream.stream.state.values import digits, integer, signed
from sketchstream.stream.windows.plans import SketchPlan
from sketchstream.stream.windows.windows import NO_TIME

Times = npt.NDArray[np.int64]
Span = tuple[int, int]

KEPT = 64
"""Sealed windows whose refused records are counted each; earlier ones are counted together."""
MOST_SHOWN = 512
"""Windows in a frontier, at most: the last `KEPT`, and earlier ones whose numbers are more than noise."""
MOST_AHEAD = 64
"""Windows that are not open yet and whose refused records are counted; those that begin first."""
MOST_FORMER = 4
"""Former noises whose windows are still judged, at most; windows before them have no numbers."""
OLDER_EVERY = 16
"""Frontiers between two publications of the number of records that were refused by windows older than those."""
LARGE = 10
"""Epsilon above which results say NO PRIVACY."""
FEW_CELLS, MANY_CELLS = 1024, 4096
"""Cells for misplaced items; many of them where each tells little, because epsilon is below 1."""


@dataclass(frozen=True)
class EvidenceNoise:
    """The noise of the evidence that a sketch keeps.

    Args:
        refused: epsilon of each draw in a number of refused records; 0: not kept.
        misplaced: epsilon of each draw in the number of misplaced events, or of the cells of misplaced items and of
            the draw in their published sum; 0: not kept.
        cells: unit "item": number of cells; 0: events are counted.
        anywhere: whether records of an item may be in any partition, so that none is misplaced.
    """

    refused: Fraction = Fraction(0)
    misplaced: Fraction = Fraction(0)
    cells: int = 0
    anywhere: bool = False

    @classmethod
    def of(cls, plan: SketchPlan | None, *, checked: bool, anywhere: bool = False) -> EvidenceNoise:
        """The noise of a sketch.

        Args:
            plan: plan of the sketch; None: it is no longer configured, and nothing is kept.
            checked: whether items are compared with the partitioner, so that some can be misplaced.
            anywhere: whether the input is not partitioned by item.
        """
        if plan is None:
            return cls()
        misplaced = misplaced_noise(plan.spec) if plan.epsilon_misplaced is None else plan.epsilon_misplaced
        if not checked:
            misplaced = Fraction(0)
        cells = 0
        if misplaced and plan.spec.unit == "item":
            cells = FEW_CELLS if misplaced >= 1 else MANY_CELLS
        refused = refused_noise(plan.spec) if plan.epsilon_refused is None else plan.epsilon_refused
        return cls(refused, misplaced, cells, anywhere)


def refused_noise(spec: Spec) -> Fraction:
    """Default noise of numbers of refused records: 1/10, and a tenth of the sketch's epsilon if that is more.

    Half of it where epsilon is above 10, with which the project says that nobody is protected.
    """
    epsilon = _epsilon(spec)
    return max(Fraction(1, 10), epsilon / (2 if epsilon > LARGE else 10))


def misplaced_noise(spec: Spec) -> Fraction:
    """Default noise of the number of misplaced events or items.

    A misplaced event changes this number and nothing else of the sketch. With half the sketch's smallest epsilon the
    two draws cost it no more than an event that is counted (Gaussian sketches: a twentieth, as their mu is smaller
    than epsilon / 4). A misplaced item may also have records where it belongs, so it pays on top: a tenth, and a
    half where epsilon is above 10.
    """
    epsilon = _epsilon(spec)
    gaussian = any(one.law == DISCRETE_GAUSSIAN for one in kinds.of(spec).accounting.components(spec))
    if spec.unit == "event":
        return epsilon / (20 if gaussian else 2)
    return epsilon / (2 if epsilon > LARGE else 10)


def _epsilon(spec: Spec) -> Fraction:
    """The smaller of a sketch's two epsilons."""
    found = [getattr(spec, name, None) for name in ("epsilon", "epsilon_publish")]
    return min(Fraction(one) for one in found if one)


def laplace(epsilon: Fraction) -> int:
    """One exact draw of discrete Laplace noise."""
    return draws(1, epsilon)[0]


def draws(number: int, epsilon: Fraction) -> list[int]:
    """So many independent exact draws of discrete Laplace noise, under one key: a key takes longer than its draws."""
    out = np.zeros(number, np.int64)
    if number:
        noise.discrete_laplace(out, epsilon)
    found: list[int] = out.tolist()
    return found


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
        shown: their published number.
        draws: noise in it.
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


@dataclass(frozen=True)
class ShownEvidence:
    """The published evidence about one window in one partition.

    Args:
        refused: noisy number of records that the window refused.
        draws: draws of noise in it.
        contradicted: see `WindowEvidence`.
        misplaced: noisy number of misplaced events, or of cells that are set; None: not kept, or nothing was counted.
    """

    refused: int
    draws: int
    contradicted: bool = False
    misplaced: int | None = None


@dataclass(frozen=True)
class Reported:
    """The evidence of one frontier.

    Args:
        noise: noise of the numbers.
        since: windows that end by then (ms) have no numbers, because they were not kept then; NO_TIME: all have.
        older: noisy number of records refused by windows that are older than those with numbers.
        older_draws: draws of noise in it.
        windows: evidence by window.
        former: the same of windows before `since`, with the noise that a former configuration gave them; newest first.
    """

    noise: EvidenceNoise
    since: int = NO_TIME
    older: int = 0
    older_draws: int = 0
    windows: Mapping[Span, ShownEvidence] = field(default_factory=dict)
    former: tuple[Reported, ...] = ()

    def fields(self) -> dict[str, Any]:
        """Plain data, for frontiers."""
        out: dict[str, Any] = {
            "epsilon_refused": str(self.noise.refused),
            "older": [self.older, self.older_draws],
            "windows": [
                [*window, one.refused, one.draws, int(one.contradicted), one.misplaced]
                for window, one in sorted(self.windows.items())
            ],
        }
        if self.noise.misplaced:
            out |= {"epsilon_misplaced": str(self.noise.misplaced), "cells": self.noise.cells}
        if self.noise.anywhere:
            out["anywhere"] = 1
        if self.former:
            out["former"] = [one.fields() for one in self.former]
        return out if self.since == NO_TIME else {**out, "since": self.since}

    def every(self) -> dict[Span, ShownEvidence]:
        """The evidence of all windows, those of former noises too."""
        return {window: shown for one in (*self.former, self) for window, shown in one.windows.items()}

    def stored(self) -> dict[str, Any]:
        """Plain data for snapshots, in which the size of a number does not depend on its value."""
        out = self.fields()
        out["older"] = [digits(self.older), self.older_draws]
        for shown in out["windows"]:
            shown[2], shown[5] = digits(shown[2]), None if shown[5] is None else digits(shown[5])
        return out | ({"former": [one.stored() for one in self.former]} if self.former else {})

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Reported:
        """What `fields` or `stored` wrote.

        Raises:
            ValueError, TypeError, KeyError: it is not that.
        """
        windows: dict[Span, ShownEvidence] = {}
        for start, end, refused, draws, contradicted, misplaced in said["windows"]:
            windows[integer(start), integer(end)] = ShownEvidence(
                _number(refused), integer(draws), bool(contradicted), None if misplaced is None else _number(misplaced)
            )
        older, older_draws = said["older"]
        given = EvidenceNoise(
            read_rational(said["epsilon_refused"]),
            read_rational(said.get("epsilon_misplaced", "0")),
            integer(said.get("cells", 0)),
            bool(said.get("anywhere", 0)),
        )
        former = tuple(cls.read({**one, "former": ()}) for one in said.get("former", ()))  # they have none themselves
        return cls(given, integer(said.get("since", NO_TIME)), _number(older), integer(older_draws), windows, former)


def noise_of(frontiers: Iterable[tuple[str, Reported | None]]) -> dict[str, publications.FrontierNoise]:
    """The noise of the numbers that frontiers carry, by the name of the sketch; where it changed, its largest epsilons.

    Args:
        frontiers: names of sketches, and the evidence of a frontier.
    """
    found: dict[str, publications.FrontierNoise] = {}
    for name, newest in frontiers:
        for said in () if newest is None else (newest, *newest.former):
            known = found.get(name, publications.FrontierNoise())
            refused, misplaced = max(known.refused, said.noise.refused), max(known.misplaced, said.noise.misplaced)
            found[name] = publications.FrontierNoise(refused, misplaced)
    return found


class Evidence:
    """The evidence about the windows of one sketch in one partition.

    Args:
        given: the noise of its numbers.
    """

    def __init__(self, given: EvidenceNoise) -> None:
        self.noise = given
        self.windows: dict[Span, WindowEvidence] = {}
        self.since = NO_TIME
        self._frontiers = 0
        self._older = laplace(given.refused) if given.refused else 0
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
        return {window for one in (self, *self.former) for window in one.windows}

    @property
    def young_ms(self) -> int | None:
        """Length of the shortest sealed window whose number is still published anew; None: there is none."""
        windows = (window for one in (self, *self.former) for window in one.windows.values())
        return min((one.end - one.start for one in windows if 0 <= one.age < KEPT), default=None)

    def _of(self, start: int, end: int) -> Evidence:
        """The evidence that has a window, of a former noise perhaps; this one if none has."""
        return next((one for one in self.former if (start, end) in one.windows), self)

    def open(self, start: int, end: int) -> WindowEvidence:
        """The evidence about a window that has a sketch in this partition, from which items can be missing."""
        noise, found = self._of(start, end).noise, self.window(start, end)
        if not found.opened:
            found.opened = True
            if noise.cells:
                found.cells = responses(noise.cells, noise.misplaced)
            elif noise.misplaced:
                found.misplaced = laplace(noise.misplaced)
        return found

    def window(self, start: int, end: int) -> WindowEvidence:
        """The evidence about a window, created with its noise if necessary."""
        found = self._of(start, end).windows.get((start, end))
        if found is None:
            found = self.windows[start, end] = WindowEvidence(start, end)
            if self.noise.refused:
                found.refused = laplace(self.noise.refused)
        return found

    # ----------------------------------------------------------------------------------------------- what happened

    def refuse(self, times: Times, windows: Iterable[Span], through: int) -> None:
        """Count refused records for the windows that hold their times.

        Args:
            times: (n,) of the records.
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
            holder = self._of(start, end)
            if not n or not holder.noise.refused:
                continue
            if (start, end) not in holder.windows and end <= through:
                self._older += n
            else:
                self.window(start, end).refused += n
        self._bound_ahead(through)

    def _bound_ahead(self, through: int) -> None:
        """Forget the farthest windows that are not open and only refused records: one wrong clock makes any number."""
        if len(self.windows) > MOST_AHEAD:
            ahead = sorted(name for name, one in self.windows.items() if name[1] > through and not one.opened)
            for name in ahead[MOST_AHEAD:]:
                del self.windows[name]

    def misplace(self, start: int, end: int, items: Items, partition: int, partitions: int) -> None:
        """Count events whose items do not belong to the partition.

        Of unit "item", an item is noted in one partition beside its own at most, which a hash of it names, and in one
        cell there: the cell is drawn anew, and is 1 with probability 1 - 1 / (1 + e^epsilon) instead of
        1 / (1 + e^epsilon), however many records the item has.

        Args:
            start: start of the window, ms.
            end: end of the window, ms.
            items: misplaced items, one for each event.
            partition: this one.
            partitions: number of partitions of the input.
        """
        given = self._of(start, end).noise
        if not given.misplaced:
            return
        found = self.open(start, end)
        if not given.cells:
            found.misplaced += len(items)
            return
        hashed = spread(items)
        noted = hashed[hashed % np.uint64(partitions) == np.uint64(partition)] // np.uint64(partitions)
        places = np.unique(noted % np.uint64(given.cells)).astype(np.intp)
        if places.size and found.cells is not None:
            found.cells[places] = 1 - responses(places.size, given.misplaced)

    def contradict(self, stamps: Times, ranges: Iterable[Span], lateness_ms: int) -> bool:
        """Mark the windows that idleness closed and in which records were written that came afterwards.

        Args:
            stamps: (n,) timestamps of the records themselves.
            ranges: (from, to] watermarks that no record voted for.
            lateness_ms: how long windows stay open behind the watermark.

        Returns:
            Whether a window was marked.
        """
        marked = sum(one.contradict(stamps, ranges, lateness_ms) for one in self.former) > 0
        for one in self.windows.values():
            if one.age < 0 or one.contradicted:
                continue
            closed = one.end + lateness_ms
            if any(low < closed <= high for low, high in ranges) and bool(
                ((stamps >= one.start) & (stamps < one.end)).any()
            ):
                one.contradicted = marked = True
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
            for window in passed(plan, before, through):
                self.window(*window)
        closed = [one for one in self.windows.values() if one.age < 0 and one.end <= through]
        for one in closed:
            one.age = 0
        shown = [one for one in closed if one.opened and self.noise.misplaced]
        for one, drawn in zip(shown, draws(len(shown), self.noise.misplaced), strict=True):
            if one.cells is not None:
                one.misplaced = int(one.cells.sum())
            one.misplaced += drawn
            one.published, one.cells = True, None

    def report(self, most: int = KEPT) -> Reported:
        """The evidence to publish now; each publication of a changed number brings noise of its own.

        Args:
            most: sealed windows to keep whose numbers are no more than noise.
        """
        self._frontiers += 1
        if self.noise.refused and self._frontiers % OLDER_EVERY == 1:
            self._older_shown += self._older
            self._older_draws += 1
            self._older = laplace(self.noise.refused)
        sealed = sorted((one for one in self.windows.values() if one.age >= 0), key=lambda one: one.end)
        again = [one for one in sealed if self.noise.refused and due(one.age)]
        for one, drawn in zip(again, draws(len(again), self.noise.refused), strict=True):
            one.shown += one.refused
            one.draws += 1
            one.refused = drawn
        for one in sealed:
            one.age += 1
        old, last = sealed[: max(0, len(sealed) - most)], sealed[max(0, len(sealed) - most) :]
        kept = [one for one in old if self._is_news(one)]
        for one in kept[: -(MOST_SHOWN - KEPT)]:
            self.since = max(self.since, one.end)
        kept = kept[-(MOST_SHOWN - KEPT) :]
        names = {(one.start, one.end) for one in (*kept, *last)}
        self.windows = {name: one for name, one in self.windows.items() if one.age < 0 or name in names}
        for former in self.former:
            most = max(0, most - len(last))
            former.report(most)
            last = list(former.windows.values())
        return self.reported()

    def reported(self) -> Reported:
        """What the last `report` gave."""
        windows = {
            name: ShownEvidence(one.shown, one.draws, one.contradicted, one.misplaced if one.published else None)
            for name, one in self.windows.items()
            if one.age > 0
        }
        former = tuple(one.reported() for one in self.former)
        return Reported(self.noise, self.since, self._older_shown, self._older_draws, windows, former)

    def _is_news(self, one: WindowEvidence) -> bool:
        """Whether published numbers of an old window are more than three standard deviations of their noise."""
        if one.contradicted:
            return True
        refused = float(self.noise.refused)
        if refused and one.shown * refused > 3.0 * (2.0 * one.draws) ** 0.5 + refused:
            return True
        if not one.published:
            return False
        mean, variance = misplaced_law(self.noise, 1)
        return bool(one.misplaced > mean + 3.0 * variance**0.5 + 1.0)

    # ------------------------------------------------------------------------------------------------- snapshots

    def fields(self) -> dict[str, Any]:
        """Plain data for a snapshot; its size does not depend on values."""
        return {
            "since": self.since,
            "frontiers": self._frontiers,
            "older": [digits(self._older), digits(self._older_shown), self._older_draws],
            "noise": self._laws,
            **({"former": [one.fields() for one in self.former]} if self.former else {}),
            "windows": [
                [
                    one.start,
                    one.end,
                    digits(one.refused),
                    digits(one.shown),
                    one.draws,
                    one.age,
                    [int(flag) for flag in (one.contradicted, one.opened, one.published)],
                    digits(one.misplaced),
                    None if one.cells is None else np.packbits(one.cells.astype(np.uint8)).tobytes().hex(),
                ]
                for one in self.windows.values()
            ],
        }

    @property
    def _laws(self) -> list[str | int]:
        """The noise, for a snapshot; older ones lack the last number."""
        given = self.noise
        return [str(given.refused), str(given.misplaced), given.cells, int(given.anywhere)]

    @classmethod
    def _former(cls, said: Mapping[str, Any]) -> Evidence:
        """The evidence of a former noise."""
        refused, misplaced, cells, anywhere = said["noise"]
        found = cls(EvidenceNoise(read_rational(refused), read_rational(misplaced), integer(cells), bool(anywhere)))
        found.restore(said, NO_TIME)
        return found

    def restore(self, said: Mapping[str, Any] | None, known: int) -> None:
        """Restore the evidence of a snapshot; after a change of its noise, the known windows keep theirs.

        Args:
            said: from `fields`; None: nothing was kept.
            known: windows that end by then (ms) were sealed, or open, when nothing was kept.
        """
        if said is None:
            self.since = known
            return
        before, now = list(said["noise"]), self._laws
        before += now[len(before) :]
        former = [{**said, "noise": before, "former": []}] if before != now else []
        kept = [one for one in (*former, *said.get("former", ())) if one["noise"][0] != "0"]
        self.former = [self._former(one) for one in kept[:MOST_FORMER]]
        if former:
            self.since = known
            return
        self.since, self._frontiers = integer(said["since"]), integer(said["frontiers"])
        pending, shown, self._older_draws = said["older"]
        self._older, self._older_shown = signed(pending), signed(shown)
        for start, end, refused, shown, draws, age, flags, misplaced, cells in said["windows"]:
            one = WindowEvidence(start, end, signed(refused), signed(shown), draws, age)
            one.contradicted, one.opened, one.published = (bool(flag) for flag in flags)
            one.misplaced = signed(misplaced)
            if cells is not None:
                bits = np.unpackbits(np.frombuffer(bytes.fromhex(cells), np.uint8))[: self.noise.cells]
                one.cells = bits.astype(np.int16)
            self.windows[start, end] = one


def misplaced_law(given: EvidenceNoise, parts: int) -> tuple[float, float]:
    """Mean and variance of the published numbers of some partitions if nothing is misplaced.

    Args:
        given: noise of the numbers.
        parts: how many partitions.
    """
    epsilon = float(given.misplaced)
    laplace_variance = 0.5 / np.sinh(epsilon / 2.0) ** 2
    if not given.cells:
        return 0.0, 2.0 * laplace_variance * parts
    set_ = 1.0 / (1.0 + np.exp(epsilon))
    return given.cells * set_ * parts, (given.cells * set_ * (1.0 - set_) + laplace_variance) * parts


def passed(plan: SketchPlan, before: int, through: int) -> list[Span]:
    """The last `KEPT` windows of a plan that end after `before` and by `through`, ascending."""
    found: list[Span] = []
    step = plan.calendar.window(through - 1)[0]
    for _ in range(KEPT * plan.stride):
        end = plan.calendar.end(step)
        if end <= before or len(found) == KEPT:
            break
        if end <= through:
            found += [window for window in plan.holding(step) if window[1] == end]
        step = plan.calendar.before(step)
    return found[::-1]


def due(age: int) -> bool:
    """Whether the number of a window is published anew this many frontiers after its seal: 0 to 4, 6, 8, 12, 16, ..."""
    return age < 5 or age & (age - 1) == 0 or (age % 3 == 0 and (age // 3) & (age // 3 - 1) == 0)


def _number(value: object) -> int:
    """A number as `fields` or `stored` writes it."""
    return signed(value) if isinstance(value, str) else integer(value)
