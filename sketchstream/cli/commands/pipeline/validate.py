"""`sketchstream validate`: a configuration, checked without being run.

In: a configuration. Out: its consequences in numbers. Touches: the files it names, the input file's first records, the
broker if one answers; the configuration itself with --write.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from sketchstream.cli import clusters, config_file, options, show
from sketchstream.config import checks, resources
from sketchstream.errors import BrokerError, ConfigError

if TYPE_CHECKING:
    from sketchstream.config.loader import Config
    from sketchstream.stream.windows.plans import SketchPlan
    from sketchstream_connectors.kafka.input.sample import TopicSample

MANY_PARTITIONS: Final = 256
SAMPLE: Final = 20_000
"""Newest records that are read to find the partitioner, where no number is given."""
MEANS: Final = (2, 5, 10, 20)
"""Mean counts at which the share of heavy-tailed items beyond a modulus is said."""
WRAPPED: Final = 0.1
"""Share of items beyond the modulus, at the smallest of these means, from which that is a warning."""


@click.command()
@options.config()
@click.option(
    "--online/--offline",
    default=None,
    help="Ask the broker too: partitions, retention, topics, a sample of the input.  [default: online]",
)
@click.option("--write", is_flag=True, help="Put the partitioner that is found into the configuration file.")
@click.option(
    "--sample",
    type=click.IntRange(1_000, 10_000_000),
    default=SAMPLE,
    show_default=True,
    help="Newest records that are read to find the partitioner.",
)
@click.option("--partitions", type=click.IntRange(1, 100_000), help="Partitions of the input, without asking a broker.")
@options.result_format()
def command(
    config_file: Path, online: bool | None, write: bool, sample: int, partitions: int | None, form: show.Format
) -> None:
    r"""Check a configuration: every key, the files it names, the hash key, memory, and what its sketches cost together.

    A sample of the input is read too, from its topic or file: whether its records have the configured fields, and
    which partitioner its producers use. That choice depends on keys, so it is made with differential privacy: it costs
    an event or an item at most 1/10, each time it is made. Nothing of the sample is kept.

    Every mistake is one line that names the key, what was expected and what was found (exit code 2; 1 for files, and
    for a broker that does not answer: --offline asks none).

    \b
    Examples:
      sketchstream validate -c sketchstream.toml
      sketchstream validate -c sketchstream.toml --write
      sketchstream validate -c sketchstream.toml --online --format json
    """
    check(config_file, online=online, write=write, sample=sample, partitions=partitions, form=form)


def check(
    config_file: Path,
    *,
    online: bool | None = None,
    write: bool = False,
    sample: int = SAMPLE,
    partitions: int | None = None,
    form: show.Format = "table",
) -> None:
    """Check a configuration, and print what follows from it.

    Args:
        config_file: path of the configuration.
        online: whether the broker is asked; None: unless `partitions` is given.
        write: whether a partitioner that is found is put into the file.
        sample: number of newest records that are read to find it.
        partitions: number of partitions of the input.
        form: how facts are printed.

    Raises:
        ConfigError: one line for each mistake.
        BrokerError: no broker answers.
        StoreError: the key or a folder cannot be read.
    """
    config = clusters.load(config_file)
    if online or write:
        clusters.require_topic(config, "--online" if online else "--write")
    if write and online is False:
        raise ConfigError("--write needs a broker, so it excludes --offline")
    key = config.load_key()
    facts: dict[str, Any] = {
        "configuration": str(config_file),
        "source": f"file {config.input.file}",
        "format": ", ".join(dict.fromkeys(topic_config.format for topic_config in config.per_topic())),
        "key_id": None if key is None else key.id.hex(),
        "sealed_topic": None,
        "sealed_directory": None if config.sealed_directory is None else str(config.sealed_directory),
    }
    if config.from_kafka:
        topics = [topic_config.input.topic or "" for topic_config in config.per_topic()]
        facts["source"] = f"topic{'s' if config.other_topics else ''} {', '.join(topics)}"
        facts["sealed_topic"] = (
            ", ".join(topic_config.sealed_topic or "" for topic_config in config.per_topic()) or None
        )
    if config.budget is not None:
        facts["budget"] = config.check_budget()
    if config.sealed_directory is not None:
        from sketchstream_connectors.files.publisher import require_folder

        require_folder(config.sealed_directory)
    retention_ms: float | None = None
    mistakes: list[str] = []
    unreachable: str | None = None
    if config.from_kafka:
        if online is None:
            online = write or partitions is None
        unreachable = clusters.unreachable(config) if online or write else None
        if (online or write) and unreachable is None:
            everywhere = [_ask(topic_config, sample, write=write) for topic_config in config.per_topic()]
            if not config.other_topics:
                config = everywhere[0].config
            partitions = sum(answer.partitions for answer in everywhere)
            retention_ms = max(answer.retention_ms for answer in everywhere)
            mistakes = [text for answer in everywhere for text in answer.mistakes]
            facts |= everywhere[0].facts
            facts["topics"] = {name: text for answer in everywhere for name, text in answer.facts["topics"].items()}
        elif config.lacks_partitioner:
            mistakes = [f"{config.path}: {checks.NO_PARTITIONER}"]
    else:
        partitions = 1
        from sketchstream_connectors import factory

        mistakes, doubts = factory.look_at_file(config)
        for text in doubts:
            show.warn(text)
    if partitions is not None:
        facts["partitions"] = partitions
        facts["memory"] = resources.check_memory(config, partitions)
        facts["snapshots"] = resources.snapshot_cost(config, partitions)
        if partitions > MANY_PARTITIONS:
            show.warn(f"{partitions} partitions: a worker keeps a producer for each; run several workers above 256")
    facts["sketches"] = [_sketch(config, plan, partitions, retention_ms) for plan in config.sketches]
    show.facts(facts, form)
    for text in config.warnings():
        show.warn(text)
    if unreachable is not None:
        unreachable += "; topics and input were not compared with the configuration (--offline asks no broker)"
        if not mistakes:
            raise BrokerError(unreachable)
        show.warn(unreachable)
    if mistakes:
        raise ConfigError(*mistakes)


@dataclass
class Asked:
    """Facts from the cluster.

    `config`: with the partitioner that was found, where the file has none.
    """

    config: Config
    partitions: int
    retention_ms: float
    facts: dict[str, Any]
    mistakes: list[str] = field(default_factory=list)


def _ask(config: Config, records: int, *, write: bool) -> Asked:
    """Ask for partitions and retention of the input, the state of the worker's topics, and a sample of the input."""
    from sketchstream.stream.input import partitioner_detection
    from sketchstream_connectors.kafka import preflight
    from sketchstream_connectors.kafka.cluster import topics as kafka_topics
    from sketchstream_connectors.kafka.input import sample as kafka_sample

    with clusters.connect(config) as connection:
        names = clusters.names(config)
        connection.admin.topic(names.input)  # an unreachable cluster is said once, and not after several attempts
        looked = kafka_sample.try_to_read(connection, config, records)
        for text in preflight.check(connection, config, names, looked):
            show.warn(text)
        topic, _ = kafka_topics.wanted_topics(connection, names)
        retention = int(connection.admin.configs(topic.name).get("retention.ms", "-1"))
        changes = kafka_topics.create(connection, names, dry_run=True)
    advice = "run `sketchstream topics create`"
    state = {"created": f"missing: {advice}", "grown": f"too few partitions: {advice}"}
    topics = {
        change.topic: state.get(change.outcome, change.text if change.outcome == "wrong" else "ready")
        for change in changes
    }
    answers = Asked(config, topic.partitions, float("inf") if retention < 0 else float(retention), {"topics": topics})
    if looked is None:
        show.warn("the brokers gave no sample of the input: its fields and its partitioner were not compared with it")
        if config.lacks_partitioner:
            answers.mistakes.append(checks.NO_PARTITIONER)
    elif not looked.fields.records:
        show.warn(f"{looked.extent}: its fields and its partitioner were not compared with it")
        if config.lacks_partitioner:
            answers.mistakes.append(partitioner_detection.missing("unknown", looked.partitions, looked.extent))
    elif config.lacks_partitioner or config.partitioner is not None:
        _choose_partitioner(config, looked, answers, write=write)
    if looked is not None:
        answers.mistakes += looked.fields.verdict()[0]
    return answers


def _choose_partitioner(config: Config, looked: TopicSample, answers: Asked, *, write: bool) -> None:
    """Find the partitioner where it is not configured, and check it where it is."""
    from sketchstream.stream.input import partitioner_detection

    choice = looked.placements.choose()
    if config.partitioner is not None:
        wrong = partitioner_detection.contradiction(choice, config.partitioner)
        answers.mistakes += [] if wrong is None else [wrong]
        if choice == "unknown" and looked.partitions > 1:
            show.warn(f"{looked.extent}, too few distinct items to compare input.partitioner with them")
        return
    if choice != "none" and choice != "unknown":  # noqa: PLR1714 - mypy narrows the type by this only
        answers.facts["partitioner"] = f'partitioner = "{choice}"'
        answers.config = config.with_partitioner(choice)  # what sketches lose depends on it
        if write:
            config_file.set_partitioner(config.path, choice)
            show.note(f'wrote partitioner = "{choice}" into {config.path}')
            return
    answers.mistakes.append(partitioner_detection.missing(choice, looked.partitions, looked.extent))


def _sketch(config: Config, plan: SketchPlan, partitions: int | None, retention_ms: float | None) -> dict[str, Any]:
    """Describe one sketch: its spec, costs and guarantee in this deployment."""
    from sketchstream import kinds
    from sketchstream.config.context import context
    from sketchstream.kinds import groups_of
    from sketchstream.kinds.capabilities import Reconstructing
    from sketchstream.privacy.deployments.publications import readers_of_the_topic

    spec: Any = plan.spec
    surroundings = context(config, plan, partitions=partitions, retention_ms=retention_ms)
    kind = kinds.kind_of(spec)
    guarantee = kind.guarantee(spec, plan.ledger, surroundings).to_dict()
    facts: dict[str, Any] = {
        "name": plan.name,
        "window": plan.window,
        "unit": spec.unit,
        "epsilon": str(spec.epsilon),
        "epsilon_publish": str(spec.epsilon_publish),
        "slots": spec.domain.expected_slots,
        "publish": getattr(spec, "publish", "state"),
        "loss": guarantee["published"],
        "loss_with_intrusion": guarantee.get("published_and_one_copy"),
        "loss_with_all_sketches": guarantee.get("total"),
    }
    if spec.kind != "profile":
        facts["kind"] = spec.kind
    if plan.early is not None:
        most, each = plan.early.most, plan.early.epsilon
        facts["early"] = f"up to {most} preliminary answers of each window, at a cost of {each} each"
    wrapped = kind.wrapped(spec, MEANS) if isinstance(kind, Reconstructing) else None
    if wrapped is not None:
        shares, note = wrapped
        if shares[0] > WRAPPED:
            show.warn(f"sketch {plan.name}: {note}")
        facts["modulus"] = spec.modulus
        facts["items_beyond_modulus"] = ", ".join(
            f"{share:.2%} at a mean of {mean}" for share, mean in zip(shares, MEANS, strict=True)
        )
    number = len(groups_of(spec))
    if number:
        facts["groups"] = number
        if spec.unit == "item":
            facts["groups_of_one_item"] = spec.group_losses
            facts["group_limit"] = spec.groups.limit
    if retention_ms is not None:
        facts["readers_of_the_topic"] = readers_of_the_topic(surroundings)
    if config.input.partitioned_by == "none" and partitions is not None and isinstance(kind, Reconstructing):
        epsilon = float(spec.epsilon)
        growth = kind.gain(spec, [epsilon] * partitions) / kind.gain(spec, [epsilon])
        facts["merge_factor"] = round(growth, 2)
        text = f"sketch {plan.name}: merging {partitions} partitions multiplies the error by up to {growth:.3g}"
        text += "; key the topic by item, and it is 1"
        show.warn(text)
    return facts
