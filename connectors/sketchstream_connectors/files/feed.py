"""Follows a folder of sealed sketches.

In: the folder that `DirectoryPublisher` writes. Out: batches, as a `Feed`. Touches: the files of that folder, which it
only reads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from sketchstream.errors import FormatError, StoreError
from sketchstream.serve.feed import Batch, Unreadable
from sketchstream.stream.interfaces import Frontier, SealedEntry
from sketchstream.stream.windows import iso
from sketchstream_connectors.files.publisher import (
    CLOSED_NAME,
    REVISION_NAME,
    SEALED_NAME,
    file_name,
    read_frontiers,
)
from sketchstream_connectors.files.sealed import describe, describe_instalment, start_ms

FILES: Final = 512
"""Files of one batch."""


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
        """All frontiers."""
        return read_frontiers(self.root)

    def read(self, positions: Mapping[str, str]) -> Iterator[Batch]:
        """Files that are new or have changed, oldest windows first, then the frontiers as they were before."""
        frontiers = self.newest()  # first, so that all that they cover exists
        if self._seen is None:
            self._seen = dict(positions)
        seen = self._seen
        new = sorted(one for one in self._files() if seen.get(one[1]) != one[2])
        for at in range(0, len(new), FILES):
            entries: list[SealedEntry] = []
            unreadable: list[Unreadable] = []
            read: dict[str, str] = {}
            for start, name, mark in new[at : at + FILES]:
                try:
                    body = (self.root / name).read_bytes()
                except FileNotFoundError:
                    continue
                except OSError as error:
                    msg = f"cannot read {self.root / name}: {error.strerror}"
                    raise StoreError(msg) from error
                try:
                    entries.append(_entry(body, name))
                except FormatError as error:
                    unreadable.append(Unreadable(name.split("/", 1)[0], start, str(error)))
                read[name] = mark
            seen |= read
            yield Batch(entries=entries, unreadable=unreadable, positions=read, behind=len(new) - at - len(read))
        yield Batch(frontiers=frontiers)

    def _files(self) -> Iterator[tuple[int, str, str]]:
        """Window start (ms), path below the root, and mark of every sealed file."""
        try:
            for sketch in _folders(self.root):
                for revision in _folders(sketch):
                    if not REVISION_NAME.fullmatch(revision.name):
                        continue
                    for window in _folders(revision):
                        start = start_ms(window.name)
                        if start is None:
                            continue
                        for file in os.scandir(window.path):
                            if SEALED_NAME.fullmatch(file.name) or CLOSED_NAME.fullmatch(file.name):
                                about = file.stat()
                                name = f"{sketch.name}/{revision.name}/{window.name}/{file.name}"
                                yield start, name, f"{about.st_size} {about.st_mtime_ns} {about.st_ino}"
        except FileNotFoundError:
            return
        except OSError as error:
            msg = f"cannot read {self.root}: {error.strerror}"
            raise StoreError(msg) from error

    def close(self) -> None:
        """Nothing is held."""


def _folders(path: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    return sorted((entry for entry in os.scandir(path) if entry.is_dir()), key=lambda entry: entry.name)


def _entry(body: bytes, name: str) -> SealedEntry:
    """The entry in a file: a sealed sketch, or positions that have closed.

    Raises:
        FormatError: it is invalid, or does not match its path.
    """
    sketch, revision, start, file = name.split("/")
    entry = describe_instalment(body, name) if CLOSED_NAME.fullmatch(file) else describe(body, name)
    found = (entry.sketch, f"r{entry.revision}", start_ms(start), file_name(entry))
    if found != (sketch, revision, entry.window[0], file):
        msg = f"{name} holds another sketch than its name says: {entry.sketch} of {iso(entry.window[0])}"
        raise FormatError(msg)
    return entry
