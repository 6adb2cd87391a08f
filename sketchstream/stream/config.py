"""A configuration file, read, checked and turned into what the worker needs.

In: a TOML file and environment variables. Out: a frozen `Config` with one `SketchPlan` per `[[sketch]]`. Touches: the
file, its lists of items; never the key's contents.

Every mistake is one ConfigError of one line that names the key, what was expected and what was found.
"""

from __future__ import annotations

import difflib
import re
import tomllib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sketchstream.errors import ConfigError, SpecError
from sketchstream.spec import ClosedDomain, Item, NoPrivacyWarning, OpenDomain, ProfileSpec, exact_epsilon
from sketchstream.stream.measures import spell_bytes
from sketchstream.stream.overrides import explain, flatten, override
from sketchstream.stream.windows import Calendar, Width

if TYPE_CHECKING:
    from sketchstream.hashing import Key
    from sketchstream.stream.schema import (
        DomainTable,
        FileTable,
        InputTable,
        OutputTable,
        PrivacyTable,
        SketchTable,
        StoreTable,
        WorkerTable,
    )

SKETCH_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")

_OFFSETS = "positions are committed together with the state they belong to"
_FENCE = "it is part of the fence that keeps two workers from counting twice"
OWNED = {
    "enable.auto.commit": _OFFSETS,
    "auto.commit.interval.ms": _OFFSETS,
    "auto.offset.reset": "nothing is inferred to be a cold start; `sketchstream reset` moves positions",
    "isolation.level": "read_committed is needed to read the committed position",
    "partition.assignment.strategy": "the worker brings an assignor that leaves no partition unowned",
    "group.protocol": "the classic protocol is the one this worker was tested with",
    "group.remote.assignor": "the worker brings its own assignor",
    "acks": "snapshots and sealed sketches are always acknowledged by all replicas",
    "enable.idempotence": "producers are always idempotent",
    "transactional.id": _FENCE,
    "transaction.timeout.ms": _FENCE,
    "key.deserializer": "records are decoded as [input] says",
    "value.deserializer": "records are decoded as [input] says",
    "key.serializer": "records are written as they are",
    "value.serializer": "records are written as they are",
}
"""Kafka's keys that our semantics own, and why."""

FILE_FORMATS = {"json": "jsonl", "packed": "msgpack"}
SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".msgpack": "msgpack",
    ".txt": "lines",
}


@dataclass(frozen=True)
class SketchPlan:
    """One `[[sketch]]`: its name, what it is, and its windows."""

    name: str
    spec: ProfileSpec
    calendar: Calendar = field(compare=False)

    @property
    def loss(self) -> Fraction:
        """The most that one event (or item) loses by what one window publishes, as the ledger has it."""
        from sketchstream.kinds.profile import LAWS, effective_epsilon
        from sketchstream.privacy.ledger import LayerEntry, Ledger, Promise

        spec = self.spec
        law, weight = LAWS[spec.unit], spec.max_weight
        layer = LayerEntry(bytes(16), law, effective_epsilon(spec, spec.epsilon) * weight, weight)
        promise = Promise.of(spec.publish, spec.epsilon_publish, spec.intrusion)
        found = Ledger.create(spec.unit, weight, layer, promise).loss()
        return Fraction(found)

    def open_windows(self, lateness_ms: int) -> int:
        """Most windows that are open at once in one partition (notes/kafka_faults.md 16)."""
        return -(-lateness_ms // self.calendar.width.shortest_ms) + 2


@dataclass(frozen=True)
class Config:
    """What a configuration file says, checked as a whole."""

    path: Path
    kafka: Mapping[str, Any]
    input: InputTable
    key_file: Path | None
    store: StoreTable
    output: OutputTable
    privacy: PrivacyTable
    worker: WorkerTable
    sketches: tuple[SketchPlan, ...]

    @classmethod
    def load(cls, path: str | Path, environ: Mapping[str, str] | None = None) -> Config:
        """Read and check a file.

        Args:
            path: of the TOML file; paths in it are relative to its folder.
            environ: environment variables; those that begin with SKETCHSTREAM__ override keys of the file.

        Raises:
            ConfigError: the file cannot be read, or anything in it cannot be used.
        """
        import os

        where = Path(path)
        try:
            text = where.read_text(encoding="utf-8")
        except OSError as error:
            msg = f"cannot read the configuration {where}: {error.strerror}"
            raise ConfigError(msg) from None
        except UnicodeDecodeError:
            msg = f"{where} is not UTF-8 text"
            raise ConfigError(msg) from None
        return cls.parse(text, where, os.environ if environ is None else environ)

    @classmethod
    def parse(
        cls, text: str, path: str | Path = "sketchstream.toml", environ: Mapping[str, str] | None = None
    ) -> Config:
        """The configuration that this TOML text says, as if it stood at `path`."""
        from pydantic import ValidationError

        from sketchstream.stream.schema import FileTable

        where = Path(path)
        try:
            data: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            msg = f"{where} is not valid TOML: {error}"
            raise ConfigError(msg) from None
        override(data, environ or {})
        if not isinstance(data.get("kafka", {}), dict):
            msg = f"{where}: kafka must be a table: [kafka]"
            raise ConfigError(msg)
        if isinstance(data.get("kafka"), dict):
            data["kafka"] = dict(flatten(data["kafka"]))
        try:
            table = FileTable.model_validate(data)
        except ValidationError as error:
            raise ConfigError(f"{where}: {explain(error, data)}") from None
        try:
            return _assemble(table, where)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None

    # ------------------------------------------------------------------ what others ask

    @property
    def group(self) -> str:
        """Kafka's group.id; "files" for a file or standard input."""
        return str(self.kafka.get("group.id", "files"))

    @property
    def from_kafka(self) -> bool:
        """Whether the source is a topic."""
        return self.input.topic is not None

    @property
    def format(self) -> str:
        """Record format: json, key, value, packed (topics); jsonl, lines, csv, parquet, msgpack (files)."""
        if self.from_kafka:
            return self.input.format or "json"
        named = self.input.format
        if named is not None:
            return FILE_FORMATS.get(named, named)
        return SUFFIXES.get(Path(self.input.file or "").suffix.lower(), "")

    @property
    def folder(self) -> Path:
        """Where relative paths begin."""
        return self.path.parent

    def resolve(self, path: str | Path) -> Path:
        """A path of the file, relative to it."""
        return self.folder / Path(path).expanduser()

    @property
    def input_file(self) -> Path | None:
        """The input file; None for topics and standard input."""
        return None if self.input.file in (None, "-") else self.resolve(str(self.input.file))

    @property
    def store_path(self) -> Path:
        """Folder of the directory store."""
        return self.resolve(self.store.path or "state")

    @property
    def sealed_topic(self) -> str | None:
        """Topic of sealed sketches; None when they go to a directory only."""
        if not self.from_kafka or self.output.topic == "":
            return None
        return self.output.topic or f"{self.group}.sealed"

    @property
    def sealed_directory(self) -> Path | None:
        """Folder of sealed sketches; None when they go to a topic only."""
        if self.output.directory is not None:
            return self.resolve(self.output.directory)
        return None if self.from_kafka else self.resolve("sealed")

    @property
    def state_topic(self) -> str:
        """Internal topic of snapshots."""
        return f"{self.group}.{self.input.topic}.state"

    @property
    def fingerprint(self) -> bytes:
        """16 bytes that are equal exactly for equal sets of sketches."""
        import hashlib

        digest = hashlib.blake2b(digest_size=16, person=b"sketch-config")
        for plan in sorted(self.sketches, key=lambda plan: plan.name):
            digest.update(f"{plan.name}\0{plan.calendar}\0".encode() + plan.spec.fingerprint)
        return digest.digest()

    def load_key(self) -> Key | None:
        """The hash key, read from its file; None when no sketch needs one and none is configured.

        Raises:
            KeyMismatchError: the file cannot be read or holds no key.
        """
        from sketchstream.hashing import Key

        return None if self.key_file is None else Key.load(self.key_file)

    def plan(self, name: str) -> SketchPlan:
        """The sketch of that name. Raises ConfigError that lists the names there are."""
        for plan in self.sketches:
            if plan.name == name:
                return plan
        near = difflib.get_close_matches(name, [plan.name for plan in self.sketches], n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        names = ", ".join(plan.name for plan in self.sketches)
        msg = f"no sketch is named {name!r:.60} in {self.path} (there are: {names}){hint}"
        raise ConfigError(msg)

    def memory_bytes(self, partitions: int) -> int:
        """What open windows of that many partitions need at most in one worker, one snapshot copy included."""
        states, largest = 0, 0
        for plan in self.sketches:
            slots = plan.spec.domain.size or 0
            if isinstance(plan.spec.domain, ClosedDomain) and self.checked:
                slots = -(-slots // partitions)  # a partition's sketch has slots for its own items only
            one = slots * plan.spec.dtype.itemsize * plan.open_windows(self.input.lateness)
            states += one * partitions
            largest += one
        return states + largest

    @property
    def checked(self) -> bool:
        """Whether an item's partition can be recomputed."""
        return self.from_kafka and self.input.partitioned_by == "item" and self.input.partitioner != "unchecked"

    def check_memory(self, partitions: int) -> str:
        """One line that says what open windows need; ConfigError when it is above `worker.memory_limit`."""
        needed, limit = self.memory_bytes(partitions), self.worker.memory_limit
        text = f"open windows of {partitions} partitions need up to {spell_bytes(needed)}"
        if limit is not None and needed > limit:
            msg = (
                f"{text}, more than worker.memory_limit = {spell_bytes(limit)}: use fewer slots, a shorter "
                "input.lateness, or longer windows"
            )
            raise ConfigError(msg)
        return text


# ---------------------------------------------------------------------------------------------- cross-checks


def _assemble(table: FileTable, path: Path) -> Config:
    """The parts fitted together, or a ConfigError."""
    kafka = _kafka(table)
    _check_input(table, kafka)
    plans: list[SketchPlan] = []
    for number, block in enumerate(table.sketch):
        label = f'sketch "{block.name}"'
        if not SKETCH_NAME.fullmatch(block.name):
            msg = (
                f"name of sketch {number + 1} must be lower-case letters, digits, '_', '.' and '-' (at most 100), "
                f"found {block.name!r:.60}"
            )
            raise ConfigError(msg)
        if any(plan.name == block.name for plan in plans):
            msg = f"two sketches are named {block.name!r}"
            raise ConfigError(msg)
        try:
            plans.append(_plan(block, table, path.parent))
        except (SpecError, ConfigError) as error:
            raise ConfigError(f"{label}: {error}") from None
    config = Config(
        path=path,
        kafka=kafka,
        input=table.input,
        key_file=None if table.key is None else path.parent / table.key.file.expanduser(),
        store=table.store,
        output=table.output,
        privacy=table.privacy,
        worker=table.worker,
        sketches=tuple(plans),
    )
    _check_store(config)
    _check_privacy(config)
    if config.key_file is None:
        for plan in plans:
            if plan.spec.needs_key:
                msg = (
                    f'sketch "{plan.name}" needs a hash key: [key] file = "..." (made by `sketchstream keygen -o FILE`)'
                )
                raise ConfigError(msg)
    return config


def _kafka(table: FileTable) -> dict[str, Any]:
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


def _check_input(table: FileTable, kafka: Mapping[str, Any]) -> None:
    """[input] against itself and against [kafka]."""
    given = table.input
    if (given.topic is None) == (given.file is None):
        msg = 'input takes either topic = "..." or file = "..." ("-" for stdin), not both and not neither'
        raise ConfigError(msg)
    if given.topic is not None:
        _check_topic(table, kafka)
    else:
        _check_file(table)


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
    form = FILE_FORMATS.get(named, named) if named else SUFFIXES.get(Path(given.file or "").suffix.lower())
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


def _check_store(config: Config) -> None:
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


def _check_privacy(config: Config) -> None:
    """`privacy.max_epsilon` bounds what one event loses in all sketches of the file together."""
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
            f"above privacy.max_epsilon = {limit}"
        )
        raise ConfigError(msg)


def _plan(block: SketchTable, table: FileTable, folder: Path) -> SketchPlan:
    """One block as spec and calendar."""
    given = table.input
    if given.partitioned_by == "none":
        if block.unit == "item":
            msg = (
                "unit = 'item' needs input.partitioned_by = 'item': an item in several partitions would lose "
                "epsilon in each of them"
            )
            raise ConfigError(msg)
        if block.publish != "state":
            msg = (
                "input.partitioned_by = 'none' needs publish = 'state' (with intrusion = true or false): partitions "
                "that share items can only be merged"
            )
            raise ConfigError(msg)
    if block.unit == "item" and given.topic is not None and given.partitioner == "unchecked":
        msg = "unit = 'item' needs a partitioner that is checked: 'murmur2' or 'crc32'"
        raise ConfigError(msg)
    calendar = Calendar(Width.parse(block.window), block.timezone)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NoPrivacyWarning)
        spec = ProfileSpec(
            epsilon=block.epsilon,
            unit=block.unit,
            domain=_domain(block.domain, given.item_type, folder),
            max_count=block.max_count,
            modulus=block.modulus,
            max_weight=block.max_weight,
            publish=block.publish,
            epsilon_publish=block.epsilon_publish,
            intrusion=block.intrusion,
            bits=block.bits,
        )
    for one in caught:
        warnings.warn(f'sketch "{block.name}": {one.message}', one.category, stacklevel=6)
    return SketchPlan(block.name, spec, calendar)


def _domain(table: DomainTable, item_type: str, folder: Path) -> ClosedDomain | OpenDomain:
    """The domain that a `domain = {...}` says."""
    given = sorted(name for name in ("slots", "size", "items_file") if getattr(table, name) is not None)
    if len(given) != 1:
        msg = "domain takes exactly one of slots (open), size (ids 0..size-1) or items_file (a list)"
        raise ConfigError(msg)
    if table.slots is not None:
        if table.sample_rate is not None:
            msg = "domain.sample_rate belongs to closed domains (size or items_file)"
            raise ConfigError(msg)
        return OpenDomain(table.slots) if table.levels is None else OpenDomain(table.slots, table.levels)
    if table.levels is not None:
        msg = "domain.levels belongs to open domains (slots)"
        raise ConfigError(msg)
    if table.size is not None:
        if item_type != "int":
            msg = f"domain.size counts the ids 0..size-1: set input.item_type = 'int' (it is {item_type!r})"
            raise ConfigError(msg)
        return ClosedDomain(size=table.size, sample_rate=table.sample_rate)
    items = read_items(folder / Path(table.items_file or "").expanduser(), item_type)
    return ClosedDomain(items=items, sample_rate=table.sample_rate)


def read_items(path: Path, item_type: str = "text") -> list[Item]:
    """The items of a closed domain: text, one a line, duplicates and empty lines refused.

    Args:
        path: UTF-8 text (any bytes without line breaks for item_type "bytes").
        item_type: "text", "int" or "bytes": what items of the stream are.

    Raises:
        ConfigError: the file cannot be read, or a line is not an item; names the line's number, never its contents.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        msg = f"cannot read domain.items_file {path}: {error.strerror}"
        raise ConfigError(msg) from None
    lines = data.replace(b"\r\n", b"\n").split(b"\n")
    if lines and lines[-1] == b"":
        lines.pop()
    if not lines:
        msg = f"domain.items_file {path} is empty"
        raise ConfigError(msg)
    seen: dict[bytes, int] = {}
    items: list[Item] = []
    for number, line in enumerate(lines, 1):
        if not line:
            msg = f"line {number} of domain.items_file {path} is empty"
            raise ConfigError(msg)
        try:
            item: Item = line if item_type == "bytes" else line.decode("utf-8")
            if item_type == "int":
                if not re.fullmatch(rb"-?\d{1,19}", line):
                    raise ValueError
                item = int(line)
        except ValueError:
            wanted = "a whole number" if item_type == "int" else "UTF-8 text"
            msg = f"line {number} of domain.items_file {path} is not {wanted}"
            raise ConfigError(msg) from None
        same = str(item).encode() if item_type == "int" else line
        if same in seen:
            msg = f"line {number} of domain.items_file {path} repeats line {seen[same]}"
            raise ConfigError(msg)
        seen[same] = number
        items.append(item)
    return items
