"""Marks: which windows of a sketch may lack records, or may hold records that the log has lost.

In: how far a sketch is sealed, where the windows in question end. Out: marks, and the numbers they are stored and
published as. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sketchstream.stream.windows.calendar import NO_TIME

NAMES = ("partial_through", "partial_from", "diverged_through", "diverged_from")
"""Names of the four numbers of a frontier's two marks, where it is stored or published."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Windows of one sketch in one partition that carry a mark: those that end after `after` and by `through`.

    They follow each other, so good windows between two losses carry the mark too: it says "may".

    Args:
        after: ms since 1970; windows that end by then are not affected.
        through: ms since 1970; NO_TIME: there is no such window.
    """

    after: int = NO_TIME
    through: int = NO_TIME

    def covers(self, end: int) -> bool:
        """Whether a window that ends then carries the mark."""
        return self.after < end <= self.through

    def extended(self, sealed_through: int, end: int) -> Mark:
        """The mark with all windows that are not sealed yet and end by `end`."""
        if self.through == NO_TIME:
            return Mark(sealed_through, end)
        return Mark(self.after, max(self.through, end))


UNMARKED = Mark()


def numbers(partial: Mark, diverged: Mark) -> dict[str, int]:
    """A frontier's marks by `NAMES`."""
    return dict(zip(NAMES, (partial.through, partial.after, diverged.through, diverged.after), strict=True))


def read(fields: Mapping[str, int]) -> tuple[Mark, Mark]:
    """The marks that `numbers` wrote, perhaps without those that are not set: partial, diverged."""
    through, after, diverged_through, diverged_after = (fields.get(name, NO_TIME) for name in NAMES)
    return Mark(after, through), Mark(diverged_after, diverged_through)
