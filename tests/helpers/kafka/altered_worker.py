"""A worker whose clock jumps, or that is of a newer release.

In: what is altered: `clock`, the name of a file with seconds by which the clock is wrong, see `set_clock`, or
`release`. Out: nothing. Touches: the process that it is installed in.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Mapping
from pathlib import Path

SECONDS = struct.Struct("d")


def install(altered: Mapping[str, str]) -> None:
    """Alter this process before its worker begins."""
    if "clock" in altered:
        _jumping_clock(Path(altered["clock"]))
    if "release" in altered:
        _newer_release()


def set_clock(file: Path, seconds: float) -> None:
    """Let the clock of the workers that look at this file be ahead of the machine's by so many seconds."""
    with file.open("r+b" if file.exists() else "w+b") as handle:
        handle.write(SECONDS.pack(seconds))


def _jumping_clock(file: Path) -> None:
    """Let all code in Python see a wall clock that is wrong; the monotonic clock and the order of ticks stay."""
    with file.open("rb") as handle:
        shared = mmap.mmap(handle.fileno(), SECONDS.size, access=mmap.ACCESS_READ)
    seconds, nanoseconds = time.time, time.time_ns

    def ahead() -> float:
        return float(SECONDS.unpack(shared[:])[0])

    time.time = lambda: seconds() + ahead()
    time.time_ns = lambda: nanoseconds() + round(ahead() * 1e9)


def _newer_release() -> None:
    """Write snapshots in a format that comes after today's, and read all up to it."""
    from sketchstream.stream.state import checkpoint

    checkpoint.MANIFEST_FORMAT = checkpoint.EARLY_FORMAT = checkpoint.EARLY_FORMAT + 1  # type: ignore[misc]
