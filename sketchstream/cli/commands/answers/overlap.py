"""`sketchstream overlap`: what groups have in common, from publications.

In: a published file, or the windows that a configuration's worker published. Out: a table, JSON (one object a line for
several windows) or CSV, and optionally an UpSet plot and an Arrow file. Touches: published files, the sealed topic or
directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sketchstream.cli import options, show, sketches
from sketchstream.cli.answer_cache import CachedCommand
from sketchstream.cli.output_files import write_arrow
from sketchstream.cli.source import AnswerSource, published
from sketchstream.errors import ConfigError, EstimateError, MergeError

if TYPE_CHECKING:
    from sketchstream.query.overlaps import OverlapAnswer


@click.command(cls=CachedCommand)
@published
@click.option("--groups", metavar="A,B,...", help="Groups to combine.  [default: all]")
@click.option("--query", "queries", metavar="SET", multiple=True,
              help="Set of groups, such as 'a & b - c'; several are possible.  [default: each group, all pairs, "
              "increments]")  # fmt: skip
@click.option("--upset", type=options.FILE, help="Also draw the largest regions: a .png, .svg or .pdf file.")
@click.option("--arrow", type=options.FILE, help="Also write all rows to an Arrow file.")
@options.result_format()
def command(
    source: AnswerSource,
    groups: str | None,
    queries: tuple[str, ...],
    upset: Path | None,
    arrow: Path | None,
    form: show.Format,
) -> None:
    r"""Count items of any set of groups: unions (|), intersections (&), differences (-) and complements (~).

    The sketch must have been made with `overlap`. All numbers come from one fit of what was published, so that those
    that must add up do; asking costs no privacy. Names with other signs than letters, digits, _ . : go in quotes.

    \b
    Examples:
      sketchstream overlap s.sealed
      sketchstream overlap s.sealed --query 'spring & summer' --query 'brand - spring - summer' --format json
      sketchstream overlap -c sketchstream.toml --sketch reach --upset reach.svg
      sketchstream overlap -c sketchstream.toml --sketch reach --all --query 'spring & ~brand' --format csv
    """
    from sketchstream.query import overlaps

    expressions = list(queries) or None
    chosen = [name.strip() for name in groups.split(",")] if groups else None
    source.require_one()
    options.require_picture(upset, "--upset")
    if upset is not None and source.every:
        raise ConfigError("--upset shows one window: leave --all out, or choose one with --from and --to")
    if source.file is not None:
        answers = [overlaps.of_file(sketches.read_published(source.file, "overlap"), chosen)]
    else:
        answers = _windows(source, chosen)
    for answer in answers[:1]:
        answer.rows(expressions)  # refuses texts that are not sets of these groups, before anything is written
    if upset is not None:
        _draw(answers[0], upset)
    if arrow is not None:
        _write(answers, expressions, arrow)
    _print(answers, expressions, form, every=source.every)


def _windows(source: AnswerSource, groups: Sequence[str] | None) -> list[OverlapAnswer]:
    """The answers of a configuration's windows; a window without one is named on standard error."""
    from sketchstream.query import overlaps

    answers = []
    with source.opened() as windows:
        if not source.every:
            return [overlaps.of_window(windows.published, windows.one(), groups)]
        for window in windows.every():
            try:
                answers.append(overlaps.of_window(windows.published, window, groups))
            except (EstimateError, MergeError) as error:  # the others still have their answers
                show.note(f"window {window.fields()['window_start']}: {error}")
    return answers


def _print(answers: Sequence[OverlapAnswer], queries: list[str] | None, form: show.Format, *, every: bool) -> None:
    """Print the answers."""
    from sketchstream.pictures.upset import text_below
    from sketchstream.query import words
    from sketchstream.query.overlaps import COLUMNS, rows_of

    if form == "json":
        for answer in answers:
            show.print_json(answer.to_dict(queries))
        return
    front = ("window_start", "complete") if every else ()
    rows = rows_of(answers, queries)
    if form == "csv":
        click.echo(show.as_csv((*front, *COLUMNS), rows))
        return
    for answer in answers:
        names = ", ".join(answer.overlap.groups)
        title = f"{answer.facts.get('sketch', 'items')} by {names}"
        cells = [(row["query"], row["value"], row["low"], row["high"]) for row in answer.rows(queries)]
        if every:
            title = f"{answer.facts.get('window_start')}: {title}"
        show.print_table(("set", "estimate", "low", "high"), cells, title)
    if answers:
        intervals = all(answer.intervals for answer in answers)
        click.echo(text_below(answers[0].overlap.to_dict(())) if intervals else words.NO_INTERVALS)


def _draw(answer: OverlapAnswer, path: Path) -> None:
    """Draw the UpSet plot."""
    from sketchstream.pictures import upset

    with sketches.accessing(path):
        upset.plot(answer.numbers(()), path)


def _write(answers: Sequence[OverlapAnswer], queries: list[str] | None, path: Path) -> None:
    """Write all rows into an Arrow file."""
    from sketchstream.kinds.exports import table_of
    from sketchstream.query.overlaps import COLUMNS, TYPES, rows_of

    write_arrow(path, table_of(rows_of(answers, queries), TYPES, ("window_start", "complete", *COLUMNS)))
