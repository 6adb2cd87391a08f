"""One exact layer of noise for a state, in every layout.

In: the spec, the state, the law of the layer. Out: the state with one draw added to each word. Touches: the entropy
source.
Source: docs/theory/convolution.md, sections 6 and 7.
"""

from __future__ import annotations

import numpy as np

from sketchstream.array_types import Ints
from sketchstream.errors import SpecError
from sketchstream.kinds.convolution.noises.scheme import NoiseLayer
from sketchstream.kinds.convolution.spec import ConvolutionSpec
from sketchstream.noise.blocks import flat
from sketchstream.noise.entropy import WordSource


def add_noise(
    spec: ConvolutionSpec, state: Ints, layer: NoiseLayer | None = None, entropy: WordSource | None = None
) -> None:
    """Add one independent layer of exact noise to a state, in place.

    Args:
        spec: the specification.
        state: (size,) int64, C-contiguous; sums wrap.
        layer: the law; default the creation layer.
        entropy: words for tests; by default a keystream under a key that is erased before this returns.

    Raises:
        SpecError: the state is not one of this spec.
    """
    view = flat(state, (np.int64,))
    if view.size != spec.size:
        msg = f"state must have {spec.size} words, found {view.size}"
        raise SpecError(msg)
    spec.scheme.add_noise(view, spec.layer() if layer is None else layer, entropy)
