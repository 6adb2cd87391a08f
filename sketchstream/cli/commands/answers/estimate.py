"""`sketchstream estimate`: counts, sums and other answers with intervals, from publications.

In: a published file, or a window that a configuration's worker published, of a kind of sketch that gives estimates.
Out: a table, JSON or CSV, and optionally an Arrow file and a plot. Touches: published files, the sealed topic or
directory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sketchstream.cli import options, show, sketches
from sketchstream.cli.answer_cache import CachedCommand
from sketchstream.cli.output_files import write_arrow, write_page
from sketchstream.cli.row_questions import RowQuestions, row_questions
from sketchstream.cli.source import AnswerSource, published
from sketchstream.errors import ConfigError

if TYPE_CHECKING:
    from sketchstream.kinds.exports import Types
    from sketchstream.published import Published
    from sketchstream.query.estimates import EstimateAnswer, Selection
    from sketchstream.query.sealed import SealedWindow
    from sketchstream.query.windows import PublishedWindows


@click.command(cls=CachedCommand)
@published
@click.option("--merge", is_flag=True, help="With -c: one result for all windows together.")
@click.option("--closed", is_flag=True,
              help="With -c: positions published when they closed, of the last window or of --all.")  # fmt: skip
@click.option(
    "--method", default="auto", show_default=True, help="Estimator; which ones there are depends on the kind of sketch."
)
@click.option("--item", "items", multiple=True, help="Print the published count of this item; repeatable.")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    help="Print the largest counts, with intervals that hold for all of them at once.",
)
@click.option("--sum", "sums", metavar="LOW:HIGH", multiple=True,
              help="Sum over the places of the domain from LOW to below HIGH; : is all.")  # fmt: skip
@row_questions
@click.option("--items-file", type=options.FILE,
              help="The items of a listed domain (projection: features), text, one a line: their names.")  # fmt: skip
@options.line_type("--item-type", "--items-file")
@click.option("--arrow", type=options.FILE, help="Also write all rows to an Arrow file.")
@click.option("--plot", type=options.FILE, help="Also draw the answers: a .png, .svg or .pdf file.")
@click.option("--html", type=options.FILE, help="Also write a report, of one answer or of --all: a page of HTML.")
@options.result_format()
def command(
    source: AnswerSource,
    merge: bool,
    closed: bool,
    method: str,
    items: tuple[str, ...],
    top: int | None,
    sums: tuple[str, ...],
    questions: RowQuestions,
    items_file: Path | None,
    item_type: str,
    arrow: Path | None,
    plot: Path | None,
    html: Path | None,
    form: show.Format,
) -> None:
    r"""Answer from a sketch whose kind gives estimates, such as `gaussian`: every number with its interval.

    Only what was published is read, so no key is needed and no privacy is lost, however often it is asked.

    \b
    Examples:
      sketchstream estimate s.sealed --top 10
      sketchstream estimate s.sealed --items-file planes.txt --item N14228 --sum 0:100 --format json
      sketchstream estimate -c sketchstream.toml --sketch flights --from 2013-01-01T00:00Z --to 2013-01-02T00:00Z
      sketchstream estimate -c sketchstream.toml --sketch flights --all --top 5 --format csv
      sketchstream estimate -c sketchstream.toml --sketch flights --all --html report.html
      sketchstream estimate rows.sealed --rows-file airports.txt --nearest BOS -k 3 --plot distances.png
      sketchstream estimate rows.sealed --with-vector 3 --feature 17 --weight 2 --feature 18 --weight -0.5
    """
    from sketchstream.query import estimates

    source.require_one(merge=merge, closed=closed)
    options.require_picture(plot, "--plot")
    chosen = estimates.Selection(items, top, sums)
    questions.require_plausible(bool(chosen), source.config_file is not None)
    names: dict[str, Any] = {} if items_file is None else {"items": sketches.read_items(items_file, item_type)}
    if source.file is not None:
        release = sketches.read_published(source.file, "estimate")
        answers = _ask([release], method, names, questions)
        answer = estimates.EstimateAnswer(answers, {}, release.guarantee().to_dict())
        types = release.kind.rows(release.spec).types
        _give([answer], chosen, RequestedFiles(arrow, plot, html, source.file.name, types), form)
        questions.write(answers)
        return
    every = source.every
    if every and (merge or plot or questions):
        raise ConfigError("--all gives one result for each window: leave --merge, --plot and questions about rows out")
    from sketchstream import kinds

    with source.opened() as windows:
        plan = windows.published.plan(windows.name)
        types = kinds.kind_of(plan.spec).rows(plan.spec).types
        files = RequestedFiles(arrow, plot, html, plan.name, types, plan.calendar.timezone, many=every)
        if closed:
            results = windows.published.closed(plan.name, *windows.span)
            _give(results if every else results[-1:], chosen, files, form)
            return
        selected = list(windows.every()) if every or merge or questions.drift else []
        if not selected and not (every or merge):
            selected = [windows.one()]
        results = _results(windows.published, selected, method, names, questions, merge=merge)
        show.remarks(windows.published, plan.name, still_open=source.newest)
        _give(results, chosen, files, form)
        for answered in results:
            questions.write(answered.answers)


def _results(
    windows: PublishedWindows,
    sealed: Sequence[SealedWindow],
    method: str,
    names: dict[str, Any],
    questions: RowQuestions,
    *,
    merge: bool,
) -> list[EstimateAnswer]:
    """One result for each window, or one for all."""
    from sketchstream.query.estimates import EstimateAnswer, known_names

    if not merge and not questions:
        return [windows.estimates(window, method, names) for window in sealed]
    if merge:
        results = [windows.merged(sealed)[0]]
        facts: Mapping[str, Any] = {"windows": len(sealed)}
        guarantee = results[0].guarantee().to_dict()
    else:
        results = [windows.result(window) for window in sealed]
        facts, guarantee = sealed[0].fields(), windows.guarantee(sealed[0])
    names = {**known_names(windows.config.find(sealed[0].sketch), results[0]), **names}
    return [EstimateAnswer(_ask(results, method, names, questions), facts, guarantee)]


def _ask(published: Sequence[Published], method: str, names: dict[str, Any], questions: RowQuestions) -> Any:
    """The answers of one published object, or to a question about the rows of one or more."""
    from sketchstream.query.estimates import estimate

    names = questions.names(published[0], names)
    return questions.answer(published, method, names) if questions else estimate(published[0], method, names)


@dataclass(frozen=True)
class RequestedFiles:
    """The requested files.

    Args:
        arrow: all rows.
        plot: a picture of one answer.
        html: a report.
        source: says in a word where the answers come from.
        timezone: time zone of the windows.
        types: types of the columns of the answers.
        many: whether the report is one of many windows.
    """

    arrow: Path | None
    plot: Path | None
    html: Path | None
    source: str
    types: Types
    timezone: str = "UTC"
    many: bool = False

    def write(self, results: Sequence[EstimateAnswer]) -> None:
        """Write results into these files."""
        if self.arrow is not None:
            from sketchstream.kinds.exports import WINDOW, table_of

            rows = [
                {**({"window_start": result.facts["window_start"]} if len(results) > 1 else {}), **row}
                for result in results
                for row in result.answers.rows()
            ]
            write_arrow(self.arrow, table_of(rows, {**WINDOW, **self.types}))
        if self.plot is not None:
            with sketches.accessing(self.plot):
                results[0].answers.plot(self.plot)
        if self.html is not None:
            from sketchstream.cli import estimate_report

            if self.many:
                page = estimate_report.windows_page(results, self.source, self.timezone)
            else:
                page = estimate_report.page(results[0], self.source)
            write_page(self.html, page)


def _give(results: Sequence[EstimateAnswer], chosen: Selection, files: RequestedFiles, form: show.Format) -> None:
    """Write results into the requested files and to standard output."""
    files.write(results)
    if chosen:
        results = [
            replace(result, selected=chosen.rows(result.answers, result.answers.spec.kind)) for result in results
        ]
    if form == "csv" and len(results) > 1:
        from sketchstream.kinds.exports import as_csv

        fronts = [{name: result.facts[name] for name in ("window_start", "complete")} for result in results]
        rows = [{**front, **row} for front, result in zip(fronts, results, strict=True) for row in result.rows()]
        click.echo(as_csv(rows).rstrip("\n"))
        return
    for number, result in enumerate(results):
        if number and form == "table":
            click.echo()
        _print(result, form)


def _print(answer: EstimateAnswer, form: show.Format) -> None:
    """Print the answers, or those of them that were selected."""
    if show.heading(answer, form):
        if answer.selected is None:
            click.echo(str(answer.answers))
            return
        columns = list(dict.fromkeys(name for row in answer.selected for name in row))
        show.print_table(columns, [[row.get(name, "") for name in columns] for row in answer.selected])
