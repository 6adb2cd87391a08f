"""A bounded pool of processes that reconstruct windows: awaited ones first, then the newest.

In: questions, and windows of the store with something left to compute. Out: answers, for the store and requests.
Touches: child processes, the store.

Processes, not threads: a reconstruction is partly Python, and would hold up every request of this process; and a
process can be ended at the deadline. The pools of libraries (concurrent.futures, pebble) could do that too, but
unpickle in the parent whatever a child returns, and these children read untrusted bytes: here they return msgpack,
within limits.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from concurrent.futures import Future
from pathlib import Path
from typing import Final

from sketchstream import errors
from sketchstream.errors import BusyError, DeadlineError, SketchstreamError, StoreError
from sketchstream.log_events import EventLog
from sketchstream.serve.clients.clients import CLIENT
from sketchstream.serve.clients.fair_queue import FairQueue
from sketchstream.serve.recent import RecentlyUsed
from sketchstream.serve.reconstruction.child import AbandonedError, Child
from sketchstream.serve.reconstruction.job import JobName, ReconstructionJob
from sketchstream.serve.reconstruction.questions import Question
from sketchstream.serve.reconstruction.reconstruct import read_computed
from sketchstream.serve.store.database import DamagedError
from sketchstream.serve.store.store import Store
from sketchstream.serve.store.stored_windows import GUARANTEE, Computed, StoredWindow
from sketchstream.stream.monitoring.histogram import Histogram

event_log = EventLog("sketchstream.serve")

RECENT: Final = 50
"""Number of newest reconstructions by which the rate is measured."""
PAUSE_S: Final = 1.0
"""Seconds that a thread waits after an unexpected error."""
RETRY_S: Final = 30.0
"""Seconds after an answer could not be stored, before others are computed that nobody waits for."""
REFUSED: Final = 1000
"""Most questions without an answer of which the reason is kept in memory."""
UNSTORED_BYTES: Final = 64 * 2**20
"""Most bytes of answers that could not be stored and are kept in memory."""
RESTART_S: Final = 2.0
"""Seconds of work after which a process is ended if nobody waits for its answer: about what a start takes."""
ERRORS_WITH_FIELDS: Final = (errors.CorruptRecordError, errors.BudgetError)
"""Errors that are not made from a text alone."""
ERRORS: Final = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, SketchstreamError) and kind not in ERRORS_WITH_FIELDS
}
"""Errors that a process may report, by name; others become errors of the store."""


class Pool:
    """Reconstructs windows of a store.

    Args:
        store: the store.
        text: text of the configuration file.
        processes: number of processes.
        deadline_s: most seconds of one reconstruction.
    """

    def __init__(self, store: Store, text: str, processes: int, deadline_s: float) -> None:
        self._store = store
        self._hello = {"text": text, "path": str(store.config.path), "database": str(Path(store.path).absolute())}
        self._deadline_s = deadline_s
        self.processes = processes
        self._changed = threading.Condition()
        self._asked = FairQueue[ReconstructionJob]()
        self._running: list[ReconstructionJob] = []
        self._by_name: dict[JobName, ReconstructionJob] = {}
        self._by_future: dict[Future[Computed], ReconstructionJob] = {}
        self._unstored: OrderedDict[JobName, tuple[ReconstructionJob, Computed]] = OrderedDict()
        self._refused = RecentlyUsed[tuple[bytes, str], str](REFUSED)
        self._retry_at = 0.0
        self._done: deque[float] = deque(maxlen=RECENT)
        self._children: set[Child] = set()
        self._closed = False
        self.computed = 0
        self.failed = 0
        self.abandoned = 0
        self.times = Histogram()
        """How long answers took to compute."""
        self.error: str | None = None
        """Why nothing can be computed at the moment; None if it can."""
        self.threads = [
            threading.Thread(target=self._work, name=f"sketchstream-reconstruct-{number}", daemon=True)
            for number in range(processes)
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self.threads:
            thread.start()

    def wake(self) -> None:
        """Notify the pool that the store has changed."""
        with self._changed:
            self._changed.notify_all()

    @property
    def waiting(self) -> int:
        """Questions that wait to be computed."""
        with self._changed:
            return len(self._asked)

    @property
    def running(self) -> int:
        """Number of reconstructions that run."""
        with self._changed:
            return len(self._running)

    def ask(self, stored: StoredWindow, question: Question | None) -> Future[Computed]:
        """Have a question answered before windows that nobody asked for. A caller that stops waiting calls `leave`.

        Args:
            stored: the window.
            question: question to the window; None: only the guarantee is wanted, and the numbers are empty.

        Raises:
            BusyError: too many questions wait.
        """
        wanted = ReconstructionJob(stored, question)
        with self._changed:
            if self._closed:
                raise BusyError("the service is stopping: ask again later")
            unstored = self._unstored.get(wanted.name)
            if unstored is not None:
                wanted.succeed(unstored[1])
                return wanted.future
            job = self._by_name.get(wanted.name, wanted)
            if job.started is None:
                lost = self._asked.put(job, CLIENT.get())
                if lost is not None:
                    self._forget(lost)
                    lost.fail(BusyError("others wait for fewer answers than you: ask again later"))
            self._by_name[job.name] = self._by_future[job.future] = job
            job.waiting += 1
            self._changed.notify()
        return job.future

    def leave(self, future: Future[Computed]) -> None:
        """Note that a client does not wait for the result any more: what no client waits for is not computed."""
        with self._changed:
            job = self._by_future.get(future)
            if job is None:
                return
            job.waiting -= 1
            if job.abandoned and job.started is None:
                self._asked.remove(job)
                self._forget(job)
                self.abandoned += 1

    def _forget(self, job: ReconstructionJob) -> None:
        self._by_name.pop(job.name, None)
        self._by_future.pop(job.future, None)

    def rate(self) -> float | None:
        """Reconstructions a second lately; None before there were any."""
        with self._changed:
            times = list(self._done)
        if len(times) < 2:
            return None
        return (len(times) - 1) / max(times[-1] - times[0], 1e-9)

    def _next(self) -> ReconstructionJob | None:
        """The next job: an awaited one, else the newest window; None: the pool is closed."""
        with self._changed:
            while not self._closed:
                job = self._asked.take()
                may_store = time.monotonic() >= self._retry_at
                if job is None and may_store:  # what is computed already has to be stored
                    job = next((job for job, _ in self._unstored.values() if job not in self._running), None)
                if job is None and may_store:
                    stored = self._store.next_todo([running.place for running in self._running if running.required])
                    self.error = None
                    if stored is not None:
                        job = ReconstructionJob(stored, None if stored.todo == GUARANTEE else Question(), required=True)
                        job = self._by_name.setdefault(job.name, job)
                        self._by_future[job.future] = job
                        job.required = True
                        if job.started is not None:  # it runs because somebody asked; look for another one
                            continue
                if job is not None:
                    job.started = time.monotonic()
                    self._running.append(job)
                    return job
                self._changed.wait(5.0)
        return None

    def _work(self) -> None:
        """Do one job after another, until the pool is closed. Nothing ends this thread before."""
        child: Child | None = None
        while not self._closed:
            job: ReconstructionJob | None = None
            try:
                job = self._next()
                if job is not None:
                    child = self._reconstruct(job, child)
                self.error = None
            except Exception as error:
                # the thread must continue: windows without an answer report it
                text = f"internal error ({type(error).__name__})"
                if self.error is None or not isinstance(error, SketchstreamError):
                    event_log.exception("reconstruction_failed")
                self.error = str(error) if isinstance(error, SketchstreamError) else text
                if job is not None:
                    job.fail(error if isinstance(error, SketchstreamError) else StoreError(text))
                time.sleep(PAUSE_S)
            finally:
                if job is not None:
                    with self._changed:
                        self._running.remove(job)
                        self._forget(job)
                        self._done.append(time.monotonic())
                        self.times.observe(time.monotonic() - (job.started or time.monotonic()))
        self._let_go(child)

    def _reconstruct(self, job: ReconstructionJob, child: Child | None) -> Child | None:
        """Do one job, in this process or a new one; return the process for the next job."""
        unstored = self._unstored.get(job.name)
        if unstored is not None:
            self._keep(job, unstored[1])
            return child
        for attempt in (0, 1):
            try:
                if child is None:
                    child = Child(self._hello, self._deadline_s, self._store.rebuilds)
                    self._children.add(child)
                self._do(child, job)
                return child
            except (EOFError, OSError, DeadlineError, AbandonedError) as error:
                if child is None and not isinstance(error, (EOFError, DeadlineError)):
                    raise  # no process can be started: this says nothing of the window
                self._let_go(child)
                child = None
                if isinstance(error, AbandonedError):
                    self.abandoned += 1
                    job.fail(BusyError("nobody waited for this any more"))
                    return None
                if isinstance(error, DeadlineError):
                    self._fail(job, error)
                    return None
                if self._closed:
                    job.fail(StoreError("the service is stopping: ask again later"))
                    return None
                if attempt:
                    self._fail(
                        job, StoreError("the process that reconstructs this window ended: it may need more memory")
                    )
        return child

    def _let_go(self, child: Child | None) -> None:
        if child is not None:
            self._children.discard(child)
            child.close()

    def _do(self, child: Child, job: ReconstructionJob) -> None:
        """Run one job in a process."""
        stored = job.stored

        def abandoned() -> bool:
            return job.abandoned and job.started is not None and time.monotonic() > job.started + RESTART_S

        question = None if job.question is None else job.question.to_dict()
        frame = child.ask({"sketch": stored.sketch, "window": stored.window, "question": question}, abandoned)
        if "error" in frame:
            if frame["error"] == DamagedError.__name__:
                self._store.note_damage(child.rebuilds)
                job.fail(DamagedError())
            else:
                self._fail(job, ERRORS.get(frame["error"], StoreError)(frame["text"]))
            return
        computed = read_computed(frame)
        self.computed += job.question is not None
        self._keep(job, computed)

    def _keep(self, job: ReconstructionJob, computed: Computed) -> None:
        """Store an answer, and give it out, whether it could be stored or not."""
        try:
            if job.question is None:
                self._store.put_guarantee(job.stored, computed)
            elif not job.question.names_items:
                self._store.put_answer(job.stored, job.question.text, computed, special=job.question.special)
        except StoreError as error:
            self._put_off(error)
            with self._changed:
                self._unstored[job.name] = job, computed
                size = sum(len(result.json) + len(result.csv) for _, result in self._unstored.values())
                while size > UNSTORED_BYTES:
                    _, (_, old) = self._unstored.popitem(last=False)
                    size -= len(old.json) + len(old.csv)
        else:
            self._unstored.pop(job.name, None)
        finally:
            job.succeed(computed)

    def _fail(self, job: ReconstructionJob, error: SketchstreamError) -> None:
        """Report a failure to waiting requests, and to the store for the usual question."""
        self.failed += 1
        question, digest = job.question, job.stored.input
        lasting = type(error) is errors.EstimateError and question is not None and bool(question.text)
        if question is not None and lasting and digest is not None and not question.names_items:
            self._refused.put((digest, question.text), str(error))
        job.fail(error)
        if (job.question is None or not job.question.text) and not isinstance(error, BusyError):
            try:
                self._store.put_failure(job.stored, str(error))
            except StoreError as not_stored:
                self._put_off(not_stored)

    def refused(self, stored: StoredWindow, question: Question) -> str | None:
        """Why this window has no answer to a question that was asked before; None: it may have one."""
        return None if stored.input is None else self._refused.get((stored.input, question.text))

    def _put_off(self, error: StoreError) -> None:
        """For a while, compute only what a client waits for, because answers cannot be stored."""
        with self._changed:
            if self._retry_at < time.monotonic():
                event_log.error("answers_not_stored", reason=error)
            self._retry_at = time.monotonic() + RETRY_S

    def restart(self) -> None:
        """End the processes, so that they open the database again; their questions go to new processes."""
        with self._changed:
            self._unstored.clear()
        for child in list(self._children):
            child.kill()

    def close(self, seconds: float = 10.0) -> None:
        """End the processes and notify waiting requests.

        Args:
            seconds: longest wait for the threads.
        """
        with self._changed:
            self._closed = True
            waiting = self._asked.clear()
            self._changed.notify_all()
        for job in waiting:
            job.fail(StoreError("the service is stopping: ask again later"))
        for child in list(self._children):
            child.kill()
        until = time.monotonic() + seconds
        for thread in self.threads:
            if thread.is_alive():
                thread.join(max(0.0, until - time.monotonic()))
