"""Open states in this process: core dumps off, memory closed to other processes.

In: nothing. Out: what the system agreed to. Touches: this process's dumpable flag and core limit.
Source: prctl(2), getrlimit(2).

All of it is best effort against somebody who reads this machine's memory: registers, swap, freed heap and a cipher
library's own copies are out of reach. `docs/guarantee.md` says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import resource
import sys
from dataclasses import dataclass

_PR_SET_DUMPABLE = 4
_PR_GET_DUMPABLE = 3
"""Numbers of the options of prctl (linux/prctl.h)."""


@dataclass(frozen=True)
class Hardened:
    """What the operating system agreed to.

    Args:
        undumpable: no core dumps, and no other process of this user may read our memory.
        no_core: the core file size limit is 0, for children too.
    """

    undumpable: bool
    no_core: bool


def harden() -> Hardened:
    """Switch core dumps of this process off, and close its memory to other processes of the same user (Linux).

    Every command does this first. A program that uses the Python API decides for itself: nothing in the library calls
    it. Never raises: where a sandbox refuses, the result says so. Root, swap and hibernation are out of its reach.

    Returns:
        What the operating system agreed to.
    """
    no_core = undumpable = False
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        no_core = True
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL(None, use_errno=True)
            undumpable = libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 and libc.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) == 0
    return Hardened(undumpable, no_core)
