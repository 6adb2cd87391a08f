"""`sketchstream verify`: try on this machine whether the privacy claim's premises hold.

In: nothing. Out: a report; exit code 1 if anything failed. Touches: entropy; nothing on disk.
"""

from __future__ import annotations

from typing import Final

import click

from sketchstream.cli import exits, options, progress, show

COLUMNS: Final = ("section", "what", "claimed", "found", "would find", "verdict")


@click.command()
@click.option("--quick", is_flag=True, help="Seconds instead of minutes: fewer samples.")
@click.option(
    "--only", metavar="CHECK", multiple=True, help="Only checks whose names begin so: a section, or more; repeatable."
)
@options.result_format()
def command(quick: bool, only: tuple[str, ...], form: show.Format) -> int:
    r"""Run statistical tests: what sketches and workers give out, laws of the samplers, neighbours, the ledger.

    Sections: sketches, ledger, neighbours, seals, releases, laws, bounds; and the kinds of sketches that are not
    profiles, by their names. Every line says what it would have found. For each mechanism a lower confidence bound on
    epsilon is printed next to the claimed one. Tests can find errors, but not prove that there are none: the proofs are
    in docs/theory. Exit code 1 if anything failed.

    \b
    Example:
      sketchstream verify --quick --format json
      sketchstream verify --quick --only sketches --only "bounds: bare state"
    """
    from sketchstream.audit import report as audit

    with progress.ProgressBar("verifying") as bar:

        def watch(what: str, done: int, total: int) -> None:
            bar.total = total
            bar.reach(done, what)

        try:
            report = audit.run(quick, watch, only)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
    if show.print_data(form, report.to_dict, COLUMNS, report.rows):
        click.echo(str(report))
    return exits.OK if report.passed else exits.INPUT
