"""A progress bar for work of more than two seconds, on a terminal only.

In: steps of work. Out: a bar on standard error, or nothing in a pipe. Touches: standard error.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    import rich.progress

PATIENCE_S: Final = 2.0
"""Seconds by which work must be done to show no bar."""


def on_terminal() -> bool:
    """Whether a person is watching: neither standard output nor standard error goes into a pipe or a file."""
    return sys.stdout.isatty() and sys.stderr.isatty()


class ProgressBar:
    """A bar that appears after two seconds of work.

    Args:
        label: a few words before the bar.
        total: number of steps, or None if unknown.
        patience_s: seconds before it appears.
    """

    def __init__(self, label: str, total: float | None = None, *, patience_s: float = PATIENCE_S) -> None:
        self.label = label
        self.total = total
        self._done = 0.0
        self._due = time.monotonic() + patience_s if on_terminal() else float("inf")
        self._bar: rich.progress.Progress | None = None
        self._task: rich.progress.TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, steps: float = 1, label: str | None = None) -> None:
        """Say that `steps` more steps are done."""
        self.reach(self._done + steps, label)

    def reach(self, done: float, label: str | None = None) -> None:
        """Say that `done` steps are done in all, and optionally what comes next."""
        self._done = done
        self.label = label or self.label
        if self._bar is None and time.monotonic() >= self._due:
            self._appear()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=self.total, description=self.label)

    def _appear(self) -> None:
        """Draw the bar for the first time."""
        import rich.console
        import rich.progress as parts

        columns: list[parts.ProgressColumn] = [parts.TextColumn("{task.description}"), parts.BarColumn()]
        if self.total is None:
            columns.append(parts.TextColumn("{task.completed:,.0f}"))
        else:
            columns.append(parts.TaskProgressColumn())
        columns.append(parts.TimeElapsedColumn())
        # where standard error is copied, for answers that are kept, a bar is not part of the copy
        console = rich.console.Console(file=getattr(sys.stderr, "screen", sys.stderr))
        self._bar = parts.Progress(*columns, console=console, transient=True)
        self._task = self._bar.add_task(self.label, total=self.total)
        self._bar.start()
