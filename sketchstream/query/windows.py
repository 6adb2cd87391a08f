"""The windows that a configuration's workers have published, and the answer for each.

In: a configuration, a sketch's name, a range of time. Out: windows, answers, published objects made of them. Touches:
the sealed topic or folder, reading, through what it is given.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final, Protocol

from sketchstream import kinds
from sketchstream.config.context import context
from sketchstream.errors import ConfigError, MergeError, StoreError
from sketchstream.privacy.deployment import Deployment, most_of_event
from sketchstream.privacy.guarantee import Beside
from sketchstream.published import Instalment, Release, SealedState, read, stack
from sketchstream.query import profiles
from sketchstream.query.answers import Answer
from sketchstream.query.closed import closed_windows
from sketchstream.query.late import late_records
from sketchstream.sketch import merge
from sketchstream.stream.interfaces import SealedEntry
from sketchstream.stream.windows import iso

if TYPE_CHECKING:
    from sketchstream.config.loader import Config
    from sketchstream.kinds.profile.estimate.result import Profile
    from sketchstream.privacy.deployment import Record
    from sketchstream.published import Published
    from sketchstream.query.estimates import EstimateAnswer
    from sketchstream.query.late import LateRecords
    from sketchstream.query.sealed import SealedReader, SealedWindow, Span
    from sketchstream.stream.interfaces import SealedSource
    from sketchstream.stream.plans import SketchPlan


SHOWN: Final = 5
"""Open windows that are named."""


AHEAD: Final = 100
"""Most windows after the one that is asked for, of which the ledger's records are read at once."""


class Surroundings(Protocol):
    """What is known of a deployment beside what it publishes."""

    def open_windows(self) -> Mapping[str, Sequence[Span]]:
        """Windows that workers hold open, as of their last snapshots, by sketch; empty for who may not know."""

    def retention_ms(self) -> float | None:
        """How long the input topic keeps records, infinity for ever; None where nobody says."""


class Unknown:
    """Surroundings of which nothing is known. See `Surroundings`."""

    def open_windows(self) -> Mapping[str, Sequence[Span]]:
        """None."""
        return {}

    def retention_ms(self) -> float | None:
        """Not known."""
        return None


@dataclass
class _Stretch:
    """Records of the deployment's ledger, and the stretch of time of which all are there.

    Args:
        start: start of the stretch, ms since 1970.
        end: end of the stretch, ms since 1970.
        records: in it.
        ahead: windows after the one that is asked for next, of which records are read with it: none at first, as only
            one may be wanted; then more and more.
    """

    start: float = math.inf
    end: float = -math.inf
    records: Sequence[Record] = ()
    ahead: int = 0


@dataclass(frozen=True)
class PublishedWindows:
    """What was published under one configuration.

    Args:
        config: the configuration.
        reader: of its sealed sketches, under its rule of quality.
        source: the same sealed sketches as they lie, for the ledger.
        around: what is known beside them.
        overlapping: records of the ledger whose windows overlap one; None: found by reading a stretch of time.
    """

    config: Config
    reader: SealedReader
    source: SealedSource
    around: Surroundings = field(default_factory=Unknown)
    overlapping: Callable[[Span], Sequence[Record]] | None = None
    _stretch: _Stretch = field(default_factory=_Stretch, repr=False, compare=False)

    def anew(self) -> PublishedWindows:
        """The same, with nothing remembered of the ledger and the surroundings: for who asks for weeks."""
        return replace(self, _stretch=_Stretch())

    def plan(self, name: str | None) -> SketchPlan:
        """The sketch of this name; without a name, the only one."""
        if name is not None:
            return self.config.plan(name)
        if len(self.config.sketches) > 1:
            names = ", ".join(plan.name for plan in self.config.sketches)
            msg = f"{self.config.path} has several sketches: choose one of them with --sketch ({names})"
            raise ConfigError(msg)
        return self.config.sketches[0]

    def every(self, name: str, since: int | None, until: int | None) -> Iterator[SealedWindow]:
        """Windows in a range of time, ascending, each as soon as it is read."""
        return self.reader.windows(name, since, until)

    def one(self, name: str, since: int | None, until: int | None) -> SealedWindow:
        """The only window in a range of time."""
        found = list(islice(self.every(name, since, until), 2))
        if not found:
            where = "" if since is None and until is None else " in that range"
            still = self.open(name)
            msg = "; ".join([f"no window of sketch {name} is published{where}", *([] if still is None else [still])])
            raise StoreError(msg)
        if len(found) > 1:
            starts = " and ".join(iso(window.window[0]) for window in found)
            msg = (
                f"the range holds more than one window of sketch {name} (the first begin at {starts}): narrow it, or "
                "say --all or --merge"
            )
            raise ConfigError(msg)
        return found[0]

    def open(self, name: str) -> str | None:
        """A sentence about the windows that workers hold open, as of their last snapshots; None without any."""
        bounds = self.around.open_windows().get(name, [])
        if not bounds:
            return None
        shown = ", ".join(f"{iso(start)} to {iso(end)}" for start, end in bounds[:SHOWN])
        more = f" and {len(bounds) - SHOWN} more" if len(bounds) > SHOWN else ""
        return f"windows still open: {shown}{more}; each is published when it is sealed"

    def late(self, name: str) -> LateRecords | None:
        """Records that came too late for their windows so far, with noise; None where no such number is kept."""
        return late_records(name, self.source.frontiers(name), self.plan(name).epsilon_records)

    @cached_property
    def retention_ms(self) -> float | None:
        """How long the input topic keeps records, for the guarantee; None where the broker does not say."""
        return self.around.retention_ms()

    def result(self, window: SealedWindow) -> Published:
        """A window as one published object: partitions of a keyed input stacked, others merged."""
        return window.result(partitioned=self.config.input.partitioned_by != "none")

    def before(self, window: SealedWindow) -> SealedWindow | None:
        """The window that ends where this one begins, for answers that reach back into it.

        None where it is not published whole, or is of another spec.
        """
        start, end = window.window
        for one in self.every(window.sketch, start - 2 * (end - start), start):
            if one.window[1] == start:
                same = one.parts[0].spec.fingerprint == window.parts[0].spec.fingerprint
                return one if one.whole and same else None
        return None

    def answer(
        self, window: SealedWindow, reconstruct: Callable[[Published], Profile] = profiles.reconstruct
    ) -> Answer:
        """The answer for a window, the same for everybody who asks: its numbers, what is known of it, its guarantee.

        Items that are known not to have occurred are counted as such. The guarantee knows the deployment: other
        sketches, windows, partitions.

        Args:
            window: the window.
            reconstruct: makes numbers of what was published.

        Raises:
            EstimateError, MergeError: this window has no answer; others may have theirs.
        """
        keyed = self.config.input.partitioned_by != "none"
        result = reconstruct(self.result(window))
        if window.whole and keyed:
            result = profiles.with_known_zeros(result, window.known_zeros)
        result.guarantee = self.guarantee(window)
        return Answer(result, window.fields(), intervals=not window.repartitioned)

    def estimates(
        self, window: SealedWindow, method: str = "auto", names: Mapping[str, Any] | None = None
    ) -> EstimateAnswer:
        """The estimates for a window, the same for everybody who asks: as `answer`, for kinds that give them.

        Args:
            window: the window.
            method: of the kind.
            names: further options; the lists of the configured domain need not be among them.

        Raises:
            EstimateError, MergeError: this window has no answer; others may have theirs.
        """
        from sketchstream.query.estimates import EstimateAnswer, estimate, known_names

        published = self.result(window)
        known = known_names(self.config.plan(window.sketch), published)
        facts = window.fields()
        former = self.before(window) if published.kind.continues else None
        if former is not None:
            known["before"] = self.result(former)
            facts["joined"] = iso(former.window[0])
        answers = estimate(published, method, {**known, **(names or {})})
        return EstimateAnswer(answers, facts, self.guarantee(window))

    def closed(self, name: str, since: int | None = None, until: int | None = None) -> list[EstimateAnswer]:
        """Estimates at positions that have closed in all partitions, for windows sealed or not, ascending.

        Args:
            name: of the sketch.
            since: windows that begin then or later, ms since 1970; None: from the first.
            until: windows that end by then; None: to the last.

        Raises:
            StoreError: no position of it has closed in all partitions.
        """
        from sketchstream.query.estimates import EstimateAnswer

        found = []
        for one in closed_windows(self.source, name, since, until):
            if one.positions:
                first = one.parts[0][0]
                facts = {
                    "sketch": name,
                    "window_start": iso(one.window[0]),
                    "window_end": iso(one.window[1]),
                    "closed": one.positions,
                    "complete": one.positions == first.spec.positions_of(one.window),
                    "revision": one.revision,
                }
                said = kinds.of(first.spec).guarantee(first.spec, first.ledger).to_dict()
                found.append(EstimateAnswer(one.estimate(), facts, said))
        if not found:
            msg = f"no position of sketch {name} has been published before its window was sealed"
            raise StoreError(msg)
        return found

    def given_out(self, window: SealedWindow) -> Answer | EstimateAnswer:
        """What the results topic and notebooks give out of a window: its profile, or its estimates."""
        return self.answer(window) if window.parts[0].kind.answer == "profile" else self.estimates(window)

    def guarantee(self, window: SealedWindow) -> dict[str, Any]:
        """What is guaranteed to whom a window speaks of, as plain data."""
        worst = max((part.ledger for part in window.parts), key=window.parts[0].kind.order)
        plan = self.config.plan(window.sketch)
        around = context(self.config, plan, partitions=window.of, retention_ms=self.retention_ms, counts=window.counts)
        published = self._beside(window)
        known = {one.name for one in published}
        planned = (one for one in around.beside if one.name not in known)
        around = replace(around, beside=(*published, *planned))
        found: dict[str, Any] = window.parts[0].kind.guarantee(window.parts[0].spec, worst, around).to_dict()
        return found

    def _records(self, window: SealedWindow) -> Sequence[Record]:
        """Of the deployment's ledger: all that can have a part in the time of a window, and more.

        Only that stretch of time is read, and when more windows are asked for, that of some windows more.
        """
        if self.overlapping is not None:
            return self.overlapping(window.window)
        known, (start, end) = self._stretch, window.window
        if known.start <= start and end <= known.end:
            return known.records
        lengths = {plan.name: 2 * plan.shortest_ms for plan in self.config.sketches}
        if {one.sketch for one in self.source.frontiers()} <= lengths.keys():
            known.start, known.end = start, end + known.ahead * (end - start)
            known.ahead = min(max(8, 4 * known.ahead), AHEAD)
            longest = max(lengths.values())
            found = self.deployment(start - longest, round(known.end) + longest)
        else:  # a sketch that left the configuration may have had windows of any length
            known.start, known.end = -math.inf, math.inf
            found = self.deployment()
        known.records = found.records
        return known.records

    def _beside(self, window: SealedWindow) -> tuple[Beside, ...]:
        """What else was published of the time of a window: other sketches, in the configuration or not, and revisions.

        Each is what its most expensive record is, to an event those of overlapping windows together. States that were
        published under one place add up, each a sketch of its own.
        """
        overlaps = {plan.name: plan.steps for plan in self.config.sketches}

        groups: dict[tuple[str, int, int], list[Record]] = {}
        places: Counter[object] = Counter()
        for record in self._records(window):
            number = places[record.place]
            places[record.place] += 1
            own = (record.name, record.revision, number) == (window.sketch, window.revision, 0)
            start, end = window.window if record.window is None else record.window
            if not own and start < window.window[1] and window.window[0] < end:
                groups.setdefault((record.name, record.revision, number), []).append(record)
        return tuple(
            Beside(
                name,
                most_of_event(records),
                max(one.item() for one in records),
                min((one.window[1] - one.window[0] for one in records if one.window is not None), default=None),
                overlap=overlaps.get(name, 1),
            )
            for (name, _, _), records in sorted(groups.items())
        )

    def merged(self, windows: Sequence[SealedWindow]) -> tuple[Published, float | None]:
        """All these windows as one published object, and how far its error can grow against one window's.

        The factor is None for kinds that give estimates: each of those has its own standard error.

        Raises:
            MergeError: histograms were published, or nothing.
        """
        places: dict[int, list[SealedState]] = {}
        for before, after in pairwise(sorted(window.window for window in windows)):
            if after[0] < before[1]:
                msg = (
                    f"the windows that begin at {iso(before[0])} and {iso(after[0])} overlap: --merge would count "
                    "events more than once; choose windows that do not overlap"
                )
                raise MergeError(msg)
        for window in windows:
            for number, part in enumerate(window.answering):
                if not isinstance(part, SealedState):
                    msg = (
                        "--merge adds up states; these are histograms: give a longer window a sketch of its own, or "
                        "publish = 'state'"
                    )
                    raise MergeError(msg)
                at = part.origin.partition if part.origin.partition is not None else number
                places.setdefault(at if self.config.input.partitioned_by != "none" else 0, []).append(part)
        if not places:
            msg = "no window is published in that range"
            raise StoreError(msg)
        sums = [merge(parts) for _, parts in sorted(places.items())]
        if sums[0].kind.answer != "profile":
            return (sums[0] if len(sums) == 1 else stack(sums)), None
        factor = max(
            profiles.gain(total) / profiles.gain(parts[0])
            for total, (_, parts) in zip(sums, sorted(places.items()), strict=True)
        )
        return (sums[0] if len(sums) == 1 else stack(sums)), factor

    def deployment(self, since: int | None = None, until: int | None = None) -> Deployment:
        """Everything that was published, of every revision, for the ledger."""
        limit = self.config.privacy.max_epsilon
        entries = (one for one in self.source.read(None, since, until) if isinstance(one, SealedEntry))
        found = (read(entry.body) for entry in entries)
        parts: list[Release | SealedState | Instalment] = [
            part for part in found if isinstance(part, (Release, SealedState))
        ]
        parts += self._closed(parts, since, until)
        keyed = self.config.checked or not self.config.from_kafka
        most = None if limit is None else Fraction(limit)
        return Deployment.of(parts, keyed=keyed, limit=most, budget=self.config.budget)

    def _closed(
        self, parts: Sequence[Release | SealedState | Instalment], since: int | None, until: int | None
    ) -> list[Instalment]:
        """One instalment for each window and partition of which positions were published, but no seal yet."""

        def place(one: Release | SealedState | Instalment) -> tuple[object, ...]:
            return one.origin.name, one.origin.revision, one.origin.window, one.origin.partition

        sealed = {place(one) for one in parts}
        found: dict[tuple[object, ...], Instalment] = {}
        for plan in self.config.sketches:
            if kinds.of(plan.spec).closes(plan.spec) is not None:
                for entry in self.source.closed(plan.name, since, until):
                    one = Instalment.from_bytes(entry.body)
                    if place(one) not in sealed:
                        found[place(one)] = one
        return list(found.values())


def to_ms(text: str | None, option: str) -> int | None:
    """Milliseconds since 1970 of an RFC 3339 time; None for None."""
    if text is None:
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        when = None
    if when is None or when.tzinfo is None:
        msg = f"{option} must be a time with its offset, such as 2013-01-01T00:00Z, found {text!r:.40}"
        raise ConfigError(msg)
    return round(when.timestamp() * 1000)
