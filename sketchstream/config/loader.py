"""Reads and checks a configuration file, and builds the worker's plans from it.

In: a TOML file and environment variables. Out: a frozen `Config` with a `SketchPlan` for each series of windows.
Touches: the file, its lists of items; never the key's contents.

Every mistake is one line of a ConfigError with the key, the expected and the found value.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sketchstream import kinds
from sketchstream.config import budget, checks, kafka_settings
from sketchstream.config.bounded_toml import in_toml, read_toml
from sketchstream.config.budget import PlannedLoss
from sketchstream.config.env import override
from sketchstream.config.plans import SKETCH_NAME, plan_sketch
from sketchstream.config.validation import read_tables
from sketchstream.errors import ConfigError, SpecError, StoreError, did_you_mean
from sketchstream.files import as_path, reading
from sketchstream.items.key import Key
from sketchstream.quality import DEFAULT, Rule, Tolerance
from sketchstream.spec import exact_delta, exact_epsilon
from sketchstream.stream.windows.plans import SketchPlan
from sketchstream.stream.windows.quorum import Quorum
from sketchstream.texts.naming import Names

if TYPE_CHECKING:
    from sketchstream.config import schema
    from sketchstream.config.budget import Budget
    from sketchstream.kinds.config_tables import QualityTable, SketchTable
    from sketchstream.privacy.losses.composition import Losses
    from sketchstream.stream.input.partitioner import Partitioner


TABLES_AS_READ: Final = ("input", "payload", "store", "output", "history", "privacy", "worker", "serve")
"""Tables of the file that a configuration has as they were read."""


@dataclass(frozen=True)
class Config:
    """The checked content of a configuration file."""

    path: Path
    kafka: Mapping[str, Any]
    input: schema.InputTable
    payload: schema.PayloadTable | None
    key_file: Path | None
    store: schema.StoreTable
    output: schema.OutputTable
    privacy: schema.PrivacyTable
    quality: Mapping[str, QualityTable]
    worker: schema.WorkerTable
    serve: schema.ServeTable
    names: Names
    sketches: tuple[SketchPlan, ...]
    unsaid_units: tuple[str, ...] = ()
    """Sketches that count the item and do not set their unit."""
    history: schema.HistoryTable | None = None
    other_topics: tuple[Config, ...] = ()
    """The same for every further topic of `[[input.topics]]`, each with its own group and sealed topic."""

    @classmethod
    def load(cls, path: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> Config:
        """Read and check a file.

        Args:
            path: path of the TOML file; paths in it are relative to its folder.
            environ: environment variables; those that begin with SKETCHSTREAM__ override keys of the file.

        Raises:
            ConfigError: the file cannot be read, or something in it is invalid.
            FormatError: this is not a path.
        """
        where = as_path(path)
        try:
            with reading(f"the configuration {where}", ConfigError):
                text = where.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise ConfigError(f"{where} is not UTF-8 text") from None
        return cls.parse(text, where, os.environ if environ is None else environ)

    @classmethod
    def parse(
        cls, text: str, path: str | Path = "sketchstream.toml", environ: Mapping[str, str] | None = None
    ) -> Config:
        """Parse TOML text as the configuration file at `path`.

        Raises:
            ConfigError: one line for each mistake, all of them at once.
        """
        where = Path(path)
        try:
            data: dict[str, Any] = read_toml(text)
        except ValueError as error:
            raise ConfigError(f"{where} is not valid TOML: {error}") from None
        return cls.from_data(data, where, override(data, environ or {}))

    @classmethod
    def from_data(cls, data: dict[str, Any], where: Path, mistakes: Sequence[str] = ()) -> Config:
        """Build the configuration from plain data, as from the file `where`.

        Args:
            data: plain data of TOML.
            where: path of the file; paths in the data are relative to its folder.
            mistakes: earlier mistakes, to be reported with all others.

        Raises:
            ConfigError: one line for each mistake, all of them at once.
        """
        mistakes = list(mistakes)
        table, wrong, unclear = read_tables(data)
        mistakes += wrong
        config = None
        if table is not None:
            config, wrong = _assemble(table, where, unclear)
            mistakes += wrong
        if mistakes or config is None:
            raise ConfigError(*(f"{where}: {in_toml(mistake)}" for mistake in mistakes))
        return config

    # ------------------------------------------------------------------ derived settings

    @property
    def group(self) -> str:
        """Kafka's group.id; "files" for a file or standard input."""
        return str(self.kafka.get("group.id", "files"))

    @property
    def from_kafka(self) -> bool:
        """Whether the source is a topic."""
        return self.input.topic is not None

    def per_topic(self) -> tuple[Config, ...]:
        """A configuration for each topic, as if it were alone."""
        return (replace(self, other_topics=()), *self.other_topics)

    @property
    def format(self) -> str:
        """Record format: see `sketchstream.stream.formats` (topics), `FILE_ONLY` and avro (files)."""
        return checks.input_format(self.input) or ""

    @property
    def columns(self) -> tuple[str, ...]:
        """Fields of the records that sketches need in addition to item, weight and time."""
        return tuple(sorted({field for plan in self.sketches for field in plan.fields.values()}))

    @property
    def decimal_weights(self) -> bool:
        """Whether a sketch takes weights that are not integers."""
        return any(kinds.kind_of(plan.spec).intake.decimal_weights(plan.spec) for plan in self.sketches)

    @property
    def max_ahead(self) -> int:
        """Largest distance of an event time beyond the clock, ms; default: the lateness."""
        return self.input.lateness if self.input.max_ahead is None else self.input.max_ahead

    @property
    def quorum(self) -> Quorum:
        """The rule that moves a watermark."""
        return Quorum(self.input.quorum, self.input.quorum_time, self.input.quorum_most)

    @property
    def folder(self) -> Path:
        """Folder of relative paths."""
        return self.path.parent

    def resolve(self, path: str | Path) -> Path:
        """Resolve a path of the configuration, relative to its file."""
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
    def history_name(self) -> str | None:
        """Name of the table of earlier records: its path as it is written; None: there is none."""
        if self.history is not None:
            return self.history.file
        return self.input.file if self.format == "parquet" and self.input_file is not None else None

    @property
    def history_path(self) -> Path:
        """Folder of what a backfill has booked and stored."""
        path = None if self.history is None else self.history.path
        if path is not None:
            return self.resolve(path)
        return self.resolve("history") if self.from_kafka else self.store_path / "backfill"

    @property
    def sealed_topic(self) -> str | None:
        """Topic of sealed sketches; None if they go only to a directory."""
        if not self.from_kafka or self.output.topic == "":
            return None
        return self.output.topic or f"{self.group}.sealed"

    @property
    def history_topic(self) -> str | None:
        """Topic of the history, in addition to the sealed topic; None without a `[history]`."""
        return None if self.history is None or self.sealed_topic is None else f"{self.sealed_topic}.history"

    @property
    def sealed_directory(self) -> Path | None:
        """Folder of sealed sketches; None if they go only to a topic."""
        if self.output.directory is not None:
            return self.resolve(self.output.directory)
        return None if self.from_kafka else self.resolve("sealed")

    @property
    def fingerprint(self) -> bytes:
        """16 bytes that are equal if and only if the sets of sketches are equal."""
        import hashlib

        digest = hashlib.blake2b(digest_size=16, person=b"sketch-config")
        for plan in sorted(self.sketches, key=lambda plan: plan.name):
            windows = str(plan.calendar) if plan.steps == 1 else f"{plan.steps} steps of {plan.calendar}"
            windows += f", one every {plan.stride}" if plan.stride > 1 else ""
            digest.update(f"{plan.name}\0{windows}\0".encode() + plan.spec.fingerprint)
        return digest.digest()

    def quality_rule(self, sketch: str) -> Rule:
        """The rule by which answers of this sketch report lost records; the default one for removed sketches."""
        rule = self.quality.get(sketch)
        if rule is None:
            return DEFAULT
        return Rule(
            Tolerance(rule.warn, rule.warn_alarm), Tolerance(rule.incomplete, rule.incomplete_alarm), rule.refused
        )

    def load_key(self) -> Key | None:
        """Read the hash key from its file; None if no sketch needs one and none is configured.

        Raises:
            StoreError: there is no such file, or it cannot be read.
            KeyMismatchError: it does not contain a key.
        """
        try:
            return None if self.key_file is None else Key.load(self.key_file)
        except StoreError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            to = " --to committed" if self.from_kafka else ""
            raise StoreError(
                f"there is no key file {self.key_file}: bring it back from its backup, as another key loses open "
                f"windows. If nothing was counted yet, `sketchstream keygen -o {self.key_file}` makes one. If it is "
                f"lost for good, make another one in the same way, and begin a new revision with "
                f"`sketchstream reset{to}`"
            ) from None

    def plan(self, name: str) -> SketchPlan:
        """Find the sketch of a name. Raises ConfigError with the list of names."""
        plan = self.find(name)
        if plan is not None:
            return plan
        names = [plan.name for plan in self.sketches]
        raise ConfigError(
            f"no sketch is named {name!r:.60} in {self.path} (there are: {', '.join(names)}){did_you_mean(name, names)}"
        )

    def find(self, name: str) -> SketchPlan | None:
        """The sketch of a name; None: it was removed or renamed, or never was one."""
        return next((plan for plan in self.sketches if plan.name == name), None)

    @property
    def checks_partitions(self) -> bool:
        """Whether the partition of each item is computed again, and compared with the one that the record is in."""
        return self.partitioner is not None

    @property
    def partitioner(self) -> Partitioner | None:
        """Function from items to partitions; None if it is impossible, not wanted, or not known yet."""
        partitioner = self.input.partitioner
        if not self.from_kafka or self.input.partitioned_by != "item" or partitioner == "unchecked":
            return None
        return partitioner

    @property
    def diagnosed(self) -> bool:
        """Whether logs and metrics may say exact numbers of events."""
        return self.privacy.diagnostics == "exact"

    @property
    def lacks_partitioner(self) -> bool:
        """Whether `input.partitioner` must be set before a worker may start."""
        return self.from_kafka and self.input.partitioned_by == "item" and self.input.partitioner is None

    def warnings(self) -> list[str]:
        """What is allowed and may not be meant, one line each."""
        item = self.input.item
        if item is None or not checks.looks_like_people(item):
            return []
        return [checks.unsaid_unit(name, item) for name in self.unsaid_units]

    def with_partitioner(self, partitioner: Partitioner) -> Config:
        """The configuration with `input.partitioner` set."""
        return replace(self, input=self.input.model_copy(update={"partitioner": partitioner}))

    def require_partitioner(self) -> None:
        """Refuse a topic partitioned by item whose partitioner is not set; there is no default.

        Raises:
            ConfigError: the partitioner is missing; says what to do.
        """
        if self.lacks_partitioner:
            raise ConfigError(f"{self.path}: {checks.NO_PARTITIONER}")

    @property
    def budget(self) -> Budget | None:
        """Largest allowed loss of the protected unit over a period."""
        table = self.privacy.budget
        if table is None:
            return None
        try:
            limit = exact_epsilon(table.epsilon, "privacy.budget.epsilon")
            delta = None if table.delta is None else exact_delta(table.delta, "privacy.budget.delta")
        except SpecError as error:
            raise ConfigError(str(error)) from None
        return budget.parse(limit, table.per, (plan.calendar for plan in self.sketches), delta)

    def check_budget(self) -> str | None:
        """Line on the cost of a period; None without a budget.

        Raises:
            ConfigError: the cost is above `privacy.budget`.
        """
        limit = self.budget
        return None if limit is None else budget.require(limit, self._planned())

    def items_in_a_period(self) -> Losses | None:
        """Largest loss of an item in one period of the budget, if every window counts once; None without a budget."""
        limit = self.budget
        return None if limit is None else budget.item_losses(self._planned(), limit.period)

    def _planned(self) -> list[PlannedLoss]:
        """The sketches' properties for budgets."""
        return [
            PlannedLoss(plan.name, plan.starts, plan.ledger, plan.overlap, accounting.groups_of_item(plan.spec))
            for plan, accounting in ((plan, kinds.kind_of(plan.spec).accounting) for plan in self.sketches)
        ]


def _assemble(table: schema.FileTable, path: Path, unclear: Collection[str]) -> tuple[Config | None, list[str]]:
    """Combine the tables, of each topic if there are several, and list contradictions between them.

    Mistakes about `unclear` keys, which were removed, are consequences and are not listed.
    """
    tables, found = checks.split_topics(table)
    mistakes = [mistake.text for mistake in found]
    configs: list[Config] = []
    for topic in tables:
        config, wrong = _assemble_one(topic, path, unclear)
        configs += [] if config is None else [config]
        mistakes += [mistake for mistake in wrong if mistake not in mistakes]
    if len({config.fingerprint for config in configs}) > 1:
        mistakes.append("input.topics: sketches differ between the topics: give all of them a weight, or none")
    if mistakes or len(configs) < len(tables):
        return None, mistakes
    return replace(configs[0], other_topics=tuple(replace(topic, history=None) for topic in configs[1:])), []


def _assemble_one(table: schema.FileTable, path: Path, unclear: Collection[str]) -> tuple[Config | None, list[str]]:
    """Combine the tables of one topic, and list contradictions between them; see `_assemble`."""
    kafka, mistakes = kafka_settings.read(table.kafka)
    if table.input.topic is not None:
        mistakes += kafka_settings.contradictions(kafka) if not mistakes else ()
    found = list(checks.check_input(table, kafka))
    plans: list[SketchPlan] = []
    blocks: dict[str, SketchTable] = {}
    names: set[str] = set()
    twice: set[str] = set()
    for number, block in enumerate(table.sketch):
        if not SKETCH_NAME.fullmatch(block.name):
            mistakes.append(
                f"name of sketch {number + 1} must be lower-case letters, digits, '_', '.' and '-' (at most 100), "
                f"found {block.name!r:.60}"
            )
        if block.name in names:
            mistakes.append(f"two sketches are named {block.name!r}")
            twice.add(block.name)
        names.add(block.name)
        if f"sketch.{number}" in unclear:
            continue
        made, wrong = plan_sketch(block, table, path.parent)
        found += (checks.Mistake(f'sketch "{block.name}": {mistake.text}', *mistake.keys) for mistake in wrong)
        plans += made
        blocks |= {plan.name: block for plan in made}
    for name in sorted({plan.name for plan in plans} - names):
        if not SKETCH_NAME.fullmatch(name):
            mistakes.append(f"the name of a series of windows has at most 100 characters, found {name!r:.120}")
    counted = Counter(plan.name for plan in plans)
    mistakes += [
        f"two series of windows are named {name!r}: [[sketch]] blocks and lengths of windows share their names"
        for name, number in counted.items()
        if number > 1 and name not in twice
    ]
    found += checks.check_payload(table)
    found += checks.check_columns(plans)
    found += checks.check_store(table)
    found += checks.check_metrics(table)
    found += checks.check_serve(table)
    found += checks.check_limit(table, plans)
    if table.key is None:
        found += [
            checks.Mistake(
                f'sketch "{plan.name}" needs a hash key: [key] file = "..." (made by `sketchstream keygen -o FILE`)',
                "key",
                "sketch",
            )
            for plan in plans
            if plan.spec.needs_key
        ]
    mistakes += [mistake.text for mistake in found if not mistake.follows_from(unclear)]
    if mistakes or unclear:
        return None, mistakes
    config = Config(
        path=path,
        kafka=kafka,
        key_file=None if table.key is None else path.parent / table.key.file.expanduser(),
        quality={name: _quality(table.quality, block.quality) for name, block in blocks.items()},
        names=table.names.names(),
        sketches=tuple(plans),
        unsaid_units=tuple(name for name, block in blocks.items() if block.needs_item and not block.says_unit),
        **{name: getattr(table, name) for name in TABLES_AS_READ},
    )
    try:
        config.check_budget()
    except ConfigError as error:
        return None, list(error.mistakes)
    return config, []


def _quality(usual: QualityTable, of_sketch: QualityTable | None) -> QualityTable:
    """The tolerances of one sketch: its own if it sets them, else those of the file."""
    if of_sketch is None:
        return usual
    return usual.model_copy(update={name: getattr(of_sketch, name) for name in of_sketch.model_fields_set})
