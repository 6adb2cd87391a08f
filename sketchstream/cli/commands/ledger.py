"""`sketchstream ledger`: what the looks at a sketch, or at all sketches of a deployment, cost.

In: any sketch file, or a configuration. Out: layers, views and losses, exact fractions. Touches: what it reads.
"""

from __future__ import annotations

from pathlib import Path

import click

from sketchstream.cli import options, show


@click.command(short_help="Print what a sketch's looks cost: layers, views, loss.")
@click.argument("file", type=options.FILE, required=False)
@options.config(required=False)
@options.result_format()
def command(file: Path | None, config_file: Path | None, form: show.Format) -> None:
    r"""Print the ledger: every noise layer and every view, in order, and the most that any event (or item) loses.

    With -c: all that the configuration's workers have published, over sketches, windows and partitions.

    \b
    Examples:
      sketchstream ledger s.sealed
      sketchstream ledger -c sketchstream.toml --format json
    """
    from sketchstream.cli import windows
    from sketchstream.errors import ConfigError

    if (file is None) == (config_file is None):
        msg = "give either a sketch file or -c"
        raise ConfigError(msg)
    if file is not None:
        _of_file(file, form)
        return
    assert config_file is not None
    with windows.opened(config_file) as reader:
        deployment = reader.deployment()
    if form == "json":
        click.echo(show.as_json(deployment.to_dict()))
    elif form == "csv":
        rows = deployment.rows()
        columns = ("sketch", "revision", "unit", "windows", "partitions", "one window", "all windows")
        click.echo(show.as_csv(columns, [[row[column] for column in columns] for row in rows]))
    else:
        click.echo(str(deployment))


def _of_file(file: Path, form: show.Format) -> None:
    """The ledger of one sketch, or of each part of a stack."""
    from sketchstream.cli import sketches
    from sketchstream.privacy import ledger
    from sketchstream.published import Stack

    header = sketches.read_header(file)
    if header["kind"] == "stack":
        published = sketches.read_published(file, "ledger")
        assert isinstance(published, Stack)
        ledgers = [part.ledger for part in published.parts]
    else:
        ledgers = [ledger.Ledger.from_dict(header["ledger"])]
    if form == "table":
        click.echo("\n\n".join(str(one) for one in ledgers))
        return
    columns = ("part", "what", "cost", "an event after it")
    rows = [
        {**row, "part": ".".join(filter(None, (str(number) if len(ledgers) > 1 else "", row["part"])))}
        for number, one in enumerate(ledgers, 1)
        for row in one.rows()
    ]
    if form == "csv":
        click.echo(show.as_csv(columns, [[row[column] for column in columns] for row in rows]))
        return
    worst = max(ledgers, key=lambda one: one.loss())
    facts = {
        "unit": worst.unit,
        "sealed": worst.sealed,
        "loss": ledger.show(worst.loss()),
        "loss_with_intrusion": ledger.show(worst.loss(intrusion=True)),
        "loss_zcdp": ledger.show(worst.zcdp()),
        "budget": None if worst.budget is None else str(worst.budget),
        "affordable": None if worst.budget is None else ledger.show(worst.affordable()),
        "history": rows,
    }
    click.echo(show.as_json(facts))
