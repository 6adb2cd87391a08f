"""Estimates from the published rows of a projection: distances, norms, products, single features, each with its error.

In: a spec, the published cells, their noise variance, the matrix for questions about features. Out: `RowEstimates`.
Touches: nothing.
Source: Johnson & Lindenstrauss 1984; Kenthapadi et al. 2013 (the estimators); docs/theory/projection.md, sections 5, 6.

All estimates are unbiased over the draw of the matrix and of the noise, so they can be negative. Differences of rows
are formed in int64; only then floating point begins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Floats, Ints
from sketchstream.errors import DomainError, EstimateError, MergeError
from sketchstream.kinds.answers import LEVEL, ColumnValues
from sketchstream.kinds.estimates import Estimate, checked_level
from sketchstream.kinds.linear.answers import LinearAnswers
from sketchstream.kinds.projection.matrices.kernels import squared_gaps
from sketchstream.kinds.projection.matrices.matrix import Matrix
from sketchstream.kinds.projection.matrices.variance import MatrixLaw
from sketchstream.kinds.projection.spec import ProjectionSpec
from sketchstream.pictures.numbers import item_name
from sketchstream.spec import ClosedDomain, Item

CELLS_AT_ONCE = 1 << 20
"""Cells of pairs of rows that are compared at a time."""
WHOSE = ("user", "other", "neighbour", "before", "after")
"""Columns that say whose number it is."""
Who = Item | Sequence[Item] | npt.NDArray[Any]
"""A user or a feature, or several: their ids or, where the domain is a list, the items themselves."""


def row_label(row: Mapping[str, Any]) -> str:
    """Whose number it is: a row, or two of them, and when."""
    return ", ".join(item_name(row[column]) for column in WHOSE if column in row)


@dataclass(frozen=True)
class RowEstimates(Estimate):
    """Numbers of one kind with their errors; arrays of one shape, () for a single number.

    Values are unbiased: a squared distance or norm can come out negative. Standard errors are computed from the
    estimates themselves.

    Args:
        quantity: "distance" (squared), "inner", "sq_norm", "with_vector", "feature" or "drift" (squared distance).
    """

    value: Any
    low: Any
    high: Any
    stderr: Any = None
    quantity: str = ""
    level: float = LEVEL

    @property
    def clipped(self) -> Floats:
        """The value, at least 0: for squared distances and norms."""
        return np.asarray(np.maximum(self.value, 0.0))

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, at: Any) -> RowEstimates:
        value, stderr, low, high = (
            np.asarray(numbers[at]) for numbers in (self.value, self.stderr, self.low, self.high)
        )
        return RowEstimates(value, low, high, None, stderr, self.quantity, self.level)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON: numbers, or nested lists of them."""
        out: dict[str, Any] = {"quantity": self.quantity, "level": self.level}
        out.update((name, getattr(self, name).tolist()) for name in ("value", "stderr", "low", "high"))
        return out

    def rows(self) -> list[dict[str, float]]:
        """A flat table, one dictionary an estimate."""
        columns = {name: np.ravel(getattr(self, name)).tolist() for name in ("value", "stderr", "low", "high")}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def __str__(self) -> str:
        if self.value.ndim:
            return f"{self.quantity}: {self.value.size} estimates, level {self.level:g}"
        return f"{self.quantity} {self.value:.6g} +- {self.stderr:.3g} [{self.low:.6g}, {self.high:.6g}]"


@dataclass(frozen=True)
class PublishedRows(LinearAnswers):
    """The rows of a published projection, and every estimate from them; `DomainError`: an unknown user or feature.

    Args:
        cells: (users, k) int64, as published.
        variance: V, noise variance of a cell, lattice units: the sum over its layers and fresh noise.
        matrix: projection matrix; a secret one only if its seed is available. `with_vector` and `feature`
            need it.
        fourth: fourth cumulant of a cell's noise, lattice units: 0 for noise that is nearly normal.
    """

    question = "norms"

    spec: ProjectionSpec
    cells: Ints
    variance: Fraction
    matrix: Matrix | None = None
    fourth: float = 0.0

    def __post_init__(self) -> None:
        if self.cells.shape != self.spec.shape or self.cells.dtype != np.int64:
            raise EstimateError(
                f"cells must be int64 of shape {self.spec.shape}, found {self.cells.dtype} {self.cells.shape}"
            )
        if self.matrix is None and self.spec.matrix_seed == "public":
            object.__setattr__(self, "matrix", self.spec.projection_matrix())

    def __reduce__(self) -> Any:
        """Refuse pickling with a secret matrix, which must not leave the process."""
        if self.spec.matrix_seed == "secret" and self.matrix is not None:
            raise TypeError(
                "a projection with its secret matrix cannot be pickled; estimate without key= gives one that can"
            )
        return type(self), (self.spec, self.cells, self.variance, None, self.fourth)

    @cached_property
    def values(self) -> Floats:
        """(users,) squared norms of the rows; unbiased, so that they can be below 0."""
        return np.asarray(self._norms_of(slice(None), self.level).value)

    @cached_property
    def stderr(self) -> Floats:
        """(users,) standard errors of the squared norms."""
        return np.asarray(self._norms_of(slice(None), self.level).stderr)

    @cached_property
    def labels(self) -> Mapping[str, ColumnValues]:
        return {"user": [self.user_name(place) for place in range(self.spec.users.size)]}

    def more(self, level: float) -> dict[str, Any]:
        sizes = {"users": self.spec.users.size, "features": self.spec.features.size, "k": self.spec.k}
        return {**sizes, "tau": self.tau, "quantity": "squared norm"}

    def _ends(self, level: float) -> tuple[Floats, Floats]:
        found = self._norms_of(slice(None), level)
        return found.low, found.high

    def user_name(self, place: int) -> Item:
        """The user of a row: its id or, if the list is available, the item."""
        return place if self.spec.users.items is None else self.spec.users.items[place]

    @cached_property
    def law(self) -> MatrixLaw:
        """Properties of the matrix for variances; independent of the seed."""
        return MatrixLaw.of(self.spec.outline)

    @property
    def scale(self) -> float:
        """S: a squared norm of cells times this is one in user units."""
        return 1 / (self.spec.k * self.spec.entry_variance * 4.0**self.spec.fraction_bits)

    @property
    def tau(self) -> float:
        """Noise variance of a cell in signal units: k times the square of sigma in JL units."""
        return float(self.variance) * self.scale * self.spec.k

    @property
    def kept(self) -> bool:
        """Whether rows are kept as they are, so that few cells can decide an answer."""
        return self.spec.matrix == "identity"

    @property
    def excess(self) -> float:
        """Fourth cumulant of a cell's noise, in the square of signal units."""
        return self.fourth * (self.scale * self.spec.k) ** 2

    def distance(self, u: Who, v: Who, level: float = LEVEL) -> RowEstimates:
        """Squared distances between rows, of as many users v as u, or of one; a row is at distance 0 from itself."""
        first, second = _broadcast_positions(self.user_places(u), self.user_places(v))
        sums = np.empty(first.size)
        squared_gaps(self.cells, self.cells, np.ravel(first), np.ravel(second), sums)
        step, excess = self.gap_steps(first, second, self), 2 * self.excess
        gaps = self.from_sums("distance", sums.reshape(first.shape), 2 * self.tau, level, excess=excess, step=step)
        four = (gaps.value, gaps.stderr, gaps.low, gaps.high)
        value, stderr, low, high = (np.where(first != second, numbers, 0.0)[()] for numbers in four)
        return RowEstimates(value, low, high, None, stderr, "distance", level)

    def sq_norm(self, u: Who, level: float = LEVEL) -> RowEstimates:
        """Squared norms of rows."""
        return self._norms_of(self.user_places(u), level)

    def _norms_of(self, places: Ints | slice, level: float) -> RowEstimates:
        cells = self.cells[places].astype(np.float64)
        sums = np.asarray((cells * cells).sum(axis=-1))
        step = self._steps(np.abs(cells).max(axis=-1)) if self.kept else 0.0
        return self.from_sums("sq_norm", sums, self.tau, level, excess=self.excess, step=step)

    def inner(self, u: Who, v: Who, level: float = LEVEL) -> RowEstimates:
        """Inner products of two rows each, of as many users v as u, or of one.

        Raises:
            EstimateError: a row with itself.
        """
        first, second = _broadcast_positions(self.user_places(u), self.user_places(v))
        if np.any(first == second):
            raise EstimateError(
                "the inner product of a row with itself is a squared norm with noise of its own: use sq_norm"
            )
        left, right = self.cells[first].astype(np.float64), self.cells[second].astype(np.float64)
        return self._product(left, right, level)

    def with_vector(self, u: Who, vector: npt.ArrayLike | Mapping[Item, float], level: float = LEVEL) -> RowEstimates:
        """Inner products of rows with a public vector.

        Args:
            vector: (features,) numbers, or a mapping from features to numbers.

        Raises:
            EstimateError: a vector of another length, or the seed of a secret matrix is not at hand.
        """
        if isinstance(vector, Mapping):
            places = self.feature_places(list(vector))
            weights = np.array([float(weight) for weight in vector.values()])
        else:
            weights = np.asarray(vector, np.float64)
            if weights.shape != (self.spec.features.size,):
                raise EstimateError(
                    f"vector must have one number a feature, {self.spec.features.size}, found shape {weights.shape}"
                )
            places = np.flatnonzero(weights)
            weights = weights[places]
        if not np.all(np.isfinite(weights)):
            raise EstimateError("vector must hold finite numbers")
        image = self._image(places, weights)
        return self._against("with_vector", u, image, float(weights @ weights), level)

    def feature(self, u: Who, j: Who, level: float = LEVEL) -> RowEstimates:
        """Single entries of rows, total weights of features in users' rows: of as many features as users, or of one.

        Raises:
            EstimateError: the seed of a secret matrix is not at hand.
        """
        users, features = _broadcast_positions(self.user_places(u), self.feature_places(j))
        distinct, places = np.unique(np.ravel(features), return_inverse=True)
        image = self._known_matrix().rows(distinct).astype(np.float64)[places.reshape(features.shape)]
        return self._against("feature", users, image, 1.0, level, located=True)

    def drift(self, later: PublishedRows, u: Who, level: float = LEVEL) -> RowEstimates:
        """Squared distances between rows here and the same users' rows in another sketch, such as the next window's.

        Args:
            later: a sketch with the same users, features and matrix.

        Raises:
            MergeError: users, features or matrix differ.
        """
        return self.drift_at(later, self.user_places(u), level)

    def drift_at(self, later: PublishedRows, places: Ints, level: float) -> RowEstimates:
        """See `drift`, of the rows with these numbers."""
        self.require_comparable(later)
        flat, sums = np.ravel(places), np.empty(places.size)
        squared_gaps(self.cells, later.cells, flat, flat, sums)
        tau, excess = self.tau + later.tau, self.excess + later.excess
        step = self.gap_steps(places, places, later)
        return self.from_sums("drift", sums.reshape(places.shape), tau, level, excess=excess, step=step)

    def require_comparable(self, other: PublishedRows) -> None:
        """Refuse to compare rows that were projected by different matrices.

        Raises:
            MergeError: the fields that differ.
        """
        mine, theirs = self.spec.to_dict(), other.spec.to_dict()
        fields = ("users", "features", "k", "matrix", "matrix_seed", "seed", "fraction_bits")
        different = [field for field in fields if mine.get(field) != theirs.get(field)]
        if not different and self.spec.matrix_seed == "secret" and (self.matrix is None or self.matrix != other.matrix):
            different = ["matrix_seed"]
        if different:
            raise MergeError(f"rows can be compared only if both sketches share {', '.join(different)}", different)

    def from_sums(
        self,
        quantity: str,
        sums: Floats,
        tau: float,
        level: float,
        share: float = 1.0,
        *,
        excess: float = 0.0,
        step: Floats | float = 0.0,
    ) -> RowEstimates:
        """Estimates of squared norms from squared norms of cells.

        Args:
            sums: squared norms of cells or of their differences, squared lattice units.
            tau: noise variance a cell in `sums`, signal units.
            share: part of the error probability that each interval may have; 1 over their number makes all of them
                hold together.
            excess: fourth cumulant of the noise of a cell in `sums`, in the square of signal units.
            step: how far one unit of noise in one cell moves the values, where rows are kept as they are.
        """
        value = np.asarray(sums * self.scale - tau)
        stderr = np.sqrt(self.law.squared_norm_estimate(value, tau, excess))
        outside = (1 - checked_level(level)) * share
        low, high = self._chi2_ends(value, tau, outside, excess)
        further = _part_of_step(outside) * step
        low, high = np.maximum(low - further, 0.0), np.maximum(high + further, 0.0)
        return RowEstimates(value, low, high, None, stderr, quantity, level)

    def gap_steps(self, u: Ints, v: Ints, later: PublishedRows) -> Floats:
        """How far one unit of noise in one cell moves squared distances between rows, if they are kept as they are.

        Args:
            v: positions of users of `later`, as many.
            later: sketch of the second users; this one, or another with the same matrix.
        """
        gaps, first, second = np.zeros(u.size), np.ravel(u), np.ravel(v)
        for start in range(0, u.size if self.kept else 0, most := max(1, CELLS_AT_ONCE // self.spec.k)):
            part = slice(start, start + most)
            gaps[part] = np.abs(self.cells[first[part]] - later.cells[second[part]]).max(axis=-1)
        return self._steps(gaps.reshape(u.shape))

    def _steps(self, largest: Floats) -> Floats:
        """How far one unit of noise moves a squared norm whose largest entry has this size; 0 if rows are projected."""
        return np.asarray((2 * largest + 1) * (self.scale * self.kept))

    def _chi2_ends(self, value: Floats, tau: Any, outside: float, excess: Any = 0.0) -> tuple[Floats, Floats]:
        """Interval of a squared norm: exact for Gaussian entries, as the sum is chi^2 with k degrees of freedom."""
        from scipy.special import gammainccinv, gammaincinv

        mean = np.maximum(value, 0.0) + tau
        degrees = np.asarray(2 * mean**2 / self.law.squared_norm(mean - tau, tau, excess=excess))
        factor = (value + tau) * degrees / 2
        low = factor / gammainccinv(degrees / 2, outside / 2) - tau
        high = factor / gammaincinv(degrees / 2, outside / 2) - tau
        return low, high

    def _against(
        self, quantity: str, u: Any, image: Floats, vector2: float, level: float, *, located: bool = False
    ) -> RowEstimates:
        """Inner products of rows with the image of a public vector."""
        from scipy.special import stdtrit

        rows = self.cells[u if located else self.user_places(u)].astype(np.float64)
        units = 2.0**self.spec.fraction_bits
        value = np.asarray((rows * image).sum(axis=-1)) * (self.scale * units)
        stderr = np.sqrt(self.law.inner_estimate(self._signal2(rows), vector2, value, (self.tau, 0.0)))
        middle, spread, degrees = value, stderr, np.inf
        if self.law.signal and self.spec.k > 1:
            # Given the image, a row is a multiple of it and independent noise: the interval is that of a regression.
            length = np.asarray((image * image).sum(axis=-1)) * (self.scale * units**2)
            ratio = np.divide(vector2, length, out=np.zeros_like(length), where=length > 0)
            middle, degrees = value * ratio, self.spec.k - 1
            rest = (self._signal2(rows) + self.tau) * vector2 * ratio - middle**2
            spread = np.sqrt(np.maximum(rest, 0.0) / degrees)
        outside = 1 - checked_level(level)
        reach = -stdtrit(degrees, outside / 2) * spread
        if self.kept:
            reach = reach + _part_of_step(outside) * np.abs(image).max(axis=-1) * (self.scale * units)
        return RowEstimates(value, middle - reach, middle + reach, None, stderr, quantity, level)

    def _signal2(self, cells: Floats) -> Floats:
        """Squared norms of rows, unbiased."""
        return np.asarray((cells * cells).sum(axis=-1) * self.scale - self.tau)

    def _product(self, left: Floats, right: Floats, level: float) -> RowEstimates:
        """Inner products of two rows: a quarter of how much longer their sum is than their difference.

        One row is stretched as the other is shortened, until both are as long: then sum and difference are independent,
        each squared norm has the interval of squared norms, and both make that of the product (Zou & Donner 2008).
        """
        value = np.asarray((left * right).sum(axis=-1)) * self.scale
        norms = self._signal2(left), self._signal2(right)
        stderr = np.sqrt(self.law.inner_estimate(*norms, value, (self.tau, self.tau)))
        first, second = (self.law.signal * np.maximum(norm, 0.0) + self.tau for norm in norms)
        ratio = (second / first) ** 0.25
        tau = self.tau * (ratio**2 + ratio**-2)
        left, right = left * ratio[..., None], right / ratio[..., None]
        reach = []
        outside, excess = 1 - checked_level(level), self.excess * (ratio**4 + ratio**-4)
        for both in (left + right, left - right):
            norm = (both * both).sum(axis=-1) * self.scale - tau
            low, high = self._chi2_ends(norm, tau, outside, excess)
            reach += [norm - low, high - norm]
        low, high = value - np.hypot(reach[0], reach[3]) / 4, value + np.hypot(reach[1], reach[2]) / 4
        if self.kept:
            further = _part_of_step(outside) * self.scale * np.abs([left, right]).max(axis=(0, -1))
            low, high = low - further, high + further
        return RowEstimates(value, low, high, None, stderr, "inner", level)

    def user_places(self, who: Who) -> Ints:
        """Positions of users."""
        return _positions_of(who, self.spec.users, self._user_names, "user")

    def feature_places(self, which: Who) -> Ints:
        """Positions of features."""
        return _positions_of(which, self.spec.features, self._feature_names, "feature")

    def _image(self, places: Ints, weights: Floats) -> Floats:
        """(k,) the image of a vector with these entries."""
        matrix = self._known_matrix()
        if matrix.family == "identity":
            out = np.zeros(matrix.columns)
            out[places] = weights
            return out
        return np.asarray(weights @ matrix.rows(places).astype(np.float64))

    def _known_matrix(self) -> Matrix:
        """The matrix, unless it is secret and its seed is not available."""
        if self.matrix is None:
            raise EstimateError("the matrix of this sketch is secret: features can be asked for with its seed only")
        return self.matrix

    @cached_property
    def _user_names(self) -> dict[Item, int] | None:
        return _positions(self.spec.users)

    @cached_property
    def _feature_names(self) -> dict[Item, int] | None:
        return _positions(self.spec.features)


def _part_of_step(outside: float) -> float:
    """How much of a step intervals reach further: half of it, and enough where noise is seldom other than 0.

    Noise of one cell that is other than 0 with the probability `outside` is missed by a normal interval; one step that
    is hardly more likely must lie inside.
    """
    from scipy.special import ndtri

    return max(0.5, 1 + float(ndtri(outside / 2)) * math.sqrt(outside))


def _positions(domain: ClosedDomain) -> dict[Item, int] | None:
    """Where each listed item is; None for ids."""
    return None if domain.items is None else {item: i for i, item in enumerate(domain.items)}


def _positions_of(who: Any, domain: ClosedDomain, names: dict[Item, int] | None, what: str) -> Ints:
    """Positions of ids or items; an array of their shape."""
    many = isinstance(who, (Sequence, np.ndarray)) and not isinstance(who, (str, bytes))
    flat = list(np.ravel(np.asarray(who, object))) if many else [who]
    flat = [name.item() if isinstance(name, np.generic) else name for name in flat]
    if names is not None:
        places = [names.get(name, -1) if not isinstance(name, bool) else -1 for name in flat]
    else:
        whole = [isinstance(name, int) and not isinstance(name, bool) for name in flat]
        places = [name if good and 0 <= name < domain.size else -1 for name, good in zip(flat, whole, strict=True)]
    if -1 in places:
        expected = "of the list" if names is not None else f"with an id from 0 to {domain.size - 1}"
        raise DomainError(f"expected a {what} {expected}, found an unknown one at position {places.index(-1)}")
    return np.array(places, np.int64).reshape(np.shape(np.asarray(who, object)) if many else ())


def _broadcast_positions(first: Ints, second: Ints) -> tuple[Ints, Ints]:
    """Two arrays of positions of one shape."""
    try:
        left, right = np.broadcast_arrays(first, second)
    except ValueError:
        raise EstimateError(
            f"pairs need two lists of one length, found shapes {first.shape} and {second.shape}"
        ) from None
    return np.ascontiguousarray(left).reshape(left.shape), np.ascontiguousarray(right).reshape(right.shape)
