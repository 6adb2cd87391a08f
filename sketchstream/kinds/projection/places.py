"""Where events go: the row of a user, to which the row of the matrix that a feature is projected by is added.

In: a `ProjectionSpec`, the key, the origin of a sketch. Out: `RowCells`. Touches: the states it is given.
Source: docs/theory/projection.md, section 1.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from sketchstream.array_types import Ints
from sketchstream.items.arrays import Pairs
from sketchstream.items.batch import Invalid, Outside
from sketchstream.items.domains import Index
from sketchstream.items.key import Key
from sketchstream.kinds.linear.events import hint_of, in_units, valid_events
from sketchstream.kinds.projection import mechanism
from sketchstream.kinds.projection.matrices.matrix import Matrix
from sketchstream.kinds.projection.spec import ProjectionSpec, secret_seed

if TYPE_CHECKING:
    from sketchstream.published import Origin

MATRICES = 4
"""Public matrices that are kept for all sketches of a process."""
NOWHERE = ("0:", "")
"""The scope of a sketch without a name."""
MAX_SUM = (1 << 63) - 1
"""Largest absolute sum of weights of one row, in lattice units."""


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
        """Text with sizes only."""
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
            mechanism.apply(self.spec, self.matrix, cells, users, features, amounts, counters)
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
            mechanism.apply(self.spec, self.matrix, cells, users, features, sums, most=MAX_SUM)
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
