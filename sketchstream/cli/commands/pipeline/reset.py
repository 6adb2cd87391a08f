"""`sketchstream reset`: start a new revision of a configuration's sketches.

In: a configuration whose workers are stopped. Out: where the new revision begins. Touches: the store of its snapshots,
which is emptied, and committed positions; publications stay.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import click

from sketchstream.cli import clusters, options, show
from sketchstream.errors import ConfigError

if TYPE_CHECKING:
    from sketchstream.config.loader import Config
    from sketchstream.stream.recover import Diagnosis
    from sketchstream_connectors.kafka.state.recover import Start

PLACES: Final = ("beginning", "end", "committed")


@click.command()
@options.config()
@click.option(
    "--to",
    "place",
    metavar="PLACE",
    help="beginning, end, committed or an RFC 3339 time.  [default: end; files: beginning]",
)
@click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask; needed where nobody can answer.")
@options.result_format()
def command(config_file: Path, place: str | None, dry_run: bool, yes: bool, form: show.Format) -> None:
    r"""Drop open windows and positions, and count on, or again, as a new revision. All workers must be stopped.

    What was published stays, under the revision it was published under. Events that are counted again are published
    again: their losses add, and `sketchstream ledger` shows it; above privacy.max_epsilon or
    privacy.budget that is refused. A file is always counted again from its beginning, a topic always in all
    partitions: a reset that was interrupted is finished by the next one.

    \b
    Examples:
      sketchstream reset -c sketchstream.toml --to end --dry-run
      sketchstream reset -c sketchstream.toml --to 2024-05-01T00:00Z --yes
    """
    from sketchstream_connectors.readers import open_published

    config = clusters.load(config_file)
    if not config.from_kafka and place not in (None, "beginning"):
        raise ConfigError(
            f"{config_file}: a file has one partition and is counted again from its beginning; leave --to out"
        )
    start = _start(place)
    if not yes and not dry_run:
        if not sys.stdin.isatty():
            raise ConfigError(
                "reset drops open windows and may publish events a second time: say --yes, or look with --dry-run"
            )
        click.confirm("Drop all open windows and begin a new revision?", abort=True, err=True)
    limited = config.privacy.max_epsilon is not None or config.budget is not None
    if limited and (start not in ("end", "committed") or not config.from_kafka):
        with open_published(config) as published:
            ledgers = [plan.ledger for plan in config.sketches for _ in range(plan.overlap)]
            published.deployment().require_room(ledgers, config.items_in_a_period())
    if config.from_kafka:
        _topic(config, start, dry_run, form)
    else:
        _file(config, dry_run, form)


def _start(place: str | None) -> Start | int:
    """Where the new revision begins."""
    from sketchstream.query.times import to_ms

    if place is None or place in PLACES:
        return cast("Start", place or "end")
    moment = to_ms(place, "--to")
    assert moment is not None
    return moment


def _topic(config: Config, start: Start | int, dry_run: bool, form: show.Format) -> None:
    """Begin a new revision in the partitions of a topic."""
    from sketchstream.cli.commands.pipeline.topics import print_rows
    from sketchstream_connectors.kafka.state import recover

    diagnoses: list[Diagnosis] = []
    with contextlib.ExitStack() as stack:
        places = [
            (t, stack.enter_context(clusters.connect(topic_config)), topic_config)
            for t, topic_config in enumerate(config.per_topic())
        ]
        several = places if config.other_topics else []  # all begin one revision, the largest of theirs
        planned = [
            recover.reset(connection, clusters.names(topic_config), to=start, dry_run=True)
            for _, connection, topic_config in several
        ]
        least = max((diagnosis.revision for topic in planned for diagnosis in topic), default=0)
        for topic, connection, topic_config in places:
            names = clusters.names(topic_config)
            new = recover.reset(connection, names, to=start, dry_run=dry_run, least=least)
            diagnoses += clusters.number_partitions(new, topic)
    print_rows(*clusters.findings(diagnoses), form)


def _file(config: Config, dry_run: bool, form: show.Format) -> None:
    """Begin a new revision of a file's worker."""
    from sketchstream_connectors.files.store import DirectoryStore

    with contextlib.closing(DirectoryStore(config.store_path)) as store:
        before = store.revision
        revision = before + 1 if dry_run else store.reset()
    show.warn(f"events published under revision {before} lose epsilon again under revision {revision}")
    show.facts({"store": str(config.store_path), "revision": revision}, form)
