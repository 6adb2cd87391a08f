"""The one door through which functions are compiled.

In: a flat function. Out: the same function, compiled when it is first called. Touches: numba's cache on disk.

numba's cache notices an edit of a function's own file only: kernels that call each other share a file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile a flat function with numba: cached on disk, run without the interpreter lock, exact arithmetic.

    Where no cache directory can be written (a read-only home), the function is compiled anew in each process.
    """
    try:
        compiled: Any = numba.njit(cache=True, nogil=True, fastmath=False)(function)
    except RuntimeError:
        compiled = numba.njit(nogil=True, fastmath=False)(function)
    out: Function = compiled
    return out
