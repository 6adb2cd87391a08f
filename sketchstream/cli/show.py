"""Results as a table, as JSON or as CSV, on standard output.

In: rows or plain data. Out: text. Touches: standard output.
"""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from sketchstream.texts.csv_cells import safe_cell

if TYPE_CHECKING:
    from sketchstream.kinds.estimates import Estimate
    from sketchstream.query.answers import ProfileAnswer
    from sketchstream.query.estimates import EstimateAnswer
    from sketchstream.query.windows import PublishedWindows

Format = Literal["table", "json", "csv"]
Row = Sequence[object] | Mapping[str, object]
"""A line of a table: its cells in order, or by the names of their columns."""
FORMATS: Final = ("table", "json", "csv")
SENTENCE: Final = 40
"""Letters of a cell above which it stands below its table, on a line of its own."""
PIPE_WIDTH: Final = 160
"""Width, in letters, of a table that is not printed on a terminal."""


def note(text: str) -> None:
    """Print a remark on standard error, one line."""
    click.echo(f"sketchstream: {text}", err=True)


def warn(text: str) -> None:
    """Print a warning on standard error, one line."""
    note(f"warning: {text}")


def cell(name: str, estimate: Estimate | None, *, intervals: bool) -> str:
    """A number in a table of many windows, with its 95% interval if that is valid; a dash if there is none."""
    if estimate is None:
        return "-"
    from sketchstream.kinds.estimates import bound_text
    from sketchstream.pictures import numbers
    from sketchstream.texts.number_texts import speller

    spell = speller(estimate.low, estimate.high, numbers.spelling(name))
    return spell(estimate.value) + (f" {estimate.between(spell)}" if intervals else bound_text(estimate.bound, " "))


def number(value: float | None) -> str:
    """Format a number: thousands separated, meaningful digits only; a dash if unknown."""
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> None:
    """Print a table: the first column is left-aligned, the others right-aligned, without trailing blanks."""
    import rich.box
    import rich.console
    import rich.table

    grid = rich.table.Table(
        title=title, title_justify="left", title_style="bold", box=rich.box.SIMPLE_HEAD, show_edge=False, pad_edge=False
    )
    for position, column in enumerate(columns):
        grid.add_column(column, justify="left" if position == 0 else "right", overflow="fold")
    for row in rows:
        grid.add_row(*(_cell(cell) for cell in row))
    terminal = sys.stdout.isatty()
    console = rich.console.Console(file=sys.stdout, width=None if terminal else PIPE_WIDTH, highlight=False)
    with console.capture() as text:
        console.print(grid)
    click.echo("\n".join(line.rstrip() for line in text.get().splitlines()))


def _cell(value: object) -> str:
    """Text of a cell, with rich's own markup switched off."""
    import rich.markup

    text = number(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
    return rich.markup.escape(text)


def print_json(data: object) -> None:
    """Print data as one line of JSON."""
    from sketchstream.kinds.exports import as_json

    click.echo(as_json(data))


def as_csv(columns: Sequence[str], rows: Iterable[Row]) -> str:
    """RFC 4180 text with a header line, without a line end at the end."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    cells = ([row[name] for name in columns] if isinstance(row, Mapping) else row for row in rows)
    writer.writerows([["" if cell is None else safe_cell(cell) for cell in row] for row in cells])
    return text.getvalue().rstrip("\n")


def print_data(
    form: str, data: Callable[[], object], columns: Sequence[str], rows: Callable[[], Iterable[Row]]
) -> bool:
    """Print data as JSON, or rows as CSV, if that is asked for; return whether a table is still to be printed.

    Data and rows are made only where they are printed: to sum up a deployment, or to compare plans, takes time.
    """
    if form == "json":
        print_json(data())
    elif form == "csv":
        click.echo(as_csv(columns, rows()))
    return form == "table"


def facts(data: Mapping[str, Any], form: str) -> None:
    """Print facts: two columns, or one JSON object, or CSV with one line a fact. Lists of facts are tables below."""
    if not print_data(form, lambda: data, ("field", "value"), lambda: flatten(data)):
        return
    tables = {name: value for name, value in data.items() if _is_table(value)}
    print_pairs(flatten({name: value for name, value in data.items() if name not in tables}))
    for name, parts in tables.items():
        columns = list(dict.fromkeys(column for part in parts for column in part))
        sentences = [
            column for column in columns if any(len(_plain_text(part.get(column))) > SENTENCE for part in parts)
        ]
        columns = [column for column in columns if column not in sentences]
        click.echo(f"\n{name}")
        print_table(columns, [[_plain_text(part.get(column)) for column in columns] for part in parts])
        for part in parts:
            for key in filter(part.get, sentences):
                click.echo(f"\n{part.get('name', name)}, {key.replace('_', ' ')}: {_plain_text(part[key])}")


def heading(answer: ProfileAnswer | EstimateAnswer, form: str) -> bool:
    """Print an answer as JSON or CSV, or the facts above its table; return whether the table is still to be printed."""
    if form == "json":
        click.echo(answer.to_json())
    elif form == "csv":
        click.echo(answer.to_csv().rstrip("\n"))
    elif answer.facts:
        print_pairs(facts_of_window(answer.facts))
        click.echo()
    return form == "table"


def facts_of_window(facts: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Facts of a window for a table, whose words hold the names of items and events already."""
    return flatten({name: fact for name, fact in facts.items() if name != "names"})


def print_pairs(named: Iterable[tuple[str, str]]) -> None:
    """Print names and values, one pair a line."""
    listed = list(named)
    width = max((len(name) for name, _ in listed), default=0)
    for name, value in listed:
        click.echo(f"{name:<{width}}  {value}")


def _is_table(value: object) -> bool:
    """Whether a value is a list of flat facts."""
    return (
        isinstance(value, (list, tuple))
        and len(value) > 0
        and all(isinstance(part, Mapping) for part in value)
        and not any(isinstance(cell, (Mapping, list, tuple)) for part in value for cell in part.values())
    )


def flatten(data: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    """Nested facts under dotted names; lists of plain values on one line."""
    for name, value in data.items():
        label = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from flatten(value, f"{label}.")
        elif isinstance(value, (list, tuple)) and any(isinstance(part, Mapping) for part in value):
            for position, part in enumerate(value):
                yield from flatten(part if isinstance(part, Mapping) else {"": part}, f"{label}.{position}.")
        elif isinstance(value, (list, tuple)):
            yield label, ", ".join(_plain_text(part) for part in value)
        else:
            yield label, _plain_text(value)


def _plain_text(value: object) -> str:
    """A plain value as text."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value.hex() if isinstance(value, bytes) else str(value)


def remarks(published: PublishedWindows, name: str, *, still_open: bool = True) -> None:
    """Print remarks on standard error: windows that are not published yet, and records that came too late.

    Args:
        published: published objects.
        name: name of the sketch.
        still_open: whether windows that are open are of interest.
    """
    still = published.open(name) if still_open else None
    late = published.late(name)
    if still is not None:
        note(f"sketch {name}: {still}")
    if late is not None and late.shown:
        note(f"sketch {name}: {late.describe()}")
