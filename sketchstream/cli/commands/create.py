"""`sketchstream create`: an open sketch, its noise drawn.

In: what the sketch shall be. Out: a file of mode 0600, a secret like a key. Touches: that file, the operating
system's entropy.
"""

from __future__ import annotations

from pathlib import Path

import click

from sketchstream.cli import options, progress, show
from sketchstream.cli.specs import Description, described


@click.command(short_help="Make an open sketch: draw its noise, before any event.")
@options.output("Sketch file to make")
@described
@click.option("--max-epsilon", help="Budget: looks that would take the loss above it are refused.")
@options.key_file()
@options.result_format()
def command(
    output: Path, description: Description, max_epsilon: str | None, key_file: Path | None, form: show.Format
) -> None:
    r"""Make an open sketch: its noise is drawn now, before any event.

    The file is a secret, like a key: whoever has two copies of one open sketch sees what happened between them.

    \b
    Examples:
      sketchstream create -o s.sketch --epsilon 1 --open --slots 1048576 --levels 8 --key-file key
      sketchstream create -o ids.sketch --epsilon 1/2 --size 100000
    """
    from sketchstream.cli import sketches
    from sketchstream.files import write_durably
    from sketchstream.privacy import ledger
    from sketchstream.sketch import Sketch

    spec = description.spec()
    sketches.require_free(output)
    key = sketches.load_key(key_file)
    # Drawing is about two thirds of the time, the rest goes into checksum and disk.
    with progress.Progress("drawing the noise", 1.5 * spec.domain.size) as bar:
        sketch = Sketch.create(spec, key, max_epsilon=max_epsilon, progress=bar.reach)
        bar.reach(spec.domain.size, "writing the sketch")
        write_durably(output, sketch.to_bytes())
    show.facts(
        {
            "file": str(output),
            "epsilon": str(spec.epsilon),
            "unit": spec.unit,
            "slots": sketch.slots,
            "publish": spec.publish,
            "loss": ledger.show(sketch.ledger.loss()),
            "loss_with_intrusion": ledger.show(sketch.ledger.loss(intrusion=True)),
        },
        form,
    )
