"""For users' own tests: a configuration run in memory, with a clock that tests move.

In: a configuration, records. Out: `Driver`. Touches: nothing.
"""

from sketchstream.testing.driver import Driver

__all__ = ["Driver"]
