"""Reads published sealed sketches from a folder.

In: the folder that `DirectoryPublisher` writes. Out: frontiers and sealed entries, as a `SealedSource`. Touches: the
files of that folder, which it only reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from sketchstream import wire
from sketchstream.errors import FormatError
from sketchstream.files import reading
from sketchstream.instalment import Instalment
from sketchstream.kinds.expansion import limit_bytes
from sketchstream.provenance import Origin, well_formed
from sketchstream.stream.interfaces import Deleted, Frontier, SealedEntry
from sketchstream.stream.windows.calendar import is_within, iso
from sketchstream_connectors.files.publisher import (
    CLOSED_NAME,
    EARLY_NAME,
    REVISION_NAME,
    SEALED_NAME,
    file_name,
    read_frontiers,
    read_regular,
    start_name,
)


class DirectorySealed:
    """A `SealedSource` of sealed sketches in a folder, as `DirectoryPublisher` writes them.

    Args:
        root: the folder.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    def frontiers(self, sketch: str | None = None) -> Sequence[Frontier]:
        """Newest frontier of each (sketch, revision, partition)."""
        return read_frontiers(self.root, sketch)

    def sketches(self) -> Sequence[str]:
        """Names of folders that hold a revision."""
        return sorted({path.parent.name for path in self.root.glob("*/r*") if REVISION_NAME.fullmatch(path.name)})

    def read(
        self, sketch: str | None = None, since: int | None = None, until: int | None = None
    ) -> Iterator[Frontier | SealedEntry | Deleted]:
        """Frontiers, then sealed files by ascending windows, one at a time; files outside the range are not opened.

        Raises:
            StoreError: a file cannot be read.
            FormatError: a file is not a sealed sketch, or does not match its name.
        """
        yield from self.frontiers(sketch)
        with reading(self.root):
            for name in self.sketches() if sketch is None else [sketch]:
                if re.fullmatch(r"[a-z0-9][a-z0-9_.-]*", name):
                    yield from self._entries(
                        name, SEALED_NAME, since, until, lambda number, named: (number, int(named[1]))
                    )

    def closed(self, sketch: str, since: int | None = None, until: int | None = None) -> Iterator[SealedEntry]:
        """Instalments of closed positions; raises errors as `read` does. See `SealedSource.closed`."""
        return self._entries(sketch, CLOSED_NAME, since, until, lambda _, named: tuple(map(int, named.groups())))

    def early(self, sketch: str, since: int | None = None, until: int | None = None) -> Iterator[SealedEntry]:
        """Releases from windows that were still open; raises errors as `read` does. See `SealedSource.early`."""
        return self._entries(sketch, EARLY_NAME, since, until, lambda _, named: (start_ms(named[2]), int(named[1])))

    def _entries(
        self,
        sketch: str,
        names: re.Pattern[str],
        since: int | None,
        until: int | None,
        order: Callable[[int, re.Match[str]], tuple[int | None, ...]],
    ) -> Iterator[SealedEntry]:
        """The files of one sketch with such names, earlier windows first; by their revision and name in one window.

        Files outside the range are not opened; those for which `order` knows no number are not of this format.
        """
        first, last = ("" if since is None else start_name(since)), (None if until is None else start_name(until))
        entries = []
        with reading(self.root):
            for path in (self.root / sketch).glob("r*/*/p*"):
                revision, named = REVISION_NAME.fullmatch(path.parent.parent.name), names.fullmatch(path.name)
                start = path.parent.name
                if revision and named and start >= first and (last is None or start < last):
                    entries.append((start, order(int(revision[1]), named), path))
            for _, _, path in sorted(entry for entry in entries if None not in entry[1]):
                entry = read_entry(read_regular(path, limit_bytes()), str(path))
                if is_within(entry.window, since, until):
                    yield entry

    def close(self) -> None:
        """Nothing is held."""


def read_entry(body: bytes, name: str) -> SealedEntry:
    """The entry in a file: a sealed sketch, positions that have closed, or a release from an open window.

    Raises:
        FormatError: it is invalid, or does not match its path.
    """
    sketch, revision, start, file = name.split("/")[-4:]
    entry = describe_instalment(body, name) if CLOSED_NAME.fullmatch(file) else describe(body, name)
    early = EARLY_NAME.fullmatch(file)
    if early is not None:
        entry = replace(entry, early=start_ms(early[2]))
    place = (entry.sketch, f"r{entry.revision}", start_ms(start), file_name(entry))
    if place != (sketch, revision, entry.window[0], file):
        raise FormatError(f"{name} holds another sketch than its name says: {entry.sketch} of {iso(entry.window[0])}")
    return entry


def describe(body: bytes, where: str) -> SealedEntry:
    """Describe sealed bytes as an entry, from their header; the counters are decoded only when needed.

    Args:
        body: bytes of a published sketch.
        where: name of these bytes in errors.

    Raises:
        FormatError: they are not those of one sealed window of one partition.
    """
    fields = wire.unpack_header(body)
    if fields["kind"] not in ("release", "sealed-state"):
        raise FormatError(f"{where} is not one sealed sketch")
    with well_formed():
        origin, seal_id = Origin.from_dict(fields), fields["seal_id"]
    if origin.window is None or origin.partition is None:
        raise FormatError(f"{where} was not sealed by a worker: it has no window")
    return SealedEntry(origin.name, origin.revision, origin.window, origin.partition, seal_id, body)


def describe_instalment(body: bytes, where: str) -> SealedEntry:
    """The entry that an instalment's bytes are, from their own header.

    Raises:
        FormatError: they are not those of closed positions of one window of one partition.
    """
    instalment = Instalment.from_bytes(body)
    origin = instalment.origin
    if origin.window is None or origin.partition is None:
        raise FormatError(f"{where} was not published by a worker: it has no window")
    place = (origin.name, origin.revision, origin.window, origin.partition)
    return SealedEntry(*place, instalment.seal_id, body, (instalment.first, instalment.stop))


def start_ms(name: str) -> int | None:
    """The start of a window, ms, from the name of its folder (`start_name`); None for other names."""
    for form in ("%Y%m%dT%H%M%SZ", "%Y%m%dT%H%M%S.%fZ"):
        try:
            when = datetime.strptime(name, form).replace(tzinfo=UTC)
        except ValueError:
            continue
        return round(when.timestamp() * 1000)
    return None
