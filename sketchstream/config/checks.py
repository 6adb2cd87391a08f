"""Checks for contradictions between tables of a configuration.

In: validated tables. Out: mistakes, one line each, with the keys that they are about. Touches: nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sketchstream.config.addresses import address, is_loopback
from sketchstream.errors import ConfigError, SpecError
from sketchstream.spec import exact_epsilon
from sketchstream.stream import formats
from sketchstream.stream.interfaces import MAX_COLUMNS
from sketchstream.stream.windows.calendar import DAY_MS

if TYPE_CHECKING:
    from sketchstream.config.schema import FileTable, InputTable
    from sketchstream.stream.windows.plans import SketchPlan

NO_PARTITIONER = (
    "input.partitioner is missing: how the producers choose the partition of a key; `sketchstream validate -c FILE "
    '--write` finds it in a sample of the topic and puts it into the file (Java and kafka-python: "murmur2"; '
    'librdkafka, confluent-kafka: "consistent_random")'
)
"""Why a worker does not start, and what to do."""

FILE_FORMATS = {"json": "jsonl", "packed": "msgpack", "avro": "avro"}
"""Formats of records that files have too, and the name of the file."""
COMPRESSED = (".gz", ".zst")
"""Endings of compressed files; the ending before them gives the format."""
SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".avro": "avro",
    ".msgpack": "msgpack",
    ".txt": "lines",
}


@dataclass(frozen=True)
class Mistake:
    """A mistake of a configuration file.

    Args:
        text: one line.
        keys: what it is about, such as "input.topic". Where such a key was removed because its value was wrong, the
            mistake follows from that, and is not listed.
    """

    text: str
    keys: tuple[str, ...]

    def __init__(self, text: str, *keys: str) -> None:
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "keys", keys)

    def follows_from(self, removed: Collection[str]) -> bool:
        """Whether a key that it is about, or that key's table, is among the removed ones."""
        return any(key == gone or key.startswith(f"{gone}.") for key in self.keys for gone in removed)


_PEOPLE = re.compile(
    r"(?:^|[._\- ])(?:user|client|customer|visitor|member|person|patient|subscriber|account|viewer|reader|player|"
    r"shopper|guest|student|employee|household|device|cookie|phone|msisdn|e?mail|uid)s?"
    r"(?:[._\- ]?(?:id|uuid|key|no|number|hash|name|token|address))?$",
    re.IGNORECASE,
)


def looks_like_people(item: str | None) -> bool:
    """Whether the name of a field says that its values are people, or devices of people.

    Examples:
        >>> [looks_like_people(name) for name in ("user_id", "userId", "user.id", "customer", "airport", "user_agent")]
        [True, True, True, True, False, False]
    """
    return item is not None and _PEOPLE.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", item)) is not None


def unsaid_unit(name: str, item: str) -> str:
    """The warning for a sketch of people whose unit is not set.

    Args:
        name: name of the sketch.
        item: field of the item.
    """
    return (
        f'sketch "{name}" counts {item!r:.60}, which looks like people, and its unit is not set: unit = "event", the '
        f'default, protects one event; unit = "item" protects everything that one {item:.60} does in a window. '
        "Write the one that is meant"
    )


def file_format(named: str | None, file: str) -> str | None:
    """The configured format, else the one of the file's ending; None if that is unknown."""
    if named:
        return FILE_FORMATS.get(named, named)
    path = Path(file)
    inner = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return SUFFIXES.get(inner.suffix.lower())


def input_format(block: InputTable) -> str | None:
    """The format of the records of a topic or file; None for a file whose ending does not say it."""
    return block.format or "json" if block.topic is not None else file_format(block.format, block.file or "")


def split_topics(table: FileTable) -> tuple[list[FileTable], list[Mistake]]:
    """Make the tables for each topic of `[[input.topics]]` alone, and mistakes; without such blocks, the tables.

    The first keeps the group and the sealed topic. The others have their own, so that each is read, committed and
    published as if it were alone: `{group.id}.{topic}`, and the name of the sealed topic with the topic.
    """
    block = table.input
    if not block.topics:
        return [table], []
    mistakes = list(_check_topics(table))
    made: list[FileTable] = []
    for override in block.topics:
        overridden = {name: getattr(override, name) for name in override.model_fields_set - {"payload"}}
        record_format = override.format or block.format or "json"
        payload = override.payload
        if payload is None and record_format in formats.names() and formats.by_name(record_format).payload_keys:
            payload = table.payload
        changed: dict[str, Any] = {"input": block.model_copy(update=overridden), "payload": payload}
        if made:
            group = str(table.kafka.get("group.id", ""))
            changed["kafka"] = {**table.kafka, "group.id": f"{group}.{override.topic}"}
            sealed = table.output.topic
            sealed = f"{group}.sealed" if sealed is None else sealed
            topic = f"{sealed}.{override.topic}" if sealed else ""
            changed["output"] = table.output.model_copy(update={"topic": topic})
        made.append(table.model_copy(update=changed))
    return made, mistakes


def _check_topics(table: FileTable) -> Iterator[Mistake]:
    """What several topics exclude."""
    block = table.input
    if block.topic is not None or block.file is not None:
        yield Mistake("input takes one of topic, [[input.topics]] and file, found more", "input.topic", "input.file")
    if len(block.topics) < 2:
        return
    names = [topic.topic for topic in block.topics]
    if len(set(names)) < len(names):
        yield Mistake("input.topics names a topic twice", "input.topics")
    if block.partitioned_by == "item":
        yield Mistake(
            "input.partitioned_by = 'item' needs one topic: events of one item are in several of these, so its loss "
            "would count once for each; set 'none' (sketches need publish = \"state\" and are merged)",
            "input.partitioned_by",
        )
    if block.data_loss == "accept":
        yield Mistake(
            "input.data_loss = 'accept' needs one topic: a topic that is made again begins a revision of its own, "
            "and windows would wait for the other topics in it; leave it out, and use `sketchstream reset`",
            "input.data_loss",
        )


def check_input(table: FileTable, kafka: Mapping[str, Any]) -> Iterator[Mistake]:
    """Check [input] against itself and [kafka]."""
    block = table.input
    if (block.topic is None) == (block.file is None):
        yield Mistake(
            'input takes either topic = "..." or file = "..." ("-" for stdin), not both and not neither',
            "input.topic",
            "input.file",
        )
    elif block.topic is not None:
        yield from _check_topic(table, kafka)
    else:
        yield from _check_file(table)
    if block.quorum_most < block.quorum:
        yield Mistake(
            f"input.quorum_most must be at least input.quorum ({block.quorum}), found {block.quorum_most}",
            "input.quorum_most",
            "input.quorum",
        )
    if not 1 <= block.quorum_time <= DAY_MS:
        yield Mistake(f"input.quorum_time must be between 1ms and 1d, found {block.quorum_time}ms", "input.quorum_time")


def _check_topic(table: FileTable, kafka: Mapping[str, Any]) -> Iterator[Mistake]:
    block = table.input
    if block.topic is None or not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", block.topic):
        yield Mistake(
            f"input.topic must be one topic's name (letters, digits, '.', '_', '-'), found {block.topic!r:.60}",
            "input.topic",
        )
    for name in ("bootstrap.servers", "group.id"):
        if (name not in table.kafka and name not in kafka) or not str(kafka.get(name, "x")).strip():
            yield Mistake(f'kafka "{name}" is missing: input.topic needs it', f"kafka.{name}")
    if block.format is not None and block.format not in formats.names():
        yield Mistake(
            f"input.format for a topic must be {formats.spell_names(chr(39))}, found {block.format!r}", "input.format"
        )
    if block.partitioned_by is None:
        yield Mistake(
            'input.partitioned_by is missing: "item" if the record\'s key is the item (sketches of partitions are '
            'stacked), "none" if not (sketches need publish = "state" and are merged)',
            "input.partitioned_by",
        )
    if block.time == "record" and block.time_unit != "ms":
        yield Mistake(
            "input.time_unit belongs to a field that input.time names; the records' own timestamps are milliseconds",
            "input.time_unit",
            "input.time",
        )
    if block.close_at_end:
        yield Mistake("input.close_at_end belongs to files: a topic has no end", "input.close_at_end")
    record_format = block.format or "json"
    if record_format not in formats.names():
        return
    has_fields = formats.by_name(record_format).named
    if has_fields and not block.item and any(sketch.needs_item for sketch in table.sketch):
        what = "JSON" if record_format == "json" else record_format
        yield Mistake(
            f'input.item is missing: the {what} field that holds the item, for example item = "user_id"', "input.item"
        )
    if not has_fields:
        named = [name for name in ("item", "weight") if getattr(block, name) is not None]
        named += ["time"] if block.time != "record" else []
        if named:
            keys = " and ".join(f"input.{name}" for name in named)
            yield Mistake(
                f"{keys} name fields of format = 'json'; format = {record_format!r} has no fields: leave them out",
                "input.format",
            )


def check_payload(table: FileTable) -> Iterator[Mistake]:
    """Check that [payload] has the keys that the format takes, and that they fit."""
    record_format = table.input.format or "json"
    block = table.payload
    if table.input.topic is None:
        if block is not None:
            yield Mistake(
                "payload belongs to input.topic: no file needs it, and an Avro file has its own schema",
                "payload",
                "input.topic",
            )
        return
    taken = formats.by_name(record_format).payload_keys if record_format in formats.names() else frozenset()
    if block is None:
        if taken:
            yield Mistake(
                f'payload is missing: format = {record_format!r} needs schemas: [payload] registry = "http://...", or '
                "schema_file with framing = 'none'",
                "payload",
                "input.format",
            )
        return
    foreign = sorted(block.model_fields_set - taken)
    if foreign:
        yield Mistake(f"payload.{foreign[0]} does not belong to format = {record_format!r}", "payload", "input.format")
    elif taken:
        yield from (Mistake(text, "payload") for text in formats.by_name(record_format).check_payload(block))


def _check_file(table: FileTable) -> Iterator[Mistake]:
    block = table.input
    for name in ("partitioned_by", "late_topic", "dead_letter_topic"):
        if getattr(block, name):
            yield Mistake(f"input.{name} belongs to input.topic; a file is one partition", f"input.{name}")
    named = block.format
    if named in formats.names() and named not in FILE_FORMATS:
        yield Mistake(
            f"input.format = {named!r} belongs to topics; a file is jsonl, lines, csv, parquet, avro or msgpack",
            "input.format",
        )
        return
    record_format = file_format(named, block.file or "")
    if record_format is None:
        yield Mistake("input.format is missing: jsonl, lines, csv, parquet, avro or msgpack", "input.format")
    elif record_format in ("jsonl", "csv", "parquet", "avro"):
        if not block.item and any(sketch.needs_item for sketch in table.sketch):
            yield Mistake(
                f"input.item is missing: the field of the {record_format} file with the item, for example "
                'item = "user_id"',
                "input.item",
            )
        if block.time == "record":
            yield Mistake(
                f"input.time is missing: the field of the {record_format} file with the event time, for example "
                'time = "ts"',
                "input.time",
            )
    elif record_format == "lines":
        yield Mistake(
            "a file of lines has no event times, so no windows; use `sketchstream update`, or jsonl with input.time",
            "input.format",
        )
    elif block.item or block.weight or block.time != "record" or block.time_unit != "ms":
        yield Mistake(
            "input.item, input.weight, input.time and its unit are of named fields; 'msgpack' has its own (i, w, t)",
            "input.format",
            "input.item",
            "input.weight",
            "input.time",
        )


def check_fields(fields: Mapping[str, str], block: InputTable) -> Iterator[str]:
    """Check the fields that a sketch needs against the format of the input.

    Args:
        fields: field of each role.
        block: the input.
    """
    record_format = input_format(block)
    if record_format == "jsonl" or (record_format in formats.names() and formats.by_name(record_format).named):
        for role, field in fields.items():
            if not all(field.split(".")):
                yield f"{role} must be a dotted field such as user.id, found {field!r:.60}"
    elif fields and record_format not in ("csv", "parquet", None):
        role, field = next(iter(fields.items()))
        yield f"{role} = {field!r:.60} names a field, and format = {record_format!r} has none"


def check_columns(plans: Sequence[SketchPlan]) -> Iterator[Mistake]:
    """Check the number of fields that sketches need."""
    fields = {field for plan in plans for field in plan.fields.values()}
    if len(fields) > MAX_COLUMNS:
        yield Mistake(
            f"all sketches together may name at most {MAX_COLUMNS} fields in addition to item, weight and time, "
            f"found {len(fields)}",
            "sketch",
        )


def check_store(table: FileTable) -> Iterator[Mistake]:
    """Check that [store], [output] and [worker] fit the source."""
    from_kafka = table.input.topic is not None
    kind = table.store.kind
    if from_kafka and kind == "dir":
        yield Mistake(
            "store.kind = 'dir' is for files and stdin; with a topic the state moves between workers, "
            "and its positions live in Kafka: use 'kafka'",
            "store.kind",
        )
    elif from_kafka and table.store.path is not None:
        yield Mistake("store.path belongs to store.kind = 'dir'", "store.path", "store.kind")
    if not from_kafka and kind == "kafka":
        yield Mistake("store.kind = 'kafka' needs input.topic; use 'dir' with a path", "store.kind")
    if not from_kafka and (table.output.topic or table.output.results_topic):
        yield Mistake(
            "output.topic needs input.topic; a file's sealed sketches go to output.directory",
            "output.topic",
            "output.results_topic",
        )
    if table.output.topic == "" and table.output.directory is None:
        yield Mistake("output needs a topic or a directory", "output.topic", "output.directory")
    if table.store.snapshot_rate < 1 << 16:
        yield Mistake(
            f"store.snapshot_rate must be at least 64KiB (a second), found {table.store.snapshot_rate} bytes",
            "store.snapshot_rate",
        )
    if table.store.snapshot_every < 100:
        yield Mistake(
            f"store.snapshot_every must be at least 100ms, found {table.store.snapshot_every}ms", "store.snapshot_every"
        )


def check_metrics(table: FileTable) -> Iterator[Mistake]:
    """Check that the operator's endpoint has an address, and does not show exact counts to others."""
    block = table.worker.metrics
    if block is None:
        return
    try:
        host, _ = address(block, "worker.metrics")
    except ConfigError as error:
        yield Mistake(str(error), "worker.metrics")
        return
    if table.privacy.diagnostics == "exact" and not table.privacy.diagnostics_public and not is_loopback(host):
        yield Mistake(
            f"worker.metrics = {block!r} is not a loopback address, and privacy.diagnostics = 'exact' would show "
            "exact counts of events there: set diagnostics = 'off', or diagnostics_public = true where only the "
            "operator can reach it",
            "worker.metrics",
        )


def check_serve(table: FileTable) -> Iterator[Mistake]:
    """Check that the service has an address."""
    try:
        address(table.serve.address, "serve.address")
    except ConfigError as error:
        yield Mistake(str(error), "serve.address")


def check_limit(table: FileTable, plans: Sequence[SketchPlan]) -> Iterator[Mistake]:
    """Check that one event's loss in all sketches together is at most `privacy.max_epsilon`."""
    if table.privacy.max_epsilon is None:
        return
    try:
        limit = exact_epsilon(table.privacy.max_epsilon, "privacy.max_epsilon")
    except SpecError as error:
        yield Mistake(str(error), "privacy.max_epsilon")
        return
    specs: dict[str, Any] = {plan.name: plan.spec for plan in plans}
    overlap = {plan.name: plan.overlap for plan in plans}
    early = {plan.name: plan.early.most * plan.early.epsilon for plan in plans if plan.early is not None}
    worst = {
        name: overlap[name] * max(spec.epsilon, getattr(spec, "epsilon_publish", 0) + early.get(name, 0))
        for name, spec in specs.items()
    }
    for name, epsilon in worst.items():
        if epsilon > limit:
            lies_in = "" if overlap[name] == 1 else f" (an event lies in {overlap[name]} overlapping windows)"
            yield Mistake(
                f'sketch "{name}": epsilon {epsilon}{lies_in} is above privacy.max_epsilon = {limit}',
                "privacy.max_epsilon",
            )
    total = sum(worst.values(), Fraction(0))
    if total > limit and all(epsilon <= limit for epsilon in worst.values()):
        yield Mistake(
            f"one event is counted by all {len(worst)} sketches, which together lose up to {total}, "
            f"above privacy.max_epsilon = {limit}: lower their epsilons, or raise the limit",
            "privacy.max_epsilon",
        )
