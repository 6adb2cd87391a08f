"""What was published, read back by window: completeness, revisions, partitions stacked, incidents refused.

In: a `SealedSource` (a folder here, a topic in the connectors). Out: `SealedWindow`s, ascending. Touches: what the
source reads. Readers never touch a worker's state, and need no key.
Source: design.md 7 (frontiers first, then sketches); notes/kafka_faults.md 6, 7, 9.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sketchstream.errors import DataLossError, FormatError, MergeError, StoreError
from sketchstream.published import Published, Release, SealedState, partition_counts, read, stack
from sketchstream.spec import ClosedDomain
from sketchstream.stream.ports import Frontier, SealedEntry, SealedSource
from sketchstream.stream.results import REVISION_NAME, SEALED_NAME, read_frontiers, start_name
from sketchstream.stream.windows import iso

Span = tuple[int, int]


class DirectorySealed:
    """Sealed sketches in a folder, as `DirectoryPublisher` writes them. A `SealedSource`.

    Args:
        root: the folder.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    def frontiers(self) -> Sequence[Frontier]:
        """Newest frontier of each (sketch, revision, partition)."""
        return read_frontiers(self.root)

    def sketches(self) -> Sequence[str]:
        """Names of folders that hold a revision."""
        return sorted({path.parent.name for path in self.root.glob("*/r*") if REVISION_NAME.fullmatch(path.name)})

    def entries(self, sketch: str, window: Callable[[Span], bool] | None = None) -> Iterator[SealedEntry]:
        """Sealed files of a sketch, one at a time.

        Raises:
            StoreError: a file cannot be read.
            FormatError: a file is not a sealed sketch, or not the one that its name says.
        """
        if not re.fullmatch(r"[a-z0-9][a-z0-9_.-]*", sketch):
            return
        try:
            paths = sorted((self.root / sketch).glob("r*/*/p*.sealed"))
            for path in paths:
                revision = REVISION_NAME.fullmatch(path.parent.parent.name)
                partition = SEALED_NAME.fullmatch(path.name)
                if revision is None or partition is None:
                    continue
                body = path.read_bytes()
                entry = describe(body, str(path))
                named = (sketch, int(revision[1]), path.parent.name, int(partition[1]))
                if (entry.sketch, entry.revision, start_name(entry.window[0]), entry.partition) != named:
                    msg = f"{path} holds another sketch than its name says"
                    raise FormatError(msg)
                if window is None or window(entry.window):
                    yield entry
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            msg = f"cannot read {self.root}: {error.strerror}"
            raise StoreError(msg) from error

    def close(self) -> None:
        """Nothing is held."""


def describe(body: bytes, where: str) -> SealedEntry:
    """The entry that sealed bytes are, from their own header.

    Raises:
        FormatError: they are not those of one sealed window of one partition.
    """
    found = read(body)
    if not isinstance(found, (Release, SealedState)):
        msg = f"{where} is not one sealed sketch"
        raise FormatError(msg)
    origin = found.origin
    if origin.window is None or origin.partition is None:
        msg = f"{where} was not sealed by a worker: it has no window"
        raise FormatError(msg)
    return SealedEntry(origin.name, origin.revision, origin.window, origin.partition, found.seal_id, body)


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

    @property
    def complete(self) -> bool:
        """Whether every partition has passed this window, none began inside it, and none counted what the log lost."""
        return not self.missing and not self.partial and not self.diverged

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
        domain = self.parts[0].spec.domain
        if not isinstance(domain, ClosedDomain) or domain.sample_rate is not None:
            return 0
        return (domain.size or 0) - sum(part.slots for part in self.parts)

    def result(self, *, partitioned: bool = True) -> Published:
        """The window as one published object.

        Args:
            partitioned: parts hold disjoint items and are stacked; False: they share items and are merged.

        Raises:
            MergeError: the parts do not fit together (a configuration that changed in mid-window).
        """
        from sketchstream.sketch import merge

        if not partitioned or (self.repartitioned and isinstance(self.parts[0], SealedState)):
            states = [part for part in self.parts if isinstance(part, SealedState)]
            if len(states) != len(self.parts):
                msg = "histograms cannot be merged: input.partitioned_by = 'none' needs publish = 'state'"
                raise MergeError(msg, ["publish"])
            return merge(states) if len({state.slots for state in states}) == 1 else stack(states)
        return stack(self.parts) if len(self.parts) > 1 else self.parts[0]

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
        if self.partial:
            out["partial"] = True
        if self.diverged:
            out["diverged"] = True
        if self.repartitioned:
            out["repartitioned"] = True
        return out

    def describe(self) -> str:
        """Completeness in words."""
        if self.missing:
            shown = ", ".join(map(str, self.missing[:8])) + (", ..." if len(self.missing) > 8 else "")
            return f"{self.published} of {self.of} partitions (missing: {shown})"
        text = f"all {self.of} partitions" if self.of > 1 else "complete"
        if self.partial:
            text += ", but counting began inside it or records were lost"
        if self.diverged:
            text += ", but it may hold records that the log has lost"
        if self.repartitioned:
            text += ", partitions were added inside it: no intervals"
        return text


class SealedReader:
    """Windows of sealed sketches.

    Args:
        source: where they are.
    """

    def __init__(self, source: SealedSource) -> None:
        self._source = source

    def sketches(self) -> Sequence[str]:
        """Names of sketches of which anything was published."""
        return sorted(self._source.sketches())

    def settled(self, sketch: str) -> tuple[int, int] | None:
        """Newest revision, and until when (ms) all of its partitions have published: nothing more will come there.

        None: not every partition has said anything yet.
        """
        said = [one for one in self._source.frontiers() if one.sketch == sketch]
        revision = max((one.revision for one in said), default=0)
        newest = _newest([one for one in said if one.revision == revision])
        of = max((one.partitions for one in newest.values()), default=1)
        if any((revision, partition) not in newest for partition in range(of)):
            return None
        return revision, min(one.published_through for one in newest.values())

    def windows(
        self, sketch: str, from_ms: int | None = None, to_ms: int | None = None, *, revision: int | None = None
    ) -> list[SealedWindow]:
        """Windows that begin at or after `from_ms` and end by `to_ms`, ascending, with at least one published sketch.

        Args:
            sketch: its name.
            from_ms: ms since 1970; None: from the first.
            to_ms: ms since 1970; None: to the last.
            revision: None: the newest that has published anything of the window.

        Raises:
            DataLossError: an incident: two different publications of one window, or of one noise.
            FormatError, StoreError: something published cannot be read.
        """

        def chosen(window: Span) -> bool:
            return (from_ms is None or window[0] >= from_ms) and (to_ms is None or window[1] <= to_ms)

        # before the entries: a frontier never promises what is not there yet
        frontiers = _newest([one for one in self._source.frontiers() if one.sketch == sketch])
        bodies: dict[tuple[Span, int, int], bytes] = {}
        parts: dict[tuple[Span, int], dict[int, Release | SealedState]] = {}
        lineages: dict[bytes, tuple[Span, int, int]] = {}
        for entry in self._source.entries(sketch, chosen):
            if not chosen(entry.window) or (revision is not None and entry.revision != revision):
                continue
            place = (entry.window, entry.revision, entry.partition)
            if place in bodies:
                _same(bodies[place], entry)
                continue
            bodies[place] = entry.body
            found = read(entry.body)
            if not isinstance(found, (Release, SealedState)):
                msg = f"what was published as {entry.key} is not one sealed sketch"
                raise FormatError(msg)
            _check_origin(found, entry)
            for name in (found.seal_id, *(layer.lineage for layer in found.layers)):
                if lineages.setdefault(name, place) != place:
                    msg = (
                        f"incident: {entry.key} and another publication share their noise or their seal id; the "
                        "difference of two publications of one noise is exact data. Nothing is shown; keep both, "
                        "stop publishing, and find out where the second one came from"
                    )
                    raise DataLossError(msg)
            parts.setdefault((entry.window, entry.revision), {})[entry.partition] = found
        return self._assemble(sketch, parts, frontiers)

    def _assemble(
        self,
        sketch: str,
        parts: dict[tuple[Span, int], dict[int, Release | SealedState]],
        frontiers: dict[tuple[int, int], Frontier],
    ) -> list[SealedWindow]:
        """Windows with their completeness; of several revisions the newest."""
        newest: dict[Span, int] = {}
        for window, revision in parts:
            newest[window] = max(newest.get(window, 0), revision)
        out = []
        for window, revision in sorted(newest.items()):
            here = parts[window, revision]
            own = {partition: one for (rev, partition), one in frontiers.items() if rev == revision}
            counts = [one.partitions for one in own.values()]
            for part in here.values():
                counts += part.origin.partition_counts
            of = max([*counts, max(here) + 1])
            missing = []
            for partition in range(of):
                frontier = own.get(partition)
                # a sealed sketch is final even before its frontier came
                if partition not in here and (frontier is None or frontier.published_through < window[1]):
                    missing.append(partition)
            out.append(
                SealedWindow(
                    sketch=sketch,
                    revision=revision,
                    window=window,
                    of=of,
                    published=of - len(missing),
                    missing=tuple(missing),
                    partial=any(one.partial.covers(window[1]) for one in own.values()),
                    diverged=any(one.diverged.covers(window[1]) for one in own.values()),
                    counts=partition_counts(part.origin for part in here.values()),
                    parts=tuple(here[partition] for partition in sorted(here)),
                )
            )
        return out

    def close(self) -> None:
        """Close the source."""
        self._source.close()


def _newest(said: Sequence[Frontier]) -> dict[tuple[int, int], Frontier]:
    """The last frontier of each (revision, partition)."""
    out: dict[tuple[int, int], Frontier] = {}
    for one in sorted(said, key=lambda frontier: frontier.sequence):
        out[one.revision, one.partition] = one
    return out


def _same(body: bytes, entry: SealedEntry) -> None:
    """A second publication must be the first one again."""
    if body != entry.body:
        msg = (
            f"incident: {entry.key} was published twice with different contents: two noisy views of the same counts. "
            "Nothing of it is shown; keep both, stop publishing, and find out where the second one came from"
        )
        raise DataLossError(msg)


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
