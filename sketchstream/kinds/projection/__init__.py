"""Kind `projection`: noisy random projections of users' rows; distances, norms and inner products from them.

In: nothing. Out: the spec, the mechanism and the answers, loaded when they are first used. Touches: nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "spec": ("IdentityRowsWarning", "ProjectionSpec", "secret_seed"),
    "mechanism": (
        "add_layer",
        "apply",
        "creation_sigma2",
        "empty_state",
        "publication_sigma2",
        "row_norm2",
        "secret_loss_delta",
        "sensitivity2",
        "sigma2",
        "verify",
    ),
    "answers": ("Estimates", "Projection"),
    "neighbours": ("Distances", "Neighbours", "nearest"),
    "forecast": ("Expected", "best_columns", "expected"),
    "adversary": ("Extreme", "extremes"),
    "matrix": ("Matrix",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

if TYPE_CHECKING:
    from sketchstream.kinds.projection.adversary import Extreme, extremes
    from sketchstream.kinds.projection.answers import Estimates, Projection
    from sketchstream.kinds.projection.forecast import Expected, best_columns, expected
    from sketchstream.kinds.projection.matrix import Matrix
    from sketchstream.kinds.projection.mechanism import (
        add_layer,
        apply,
        creation_sigma2,
        empty_state,
        publication_sigma2,
        row_norm2,
        secret_loss_delta,
        sensitivity2,
        sigma2,
        verify,
    )
    from sketchstream.kinds.projection.neighbours import Distances, Neighbours, nearest
    from sketchstream.kinds.projection.spec import IdentityRowsWarning, ProjectionSpec, secret_seed

__all__ = [
    "Distances",
    "Estimates",
    "Expected",
    "Extreme",
    "IdentityRowsWarning",
    "Matrix",
    "Neighbours",
    "Projection",
    "ProjectionSpec",
    "add_layer",
    "apply",
    "best_columns",
    "creation_sigma2",
    "empty_state",
    "expected",
    "extremes",
    "nearest",
    "publication_sigma2",
    "row_norm2",
    "secret_loss_delta",
    "secret_seed",
    "sensitivity2",
    "sigma2",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Load a name's module on first use."""
    if name not in _HOME_OF:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
