"""The pseudo-inverse of a matrix that may have less than full rank.

In: a matrix. Out: its pseudo-inverse. Touches: nothing.
"""

from __future__ import annotations

import numpy as np

from sketchstream.array_types import Floats


def pseudo_inverse(matrix: Floats) -> Floats:
    """(n, m) Moore-Penrose inverse of an (m, n) matrix.

    Singular values that rounding alone can make are zero: those below max(m, n) times the machine epsilon times the
    largest (as in `numpy.linalg.matrix_rank`). `numpy.linalg.pinv` cuts at 1e-15 of it, and on some processors the
    zeros of a 112 x 256 matrix come out larger: then answers are 10^15 times too large.
    """
    return np.asarray(np.linalg.pinv(matrix, rcond=max(matrix.shape) * float(np.finfo(np.float64).eps)))
