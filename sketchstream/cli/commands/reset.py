"""`sketchstream reset`: start a new revision of a configuration's sketches.

In: a configuration whose worker is stopped. Out: the number of the new revision. Touches: the store of its snapshots,
which is emptied; what was published stays.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sketchstream.cli import options, show


@click.command(short_help="Start a new revision after data loss: count again from the beginning.")
@options.config()
@click.option("--yes", is_flag=True, help="Do not ask; needed where nobody can answer.")
@options.result_format()
def command(config_file: Path, yes: bool, form: show.Format) -> None:
    r"""Drop the open windows and positions of a file's worker, and count again from the beginning as a new revision.

    What was published stays, under the revision it was published under. Events that are counted again are published
    again: their losses add, and `sketchstream ledger` shows it. The worker must be stopped.

    \b
    Example:
      sketchstream reset -c sketchstream.toml --yes
    """
    from sketchstream.cli import clusters
    from sketchstream.errors import ConfigError
    from sketchstream.stream.store import DirectoryStore

    config = clusters.load(config_file)
    if config.from_kafka:
        msg = (
            f"{config_file}: reset works on the store of a file's worker; to count a topic again, stop all workers and "
            'give [kafka] a new "group.id": that is a new deployment, whose losses add to those of the former one'
        )
        raise ConfigError(msg)
    if not yes:
        if not sys.stdin.isatty():
            msg = "reset drops open windows and publishes events a second time: say --yes"
            raise ConfigError(msg)
        click.confirm(f"Drop all open windows in {config.store_path} and count again?", abort=True, err=True)
    store = DirectoryStore(config.store_path)
    try:
        before, revision = store.revision, store.reset()
    finally:
        store.close()
    click.echo(
        f"sketchstream: warning: events published under revision {before} lose epsilon again under revision {revision}",
        err=True,
    )
    show.facts({"store": str(config.store_path), "revision": revision}, form)
