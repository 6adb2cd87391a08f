"""`sketchstream validate`: a configuration, checked without being run.

In: a configuration. Out: what it means, in numbers. Touches: the files it names; with --online, the broker.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from sketchstream.cli import options, show

if TYPE_CHECKING:
    from sketchstream.stream.config import Config
    from sketchstream.stream.plans import SketchPlan

MANY_PARTITIONS: Final = 256


@click.command(short_help="Check a configuration without running it.")
@options.config()
@click.option("--online", is_flag=True, help="Also ask the broker: partitions, retention, our topics.")
@click.option("--partitions", type=click.IntRange(1, 100_000), help="Partitions of the input, without asking.")
@options.result_format()
def command(config_file: Path, online: bool, partitions: int | None, form: show.Format) -> None:
    r"""Check a configuration: every key, the files it names, the hash key, memory, and what its sketches cost together.

    A mistake is one line that names the key, what was expected and what was found (exit code 2; 1 for files).

    \b
    Examples:
      sketchstream validate -c sketchstream.toml
      sketchstream validate -c sketchstream.toml --online --format json
    """
    from sketchstream.cli import clusters

    config = clusters.load(config_file)
    key = config.load_key()
    facts: dict[str, Any] = {
        "configuration": str(config_file),
        "source": f"topic {config.input.topic}" if config.from_kafka else f"file {config.input.file}",
        "format": config.format,
        "key_id": None if key is None else key.id.hex(),
        "sealed_topic": config.sealed_topic,
        "sealed_directory": None if config.sealed_directory is None else str(config.sealed_directory),
    }
    retention_ms: float | None = None
    if online:
        clusters.require_topic(config, "--online")
        partitions, retention_ms, found = _ask(config)
        facts |= found
    elif not config.from_kafka:
        partitions = 1
    if partitions is not None:
        facts["partitions"] = partitions
        facts["memory"] = config.check_memory(partitions)
        if partitions > MANY_PARTITIONS:
            text = f"{partitions} partitions: a worker keeps a producer for each; run several workers above 256"
            click.echo(f"sketchstream: warning: {text}", err=True)
    facts["sketches"] = [_sketch(config, plan, partitions, retention_ms) for plan in config.sketches]
    show.facts(facts, form)


def _ask(config: Config) -> tuple[int, float | None, dict[str, Any]]:
    """Partitions and retention of the input topic, and the state of our topics."""
    from sketchstream.cli import clusters
    from sketchstream_connectors import kafka_check, kafka_topics

    with clusters.connected(config) as connection:
        for text in kafka_check.check(connection, config, clusters.names(config)):
            click.echo(f"sketchstream: warning: {text}", err=True)
        given, _ = kafka_topics.wanted(connection, clusters.names(config))
        retention = int(connection.admin.configs(given.name).get("retention.ms", "-1"))
        changes = kafka_topics.create(connection, clusters.names(config), dry_run=True)
    advice = "run `sketchstream topics create`"
    state = {"created": f"missing: {advice}", "grown": f"too few partitions: {advice}"}
    topics = {one.topic: state.get(one.kind, one.text if one.kind == "wrong" else "ready") for one in changes}
    return given.partitions, float("inf") if retention < 0 else float(retention), {"topics": topics}


def _sketch(config: Config, plan: SketchPlan, partitions: int | None, retention_ms: float | None) -> dict[str, Any]:
    """One sketch: what it is, what it costs, what it guarantees here."""
    from sketchstream.cli import clusters
    from sketchstream.estimate import laws
    from sketchstream.privacy.deployment import planned
    from sketchstream.privacy.guarantee import Guarantee
    from sketchstream.privacy.ledger import show as spell

    spec = plan.spec
    around = clusters.context(config, plan, partitions=partitions, retention_ms=retention_ms)
    guarantee = Guarantee.of(spec, planned(spec), around)
    facts: dict[str, Any] = {
        "name": plan.name,
        "window": str(plan.calendar.width),
        "unit": spec.unit,
        "epsilon": str(spec.epsilon),
        "epsilon_publish": str(spec.epsilon_publish),
        "slots": spec.domain.size,
        "publish": spec.publish,
        "loss": spell(guarantee.published),
        "loss_with_intrusion": spell(guarantee.looked),
        "loss_with_all_sketches": spell(guarantee.total),
    }
    if config.input.partitioned_by == "none" and partitions is not None:
        gain = laws.gain([float(spec.epsilon)] * (partitions - 1))
        facts["merge_factor"] = round(gain, 2)
        text = f"sketch {plan.name}: merging {partitions} partitions multiplies the error by up to {gain:.3g}"
        text += "; key the topic by item, and it is 1"
        click.echo(f"sketchstream: warning: {text}", err=True)
    return facts
