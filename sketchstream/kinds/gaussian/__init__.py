"""Kind `gaussian`: exact Gaussian noise, and how large it has to be for (epsilon, delta).

In: nothing. Out: calibration for noise on the real numbers and on the integers. Touches: nothing.
"""

from sketchstream.kinds.gaussian.calibration import calibrate, delta_of, epsilon_of
from sketchstream.kinds.gaussian.discrete import (
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
