"""Answers on standard output: of one object, or of one window after another.

In: answers. Out: tables, JSON (one object a line), CSV. Touches: standard output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import click

from sketchstream.cli import progress, show
from sketchstream.errors import EstimateError, MergeError
from sketchstream.query import words

if TYPE_CHECKING:
    from sketchstream.cli.windows_report import WindowsReport
    from sketchstream.kinds.profile_answers import Profile
    from sketchstream.published import Published
    from sketchstream.query.answers import ProfileAnswer
    from sketchstream.query.sealed import SealedWindow
    from sketchstream.query.windows import PublishedWindows

SUMMARY: Final = ("distinct", "at_least.2", "at_least.10", "mean")
"""Numbers of each window that the table of many windows shows."""


def print_one(answer: ProfileAnswer, form: show.Format) -> None:
    """Print one answer, with the facts of its window before its numbers."""
    if show.heading(answer, form):
        profile, intervals = answer.profile, answer.intervals
        click.echo(profile.heading())
        rows = profile.summary_rows()
        show.print_table(("", "estimate", "low", "high"), rows if intervals else [(*row[:2], "-", "-") for row in rows])
        click.echo(f"95% intervals; they cover {profile.covers}." if intervals else words.NO_INTERVALS)


def print_windows(
    published: PublishedWindows,
    name: str,
    windows: Iterable[SealedWindow],
    reconstruct: Callable[[Published], Profile],
    form: show.Format,
    page: WindowsReport | None = None,
    numbers: Sequence[str] = SUMMARY,
) -> None:
    """Print one result for each window in order: JSON and CSV at once, a table at the end; each is passed to `page`.

    For a window without an answer, such as one with partitions of different sketches, the reason is printed.
    """
    rows = []
    untold: dict[str, int] = {}
    unanswered = 0
    with progress.ProgressBar(f"reconstructing {name}") as bar:
        for number, window in enumerate(windows):
            try:
                answer = published.answer(window, reconstruct)
            except (EstimateError, MergeError) as error:  # the others still have their answers
                unanswered += 1
                if form == "json":
                    show.print_json(window.fields() | {"error": str(error)})
                elif form == "csv":
                    show.note(f"window {window.fields()['window_start']}: {error}")
                else:
                    rows.append((*_front(window), f"no answer: {error}", *("-" for _ in numbers)))
                continue
            if page is not None:
                page.add(window, answer)
            if form == "json":
                click.echo(answer.to_json())
            elif form == "csv":
                _print_csv(answer, header=number == unanswered)
            else:
                values = answer.profile.chosen(numbers)
                cells = (show.cell(name, value, intervals=answer.intervals) for name, value in values.items())
                rows.append((*_front(window), window.describe(), *cells))
                untold |= {name: answer.profile.max_count for name, value in values.items() if value is None}
            bar.advance()
    if unanswered and form != "csv":
        show.note(f"{unanswered} windows have no answer: their rows say why")
    if form == "table" and rows:
        group = ("group",) if any(len(row) > 2 + len(numbers) for row in rows) else ()
        names = (name.replace("at_least.", "at least ").replace("exactly.", "exactly ") for name in numbers)
        columns = ("window", *group, "partitions", *names)
        show.print_table(columns, rows, f"sketch {name}: estimate [95% interval]")
        for counted, largest in untold.items():
            text = f"{counted} is '-' where nothing was counted, or where counts above {largest} are not told apart"
            show.note(text)


def _print_csv(answer: ProfileAnswer, *, header: bool) -> None:
    """Print a window's answer with its start and completeness in front of every line."""
    names, *lines = answer.to_csv().rstrip("\n").split("\n")
    facts = [name for name in ("window_start", "complete", "group") if name in answer.facts]
    cells = [str(fact).lower() if isinstance(fact := answer.facts[name], bool) else fact for name in facts]
    columns, front = show.as_csv(facts, [cells]).split("\n", 1)
    if header:
        click.echo(f"{columns},{names}")
    click.echo("\n".join(f"{front},{line}" for line in lines))


def _front(window: SealedWindow) -> tuple[str, ...]:
    """The first columns of a window in a table of many."""
    return (str(window.fields()["window_start"]), *(() if window.group is None else (window.group,)))
