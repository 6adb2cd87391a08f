"""Publishes sealed sketches: the bytes of frontiers, the publisher to a folder, and publishing to two destinations.

In: sealed entries and frontiers. Out: files that anyone may read. Touches: the folder of sealed sketches.

    <sketch>/r<revision>/<start>/p00000.sealed      one sealed sketch; <start> as 20130101T050000Z
    <sketch>/r<revision>/<start>/p00000.0000000-0000024.closed      words of closed positions, first to stop
    <sketch>/r<revision>/<start>/p00000.20130101T051000Z.early      a release from the open window, and its watermark
    <sketch>/r<revision>/frontier.p00000.json       how far partition 0 has published
    <sketch>/r<revision>/boundary/0000001.json      claims of history and live windows, the largest number counts

A sealed file never changes: writing the same bytes again is allowed, writing other bytes is an incident.

A process that is killed while writing leaves a temporary file. Its content is in a committed outbox, so the next owner
of the partition writes the same file again, and removes the temporaries of exactly that file. It does not touch the
files of other partitions, which have other names, nor temporaries that a running process holds locked.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sketchstream import files
from sketchstream.errors import ConfigError, DataLossError, FormatError
from sketchstream.stream.interfaces import Frontier, Publisher, SealedEntry
from sketchstream.stream.published import frontiers
from sketchstream.stream.windows.boundary import Boundary, Claim
from sketchstream.stream.windows.calendar import iso

SEALED_NAME = re.compile(r"p(\d{5,})\.sealed")
CLOSED_NAME = re.compile(r"p(\d{5,})\.(\d{7,})-(\d{7,})\.closed")
EARLY_NAME = re.compile(r"p(\d{5,})\.(\d{8}T[\d.]+Z)\.early")
FRONTIER_NAME = re.compile(r"frontier\.p(\d{5,})\.json")
REVISION_NAME = re.compile(r"r(\d{1,9})")
BOUNDARY_NAME = re.compile(r"(\d{7,18})\.json")
MAX_FRONTIER_BYTES = 1 << 22
"""Most bytes of a file that holds a frontier; they have some kilobytes."""
_NAMES = ("sketch", "revision", "partition")


def encode_frontier(frontier: Frontier) -> bytes:
    """Canonical JSON: equal frontiers give equal bytes.

    Examples:
        >>> decode_frontier(encode_frontier(Frontier("hourly", 0, 3, 7200000, 16, 2))).partition
        3
    """
    named = {name: getattr(frontier, name) for name in _NAMES}
    fields = {**named, "partial_through": frontier.partial.through, **frontiers.plain_frontier(frontier)}
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def decode_frontier(data: bytes) -> Frontier:
    """The frontier that `encode_frontier` wrote.

    Raises:
        FormatError: these bytes are not one.
    """
    try:
        fields = json.loads(data)
        sketch, revision, partition = (fields[name] for name in _NAMES)
        frontier = frontiers.read(sketch, revision, partition, fields)
        good = isinstance(sketch, str) and "partial_through" in fields and fields.keys() <= {*_NAMES, *frontiers.NAMES}
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        good = False
    if not good:
        raise FormatError("these bytes are not a frontier of this version")
    return frontier.plausible()


def start_name(start_ms: int) -> str:
    """A window's start as the name of a folder."""
    return iso(start_ms).replace("-", "").replace(":", "")


def file_name(entry: SealedEntry) -> str:
    """Name of an entry's file in the folder of its window."""
    if entry.early is not None:
        return f"p{entry.partition:05d}.{start_name(entry.early)}.early"
    if entry.positions is None:
        return f"p{entry.partition:05d}.sealed"
    first, stop = entry.positions
    return f"p{entry.partition:05d}.{first:07d}-{stop:07d}.closed"


def require_folder(root: Path) -> None:
    """Require that sealed sketches can be written to this folder, which need not be there yet.

    Raises:
        ConfigError: no folder can be there.
    """
    there = next(path for path in (root, *root.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        found = "is a folder that this user cannot write to" if there.is_dir() else "is a file"
        raise ConfigError(f"output.directory must be a folder, or where one can be made, but {there} {found}")


class DirectoryPublisher:
    """A `Publisher` that publishes to a folder.

    Args:
        root: folder of sealed sketches, made when something is published.

    Raises:
        ConfigError: no folder can be there.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        require_folder(self.root)
        self._swept: set[Path] = set()

    def _folder(self, sketch: str, revision: int) -> Path:
        return self.root / sketch / f"r{revision}"

    def publish(self, partition: int, entries: Sequence[SealedEntry], frontiers: Sequence[Frontier]) -> None:
        """Write entries, then the frontiers that cover them. See `Publisher.publish`."""
        with files.os_errors_as(f"cannot publish to {self.root}"):
            for entry in entries:
                self._publish_entry(entry)
            for frontier in frontiers:
                self._publish_frontier(frontier)

    def _publish_entry(self, entry: SealedEntry) -> None:
        folder = self._folder(entry.sketch, entry.revision) / start_name(entry.window[0])
        files.make_folder(folder)
        path = folder / file_name(entry)
        written = files.write_new(path, entry.body, mode=files.PUBLIC, step="sealed")
        if not written and path.read_bytes() != entry.body:
            raise DataLossError(
                f"{path} holds another publication of the same window: two noisy views of the same counts must not "
                "both be published; keep the file, find out where it came from, or use another output.directory"
            )

    def _publish_frontier(self, frontier: Frontier) -> None:
        folder = self._folder(frontier.sketch, frontier.revision)
        files.make_folder(folder)
        path = folder / f"frontier.p{frontier.partition:05d}.json"
        if path not in self._swept:  # only once: the folder has a folder for every window
            files.sweep(path, secret=False)
            self._swept.add(path)
        try:
            if decode_frontier(path.read_bytes()).sequence >= frontier.sequence:
                return
        except (FileNotFoundError, FormatError):
            pass
        files.write_durably(path, encode_frontier(frontier), mode=files.PUBLIC, replace=True, step="frontier")

    def settle(self, sketch: str, revision: int, claim: Claim) -> Boundary:
        """Write the next file, unless another process did: then claim anew. See `Publisher.settle`."""
        folder = self._folder(sketch, revision) / "boundary"
        while True:
            number, before = read_boundary(folder)
            boundary = claim(before)
            with files.reading(folder):
                if boundary == before:
                    if number:
                        files.sync_folder(folder)  # whoever wrote it may have been killed before that
                    return before
                files.make_folder(folder)
                path = folder / f"{number + 1:07d}.json"
                if files.write_new(path, boundary.encode(), mode=files.PUBLIC, step="boundary"):
                    return boundary

    def frontiers(self) -> Mapping[tuple[str, int, int], Frontier]:
        """Newest frontiers of all partitions."""
        return {
            (frontier.sketch, frontier.revision, frontier.partition): frontier for frontier in read_frontiers(self.root)
        }

    def close(self) -> None:
        """Nothing is held."""


class AllPublishers:
    """A `Publisher` that publishes to a topic and to a folder.

    Args:
        publishers: publishers in order of publication; frontiers are read from the first one.
        settle: adds claims to the boundary of a history; None: the first publisher does.
        before_close: called in this order before the publishers are closed.
    """

    def __init__(
        self,
        publishers: Sequence[Publisher],
        settle: Callable[[str, int, Claim], Boundary] | None = None,
        before_close: Sequence[Callable[[], None]] = (),
    ) -> None:
        self._publishers = tuple(publishers)
        self.settle = settle or publishers[0].settle
        self._before_close = tuple(before_close)

    def publish(self, partition: int, entries: Sequence[SealedEntry], frontiers: Sequence[Frontier]) -> None:
        """Publish to each."""
        for publisher in self._publishers:
            publisher.publish(partition, entries, frontiers)

    def frontiers(self) -> Mapping[tuple[str, int, int], Frontier]:
        """Frontiers of the first publisher."""
        return self._publishers[0].frontiers()

    def close(self) -> None:
        """Close each."""
        for close in (*self._before_close, *(publisher.close for publisher in self._publishers)):
            close()


def read_boundary(folder: Path) -> tuple[int, Boundary]:
    """The newest claims in a folder, and their number; 0 and no claims where there are none.

    Raises:
        StoreError: they cannot be read.
        DataLossError: they are damaged: nobody knows which windows are whose.
    """
    with files.reading(folder):
        try:
            names = [path.name for path in folder.iterdir()]
        except FileNotFoundError:
            return 0, Boundary()
    number = max((int(match[1]) for name in names if (match := BOUNDARY_NAME.fullmatch(name))), default=0)
    if not number:
        return 0, Boundary()
    path = folder / f"{number:07d}.json"
    with files.reading(path):
        try:
            return number, Boundary.decode(read_regular(path, MAX_FRONTIER_BYTES))
        except FormatError as error:
            raise DataLossError(
                f"{path}: {error}; put it back from a copy, or begin a new revision with `sketchstream reset`"
            ) from None


def read_frontiers(root: Path, sketch: str | None = None) -> list[Frontier]:
    """Frontiers in a folder of sealed sketches.

    Args:
        root: the folder.
        sketch: name of the sketch; files of others are not opened. None: all.

    Raises:
        StoreError: a file cannot be read.
        FormatError: a frontier file holds something else.
    """
    frontiers_read = []
    for path in _frontier_files(root, sketch):
        with files.reading(path), contextlib.suppress(FileNotFoundError):
            frontiers_read.append(_read_frontier(path))
    return frontiers_read


def readable_frontiers(root: Path) -> tuple[list[Frontier], list[str]]:
    """Frontiers in a folder of sealed sketches, and the problems of those that cannot be read.

    Raises:
        StoreError: the folder cannot be read.
    """
    frontiers_read, problems = [], []
    for path in _frontier_files(root, None):
        try:
            frontiers_read.append(_read_frontier(path))
        except FileNotFoundError:
            continue
        except FormatError as error:
            problems.append(str(error))
        except OSError as error:
            problems.append(f"cannot read {path}: {error.strerror}")
    return frontiers_read, problems


def _frontier_files(root: Path, sketch: str | None) -> list[Path]:
    with files.reading(root):
        paths = sorted(
            root.glob("*/r*/frontier.p*.json") if sketch is None else (root / sketch).glob("r*/frontier.p*.json")
        )
    return [path for path in paths if FRONTIER_NAME.fullmatch(path.name) and REVISION_NAME.fullmatch(path.parent.name)]


def read_regular(path: Path, max_bytes: int) -> bytes:
    """The bytes of a file, if it is one: to open a pipe or a device may take for ever, or do something.

    Args:
        path: path of the file.
        max_bytes: bytes that it may have.

    Raises:
        FormatError: it is something else, or larger.
        OSError: it cannot be read.
    """
    msg = f"{path.name} is not a file"
    if not stat.S_ISREG(path.stat().st_mode):
        raise FormatError(msg)
    # looked at again when it is open: it may have been replaced meanwhile
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise FormatError(msg)
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise FormatError(f"{path.name} has more than {max_bytes:,} bytes")
    return content


def _read_frontier(path: Path) -> Frontier:
    try:
        frontier = decode_frontier(read_regular(path, MAX_FRONTIER_BYTES))
        place = (frontier.sketch, f"r{frontier.revision}", f"frontier.p{frontier.partition:05d}.json")
        if place != (path.parent.parent.name, path.parent.name, path.name):
            raise FormatError("it holds the frontier of another sketch, revision or partition")
        return frontier
    except FormatError as error:
        raise FormatError(
            f"{path}: {error}; remove it: the owner of its partition writes it again when it publishes next"
        ) from None
