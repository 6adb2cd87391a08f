"""Reads publications by window: completeness, revisions, stacked partitions, detected incidents.

In: a `SealedSource` (a folder here, a topic in the connectors). Out: `SealedWindow`s, ascending. Touches: only what
the source reads. Readers never touch a worker's state, and need no key.
Source: docs/sealed-topic.md (frontiers are read first, then sketches).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from sketchstream.errors import DataLossError, FormatError, IncidentError, MergeError
from sketchstream.kinds.capabilities import Reconstructing, SlotsOfItems
from sketchstream.provenance import partition_counts
from sketchstream.published import Published, Release, SealedState, read_published, stack
from sketchstream.quality import DEFAULT, REPORTED, Quality, Rule, judge
from sketchstream.query.evidence import PartitionEvidence, partition_evidence, weigh
from sketchstream.sketch import merge
from sketchstream.spec import ClosedDomain
from sketchstream.stream.interfaces import Deleted, Frontier, SealedEntry, SealedSource
from sketchstream.stream.windows.calendar import NO_TIME, iso
from sketchstream.topics import HISTORY, partition_numbers

Span = tuple[int, int]
_Waiting = dict[Span, dict[int, SealedEntry]]
"""The newest release of each partition from each window that is not sealed in all partitions."""


@dataclass(frozen=True)
class SealedWindow:
    """One window of one sketch, with the parts that are published.

    Args:
        sketch: name of the sketch.
        revision: newest revision of the sketches.
        window: [start, end), ms since 1970.
        partitions: number of partitions of the input, the largest in any frontier or header.
        partitions_done: how many are done with this window.
        missing: partitions that are not done, ascending.
        partial: whether records may be missing, from before the start of some partition or after a loss.
        diverged: whether it may contain records of some partition that the log has lost since.
        counts: distinct numbers of partitions that were valid while any part of it was open, at least 1. If there are
            several, items may be counted more than once, and intervals are invalid.
        parts: the sealed sketches, by partition.
        deleted: whether a publication of some partition may have been deleted since; the partition is then missing.
        rule: determines which losses of records are reported.
        group: group of the answers, for sketches with groups; see `each_group`.
        evidence: what each partition published about refused records and misplaced items.
        early: watermark (ms) at the release of each part that was released before its window was sealed, by partition.
    """

    sketch: str
    revision: int
    window: Span
    partitions: int
    partitions_done: int
    missing: tuple[int, ...]
    partial: bool
    diverged: bool
    counts: int
    parts: tuple[Release | SealedState, ...] = field(repr=False)
    deleted: bool = False
    rule: Rule = DEFAULT
    group: str | None = None
    evidence: Mapping[int, PartitionEvidence] = field(default_factory=dict, repr=False)
    early: Mapping[int, int] = field(default_factory=dict)

    @property
    def preliminary(self) -> bool:
        """Whether parts were released before their window was sealed: a later answer replaces this one."""
        return bool(self.early)

    @property
    def as_of(self) -> int | None:
        """The time (ms) through which all early parts had counted, up to lateness; None: there are none."""
        return min(self.early.values(), default=None)

    @property
    def table(self) -> tuple[str, str] | None:
        """Name and snapshot of the table that the window was counted from; None: workers counted it."""
        return self.parts[0].origin.table

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the sketch's groups; empty if it has none."""
        return self.parts[0].groups

    def of_group(self, name: str) -> SealedWindow:
        """Restrict the window to one of its groups.

        Args:
            name: name of the group.

        Raises:
            EstimateError: the sketch has no groups, or none of that name.
        """
        self.parts[0].group(name)
        return replace(self, group=name)

    def each_group(self) -> Iterator[SealedWindow]:
        """The window for each group; only the window itself if there are no groups or one is chosen."""
        if self.group is not None or not self.groups:
            yield self
        else:
            yield from (replace(self, group=name) for name in self.groups)

    @cached_property
    def answering(self) -> tuple[Release | SealedState, ...]:
        """The parts for answers, restricted to the group if one is chosen.

        Raises:
            MergeError: partitions were counted with different groups.
        """
        if self.group is None:
            return self.parts
        if len({part.groups for part in self.parts}) > 1:
            raise MergeError("the partitions of this window were counted with different lists of groups", ["groups"])
        return tuple(part.group(self.group) for part in self.parts)

    @property
    def whole(self) -> bool:
        """Whether every partition has passed this window, none began inside it, and none counted lost records."""
        return not self.missing and not self.partial and not self.diverged

    @property
    def complete(self) -> bool | None:
        """Whether the window is whole, of one partition count, and shows no loss; None: it is not known."""
        if not self.whole or self.repartitioned or self.preliminary:
            return False
        return {"incomplete": False, "unknown": None}.get(self.quality.verdict, True)

    @cached_property
    def quality(self) -> Quality:
        """How completely the window counted its records, from publications: shares, refused and misplaced records."""
        keyed = self.parts[0].kind.partitions == "stack"
        counts = frozenset(part.origin.partition for part in self.parts if part.origin.partition is not None)
        return weigh(judge(self.parts, self.rule), self.evidence, self.rule, keyed=keyed, counts=counts)

    @property
    def repartitioned(self) -> bool:
        """Whether partitions were added while any part of the window was open."""
        return self.counts > 1

    @property
    def known_zeros(self) -> int:
        """Closed domains: items without a slot in `parts`, whose count is known to be 0 once the window is complete.

        Partitions without a record have no sketch. Negative if every partition has all slots (an unchecked
        partitioner), as each item is counted in only one of them.
        """
        parts = self.answering
        domain = parts[0].spec.domain
        if not isinstance(parts[0].kind, Reconstructing) or not isinstance(domain, ClosedDomain) or domain.sample_rate:
            return 0
        return (domain.size or 0) - sum(part.slots for part in parts)

    def result(self, *, partitioned: bool = True) -> Published:
        """Combine the window into one published object.

        Args:
            partitioned: whether parts have disjoint items and are stacked; otherwise they share items and are merged.

        Raises:
            MergeError: the parts have different specs (the configuration changed during the window).
        """
        parts = self.answering
        apart = partitioned and parts[0].kind.partitions == "stack"
        if apart and isinstance(parts[0].kind, SlotsOfItems):  # the assignment of slots to items differs between parts
            return stack(parts) if len(parts) > 1 else parts[0]
        if not apart or (self.repartitioned and isinstance(parts[0], SealedState)):
            states = [part for part in parts if isinstance(part, SealedState)]
            if len(states) != len(parts):
                raise MergeError(
                    "histograms cannot be merged: input.partitioned_by = 'none' needs publish = 'state'", ["publish"]
                )
            return merge(states) if len({state.slots for state in states}) == 1 else stack(states)
        return stack(parts) if len(parts) > 1 else parts[0]

    def fields(self) -> dict[str, object]:
        """Fields that `profile -c` prints before the profile."""
        out: dict[str, object] = {
            "sketch": self.sketch,
            "window_start": iso(self.window[0]),
            "window_end": iso(self.window[1]),
            "complete": self.complete,
            "partitions": {"published": self.partitions_done, "of": self.partitions, "missing": list(self.missing)},
            "revision": self.revision,
        }
        if self.table is not None:
            out["history"] = dict(zip(("table", "snapshot"), self.table, strict=True))
        if self.as_of is not None:
            out["preliminary"] = True
            out["as_of"] = iso(self.as_of)
        if self.group is not None:
            out["group"] = self.group
        if self.partial:
            out["partial"] = True
        if self.diverged:
            out["diverged"] = True
        if self.repartitioned:
            out["repartitioned"] = True
        if self.deleted:
            out["deleted"] = True
        out["quality"] = self.quality.to_dict()
        return out

    def describe(self) -> str:
        """Completeness in words; they begin with the value of `complete`, unless partitions are missing."""
        if self.as_of is not None:
            return f"preliminary, as of {iso(self.as_of)}: {len(self.parts)} of {self.partitions} partitions"
        if self.missing:
            listed = ", ".join(map(str, self.missing[:8])) + (", ..." if len(self.missing) > 8 else "")
            why = ", deleted since" if self.deleted else ""
            return f"{self.partitions_done} of {self.partitions} partitions (missing: {listed}{why})"
        parts = [f"all {self.partitions} partitions"] if self.partitions > 1 else ["complete"] if self.complete else []
        parts += [] if self.table is None else [f"from table {self.table[0]}"]
        notes = {
            "counting began inside it or records were lost": self.partial,
            "it may hold records that the log has lost": self.diverged,
            "partitions were added inside it: no intervals": self.repartitioned,
            self.quality.reason: self.quality.verdict in REPORTED,
        }
        text = ", but ".join(filter(None, [", ".join(parts), "; ".join(note for note, true in notes.items() if true)]))
        if self.complete:
            return text
        return f"not {'known to be ' if self.complete is None else ''}complete: {text}"


class SealedReader:
    """Reads windows of sealed sketches.

    Args:
        source: source of sealed sketches.
        rule: gives the rule for reporting losses of records, by the sketch's name.
        topics: topics of the configuration: a window is complete when the partitions of all of them are done with it.
    """

    def __init__(self, source: SealedSource, rule: Callable[[str], Rule] = lambda _: DEFAULT, topics: int = 1) -> None:
        self._source = source
        self._rule = rule
        self._topics = topics

    def settled(self, sketch: str) -> tuple[int, int] | None:
        """Newest revision, and the time (ms) up to which all of its partitions have published finally.

        None: some partition has not published a frontier yet, or one before its first window.
        """
        frontiers = self._source.frontiers(sketch)
        revision = max((frontier.revision for frontier in frontiers), default=0)
        newest = _newest([frontier for frontier in frontiers if frontier.revision == revision])
        live = [frontier for frontier in newest.values() if frontier.partition != HISTORY]
        numbers = partition_numbers(((frontier.partition, frontier.partitions) for frontier in live), self._topics)
        if newest and not live:  # a history without live windows
            numbers = [HISTORY]
        if any((revision, partition) not in newest for partition in numbers):
            return None
        through = min(newest[revision, partition].published_through for partition in numbers)
        return None if through == NO_TIME else (revision, through)

    def windows(
        self,
        sketch: str,
        from_ms: int | None = None,
        to_ms: int | None = None,
        *,
        revision: int | None = None,
        early: bool = False,
    ) -> Iterator[SealedWindow]:
        """Yield windows that begin at or after `from_ms` and end by `to_ms`, ascending, with a published sketch.

        Each is yielded as soon as its publications are final, so a long range takes no more memory than a short
        one.

        Args:
            sketch: name of the sketch.
            from_ms: ms since 1970; None: from the first.
            to_ms: ms since 1970; None: to the last.
            revision: revision to read; None: the newest one with publications of the window.
            early: also windows that are not sealed in all partitions, with what was released from them before.

        Raises:
            DataLossError: an incident: two different publications of one window, or of one noise.
            FormatError, StoreError: a publication cannot be read.
        """
        waiting = self._early(sketch, from_ms, to_ms, revision) if early else {}
        seen = _Assembly(sketch, self._rule(sketch), self._topics)
        for entry in self._source.read(sketch, from_ms, to_ms):
            if isinstance(entry, Frontier):
                seen.add_frontier(entry)
            elif isinstance(entry, Deleted):
                seen.deleted[entry.partition] = max(entry.through, seen.deleted.get(entry.partition, entry.through))
            elif (revision is None or entry.revision == revision) and seen.is_news(entry):
                if seen.window not in (None, entry.window):
                    yield from seen.assembled(waiting)
                seen.add(entry)
        if seen.window is not None:
            yield from seen.assembled(waiting)
        yield from seen.unsealed(waiting, None)

    def _early(self, sketch: str, from_ms: int | None, to_ms: int | None, revision: int | None) -> _Waiting:
        """The newest release of each partition from each window, of the newest revision."""
        settled = self.settled(sketch)
        if settled is not None:  # windows before that time are sealed
            from_ms = settled[1] if from_ms is None else max(from_ms, settled[1])
        waiting: _Waiting = {}
        newest: dict[Span, int] = {}
        for entry in self._source.early(sketch, from_ms, to_ms):
            if revision not in (None, entry.revision) or entry.revision < newest.get(entry.window, 0):
                continue
            if entry.revision > newest.get(entry.window, 0):
                waiting.pop(entry.window, None)
            newest[entry.window] = entry.revision
            waiting.setdefault(entry.window, {})[entry.partition] = entry
        return dict(sorted(waiting.items()))

    def before(self, window: SealedWindow) -> SealedWindow | None:
        """Find the window that ends at the start of this one, for answers that use both.

        Args:
            window: a window, of a kind whose series continues from window to window.

        Returns:
            None if it is not completely published, has another spec, or cannot be shown because of an incident.
        """
        return self.former(window.sketch, window.window, window.parts[0].spec.fingerprint)

    def former(self, sketch: str, window: Span, fingerprint: bytes) -> SealedWindow | None:
        """See `before`, for a window that is not sealed itself.

        Args:
            sketch: name of the sketch.
            window: [start, end), ms since 1970.
            fingerprint: fingerprint of the window's spec.
        """
        start, end = window
        for lengths in (1, 2):  # the one before is rarely longer, such as a month; an incident hides no other window
            try:
                for earlier in self.windows(sketch, start - lengths * (end - start), start):
                    if earlier.window[1] == start:
                        same = earlier.parts[0].spec.fingerprint == fingerprint
                        return earlier if earlier.whole and same else None
            except (DataLossError, FormatError):
                return None
        return None

    def close(self) -> None:
        """Close the source."""
        self._source.close()


class _Assembly:
    """Entries of one sketch that were read so far: frontiers, and the parts of the current window.

    Only digests are kept of earlier windows, to detect second publications.
    """

    def __init__(self, sketch: str, rule: Rule, topics: int) -> None:
        self.sketch = sketch
        self._topics = topics
        self._rule = rule
        self.frontiers: dict[tuple[int, int], Frontier] = {}
        self.deleted: dict[int, int] = {}
        self.window: Span | None = None
        self._parts: dict[int, dict[int, Release | SealedState]] = {}
        self._bodies: dict[str, bytes] = {}
        self._names: set[bytes] = set()

    def add_frontier(self, frontier: Frontier) -> None:
        """Add a frontier, unless a newer one is known."""
        name = (frontier.revision, frontier.partition)
        if name not in self.frontiers or self.frontiers[name].sequence <= frontier.sequence:
            self.frontiers[name] = frontier

    def is_news(self, entry: SealedEntry) -> bool:
        """Whether an entry is new, that is, not a repetition of an earlier one.

        Raises:
            DataLossError: another body was published under its key: an incident.
        """
        digest = hashlib.blake2b(entry.body, digest_size=16).digest()
        former = self._bodies.get(entry.key)
        if former is not None and former != digest:
            raise IncidentError(published_twice(entry.key))
        self._bodies[entry.key] = digest
        return former is None

    def add(self, entry: SealedEntry) -> None:
        """Add one entry of the current window.

        Raises:
            DataLossError: it has the noise or the seal id of another entry: an incident.
            FormatError: it contradicts its header.
        """
        part = read_published(entry.body)
        if not isinstance(part, (Release, SealedState)):
            raise FormatError(f"what was published as {entry.key} is not one sealed sketch")
        _check_origin(part, entry)
        names = {part.seal_id, *(layer.lineage for layer in part.layers)}
        if names & self._names:
            raise IncidentError(shared_noise(entry.key))
        self._names |= names
        self.window = entry.window
        parts = self._parts.setdefault(entry.revision, {})
        parts[entry.partition] = part
        if HISTORY in parts and len(parts) > 1:
            raise IncidentError(of_both_sides(entry))

    def assembled(self, waiting: _Waiting) -> Iterator[SealedWindow]:
        """Build the windows that are not sealed before the current one, and the current one.

        Args:
            waiting: releases from windows that are not sealed in all partitions; those that are used are taken out.
        """
        assert self.window is not None
        yield from self.unsealed(waiting, self.window)
        yield self._assemble(self.window, waiting.pop(self.window, {}))

    def unsealed(self, waiting: _Waiting, before: Span | None) -> Iterator[SealedWindow]:
        """Build the windows of which nothing is sealed yet, up to a window; None: all of them."""
        parts, self._parts = self._parts, {}
        for window in [window for window in waiting if before is None or window < before]:
            yield self._assemble(window, waiting.pop(window))
        self._parts = parts

    def _assemble(self, window: Span, early: Mapping[int, SealedEntry]) -> SealedWindow:
        """Build a window with its completeness, from its newest revision.

        A revision that began to count inside the window, as one does after `reset`, may have opened it for a late
        record alone: it does not replace an older revision that has the whole window.
        """
        revisions = sorted({*self._parts, *(entry.revision for entry in early.values())}, reverse=True)
        assembled = self._of_revision(revisions[0], window, early)
        if assembled.partial:
            older = (self._of_revision(revision, window, early) for revision in revisions[1:])
            assembled = next((earlier for earlier in older if earlier.whole), assembled)
        if window == self.window:
            self._parts, self.window = {}, None
        return assembled

    def _of_revision(self, revision: int, window: Span, early: Mapping[int, SealedEntry]) -> SealedWindow:
        """Build a window from one revision."""
        sealed = self._parts.get(revision, {})
        released = {
            partition: _read_release(entry)
            for partition, entry in early.items()
            if entry.revision == revision and partition not in sealed
        }
        parts = {**sealed, **released}
        history = HISTORY in sealed
        if history and released:
            raise IncidentError(of_both_sides(early[min(released)]))
        own = {
            partition: frontier
            for (rev, partition), frontier in self.frontiers.items()
            if rev == revision and (partition == HISTORY) == history
        }
        counts = [(frontier.partition, frontier.partitions) for frontier in own.values()]
        counts += [(partition, max(part.origin.partition_counts, default=1)) for partition, part in parts.items()]
        numbers = [HISTORY] if history else partition_numbers(counts, self._topics)
        missing, deleted = [], False
        for partition in numbers:
            if partition in sealed:
                continue  # a sealed sketch is final even before its frontier is read
            frontier = own.get(partition)
            gone = self.deleted.get(partition)
            if gone is not None and window[1] <= gone:
                deleted = True
                missing.append(partition)
            elif frontier is None or frontier.published_through < window[1]:
                missing.append(partition)
        return SealedWindow(
            sketch=self.sketch,
            revision=revision,
            window=window,
            partitions=len(numbers),
            partitions_done=len(numbers) - len(missing),
            missing=tuple(missing),
            partial=any(frontier.partial.covers(window[1]) for frontier in own.values()),
            diverged=any(frontier.diverged.covers(window[1]) for frontier in own.values()),
            counts=partition_counts(part.origin for part in parts.values()),
            parts=tuple(parts[partition] for partition in sorted(parts)),
            deleted=deleted,
            rule=self._rule,
            evidence={partition: partition_evidence(own.get(partition), window) for partition in numbers},
            early={partition: early[partition].early or 0 for partition in released},
        )


def published_twice(key: str) -> str:
    """Message for two different bodies under one key."""
    return (
        f"{key} was published twice with different contents: two noisy views of the same counts. Nothing of it is "
        "shown; keep both, stop publishing, and find out where the second one came from"
    )


def of_both_sides(entry: SealedEntry) -> str:
    """Message for a window that was published from a table and by workers."""
    return (
        f"the window of sketch {entry.sketch} that begins at {iso(entry.window[0])} was published from a table and by "
        "workers: two noisy views of the same counts. Nothing of it is shown; keep both, stop publishing, and find out "
        "where the second one came from"
    )


def shared_noise(key: str) -> str:
    """Message for two publications with the same noise."""
    return (
        f"{key} and another publication share their noise or their seal id; the difference of two publications of one "
        "noise is exact data. Nothing is shown; keep both, stop publishing, and find out where the second one came from"
    )


def _newest(frontiers: Sequence[Frontier]) -> dict[tuple[int, int], Frontier]:
    """The last frontier of each (revision, partition)."""
    out: dict[tuple[int, int], Frontier] = {}
    for frontier in sorted(frontiers, key=lambda frontier: frontier.sequence):
        out[frontier.revision, frontier.partition] = frontier
    return out


def _read_release(entry: SealedEntry) -> Release:
    """The release that was published from an open window.

    Raises:
        FormatError: it is something else, or contradicts its header.
    """
    part = read_published(entry.body)
    if not isinstance(part, Release) or part.final:
        raise FormatError(f"what was published as {entry.key} is not a release from an open window")
    _check_origin(part, entry)
    return part


def _check_origin(publication: Release | SealedState, entry: SealedEntry) -> None:
    origin = publication.origin
    if (origin.name, origin.revision, origin.window, origin.partition, publication.seal_id) != (
        entry.sketch,
        entry.revision,
        entry.window,
        entry.partition,
        entry.seal_id,
    ):
        raise FormatError(f"what was published as {entry.key} says that it is something else")
