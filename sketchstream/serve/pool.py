"""A bounded pool of processes that reconstruct windows: awaited ones first, then the newest.

In: questions, and windows of the store with something left to compute. Out: answers, for the store and requests.
Touches: child processes, the store.

Processes, not threads: a reconstruction is partly Python, and would hold up every request of this process; and a
process can be ended at the deadline.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sketchstream import errors
from sketchstream.errors import BusyError, DeadlineError, SketchstreamError, StoreError
from sketchstream.query.sealed import Span
from sketchstream.serve.questions import Question
from sketchstream.serve.reconstruct import read_computed, receive, send
from sketchstream.serve.store import GUARANTEE, Computed, Store, StoredWindow

log = logging.getLogger("sketchstream.serve")

WAITING: Final = 64
"""Most questions that wait; more are refused."""
START_S: Final = 120.0
"""Most time that a process may take to start: it compiles what is not in the cache."""
RECENT: Final = 50
"""Reconstructions by which the rate is measured."""
CARRYING: Final = (errors.CorruptRecordError, errors.BudgetError)
"""Errors that are made of more than a text."""


ERRORS: Final = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, SketchstreamError) and kind not in CARRYING
}
"""Errors that a process may report, by name; others become errors of the store."""


@dataclass
class _Job:
    """One reconstruction.

    Args:
        stored: the window at the time of the request.
        question: None: only the guarantee.
        waiting: the waiting request; None: there is none.
    """

    stored: StoredWindow
    question: Question | None
    waiting: Future[Computed] | None = field(default=None, repr=False)

    @property
    def place(self) -> tuple[str, Span]:
        return self.stored.sketch, self.stored.window


class Child:
    """One process.

    Args:
        hello: its first frame.
        deadline_s: most seconds of one answer.
    """

    def __init__(self, hello: Mapping[str, Any], deadline_s: float) -> None:
        self._deadline_s = deadline_s
        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sketchstream.serve.reconstruct"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("SKETCHSTREAM_TRACEBACK") else subprocess.DEVNULL,
            env=os.environ | single,
            start_new_session=True,  # an interrupt from the keyboard is for the parent, which ends it in order
        )
        try:
            self._exchange(hello, START_S)
        except BaseException:
            self.close()
            raise

    def ask(self, frame: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one frame.

        Raises:
            DeadlineError: it took too long; the process is gone.
            EOFError, BrokenPipeError: the process has gone.
        """
        return self._exchange(frame, self._deadline_s)

    def _exchange(self, frame: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            send(self._process.stdin, frame)  # type: ignore[arg-type]
            return receive(self._process.stdout)  # type: ignore[arg-type]
        except (EOFError, OSError):
            if late.is_set():
                msg = f"the reconstruction took longer than serve.deadline ({seconds:g} s)"
                raise DeadlineError(msg) from None
            raise
        finally:
            timer.cancel()

    def close(self) -> None:
        """End it."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.wait()


class Pool:
    """Reconstructs windows of a store.

    Args:
        store: the store.
        text: of the configuration file.
        processes: number of processes.
        deadline_s: most seconds of one reconstruction.
    """

    def __init__(self, store: Store, text: str, processes: int, deadline_s: float) -> None:
        self._store = store
        self._hello = {"text": text, "path": str(store.config.path), "database": str(Path(store.path).absolute())}
        self._deadline_s = deadline_s
        self.processes = processes
        self._changed = threading.Condition()
        self._asked: deque[_Job] = deque()
        self._running: list[_Job] = []
        self._by_name: dict[tuple[str, Span, int, str], Future[Computed]] = {}
        self._done: deque[float] = deque(maxlen=RECENT)
        self._children: set[Child] = set()
        self._closed = False
        self.computed = 0
        self.failed = 0
        self._threads = [
            threading.Thread(target=self._work, name=f"sketchstream-reconstruct-{number}", daemon=True)
            for number in range(processes)
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Notify the pool that the store has changed."""
        with self._changed:
            self._changed.notify_all()

    def ask(self, stored: StoredWindow, question: Question | None) -> Future[Computed]:
        """The answer of a window, as soon as there is one; equal questions are answered together.

        Args:
            stored: the window.
            question: question to the window; None: only the guarantee is wanted, and the numbers are empty.

        Raises:
            BusyError: too many questions wait.
        """
        name = (stored.sketch, stored.window, stored.version, "guarantee" if question is None else question.text)
        with self._changed:
            known = self._by_name.get(name)
            if known is not None:
                return known
            if len(self._asked) >= WAITING or self._closed:
                msg = f"{len(self._asked)} questions are waiting already: ask again later"
                raise BusyError(msg)
            future: Future[Computed] = Future()
            self._by_name[name] = future
            self._asked.append(_Job(stored, question, future))
            self._changed.notify()
        future.add_done_callback(lambda _: self._forget(name))
        return future

    def _forget(self, name: tuple[str, Span, int, str]) -> None:
        with self._changed:
            self._by_name.pop(name, None)

    def rate(self) -> float | None:
        """Reconstructions a second lately; None before there were any."""
        with self._changed:
            times = list(self._done)
        if len(times) < 2:
            return None
        return (len(times) - 1) / max(times[-1] - times[0], 1e-9)

    def _next(self) -> _Job | None:
        """The next job: an awaited one, else the newest window; None: the pool is closed."""
        with self._changed:
            while not self._closed:
                if self._asked:
                    job = self._asked.popleft()
                    self._running.append(job)
                    return job
                stored = self._store.next_todo([job.place for job in self._running if job.waiting is None])
                if stored is not None:
                    job = _Job(stored, None if stored.todo == GUARANTEE else Question())
                    self._running.append(job)
                    return job
                self._changed.wait(5.0)
        return None

    def _work(self) -> None:
        """One process after another, until the pool is closed."""
        child: Child | None = None
        while (job := self._next()) is not None:
            try:
                for attempt in (0, 1):
                    try:
                        if child is None:
                            child = Child(self._hello, self._deadline_s)
                            self._children.add(child)
                        self._do(child, job)
                        break
                    except (EOFError, OSError, DeadlineError) as error:
                        if child is not None:
                            self._children.discard(child)
                            child.close()
                            child = None
                        if isinstance(error, DeadlineError):
                            self._fail(job, error)
                            break
                        if attempt or self._closed:
                            msg = "the process that reconstructs this window ended: it may need more memory"
                            self._fail(job, StoreError(msg))
            except Exception as error:
                # this thread must continue: windows without an answer report it
                log.exception("event=reconstruction_failed sketch=%s", job.stored.sketch)
                if job.waiting is not None and not job.waiting.done():
                    job.waiting.set_exception(StoreError(f"internal error ({type(error).__name__})"))
                time.sleep(1.0)
            finally:
                with self._changed:
                    self._running.remove(job)
                    self._done.append(time.monotonic())
        if child is not None:
            child.close()

    def _do(self, child: Child, job: _Job) -> None:
        """One job in a process."""
        stored = job.stored
        frame = child.ask(
            {
                "sketch": stored.sketch,
                "start": stored.window[0],
                "stop": stored.window[1],
                "question": None if job.question is None else job.question.to_dict(),
            }
        )
        if "error" in frame:
            error = ERRORS.get(frame["error"], StoreError)(frame["text"])
            self._fail(job, error)
            return
        if job.question is None:
            self._store.put_guarantee(stored, frame["guarantee"])
            if job.waiting is not None:
                job.waiting.set_result(Computed(b"", b"", frame["guarantee"]))
            return
        computed = read_computed(frame)
        self.computed += 1
        if not job.question.names_items:
            self._store.put_answer(stored, job.question.text, computed, special=job.question.special)
        if job.waiting is not None:
            job.waiting.set_result(computed)

    def _fail(self, job: _Job, error: SketchstreamError) -> None:
        """Report a failure to waiting requests, and to the store for the usual question."""
        self.failed += 1
        if job.question is None or not job.question.text:
            self._store.put_failure(job.stored, str(error))
        if job.waiting is not None:
            job.waiting.set_exception(error)

    def close(self) -> None:
        """End the processes and notify waiting requests."""
        with self._changed:
            self._closed = True
            waiting = list(self._asked)
            self._asked.clear()
            self._changed.notify_all()
        for job in waiting:
            if job.waiting is not None:
                job.waiting.set_exception(StoreError("the service is stopping: ask again later"))
        for child in list(self._children):
            child._process.kill()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=10)
