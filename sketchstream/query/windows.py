"""Published windows of a configuration's workers, and the answer for each.

In: a configuration, a sketch's name, a range of time. Out: windows, answers, published objects. Touches:
the sealed topic or folder, reading, through its arguments.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final

from sketchstream import kinds
from sketchstream.config.context import context
from sketchstream.errors import ConfigError, MergeError, StoreError
from sketchstream.instalment import Instalment
from sketchstream.kinds import closing_kind, continuing_kind
from sketchstream.kinds.capabilities import Reconstructing
from sketchstream.privacy.deployments.deployment import Deployment, Record, most_of_event, most_of_item, most_of_record
from sketchstream.privacy.deployments.surroundings import OtherSketch
from sketchstream.privacy.ledgers.sketch_history import worst_of
from sketchstream.published import Release, SealedState, read_published, stack
from sketchstream.query.answers import ProfileAnswer
from sketchstream.query.closed import closed_windows
from sketchstream.query.estimates import EstimateAnswer, estimate, known_names
from sketchstream.query.late import late_records
from sketchstream.sketch import merge
from sketchstream.stream.interfaces import SealedEntry
from sketchstream.stream.published.evidence import noise_of_frontiers
from sketchstream.stream.windows.calendar import iso
from sketchstream.stream.windows.plans import plan_of_windows
from sketchstream.topics import HISTORY

if TYPE_CHECKING:
    from sketchstream.config.loader import Config
    from sketchstream.kinds.profile_answers import Profile
    from sketchstream.published import Published
    from sketchstream.query.late import LateRecords
    from sketchstream.query.sealed import SealedReader, SealedWindow, Span
    from sketchstream.stream.interfaces import SealedSource
    from sketchstream.stream.windows.plans import SketchPlan


MAX_NAMED_WINDOWS: Final = 5
"""Most open windows that are named."""


AHEAD: Final = 100
"""Most windows after the one that is asked for, of which the ledger's records are read at once."""


class Surroundings:
    """Facts about a deployment beside its publications; as they are here, nothing is known."""

    def open_windows(self) -> Mapping[str, Sequence[Span]]:
        """Windows that workers hold open, as of their last snapshots, by sketch; empty without access to snapshots."""
        return {}

    def retention_ms(self) -> float | None:
        """Retention of the input topic, infinite if it never deletes records; None if unknown."""
        return None


ALONE: Final = "this is the loss to this sketch alone: what else is published about the same events adds to it"
"""What is said in place of the losses to other sketches."""


@dataclass
class _ReadRange:
    """A range of time, and all records of the deployment's ledger in it.

    Args:
        start: start of the range, ms since 1970.
        end: end of the range, ms since 1970.
        records: records in the range.
        ahead: number of later windows whose records are read together with the next one: 0 at first, as only
            one window may be wanted; then increasing.
    """

    start: float = math.inf
    end: float = -math.inf
    records: Sequence[Record] = ()
    ahead: int = 0


@dataclass(frozen=True)
class PublishedWindows:
    """Windows that were published under one configuration.

    Args:
        config: the configuration.
        reader: reader of its sealed sketches, with its quality rule.
        source: source of the same sealed sketches, for the ledger.
        surroundings: facts about the deployment.
        overlapping: finds ledger records whose windows overlap one; None: find them by reading a range of time.
    """

    config: Config
    reader: SealedReader
    source: SealedSource
    surroundings: Surroundings = field(default_factory=Surroundings)
    overlapping: Callable[[Span], Sequence[Record]] | None = None
    _read_range: _ReadRange = field(default_factory=_ReadRange, repr=False, compare=False)
    _former: dict[str, SketchPlan] = field(default_factory=dict, repr=False, compare=False)

    def without_caches(self) -> PublishedWindows:
        """A copy without cached ledger and surroundings, for long-running callers."""
        return replace(self, _read_range=_ReadRange())

    def plan(self, name: str | None) -> SketchPlan:
        """Find the sketch of this name, configured or published; without a name, the only one that is configured."""
        if name is not None:
            return self.config.find(name) or self.former(name) or self.config.plan(name)
        if len(self.config.sketches) > 1:
            names = ", ".join(plan.name for plan in self.config.sketches)
            raise ConfigError(f"{self.config.path} has several sketches: choose one of them with --sketch ({names})")
        return self.config.sketches[0]

    def former(self, name: str, since: int | None = None) -> SketchPlan | None:
        """The plan of a sketch that is not configured, derived from two of its windows; None: nothing is published.

        Args:
            name: name of the sketch.
            since: the windows begin then or later, ms since 1970; None: the first ones.
        """
        if name not in self._former and any(frontier.sketch == name for frontier in self.source.frontiers()):
            first_two = list(islice(self.every(name, since, None), 2))
            if first_two:
                spans = [window.window for window in first_two]
                self._former[name] = plan_of_windows(name, first_two[-1].parts[0].spec, spans)
        return self._former.get(name)

    def plan_of(self, window: SealedWindow) -> SketchPlan:
        """The sketch of a window; if it is not configured, publications about that time show it."""
        name = window.sketch
        plan = self.config.find(name)
        if plan is not None:
            return plan
        own = {record.window for record in self._records(window) if record.name == name and record.window is not None}
        plan = plan_of_windows(name, window.parts[0].spec, sorted({window.window, *own}))
        noise = noise_of_frontiers((name, frontier.evidence) for frontier in self.source.frontiers(name)).get(name)
        if noise is None:
            return plan
        return replace(plan, epsilon_refused=noise.refused, epsilon_misplaced=noise.misplaced)

    def every(self, name: str, since: int | None, until: int | None) -> Iterator[SealedWindow]:
        """Yield windows in a range of time, ascending, each as soon as it is read."""
        return self.reader.windows(name, since, until, early=self._has_early(name))

    def _has_early(self, name: str) -> bool:
        """Whether a sketch publishes windows before they are sealed."""
        return any(plan.name == name and plan.early is not None for plan in self.config.sketches)

    def only_window(self, name: str, since: int | None, until: int | None) -> SealedWindow:
        """The only window in a range of time."""
        matching = list(islice(self.every(name, since, until), 2))
        if not matching:
            still = self.open(name)
            raise StoreError("; ".join([none_published(name, since, until), *([] if still is None else [still])]))
        if len(matching) > 1:
            starts = " and ".join(iso(window.window[0]) for window in matching)
            raise ConfigError(
                f"the range holds more than one window of sketch {name} (the first begin at {starts}): narrow it, or "
                "say --all or --merge"
            )
        return matching[0]

    def open(self, name: str) -> str | None:
        """Sentence about the windows that workers hold open, as of their last snapshots; None if there are none."""
        bounds = self.surroundings.open_windows().get(name, [])
        if not bounds:
            return None
        listed = ", ".join(f"{iso(start)} to {iso(end)}" for start, end in bounds[:MAX_NAMED_WINDOWS])
        more = f" and {len(bounds) - MAX_NAMED_WINDOWS} more" if len(bounds) > MAX_NAMED_WINDOWS else ""
        return f"windows still open: {listed}{more}; each is published when it is sealed"

    def late(self, name: str) -> LateRecords | None:
        """Noisy number of records so far that came too late for their windows; None if it is not kept."""
        return late_records(name, self.source.frontiers(name), self.plan(name).epsilon_records)

    @cached_property
    def retention_ms(self) -> float | None:
        """Retention of the input topic, for the guarantee; None if the broker does not report it."""
        return self.surroundings.retention_ms()

    def result(self, window: SealedWindow) -> Published:
        """Combine a window into one published object: partitions of a keyed input stacked, others merged."""
        return window.result(partitioned=self.config.input.partitioned_by != "none")

    def before(self, window: SealedWindow) -> SealedWindow | None:
        """Find the window that ends at the start of this one, for answers that use both; see `SealedReader.before`."""
        return self.reader.before(window)

    def answer(
        self, window: SealedWindow, reconstruct: Callable[[Published], Profile] = lambda published: published.profile()
    ) -> ProfileAnswer:
        """Compute the answer for a window, the same for all callers: its numbers, facts and guarantee.

        Items that are known not to have occurred are counted as such. The guarantee accounts for the deployment: other
        sketches, windows, partitions.

        Args:
            window: the window.
            reconstruct: computes the profile of a published object.

        Raises:
            EstimateError, MergeError: this window has no answer; others may have one.
        """
        keyed = self.config.input.partitioned_by != "none"
        result = reconstruct(self.result(window))
        if window.whole and keyed:
            result = result.with_zeros(window.known_zeros)
        result.guarantee = self.guarantee(window)
        result.names = self.config.names
        facts = {**window.fields(), **self.config.names.facts()}
        return ProfileAnswer(result, facts, intervals=not window.repartitioned)

    def estimates(
        self, window: SealedWindow, method: str = "auto", names: Mapping[str, Any] | None = None
    ) -> EstimateAnswer:
        """Compute the estimates for a window, the same for all callers; see `answer`, for kinds with estimates.

        Args:
            window: the window.
            method: method of the kind.
            names: further options; lists of the configured domain are added if absent.

        Raises:
            EstimateError, MergeError: this window has no answer; others may have one.
        """
        published = self.result(window)
        known = known_names(self.config.find(window.sketch), published)
        facts = {**window.fields(), **self.config.names.facts()}
        former = self.before(window) if continuing_kind(published.spec) else None
        if former is not None:
            known["before"] = self.result(former)
            facts["joined"] = iso(former.window[0])
        answers = estimate(published, method, {**known, **(names or {})})
        return EstimateAnswer(answers, facts, self.guarantee(window))

    def closed(self, name: str, since: int | None = None, until: int | None = None) -> list[EstimateAnswer]:
        """Compute estimates at positions that have closed in all partitions, for windows sealed or not, ascending.

        The first answers of a window are completed with the window before where that is sealed.

        Args:
            name: name of the sketch.
            since: start of the range of windows, ms since 1970; None: from the first.
            until: end of the range of windows, ms since 1970; None: to the last.

        Raises:
            StoreError: no position of the sketch has closed in all partitions.
        """
        out = []
        for closed in closed_windows(self.source, name, since, until, len(self.config.per_topic())):
            if closed.positions:
                first = closed.parts[0][0]
                facts = {
                    "sketch": name,
                    "window_start": iso(closed.window[0]),
                    "window_end": iso(closed.window[1]),
                    "closed": closed.positions,
                    "complete": closed.positions == first.spec.positions_of(closed.window),
                    "revision": closed.revision,
                }
                former = self.reader.former(name, closed.window, first.spec.fingerprint)
                if former is not None:
                    facts["joined"] = iso(former.window[0])
                answers = closed.estimate(None if former is None else self.result(former))
                guarantee = kinds.kind_of(first.spec).guarantee(first.spec, first.ledger).to_dict()
                out.append(EstimateAnswer(answers, facts, guarantee))
        if not out:
            raise StoreError(f"no position of sketch {name} has been published before its window was sealed")
        return out

    def given_out(self, window: SealedWindow) -> ProfileAnswer | EstimateAnswer:
        """The answer of the results topic and notebooks for a window: its profile, or its estimates."""
        profile = isinstance(window.parts[0].kind, Reconstructing)
        return self.answer(window) if profile else self.estimates(window)

    def guarantee(self, window: SealedWindow, *, alone: bool = False) -> dict[str, Any]:
        """Guarantee of a window for its protected units, as plain data.

        Args:
            window: the window.
            alone: leave out what other sketches publish, for readers who may not know of them; the statement says
                whether there are any or not that they would add to it.
        """
        worst, with_copy = worst_of([part.ledger for part in window.parts])
        plan = self.plan_of(window)
        known = context(
            self.config, plan, partitions=window.partitions, retention_ms=self.retention_ms, counts=window.counts
        )
        published = self._other_sketches(window)
        names = {sketch.name for sketch in published}
        others = (*published, *(sketch for sketch in known.others if sketch.name not in names))
        if alone:
            others = tuple(sketch for sketch in others if sketch.name == window.sketch)
        known = replace(known, others=others, table=window.table, with_copy=with_copy)
        statement: dict[str, Any] = window.parts[0].kind.guarantee(window.parts[0].spec, worst, known).to_dict()
        if alone:
            statement["seen"] = [*statement["seen"], ALONE]
        return statement

    def _records(self, window: SealedWindow) -> Sequence[Record]:
        """Records of the deployment's ledger: at least all that can overlap a window.

        Only that range of time is read; after repeated calls, together with that of some later windows.
        """
        if self.overlapping is not None:
            return self.overlapping(window.window)
        known, (start, end) = self._read_range, window.window
        if known.start <= start and end <= known.end:
            return known.records
        lengths = {plan.name: 2 * plan.shortest_ms for plan in self.config.sketches}
        if {frontier.sketch for frontier in self.source.frontiers()} <= lengths.keys():
            known.start, known.end = start, end + known.ahead * (end - start)
            known.ahead = min(max(8, 4 * known.ahead), AHEAD)
            longest = max(lengths.values())
            deployment = self.deployment(start - longest, round(known.end) + longest)
        else:  # a sketch that was removed from the configuration may have had windows of any length
            known.start, known.end = -math.inf, math.inf
            deployment = self.deployment()
        known.records = deployment.records
        return known.records

    def _other_sketches(self, window: SealedWindow) -> tuple[OtherSketch, ...]:
        """Other publications about the time of a window: other sketches, in the configuration or not, and revisions.

        Each costs as much as its most expensive record; for an event, those of overlapping windows add up. States that
        were published under the same key add up, as separate sketches.
        """
        plans = {plan.name: plan for plan in self.config.sketches}

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
            OtherSketch(
                name,
                most_of_event(records),
                most_of_item(records),
                min((record.window[1] - record.window[0] for record in records if record.window), default=None),
                overlap=plans[name].overlap if name in plans else 1,
                every_ms=plans[name].starts.shortest_ms if name in plans else None,
                records=most_of_record(records),
            )
            for (name, _, _), records in sorted(groups.items())
        )

    def merged(self, windows: Sequence[SealedWindow]) -> tuple[Published, float | None]:
        """Merge windows into one published object; also the factor by which its error can exceed one window's.

        The factor is None for kinds that give estimates, which have their own standard errors.

        Raises:
            MergeError: histograms were published, or there is no window.
        """
        places: dict[int, list[SealedState]] = {}
        of = {part.origin.partition for window in windows for part in window.answering}
        keyed = self.config.input.partitioned_by != "none"
        if keyed and HISTORY in of and len(of) > 2:
            raise MergeError(
                "these windows come from a table, where one sketch has all items, and from several partitions, where "
                "each has its own: --merge would count items in both; choose windows of one side"
            )
        for before, after in pairwise(sorted(window.window for window in windows)):
            if after[0] < before[1]:
                raise MergeError(
                    f"the windows that begin at {iso(before[0])} and {iso(after[0])} overlap: --merge would count "
                    "events more than once; choose windows that do not overlap"
                )
        for window in windows:
            for number, part in enumerate(window.answering):
                if not isinstance(part, SealedState):
                    raise MergeError(
                        "--merge adds up states; these are histograms: give a longer window a sketch of its own, or "
                        "publish = 'state'"
                    )
                at = part.origin.partition if part.origin.partition is not None else number
                places.setdefault(at if keyed and HISTORY not in of else 0, []).append(part)
        if not places:
            raise StoreError("no window is published in that range")
        sums = [merge(parts) for _, parts in sorted(places.items())]
        growths = (total.error_growth(places[place][0]) for total, place in zip(sums, sorted(places), strict=True))
        factor = max((growth for growth in growths if growth is not None), default=None)
        return (sums[0] if len(sums) == 1 else stack(sums)), factor

    def deployment(self, since: int | None = None, until: int | None = None) -> Deployment:
        """All publications of all revisions, for the ledger."""
        limit = self.config.privacy.max_epsilon
        entries = (entry for entry in self.source.read(None, since, until) if isinstance(entry, SealedEntry))
        publications = (read_published(entry.body) for entry in entries)
        parts: list[Release | SealedState | Instalment] = [
            part for part in publications if isinstance(part, (Release, SealedState))
        ]
        parts += self._closed(since, until)
        parts += self._early(since, until)
        keyed = self.config.checks_partitions or not self.config.from_kafka
        most = None if limit is None else Fraction(limit)
        evidence = noise_of_frontiers((frontier.sketch, frontier.evidence) for frontier in self.source.frontiers())
        records = map(Record.of, parts)
        return Deployment.from_records(records, keyed=keyed, limit=most, budget=self.config.budget, evidence=evidence)

    def _closed(self, since: int | None, until: int | None) -> Iterator[Instalment]:
        """All positions that were published when they closed, of windows sealed or not: copies show in them."""
        for plan in self.config.sketches:
            if closing_kind(plan.spec) is not None:
                for entry in self.source.closed(plan.name, since, until):
                    yield Instalment.from_bytes(entry.body)

    def _early(self, since: int | None, until: int | None) -> Iterator[Release]:
        """All releases from open windows: the ledger of a window that is not sealed is in the newest of them."""
        for plan in self.config.sketches:
            if self._has_early(plan.name):
                for entry in self.source.early(plan.name, since, until):
                    part = read_published(entry.body)
                    if isinstance(part, Release):
                        yield part


def none_published(name: str, since: int | None, until: int | None) -> str:
    """Sentence that a sketch has no published window, in a range of time if there is one."""
    return f"no window of sketch {name} is published{'' if since is None and until is None else ' in that range'}"
