"""Calibration of Gaussian noise: arithmetic on epsilon, delta and sigma that knows nothing of sketches.

In: nothing. Out: noise on the real numbers (`continuous`), and on the integers (`discrete`). Touches: nothing. Modules
are loaded on first use, so that importing the package stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sketchstream.privacy.calibration.continuous import calibrate, delta_of, epsilon_of
    from sketchstream.privacy.calibration.discrete import (
        DiscreteCalibration,
        calibrate_discrete,
        discrete_delta_of,
        verify_discrete,
    )

__all__ = [
    "DiscreteCalibration",
    "calibrate",
    "calibrate_discrete",
    "delta_of",
    "discrete_delta_of",
    "epsilon_of",
    "verify_discrete",
]

_CONTINUOUS = ("calibrate", "delta_of", "epsilon_of")


def __getattr__(name: str) -> Any:
    """Load a module on first use of one of its names."""
    from importlib import import_module

    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{'continuous' if name in _CONTINUOUS else 'discrete'}"), name)
