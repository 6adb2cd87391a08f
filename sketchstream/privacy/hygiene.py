"""Open states in this process: core dumps off, forks noticed.

In: nothing. Out: what the system agreed to; refusals. Touches: this process's dumpable flag and core limit.
Source: prctl(2), getrlimit(2).

All of it is best effort against somebody who reads this machine's memory: registers, swap, freed heap and a cipher
library's own copies are out of reach. `docs/guarantee.md` says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys
from dataclasses import dataclass

from sketchstream.errors import SealedError

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


# Forks: a forked child holds a second copy of every open state. Two copies that are both used are two looks.

_forks = 0


def _forked() -> None:
    """One more fork between this process and the one that loaded the module."""
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)


def process() -> tuple[int, int]:
    """Identity of this process: differs in a forked child, also when a process number is used again."""
    return os.getpid(), _forks


def require_home(home: tuple[int, int], what: str) -> None:
    """Refuse to use an open state in a child that was forked after the state was created.

    Args:
        home: `process()` at the time the state was made.
        what: the step that is refused.

    Raises:
        SealedError: in a forked child.
    """
    if process() != home:
        msg = (
            f"{what} is refused in a forked process: parent and child would both go on with one noise, and two such "
            "states together show exact counts; create the sketch in the process that uses it"
        )
        raise SealedError(msg)
