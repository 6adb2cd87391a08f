"""`sketchstream estimate`: counts, sums and other answers with intervals, from what was published.

In: a published file, or a window that a configuration's worker published, of a kind of sketch that gives estimates.
Out: a table, JSON or CSV, and optionally an Arrow file and a plot. Touches: published files, the sealed topic or
directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sketchstream.cli import options, show
from sketchstream.cli.row_questions import RowQuestions, row_questions

if TYPE_CHECKING:
    from sketchstream.published import Published


@dataclass(frozen=True)
class Selection:
    """What is asked of an estimate, as the options say it."""

    items: tuple[str, ...]
    top: int | None
    sums: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.items or self.top or self.sums)

    def rows(self, answers: Any, name: str) -> list[dict[str, Any]]:
        """The selected answers as rows.

        Args:
            answers: of any kind of sketch.
            name: of the kind, for errors.
        """
        return [*self._of_items(answers, name), *self._largest(answers, name), *self._added(answers, name)]

    def _of_items(self, answers: Any, name: str) -> Iterator[dict[str, Any]]:
        """A row for each item."""
        if self.items:
            count = _method(answers, "count", "--item", name)
            for item in self.items:
                yield {"what": item, **count(_item(answers, item)).to_dict()}

    def _largest(self, answers: Any, name: str) -> Iterator[dict[str, Any]]:
        """A row for each of the largest."""
        if self.top is not None:
            for one in _method(answers, "top", "--top", name)(self.top):
                shown = f"slot {one.slot}" if one.item is None else one.item
                what = shown.hex() if isinstance(shown, bytes) else str(shown)
                yield {"what": what, "rank": one.rank, "value": one.value, "low": one.low, "high": one.high}

    def _added(self, answers: Any, name: str) -> Iterator[dict[str, Any]]:
        """A row for each sum."""
        if self.sums:
            add = _method(answers, "sum", "--sum", name)
            for text in self.sums:
                low, high = _range(text)
                yield {"what": f"sum {text}", **add(low, high).to_dict()}


@click.command(short_help="Print counts, sums and other answers with intervals.")
@click.argument("file", type=options.FILE, required=False)
@options.config(required=False)
@click.option("--sketch", help="With -c: name of the sketch.  [default: the only one]")
@click.option("--from", "from_", metavar="TIME", help="With -c: windows that start at or after this time (RFC 3339).")
@click.option("--to", metavar="TIME", help="With -c: windows that end at or before this time (RFC 3339).")
@click.option("--method", default="auto", show_default=True, help="Estimator, of those that the kind of sketch has.")
@click.option("--item", "items", multiple=True, help="An item's published count; may be given several times.")
@click.option("--top", type=click.IntRange(min=1), help="The largest counts, with intervals that hold for all of them.")
@click.option("--sum", "sums", metavar="LOW:HIGH", multiple=True,
              help="Sum over the items from LOW up to HIGH, by their places in the domain; : is all.")  # fmt: skip
@row_questions
@click.option("--items-file", type=options.FILE, help="The items of a listed domain, text, one a line: their names.")
@click.option(
    "--item-type",
    type=click.Choice(["text", "int", "bytes"]),
    default="text",
    show_default=True,
    help="With --items-file: what its lines are.",
)
@click.option("--arrow", type=options.FILE, help="Also write all rows to an Arrow file.")
@click.option("--plot", type=options.FILE, help="Also draw the answers: a .png, .svg or .pdf file.")
@options.result_format()
def command(
    file: Path | None,
    config_file: Path | None,
    sketch: str | None,
    from_: str | None,
    to: str | None,
    method: str,
    items: tuple[str, ...],
    top: int | None,
    sums: tuple[str, ...],
    questions: RowQuestions,
    items_file: Path | None,
    item_type: str,
    arrow: Path | None,
    plot: Path | None,
    form: show.Format,
) -> None:
    r"""Answer from a sketch whose kind gives estimates, such as `gaussian`: every number with its interval.

    Only what was published is read, so no key is needed and no privacy is lost, however often it is asked.

    \b
    Examples:
      sketchstream estimate s.sealed --top 10
      sketchstream estimate s.sealed --items-file planes.txt --item N14228 --sum 0:100 --format json
      sketchstream estimate -c sketchstream.toml --sketch flights --from 2013-01-01T00:00Z --to 2013-01-02T00:00Z
      sketchstream estimate rows.sealed --rows-file airports.txt --nearest BOS -k 3 --plot distances.png
    """
    from sketchstream.cli import sketches
    from sketchstream.errors import ConfigError

    if (file is None) == (config_file is None):
        msg = "give either a published file, or -c and --sketch"
        raise ConfigError(msg)
    if plot is not None and plot.suffix.lower() not in (".png", ".svg", ".pdf"):
        msg = f"--plot must end in .png, .svg or .pdf, found {plot.name!r:.60}"
        raise ConfigError(msg)
    chosen = Selection(items, top, sums)
    questions.require_plausible(bool(chosen), config_file is not None)
    names: dict[str, Any] = {} if items_file is None else {"items": sketches.read_items(items_file, item_type)}
    facts: Mapping[str, Any] = {}
    if file is not None:
        if sketch or from_ or to:
            msg = "--sketch, --from and --to belong to -c"
            raise ConfigError(msg)
        published = [sketches.read_published(file, "estimate")]
        guarantee = published[0].guarantee().to_dict()
    else:
        from sketchstream.cli import clusters
        from sketchstream.query.windows import to_ms
        from sketchstream_connectors.published import open_published

        assert config_file is not None
        with open_published(clusters.load(config_file)) as windows:
            plan = windows.plan(sketch)
            since, until = to_ms(from_, "--from"), to_ms(to, "--to")
            found = list(windows.every(plan.name, since, until)) if questions.drift else []
            found = found or [windows.one(plan.name, since, until)]
            published = [windows.result(window) for window in found]
            show.remarks(windows, plan.name, still_open=not (from_ or to))
            facts, guarantee = found[0].fields(), windows.guarantee(found[0])
            if plan.spec.domain.to_dict() == published[0].spec.domain.to_dict():
                names = published[0].kind.names(plan.spec) | names
    names |= questions.names(published[0])
    answers = questions.answer(published, method, names) if questions else _estimate(published[0], method, names)
    rows = chosen.rows(answers, published[0].kind.name) if chosen else None
    _write(answers, arrow, plot)
    questions.write(answers)
    _print(answers, rows, facts, guarantee, form)


def _estimate(published: Published, method: str, names: Mapping[str, Any]) -> Any:
    """The answers of one published object."""
    from sketchstream.query.slots import kept_by

    given = dict(names)
    if published.kind.slots_are_items:
        kept = kept_by(published, given.get("items"))
        given |= {} if kept is None else {"kept": kept}
    return published.estimate(method=method, **given)


def _print(
    answers: Any,
    rows: list[dict[str, Any]] | None,
    facts: Mapping[str, Any],
    guarantee: Mapping[str, Any],
    form: show.Format,
) -> None:
    """The answers, or those of them that were selected."""
    if form == "json":
        data = answers.to_dict() if rows is None else {"answers": rows}
        click.echo(show.as_json({**facts, **data, "guarantee": guarantee}))
    elif form == "csv":
        found = list(answers.rows()) if rows is None else rows
        columns = list(dict.fromkeys(name for row in found for name in row))
        click.echo(show.as_csv(columns, [[_cell(row.get(name)) for name in columns] for row in found]))
    else:
        if facts:
            show.pairs(show.flatten(facts))
            click.echo()
        if rows is None:
            click.echo(str(answers))
            return
        columns = list(dict.fromkeys(name for row in rows for name in row))
        show.table(columns, [[row.get(name, "") for name in columns] for row in rows])


def _write(answers: Any, arrow: Path | None, plot: Path | None) -> None:
    """The files that were asked for."""
    from sketchstream.cli import sketches
    from sketchstream.errors import EstimateError, MissingExtraError

    if arrow is not None:
        try:
            import pyarrow as pa
            from pyarrow import feather
        except ImportError:
            msg = "--arrow needs pyarrow: pip install 'sketchstream[parquet]'"
            raise MissingExtraError(msg) from None
        try:
            feather.write_feather(pa.Table.from_pylist(list(answers.rows())), str(arrow), compression="uncompressed")
        except OSError as error:
            raise sketches.unreadable(arrow, error) from None
    if plot is not None:
        draw = getattr(answers, "plot", None)
        if draw is None:
            msg = "answers of this kind of sketch have no plot: leave --plot out"
            raise EstimateError(msg)
        try:
            draw(plot)
        except OSError as error:
            raise sketches.unreadable(plot, error) from None


def _method(answers: Any, name: str, option: str, kind: str) -> Any:
    """What answers such a question."""
    from sketchstream.errors import EstimateError

    found = getattr(answers, name, None)
    if found is None:
        msg = f"kind {kind!r} does not answer {option}: leave it out, and read all its answers"
        raise EstimateError(msg)
    return found


def _item(answers: Any, text: str) -> Any:
    """An item as the domain names it: an integer where its items are integers, or ids."""
    domain = answers.spec.domain
    whole = domain.items is None or (len(domain.items) > 0 and isinstance(domain.items[0], int))
    if whole and text.lstrip("-").isdecimal():
        return int(text)
    return text.encode() if domain.items and isinstance(domain.items[0], bytes) else text


def _range(text: str) -> tuple[int | None, int | None]:
    """LOW:HIGH, either of which may be left out."""
    from sketchstream.errors import ConfigError

    low, colon, high = text.partition(":")
    if not colon or any(end and not end.isdecimal() for end in (low, high)):
        msg = f"--sum must be LOW:HIGH, such as 0:100, found {text!r:.40}"
        raise ConfigError(msg)
    return int(low) if low else None, int(high) if high else None


def _cell(value: object) -> object:
    """Bytes as hexadecimal digits."""
    return value.hex() if isinstance(value, bytes) else value
