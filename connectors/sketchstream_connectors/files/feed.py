"""Follows a folder of sealed sketches.

In: the folder that `DirectoryPublisher` writes. Out: batches, as a `Feed`. Touches: the files of that folder, which it
only reads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from sketchstream.errors import FormatError
from sketchstream.files import reading
from sketchstream.kinds.expansion import limit_bytes
from sketchstream.stream.feed import FeedBatch, Unreadable
from sketchstream.stream.interfaces import Frontier, SealedEntry
from sketchstream_connectors.files.publisher import (
    CLOSED_NAME,
    EARLY_NAME,
    REVISION_NAME,
    SEALED_NAME,
    read_regular,
    readable_frontiers,
)
from sketchstream_connectors.files.sealed import read_entry, start_ms

NAMES: Final = (SEALED_NAME, CLOSED_NAME, EARLY_NAME)
FILES: Final = 512
"""Most files of one batch."""


class DirectoryFeed:
    """A `Feed` over a folder. A position is a file's path, and the size and time of the file that was read.

    Args:
        root: the folder; it may not be there yet.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()
        self._seen: dict[str, str] | None = None

    @property
    def identity(self) -> str:
        """The folder."""
        return f"folder {self.root}"

    def newest(self) -> Sequence[Frontier]:
        """All frontiers that can be read."""
        return readable_frontiers(self.root)[0]

    def read(self, positions: Mapping[str, str]) -> Iterator[FeedBatch]:
        """Files that are new or have changed, oldest windows first, then the frontiers as they were before."""
        frontiers, problems = readable_frontiers(self.root)  # first, so that all that they cover exists
        if self._seen is None or not positions:  # nothing is stored: everything is read again
            self._seen = dict(positions)
        marks = self._seen
        listing = _Listing(self.root)
        new = sorted((start, name, mark) for start, name, mark in listing.files() if marks.get(name) != mark)
        problems += listing.problems
        unread: set[tuple[str, str, int]] = set()
        for at in range(0, len(new), FILES):
            entries: list[SealedEntry] = []
            unreadable: list[Unreadable] = []
            read: dict[str, str] = {}
            for start, name, mark in new[at : at + FILES]:
                sketch, revision, _, file = name.split("/")
                try:
                    entries.append(read_entry(read_regular(self.root / name, limit_bytes()), name))
                except FormatError as error:
                    unreadable.append(Unreadable(sketch, start, str(error)))
                except OSError as error:
                    if not isinstance(error, FileNotFoundError) or (self.root / name).is_symlink():
                        problems.append(f"cannot read {self.root / name}: {error.strerror}")
                        unread.add((sketch, revision, _partition(file)))
                    continue
                read[name] = mark
            marks |= read
            yield FeedBatch(entries=entries, unreadable=unreadable, positions=read, behind=len(new) - at - len(read))
        covering = [
            frontier
            for frontier in frontiers
            if frontier.sketch not in listing.partly
            and (frontier.sketch, f"r{frontier.revision}", frontier.partition) not in unread
        ]
        yield FeedBatch(frontiers=covering, problems=problems)

    def close(self) -> None:
        """Nothing is held."""


class _Listing:
    """Sealed files below a folder.

    Args:
        root: the folder; it may not be there yet.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.problems: list[str] = []
        """Folders that cannot be read, each in words."""
        self.partly: set[str] = set()
        """Sketches of which not every file could be listed."""

    def files(self) -> Iterator[tuple[int, str, str]]:
        """Window start (ms), path below the root, and mark of every sealed file.

        Raises:
            StoreError: the root cannot be read.
        """
        with reading(self._root):
            try:
                sketches = sorted(entry.name for entry in os.scandir(self._root))
            except FileNotFoundError:
                return
        for sketch in sketches:
            for revision in self._inside(sketch, sketch):
                if not REVISION_NAME.fullmatch(revision):
                    continue
                for window in self._inside(sketch, f"{sketch}/{revision}"):
                    start = start_ms(window)
                    if start is None:
                        continue
                    for file in self._inside(sketch, f"{sketch}/{revision}/{window}"):
                        if any(names.fullmatch(file) for names in NAMES):
                            name = f"{sketch}/{revision}/{window}/{file}"
                            yield start, name, self._mark(name)

    def _inside(self, sketch: str, name: str) -> list[str]:
        """Names in a folder; none if it is something else, or has gone."""
        try:
            return sorted(entry.name for entry in os.scandir(self._root / name))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self.problems.append(f"cannot read {self._root / name}: {error.strerror}")
            self.partly.add(sketch)
            return []

    def _mark(self, name: str) -> str:
        """The size, time and number of a file; empty where there is none: reading reports why."""
        try:
            about = (self._root / name).stat()
        except OSError:
            return ""
        return f"{about.st_size} {about.st_mtime_ns} {about.st_ino}"


def _partition(file: str) -> int:
    (named,) = (match for names in NAMES if (match := names.fullmatch(file)))
    return int(named[1])
