"""`sketchstream init`: a first configuration, from a look at the records and five questions.

In: a topic or a file; answers, from options or at the terminal. Out: a configuration and a hash key, what they cost,
and the commands that follow. Touches: the two files; the newest records of the topic, or the first ones of the file.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from sketchstream.cli import clusters, options, show
from sketchstream.cli.progress import ProgressBar
from sketchstream.errors import BrokerError, ConfigError, StoreError, did_you_mean
from sketchstream.files import write_durably

if TYPE_CHECKING:
    from sketchstream.config.draft import Draft
    from sketchstream.kinds.groups.group_list import Groups
    from sketchstream.spec import Unit
    from sketchstream.stream.input.field_survey import Survey
    from sketchstream.stream.windows.calendar import Width

KIND: Final = "profile"
"""Kind of the sketch that is configured."""
NAME: Final = "people"
SHOWN_NUMBERS: Final = ("distinct", "at_least.3")
PROVISIONAL: Final = f"""[[sketch]]
name = "{NAME}"
window = "1d"
unit = "item"
epsilon = "1"
domain = {{ slots = 1024, levels = 2 }}
"""
"""A sketch of any size, with which a configuration is valid before the questions are answered."""


@dataclass(frozen=True)
class RecordSource:
    """Where the records are, from the options; fields have the names of the options."""

    topic: str | None
    file: Path | None
    bootstrap_servers: str | None
    settings: tuple[str, ...]
    group: str | None

    def keys(self, folder: Path) -> dict[str, Any]:
        """The keys of a configuration in that folder that name the source, as fields of `Draft`."""
        if (self.topic is None) == (self.file is None):
            raise click.UsageError("init takes either --topic or --file, not both and not neither")
        if self.topic is not None:
            return {"topic": self.topic, "kafka": self._kafka(self.topic)}
        assert self.file is not None
        if self.bootstrap_servers or self.group or self.settings:
            raise click.UsageError("--bootstrap-servers, --group and --kafka belong to --topic")
        return {"file": _relative(self.file, folder), "format": _format_of(self.file)}

    def _kafka(self, topic: str) -> dict[str, str]:
        """The client's settings."""
        from sketchstream.config.kafka_settings import SECRETS

        client = {
            "bootstrap.servers": self.bootstrap_servers or "localhost:9092",
            "group.id": self.group or f"sketchstream-{topic}",
        }
        for setting in self.settings:
            name, equals, value = setting.partition("=")
            if not equals or not name:
                raise click.UsageError(
                    f"--kafka takes NAME=VALUE, such as security.protocol=SSL, found {setting!r:.60}"
                )
            if name.endswith("password") or name in SECRETS:
                raise click.UsageError(
                    f"{name} is a secret, and command lines are not: --kafka {name}.file=PATH names the file with it"
                )
            client[name] = value
        return client


@dataclass(frozen=True)
class SplitOptions:
    """By what answers are split, from the options; fields have the names of the options."""

    group_by: str | None
    groups: str | None
    max_groups: int | None


RECORDS = options.gather("records", RecordSource, (
    click.option("--topic", help="Kafka topic with JSON records."),
    click.option("--file", "file", type=options.FILE, help="File instead of a topic: jsonl, csv, parquet or avro."),
    click.option("--bootstrap-servers", help="With --topic: brokers.  [default: localhost:9092]"),
    click.option("--kafka", "settings", multiple=True, metavar="NAME=VALUE",
                 help="Further client setting in Kafka's name, such as security.protocol=SSL; repeat it."),
    click.option("--group", help="With --topic: the consumer group.  [default: sketchstream-TOPIC]"),
))  # fmt: skip
SPLIT = options.gather("split", SplitOptions, (
    click.option("--group-by", help="Field by whose values answers are split, such as campaign.  [default: none]"),
    click.option("--groups", metavar="NAMES|FILE",
                 help="With --group-by: its values, between commas, or a file with one a line."),
    click.option("--max-groups", type=click.IntRange(min=1),
                 help="With --groups: in how many of them one item may count.  [default: all]"),
))  # fmt: skip


@click.command()
@RECORDS
@click.option("--item", help="Field of what is counted, such as user_id.")
@click.option("--time", "time", help="Field of the event time; 'record' for the records' own.  [default: as found]")
@click.option("--unit", type=click.Choice(["item", "event"]),
              help="What is protected: all that an item does in a window, or each event.  [default: item]")  # fmt: skip
@SPLIT
@click.option("--window", help="Width of a window: 1h, 1d, 7d, ...  [default: 1d]")
@click.option("--error", help="Relative error wanted, one standard deviation, such as 2%.  [default: 2%]")
@click.option(
    "--number", "numbers", multiple=True, help="What must reach it; repeat it.  [default: distinct, at_least.3]"
)
@click.option(
    "--key-file", type=options.FILE, help="Hash key; made where it is missing.  [default: sketch.key next to -o]"
)
@click.option("-o", "--output", type=options.FILE, default=Path("sketchstream.toml"), show_default=True,
              help="Configuration to write; an existing file is refused.")  # fmt: skip
def command(
    records: RecordSource,
    item: str | None,
    time: str | None,
    unit: Unit | None,
    split: SplitOptions,
    window: str | None,
    error: str | None,
    numbers: tuple[str, ...],
    key_file: Path | None,
    output: Path,
) -> None:
    r"""Look at a few records, ask what to count, who is protected, by which field answers are split, how wide windows
    are, and how exact answers must be; then write a configuration and a hash key, and print what that costs and how
    many items it takes.

    The sample is read once and not kept; fields are named, values are not shown. With a topic, the producers'
    partitioner is found as `validate --write` does it, with differential privacy (at most 1/10 for an item).

    \b
    Examples:
      sketchstream init --file events.jsonl
      sketchstream init --topic events --bootstrap-servers localhost:9092
      sketchstream init --file events.jsonl --item user_id --unit item --window 1h --error 5%
      sketchstream init --file events.jsonl --group-by campaign --groups spring,summer --error 20%
    """  # noqa: D205 - the first paragraph is the summary
    from sketchstream import kinds
    from sketchstream.config.draft import Draft
    from sketchstream.kinds.capabilities import Sizable
    from sketchstream.stream.windows.calendar import Width

    folder = output.parent
    source = records.keys(folder)
    if output.exists():
        raise StoreError(f"{output} exists; a configuration is never overwritten, choose another path with -o")
    key = key_file or folder / "sketch.key"
    draft = Draft(item or "?", time or "record", _relative(key, folder), **source)
    survey, partitions = _survey(draft, records.file, output)
    item = _item(survey, item)
    time = _time(survey, time, from_topic=records.topic is not None)
    unit = options.ask(
        unit, f"Protect everything that one {item} does in a window, or each single event", "item",
        click.Choice(["item", "event"]),
    )  # fmt: skip
    chosen = _groups(survey, split, unit, item)
    window = options.ask(window, "How wide is a window (1h, 1d, 7d, ...)", "1d", str)
    wait_s = _wait_s(Width.parse(str(window)))
    target = _share(options.ask(error, "Which relative error (one standard deviation) may answers have", "2%", str))
    kind = kinds.by_name(KIND)
    assert isinstance(kind, Sizable)
    with ProgressBar("sizing the sketch") as bar:
        bar.reach(0)
        sized = kind.fewest_items(
            numbers=numbers or SHOWN_NUMBERS, target=target, unit=unit, parts=partitions, groups=chosen.groups
        )
    draft = Draft(item, time, _relative(key, folder), **source, wait_s=wait_s, time_unit=survey.unit(time))
    listed = None if chosen.file is None else _relative(chosen.file, folder)
    _write(draft, sized.block(NAME, str(window), chosen.field, listed), key, output)
    _print(draft, sized, output)
    if records.file is not None:
        _warn_of_few(records.file, draft.format or "", sized)
    if records.topic is not None:
        _find_partitioner(output)
    _print_next(draft, sized, str(window), output)


# ----------------------------------------------------------------------------------------------------- the records


def _format_of(file: Path) -> str:
    """Format of a file, by its ending."""
    from sketchstream.config.checks import file_format

    record_format = file_format(None, str(file))
    if record_format is None:
        raise click.UsageError(f"the ending of {file} names no known format: expected .jsonl, .csv, .parquet or .avro")
    return record_format


def _relative(path: Path, folder: Path) -> str:
    """A path as a configuration in that folder names it."""
    return os.path.relpath(path.absolute(), folder.absolute())


def _survey(draft: Draft, file: Path | None, output: Path) -> tuple[Survey, int]:
    """Which fields the records have, and how many partitions there are."""
    from sketchstream.config.loader import Config
    from sketchstream.stream.input.field_survey import Survey
    from sketchstream_connectors import first_records

    survey = Survey(tabular=draft.format in ("csv", "parquet"))
    if file is not None:
        survey.add(first_records.of_file(file, draft.format or ""))
        survey.headed = draft.format == "csv"
        partitions, read, place = 1, survey.records, str(file)
    else:
        config = Config.parse(draft.text(PROVISIONAL), output, os.environ)
        silence = clusters.unreachable(config)
        if silence is not None:
            raise BrokerError(f"{silence}; --bootstrap-servers says where brokers are")
        with clusters.connect(config) as connection:
            partitions, read, documents = first_records.of_topic(connection, draft.topic or "")
        survey.add(documents)
        place = f"topic {draft.topic}"
    if not survey.records:
        reason = f"{read:,} records were read, and none is a JSON object" if read else "it holds no records"
        raise ConfigError(
            f"{place} cannot be looked at: {reason}; docs/configuration.md has the keys for other formats"
        )
    return survey, partitions


def _item(survey: Survey, named: str | None) -> str:
    """Ask for the field that is counted, among those that there are."""
    from sketchstream.config.checks import looks_like_people
    from sketchstream.stream.input.sampling import NAMED_FROM

    fields = survey.fields()
    names = [field.name for field in fields]
    if named is None:
        click.echo(f"{survey.records:,} records were looked at:", err=True)
        for field in fields:
            click.echo(f"  {field.name:<24} {field.type_name:<19} in {field.share:.0%}", err=True)
        if survey.records < NAMED_FROM:
            click.echo(f"  (fields are named from {NAMED_FROM} records on)", err=True)
    likely = next(filter(looks_like_people, names), None)
    return _find_field(survey, str(options.ask(named, "What to count (a field)", likely, str, "--item", must=True)))


def _find_field(survey: Survey, name: str) -> str:
    """A field, if records have it.

    Raises:
        ConfigError: none has it; names those that there are.
    """
    from sketchstream.stream.input.sampling import UNREACHABLE

    if name in survey.unreached:
        raise ConfigError(f"{name!r:.60} {UNREACHABLE}")
    if name not in survey.has:
        names = [field.name for field in survey.fields()]
        fields = f"fields there are: {', '.join(sorted(names))}{did_you_mean(name, names)}"
        if survey.headed and any(column[:1].isdigit() for column in names):  # the names seem to be values
            fields = "its first line must name the columns, and seems to hold data: add a line of names"
        raise ConfigError(f"no record of the sample has the field {name!r:.60}; {fields}")
    return name


def _time(survey: Survey, named: str | None, *, from_topic: bool) -> str:
    """The field of the event time; "record" for the records' own.

    Raises:
        click.UsageError: no field is surely a time, and files have no times of records.
    """
    if named is not None and named != "record":
        _find_field(survey, named)
    time = named or survey.time() or ("record" if from_topic else None)
    if time is not None:
        return time
    msg = (
        "no field of the sample is surely a time (a number since 1970, or RFC 3339), and windows need one; say which "
        "with --time"
    )
    naive = [field.name for field in survey.fields() if field.type_name == "time without offset"]
    if naive:
        msg += f"; {naive[0]!r} says no instant, as its times have no offset: write them with one (Z is UTC)"
    raise click.UsageError(msg)


@dataclass(frozen=True)
class Split:
    """What answers are split by: a field of the records, its declared values, and their file if they lie in one."""

    field: str = "group"
    groups: Groups | None = None
    file: Path | None = None


def _groups(survey: Survey, asked: SplitOptions, unit: Unit | None, item: str) -> Split:
    """Ask for a field by which answers are split, its values, and in how many of them an item counts."""
    from sketchstream.cli.deployments import DeploymentOptions

    field, listed, most = asked.group_by, asked.groups, asked.max_groups
    if field is None and (listed or most):
        raise click.UsageError("--groups and --max-groups belong to --group-by: name the field of the records")
    field = options.ask(field, "Split answers by a field, such as campaign or country", "none", str)
    if field == "none":
        return Split()
    field = _find_field(survey, str(field))
    question = "Its values: between commas, or a file with one a line (the list is public: take it from no user's data)"
    listed = str(options.ask(listed, question, None, str, "--groups")).strip()
    if listed.isdecimal():
        raise click.UsageError(
            f"--groups takes the values of {field!r}, between commas or in a file, found a number: {listed}"
        )
    given = DeploymentOptions(listed, False, None, None, False, "promised")
    groups = given.declared(1024, 2)
    number = len(groups or ())
    if unit == "item" and number > 1:
        question = f"In how many of these {number:,} may one {item} count in a window (the fewer, the more exact)"
        most = options.ask(most, question, number, click.IntRange(1, number))
    elif most is not None and unit != "item":
        raise click.UsageError("--max-groups belongs to --unit item: an event counts in one group")
    if groups is not None and most not in (None, number):
        groups = replace(groups, max_groups=most, limit="ranked")
    return Split(field, groups, None if given.file_of_groups is None else Path(given.file_of_groups))


def _share(text: str) -> float:
    """2% or 0.02."""
    with contextlib.suppress(ValueError):
        value = float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
        if 0 < value < 1:
            return value
    raise click.UsageError(f"--error takes a share such as 2% or 0.02, found {text!r:.20}")


# ----------------------------------------------------------------------------------------------------- the answers


def _write(draft: Draft, block: str, key: Path, output: Path) -> None:
    """Make the key where it is missing, and the configuration."""
    from sketchstream.items.key import Key

    if key.exists():
        Key.load(key)
    else:
        Key.generate().save(key)
        show.note(f"wrote {key}: secret, and needed for as long as you count")
    write_durably(output, draft.text(block).encode(), mode=0o644)
    show.note(f"wrote {output}")


def _print(draft: Draft, sizing: Any, output: Path) -> None:
    """Say what it costs, how many items it takes, and what the sample says about the fields."""
    from sketchstream import kinds
    from sketchstream.config.loader import Config
    from sketchstream.privacy.deployments.surroundings import Context
    from sketchstream_connectors import factory

    config = Config.load(output)
    context = Context(window_ms=config.sketches[0].shortest_ms)
    guarantee = kinds.kind_of(sizing.spec).guarantee(sizing.spec, kinds.initial_ledger(sizing.spec), context)
    each = "" if sizing.spec.groups is None else f" in each of {sizing.spec.group_count:,} groups"
    click.echo(guarantee.summary)
    click.echo(
        f"{' and '.join(sizing.numbers)} have an error of at most {sizing.target:.2%} (one standard deviation) in "
        f"windows with about {sizing.plan.items:,.0f} distinct values of {draft.item}{each} or more; with fewer values "
        f"it is larger, as `sketchstream plan` computes it. Memory: {show.number(sizing.memory)} bytes for each open "
        "window and partition."
    )
    try:
        mistakes, doubts = factory.look_at_file(config)
    except ConfigError as error:  # the configuration is written
        mistakes, doubts = list(error.mistakes), []
    for text in mistakes + doubts:
        show.warn(text)


def _warn_of_few(file: Path, record_format: str, sizing: Any) -> None:
    """Say that a file does not hold what the answers were sized for."""
    from sketchstream_connectors import first_records

    records, groups = first_records.about_so_many(file, record_format), sizing.spec.groups
    needed = sizing.plan.items * (1 if groups is None else sizing.spec.group_count)
    if records is not None and records < needed:
        fewer = "" if groups is None or sizing.spec.group_losses == 1 else ", --max-groups 1"
        show.warn(
            f"{file} has about {records:,} records, so its windows have fewer values than the {needed:,.0f} above, and "
            f"larger errors: allow more with --error, choose wider windows{fewer}, or fewer groups"
        )


def _find_partitioner(output: Path) -> None:
    """Find the partitioner as `validate --write` does."""
    from sketchstream.cli.commands.pipeline import validate

    try:
        validate.check(output, write=True)
    except ConfigError as error:
        raise ConfigError(
            *error.mistakes, f"{output} is written; correct this, then: sketchstream validate -c {output} --write"
        ) from None


def _wait_s(width: Width) -> int | None:
    """Seconds that a window waits after its end: a sixth of one below an hour; None: as configurations have it."""
    return width.count * 10 if width.unit == "minute" and width.count < 60 else None


def _print_next(draft: Draft, sizing: Any, window: str, output: Path) -> None:
    """The commands that follow, and when the first answer comes."""
    named = f"-c {output}"
    columns = "".join(f" --number {number}" for number in sizing.numbers)
    by = "" if sizing.spec.groups is None else " --by group"
    steps = [f"sketchstream worker {named}", f"sketchstream profile {named} --sketch {NAME} --all{by}{columns}"]
    if draft.topic is None:
        steps.append(f"sketchstream serve {named}")
    else:
        steps.insert(0, f"sketchstream topics create {named}")
        wait = "a quarter of an hour" if draft.wait_s is None else f"{2 * draft.wait_s} seconds"
        click.echo(
            f"\nA window ({window}) is published about {wait} after its end, while events keep coming; past windows of "
            "the topic come at once. For a first look at live events choose --window 1m."
        )
    click.echo("\nNext:\n" + "\n".join(f"  {step}" for step in steps))
