"""The mechanism: parameters of the noise, and updates, which add a row of the matrix to the row of each event's user.

In: a `ProjectionSpec`, the key, the origin of a sketch; events. Out: variances, the sensitivity for the ledger,
`RowCells`. Touches: the states it is given.
Source: docs/theory/projection.md, sections 1 to 4.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NoReturn

import numpy as np

from sketchstream.array_types import Ints
from sketchstream.errors import ItemError
from sketchstream.items.arrays import Pairs
from sketchstream.items.batch import Invalid, Outside
from sketchstream.items.domains import Index
from sketchstream.items.key import Key
from sketchstream.kinds.linear.events import hint_of, in_units, valid_events
from sketchstream.kinds.projection.calibration import on_grid, public_sigma2, secret_sigma2
from sketchstream.kinds.projection.matrices.kernels import add_rows
from sketchstream.kinds.projection.matrices.matrix import PRECOMPUTED, Matrix
from sketchstream.kinds.projection.matrices.sensitivity import longest_row, sparse, spectral
from sketchstream.kinds.projection.secret import SecretShift
from sketchstream.kinds.projection.spec import ProjectionSpec, secret_seed
from sketchstream.noise.laws import DiscreteGaussian
from sketchstream.privacy.calibration.discrete import GRID, calibrate_discrete, verify_discrete
from sketchstream.privacy.ledgers.gaussian_ledger import raise_noise
from sketchstream.privacy.losses.gaussian import UnitShift

if TYPE_CHECKING:
    from sketchstream.provenance import Origin

LISTED_WEIGHTS: Final = 64
"""Weights of an event, in lattice units, that are listed for the exact calibration of "identity"."""
IDENTITY_ROW: Final = np.ones((1, 1), np.int16)
EVENTS: Final = 1 << 16
"""Events whose rows of the matrix are made at a time, at most, where the matrix is too large to be kept."""
MATRICES: Final = 4
"""Public matrices that are kept for all sketches of a process."""
NOWHERE: Final = ("0:", "")
"""The scope of a sketch without a name."""
MAX_SUM: Final = (1 << 63) - 1
"""Largest absolute sum of weights of one row, in lattice units."""


def sensitivity2(spec: ProjectionSpec) -> Fraction:
    """An upper bound of the squared L2 norm by which one unit changes the state, lattice units; public matrix.

    The smallest over the promises of the spec.

    Raises:
        SpecError: the matrix is secret; its sensitivity is random.
    """
    matrix = spec.projection_matrix()
    candidates = []
    single = spec.max_weight if spec.max_weight is not None else spec.max_total
    if single is not None:
        candidates.append(Fraction(_units(single, spec) ** 2 * longest_row(matrix)))
    if spec.max_norm is not None:
        norm2 = _squared_units(spec.max_norm, spec)
        candidates.append(
            norm2 * (spectral(matrix) if spec.max_features is None else sparse(matrix, spec.max_features))
        )
    return min(candidates)


def row_norm2(spec: ProjectionSpec) -> Fraction:
    """The largest squared L2 norm by which one unit changes a row of the data, lattice units."""
    bounds = [Fraction(_units(most, spec) ** 2) for most in (spec.max_weight, spec.max_total) if most is not None]
    if spec.max_norm is not None:
        bounds.append(_squared_units(spec.max_norm, spec))
    return min(bounds)


@lru_cache(maxsize=256)
def unit_shift(spec: ProjectionSpec) -> UnitShift:
    """Shift of the cells and the number of events counted by one unit, for the ledger.

    Where the matrix is secret, this is a mean over matrices.
    """
    if spec.matrix_seed == "secret":
        return SecretShift.mean(row_norm2(spec), spec.k, spec.entry_variance)
    if not spec.counted_share:
        return UnitShift.of(sensitivity2(spec), _coordinates(spec), _shapes(spec))
    return spec.shift_of(sensitivity2(spec), _coordinates(spec))


@lru_cache(maxsize=256)
def sigma2(spec: ProjectionSpec, epsilon: Fraction, delta: Fraction) -> Fraction:
    """Parameter of the discrete Gaussian noise of every cell of one layer; verified."""
    if spec.matrix_seed == "secret":
        return secret_sigma2(epsilon, delta, row_norm2(spec), spec.k, spec.entry_variance)
    if shapes := _shapes(spec):
        alone = verify_discrete(epsilon, delta, calibrate_discrete(epsilon, delta, shapes).sigma2, shapes).sigma2
    else:
        alone = public_sigma2(epsilon, delta, sensitivity2(spec), _coordinates(spec))
    if not spec.counted_share:
        return alone
    beside = on_grid(alone / (1 - spec.counted_share))
    return on_grid(raise_noise(beside, Fraction(1, GRID), unit_shift(spec), spec.unit, epsilon, delta))


def _shapes(spec: ProjectionSpec) -> list[tuple[int, ...]]:
    """Every shift by one event of rows that are kept as they are, if they are few; else none."""
    few = spec.matrix == "identity" and spec.unit == "event" and spec.lattice.most <= LISTED_WEIGHTS
    return [(weight,) for weight in range(1, spec.lattice.most + 1)] if few else []


def _coordinates(spec: ProjectionSpec) -> int:
    """Cells that a unit can change; of rows that are kept as they are, before and after a look count separately."""
    if spec.matrix != "identity":
        return spec.k
    return 1 if spec.unit == "event" else 2 * spec.k


def creation_sigma2(spec: ProjectionSpec) -> Fraction:
    """Parameter of the layer that is drawn at creation."""
    return sigma2(spec, spec.epsilon, spec.delta)


def publication_sigma2(spec: ProjectionSpec) -> Fraction:
    """Parameter of the layer that is added at the seal; 0 if `intrusion` is False."""
    return sigma2(spec, spec.epsilon_publish, spec.delta_publish) if spec.intrusion else Fraction(0)


def noise_fourth(parameter: Fraction) -> float:
    """Fourth cumulant of the noise of a cell that has this parameter: 0 unless noise is a few whole numbers."""
    return DiscreteGaussian(parameter).fourth_cumulant if parameter else 0.0


def apply(
    spec: ProjectionSpec,
    matrix: Matrix,
    state: Ints,
    rows: Ints,
    features: Ints,
    weights: Ints,
    counted: Ints | None = None,
    *,
    most: int | None = None,
) -> None:
    """Add a batch of events to the state, in place, modulo 2^64: Y[row] += weight R[feature].

    Events outside a domain (any number outside 0 to size - 1, such as -1) or with too large a weight are no-ops, each
    decided from itself alone. Nothing depends on a counter. Where the matrix is too large to be kept, the rows of a
    batch are made anew for each batch and overwritten: rows kept for features seen recently would be state without
    noise.

    State and weights are in lattice units (`spec.lattice`), `most` is the largest absolute weight, by default that of
    one event, and the number of events that were no no-ops is added to `counted`, unless it is empty.

    Raises:
        ItemError: the arrays differ in length; nothing was applied.
    """
    if not len(rows) == len(features) == len(weights):
        raise ItemError(
            f"rows, features and weights must have one length, found {len(rows)}, {len(features)}, {len(weights)}"
        )
    limits = np.array([*state.shape[:1], matrix.features, spec.lattice.most if most is None else most], np.int64)
    users, touched, amounts = (np.ascontiguousarray(column, np.int64) for column in (rows, features, weights))
    number = np.zeros(1, np.int64) if counted is None or not counted.size else counted
    done = np.zeros(1, np.int64)
    try:
        _add(matrix, state, (users, touched, amounts), limits, (done, number))
    except BaseException:
        # Counters wrap: what went in is taken out exactly, so an interrupted batch was not applied.
        part, taken = slice(0, int(done[0])), np.zeros((2, 1), np.int64)
        _add(matrix, state, (users[part], touched[part], -amounts[part]), limits, (taken[0], taken[1]))
        number -= taken[1]
        raise


def _add(matrix: Matrix, state: Ints, events: tuple[Ints, Ints, Ints], limits: Ints, done: tuple[Ints, Ints]) -> None:
    """Add events, piece by piece; `done` counts those that went by, and those of them that were no no-ops."""
    users, touched, amounts = events
    if matrix.family == "identity":  # one column, whose rows are the cells
        inside = (users >= 0) & (users < limits[0]) & (touched >= 0) & (touched < limits[1])
        cells = np.where(inside, users * matrix.columns + touched, -1)
        nothing = np.zeros(len(cells), np.int64)
        flat = np.array([state.size, 1, limits[2]], np.int64)
        add_rows(state.reshape(-1, 1), (cells, nothing, amounts, nothing), IDENTITY_ROW, flat, done)
        cells.fill(0)
        return
    if matrix.precomputable:
        add_rows(state, (users, touched, amounts, touched), matrix.all_rows, limits, done)
        return
    step = max(1, min(EVENTS, PRECOMPUTED // matrix.columns))
    for start in range(0, len(users), step):
        part = slice(start, start + step)
        here = touched[part]
        inside = np.where((here >= 0) & (here < matrix.features), here, 0)
        distinct, places = np.unique(inside, return_inverse=True)
        made = matrix.rows(distinct)
        add_rows(state, (users[part], here, amounts[part], places.astype(np.int64)), made, limits, done)
        made.fill(0)
        distinct.fill(0)


def _units(bound: Fraction, spec: ProjectionSpec) -> int:
    """The largest whole number of lattice units within a bound."""
    return math.floor(bound * (1 << spec.fraction_bits))


def _squared_units(bound: Fraction, spec: ProjectionSpec) -> Fraction:
    """The largest squared norm of an integer vector within a bound of the norm."""
    return Fraction(math.floor((bound * (1 << spec.fraction_bits)) ** 2))


class RowCells:
    """Finds the row of each event's user and the number of its feature, holds the matrix, and adds its rows.

    Args:
        key: hash key, needed if users or features are listed or the matrix is secret.
        scope: (name, window) of a secret matrix, see `secret_scope`.
    """

    __slots__ = ("_features", "_users", "matrix", "spec")

    def __init__(self, spec: ProjectionSpec, key: Key | None, scope: tuple[str, str] = NOWHERE) -> None:
        self.spec = spec
        self._users = Index.build(spec.users, key if spec.users.listed else None)
        self._features = Index.build(spec.features, key if spec.features.listed else None)
        self.matrix = matrix_of(spec, key, scope)

    def __repr__(self) -> str:
        return f"<RowCells of {self._users.slots} users and {self._features.slots} features>"

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: a secret matrix must not leave the process."""
        raise TypeError("the places of a projection cannot be pickled: they hold its matrix, which may be secret")

    @property
    def slots(self) -> int:
        """Counters of a sketch: users times k."""
        return self._users.slots * self.spec.k

    def places(self, pairs: Pairs) -> tuple[Ints, Ints]:
        """(n,) numbers of users and (n,) of features; -1 outside their domain."""
        return self._users.locate(pairs.rows), self._features.locate(pairs.items)

    def locate(self, pairs: Pairs) -> Ints:
        """(n,) first slot of each pair's user; -1: the user or the feature is outside its domain."""
        users, features = self.places(pairs)
        inside = (users >= 0) & (features >= 0)
        features.fill(0)
        return np.where(inside, users * self.spec.k, -1)

    def apply(self, state: Ints, items: Pairs, weights: object, *, invalid: Invalid, counters: Ints) -> None:
        """Add to each user's row the weight times the feature's row of the matrix, wrapping."""
        lattice = self.spec.lattice
        units, good = in_units(lattice, weights, len(items))
        amounts = np.array(units, np.int64)  # a copy of its own, which is erased
        users, features = self.places(items)
        try:
            outside, hint = (users < 0) | (features < 0), hint_of(lattice)
            valid = valid_events(outside, good, invalid, lattice.max_weight, bound=self.spec.bounding, hint=hint)
            users[~valid] = -1
            cells = state.reshape(-1, self.spec.k)
            apply(self.spec, self.matrix, cells, users, features, amounts, counters)
        finally:
            for scratch in (users, features, amounts):
                scratch.fill(0)

    def apply_sums(
        self, state: Ints, items: Pairs, sums: Ints, events: Ints, *, invalid: Outside, counters: Ints
    ) -> None:
        """Add to each user's row the sum times the feature's row of the matrix, wrapping."""
        users, features = self.places(items)
        try:
            valid = valid_events((users < 0) | (features < 0), None, invalid)
            cells = state.reshape(-1, self.spec.k)
            apply(self.spec, self.matrix, cells, users, features, sums, most=MAX_SUM)
            counters += events[valid].sum()
        finally:
            users.fill(0)
            features.fill(0)


def matrix_of(spec: ProjectionSpec, key: Key | None, scope: tuple[str, str]) -> Matrix:
    """The matrix of one sketch.

    A public matrix is shared by all sketches of a process. A secret one belongs to one name, revision and window: the
    partitions of a window share it, and nothing else does.
    """
    if spec.matrix_seed == "public":
        return _share_matrix(spec.projection_matrix())
    assert key is not None
    return spec.projection_matrix(secret_seed(key, spec, *scope))


def secret_scope(origin: Origin) -> tuple[str, str]:
    """(name, window) for which one secret matrix is made."""
    window = "" if origin.window is None else f"{origin.window[0]}..{origin.window[1]}"
    return f"{origin.revision}:{origin.name}", window


@lru_cache(maxsize=MATRICES)
def _share_matrix(matrix: Matrix) -> Matrix:
    """The one object for equal public matrices, which keeps its rows."""
    return matrix
