"""Kind `gaussian`: a count or sum for each item of a listed domain, under exact Gaussian noise.

In: nothing. Out: calibration for noise on the real numbers and on the integers, the spec, the state, answers.
Touches: nothing. Modules are loaded on first use, so that importing the package stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sketchstream.kinds.gaussian.answers import Answer, GaussianEstimate, Ranked
    from sketchstream.kinds.gaussian.calibration import calibrate, delta_of, epsilon_of
    from sketchstream.kinds.gaussian.discrete import (
        DiscreteCalibration,
        calibrate_discrete,
        discrete_delta_of,
        verify_discrete,
    )
    from sketchstream.kinds.gaussian.expected import expected_errors
    from sketchstream.kinds.gaussian.spec import GaussianSpec
    from sketchstream.kinds.gaussian.state import (
        add_layer,
        create_state,
        merged_state,
        published_state,
        released_state,
        update,
    )
    from sketchstream.lattice import Lattice

__all__ = [
    "Answer",
    "DiscreteCalibration",
    "GaussianEstimate",
    "GaussianSpec",
    "Lattice",
    "Ranked",
    "add_layer",
    "calibrate",
    "calibrate_discrete",
    "create_state",
    "delta_of",
    "discrete_delta_of",
    "epsilon_of",
    "expected_errors",
    "merged_state",
    "published_state",
    "released_state",
    "update",
    "verify_discrete",
]

_HOMES = {
    "answers": ("Answer", "GaussianEstimate", "Ranked"),
    "calibration": ("calibrate", "delta_of", "epsilon_of"),
    "discrete": ("DiscreteCalibration", "calibrate_discrete", "discrete_delta_of", "verify_discrete"),
    "expected": ("expected_errors",),
    "lattice": ("Lattice",),
    "spec": ("GaussianSpec",),
    "state": ("add_layer", "create_state", "merged_state", "published_state", "released_state", "update"),
}


def __getattr__(name: str) -> Any:
    """Load a module on first use of one of its names."""
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
