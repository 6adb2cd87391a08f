"""Reads published sealed sketches from a folder.

In: the folder that `DirectoryPublisher` writes. Out: frontiers and sealed entries, as a `SealedSource`. Touches: the
files of that folder, which it only reads.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from sketchstream import wire
from sketchstream.errors import FormatError, StoreError
from sketchstream.kinds.expansion import limit_bytes
from sketchstream.published import Instalment, Origin, well_formed
from sketchstream.stream.interfaces import Deleted, Frontier, SealedEntry
from sketchstream.stream.windows.windows import within
from sketchstream_connectors.files.publisher import (
    CLOSED_NAME,
    EARLY_NAME,
    REVISION_NAME,
    SEALED_NAME,
    read_frontiers,
    read_regular,
    start_name,
)


class DirectorySealed:
    """Sealed sketches in a folder, as `DirectoryPublisher` writes them. A `SealedSource`.

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
        # names of folders sort as the times that they are
        first, last = ("" if since is None else start_name(since)), (None if until is None else start_name(until))
        with self._reading():
            for name in self.sketches() if sketch is None else [sketch]:
                if not re.fullmatch(r"[a-z0-9][a-z0-9_.-]*", name):
                    continue
                found = []
                for path in (self.root / name).glob("r*/*/p*.sealed"):
                    revision = REVISION_NAME.fullmatch(path.parent.parent.name)
                    partition = SEALED_NAME.fullmatch(path.name)
                    start = path.parent.name
                    if revision and partition and start >= first and (last is None or start < last):
                        found.append((start, int(revision[1]), int(partition[1]), path))
                for start, number, at, path in sorted(found):
                    entry = describe(read_regular(path, limit_bytes()), str(path))
                    said = (entry.sketch, entry.revision, start_name(entry.window[0]), entry.partition)
                    if said != (name, number, start, at):
                        msg = f"{path} holds another sketch than its name says"
                        raise FormatError(msg)
                    if within(entry.window, since, until):
                        yield entry

    def closed(self, sketch: str, since: int | None = None, until: int | None = None) -> Iterator[SealedEntry]:
        """Instalments of closed positions. See `SealedSource.closed`.

        Raises:
            StoreError: a file cannot be read.
            FormatError: the content of a file does not match its name.
        """
        found = []
        with self._reading():
            for path in (self.root / sketch).glob("r*/*/p*.closed"):
                named = CLOSED_NAME.fullmatch(path.name)
                revision = REVISION_NAME.fullmatch(path.parent.parent.name)
                if named and revision:
                    found.append((path.parent.name, int(named[1]), int(named[2]), int(named[3]), path))
            for start, partition, first, stop, path in sorted(found):
                entry = describe_instalment(read_regular(path, limit_bytes()), f"{path}")
                said = (start_name(entry.window[0]), entry.partition, *(entry.positions or ()), entry.sketch)
                if said != (start, partition, first, stop, sketch):
                    msg = f"{path} holds other positions than its name says"
                    raise FormatError(msg)
                if within(entry.window, since, until):
                    yield entry

    def early(self, sketch: str, since: int | None = None, until: int | None = None) -> Iterator[SealedEntry]:
        """Releases from windows that were still open. See `SealedSource.early`.

        Raises:
            StoreError: a file cannot be read.
            FormatError: the content of a file does not match its name.
        """
        found = []
        with self._reading():
            for path in (self.root / sketch).glob("r*/*/p*.early"):
                named = EARLY_NAME.fullmatch(path.name)
                revision = REVISION_NAME.fullmatch(path.parent.parent.name)
                time = start_ms(named[2]) if named else None
                if named and revision and time is not None:
                    found.append((path.parent.name, time, int(named[1]), path))
            for start, time, partition, path in sorted(found):
                entry = replace(describe(read_regular(path, limit_bytes()), str(path)), early=time)
                if (start_name(entry.window[0]), entry.partition, entry.sketch) != (start, partition, sketch):
                    msg = f"{path} holds another release than its name says"
                    raise FormatError(msg)
                if within(entry.window, since, until):
                    yield entry

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """While files are read, a failure of the system is a StoreError."""
        try:
            yield
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            msg = f"cannot read {self.root}: {error.strerror}"
            raise StoreError(msg) from error

    def close(self) -> None:
        """Nothing is held."""


def describe(body: bytes, where: str) -> SealedEntry:
    """Describe sealed bytes as an entry, from their header; the counters are decoded only when needed.

    Args:
        body: bytes of a published sketch.
        where: their name in errors.

    Raises:
        FormatError: they are not those of one sealed window of one partition.
    """
    fields = wire.unpack_header(body)
    if fields["kind"] not in ("release", "sealed-state"):
        msg = f"{where} is not one sealed sketch"
        raise FormatError(msg)
    with well_formed():
        origin, seal_id = Origin.from_dict(fields), fields["seal_id"]
    if origin.window is None or origin.partition is None:
        msg = f"{where} was not sealed by a worker: it has no window"
        raise FormatError(msg)
    return SealedEntry(origin.name, origin.revision, origin.window, origin.partition, seal_id, body)


def describe_instalment(body: bytes, where: str) -> SealedEntry:
    """The entry that an instalment's bytes are, from their own header.

    Raises:
        FormatError: they are not those of closed positions of one window of one partition.
    """
    one = Instalment.from_bytes(body)
    origin = one.origin
    if origin.window is None or origin.partition is None:
        msg = f"{where} was not published by a worker: it has no window"
        raise FormatError(msg)
    place = (origin.name, origin.revision, origin.window, origin.partition)
    return SealedEntry(*place, one.seal_id, body, (one.first, one.stop))


def start_ms(name: str) -> int | None:
    """The start of a window, ms, from the name of its folder (`start_name`); None for other names."""
    for form in ("%Y%m%dT%H%M%SZ", "%Y%m%dT%H%M%S.%fZ"):
        try:
            when = datetime.strptime(name, form).replace(tzinfo=UTC)
        except ValueError:
            continue
        return round(when.timestamp() * 1000)
    return None
