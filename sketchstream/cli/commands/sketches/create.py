"""`sketchstream create`: an open sketch, its noise drawn.

In: the spec of the sketch. Out: a file of mode 0600, a secret like a key. Touches: that file, the operating
system's entropy.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from sketchstream.cli import options, progress, show, sketches
from sketchstream.cli.specs import Description, describe_by_options, spec_of_table
from sketchstream.errors import ConfigError
from sketchstream.files import write_durably

OF_GAUSSIAN: Final = ("delta", "delta_publish", "max_per_slot", "fraction_bits")
"""Options that go into specs of kind gaussian as they are."""


@click.command()
@options.output("Sketch file to make")
@partial(describe_by_options, required=False)
@click.option(
    "--kind", default="profile", show_default=True, help="Kind of sketch: profile or gaussian; use --table for others."
)
@click.option(
    "--table",
    type=options.FILE,
    help="TOML file with the keys of a [[sketch]] block, without name and windows: a sketch of any kind.",
)
@click.option("--delta", help="With --kind gaussian: delta of the state, such as 1e-6.")
@click.option("--delta-publish", help="With --kind gaussian: delta of the publication.  [default: delta]")
@click.option("--max-per-slot", help="With --kind gaussian, --unit item: promised maximum of one item in one slot.")
@click.option("--fraction-bits", type=int, help="With --kind gaussian: weights are multiples of 2^-BITS.  [default: 0]")
@click.option("--max-epsilon", help="Budget: looks that would raise the loss above it are refused.")
@click.option("--max-delta", help="With --kind gaussian: delta of that budget.")
@options.key_file()
@options.result_format()
def command(
    output: Path,
    description: Description,
    kind: str,
    table: Path | None,
    max_epsilon: str | None,
    max_delta: str | None,
    key_file: Path | None,
    form: show.Format,
    **of_gaussian: Any,
) -> None:
    r"""Create an open sketch: its noise is drawn now, before any event.

    The file is a secret, like a key: two copies of one open sketch show what happened between them.

    \b
    Examples:
      sketchstream create -o s.sketch --unit item --epsilon 1 --open --slots 1048576 --levels 8 --key-file key
      sketchstream create -o ids.sketch --unit event --epsilon 1/2 --size 100000
      sketchstream create -o shops.sketch --kind gaussian --epsilon 1 --delta 1e-6 --size 4000 --max-weight 2.5
      sketchstream create -o routes.sketch --table routes.toml --key-file key
    """
    from sketchstream.sketch import Sketch

    gaussian_options = {name: of_gaussian[name] for name in OF_GAUSSIAN if of_gaussian[name] is not None}
    spec: Any = (
        _described_in(table, description, gaussian_options)
        if table is not None
        else description.spec(kind, **gaussian_options)
    )
    sketches.require_free(output)
    key = sketches.load_key(key_file)
    # Drawing is about two thirds of the time, the rest goes into checksum and disk.
    with progress.ProgressBar("drawing the noise", 1.5 * spec.domain.size) as bar:
        sketch = Sketch.create(spec, key, max_epsilon=max_epsilon, max_delta=max_delta, progress=bar.reach)
        bar.reach(spec.domain.size, "writing the sketch")
        write_durably(output, sketch.to_bytes())
    losses = sketch.ledger.totals()
    facts = {"file": str(output), "epsilon": str(spec.epsilon), "unit": spec.unit, "slots": sketch.slots}
    facts |= {"publish": getattr(spec, "publish", "state")}
    show.facts(facts | {name: losses[name] for name in ("loss", "loss_with_intrusion")}, form)


def _described_in(table: Path, description: Description, gaussian_options: Mapping[str, Any]) -> Any:
    """The spec of a file; options that say the same are refused."""
    options = [*gaussian_options, *description.named_options()]
    context = click.get_current_context()
    if context.get_parameter_source("kind") is click.core.ParameterSource.COMMANDLINE:
        options.append("kind")
    for name in options:
        raise ConfigError(f"--{name.replace('_', '-')} is said by the file of --table: leave it out")
    return spec_of_table(table, description.item_type)
