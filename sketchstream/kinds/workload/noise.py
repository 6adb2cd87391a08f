"""Layers of noise for the state of a workload, exact, in place.

In: a law, a state. Out: the state with one independent layer added. Touches: the entropy source.
Source: Canonne, Kamath & Steinke 2020 (discrete Gaussian); Ghosh, Roughgarden & Sundararajan 2009 (discrete Laplace).
"""

from __future__ import annotations

from sketchstream import noise
from sketchstream.array_types import Ints
from sketchstream.errors import SpecError
from sketchstream.kinds.workload.strategies.ball import add_ball_noise
from sketchstream.kinds.workload.strategies.mechanism import LayerLaw
from sketchstream.noise.entropy import WordSource


def add_noise(law: LayerLaw, state: Ints, entropy: WordSource | None = None) -> None:
    """Add one independent layer to every counter, in place, wrapping modulo 2^64.

    Args:
        law: law of the layer.
        state: (m,) int64, C-contiguous.
        entropy: words for tests; by default keystreams under keys that are erased.

    Raises:
        SpecError: the state does not have the law's length.
    """
    if state.shape != (law.length,):
        msg = f"the state must be an array of {law.length} counters, found shape {state.shape}"
        raise SpecError(msg)
    if law.name == "discrete-gaussian":
        noise.discrete_gaussian(state, law.parameter, entropy)
    elif law.name == "discrete-laplace":
        noise.discrete_laplace(state, law.parameter, entropy)
    else:
        add_ball_noise(state, law.parameter, entropy)
