"""Queries held as runs: for each query the intervals of cells that it adds, each with a whole coefficient.

In: lists of intervals, or a sparse matrix. Out: `Runs`: answers, sums of squares, bounds, without a matrix.
Touches: nothing.

A range is one run, a predicate some, a list of cells one for each. Time and memory are those of the runs and the cells,
one after the other. Everything that privacy needs is computed in integers.

Integers are written with the least number of bytes that holds each of an array. There is one way to write an array, so
equal arrays have equal bytes on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Floats, Ints
from sketchstream.errors import FormatError, SpecError, TruncatedError
from sketchstream.kernels import kernel
from sketchstream.kinds.linear.tree import BlockTree

Numbers = TypeVar("Numbers", bound=npt.NDArray[Any])

MAX_RUNS: Final = 1 << 22
"""Queries, and runs of all queries, at most."""
MAX_COEFFICIENT: Final = (1 << 20) - 1
"""Largest coefficient: squares of a column add up below 2^62."""
MAX_PAIRS: Final = 1 << 28
"""Pairs of queries that hold one cell, up to which the bound by such pairs is computed: some seconds."""
AT_ONCE: Final = 512
"""Queries that are multiplied by all others at once."""
ROUNDING: Final = 1 - 1e-9
"""Factor of a lower bound that is left to rounding."""


@dataclass(frozen=True, eq=False)
class Runs:
    """Queries as runs of cells with equal coefficients, each query's from left to right and as few as there can be.

    Args:
        starts: (d + 1,) first run of each query, and the number of runs.
        lows: (R,) first cell of each run.
        highs: (R,) one past its last cell.
        values: (R,) coefficient of each run, not 0.
    """

    size: int
    starts: Ints
    lows: Ints
    highs: Ints
    values: Ints

    @classmethod
    def of(
        cls, size: int, query: object, low: object, high: object, coefficient: object = 1, *, queries: int = 0
    ) -> Runs:
        """The queries that add up these intervals; where intervals of a query overlap, their coefficients add up.

        Args:
            query: (n,) number of the query to which each interval belongs, from 0.
            high: (n,) one past its last cell.
            coefficient: (n,) whole number by which each is multiplied; or one number for all.
            queries: number of queries, where the last ones are empty.

        Raises:
            SpecError: not whole numbers, cells outside of the table, coefficients of 2^20 and above, or too many.
        """
        arrays = np.broadcast_arrays(*(np.asarray(array) for array in (query, low, high, coefficient)))
        if arrays[0].ndim != 1 or any(array.dtype.kind not in "iub" for array in arrays):
            raise SpecError("runs need query, low, high and coefficient as lists of whole numbers, of one length")
        row, first, last, value = (array.astype(np.int64) for array in arrays)
        count = max(queries, int(row.max(initial=-1)) + 1)
        require_few(count, len(row))
        if np.any((row < 0) | (first < 0) | (first >= last) | (last > size)):
            raise SpecError(f"runs need queries from 0 and cells with 0 <= low < high <= {size}")
        rows, places = np.concatenate([row, row]), np.concatenate([first, last])
        order = np.lexsort((places, rows))
        rows, places, steps = rows[order], places[order], np.concatenate([value, -value])[order]
        ends = np.diff(rows * (size + 1) + places, append=-1) != 0
        rows, places, sums = rows[ends], places[ends], np.cumsum(steps)[ends]  # the steps of a whole query add up to 0
        changed = np.diff(sums, prepend=0) != 0
        rows, places, sums = rows[changed], places[changed], sums[changed]
        runs = np.flatnonzero(sums)
        if not runs.size or max(np.abs(value).max(), np.abs(sums).max()) > MAX_COEFFICIENT:
            what = "below 2^20" if runs.size else "other than 0: workload has no effect on the answers"
            raise SpecError(f"runs need coefficients {what}")
        return cls(size, np.searchsorted(rows[runs], np.arange(count + 1)), places[runs], places[runs + 1], sums[runs])

    @classmethod
    def of_matrix(cls, matrix: Any) -> Runs:
        """The rows of a matrix of whole numbers as queries.

        Args:
            matrix: (d, N) dense, or scipy sparse.
        """
        from scipy.sparse import coo_array

        sparse = coo_array(matrix)
        require_few(sparse.shape[0], sparse.nnz)
        if not np.array_equal(sparse.data, np.rint(sparse.data)):
            raise SpecError("queries over so many cells need whole coefficients, found fractions; scale them")
        values = sparse.data.astype(np.int64)
        return cls.of(sparse.shape[1], sparse.row, sparse.col, sparse.col + 1, values, queries=sparse.shape[0])

    @property
    def rows(self) -> int:
        """Number of queries, d."""
        return len(self.starts) - 1

    def dense(self) -> Floats:
        """(d, N) the matrix."""
        return np.asarray(self._sparse().toarray())

    def _sparse(self) -> Any:
        """(d, N) the matrix, as scipy holds a sparse one."""
        from scipy.sparse import csr_array

        lengths = self.highs - self.lows
        ends = np.concatenate([[0], np.cumsum(lengths)])
        cells = np.arange(ends[-1]) + np.repeat(self.lows - ends[:-1], lengths)
        return csr_array((np.repeat(self.values * 1.0, lengths), cells, ends[self.starts]), (self.rows, self.size))

    def apply(self, table: Numbers) -> Numbers:
        """(d, ...) answers; integers wrap."""
        sums = np.concatenate([np.zeros_like(table[:1]), np.cumsum(table, axis=0)])
        out: Numbers = self._added(sums[self.highs] - sums[self.lows])
        return out

    def back(self, answers: Floats) -> Floats:
        """(N,) the transpose of the matrix times numbers of the queries."""
        times = np.repeat(answers, np.diff(self.starts)) * self.values
        steps = np.bincount(self.lows, times, self.size + 1) - np.bincount(self.highs, times, self.size + 1)
        return np.asarray(np.cumsum(steps)[:-1])

    def _added(self, parts: Any) -> Any:
        """(d, ...) sum of each query's runs of (R, ...), times the coefficients."""
        times = parts * self.values.astype(parts.dtype).reshape(-1, *[1] * (parts.ndim - 1))
        out = np.zeros((self.rows, *parts.shape[1:]), parts.dtype)
        filled = np.diff(self.starts) > 0
        out[filled] = np.add.reduceat(times, self.starts[:-1][filled], axis=0)
        return out

    def column_of(self, cells: Ints, weights: Ints) -> Ints:
        """(d,) sum of the columns of a few cells, each times its weight."""
        inside = (self.lows <= cells[:, None]) & (cells[:, None] < self.highs)
        out: Ints = self._added(weights @ inside.astype(np.int64))
        return out

    def column_sums(self, power: int) -> Ints:
        """(N,) sum over queries of a power, 0 to 2, of the coefficients' absolute values in each cell, exactly."""
        steps, values = np.zeros(self.size + 1, np.int64), np.abs(self.values) ** power
        np.add.at(steps, self.lows, values)
        np.subtract.at(steps, self.highs, values)
        return np.cumsum(steps)[:-1]

    def energies(self, width: int = 1, power: int = 2) -> Floats:
        """(d,) sum over blocks of cells, of this width, of an even power of the coefficients' sum in the block."""
        out = np.zeros(self.rows)
        _add_energies(out, self.starts, self.lows, self.highs, self.values, width, power)
        return out

    def fourths(self, tree: BlockTree) -> Floats:
        """(d,) sum of the fourth powers of each answer's coefficients in the counters of a tree."""
        widths, weights = np.array(tree.levels, np.float64).T
        levels = np.array(
            [widths, weights, tree.shares / widths, 1 / tree.eigenvalues, np.cumsum(weights**4 * widths**3)]
        )
        todo = np.zeros((3, 1 + int(np.sum(widths[1:] / widths[:-1]))))
        out = np.zeros(self.rows)
        _add_fourths(out, self.starts, self.lows, self.highs, self.values, tree.cells, levels, todo)
        return out

    def means(self, edges: Ints) -> Floats:
        """(d, K) mean coefficient of each query in each block of cells; (K + 1,) edges are their first cells, and N."""
        before = [self._added(np.clip(edge - self.lows, 0, self.highs - self.lows)) for edge in edges]
        return np.diff(np.array(before, np.float64), axis=0).T / np.diff(edges)

    def pair_bound(self) -> float:
        """Lower bound of the squared nuclear norm over the number of cells that are asked; 0 where it takes too long.

        Source: Hoelder's inequality for singular values, |A|_* >= |A|_F^3 / |A'A|_F; for A, and for A without its
        means, which a projection of the cells leaves of it.
        """
        readers, sums = self.column_sums(0).astype(np.float64), self.apply(np.ones(self.size))
        if readers @ readers > MAX_PAIRS or 4 * readers.sum() > MAX_PAIRS:
            return 0.0
        used, square, norm = np.count_nonzero(readers), float(self.energies().sum()), float(sums @ sums)
        cells, squares, mixed = self._sparse(), 0.0, 0.0
        turned = cells.T.tocsr()
        for start in range(0, self.rows, AT_ONCE):
            products = cells[start : start + AT_ONCE] @ turned
            squares += float(np.square(products.data).sum())
            mixed += float(sums[start : start + AT_ONCE] @ (products @ sums))
        bound, rest, rests = square**3 / squares, square - norm / used, squares - 2 * mixed / used + (norm / used) ** 2
        if rest > 1e-6 * square and rests > 1e-6 * squares:
            bound = max(bound, rest**3 / rests)
        return float(ROUNDING * bound / used)

    def to_dict(self) -> dict[str, Any]:
        """The object as plain data."""
        counts, lengths = np.diff(self.starts), self.highs - self.lows
        arrays = {"counts": counts, "lows": self.lows, "lengths": lengths, "values": self.values}
        return {name: pack_integers(values) for name, values in arrays.items()}

    @classmethod
    def from_dict(cls, size: int, rows: int, data: Any) -> Runs:
        """The runs that `to_dict` described."""
        counts = unpack_integers(data["counts"], rows)
        require_few(rows, int(np.abs(counts).sum()))
        lows, lengths, values = (
            unpack_integers(data[name], int(counts.sum())) for name in ("lows", "lengths", "values")
        )
        return cls.of(size, np.repeat(np.arange(rows), counts), lows, lows + lengths, values, queries=rows)


def pack_integers(values: Ints) -> bytes:
    """One byte with the width in bytes, then each integer, little endian, two's complement."""
    flat = np.ascontiguousarray(values, "<i8").reshape(-1)
    width = _width(int(flat.min(initial=0)), int(flat.max(initial=0)))
    return bytes([width]) + flat.view(np.uint8).reshape(-1, 8)[:, :width].tobytes()


def unpack_integers(data: bytes, count: int) -> Ints:
    """(count,) int64 that `pack_integers` wrote.

    Raises:
        FormatError: another length, or more bytes for each than are needed.
    """
    width = data[0] if data else 0
    if not 1 <= width <= 8 or len(data) != 1 + width * count:
        raise TruncatedError(f"expected {count} packed integers, found another number of bytes")
    full = np.empty((count, 8), np.uint8)
    full[:, :width] = np.frombuffer(data, np.uint8, offset=1).reshape(count, width)
    full[:, width:] = np.where(full[:, width - 1] >= 128, 255, 0)[:, None]
    out: Ints = full.reshape(-1).view("<i8").astype(np.int64)
    if _width(int(out.min(initial=0)), int(out.max(initial=0))) != width:
        raise FormatError("packed integers are not in their shortest form")
    return out


def _width(least: int, most: int) -> int:
    """Bytes that hold both numbers with their sign."""
    return max(1, 1 + max(most.bit_length(), (~least).bit_length()) // 8)


def require_few(queries: int, runs: int) -> None:
    """Refuse more queries or runs than can be held and published."""
    if max(queries, runs) > MAX_RUNS:
        raise SpecError(
            f"expected at most 2^22 queries and 2^22 runs of cells, found {queries:,} and {runs:,}; ask fewer queries"
        )


@kernel
def _add_energies(out: Any, starts: Any, lows: Any, highs: Any, values: Any, width: Any, power: Any) -> None:
    """Sums of powers of the sums of blocks."""
    for row in range(len(out)):
        block, part = np.int64(-1), 0.0
        for k in range(starts[row], starts[row + 1]):
            first, last, value = lows[k] // width, (highs[k] - 1) // width, float(values[k])
            if first != block:
                out[row] += part**power
                block, part = first, 0.0
            part += value * (min(highs[k], (first + 1) * width) - lows[k])
            if last > first:  # the blocks between are this run's alone
                out[row] += part**power + float(last - first - 1) * (value * width) ** power
                block, part = last, value * (highs[k] - last * width)
        out[row] += part**power


@kernel
def _add_fourths(out: Any, starts: Any, lows: Any, highs: Any, values: Any, size: Any, tree: Any, todo: Any) -> None:
    """Fourth powers of coefficients in a tree: blocks that a run's end cuts one by one, all others by closed forms.

    With c_m = share_m / width_m, and O_m the sum of coefficients in the block of level m, the coefficient of a block of
    level l is its weight times width_l sum over m >= l of c_m O_m + O_l sum over m < l of share_m. The shares up to
    level l add up to 1 / e_l. In and below a block without a cut, it is the weight times the width times one number.
    """
    for row in range(len(out)):
        for root in range(size // tree[0, -1]):
            count = 1
            todo[0, 0], todo[1, 0], todo[2, 0] = len(tree[0]) - 1, root, 0.0
            while count:
                count -= 1
                level, width, passed = int(todo[0, count]), int(tree[0, int(todo[0, count])]), todo[2, count]
                low = int(todo[1, count]) * width
                k = starts[row] + np.searchsorted(highs[starts[row] : starts[row + 1]], low, side="right")
                value, change = 0.0, size
                if k < starts[row + 1]:
                    here = lows[k] <= low
                    value, change = (values[k] * 1.0, highs[k]) if here else (0.0, lows[k])
                if change >= low + width:
                    out[row] += (passed + value * tree[3, level]) ** 4 * tree[4, level] * width
                    continue
                total = 0.0
                while k < starts[row + 1] and lows[k] < low + width:
                    total += values[k] * (min(highs[k], low + width) - max(lows[k], low))
                    k += 1
                passed += tree[2, level] * total
                out[row] += (tree[1, level] * (width * passed + total * tree[3, level - 1])) ** 4
                for child in range(low, low + width, int(tree[0, level - 1])):
                    todo[0, count], todo[1, count], todo[2, count] = level - 1, child // tree[0, level - 1], passed
                    count += 1
