"""Names of the laws of noise, as headers, ledgers and answers write them.

In: nothing. Out: the names, which of them are pure or Gaussian, the name of each law's parameter. Touches: nothing.
"""

from __future__ import annotations

from typing import Final

DISCRETE_LAPLACE: Final = "discrete-laplace"
DISCRETE_GAUSSIAN: Final = "discrete-gaussian"
DISCRETE_BALL: Final = "discrete-ball"
RANDOMIZED_RESPONSE: Final = "randomized-response"
PRESENCE_RESPONSE: Final = "presence-response"
JOINT: Final = "joint-"
"""Begins the name of a response law whose noise all counters of a slot share."""
SPECTRAL_LAPLACE: Final = "spectral-laplace"
SPECTRAL_GAUSSIAN: Final = "spectral-gaussian"

PURE_LAWS: Final = (
    DISCRETE_LAPLACE,
    RANDOMIZED_RESPONSE,
    JOINT + RANDOMIZED_RESPONSE,
    PRESENCE_RESPONSE,
    JOINT + PRESENCE_RESPONSE,
    DISCRETE_BALL,
    SPECTRAL_LAPLACE,
)
"""Laws whose losses are pure epsilons."""
GAUSSIAN_LAWS: Final = (DISCRETE_GAUSSIAN, SPECTRAL_GAUSSIAN)
"""Laws whose losses are those of Gaussian noise."""
LAWS: Final = frozenset({*PURE_LAWS, *GAUSSIAN_LAWS})
"""Laws of layers. The variance of a spectral law depends on the direction; the spec says how."""


def parameter_name(law: str) -> str:
    """Name of a law's parameter in headers and answers."""
    return "sigma2" if law.endswith("-gaussian") else "epsilon"
