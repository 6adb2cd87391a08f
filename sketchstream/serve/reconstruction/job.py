"""One reconstruction: which window and question it is of, and who waits for it.

In: a stored window, a question. Out: the job. Touches: nothing; the pool guards its jobs with its lock.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field

from sketchstream.query.sealed import Span
from sketchstream.serve.reconstruction.questions import Question
from sketchstream.serve.store.stored_windows import Computed, StoredWindow

JobName = tuple[str, Span, int, str]
"""Sketch, window, version of the window, and text of a question."""


@dataclass(eq=False)
class ReconstructionJob:
    """One reconstruction.

    Args:
        stored: the window at the time of the request.
        question: None: only the guarantee.
        waiting: number of requests that wait for the result.
        required: whether it is computed even if nobody waits: what the store lacks anyhow.
        started: monotonic time at which it began to run; None: it waits.
        future: the result.
    """

    stored: StoredWindow
    question: Question | None
    waiting: int = 0
    required: bool = False
    started: float | None = None
    future: Future[Computed] = field(default_factory=Future, repr=False)

    @property
    def place(self) -> tuple[str, Span]:
        """Sketch and window."""
        return self.stored.sketch, self.stored.window

    @property
    def name(self) -> JobName:
        """What identifies the job's result."""
        text = "guarantee" if self.question is None else self.question.text
        return self.stored.sketch, self.stored.window, self.stored.version, text

    @property
    def abandoned(self) -> bool:
        """Whether nobody waits for the job's result, and nobody needs it."""
        return not self.waiting and not self.required

    def fail(self, error: Exception) -> None:
        """Give an error to all that wait."""
        if not self.future.done():
            self.future.set_exception(error)

    def succeed(self, computed: Computed) -> None:
        """Give the result to all that wait."""
        if not self.future.done():
            self.future.set_result(computed)
