"""The schema of a configuration file: one model per table, every key with its type and default.

In: plain data of a TOML file. Out: validated models; cross-checks are in `sketchstream.config.checks`.
Touches: nothing. Imported only to read a configuration (pydantic is slow to import).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator

from sketchstream.kinds.config_tables import ConfigTable, DomainTable, Number, QualityTable, SketchTable, read_block
from sketchstream.stream import formats
from sketchstream.stream.formats import TimeUnit
from sketchstream.stream.input.partitioner import FORMER, Partitioner
from sketchstream.stream.windows.units import duration_ms, size_bytes
from sketchstream.texts.naming import Names
from sketchstream.topics import MAX_TOPICS

FILE_ONLY = ("jsonl", "lines", "csv", "parquet", "msgpack")
"""Formats of files alone; those of `sketchstream.stream.formats` are payloads of records."""


def _format(value: str) -> str:
    """Refuse an unknown format."""
    if value not in (*formats.names(), *FILE_ONLY):
        *others, last = (f"'{name}'" for name in (*formats.names(), *FILE_ONLY))
        raise ValueError(f"must be {', '.join(others)} or {last}, found {value!r:.40}")
    return value


InputFormat = Annotated[str, AfterValidator(_format)]
Duration = Annotated[int, BeforeValidator(duration_ms)]
Size = Annotated[int, BeforeValidator(size_bytes)]


def _name(value: str) -> str:
    """Refuse texts that cannot stand as names in a sentence."""
    if not re.fullmatch(r"[^\W\d_](?:[^\W_]|[ '-]){0,39}", value):
        raise ValueError(
            f"must be up to 40 letters, digits, spaces, hyphens and apostrophes, a letter first, found {value!r:.60}"
        )
    return value


PlainName = Annotated[str, AfterValidator(_name)]


def _idle(value: object) -> int | None:
    return None if value == "off" or value is None else duration_ms(value)


def _partitioner(value: object) -> object:
    """Convert names of earlier releases to their present spelling."""
    return FORMER.get(value, value) if isinstance(value, str) else value


PartitionerName = Annotated[Literal[Partitioner, "unchecked"], BeforeValidator(_partitioner)]


class PayloadTable(ConfigTable):
    """`[payload]`: where formats with schemas find them."""

    framing: Literal["confluent", "apicurio8", "glue", "none"] = "confluent"
    ids: Literal["global", "content"] | None = None
    registry: str | tuple[str, ...] | None = None
    schema_file: Path | None = None
    message: str | None = None
    username: str | None = None
    password: str | None = Field(default=None, repr=False)
    token: str | None = Field(default=None, repr=False)
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    cache: Path | None = None


class TopicTable(ConfigTable):
    """A block of `[[input.topics]]`: one of several topics; what it leaves out is as in `[input]` and `[payload]`."""

    topic: str
    format: InputFormat | None = None
    item: str | None = None
    weight: str | None = None
    time: str | None = None
    time_unit: TimeUnit | None = None
    payload: PayloadTable | None = None


class InputTable(ConfigTable):
    """`[input]`: the source of records and their fields."""

    topic: str | None = None
    topics: Annotated[tuple[TopicTable, ...], Field(max_length=MAX_TOPICS)] = ()
    file: str | None = None
    format: InputFormat | None = None
    item: str | None = None
    item_type: Literal["text", "int", "bytes"] = "text"
    weight: str | None = None
    time: str = "record"
    time_unit: TimeUnit = "ms"
    partitioned_by: Literal["item", "none"] | None = None
    partitioner: PartitionerName | None = None
    lateness: Duration = 600_000
    max_ahead: Duration | None = None
    quorum: Annotated[int, Field(ge=1, le=32)] = 10
    quorum_time: Duration = 150_000
    quorum_most: Annotated[int, Field(ge=1, le=1_000_000_000)] = 10_000
    idle: Annotated[int | None, BeforeValidator(_idle)] = 600_000
    idle_topic: Duration = 3_600_000
    late_topic: str = ""
    dead_letter_topic: str = ""
    dead_letter_payload: bool = False
    dead_letter_rate: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    data_loss: Literal["halt", "accept"] = "halt"
    close_at_end: bool = False


class KeyTable(ConfigTable):
    """`[key]`: the hash key's file."""

    file: Path


class StoreTable(ConfigTable):
    """`[store]`: the storage of snapshots."""

    kind: Literal["kafka", "dir"] | None = None
    path: Path | None = None
    snapshot_every: Duration = 30_000
    snapshot_rate: Size = 16 * 2**20


class HistoryTable(ConfigTable):
    """`[history]`: a table of earlier records, for `sketchstream backfill`; what it leaves out is as in `[input]`."""

    file: str
    item: str | None = None
    weight: str | None = None
    time: str | None = None
    path: Path | None = None


class OutputTable(ConfigTable):
    """`[output]`: the destination of sealed sketches."""

    topic: str | None = None
    directory: Path | None = None
    results_topic: str = ""


class BudgetTable(ConfigTable):
    """`budget` of `[privacy]`: the largest loss of a unit over a period."""

    epsilon: Number
    delta: Number | None = None
    per: str


class PrivacyTable(ConfigTable):
    """`[privacy]`: limits on publications and losses."""

    diagnostics: Literal["exact", "off"] = "exact"
    diagnostics_public: bool = False
    max_epsilon: Number | None = None
    budget: BudgetTable | None = None


class WorkerTable(ConfigTable):
    """`[worker]`: the worker process."""

    metrics: str | None = None
    memory_limit: Size | None = None
    fail_fast: bool = False
    durable_within: Duration = 300_000
    raw: bool = True


class NamesTable(ConfigTable):
    """`[names]`: what items and events are called in answers; plurals are the name and an s unless they are given."""

    item: PlainName = "item"
    items: PlainName | None = None
    event: PlainName = "event"
    events: PlainName | None = None

    def names(self) -> Names:
        """All four of them."""
        return Names(self.item, self.items or f"{self.item}s", self.event, self.events or f"{self.event}s")


class ServeTable(ConfigTable):
    """`[serve]`: answers over HTTP."""

    address: str = "127.0.0.1:8400"
    database: Path = Path("serve.sqlite")
    tokens: Path | None = None
    proxies: tuple[str, ...] = ()
    retention: Duration | None = None
    processes: Annotated[int, Field(ge=1, le=256)] | None = None
    deadline: Duration = 60_000
    refresh: Duration = 2_000


class FileTable(ConfigTable):
    """The whole file; tables that it leaves out have their defaults, which are valid and need no validator."""

    kafka: dict[str, Any] = Field(default_factory=dict)
    input: InputTable
    payload: PayloadTable | None = None
    key: KeyTable | None = None
    store: StoreTable = StoreTable.model_construct()
    output: OutputTable = OutputTable.model_construct()
    history: HistoryTable | None = None
    privacy: PrivacyTable = PrivacyTable.model_construct()
    quality: QualityTable = QualityTable.model_construct()
    worker: WorkerTable = WorkerTable.model_construct()
    serve: ServeTable = ServeTable.model_construct()
    names: NamesTable = NamesTable.model_construct()
    sketch: Annotated[
        tuple[Annotated[SketchTable, PlainValidator(read_block)], ...], Field(min_length=1, max_length=64)
    ]


TABLES: dict[str, type[ConfigTable]] = {
    "input": InputTable,
    "topics": TopicTable,
    "payload": PayloadTable,
    "key": KeyTable,
    "store": StoreTable,
    "output": OutputTable,
    "history": HistoryTable,
    "privacy": PrivacyTable,
    "budget": BudgetTable,
    "quality": QualityTable,
    "worker": WorkerTable,
    "serve": ServeTable,
    "names": NamesTable,
    "domain": DomainTable,
}
"""Tables by their names in the documentation, without `[kafka]`, whose keys are Kafka's, and the `[[sketch]]` of each
kind, which its package declares."""
