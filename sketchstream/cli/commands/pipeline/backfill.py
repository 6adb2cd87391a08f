"""`sketchstream backfill`: publish the windows of a history that lies in Parquet files.

In: a configuration over a Parquet file or folder, a range of time. Out: sealed sketches in its folder, a line for each
window. Touches: what the configuration names; `backfill/` in the folder of its store; the clock, before which windows
must have ended.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from sketchstream.cli import clusters, options, progress, show
from sketchstream.errors import ConfigError

if TYPE_CHECKING:
    from sketchstream_connectors.lake.job import BackfillJob, WindowDone

SOURCE_KEPT: Final = (
    "not claimed: protection against who can read these files; the noise protects from readers of what is published"
)
PER_SECOND: Final = 3e6
"""Events of one sketch that two cores counted with DuckDB (bench/backfill.py); an estimate, and said to be one."""


@click.command()
@options.config()
@click.option("--from", "from_", metavar="TIME", required=True, help="Windows that start at or after this (RFC 3339).")
@click.option("--to", metavar="TIME", required=True, help="Windows that end at or before this time.")
@click.option("--sketch", "names", multiple=True, metavar="NAME", help="Only this sketch; repeatable. Default: all.")
@options.choice("--engine", ("duckdb", "polars", "spark"), "What counts.", "duckdb")
@click.option("--again", metavar="REASON", default="", help="Publish booked windows a second time, at a second charge.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, refused, and spent; draw and write nothing.")
@options.result_format()
def command(
    config_file: Path,
    from_: str,
    to: str,
    names: tuple[str, ...],
    engine: str,
    again: str,
    dry_run: bool,
    form: show.Format,
) -> None:
    r"""Count a history exactly with an engine, and publish each window as a worker would have.

    Noise is drawn once for each window: its loss is booked before, its body is stored before it is published, and the
    same command again publishes the same bytes. Over other files it is refused for windows that are booked.

    It may be stopped at any time. Where data were wrong, --again REASON begins a new revision: both losses add up.

    \b
    Example:
      sketchstream backfill -c sketchstream.toml --from 2013-01-01T00:00:00-05:00 --to 2014-01-01T00:00:00-05:00
    """
    from sketchstream.query.times import to_ms
    from sketchstream_connectors.lake.job import BackfillJob
    from sketchstream_connectors.readers import open_published

    start, end = to_ms(from_, "--from"), to_ms(to, "--to")
    assert start is not None
    assert end is not None
    config = clusters.load(config_file)
    with contextlib.closing(BackfillJob(config, start, end, names, engine, again)) as job:
        _require_ended(job, time.time_ns() // 1_000_000)
        planned = [(plan, len(job.windows(plan))) for plan in job.plans]
        facts: dict[str, Any] = {
            "table": job.table,
            "snapshot": job.snapshot,
            "files": len(job.input),
            "rows": job.rows,
            "bytes": sum(size for _, size, _ in job.input),
            "about seconds": round(job.rows * len(job.plans) / PER_SECOND, 1),
            "sketches": [
                {
                    "sketch": plan.name,
                    "windows": number,
                    "unit": plan.spec.unit,
                    "epsilon of each": plan.loss,
                    "epsilon over revisions": plan.loss * job.charged(plan),
                    "bytes in memory": plan.window_bytes(1, checked=False),
                }
                for plan, number in planned
            ],
        }
        if dry_run:
            bounds, would = [], []
            for plan in job.plans:
                boundary = job.boundary(plan)
                times = {"history_through": _time(boundary.history), "live_from": _time(boundary.live)}
                bounds.append({"sketch": plan.name, **times})
                would += [{**_row(done), "reason": done.reason} for done in job.planned(plan, boundary)]
            show.facts({**facts, "boundaries": bounds, "would do": would}, form)
            return
        if job.begins_revision:
            with open_published(config) as published:
                ledgers = [plan.ledger for plan in job.plans for _ in range(plan.overlap)]
                published.deployment().require_room(ledgers, config.items_in_a_period())
        rows = []
        with progress.ProgressBar("counting", sum(number for _, number in planned)) as bar:
            for done in job.run():
                rows.append(_row(done))
                bar.advance(1, f"{done.sketch} {rows[-1]['window']}")
    show.facts({**facts, "input": SOURCE_KEPT, "done": rows}, form)


def _require_ended(job: BackfillJob, now_ms: int) -> None:
    """Refuse windows that have not ended: live records of theirs would be late for workers, for good.

    Raises:
        ConfigError: there is such a window.
    """
    from sketchstream.stream.windows.calendar import iso

    for plan in job.plans:
        begun = next((window for window in job.windows(plan) if window[1] > now_ms), None)
        if begun is not None:
            raise ConfigError(
                f"the window of sketch {plan.name} that begins at {iso(begun[0])} has not ended, so the table cannot "
                "hold all of it, and what comes later would be late for workers: end the range with windows that are "
                f"over (--to {iso(begun[0])}, or earlier)"
            )


def _row(done: WindowDone) -> dict[str, str]:
    """A window and what became of it, or would."""
    from sketchstream.stream.windows.calendar import iso

    begin, stop = map(iso, done.window)
    return {"sketch": done.sketch, "window": begin, "end": stop, "what": done.outcome}


def _time(claimed: int) -> str | None:
    """A time that was claimed; None: no window is."""
    from sketchstream.stream.windows.boundary import NO_LIVE_WINDOW
    from sketchstream.stream.windows.calendar import NO_TIME, iso

    return None if claimed in (NO_TIME, NO_LIVE_WINDOW) else iso(claimed)
