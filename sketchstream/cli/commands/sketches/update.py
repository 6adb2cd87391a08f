"""`sketchstream update`: add the events of files, or of standard input, to an open sketch.

In: an open sketch and files of events. Out: the sketch's file, replaced in one step. Touches: both.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from sketchstream.cli import options, progress, show, sketches
from sketchstream.errors import ConfigError
from sketchstream.files import replace_secret

if TYPE_CHECKING:
    from sketchstream.items.columns import ItemType
    from sketchstream.sketch import Sketch
    from sketchstream.stream.interfaces import Chunk
    from sketchstream_connectors.files.layout import FileFormat, Layout

STDIN: Final = Path("-")


@click.command()
@click.argument("sketch", type=options.FILE)
@click.argument("sources", type=options.FILE, nargs=-1, required=True)
@options.choice("--format", ("lines", "jsonl", "csv", "parquet", "avro", "msgpack"),
                "Format of the events.  [default: by the file's ending; .gz and .zst are decompressed]",
                name="layout")  # fmt: skip
@click.option("--item", metavar="FIELD", help="Field (jsonl, avro, parquet: dotted) or column (csv) of the item.")
@click.option("--weight", metavar="FIELD", help="Field or column of the weight.  [default: every event is 1]")
@click.option(
    "--field",
    "fields",
    metavar="ROLE=FIELD",
    multiple=True,
    help="Field or column of what else the kind of sketch needs of an event, such as row=user; once for each role.",
)
@options.choice("--item-type", options.ITEM_TYPES, "What items are.  [default: as the sketch's domain says, else text]")
@options.choice("--diagnostics", ("off", "exact"),
                "Print on standard error how many events were left out, by reason; exact numbers, which nothing "
                "protects.", "off")  # fmt: skip
@options.key_file()
def command(
    sketch: Path,
    sources: tuple[Path, ...],
    layout: FileFormat | None,
    item: str | None,
    weight: str | None,
    fields: tuple[str, ...],
    item_type: ItemType | None,
    diagnostics: str,
    key_file: Path | None,
) -> None:
    r"""Add events to an open sketch, from files or, as -, from standard input.

    An event that cannot be used (no item, wrong type, a weight beyond the sketch's, an item outside its domain) is left
    out by itself; its neighbours count. How many were left out is not protected, so only --diagnostics exact says it:
    try that with data that may be seen, before the real ones. If a file cannot be read to its end, or if none of its
    first records (at least 100) has the item or the weight that the options name, nothing of any file is added.

    \b
    Examples:
      sketchstream update s.sketch events.jsonl --format jsonl --item user_id --key-file key
      cut -f2 access.log | sketchstream update s.sketch - --format lines --key-file key
    """
    with sketches.lock(sketch) as predecessor:
        opened = sketches.open_sketch(sketch, key_file)
        kind = item_type or _item_type(opened)
        roles = _roles(opened, fields)
        read = [(path, _layout(path, layout, item, kind, weight, opened, roles)) for path in sources]
        left_out = LeftOut()
        for path, how in read:
            _add(opened, path, how, roles, left_out if diagnostics == "exact" else None)
        replace_secret(sketch, opened.to_bytes(), predecessor)
    if diagnostics == "exact":
        click.echo(left_out.line(), err=True)
    elif sys.stderr.isatty():
        click.echo("added; how many events could not be used is not said (--diagnostics exact)", err=True)


@dataclass
class LeftOut:
    """Exact numbers of events that were not counted, by reason."""

    unreadable: int = 0
    without_item: int = 0
    heavy: int = 0
    outside: int = 0

    def line(self) -> str:
        """One line for the operator."""
        return (
            f"{self.unreadable} events could not be read, {self.without_item} have no item, {self.heavy} have a weight "
            f"above max_weight, {self.outside} have an item outside the domain (exact numbers, which nothing protects)"
        )


def _add(sketch: Sketch, source: Path, layout: Layout, roles: Mapping[str, str], left_out: LeftOut | None) -> None:
    """Add one file's events; skipped ones are counted if requested.

    Raises:
        ConfigError: none of many records has the fields of the options; nothing is added.
    """
    from sketchstream.stream.input.sampling import MIN_RECORDS, Sample, Wanted
    from sketchstream_connectors.files import source as files

    path = None if source == STDIN else source
    limit = sketch.kind.intake.most_weight(sketch.spec)
    fields = Wanted(
        item=layout.item,
        weight=layout.weight,
        item_type=layout.item_type,
        max_weight=limit,
        timed=False,
        called=lambda role: f"--{role.replace('_', '-')}",
        columns=tuple((field, f"--field {role}=...") for role, field in roles.items()),
        decimals=layout.decimals,
    )
    sample = Sample(fields)

    def inspect(chunk: Chunk) -> None:
        if left_out is not None:
            left_out.without_item += int(chunk.events.null.sum())
        if sample.records < MIN_RECORDS:
            files.add_to_sample(layout, chunk, sample)
            if sample.records >= MIN_RECORDS:
                sample.require()

    name = "standard input" if path is None else path.name
    with progress.ProgressBar(f"reading {name}") as bar:
        for batch, unreadable in files.batches(path, layout, skip_invalid=True, inspect=inspect):
            columns = {role: batch.columns[field] for role, field in roles.items()}
            records = replace(batch, columns=columns, window=sketch.origin.window)
            events = sketch.kind.intake.events(sketch.spec, records)
            items, weights = events.items, events.weights
            if events.good is not None:
                items = items.take(events.good)
                weights = None if weights is None else weights[events.good]
            sketch.update(items, weights, invalid="noop")
            bar.advance(len(records.items) + unreadable)
            if left_out is not None:
                left_out.unreadable += unreadable
                left_out.outside += sketch.outside(items)
                if records.weight_column is not None:
                    left_out.heavy += len(records.items) - len(items)
                elif records.weights is not None and limit is not None:
                    left_out.heavy += int(((records.weights > limit) | (records.weights < -limit)).sum())
    if sample.records < MIN_RECORDS:
        for text in sample.require():
            show.warn(f"{name}: {text}")


def _roles(sketch: Sketch, options: tuple[str, ...]) -> dict[str, str]:
    """Role -> field, as the options say it.

    Raises:
        ConfigError: a role is unknown to the sketch, given twice, or missing.
    """
    needed = sketch.kind.intake.roles(sketch.spec)
    roles = {role: field for role, _, field in (option.partition("=") for option in options)}
    if set(roles) != set(needed) or len(options) != len(needed) or not all(roles.values()):
        expected = " ".join(f"--field {role}=FIELD" for role in needed) or "no --field"
        raise ConfigError(f"a sketch of kind {sketch.kind.name!r} needs {expected}, found {len(options)} of them")
    return roles


def _layout(
    source: Path,
    named: FileFormat | None,
    item: str | None,
    item_type: ItemType,
    weight: str | None,
    sketch: Sketch,
    roles: Mapping[str, str],
) -> Layout:
    """The layout of a file: from the options, its format by default from its ending."""
    from sketchstream.config.checks import file_format
    from sketchstream_connectors.files.layout import Layout

    record_format = file_format(named, str(source))
    if record_format is None:
        what = "standard input" if source == STDIN else str(source)
        raise ConfigError(
            f"the format of {what} is not known: give --format lines, jsonl, csv, parquet, avro or msgpack"
        )
    columns = tuple(sorted(set(roles.values())))
    decimals = weight is not None and sketch.kind.intake.decimal_weights(sketch.spec)
    return Layout(record_format, item, item_type, weight, None, columns, decimals)  # type: ignore[arg-type]


def _item_type(sketch: Sketch) -> ItemType:
    """Type of the items of a closed domain; text in open ones."""
    from sketchstream.spec import ClosedDomain

    domain = sketch.spec.domain
    if not isinstance(domain, ClosedDomain):
        return "text"
    if domain.items is None:
        return "int"
    first = domain.items[0]
    return "text" if isinstance(first, str) else "int" if isinstance(first, int) else "bytes"
