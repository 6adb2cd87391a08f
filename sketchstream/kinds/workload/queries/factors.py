"""Linear queries over one ordered or unordered column: intervals of its cells, or the rows of a matrix.

In: a name with sizes, or a matrix. Out: `Factor`: the number of queries, their matrix, its action on arrays, labels.
Touches: nothing.

All named factors are sets of intervals: query i adds the cells lows[i] .. highs[i] - 1. So they act on an array, and on
both sides of a covariance, through prefix sums, without their matrix.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.errors import SpecError
from sketchstream.kinds.workload.queries.runs import Runs, pack_integers, require_few, unpack_integers
from sketchstream.spec import checked_int

MAX_CELLS: Final = 1 << 24
"""Cells of one column, at most."""
MAX_ENTRIES: Final = 1 << 28
"""Entries of a matrix that is written out, at most."""
WRITTEN_OUT: Final = 512
"""Most queries, or cells, of runs that are written out as a matrix whose best covariance is searched."""
FEW_ENTRIES: Final = 1 << 22
"""Most entries of that matrix."""
NAMES: Final = ("identity", "total", "prefix", "ranges", "windows", "trailing")


@dataclass(frozen=True, eq=False)
class Factor:
    """A set of linear queries over the cells of one column.

    Args:
        name: "identity" (each cell), "total" (their sum), "prefix" (the first i cells), "ranges" (all intervals),
            "windows" (all intervals of `width` cells), "trailing" (the last `width` cells up to each cell), "matrix",
            "runs".
        width: cells of a window; 0 for the other names.
        matrix: (rows, size) float64, the matrix of factor "matrix".
        listed: queries of factor "runs", which no matrix is made of.
    """

    name: str
    size: int
    width: int = 0
    matrix: Floats | None = None
    listed: Runs | None = None

    def __post_init__(self) -> None:
        checked_int(self.size, "size of a workload's column", 1, MAX_CELLS)
        if self.name == "matrix":
            if self.matrix is None or self.matrix.ndim != 2 or self.matrix.shape[1] != self.size:
                raise SpecError(f"a workload's matrix must have two dimensions and {self.size} columns")
            return
        if self.name == "runs" and self.listed is not None:
            return
        if self.name not in NAMES:
            raise SpecError(f"a workload's name must be one of {', '.join(NAMES)} or a matrix, found {self.name!r:.40}")
        windows = self.name in ("windows", "trailing")
        checked_int(self.width, f"width of {self.name}", 1 if windows else 0, self.size if windows else 0)

    @cached_property
    def rows(self) -> int:
        """Number of queries."""
        if self.matrix is not None:
            return int(self.matrix.shape[0])
        if self.listed is not None:
            return self.listed.rows
        size = self.size
        return {"total": 1, "ranges": size * (size + 1) // 2, "windows": size - self.width + 1}.get(self.name, size)

    @property
    def integer(self) -> bool:
        """Whether all coefficients are whole numbers of moderate size."""
        if self.matrix is None:
            return True
        return bool(np.all(self.matrix == np.rint(self.matrix)) and np.max(np.abs(self.matrix)) < 1 << 20)

    @cached_property
    def runs(self) -> Runs:
        """The queries as runs of cells."""
        if self.listed is not None:
            return self.listed
        if self.matrix is not None:
            return Runs.of_matrix(self.matrix)
        require_few(self.rows, self.rows)
        places = np.arange(self.rows + 1, dtype=np.int64)
        return Runs(self.size, places, self.lows, self.highs, np.ones(self.rows, np.int64))

    @cached_property
    def lows(self) -> Ints:
        """(rows,) first cell of each interval."""
        return self._intervals[0]

    @cached_property
    def highs(self) -> Ints:
        """(rows,) one past the last cell of each interval."""
        return self._intervals[1]

    @cached_property
    def _intervals(self) -> tuple[Ints, Ints]:
        cells = np.arange(self.size, dtype=np.int64)
        zero = np.zeros(self.size, np.int64)
        if self.name == "identity":
            return cells, cells + 1
        if self.name == "total":
            return zero[:1], zero[:1] + self.size
        if self.name == "prefix":
            return zero, cells + 1
        if self.name == "windows":
            starts = cells[: self.rows]
            return starts, starts + self.width
        if self.name == "trailing":
            return np.maximum(cells + 1 - self.width, 0), cells + 1
        low, high = np.triu_indices(self.size)
        return low.astype(np.int64), high.astype(np.int64) + 1

    def dense(self) -> Floats:
        """(rows, size) the matrix."""
        if self.matrix is not None:
            return self.matrix
        return self.some_rows(np.arange(self.rows))

    def some_rows(self, chosen: Ints) -> Floats:
        """(n, size) these rows of the matrix."""
        if self.matrix is not None:
            return self.matrix[chosen]
        cells = np.arange(self.size)
        inside = (cells >= self.lows[chosen][:, None]) & (cells < self.highs[chosen][:, None])
        return inside.astype(np.float64)

    def gram(self) -> Floats:
        """(size, size) transpose of the matrix times the matrix; entry (i, j) counts the queries that hold both."""
        rows = self.matrix if self.listed is None else self.listed.dense()
        if rows is not None:
            return np.asarray(rows.T @ rows)
        # Each query adds 1 to the square of its cells: the sums of steps at the corners of all squares.
        steps = np.zeros((self.size + 1, self.size + 1))
        for first, last, sign in ((self.lows, self.lows, 1), (self.highs, self.highs, 1), (self.lows, self.highs, -1)):
            corners = np.bincount(first * (self.size + 1) + last, minlength=steps.size).reshape(steps.shape)
            steps += sign * (corners if sign > 0 else corners + corners.T)
        return np.cumsum(np.cumsum(steps, axis=0), axis=1)[:-1, :-1]

    def apply(self, values: Floats, axis: int) -> Floats:
        """Apply the matrix along one axis of an array, whose length changes from size to rows."""
        front = np.moveaxis(values, axis, 0)
        if self.matrix is not None:
            out = np.tensordot(self.matrix, front, axes=(1, 0))
        elif self.name == "identity":
            return values
        elif self.listed is not None:
            out = self.listed.apply(front)
        else:
            sums = _prefix_sums(front)
            out = sums[self.highs] - sums[self.lows]
        return np.moveaxis(out, 0, axis)

    def quadratic(self, covariance: Floats) -> Floats:
        """(rows, ...) diagonal of matrix x covariance x transpose, for a (size, size, ...) stack of covariances."""
        if self.matrix is not None:
            half = np.tensordot(self.matrix, covariance, axes=(1, 0))
            flat = half.reshape(*half.shape[:2], -1)
            out: Floats = np.einsum("iv,iv...->i...", self.matrix, flat)
            return out.reshape(self.rows, *covariance.shape[2:])
        if self.name == "identity":
            cells = np.arange(self.size)
            return covariance[cells, cells]
        sums = np.moveaxis(_prefix_sums(np.moveaxis(_prefix_sums(covariance), 1, 0)), 0, 1)
        low, high = self.lows, self.highs
        both: Floats = sums[high, high] - sums[high, low] - sums[low, high] + sums[low, low]
        return both

    def power_sums(self, values: Floats, power: int) -> Floats:
        """(rows,) sum over columns of matrix x values to an even power; without the product if it is long.

        Answers are differences of the sums up to both ends: the binomial theorem leaves products of powers of these.
        """
        if self.rows <= self.size:
            return np.asarray(np.sum(np.square(self.apply(values, 0)) ** (power // 2), axis=1))
        sums, out = _prefix_sums(values), np.zeros(self.rows)
        for of_low in range(power + 1):
            both = sums ** (power - of_low) @ (sums**of_low).T
            out += (-1) ** of_low * math.comb(power, of_low) * both[self.highs, self.lows]
        return np.maximum(out, 0.0)

    def labels(self, cells: tuple[str, ...]) -> list[str]:
        """(rows,) label of each query, from the names of the cells."""
        if self.name in ("matrix", "runs"):
            return [f"query {i}" for i in range(self.rows)]
        if self.name == "total":
            return ["all"]
        if self.name == "identity":
            return list(cells)
        return [
            cells[low] if high == low + 1 else f"{cells[low]} to {cells[high - 1]}"
            for low, high in zip(self.lows.tolist(), self.highs.tolist(), strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data; the coefficients of a matrix are bytes, as integers if all are integers."""
        out: dict[str, Any] = {"name": self.name, "size": self.size}
        if self.width:
            out["width"] = self.width
        if self.matrix is not None:
            out["rows"] = self.rows
            if self.integer:
                out["integers"] = pack_integers(self.matrix.astype(np.int64))
            else:
                out["floats"] = np.ascontiguousarray(self.matrix, "<f8").tobytes()
        if self.listed is not None:
            out |= {"rows": self.rows, **self.listed.to_dict()}
        return out

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Factor:
        """The factor that `to_dict` described."""
        fields = dict(data)
        if fields.get("name") == "runs":
            size = checked_int(fields["size"], "size", 1, MAX_CELLS)
            return cls(
                "runs", size, listed=Runs.from_dict(size, checked_int(fields["rows"], "rows", 1, MAX_CELLS), fields)
            )
        if fields.get("name") != "matrix":
            return cls(fields.pop("name"), fields.pop("size"), fields.pop("width", 0))
        rows = checked_int(fields["rows"], "rows", 1, MAX_ENTRIES)
        size = checked_int(fields["size"], "size", 1, MAX_CELLS)
        _require_room(rows, size)
        if "integers" in fields:
            matrix: Any = unpack_integers(fields["integers"], rows * size)
        else:
            matrix = np.frombuffer(fields["floats"], "<f8")
        if matrix.size != rows * size:
            raise SpecError(f"expected a matrix of {rows} x {size}, found another number of coefficients")
        return matrix_factor(matrix.reshape(rows, size))

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that are equal exactly for equal factors."""
        text = f"{self.name} {self.size} {self.width} {self.rows}"
        digest = hashlib.sha256(text.encode())
        if self.matrix is not None:
            digest.update(np.ascontiguousarray(self.matrix, "<f8").tobytes())
        if self.listed is not None:
            for values in (self.listed.starts, self.listed.lows, self.listed.highs, self.listed.values):
                digest.update(np.ascontiguousarray(values, "<i8").tobytes())
        return digest.digest()


def matrix_factor(matrix: object) -> Factor:
    """The rows of a matrix as queries.

    Args:
        matrix: (rows, size) numbers, dense or a scipy sparse matrix; or `Runs`. A sparse matrix of more than 2^28
            places is held as runs. Runs of few queries or over few cells are written out.
    """
    if hasattr(matrix, "toarray") and hasattr(matrix, "shape"):
        rows, size = matrix.shape
        matrix = matrix.toarray() if rows * size <= MAX_ENTRIES else Runs.of_matrix(matrix)
    if isinstance(matrix, Runs):
        checked_int(matrix.size, "cells of a workload", 1, MAX_CELLS)
        if min(matrix.rows, matrix.size) > WRITTEN_OUT or matrix.rows * matrix.size > FEW_ENTRIES:
            return Factor("runs", matrix.size, listed=matrix)
        matrix = matrix.dense()
    array = np.asarray(matrix)
    if array.ndim != 2 or not array.size:
        raise SpecError(f"a workload's matrix must have two dimensions, none of them empty, found shape {array.shape}")
    if array.dtype.kind not in "biuf":
        raise SpecError(f"a workload's matrix must hold numbers, found {array.dtype}")
    _require_room(*array.shape)
    floats = np.array(array, np.float64, order="C")
    if not np.all(np.isfinite(floats)):
        raise SpecError("a workload's matrix must be finite, found nan or inf")
    if not floats.any():
        raise SpecError("workload has no effect on the answers: all its coefficients are 0")
    floats += 0.0  # -0.0 and 0.0 are the same coefficient and have the same digest
    floats.flags.writeable = False
    return Factor("matrix", floats.shape[1], matrix=floats)


def _require_room(rows: int, size: int) -> None:
    """Refuse a matrix that is too large to write out."""
    if rows * size > MAX_ENTRIES:
        raise SpecError(
            f"a workload's matrix may have 2^28 entries, found {rows} x {size}; use a named workload or runs of cells"
        )


def _prefix_sums(values: Floats) -> Floats:
    """(size + 1, ...) sums of the first entries along the first axis, starting with none."""
    return np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)])
