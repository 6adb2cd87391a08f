"""Questions about rows: options of `sketchstream estimate`, such as `--distance`, `--nearest` and `--drift`.

In: values of options, published objects. Out: answers that know `rows()`, `to_dict()` and their text. Touches: files
with names of rows, and published files of later windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sketchstream.cli import options, sketches
from sketchstream.errors import ConfigError, EstimateError

if TYPE_CHECKING:
    from sketchstream.published import Published
    from sketchstream.query.estimates import RowQuestion


@dataclass(frozen=True)
class RowQuestions:
    """Questions about rows, from the options.

    Args:
        distance: pairs of rows: squared distances.
        inner: pairs of rows: inner products.
        nearest: rows whose nearest rows are wanted.
        count: number of nearest rows of each.
        sq_norm: rows: squared norms.
        with_vector: rows: inner products with a public vector.
        feature: features whose entries of the vector are not 0.
        weight: these entries, as texts of numbers; none: all are 1.
        among: number of rows, of which all pairs are wanted.
        drift: rows that are compared over windows.
        later: published files of later windows.
        rows_file: the rows of a listed domain, one a line.
        row_type: type of its lines.
        matrix: path of the file to which all distances are written.
    """

    distance: tuple[tuple[str, str], ...]
    inner: tuple[tuple[str, str], ...]
    nearest: tuple[str, ...]
    count: int | None
    sq_norm: tuple[str, ...]
    with_vector: tuple[str, ...]
    feature: tuple[str, ...]
    weight: tuple[str, ...]
    among: int | None
    drift: tuple[str, ...]
    later: tuple[Path, ...]
    rows_file: Path | None
    row_type: str
    matrix: Path | None

    def __bool__(self) -> bool:
        return bool(self.question)

    @cached_property
    def question(self) -> RowQuestion:
        """The question in the form that all answers take."""
        from sketchstream.query.estimates import RowQuestion, vector_of

        shared = {field.name: getattr(self, field.name) for field in fields(RowQuestion) if hasattr(self, field.name)}
        return RowQuestion(vector=vector_of(self.feature, self.weight, "--"), **shared)

    def require_plausible(self, selected: bool, windows: bool) -> None:
        """Refuse options that do not belong together.

        Args:
            selected: whether items, sums or the largest are selected too.
            windows: whether a configuration names the windows.

        Raises:
            ConfigError: the options contradict each other or the kind.
        """
        if len(self.question.asked) + selected > 1:
            msg = (
                "ask one question at a time: --distance, --inner, --nearest, --sq-norm, --with-vector, --among, "
                "--drift, or --item, --top and --sum"
            )
        elif self.count is not None and not self.nearest:
            msg = "--count belongs to --nearest"
        elif self.later and not self.drift:
            msg = "--later belongs to --drift"
        elif bool(self.with_vector) != bool(self.feature):
            msg = "--with-vector and --feature go together: they name the entries of a public vector"
        elif self.drift and windows == bool(self.later):
            msg = "--drift needs later windows: --later FILE, or -c with a range of windows"
        else:
            return
        raise ConfigError(msg)

    def names(self, published: Published, names: Mapping[str, Any]) -> dict[str, Any]:
        """Lists of names as `estimate` takes them: the items of a kind with rows are its features.

        Args:
            published: what is asked.
            names: what is known without `--rows-file`.
        """
        lists = dict(names)
        if "row" in published.kind.intake.carries and "items" in lists:
            lists["features"] = lists.pop("items")
        if self.rows_file is not None:
            self._require_rows(published)
            lists["users"] = sketches.read_items(self.rows_file, self.row_type)
        return lists

    def answer(self, windows: Sequence[Published], method: str, names: dict[str, Any]) -> Any:
        """The answer to the one question.

        Args:
            windows: published objects: one, or those of several windows for drift.
            method: method of `estimate`.
            names: what `names` gave, or the like.
        """
        first = windows[0]
        self._require_rows(first)
        options: dict[str, Any] = dict(names)
        later = [*windows[1:], *(sketches.read_published(path, "estimate") for path in self.later)]
        return first.estimate(method=method, **options, **self.question.options(options, later))

    def write(self, answers: Any) -> None:
        """Write the file of all distances, if requested."""
        if self.matrix is None:
            return
        write = getattr(answers, "write_distances", None)
        if write is None:
            raise EstimateError(
                "--matrix writes all distances of kind 'projection': leave it out, or leave the question out"
            )
        with sketches.accessing(self.matrix):
            write(self.matrix)

    def _require_rows(self, published: Published) -> None:
        """Refuse a kind without rows."""
        from sketchstream.query.estimates import require_rows

        require_rows(published, "questions about rows, such as --distance, and --rows-file")


_OPTIONS = (
    click.option("--distance", nargs=2, multiple=True, metavar="ROW ROW",
                 help="Kind projection: squared distance of two rows; may be given several times."),
    click.option("--inner", nargs=2, multiple=True, metavar="ROW ROW",
                 help="Kind projection: inner product of two rows; may be given several times."),
    click.option("--nearest", multiple=True, metavar="ROW",
                 help="Kind projection: the rows that look nearest, with intervals that hold for all of them."),
    click.option("-k", "--count", type=click.IntRange(min=1), help="With --nearest: so many rows.  [default: 10]"),
    click.option("--sq-norm", multiple=True, metavar="ROW",
                 help="Kind projection: squared norm of a row; may be given several times."),
    click.option("--with-vector", multiple=True, metavar="ROW",
                 help="Kind projection: inner product of a row with a public vector, given by --feature, --weight."),
    click.option("--feature", multiple=True,
                 help="With --with-vector: a feature whose entry is not 0; one alone asks for its total in the row."),
    click.option("--weight", multiple=True, metavar="NUMBER",
                 help="With --feature: the entry for each of them, in order.  [default: 1 for all]"),
    click.option("--among", type=click.IntRange(2, 100), metavar="NUMBER",
                 help="Kind projection: squared distances of all pairs of the first so many rows."),
    click.option("--drift", multiple=True, metavar="ROW",
                 help="Kind projection: squared distance of a row from itself in the next window."),
    click.option("--later", type=options.FILE, multiple=True,
                 help="With --drift: the published file of a later window; several, in order."),
    click.option("--rows-file", type=options.FILE, help="The rows of a listed domain, text, one a line: their names."),
    options.line_type("--row-type", "--rows-file"),
    click.option("--matrix", type=options.FILE, help="Kind projection: also write all distances to an Arrow file."),
)  # fmt: skip
row_questions = options.gather("questions", RowQuestions, _OPTIONS)
"""The options, gathered into one argument `questions`."""
