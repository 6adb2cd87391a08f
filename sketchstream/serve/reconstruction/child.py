"""One process that reconstructs windows, as its parent sees it.

In: questions as frames. Out: answers as frames. Touches: a child process and its two pipes.

A process can be ended whatever it does: at the deadline, when nobody waits any more, and when the service ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgpack

from sketchstream.errors import DeadlineError

START_S: Final = 120.0
"""Seconds that a process may take to start: it compiles what is not in the cache."""
LOOK_S: Final = 0.5
"""Seconds between two looks whether anybody still waits for the answer to a running question."""


class AbandonedError(Exception):
    """Nobody waits for an answer any more, so its process was ended."""


class Child:
    """One process.

    Args:
        hello: first frame that the process gets.
        deadline_s: most seconds of one answer.
        rebuilds: number of times that the database was rebuilt before this process opens it.
    """

    def __init__(self, hello: Mapping[str, Any], deadline_s: float, rebuilds: int) -> None:
        self._deadline_s = deadline_s
        self.rebuilds = rebuilds
        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sketchstream.serve.reconstruction.reconstruct"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            stderr=None if os.environ.get("SKETCHSTREAM_TRACEBACK") else subprocess.DEVNULL,
            env=os.environ | single,
            start_new_session=True,  # an interrupt from the keyboard is for the parent, which ends it in order
        )
        try:
            assert self._process.stdin is not None
            os.set_blocking(self._process.stdin.fileno(), False)
            self._exchange(hello, START_S, lambda: False)
        except BaseException:
            self.close()
            raise

    def ask(self, frame: Mapping[str, Any], abandoned: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        """The answer to one frame.

        Args:
            frame: the question.
            abandoned: whether nobody waits for the answer any more.

        Raises:
            DeadlineError: it took too long; the process was ended.
            AbandonedError: nobody waits any more; the process was ended.
            EOFError, BrokenPipeError: the process has ended.
        """
        return self._exchange(frame, self._deadline_s, abandoned)

    def _exchange(self, frame: Mapping[str, Any], seconds: float, abandoned: Callable[[], bool]) -> dict[str, Any]:
        """Write a frame and read one, without ever waiting for longer than `LOOK_S` at a time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        until = time.monotonic() + seconds
        data = msgpack.packb(frame)
        unsent = memoryview(len(data).to_bytes(8, "big") + data)
        incoming, outgoing = self._process.stdout.fileno(), self._process.stdin.fileno()
        received, expected = bytearray(), 8
        poll = select.poll()
        poll.register(incoming, select.POLLIN)
        poll.register(outgoing, select.POLLOUT)
        while len(received) < expected:
            left = until - time.monotonic()
            if left <= 0:
                self._process.kill()
                raise DeadlineError(f"the reconstruction took longer than serve.deadline ({seconds:g} s)")
            if abandoned():
                self._process.kill()
                raise AbandonedError
            for descriptor, event in poll.poll(1000 * min(left, LOOK_S)):
                if descriptor == outgoing and unsent:
                    with contextlib.suppress(BlockingIOError):
                        unsent = unsent[os.write(outgoing, unsent[: select.PIPE_BUF]) :]
                    if not unsent:
                        poll.unregister(outgoing)
                elif descriptor == incoming and event & (select.POLLIN | select.POLLHUP):
                    part = os.read(incoming, min(expected - len(received), 1 << 20))
                    if not part:
                        raise EOFError
                    received += part
                    if len(received) == 8 == expected:
                        expected += int.from_bytes(received, "big")
        answer: dict[str, Any] = msgpack.unpackb(memoryview(received)[8:], strict_map_key=False)
        return answer

    def kill(self) -> None:
        """End the process; callers that wait for it are notified."""
        self._process.kill()

    def close(self) -> None:
        """End the process, and close its pipes."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.wait()
