"""`sketchstream seal`: publish what a sketch promised and destroy its state.

In: an open sketch. Out: a published file. Touches: both files; the open one is gone afterwards.
"""

from __future__ import annotations

from pathlib import Path

import click

from sketchstream.cli import options, show, sketches
from sketchstream.files import PUBLIC, write_durably


@click.command()
@click.argument("sketch", type=options.FILE)
@options.output("Published file to make")
@options.key_file()
@options.result_format()
def command(sketch: Path, output: Path, key_file: Path | None, form: show.Format) -> None:
    r"""End an open sketch: publish the histogram of its counters with fresh noise (or its state, if it was made so).

    The publication replaces the state in the sketch's own file first, is then written to the output, and the
    sketch's file is deleted. A command that was stopped in between is finished by running it again.

    \b
    Example:
      sketchstream seal s.sketch -o s.sealed --key-file key
    """
    from sketchstream.kinds.capabilities import Reconstructing
    from sketchstream.published import Release

    with sketches.lock(sketch) as predecessor:
        waiting = sketches.read_interrupted_seal(sketch)
        written = waiting is not None and output.exists() and sketches.read_bytes(output) == waiting.to_bytes()
        if not written:
            sketches.require_free(output)
        sealed = waiting or sketches.seal(sketch, key_file, predecessor)
        if not written:
            write_durably(output, sealed.to_bytes(), mode=PUBLIC)
        sketches.remove(sketch)
    histogram = isinstance(sealed, Release) and isinstance(sealed.kind, Reconstructing)
    facts = {
        "file": str(output),
        "published": "histogram" if histogram else "state",
        "slots": sealed.slots,
        "loss": sealed.ledger.totals()["loss"],
    }
    show.facts(facts, form)
