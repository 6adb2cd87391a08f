"""`sketchstream profile`: how many items occurred how often, from publications.

In: a published file, or the windows that a configuration's worker published. Out: a table, JSON (one object a line
for several windows) or CSV, and optionally a plot and an HTML report. Touches: published files, the sealed topic or
directory; the answers kept for files, see `stored`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sketchstream.cli import options, show, sketches
from sketchstream.cli.answer_cache import CachedCommand
from sketchstream.cli.output_files import write_page
from sketchstream.cli.source import AnswerSource, published
from sketchstream.errors import ConfigError
from sketchstream.kinds.options import METHODS, NORMS

if TYPE_CHECKING:
    from sketchstream.kinds.profile_answers import Profile
    from sketchstream.published import Published
    from sketchstream.query.answers import ProfileAnswer
    from sketchstream.query.sealed import SealedWindow

    Reconstruct = Callable[[Published], Profile]


@click.command(cls=CachedCommand)
@published
@click.option("--merge", is_flag=True, help="With -c: one result for all windows together; published states only.")
@click.option("--group", metavar="NAME", help="Group to show, if the sketch has groups.")
@click.option("--by", type=click.Choice(("group",)), help="Print one result for each group.")
@click.option("--number", "numbers", multiple=True, metavar="NAME",
              help="Column of the table of --all or --by group, such as at_least.3; repeat it.")  # fmt: skip
@click.option("--method", type=click.Choice(METHODS), default="likelihood", show_default=True, help="Estimator.")
@click.option("--norm", type=click.Choice(list(NORMS)), help="With --method circulant: norm of the correction.")
@click.option("--beta", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.05, show_default=True,
              help="With --method circulant: failure probability.")  # fmt: skip
@click.option("--max-count", type=int, help="Largest count to resolve; larger ones are pooled.")
@click.option("--plot", type=options.FILE, help="Also draw the profile: a .png, .svg or .pdf file.")
@click.option("--html", type=options.FILE, help="Also write a report, of one profile or of --all: a page of HTML.")
@options.result_format()
def command(
    source: AnswerSource,
    merge: bool,
    group: str | None,
    by: str | None,
    numbers: tuple[str, ...],
    method: Any,
    norm: str | None,
    beta: float,
    max_count: int | None,
    plot: Path | None,
    html: Path | None,
    form: show.Format,
) -> None:
    r"""Reconstruct the profile: how many items occurred exactly, or at least, k times, every number with its interval.

    Only what was published is read, so no key is needed and no privacy is lost, however often it is asked. An open
    sketch has no profile: seal it, or release from it.

    What was printed about files is kept in your cache, where only you can read it: the same question about the same
    files is answered from there. SKETCHSTREAM_ANSWERS names another folder, or, if it is empty, none.

    \b
    Examples:
      sketchstream profile s.sealed --max-count 50 --format json --plot profile.png
      sketchstream profile s.sealed --html report.html
      sketchstream profile -c sketchstream.toml --sketch hourly --all --format json
      sketchstream profile -c sketchstream.toml --sketch hourly --all --html report.html
      sketchstream profile -c sketchstream.toml --sketch reach --group spring-sale
      sketchstream profile -c sketchstream.toml --sketch reach --by group --number at_least.3
      sketchstream profile -c sketchstream.toml --sketch reach --all --by group --format csv
    """
    source.require_one(merge=merge)
    options.require_picture(plot, "--plot")
    every = source.every
    fact = next((name for name in numbers if name in ("fractions", "counts")), None)
    options.refuse(
        (
            numbers and form != "table",
            f"--number chooses columns of a table, and --format {form} has every number: leave one of them out",
        ),
        (
            numbers and not (every or by),
            "--number chooses columns of the table of --all or --by group; one profile is shown with every number",
        ),
        (fact, f"--number must be one number, such as distinct, at_least.3 or exactly.1, found {fact!r}"),
        (by and source.file, "--by group belongs to -c; choose a group of a file with --group"),
        (every and merge, "--all and --merge exclude each other: one result for each window, or one for all"),
        (group is not None and by, "--group and --by group exclude each other: one group, or one result for each"),
        (by and (plot or html or merge), "--plot, --html and --merge show one group: choose it with --group"),
        (
            every and plot,
            "--plot shows one profile: leave --all out, choose a window with --from and --to, or ask for --html",
        ),
    )

    def reconstruct(published: Published) -> Profile:
        return published.profile(method, max_count, norm=None if norm is None else NORMS[norm], beta=beta)

    if source.file is not None:
        _of_file(source.file, reconstruct, group, plot, html, form)
        return
    from sketchstream.cli import results
    from sketchstream.kinds import groups_of
    from sketchstream.query.answers import ProfileAnswer

    with source.opened() as windows:
        reader = windows.published
        plan = reader.plan(windows.name)
        if group is None and not by and (number := len(groups_of(plan.spec))):
            raise ConfigError(
                f"sketch {plan.name} has {number:,} groups: choose one with --group NAME, or ask for all: --by group"
            )
        if every or by:
            from sketchstream.cli.windows_report import WindowsReport

            page = None if html is None else WindowsReport(plan.name, plan.calendar.timezone)
            selected = windows.every() if every else iter((windows.one(),))
            chosen = choose_windows(selected, group)
            results.print_windows(reader, plan.name, chosen, reconstruct, form, page, numbers or results.SUMMARY)
            show.remarks(reader, plan.name)
            if html is not None and page is not None:
                write_page(html, page.page())
            return
        if merge:
            selected_windows = list(choose_windows(windows.every(), group))
            merged, factor = reader.merged(selected_windows)
            assert factor is not None, "a profile was asked for"
            show.note(f"{len(selected_windows)} windows merged, error times up to {factor:.3g}")
            answer = ProfileAnswer(
                reconstruct(merged), {"windows": len(selected_windows), "error_factor": round(factor, 4)}
            )
        else:
            (window,) = choose_windows([windows.one()], group)
            answer = reader.answer(window, reconstruct)
        show.remarks(reader, plan.name, still_open=source.newest)
    present(answer, plot, html, plan.name)
    results.print_one(answer, form)


def _of_file(
    file: Path, reconstruct: Reconstruct, group: str | None, plot: Path | None, html: Path | None, form: show.Format
) -> None:
    """Print the profile of a published file."""
    from sketchstream.cli import results
    from sketchstream.query.answers import of_file

    published = sketches.read_published(file, "profile")
    if group is None and published.groups:
        raise ConfigError(f"{file.name} has {len(published.groups):,} groups: choose one with --group NAME")
    published = published if group is None else published.group(group)
    answer = of_file(published, reconstruct(published))
    answer = answer if group is None else replace(answer, facts={**answer.facts, "group": group})
    warning = (answer.profile.guarantee or {}).get("warning")
    if warning is not None and not published.spec.no_privacy:  # else reading the file has warned already
        show.warn(warning)
    present(answer, plot, html, file.name)
    results.print_one(answer, form)


def choose_windows(windows: Iterable[SealedWindow], group: str | None) -> Iterator[SealedWindow]:
    """Selected windows: of one group, of each of their groups, or whole without groups."""
    for window in windows:
        if group is None:
            yield from window.each_group()
        else:
            yield window.of_group(group)


def present(answer: ProfileAnswer, plot: Path | None, html: Path | None, source: str) -> None:
    """Write the requested plot and report."""
    from sketchstream.cli import profile_report

    if plot is not None:
        with sketches.accessing(plot):
            answer.profile.plot(plot)
    if html is not None:
        write_page(html, profile_report.page(answer, source))
