"""`sketchstream seal`: publish what a sketch promised and destroy its state.

In: an open sketch. Out: a published file. Touches: both files; the open one is gone afterwards.
"""

from __future__ import annotations

from pathlib import Path

import click

from sketchstream.cli import options, show


@click.command(short_help="Publish what an open sketch promised, and destroy its state.")
@click.argument("sketch", type=options.FILE)
@options.output("Published file to make")
@options.key_file()
@options.result_format()
def command(sketch: Path, output: Path, key_file: Path | None, form: show.Format) -> None:
    r"""End an open sketch: publish the histogram of its counters with fresh noise (or its state, if it was made so).

    The published file is written durably first; then the open sketch is deleted.

    \b
    Example:
      sketchstream seal s.sketch -o s.sealed --key-file key
    """
    from sketchstream.cli import sketches
    from sketchstream.files import PUBLIC, write_durably
    from sketchstream.privacy import ledger

    sketches.require_free(output)
    with sketches.locked(sketch):
        opened = sketches.open_sketch(sketch, key_file)
        sealed = opened.seal()
        write_durably(output, sealed.to_bytes(), mode=PUBLIC)
        sketches.remove(sketch)
    facts = {
        "file": str(output),
        "published": sealed.spec.publish,
        "slots": sealed.slots,
        "loss": ledger.show(sealed.ledger.loss()),
    }
    show.facts(facts, form)
