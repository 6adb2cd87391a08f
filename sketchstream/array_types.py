"""Names for the types of arrays that modules of every room take and give.

In: nothing. Out: types. Touches: nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Complexes = npt.NDArray[np.complex128]
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
State = npt.NDArray[Any]
"""Counters of a sketch, of the type that its spec says."""
