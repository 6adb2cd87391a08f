"""Decides when opening, sealing or releasing windows is long work, for which the worker polls meanwhile.

In: specs of the windows that a computation works on, one after the other. Out: whether the next one is long work.
Touches: nothing.
"""

from __future__ import annotations

from sketchstream.kinds.interface import Spec

LARGE_SLOTS = 1 << 17
"""Slots from which opening or sealing a window is long work: less than that takes milliseconds."""
MIN_SLOTS = 1 << 10
"""Slots that a window counts as at least: what a small one takes does not depend on its slots."""


class WorkPace:
    """Adds up the slots of the windows that a computation has worked on since it began or last paused."""

    def __init__(self) -> None:
        self._slots = 0

    def begin(self) -> None:
        """Begin another computation."""
        self._slots = 0

    def takes_long(self, spec: Spec) -> bool:
        """Whether opening or sealing the next window of this spec is long work.

        Work on a large window is long; so is, now and then, that on a small one, when the work that was done without a
        pause adds up to that on a large one. The worker polls meanwhile, be one window large or thousands small.
        """
        self._slots += max(MIN_SLOTS, spec.slots)
        if self._slots < LARGE_SLOTS:
            return False
        self._slots = 0
        return True


def copying_takes_long(windows: int) -> bool:
    """Whether a snapshot that copies this number of windows is long work, however small they are."""
    return MIN_SLOTS * windows >= LARGE_SLOTS
