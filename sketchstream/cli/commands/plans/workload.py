"""`sketchstream plan --kind workload`: expected errors of every set of queries, and the strategy file of a sketch.

In: queries and privacy, or a `[[sketch]]` of a configuration. Out: expected errors. Touches: with --write a strategy
file; no data and no sketch are read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from sketchstream.cli import options, show
from sketchstream.errors import ConfigError
from sketchstream.files import write_durably

if TYPE_CHECKING:
    from sketchstream.kinds.workload.forecast import WorkloadPlan
    from sketchstream.kinds.workload.spec import WorkloadSpec
    from sketchstream.kinds.workload.strategies.mechanism import Mechanism
    from sketchstream.kinds.workload.strategies.strategy import Strategy
    from sketchstream.kinds.workload.table import WorkloadTable

TRIED: Final = ("mechanism", "strategy", "counters", "rmse", "worst", "")


@click.command()
@click.option("--workload", help='Workload: "prefix:512", "ranges:64", "marginals:8:1,2", a .npy or .npz file.')
@click.option("--epsilon", help='Privacy of the state: "1", "0.1", "1/2".')
@click.option("--delta", default="0", show_default=True, help='Delta of the state, such as "1e-6"; 0: pure privacy.')
@options.unit()
@click.option("--max-weight", type=click.IntRange(min=1), default=1, show_default=True, help="Largest absolute weight.")
@click.option("--max-total", type=click.IntRange(min=1), help="Unit item, a promise: most of one item's weights.")
@click.option("--n-bound", type=click.IntRange(min=1), help="Largest number of individuals, if it is known.")
@options.choice("--objective", ("total", "max"), "Objective: the sum of squared errors, or the largest one.", "total")
@options.publication
@click.option("--parts", type=click.IntRange(min=1), default=1, show_default=True, help="Partitions that are merged.")
@options.config(required=False)
@click.option("--sketch", help="With -c: name of the sketch.  [default: the only one of this kind]")
@click.option("--write", is_flag=True, help="With -c: write the strategy file that all workers share.")
@options.result_format()
def command(
    workload: str | None,
    epsilon: str | None,
    parts: int,
    config_file: Path | None,
    sketch: str | None,
    write: bool,
    form: show.Format,
    **promise: Any,
) -> None:
    r"""Compute the expected error of every set of queries, and compare the mechanisms.

    Errors are standard errors of what is published, fresh noise included. With -c the sketch is that of a
    configuration, and --write computes its strategy once for all workers.

    \b
    Examples:
      sketchstream plan --kind workload --workload prefix:512 --epsilon 1 --delta 1e-6
      sketchstream plan --kind workload -c sketchstream.toml --sketch tables --write
    """
    from sketchstream.kinds.forecast import plain_forecast
    from sketchstream.kinds.workload import forecast
    from sketchstream.kinds.workload.queries.queries import Workload
    from sketchstream.kinds.workload.spec import WorkloadSpec

    if (workload is None) == (config_file is None) or (workload is not None and epsilon is None):
        raise ConfigError("give either --workload with --epsilon, or -c")
    block, folder = None, Path()
    spec: Callable[..., WorkloadSpec]
    if config_file is not None:
        block, folder = _block(config_file, sketch)
        spec = _of_block(block, folder)
    else:
        if write or sketch:
            raise ConfigError("--sketch and --write belong to -c")
        spec = partial(WorkloadSpec, Workload.named(workload), str(epsilon), **promise)
    ready = forecast.plan(spec, parts=parts)
    columns = list(ready.tables()[0])
    if show.print_data(form, lambda: plain_forecast(ready.spec) | ready.to_dict(), columns, ready.tables):
        _print(ready, parts)
    if write:
        assert block is not None
        _write(ready.spec, block, folder)


def _of_block(block: WorkloadTable, folder: Path) -> Callable[..., WorkloadSpec]:
    """The spec of a block, with any mechanism that it allows."""
    from sketchstream.kinds.config_tables import TableContext

    questions, universe = block.asked(folder)
    context = TableContext(partitioned_by=None, unchecked=False, weights=False, packed=False, folder=folder)

    def wanted(mechanism: Mechanism, strategy: Strategy | None) -> WorkloadSpec:
        return block.spec_with(
            questions, universe, mechanism if strategy is not None else block.mechanism, strategy, context
        )

    return wanted


def _block(config_file: Path, name: str | None) -> tuple[WorkloadTable, Path]:
    """The block of a configuration file that is meant, and the file's folder."""
    from sketchstream.config.bounded_toml import read_toml_file
    from sketchstream.kinds.config_tables import read_block

    blocks = read_toml_file(config_file).get("sketch", [])
    ours = [block for block in blocks if isinstance(block, dict) and block.get("kind") == "workload"]
    meant = [block for block in ours if name is None or block.get("name") == name]
    if len(meant) != 1:
        known = ", ".join(str(block.get("name")) for block in ours) or "none"
        raise ConfigError(f"--sketch must name one [[sketch]] of kind 'workload'; there are: {known:.200}")
    try:
        table: Any = read_block(meant[0])
    except ValueError:
        raise ConfigError(f"the block has mistakes: `sketchstream validate -c {config_file}` tells them") from None
    return table, config_file.resolve().parent


def _write(spec: WorkloadSpec, block: WorkloadTable, folder: Path) -> None:
    """Write the strategy file, and print the keys that name it."""
    name = block.strategy or Path(f"{block.name}.strategy")
    path = folder / name.expanduser()
    if path.exists():
        raise ConfigError(
            f"{path} exists: windows that began with it cannot continue with another one; remove it, or omit --write"
        )
    write_durably(path, spec.strategy.to_bytes())
    click.echo(f'\nwrote {path}; give it to every worker, and set in [[sketch]] "{block.name}":')
    click.echo(f'  mechanism = "{spec.mechanism}"\n  strategy = "{name}"')


def _print(ready: WorkloadPlan, parts: int) -> None:
    spec = ready.spec
    click.echo(
        f"{spec.workload.count:,} queries over {spec.workload.size:,} cells; {ready.chosen.layers} layers of "
        f"{spec.mechanism} noise in {ready.chosen.counters:,} counters" + (f", {parts} partitions" if parts > 1 else "")
    )
    click.echo("\nexpected standard errors")
    tables = ready.tables()
    show.print_table(list(tables[0]), [list(map(_shorten_number, row.values())) for row in tables])
    click.echo("\nmechanisms")
    rows = [
        [*(_shorten_number(row[name]) for name in TRIED[:-1]), "chosen" if row["chosen"] else ""]
        for row in ready.mechanisms()
    ]
    show.print_table(TRIED, rows)
    click.echo()
    if ready.gap is not None:
        what = "total" if spec.objective == "total" else "largest"
        by = f"{ready.gap:.2%} above" if ready.gap < 1 else f"{1 + ready.gap:,.3g} times"
        noise = "any strategy with Laplace noise" if spec.pure else "any unbiased Gaussian noise"
        click.echo(f"The {what} squared error is at most {by} that of {noise}.")
    elif not spec.pure:
        click.echo("How far the errors are from the smallest possible ones is not known for these queries.")
    if ready.chosen.break_even >= 2:
        few = f"{ready.chosen.break_even:,.0f}"
        click.echo(f"With fewer than {few} individuals, `estimate --method cap` is sure to be more exact.")


def _shorten_number(value: object) -> str:
    """Errors with four digits, numbers with their thousands apart."""
    if isinstance(value, float):
        return f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
