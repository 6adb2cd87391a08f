"""`sketchstream worker`: run the pipeline of a configuration.

In: a configuration. Out: sealed sketches in a topic or a folder; log lines on standard error. Touches: what the
configuration names; SIGINT and SIGTERM end it in order.
"""

from __future__ import annotations

import contextlib
import logging
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sketchstream.cli import clusters, options, progress
from sketchstream.config import resources
from sketchstream.log_events import EventLog, begin

if TYPE_CHECKING:
    from sketchstream.config.loader import Config
    from sketchstream.stream.worker.status import Progress
    from sketchstream.stream.worker.worker import Worker


@click.command()
@options.config()
@click.option("--fail-fast", is_flag=True, help="End with exit code 4 when a partition halts, as worker.fail_fast.")
@click.option("--leave", is_flag=True, help="At the end, give up static membership (group.instance.id) at once.")
@options.logged("debug adds the positions of all chunks, and the Kafka client's own warnings.")
def command(config_file: Path, fail_fast: bool, leave: bool, log_level: str, log_format: str) -> None:
    r"""Consume events, keep one noisy sketch for each sketch, window and partition, seal and publish them.

    From a topic it runs until it is stopped (SIGINT or SIGTERM: last snapshots, then exit code 0), and any number of
    workers share the partitions. From a file it ends with the file.

    \b
    Example:
      sketchstream worker -c sketchstream.toml
    """
    begin(log_level, log_format)
    # The worker logs the client's warnings itself, and debug lines contain whole requests, including records.
    logging.getLogger("kafka").setLevel(logging.WARNING if log_level == "debug" else logging.CRITICAL)
    config = clusters.load(config_file)
    if not config.from_kafka:
        resources.check_memory(config, partitions=1, here=True)
    run(config, fail_fast=fail_fast, leave=leave)


def run(
    config: Config,
    *,
    fail_fast: bool = False,
    leave: bool = False,
    watch: Callable[[Progress], None] | None = None,
) -> None:
    """Run the worker of a configuration until it ends or is stopped.

    Args:
        config: what to run.
        fail_fast: end when a partition halts.
        leave: give up static membership at the end.
        watch: called after every step with the worker's status; default: a status line on a terminal.
    """
    from sketchstream.stream.worker import log_lines

    with progress.ProgressBar("starting") as bar:
        status = watch or (lambda now: bar.reach(now.records, now.line()))
        worker = _worker(config, fail_fast, status)
        with stopping(worker.stop), _metrics(config, worker):
            worker.run(leave=leave)
    event_log = EventLog("sketchstream.worker")
    last = worker.progress()
    text = f"{last.line()}, {log_lines.counts(worker.metrics)}"
    event_log.info("ended", text, **last.fields(), **log_lines.counters_shown(worker.metrics))
    for text in worker.closing_messages:
        event_log.info("note", text)


def _worker(config: Config, fail_fast: bool, status: Callable[[Progress], None]) -> Worker:
    """The worker, not started."""
    from sketchstream.stream.monitoring.metrics import Metrics
    from sketchstream_connectors import factory

    if not config.from_kafka:
        return factory.file_worker(config, progress=status)
    from sketchstream_connectors.kafka.worker import look_at_input, open_worker

    look_at_input(config)
    settings = factory.settings(config)
    return open_worker(
        config,
        factory.rules(config),
        settings=replace(settings, fail_fast=settings.fail_fast or fail_fast),
        metrics=Metrics(diagnostics=config.diagnosed),
        progress=status,
    )


@contextlib.contextmanager
def stopping(finish: Callable[[], None]) -> Iterator[None]:
    """SIGINT and SIGTERM ask the process to finish; a second one ends it at once.

    Args:
        finish: called by the first one.
    """

    def stop(number: int, _frame: object) -> None:
        signal.signal(number, before[number])
        finish()

    before = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number in before:
            signal.signal(number, stop)
    except ValueError:  # not the main thread: the caller decides when to stop
        before.clear()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _metrics(config: Config, worker: Worker) -> Iterator[None]:
    """The operator's endpoint, if the configuration has one."""
    if config.worker.metrics is None:
        yield
        return
    from sketchstream.config.addresses import address
    from sketchstream.stream.monitoring.endpoint import Endpoint

    place = address(config.worker.metrics, "worker.metrics")
    topics = [topic_config.input.topic or "file" for topic_config in config.per_topic()]
    with contextlib.closing(Endpoint(place, worker.metrics, worker.gauges, topics)):
        yield
