"""`sketchstream merge`: sealed states of one population, added up.

In: files of sealed states. Out: one such file, and the cost of the merge in accuracy. Touches: those files.
"""

from __future__ import annotations

from pathlib import Path

import click

from sketchstream.cli import options, show, sketches
from sketchstream.errors import MergeError
from sketchstream.files import PUBLIC, write_durably


@click.command()
@click.argument("files", type=options.FILE, nargs=-1, required=True)
@options.output("Published file to make")
@options.result_format()
def command(files: tuple[Path, ...], output: Path, form: show.Format) -> None:
    r"""Add sealed states of the same population: several sites, or several time ranges.

    Their noise adds too. The factor that is printed is the growth of the error at the worst frequency, against one
    state; where items are disjoint, `stack` is far better.

    \b
    Example:
      sketchstream merge site1.sealed site2.sealed -o both.sealed
    """
    from sketchstream.published import SealedState
    from sketchstream.sketch import merge

    sketches.require_free(output)
    parts = []
    for path in files:
        part = sketches.read_published(path, "merge")
        if not isinstance(part, SealedState):
            raise MergeError(
                f"{path} holds a histogram, which cannot be merged: stack it, or create sketches with --publish state"
            )
        parts.append(part)
    merged = merge(parts)
    write_durably(output, merged.to_bytes(), mode=PUBLIC)
    facts: dict[str, object] = {"file": str(output), "parts": len(parts), "layers": len(merged.layers)}
    if (factor := merged.error_growth(parts[0])) is not None:
        facts["error_factor"] = round(factor, 4)
    show.facts(facts, form)
