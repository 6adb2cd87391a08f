"""`sketchstream ledger`: the cost of all looks at a sketch, or at all sketches of a deployment.

In: any sketch file, several published ones, or a configuration. Out: layers, views and losses, exact fractions.
Touches: the files or topics it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from sketchstream.cli import clusters, options, show, sketches
from sketchstream.errors import ConfigError
from sketchstream.query import words

if TYPE_CHECKING:
    from sketchstream.privacy.deployments.deployment import Deployment


COLUMNS: Final = {
    "part": "of a merged sketch: which of its parts; empty: the sketch itself",
    "what": "a layer of noise in the state, or a view: what somebody saw, or (promised) will see",
    "cost": "of that layer or view, in the measure that is named; raw: the state itself was seen",
    "an event after it": "most that an event (or item) loses that came after this line and before the next, in that "
    "measure",
}
"""What the columns of one sketch's ledger mean."""


@click.command()
@click.argument("files", type=options.FILE, nargs=-1)
@options.config(required=False)
@options.result_format()
def command(files: tuple[Path, ...], config_file: Path | None, form: show.Format) -> None:
    r"""Print the ledger: every noise layer and every view, in order, and the most that any event (or item) loses.

    Several published files: what they cost together; publications of copies of one state are found and named. With
    -c: all that the configuration's workers have published, over sketches, windows and partitions.

    \b
    Examples:
      sketchstream ledger s.sealed
      sketchstream ledger monday.sealed tuesday.sealed
      sketchstream ledger -c sketchstream.toml --format json
    """
    from sketchstream_connectors.readers import open_published

    if bool(files) == (config_file is not None):
        raise ConfigError("give either sketch files or -c")
    if len(files) == 1:
        _of_file(files[0], form)
        return
    if config_file is None:
        _print_deployment(_of_files(files), form)
        return
    config = clusters.load(config_file)
    with open_published(config) as reader:
        _print_deployment(reader.deployment(), form, _unseen(config.history_path))


def _unseen(folder: Path) -> list[dict[str, object]]:
    """Rows that a backfill booked and that have no body: their runs ended before it, or are still counting."""
    if not folder.exists():  # without a backfill nothing of it is loaded, numba among it
        return []
    from sketchstream_connectors.lake.job import booked_rows

    names = ("sketch", "revision", "window", "unit", "epsilon")
    return [{name: row[name] for name in names} for row, has_body in booked_rows(folder) if not has_body]


def _of_files(files: tuple[Path, ...]) -> Deployment:
    """Total cost of several published files."""
    from sketchstream.privacy.deployments.deployment import Deployment

    published = [sketches.read_published(file, "ledger of several files") for file in files]
    return Deployment.of(part for release in published for part in release.parts)


def _print_deployment(deployment: Deployment, form: show.Format, unseen: Sequence[Mapping[str, object]] = ()) -> None:
    """The ledger of a deployment, and booked windows of which nobody saw a body."""
    more = {"booked_without_body": unseen} if unseen else {}
    columns = ("sketch", "revision", "unit", "windows", "partitions", "one window", "all windows")
    if show.print_data(form, lambda: {**deployment.to_dict(), **more}, columns, deployment.rows):
        click.echo(str(deployment))
        for row in unseen:
            click.echo(
                f"booked by backfill, no body yet, not in the totals: {row['sketch']} revision {row['revision']}, "
                f"window {' to '.join(row['window'])}, epsilon {row['epsilon']} per {row['unit']}"  # type: ignore[arg-type]
            )
        _explain(words.LEDGER_COLUMNS)


def _explain(columns: Mapping[str, str]) -> None:
    """Legend of a table's columns."""
    click.echo()
    show.print_pairs((f"  {name}", meaning) for name, meaning in columns.items())


def _of_file(file: Path, form: show.Format) -> None:
    """The ledger of one sketch, or of each part of a stack."""
    from sketchstream.privacy.ledgers.sketch_history import worst_of
    from sketchstream.sketch import read_ledger

    header = sketches.read_header(file)
    if header["kind"] == "sketch":
        ledgers = [read_ledger(header)]
    else:
        published = sketches.read_published(file, "ledger")
        ledgers = [part.ledger for part in published.parts]
    if form == "table":
        click.echo("\n\n".join(str(ledger) for ledger in ledgers))
        _explain(COLUMNS)
        return
    columns = ("part", "what", "cost", "an event after it")
    rows = [
        {**row, "part": ".".join(filter(None, (str(number) if len(ledgers) > 1 else "", row["part"])))}
        for number, ledger in enumerate(ledgers, 1)
        for row in ledger.rows()
    ]
    worst, with_copy = worst_of(ledgers)
    facts = {"unit": worst.unit, "sealed": worst.sealed, **worst.totals(with_copy), "history": rows}
    show.print_data(form, lambda: facts, columns, lambda: rows)
