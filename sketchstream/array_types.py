"""Names for the types of arrays that modules of every room take and give.

In: nothing. Out: types. Touches: nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Complexes = npt.NDArray[np.complex128]
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
