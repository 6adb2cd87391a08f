"""Builds a worker from a configuration: its source, store and publishers.

In: a `Config`. Out: a `Worker`, not started. Touches: resources of the configuration (files, the store's lock;
for a topic, connections).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from sketchstream import kinds
from sketchstream.config import resources
from sketchstream.config.loader import Config
from sketchstream.stream.formats import RECORD_TIME
from sketchstream.stream.input.sampling import Wanted
from sketchstream.stream.monitoring.metrics import Metrics
from sketchstream.stream.state.rules import Rules
from sketchstream.stream.worker.settings import Settings
from sketchstream.stream.worker.status import Progress
from sketchstream.stream.worker.worker import Worker
from sketchstream_connectors.decode.decoder import Decoder
from sketchstream_connectors.files.layout import Layout
from sketchstream_connectors.files.publisher import DirectoryPublisher
from sketchstream_connectors.files.source import FileSource, sample_of
from sketchstream_connectors.files.store import DirectoryStore

if TYPE_CHECKING:
    from sketchstream.config.schema import InputTable


def rules(config: Config) -> Rules:
    """The common rules of all partitions; reads the key file.

    Raises:
        ConfigError: a topic partitioned by item, and no partitioner is set.
        KeyMismatchError: the key file cannot be read.
    """
    config.require_partitioner()
    return Rules(
        sketches=config.sketches,
        key=config.load_key(),
        lateness_ms=config.input.lateness,
        max_ahead_ms=config.max_ahead,
        quorum=config.quorum,
        partitioner=config.partitioner,
        fingerprint=config.fingerprint,
        unkeyed=not config.from_kafka or config.input.partitioned_by == "none",
    )


def settings(config: Config) -> Settings:
    """How the worker runs."""
    files = not config.from_kafka
    return Settings(
        snapshot_every_s=config.store.snapshot_every / 1000,
        snapshot_bytes_per_s=float(config.store.snapshot_rate),
        idle_ms=None if files else config.input.idle,
        idle_topic_ms=config.input.idle_topic,
        threads=0 if files else 4,
        fail_fast=config.worker.fail_fast,
        accept_loss=config.input.data_loss == "accept",
        close_at_end=config.input.close_at_end,
        refused_per_s=float(config.input.dead_letter_rate),
        refused_payload=config.input.dead_letter_payload,
        give_up_after=5 if files else None,
        durable_within_s=max(config.worker.durable_within, 3 * config.store.snapshot_every) / 1000,
        fits=None if files else partial(resources.fits_memory, config),
    )


def file_layout(config: Config) -> Layout:
    """How the input file is read."""
    return _layout(config, config.format, config.input)


def history_layout(config: Config) -> Layout:
    """How the table of earlier records is read."""
    replaced = {} if config.history is None else config.history.model_dump(include={"item", "weight", "time"})
    table = config.input.model_copy(update={name: value for name, value in replaced.items() if value})
    return _layout(config, "parquet", table)


def _layout(config: Config, record_format: str, table: InputTable) -> Layout:
    fields = _fields(config, table) | {"time": None if table.time == RECORD_TIME else table.time}
    return Layout(record_format, **fields)  # type: ignore[arg-type]  # a file's format, checked by the configuration


def _fields(config: Config, table: InputTable) -> dict[str, Any]:
    """What is read of each record, by its name in `Fields` and `Layout`."""
    return {
        "item": table.item,
        "item_type": table.item_type,
        "weight": table.weight,
        "time": table.time,
        "columns": config.columns,
        "decimals": config.decimal_weights,
        "time_unit": table.time_unit,
    }


def decoder_of(config: Config) -> Decoder:
    """How the payloads of the configured topic are read."""
    record_format = {"jsonl": "json", "msgpack": "packed"}.get(config.format, config.format)
    return Decoder(record_format, **_fields(config, config.input), payload=config.payload, folder=config.folder)


def wanted_fields(config: Config) -> Wanted:
    """The fields that a configuration names, to be compared with a sample of its input."""
    weights = (kinds.kind_of(plan.spec).intake.most_weight(plan.spec) for plan in config.sketches)
    limits = [limit for limit in weights if limit is not None]
    return Wanted(
        item=config.input.item,
        weight=config.input.weight,
        time=None if config.input.time == RECORD_TIME else config.input.time,
        item_type=config.input.item_type,
        max_weight=max(limits) if len(limits) == len(config.sketches) else None,
        columns=tuple(
            (field, f'{role} of sketch "{plan.name}"')
            for plan in config.sketches
            for role, field in plan.fields.items()
        ),
        decimals=config.decimal_weights,
        time_unit=config.input.time_unit,
        plans=tuple(config.sketches),
        lateness_ms=None if config.input_file is None else config.input.lateness,
    )


def look_at_file(config: Config) -> tuple[list[str], list[str]]:
    """Mistakes and warnings that the first records of the input file give rise to; nothing for standard input."""
    path = config.input_file
    if path is None:
        return [], []
    if not path.exists():
        return [], [f"input.file = {config.input.file!r}: there is no such file, and a worker ends without it"]
    return sample_of(path, file_layout(config), wanted_fields(config)).verdict()


def file_worker(
    config: Config, *, progress: Callable[[Progress], None] | None = None, metrics: Metrics | None = None
) -> Worker:
    """The worker of a file or standard input.

    Raises:
        KeyMismatchError, StoreError, DataLossError: the key or the store cannot be used.
    """
    common = rules(config)
    directory = config.sealed_directory
    assert directory is not None
    return Worker(
        common,
        FileSource(config.input_file, file_layout(config), wanted_fields(config), diagnosed=config.diagnosed),
        DirectoryStore(config.store_path, counts=config.input_file),
        DirectoryPublisher(directory),
        settings=settings(config),
        metrics=metrics or Metrics(diagnostics=config.diagnosed),
        progress=progress,
    )
