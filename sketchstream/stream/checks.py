"""What tables of a configuration must not say together, and the settings of Kafka that are not the user's.

In: validated tables. Out: nothing, or a ConfigError of one line. Touches: nothing.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sketchstream.errors import ConfigError, SpecError
from sketchstream.spec import exact_epsilon
from sketchstream.stream.windows import DAY_MS

if TYPE_CHECKING:
    from sketchstream.stream.config import Config
    from sketchstream.stream.schema import FileTable

_OFFSETS = "positions are committed together with the state they belong to"
_FENCE = "it is part of the fence that keeps two workers from counting twice"
_INPUT = "records are decoded as [input] says"
_BYTES = "records are written as they are"
OWNED = {
    "enable.auto.commit": _OFFSETS,
    "auto.commit.interval.ms": _OFFSETS,
    "auto.offset.reset": "nothing is inferred to be a cold start; `sketchstream reset` moves positions",
    "isolation.level": "aborted records must not be counted, and pending positions must be waited for",
    "partition.assignment.strategy": "the worker brings an assignor that leaves no partition unowned",
    "group.protocol": "the classic protocol is the one this worker was tested with",
    "group.remote.assignor": "the worker brings its own assignor",
    "acks": "snapshots and sealed sketches are always acknowledged by all replicas",
    "enable.idempotence": "producers are always idempotent",
    "transactional.id": _FENCE,
    "transaction.timeout.ms": _FENCE,
    "key.deserializer": _INPUT,
    "value.deserializer": _INPUT,
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "retries": "the delivery timeout limits retries",
    "max.poll.records": "batches are handed over whole",
    "max.in.flight.requests.per.connection": "order and idempotence depend on it",
}
"""Kafka's keys that our semantics own, and why."""

NO_PARTITIONER = (
    "input.partitioner is missing: how the producers choose the partition of a key; `sketchstream validate -c FILE "
    '--write` finds it in a sample of the topic and puts it into the file (Java and kafka-python: "murmur2"; '
    'librdkafka, confluent-kafka: "consistent_random")'
)
"""Why a worker does not start, and what to do."""

FILE_FORMATS = {"json": "jsonl", "packed": "msgpack"}
COMPRESSED = (".gz", ".zst")
"""Endings of compressed files; the format is told by the ending before them."""
SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".msgpack": "msgpack",
    ".txt": "lines",
}


def file_format(named: str | None, file: str) -> str | None:
    """The format that was named, else the one that a file's ending says; None if it says nothing."""
    if named:
        return FILE_FORMATS.get(named, named)
    path = Path(file)
    inner = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return SUFFIXES.get(inner.suffix.lower())


def kafka_settings(table: FileTable) -> dict[str, Any]:
    """Kafka's own settings, those that are ours refused."""
    kafka: dict[str, Any] = {}
    for name, value in table.kafka.items():
        bare = name.split(".", 1)[1] if name.split(".", 1)[0] in ("consumer", "producer", "admin") else name
        if bare in OWNED:
            msg = f'kafka "{name}" cannot be set: {OWNED[bare]}'
            raise ConfigError(msg)
        if "_" in name and name.replace("_", ".") != name:
            msg = f'unknown key kafka "{name}"; Kafka\'s names have dots: "{name.replace("_", ".")}"'
            raise ConfigError(msg)
        if isinstance(value, (list, dict)):
            msg = f'kafka "{name}" must be a text, a number or true/false'
            raise ConfigError(msg)
        kafka[name] = value
    known = ("bootstrap.servers", "group.id", "client.id", "group.instance.id", "security.protocol", "client.rack")
    for name in kafka:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
        if near and name not in known:
            msg = f'unknown key kafka "{name}"; did you mean "{near[0]}"?'
            raise ConfigError(msg)
    return kafka


def check_input(table: FileTable, kafka: Mapping[str, Any]) -> None:
    """[input] against itself and against [kafka]."""
    given = table.input
    if (given.topic is None) == (given.file is None):
        msg = 'input takes either topic = "..." or file = "..." ("-" for stdin), not both and not neither'
        raise ConfigError(msg)
    if given.topic is not None:
        _check_topic(table, kafka)
    else:
        _check_file(table)
    if given.quorum_most < given.quorum:
        msg = f"input.quorum_most must be at least input.quorum ({given.quorum}), found {given.quorum_most}"
        raise ConfigError(msg)
    if not 1 <= given.quorum_time <= DAY_MS:
        msg = f"input.quorum_time must be between 1ms and 1d, found {given.quorum_time}ms"
        raise ConfigError(msg)


def _check_topic(table: FileTable, kafka: Mapping[str, Any]) -> None:
    given = table.input
    if given.topic is None or not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", given.topic):
        msg = f"input.topic must be one topic's name (letters, digits, '.', '_', '-'), found {given.topic!r:.60}"
        raise ConfigError(msg)
    for name in ("bootstrap.servers", "group.id"):
        if not isinstance(kafka.get(name), str) or not kafka[name].strip():
            msg = f'kafka "{name}" is missing: input.topic needs it'
            raise ConfigError(msg)
    if given.format in ("jsonl", "lines", "csv", "parquet", "msgpack"):
        msg = f"input.format for a topic must be 'json', 'key', 'value' or 'packed', found {given.format!r}"
        raise ConfigError(msg)
    if given.partitioned_by is None:
        msg = (
            'input.partitioned_by is missing: "item" if the record\'s key is the item (sketches of partitions are '
            'stacked), "none" if not (sketches need publish = "state" and are merged)'
        )
        raise ConfigError(msg)
    if given.close_at_end:
        msg = "input.close_at_end belongs to files: a topic has no end"
        raise ConfigError(msg)
    form = given.format or "json"
    if form == "json" and not given.item:
        msg = 'input.item is missing: the JSON field that holds the item, for example item = "user_id"'
        raise ConfigError(msg)
    if form != "json":
        for name in ("item", "weight"):
            if getattr(given, name) is not None:
                msg = f"input.{name} belongs to format = 'json'; format = {form!r} has no fields"
                raise ConfigError(msg)
        if given.time != "record":
            msg = f"input.time names a JSON field; with format = {form!r} leave it out (the record's own timestamp)"
            raise ConfigError(msg)


def _check_file(table: FileTable) -> None:
    given = table.input
    for name in ("partitioned_by", "late_topic", "dead_letter_topic"):
        if getattr(given, name):
            msg = f"input.{name} belongs to input.topic; a file is one partition"
            raise ConfigError(msg)
    named = given.format
    if named in ("key", "value"):
        msg = f"input.format = {named!r} belongs to topics; a file is jsonl, lines, csv, parquet or msgpack"
        raise ConfigError(msg)
    form = file_format(named, given.file or "")
    if form is None:
        msg = "input.format is missing: jsonl, lines, csv, parquet or msgpack"
        raise ConfigError(msg)
    if form in ("jsonl", "csv", "parquet"):
        if not given.item:
            msg = (
                f'input.item is missing: the field of the {form} file that holds the item, for example item = "user_id"'
            )
            raise ConfigError(msg)
        if given.time == "record":
            msg = f'input.time is missing: the field of the {form} file with the event time, for example time = "ts"'
            raise ConfigError(msg)
    elif form == "lines":
        msg = "a file of lines has no event times, so no windows; use `sketchstream update`, or jsonl with input.time"
        raise ConfigError(msg)
    elif given.item or given.weight or given.time != "record":
        msg = "input.item, input.weight and input.time name fields; format = 'msgpack' has its own (i, w, t)"
        raise ConfigError(msg)


def check_store(config: Config) -> None:
    """[store] and [output] fit the source."""
    kind = config.store.kind
    if config.from_kafka and kind == "dir":
        msg = (
            "store.kind = 'dir' is for files and stdin; with a topic the state moves between workers, "
            "and its positions live in Kafka: use 'kafka'"
        )
        raise ConfigError(msg)
    if config.from_kafka and config.store.path is not None:
        msg = "store.path belongs to store.kind = 'dir'"
        raise ConfigError(msg)
    if not config.from_kafka and kind == "kafka":
        msg = "store.kind = 'kafka' needs input.topic; use 'dir' with a path"
        raise ConfigError(msg)
    if not config.from_kafka and (config.output.topic or config.output.results_topic):
        msg = "output.topic needs input.topic; a file's sealed sketches go to output.directory"
        raise ConfigError(msg)
    if config.output.topic == "" and config.output.directory is None:
        msg = "output needs a topic or a directory"
        raise ConfigError(msg)
    if config.store.snapshot_rate < 1 << 16:
        msg = f"store.snapshot_rate must be at least 64KiB (a second), found {config.store.snapshot_rate} bytes"
        raise ConfigError(msg)
    if config.store.snapshot_every < 100:
        msg = f"store.snapshot_every must be at least 100ms, found {config.store.snapshot_every}ms"
        raise ConfigError(msg)
    if config.worker.metrics is not None:
        address(config.worker.metrics, "worker.metrics")


def address(text: str, name: str) -> tuple[str, int]:
    """Host and port of "127.0.0.1:9400" or "[::1]:9400"."""
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\s]+):(\d{1,5})", text)
    if found is None or int(found[2]) > 65535:
        msg = f"{name} must be HOST:PORT, for example '127.0.0.1:9400', found {text!r:.60}"
        raise ConfigError(msg)
    return found[1].strip("[]"), int(found[2])


def is_loopback(host: str) -> bool:
    """Whether an address of ours can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_privacy(config: Config) -> None:
    """What a window and a period of all sketches together may cost, and where exact counts may be shown."""
    config.check_budget()
    given = config.worker.metrics
    if given is not None and config.privacy.diagnostics == "exact" and not config.privacy.diagnostics_public:
        host, _ = address(given, "worker.metrics")
        if not is_loopback(host):
            msg = (
                f"worker.metrics = {given!r} is not a loopback address, and privacy.diagnostics = 'exact' would show "
                "exact counts of events there: set diagnostics = 'off', or diagnostics_public = true where only the "
                "operator can reach it"
            )
            raise ConfigError(msg)
    if config.privacy.max_epsilon is None:
        return
    try:
        limit = exact_epsilon(config.privacy.max_epsilon, "privacy.max_epsilon")
    except SpecError as error:
        raise ConfigError(str(error)) from None
    total = Fraction(0)
    for plan in config.sketches:
        worst = max(plan.spec.epsilon, plan.spec.epsilon_publish)
        if worst > limit:
            msg = f'sketch "{plan.name}": epsilon {worst} is above privacy.max_epsilon = {limit}'
            raise ConfigError(msg)
        total += worst
    if total > limit:
        msg = (
            f"one event is counted by all {len(config.sketches)} sketches, which together lose up to {total}, "
            f"above privacy.max_epsilon = {limit}: lower their epsilons, or raise the limit"
        )
        raise ConfigError(msg)
