"""`sketchstream plan --table FILE`: the plan of a sketch of any kind, from a block of a configuration.

In: the keys of one `[[sketch]]`. Out: the expected error, and that of other specs. Touches: the file, and lists that it
names; no data and no sketch are read.
"""

from __future__ import annotations

from pathlib import Path

import click

from sketchstream.cli import options, show
from sketchstream.cli.specs import spec_of_table


@click.command()
@click.option(
    "--table",
    "path",
    type=options.FILE,
    required=True,
    help="File with the keys of one [[sketch]] block, without name and windows.",
)
@options.choice("--item-type", options.ITEM_TYPES, "Type of the lines of a list of items.", "text")
@options.result_format()
def command(path: Path, item_type: str, form: show.Format) -> None:
    r"""Compute the expected error of the numbers of a sketch of any kind, and what other specs would have.

    The error is the root mean squared one of what `seal` publishes, from noise alone; kind profile counts distinct
    items where a quarter of the slots is used.

    \b
    Examples:
      sketchstream plan --table places.toml
      sketchstream plan --table places.toml --format json
    """
    from sketchstream.kinds.forecast import plain_forecast

    facts = plain_forecast(spec_of_table(path, item_type))
    others = [
        (", ".join(f"{k} {v}" for k, v in row.items() if k != "rmse"), row["rmse"]) for row in facts["alternatives"]
    ]
    rows = [("as described", facts["rmse"]), *others]
    if show.print_data(form, lambda: facts, ("spec", "rmse"), lambda: rows):
        show.print_table(("spec", f"error of one {facts['quantity']}"), [(name, f"{rmse:,.4g}") for name, rmse in rows])
        click.echo(f"\n{facts['advice'][:1].upper()}{facts['advice'][1:]}.")
