"""The noises of a state, each with its mathematics in one class, and the samplers that draw them.

In: a name, the fields of a spec. Out: the `NoiseScheme`. Touches: nothing.
"""

from __future__ import annotations

from typing import Final

from sketchstream.kinds.convolution.fourier.spectrum import Layout, NoiseKind
from sketchstream.kinds.convolution.mechanisms import positions, spectral
from sketchstream.kinds.convolution.mechanisms.scheme import ConvolutionFields, NoiseOptions, NoiseScheme
from sketchstream.kinds.linear.causal import MAX_ROOT_POSITIONS

NOISES: Final[dict[NoiseKind, dict[Layout, type[NoiseScheme]]]] = {
    "gaussian": {"fourier": spectral.FourierGaussian, "time": spectral.TimeGaussian},
    "laplace": {"fourier": spectral.FourierLaplace, "time": spectral.TimeLaplace},
    "laplace_pure": {"fourier": spectral.FourierPure, "time": spectral.FourierPure},
    "counts": {"fourier": positions.Counts, "time": positions.Counts},
    "tree": {"fourier": positions.Blocks, "time": positions.Blocks},
    "toeplitz": {"fourier": positions.Toeplitz, "time": positions.Toeplitz},
}
"""Every noise by its name, in the order in which "auto" tries them, and by the layout that is asked for."""


def scheme_of(name: NoiseKind, spec: ConvolutionFields, options: NoiseOptions) -> NoiseScheme:
    """The noise of this name."""
    scheme = NOISES[name][options.layout]
    long = scheme is positions.Toeplitz and spec.length > MAX_ROOT_POSITIONS
    return (positions.SpreadToeplitz if long else scheme)(spec, options)
