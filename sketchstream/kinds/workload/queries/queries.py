"""A workload: the linear queries of a histogram, as a union of products over its columns.

In: a text such as "ranges:64" or "marginals:8:1,2", columns with sizes, a matrix or a file. Out: `Workload`: size,
matrix, action on histograms and on covariances, named tables. Touches: the file of a matrix, when one is named.
Source: McKenna, Miklau, Hay & Machanavajjhala 2018 (unions of products as a form of workloads).

The cells of the histogram are the cells of a table with one axis for each column, the last one running fastest. A
product has one factor for each column; its queries are all combinations of the factors' queries.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.errors import SpecError
from sketchstream.kinds.workload.queries.factors import MAX_CELLS, MAX_ENTRIES, Factor, matrix_factor
from sketchstream.kinds.workload.queries.runs import Runs, require_few

Product = tuple[Factor, ...]

RUNS: Final = ("query", "low", "high", "coefficient")
"""Arrays of a file of runs, besides the number of cells; the last may be missing."""


@dataclass(frozen=True, eq=False)
class Workload:
    """Linear queries over the cells of a table with named columns.

    Args:
        columns: name and number of cells of each column.
        products: products of the union, with one factor for each column.

    Raises:
        SpecError: no query, factors that do not fit the columns, or too many cells.

    Examples:
        >>> workload = Workload.named("prefix:512")
        >>> workload.size, workload.count
        (512, 512)
        >>> marginals({"carrier": 16, "origin": 3}, orders=(1, 2)).count
        67
    """

    columns: tuple[tuple[str, int], ...]
    products: tuple[Product, ...]

    def __post_init__(self) -> None:
        if not self.columns or not self.products:
            raise SpecError("a workload needs at least one column and one query")
        if len({name for name, _ in self.columns}) != len(self.columns):
            raise SpecError("the columns of a workload must have different names")
        for product in self.products:
            if tuple(factor.size for factor in product) != self.shape:
                raise SpecError("every product of a workload needs one factor for each column, of the column's size")
        if self.size > MAX_CELLS:
            raise SpecError(f"a workload may have 2^24 cells, found {self.size}")

    @classmethod
    def named(cls, text: object) -> Workload:
        """The workload that a text describes.

        Args:
            text: "identity:N", "prefix:N", "ranges:N", "windows:N:width", "trailing:N:width",
                "marginals:BITS:1,2,3" (tables over 1, 2 and 3 columns of two cells), products of the first five with
                " x " between them, or the path of a matrix (.npy, .npz as scipy writes it), or of runs (.npz with the
                arguments of `of_runs`, as `numpy.savez` writes it).

        Raises:
            SpecError: the text is not one of these.
        """
        if not isinstance(text, str):
            raise SpecError(f"a workload's text must be a string such as 'prefix:512', found {type(text).__name__}")
        if text.endswith((".npy", ".npz")):
            return cls.of_matrix(_read_matrix(Path(text)))
        if text.startswith("marginals:"):
            return _bit_marginals(text)
        factors = [_parse_factor(part) for part in text.split(" x ")]
        names = [f"column{i}" for i in range(len(factors))] if len(factors) > 1 else ["cell"]
        return product_workload(dict(zip(names, factors, strict=True)))

    @classmethod
    def of_matrix(cls, matrix: object) -> Workload:
        """The rows of a matrix as queries; its columns are the cells.

        Args:
            matrix: (d, N) finite numbers, dense or scipy sparse.

        Raises:
            SpecError: see `matrix_factor`.
        """
        return product_workload({"cell": matrix_factor(matrix)})

    @classmethod
    def of_runs(cls, size: int, query: object, low: object, high: object, coefficient: object = 1) -> Workload:
        """Queries that are sums of intervals of cells, held as such however many queries and cells there are.

        Args:
            size: cells, N.
            query: (n,) number of the query to which each interval belongs, from 0.
            low: (n,) first cell of each interval.
            high: (n,) one past the last cell of each.
            coefficient: (n,) whole number by which each is multiplied; or one number for all.

        Raises:
            SpecError: see `Runs.of`.

        Examples:
            >>> Workload.of_runs(100_000, query=[0, 0, 1], low=[5, 70, 0], high=[20, 71, 90_000]).count
            2
        """
        return cls.of_matrix(Runs.of(size, query, low, high, coefficient))

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of cells of each column."""
        return tuple(size for _, size in self.columns)

    @property
    def size(self) -> int:
        """Number of cells of the table, N."""
        return math.prod(self.shape)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Number of queries of each product."""
        return tuple(math.prod(factor.rows for factor in product) for product in self.products)

    @property
    def count(self) -> int:
        """Number of queries, d."""
        return sum(self.counts)

    @cached_property
    def integer(self) -> bool:
        """Whether all coefficients are whole numbers."""
        return all(factor.integer for product in self.products for factor in product)

    @cached_property
    def nonnegative(self) -> bool:
        """Whether no coefficient is negative."""
        factors = [factor for product in self.products for factor in product]
        coefficients = [factor.matrix if factor.listed is None else factor.listed.values for factor in factors]
        return all(values is None or float(values.min()) >= 0 for values in coefficients)

    @property
    def writable(self) -> bool:
        """Whether the matrix is small enough to be written out."""
        return self.count * self.size <= MAX_ENTRIES

    @property
    def flat(self) -> bool:
        """Whether the queries are one product over one column."""
        return len(self.shape) == len(self.products) == 1

    @property
    def runs(self) -> Runs:
        """The queries as runs of cells, if they are `flat`.

        Raises:
            SpecError: several columns or products, a matrix of fractions, or too many queries.
        """
        if not self.flat:
            raise SpecError("only queries over one column, in one product, have counters of blocks or of queries")
        return self.products[0][0].runs

    def norms(self, power: int = 2) -> Floats:
        """(d,) sum of an even power of each query's coefficients."""
        require_few(self.count, 0)
        return np.concatenate(
            [_kron([factor.runs.energies(1, power)[None] for factor in product])[0] for product in self.products]
        )

    def dense(self) -> Floats:
        """(d, N) the matrix.

        Raises:
            SpecError: it has more than 2^28 entries.
        """
        if not self.writable:
            raise SpecError(f"a workload of {self.count} x {self.size} is too large to write out; at most 2^28 entries")
        return np.concatenate([_kron([factor.dense() for factor in product]) for product in self.products])

    def some_rows(self, chosen: Ints) -> Floats:
        """(n, N) these rows of the matrix, in this order."""
        out = np.empty((len(chosen), self.size))
        offset = 0
        for product, count in zip(self.products, self.counts, strict=True):
            here = np.flatnonzero((chosen >= offset) & (chosen < offset + count))
            places = np.unravel_index(chosen[here] - offset, tuple(factor.rows for factor in product))
            rows: Any = np.ones((len(here), 1))
            for factor, place in zip(product, places, strict=True):
                rows = rows[:, :, None] * factor.some_rows(place)[:, None, :]
                rows = rows.reshape(len(here), rows.shape[1] * rows.shape[2])
            out[here] = rows
            offset += count
        return out

    def gram(self) -> Floats:
        """(N, N) transpose of the matrix times the matrix."""
        out = np.zeros((self.size, self.size))
        for product in self.products:
            out += _kron([factor.gram() for factor in product])
        return out

    def gram_times(self, table: Floats) -> Floats:
        """(N,) the product of `gram` and a table, without writing either matrix out."""
        if self.flat:
            return self.runs.back(self.runs.apply(table))
        out, shaped = np.zeros(self.shape), np.asarray(table, np.float64).reshape(self.shape)
        for product in self.products:
            part = shaped.sum(axis=tuple(np.flatnonzero([factor.name == "total" for factor in product])), keepdims=True)
            for axis, factor in enumerate(product):
                if factor.name not in ("total", "identity"):
                    part = np.moveaxis(np.tensordot(factor.gram(), part, (1, axis)), 0, axis)
            out += part
        return out.reshape(-1)

    def apply(self, histogram: Floats) -> Floats:
        """(d,) answers of the queries to a histogram."""
        column = np.asarray(histogram)[:, None]
        return np.concatenate([self._applied(product, column)[:, 0] for product in self.products])

    def _applied(self, product: Product, histograms: Floats) -> Floats:
        """(rows, n) answers of one product to each of (N, n) histograms: first along axes that it shortens."""
        table = np.asarray(histograms, np.float64).reshape(*self.shape, -1)
        for axis in sorted(range(len(product)), key=lambda axis: product[axis].rows - product[axis].size):
            table = product[axis].apply(table, axis)
        return np.ascontiguousarray(table).reshape(-1, histograms.shape[1])

    def power_sums(self, histograms: Floats, power: int) -> Floats:
        """(d,) sum of the powers of each answer over several histograms, some of them at a time.

        Args:
            histograms: (N, n) float64, such as a decoder: power 2 gives variances for noise of variance 1.
            power: an even number.
        """
        parts = []
        for product, rows in zip(self.products, self.counts, strict=True):
            if len(product) == 1 and product[0].matrix is None:
                parts.append(product[0].power_sums(histograms, power))
                continue
            out, step = np.zeros(rows), max(1, (1 << 23) // max(rows, self.size))
            for start in range(0, histograms.shape[1], step):
                squares = np.square(self._applied(product, histograms[:, start : start + step]))
                out += np.sum(squares ** (power // 2), axis=1)
            parts.append(out)
        return np.concatenate(parts)

    def variances(self, covariance: Floats) -> Floats:
        """(d,) variances of the answers, without the matrix."""
        return np.concatenate([self._product_variances(product, covariance) for product in self.products])

    def _product_variances(self, product: Product, covariance: Floats) -> Floats:
        """(rows,) variances of one product's answers: column by column, those that shrink the array most first."""
        rest = list(range(len(product)))
        table = covariance.reshape(*self.shape, *self.shape)
        done: list[int] = []
        for column in sorted(rest, key=lambda column: product[column].rows / product[column].size):
            place = rest.index(column)
            front = np.moveaxis(table, (place, place + len(rest)), (0, 1))
            table = np.moveaxis(product[column].quadratic(front), 0, -1)
            rest.remove(column)
            done.append(column)
        out = np.transpose(table, np.argsort(done))
        return np.ascontiguousarray(out).reshape(-1)

    def product_rows(self, factor_rows: Sequence[Ints]) -> Ints:
        """Rows of a workload of one product that combine the given rows of each of its factors."""
        sizes = tuple(factor.rows for factor in self.products[0])
        grid = np.meshgrid(*factor_rows, indexing="ij")
        return np.ravel_multi_index(tuple(rows.reshape(-1) for rows in grid), sizes).astype(np.int64)

    @property
    def axes(self) -> tuple[str, ...]:
        """Columns that are axes of some table, in the order of the tables."""
        return tuple(dict.fromkeys(self.columns[i][0] for product in self.products for i, _ in _axes(product)))

    def tables(self, cells: Sequence[tuple[str, ...]] | None = None) -> list[ProductTable]:
        """The tables in which answers come back, one for each product, in the order of the answers.

        Args:
            cells: names of the cells of each column; None: their numbers.
        """
        words = cells or [tuple(str(i) for i in range(size)) for size in self.shape]
        out = []
        offset = 0
        for product, count in zip(self.products, self.counts, strict=True):
            axes = tuple(
                Axis(self.columns[i][0], factor.name, tuple(factor.labels(tuple(words[i]))))
                for i, factor in _axes(product)
            )
            name = " x ".join(axis.column for axis in axes) or "total"
            out.append(ProductTable(name, axes, offset, count))
            offset += count
        return out

    def to_dict(self) -> dict[str, Any]:
        """Plain data, matrices included."""
        return {
            "columns": [[name, size] for name, size in self.columns],
            "products": [[factor.to_dict() for factor in product] for product in self.products],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Workload:
        """The workload that `to_dict` described.

        Raises:
            SpecError: the data are not a workload.
        """
        try:
            products = tuple(tuple(Factor.from_dict(factor) for factor in product) for product in data["products"])
            columns = tuple((str(name), int(size)) for name, size in data["columns"])
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, SpecError):
                raise
            raise SpecError("expected the plain data of a workload: columns and products") from None
        return cls(columns, products)

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that are equal exactly for equal workloads."""
        digest = hashlib.sha256(repr(self.columns).encode())
        for product in self.products:
            digest.update(b"product")
            for factor in product:
                digest.update(factor.digest)
        return digest.digest()


@dataclass(frozen=True)
class Axis:
    """One axis of a table of answers.

    Args:
        queries: name of the factor: "identity", "prefix", ...
        labels: label of each entry.
    """

    column: str
    queries: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class ProductTable:
    """The answers of one product, as a table.

    Args:
        name: names of its columns, with " x " between them; "total" if there are none.
        axes: one for each column that is not summed out.
    """

    name: str
    axes: tuple[Axis, ...]
    offset: int
    count: int

    @property
    def part(self) -> slice:
        """Places of its answers among those of all tables."""
        return slice(self.offset, self.offset + self.count)

    @property
    def shape(self) -> tuple[int, ...]:
        """Entries along each axis."""
        return tuple(len(axis.labels) for axis in self.axes)


def _axes(product: Product) -> list[tuple[int, Factor]]:
    """Places and factors of the columns that are axes of a product's table: all but totals."""
    return [(place, factor) for place, factor in enumerate(product) if factor.name != "total"]


def marginals(columns: Mapping[str, int], orders: Iterable[int]) -> Workload:
    """All tables over these numbers of columns.

    Args:
        columns: name and number of cells of each column.
        orders: numbers of columns of the tables: (1, 2) for all one- and two-way tables; 0 is the total.

    Raises:
        SpecError: an order beyond the number of columns, or none.
    """
    names = tuple(columns.items())
    sizes = sorted(set(orders))
    if not sizes or sizes[0] < 0 or sizes[-1] > len(names):
        raise SpecError(f"orders of marginals must be whole numbers from 0 to {len(names)}, found {sizes}")
    return Workload(
        names,
        tuple(
            tuple(Factor("identity" if place in axes else "total", size) for place, (_, size) in enumerate(names))
            for order in sizes
            for axes in itertools.combinations(range(len(names)), order)
        ),
    )


def union(*workloads: Workload) -> Workload:
    """The queries of several workloads over the same columns, in order."""
    if not workloads or any(workload.columns != workloads[0].columns for workload in workloads):
        raise SpecError("workloads are joined over the same columns")
    return Workload(
        workloads[0].columns, tuple(itertools.chain.from_iterable(workload.products for workload in workloads))
    )


def read_queries(texts: Sequence[str], columns: Mapping[str, int], ordered: Collection[str]) -> Workload:
    """The queries that texts ask of named columns, in order.

    Args:
        texts: products of words with " x " between them: "COLUMN" (each of its cells), "prefix:COLUMN",
            "ranges:COLUMN", "windows:COLUMN:WIDTH", "trailing:COLUMN:WIDTH", "total"; a column without a word is summed
            over. Or "marginals:1,2", all tables over one or two columns; or, where there is one column, the path of a
            matrix (.npy, .npz).
        ordered: columns whose cells have an order, so that prefixes and ranges mean something.

    Examples:
        >>> asked = read_queries(["carrier", "carrier x prefix:hour"], {"carrier": 3, "hour": 24}, ["hour"])
        >>> [(table.name, table.shape) for table in asked.tables()]
        [('carrier', (3,)), ('carrier x hour', (3, 24))]
    """
    if not texts:
        raise SpecError("workload must ask something, such as 'marginals:1,2', found an empty list")
    return union(*(_read_query(text, columns, ordered) for text in texts))


def product_workload(columns: Mapping[str, Factor]) -> Workload:
    """All combinations of queries over different columns."""
    return Workload(tuple((name, factor.size) for name, factor in columns.items()), (tuple(columns.values()),))


def _parse_factor(text: str) -> Factor:
    """One factor from its text."""
    name, *numbers = text.strip().split(":")
    if not 1 <= len(numbers) <= 2 or not _all_digits(numbers):
        raise SpecError(
            f"a workload must be written as 'prefix:512', 'ranges:64', 'windows:256:16', 'marginals:8:1,2', products "
            f"with ' x ' between them, or a path ending in .npy or .npz, found {text!r:.60}"
        )
    return Factor(name, int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0)


def _read_query(text: str, columns: Mapping[str, int], ordered: Collection[str]) -> Workload:
    """The queries of one text."""
    if text.startswith("marginals:"):
        orders = text.removeprefix("marginals:").split(",")
        if not _all_digits(map(str.strip, orders)):
            raise SpecError(f"tables over columns are written as 'marginals:1,2', found {text!r:.60}")
        return marginals(columns, map(int, orders))
    if text.endswith((".npy", ".npz")):
        if len(columns) != 1:
            raise SpecError(f"a matrix needs exactly one column, whose cells are its columns, found {len(columns)}")
        matrix = matrix_factor(_read_matrix(Path(text)))
        return Workload(tuple(columns.items()), ((matrix,),))
    factors: dict[str, Factor] = {}
    for word in text.split(" x "):
        if word.strip() == "total":
            continue
        column, factor = _read_word(word.strip(), columns)
        if column in factors:
            raise SpecError(f"a product names column {column!r:.40} twice: {text!r:.60}")
        if factor.name != "identity" and column not in ordered:
            raise SpecError(
                f"{factor.name} of column {column!r:.40} needs cells with an order: leave its cell 'other' out"
            )
        factors[column] = factor
    return product_workload({name: factors.get(name, Factor("total", size)) for name, size in columns.items()})


def _read_word(word: str, columns: Mapping[str, int]) -> tuple[str, Factor]:
    """The column of one word of a product, and its queries."""
    if word in columns:
        return word, Factor("identity", columns[word])
    name, _, column = word.partition(":")
    width = ""
    if name in ("windows", "trailing"):
        column, _, width = column.rpartition(":")
    if name not in ("identity", "prefix", "ranges", "windows", "trailing") or not column:
        raise SpecError(
            f"expected a column, or prefix:COLUMN, ranges:COLUMN, windows:COLUMN:WIDTH, trailing:COLUMN:WIDTH, found "
            f"{word!r:.60}"
        )
    if column not in columns:
        raise SpecError(f"there is no column {column!r:.40}; there are {', '.join(columns):.200}")
    if width and not _all_digits([width]):
        raise SpecError(f"the width of {name} must be a whole number, found {width!r:.40}")
    return column, Factor(name, columns[column], int(width or 0))


def _bit_marginals(text: str) -> Workload:
    """Tables over columns of two cells."""
    parts = text.split(":")
    orders = parts[2].split(",") if len(parts) == 3 else []
    if not orders or not _all_digits([parts[1], *orders]) or int(parts[1]) > 24:
        raise SpecError(
            f"marginals over bits are written as 'marginals:8:1,2,3' with at most 24 bits, found {text!r:.60}"
        )
    return marginals({f"bit{i}": 2 for i in range(int(parts[1]))}, map(int, orders))


def _all_digits(texts: Iterable[str]) -> bool:
    """Whether all texts are decimal digits of ASCII; `int` reads others too."""
    return all(text.isascii() and text.isdigit() for text in texts)


def _read_matrix(path: Path) -> object:
    """A matrix from its file."""
    try:
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        with np.load(path, allow_pickle=False) as stored:
            named = {name: stored[name] for name in ("size", *RUNS) if name in stored}
        if not {"size", *RUNS[:3]} <= named.keys():
            from scipy.sparse import load_npz

            return load_npz(path)
        size = int(named.pop("size"))
    except (OSError, ValueError, KeyError) as error:
        raise SpecError(
            f"the matrix of a workload could not be read: {type(error).__name__}; expected .npy, or .npz from scipy"
        ) from error
    return Runs.of(size, **named)


def _kron(parts: Sequence[Floats]) -> Floats:
    """The Kronecker product of matrices, in order."""
    out: Any = parts[0]
    for part in parts[1:]:
        shape = len(out) * len(part), out.shape[1] * part.shape[1]
        out = (out[:, None, :, None] * part[:, None, :]).reshape(shape)
    return np.asarray(out)
