"""Exact integer noise: discrete Laplace, randomized response, discrete Gaussian.

In: an integer array and an exact rational parameter. Out: the same array with noise added in place.
Touches: the operating system's entropy source. Everything here loads its compiled and cryptographic parts on first
use, so importing the package stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sketchstream.noise.gaussian import discrete_gaussian
    from sketchstream.noise.joint import joint_response
    from sketchstream.noise.laplace import discrete_laplace
    from sketchstream.noise.residues import uniform_residues
    from sketchstream.noise.response import randomized_response
    from sketchstream.noise.varied import discrete_gaussians

__all__ = [
    "discrete_gaussian",
    "discrete_gaussians",
    "discrete_laplace",
    "joint_response",
    "randomized_response",
    "uniform_residues",
]

_HOMES = {
    "discrete_laplace": "laplace",
    "joint_response": "joint",
    "randomized_response": "response",
    "discrete_gaussian": "gaussian",
    "uniform_residues": "residues",
    "discrete_gaussians": "varied",
}


def __getattr__(name: str) -> Any:
    """Load a sampler's module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
