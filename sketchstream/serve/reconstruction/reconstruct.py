"""A process that reconstructs windows: reads questions from its parent, answers them, ends when its parent does.

In: frames on standard input. Out: frames on standard output. Touches: the database, reading; the configuration's lists
of items.

A frame is 8 bytes of length, big-endian, and a msgpack value. The first one from the parent is the configuration's text
with its path and the path of the database, the others are questions; each is answered by one frame.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sqlite3
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgpack

from sketchstream.config.loader import Config
from sketchstream.errors import BusyError, DataLossError, SketchstreamError
from sketchstream.query.sealed import SealedReader
from sketchstream.query.windows import PublishedWindows, Surroundings
from sketchstream.serve.reconstruction.questions import Question, compute
from sketchstream.serve.store.database import DamagedError, is_damaged, open_database
from sketchstream.serve.store.ledgers import Ledgers
from sketchstream.serve.store.source import LATEST, StoreSource
from sketchstream.serve.store.stored_windows import Computed
from sketchstream.serve.store.window_rows import longest_windows

PR_SET_PDEATHSIG: Final = 1
"""Option of prctl(2): the signal that a process gets when its parent ends."""


def send(pipe: BinaryIO, value: Mapping[str, Any]) -> None:
    """Write a frame."""
    data = msgpack.packb(value)
    pipe.write(len(data).to_bytes(8, "big") + data)
    pipe.flush()


def receive(pipe: BinaryIO) -> dict[str, Any]:
    """Read a frame.

    Raises:
        EOFError: the other side has closed the pipe.
    """
    size = int.from_bytes(_exactly(pipe, 8), "big")
    value: dict[str, Any] = msgpack.unpackb(_exactly(pipe, size), strict_map_key=False)
    return value


def _exactly(pipe: BinaryIO, size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data


class StoredSurroundings(Surroundings):
    """Surroundings that the follower stored, without open windows: answers do not depend on them.

    Args:
        connection: connection of the database.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def retention_ms(self) -> float | None:
        """Retention of the input topic, from the follower."""
        row = self._connection.execute("SELECT value FROM meta WHERE name = 'input_retention_ms'").fetchone()
        return None if row is None or not row[0] else float(row[0])


def published_in(connection: sqlite3.Connection, config: Any) -> PublishedWindows:
    """The stored publications, without those of incidents, in the form that the command line reads.

    Args:
        connection: connection of the database.
        config: configuration of the deployment.
    """
    source = StoreSource(connection, incidents=False)
    ledgers, longest = Ledgers(connection), longest_windows(config)
    return PublishedWindows(
        config,
        SealedReader(source, config.quality_rule, len(config.per_topic())),
        source,
        StoredSurroundings(connection),
        overlapping=lambda window: ledgers.overlapping(window, lambda name: longest.get(name, LATEST)),
    )


def answer(windows: PublishedWindows, job: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to one frame: the result, or the error's type and text."""
    name, span = job["sketch"], tuple(job["window"])
    try:
        matching = [window for window in windows.every(name, *span) if window.window == span]
        if not matching:
            return _failure("StoreError", f"no window of sketch {name} is published in that range")
        question = None if job["question"] is None else Question.from_dict(job["question"])
        return vars(compute(windows, matching[0], question))
    except DataLossError as error:
        return _failure("DataLossError", str(error))
    except SketchstreamError as error:
        return _failure(type(error).__name__, str(error))
    except sqlite3.Error as error:  # this says nothing of the window
        kind = DamagedError if is_damaged(error) else BusyError
        return _failure(kind.__name__, f"the database cannot be read at the moment ({type(error).__name__})")
    except Exception as error:  # the text of an unexpected error may hold data
        return _failure("", f"internal error ({type(error).__name__})")


def _failure(kind: str, text: str) -> dict[str, Any]:
    return {"error": kind, "text": text}


def read_computed(frame: Mapping[str, Any]) -> Computed:
    """Read the answer in a frame."""
    return Computed(**{**frame, "points": {name: tuple(ends) for name, ends in frame["points"].items()}})


def _end_with_parent() -> None:
    """Have the system end this process with its parent, whatever it computes then. Linux only."""
    with contextlib.suppress(OSError, AttributeError):
        parent = os.getppid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def main() -> None:
    """Answer until standard input ends."""
    warnings.simplefilter("ignore")
    _end_with_parent()
    pipe_in, pipe_out = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints does not end up between frames
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        hello = receive(pipe_in)
        config = Config.parse(hello["text"], hello["path"], os.environ)
        windows = published_in(open_database(Path(hello["database"])), config)
        send(pipe_out, {"ready": True})
        while True:
            job = receive(pipe_in)
            send(pipe_out, answer(windows.without_caches(), job))


if __name__ == "__main__":
    main()
