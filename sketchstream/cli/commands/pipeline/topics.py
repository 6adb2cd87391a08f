"""`sketchstream topics`: the Kafka topics of a configuration.

In: a configuration. Out: topics that were created, extended or found wrong. Touches: the cluster (`create` only).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from sketchstream.cli import clusters, exits, options, show


@click.group()
def command() -> None:
    r"""The topics of a configuration: the internal one for snapshots, the one for sealed sketches, dead letters.

    \b
    Example:
      sketchstream topics create -c sketchstream.toml
    """


@command.command(short_help="Make missing topics, grow those with too few partitions.")
@options.config()
@click.option("--replication", type=click.IntRange(1, 100), help="Copies of new topics.  [default: as the input topic]")
@click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")
@options.result_format()
def create(config_file: Path, replication: int | None, dry_run: bool, form: show.Format) -> int:
    r"""Make the topics that a worker needs, with as many partitions as the input topic.

    Settings of topics that exist are never changed: those under which data would be lost are reported, with exit
    code 1.

    \b
    Example:
      sketchstream topics create -c sketchstream.toml --dry-run
    """
    from sketchstream_connectors.kafka.cluster import topics

    config = clusters.load(config_file)
    clusters.require_topic(config, "topics create")
    changes: dict[topics.Change, None] = {}
    with clusters.connect(config) as connection:
        for topic_config in config.per_topic():
            names = clusters.names(topic_config)
            changes |= dict.fromkeys(topics.create(connection, names, replication=replication, dry_run=dry_run))
    print_rows(("topic", "outcome", "what"), [(change.topic, change.outcome, change.text) for change in changes], form)
    wrong = [change for change in changes if change.outcome == "wrong"]
    for change in wrong:
        show.warn(f"topic {change.topic}: {change.text}")
    return exits.INPUT if wrong else exits.OK


@command.command(short_help="Print what a worker's principal must be allowed.")
@options.config()
@options.result_format()
def acls(config_file: Path, form: show.Format) -> None:
    r"""Print the access that a worker needs, resource by resource; nothing is changed and no broker is asked.

    \b
    Example:
      sketchstream topics acls -c sketchstream.toml
    """
    from sketchstream_connectors.kafka.cluster import topics

    config = clusters.load(config_file)
    clusters.require_topic(config, "topics acls")
    rows = dict.fromkeys(
        (name, kind, pattern, ", ".join(ops))
        for topic_config in config.per_topic()
        for kind, name, pattern, ops in topics.acls(clusters.names(topic_config))
    )
    print_rows(("name", "resource", "pattern", "operations"), list(rows), form)


def print_rows(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], form: show.Format) -> None:
    """Print rows in the chosen format; JSON is a list of objects."""
    if show.print_data(form, lambda: [dict(zip(columns, row, strict=True)) for row in rows], columns, lambda: rows):
        show.print_table(columns, rows)
