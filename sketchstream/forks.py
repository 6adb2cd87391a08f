"""Forks of this process, which are noticed: a forked child holds a second copy of every open state and keystream.

In: nothing. Out: the identity of this process; refusals. Touches: one handler that Python calls in forked children.
"""

from __future__ import annotations

import os

from sketchstream.errors import SealedError

_forks = 0


def _forked() -> None:
    """One more fork between this process and the one that loaded the module."""
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)


def process() -> tuple[int, int]:
    """Identity of this process: differs in a forked child, also if a process number is reused or C made the fork."""
    return os.getpid(), _forks


def require_same_process(home: tuple[int, int], what: str) -> None:
    """Refuse to use an open state in a child that was forked after the state was created.

    Args:
        home: `process()` at the time the state was made.
        what: the step that is refused.

    Raises:
        SealedError: in a forked child.
    """
    if process() != home:
        raise SealedError(
            f"{what} is refused in a forked process: parent and child would both go on with one noise, and two such "
            "states together show exact counts; create the sketch in the process that uses it"
        )
