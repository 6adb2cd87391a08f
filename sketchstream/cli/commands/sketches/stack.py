"""`sketchstream stack`: published sketches of disjoint populations, side by side.

In: published files. Out: one published file. Touches: those files.
"""

from __future__ import annotations

from pathlib import Path

import click

from sketchstream.cli import options, show, sketches
from sketchstream.files import PUBLIC, write_durably


@click.command()
@click.argument("files", type=options.FILE, nargs=-1, required=True)
@options.output("Published file to make")
@options.result_format()
def command(files: tuple[Path, ...], output: Path, form: show.Format) -> None:
    r"""Put published sketches of disjoint populations side by side, as the partitions of one window are.

    Right only if all events of an item lie in one of the files. Free of charge: the noise does not grow.

    \b
    Example:
      sketchstream stack p0.sealed p1.sealed -o window.sealed
    """
    from sketchstream import published

    sketches.require_free(output)
    stacked = published.stack([sketches.read_published(path, "stack") for path in files])
    write_durably(output, stacked.to_bytes(), mode=PUBLIC)
    show.facts({"file": str(output), "parts": len(stacked.parts), "slots": stacked.slots}, form)
