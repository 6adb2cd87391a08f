"""`sketchstream backfill`: publish the windows of a history that lies in Parquet files.

In: a configuration over a Parquet file or folder, a range of time. Out: sealed sketches in its folder, a line for each
window. Touches: what the configuration names; `backfill/` in the folder of its store.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Final

import click

from sketchstream.cli import options, progress, show

SOURCE_KEPT: Final = (
    "not claimed: protection against who can read these files; the noise protects from readers of what is published"
)


@click.command(short_help="Publish the windows of a history that lies in Parquet files.")
@options.config()
@click.option("--from", "from_", metavar="TIME", required=True, help="Windows that start at or after this (RFC 3339).")
@click.option("--to", metavar="TIME", required=True, help="Windows that end at or before this time.")
@click.option("--sketch", "names", multiple=True, metavar="NAME", help="Only this sketch; repeatable. Default: all.")
@click.option(
    "--engine",
    type=click.Choice(["duckdb", "polars", "spark"]),
    default="duckdb",
    show_default=True,
    help="What counts.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done and what it costs; draw and write nothing.")
@options.result_format()
def command(
    config_file: Path, from_: str, to: str, names: tuple[str, ...], engine: str, dry_run: bool, form: show.Format
) -> None:
    r"""Count a history exactly with an engine, and publish each window as a worker would have.

    Noise is drawn once for each window: its loss is booked before, its body is stored before it is published, and the
    same command again publishes the same bytes. Over other files it is refused for windows that are booked.

    \b
    Example:
      sketchstream backfill -c sketchstream.toml --from 2013-01-01T00:00:00-05:00 --to 2014-01-01T00:00:00-05:00
    """
    from sketchstream.cli import clusters
    from sketchstream.query.windows import to_ms
    from sketchstream.stream.windows import iso
    from sketchstream_connectors.lake.job import Backfill

    start, end = to_ms(from_, "--from"), to_ms(to, "--to")
    assert start is not None
    assert end is not None
    with contextlib.closing(Backfill(clusters.load(config_file), start, end, names, engine)) as job:
        planned = [(plan, len(job.windows(plan))) for plan in job.plans]
        facts: dict[str, Any] = {
            "files": len(job.input),
            "bytes": sum(size for _, size, _ in job.input),
            "sketches": [
                {"sketch": plan.name, "windows": number, "unit": plan.spec.unit, "epsilon of each": plan.loss}
                for plan, number in planned
            ],
        }
        if dry_run:
            show.facts(facts, form)
            return
        rows = []
        with progress.Progress("counting", sum(number for _, number in planned)) as bar:
            for done in job.run():
                begin, stop = map(iso, done.window)
                rows.append({"sketch": done.sketch, "window": begin, "end": stop, "what": done.what})
                bar.advance(1, f"{done.sketch} {begin}")
    show.facts({**facts, "input": SOURCE_KEPT, "done": rows}, form)
