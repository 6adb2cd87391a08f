"""Kind `gaussian`: a count or sum for each item of a listed domain, under exact Gaussian noise.

In: nothing. Out: the spec, the state, answers. Touches: nothing. Modules are loaded on first use, so that importing
the package stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sketchstream.kinds.gaussian.answers import Answer, GaussianEstimate, Ranked
    from sketchstream.kinds.gaussian.expected import expected_errors
    from sketchstream.kinds.gaussian.spec import GaussianSpec
    from sketchstream.kinds.gaussian.state import add_layer
    from sketchstream.lattice import Lattice

__all__ = [
    "Answer",
    "GaussianEstimate",
    "GaussianSpec",
    "Lattice",
    "Ranked",
    "add_layer",
    "expected_errors",
]

_HOMES = {
    "answers": ("Answer", "GaussianEstimate", "Ranked"),
    "expected": ("expected_errors",),
    "lattice": ("Lattice",),
    "spec": ("GaussianSpec",),
    "state": ("add_layer",),
}


def __getattr__(name: str) -> Any:
    """Load a module on first use of one of its names."""
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
