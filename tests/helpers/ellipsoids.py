"""The minimum enclosing ellipsoid of a workload, with which tests and benchmarks compare optima."""

from __future__ import annotations

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kinds.workload.strategies.ellipsoid import enclosing_weights
from sketchstream.kinds.workload.strategies.optimise import Reduced


def enclosing_shape(reduced: Reduced, tolerance: float = 1e-3) -> Floats:
    """(r, r) the matrix F F' of the enclosing ellipsoid F B_2, which holds every column."""
    columns = reduced.columns
    weights = enclosing_weights(columns, tolerance)
    moment = (columns * weights) @ columns.T
    heights = np.einsum("ij,ij->j", columns, np.linalg.solve(moment, columns))
    out: Floats = moment * float(heights.max())
    return out
