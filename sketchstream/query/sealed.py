"""What was published, read back by window: completeness, revisions, partitions stacked, incidents refused.

In: a `SealedSource` (a folder here, a topic in the connectors). Out: `SealedWindow`s, ascending. Touches: what the
source reads. Readers never touch a worker's state, and need no key.
Source: docs/sealed-topic.md (frontiers are read first, then sketches).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from sketchstream.errors import DataLossError, FormatError, MergeError
from sketchstream.published import Published, Release, SealedState, partition_counts, read, stack
from sketchstream.quality import DEFAULT, Quality, Rule, judge
from sketchstream.sketch import merge
from sketchstream.spec import ClosedDomain
from sketchstream.stream.interfaces import Deleted, Frontier, SealedEntry, SealedSource
from sketchstream.stream.windows import iso

Span = tuple[int, int]


@dataclass(frozen=True)
class SealedWindow:
    """One window of one sketch, as far as it is published.

    Args:
        sketch: its name.
        revision: of the sketches; the newest one.
        window: [start, end), ms since 1970.
        of: partitions of the input, the most that any frontier or header speaks of.
        published: partitions that are done with this window.
        missing: partitions that are not, ascending.
        partial: records from before the start of some partition, or lost ones, may be missing.
        diverged: it may hold records of some partition that the log has lost since.
        counts: distinct numbers of partitions that were valid while any part of it was open, at least 1. If there are
            more, items may be counted more than once, and intervals do not hold.
        parts: the sealed sketches, by partition.
        deleted: what some partition published may have been deleted since; it is among the missing ones.
        rule: when a loss of records is spoken of.
        group: of sketches with groups, the one that answers are asked of; see `each_group`.
    """

    sketch: str
    revision: int
    window: Span
    of: int
    published: int
    missing: tuple[int, ...]
    partial: bool
    diverged: bool
    counts: int
    parts: tuple[Release | SealedState, ...] = field(repr=False)
    deleted: bool = False
    rule: Rule = DEFAULT
    group: str | None = None

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of its groups; empty where it has none."""
        return self.parts[0].groups

    def of_group(self, name: str) -> SealedWindow:
        """The same window, as far as one of its groups goes.

        Args:
            name: of the group.

        Raises:
            EstimateError: it has no groups, or none of that name.
        """
        self.parts[0].group(name)
        return replace(self, group=name)

    def each_group(self) -> Iterator[SealedWindow]:
        """The window of each of its groups; itself where it has none, or where one is chosen."""
        if self.group is not None or not self.groups:
            yield self
        else:
            yield from (replace(self, group=name) for name in self.groups)

    @cached_property
    def answering(self) -> tuple[Release | SealedState, ...]:
        """The parts that answers are made of: those of the group, where one is chosen.

        Raises:
            MergeError: its partitions were counted with different groups.
        """
        if self.group is None:
            return self.parts
        if len({part.groups for part in self.parts}) > 1:
            msg = "the partitions of this window were counted with different lists of groups"
            raise MergeError(msg, ["groups"])
        return tuple(part.group(self.group) for part in self.parts)

    @property
    def whole(self) -> bool:
        """Whether every partition has passed this window, none began inside it, and none counted what the log lost."""
        return not self.missing and not self.partial and not self.diverged

    @property
    def complete(self) -> bool:
        """Whether it is whole, and no loss of records beyond the tolerance shows in what was published."""
        return self.whole and self.quality.verdict != "incomplete"

    @cached_property
    def quality(self) -> Quality:
        """Which share of the records admitted was counted, as far as what was published says."""
        return judge(self.parts, self.rule)

    @property
    def repartitioned(self) -> bool:
        """Whether partitions were added while any part of it was open."""
        return self.counts > 1

    @property
    def known_zeros(self) -> int:
        """Closed domains: items without a slot in `parts`, whose count is known to be 0 once the window is complete.

        Partitions that had no record made no sketch; negative where every partition has all slots (an unchecked
        partitioner) and an item is counted in one of them only.
        """
        parts = self.answering
        domain = parts[0].spec.domain
        if parts[0].kind.answer != "profile":
            return 0
        if not isinstance(domain, ClosedDomain) or domain.sample_rate is not None:
            return 0
        return (domain.size or 0) - sum(part.slots for part in parts)

    def result(self, *, partitioned: bool = True) -> Published:
        """The window as one published object.

        Args:
            partitioned: parts hold disjoint items and are stacked; False: they share items and are merged.

        Raises:
            MergeError: the parts do not fit together (a configuration that changed in mid-window).
        """
        parts = self.answering
        apart = partitioned and parts[0].kind.partitions == "stack"
        if apart and parts[0].kind.slots_are_items:  # which slot is whose differs from part to part
            return stack(parts) if len(parts) > 1 else parts[0]
        if not apart or (self.repartitioned and isinstance(parts[0], SealedState)):
            states = [part for part in parts if isinstance(part, SealedState)]
            if len(states) != len(parts):
                msg = "histograms cannot be merged: input.partitioned_by = 'none' needs publish = 'state'"
                raise MergeError(msg, ["publish"])
            return merge(states) if len({state.slots for state in states}) == 1 else stack(states)
        return stack(parts) if len(parts) > 1 else parts[0]

    def fields(self) -> dict[str, object]:
        """What `profile -c` prints before the profile itself."""
        out: dict[str, object] = {
            "sketch": self.sketch,
            "window_start": iso(self.window[0]),
            "window_end": iso(self.window[1]),
            "complete": self.complete,
            "partitions": {"published": self.published, "of": self.of, "missing": list(self.missing)},
            "revision": self.revision,
        }
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
        if self.quality.said:
            out["quality"] = self.quality.to_dict()
        return out

    def describe(self) -> str:
        """Completeness in words."""
        if self.missing:
            shown = ", ".join(map(str, self.missing[:8])) + (", ..." if len(self.missing) > 8 else "")
            why = ", deleted since" if self.deleted else ""
            return f"{self.published} of {self.of} partitions (missing: {shown}{why})"
        text = f"all {self.of} partitions" if self.of > 1 else "complete"
        if self.partial:
            text += ", but counting began inside it or records were lost"
        if self.diverged:
            text += ", but it may hold records that the log has lost"
        if self.repartitioned:
            text += ", partitions were added inside it: no intervals"
        if self.quality.verdict in ("warning", "incomplete"):
            text += f", but {self.quality.reason}"
        return text


class SealedReader:
    """Windows of sealed sketches.

    Args:
        source: where they are.
        rule: when a loss of records is spoken of, by the sketch's name.
    """

    def __init__(self, source: SealedSource, rule: Callable[[str], Rule] = lambda _: DEFAULT) -> None:
        self._source = source
        self._rule = rule

    def sketches(self) -> Sequence[str]:
        """Names of sketches of which anything was published."""
        return sorted(self._source.sketches())

    def settled(self, sketch: str) -> tuple[int, int] | None:
        """Newest revision, and until when (ms) all of its partitions have published: nothing more will come there.

        None: not every partition has said anything yet.
        """
        said = self._source.frontiers(sketch)
        revision = max((one.revision for one in said), default=0)
        newest = _newest([one for one in said if one.revision == revision])
        of = max((one.partitions for one in newest.values()), default=1)
        if any((revision, partition) not in newest for partition in range(of)):
            return None
        return revision, min(one.published_through for one in newest.values())

    def windows(
        self, sketch: str, from_ms: int | None = None, to_ms: int | None = None, *, revision: int | None = None
    ) -> Iterator[SealedWindow]:
        """Windows that begin at or after `from_ms` and end by `to_ms`, ascending, with at least one published sketch.

        Each is given as soon as it is known that nothing more will come for it, so a long range takes no more memory
        than a short one.

        Args:
            sketch: its name.
            from_ms: ms since 1970; None: from the first.
            to_ms: ms since 1970; None: to the last.
            revision: None: the newest that has published anything of the window.

        Raises:
            DataLossError: an incident: two different publications of one window, or of one noise.
            FormatError, StoreError: something published cannot be read.
        """
        found = _Found(sketch, self._rule(sketch))
        for one in self._source.read(sketch, from_ms, to_ms):
            if isinstance(one, Frontier):
                found.hear(one)
            elif isinstance(one, Deleted):
                found.deleted[one.partition] = max(one.through, found.deleted.get(one.partition, one.through))
            elif (revision is None or one.revision == revision) and found.is_news(one):
                if found.window not in (None, one.window):
                    yield found.assemble()
                found.add(one)
        if found.window is not None:
            yield found.assemble()

    def close(self) -> None:
        """Close the source."""
        self._source.close()


class _Found:
    """What was read of one sketch so far: frontiers, and the parts of the window that is being read.

    Of the windows before, only digests are kept: enough to see that something was published a second time.
    """

    def __init__(self, sketch: str, rule: Rule) -> None:
        self.sketch = sketch
        self._rule = rule
        self.frontiers: dict[tuple[int, int], Frontier] = {}
        self.deleted: dict[int, int] = {}
        self.window: Span | None = None
        self._parts: dict[int, dict[int, Release | SealedState]] = {}
        self._bodies: dict[str, bytes] = {}
        self._names: set[bytes] = set()

    def hear(self, frontier: Frontier) -> None:
        """Add a frontier, unless a newer one is known."""
        name = (frontier.revision, frontier.partition)
        if name not in self.frontiers or self.frontiers[name].sequence <= frontier.sequence:
            self.frontiers[name] = frontier

    def is_news(self, entry: SealedEntry) -> bool:
        """Whether an entry is no repetition of one that was read before.

        Raises:
            DataLossError: another body was published in its place: an incident.
        """
        digest = hashlib.blake2b(entry.body, digest_size=16).digest()
        known = self._bodies.get(entry.key)
        if known is not None and known != digest:
            msg = f"incident: {published_twice(entry.key)}"
            raise DataLossError(msg)
        self._bodies[entry.key] = digest
        return known is None

    def add(self, entry: SealedEntry) -> None:
        """Add one entry of the window that is being read.

        Raises:
            DataLossError: it has the noise, or the seal id, of another one: an incident.
            FormatError: it is not what it says.
        """
        part = read(entry.body)
        if not isinstance(part, (Release, SealedState)):
            msg = f"what was published as {entry.key} is not one sealed sketch"
            raise FormatError(msg)
        _check_origin(part, entry)
        names = {part.seal_id, *(layer.lineage for layer in part.layers)}
        if names & self._names:
            msg = f"incident: {shared_noise(entry.key)}"
            raise DataLossError(msg)
        self._names |= names
        self.window = entry.window
        self._parts.setdefault(entry.revision, {})[entry.partition] = part

    def assemble(self) -> SealedWindow:
        """The window that was being read, with its completeness; of several revisions the newest."""
        window, revision = self.window, max(self._parts)
        assert window is not None
        here = self._parts[revision]
        own = {partition: one for (rev, partition), one in self.frontiers.items() if rev == revision}
        counts = [one.partitions for one in own.values()]
        for part in here.values():
            counts += part.origin.partition_counts
        of = max([*counts, max(here) + 1])
        missing, deleted = [], False
        for partition in range(of):
            if partition in here:
                continue  # a sealed sketch is final even before its frontier came
            frontier = own.get(partition)
            gone = self.deleted.get(partition)
            if gone is not None and window[1] <= gone:
                deleted = True
                missing.append(partition)
            elif frontier is None or frontier.published_through < window[1]:
                missing.append(partition)
        self._parts, self.window = {}, None
        return SealedWindow(
            sketch=self.sketch,
            revision=revision,
            window=window,
            of=of,
            published=of - len(missing),
            missing=tuple(missing),
            partial=any(one.partial.covers(window[1]) for one in own.values()),
            diverged=any(one.diverged.covers(window[1]) for one in own.values()),
            counts=partition_counts(part.origin for part in here.values()),
            parts=tuple(here[partition] for partition in sorted(here)),
            deleted=deleted,
            rule=self._rule,
        )


def published_twice(key: str) -> str:
    """What is said of two different bodies under one key."""
    return (
        f"{key} was published twice with different contents: two noisy views of the same counts. Nothing of it is "
        "shown; keep both, stop publishing, and find out where the second one came from"
    )


def shared_noise(key: str) -> str:
    """What is said of two publications of one noise."""
    return (
        f"{key} and another publication share their noise or their seal id; the difference of two publications of one "
        "noise is exact data. Nothing is shown; keep both, stop publishing, and find out where the second one came from"
    )


def _newest(said: Sequence[Frontier]) -> dict[tuple[int, int], Frontier]:
    """The last frontier of each (revision, partition)."""
    out: dict[tuple[int, int], Frontier] = {}
    for one in sorted(said, key=lambda frontier: frontier.sequence):
        out[one.revision, one.partition] = one
    return out


def _check_origin(found: Release | SealedState, entry: SealedEntry) -> None:
    origin = found.origin
    if (origin.name, origin.revision, origin.window, origin.partition, found.seal_id) != (
        entry.sketch,
        entry.revision,
        entry.window,
        entry.partition,
        entry.seal_id,
    ):
        msg = f"what was published as {entry.key} says that it is something else"
        raise FormatError(msg)
