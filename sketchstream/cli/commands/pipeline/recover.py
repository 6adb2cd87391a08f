"""`sketchstream recover`: look at the partitions of a worker, and bring halted ones back.

In: a configuration. Out: the status of each partition. Touches (not with --dry-run): committed offsets with their
pointers, through the same fence as a worker; or the directory store, under its lock.
"""

from __future__ import annotations

from pathlib import Path

import click

from sketchstream.cli import clusters, exits, options, show
from sketchstream.errors import ConfigError
from sketchstream.stream.recover import Diagnosis


@click.command()
@options.config()
@click.option("--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Only this one; repeatable.")
@click.option("--accept-loss", is_flag=True, help="Continue after deleted records; windows are marked partial.")
@click.option("--dry-run", is_flag=True, help="Change nothing; workers may be running.")
@options.result_format()
def command(config_file: Path, partitions: tuple[int, ...], accept_loss: bool, dry_run: bool, form: show.Format) -> int:
    r"""Say of each partition whether a worker can take it, and mend what can be mended without counting twice.

    \b
    healthy    a worker can take it
    unstarted  nothing was ever counted here
    adopt      its offset (of a file: store.json) was overwritten or deleted; it is put back
    accept     records were trimmed, or the input was cut; --accept-loss continues where the input continues
    lost       nothing can be used: `sketchstream reset` starts a new revision
    Workers must be stopped, except with --dry-run. Exit code 4 if a partition stays halted.

    \b
    Example:
      sketchstream recover -c sketchstream.toml --dry-run
    """
    from sketchstream.cli.commands.pipeline.topics import print_rows
    from sketchstream.topics import TOPIC_STRIDE

    config = clusters.load(config_file)
    if config.from_kafka:
        from sketchstream_connectors.kafka.state import recover

        diagnoses: list[Diagnosis] = []
        for topic, topic_config in enumerate(config.per_topic()):
            chosen = [partition % TOPIC_STRIDE for partition in partitions if partition // TOPIC_STRIDE == topic]
            if partitions and not chosen:
                continue
            with clusters.connect(topic_config) as connection:
                names = clusters.names(topic_config)
                new = recover.recover(
                    connection, names, accept_loss=accept_loss, dry_run=dry_run, partitions=chosen or None
                )
            diagnoses += clusters.number_partitions(new, topic)
    else:
        from sketchstream_connectors.factory import file_layout
        from sketchstream_connectors.files.recover import recover_directory
        from sketchstream_connectors.files.source import end_of

        if partitions:
            raise ConfigError(f"{config_file}: a file has one partition")
        end = end_of(config.input_file, file_layout(config))
        diagnoses = recover_directory(config.store_path, end, accept_loss=accept_loss, dry_run=dry_run)
    print_rows(*clusters.findings(diagnoses), form)
    left = {"lost"} | ({"adopt"} if dry_run else set()) | (set() if accept_loss and not dry_run else {"accept"})
    return exits.DATA_LOSS if any(diagnosis.outcome in left for diagnosis in diagnoses) else exits.OK
