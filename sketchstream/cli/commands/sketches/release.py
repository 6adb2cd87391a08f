"""`sketchstream release`: publish a noisy look at an open sketch, which stays open.

In: an open sketch and a cost. Out: a published file. Touches: both files.
"""

from __future__ import annotations

from pathlib import Path

import click

from sketchstream.cli import options, show, sketches
from sketchstream.files import PUBLIC, replace_secret, write_durably


@click.command()
@click.argument("sketch", type=options.FILE)
@options.output("Published file to make")
@click.option("--epsilon", required=True, help="Cost of this look; events still to come pay it too.")
@click.option("--delta", help="Delta of this look, for kinds with Gaussian noise.")
@options.key_file()
@options.result_format()
def command(
    sketch: Path, output: Path, epsilon: str, delta: str | None, key_file: Path | None, form: show.Format
) -> None:
    r"""Publish a noisy view of the counters, for kind profile their histogram; the sketch stays open.

    The cost is charged to the sketch's ledger, durably, before anything leaves.

    \b
    Example:
      sketchstream release s.sketch -o look.sealed --epsilon 0.1 --key-file key
    """
    sketches.require_free(output)
    with sketches.lock(sketch) as predecessor:
        opened = sketches.open_sketch(sketch, key_file)
        released = opened.release(epsilon, delta)
        replace_secret(sketch, opened.to_bytes(), predecessor)
        write_durably(output, released.to_bytes(), mode=PUBLIC)
    losses = opened.ledger.totals()
    facts = {
        "file": str(output),
        "cost": str(released.cost),
        "loss_to_this_release": released.loss,
        **{name: losses[name] for name in ("loss", "loss_with_intrusion")},
    }
    show.facts(facts, form)
