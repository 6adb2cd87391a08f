"""What workers have published: windows, the answer for each, and for notebooks one object a window.

In: sealed sketches and frontiers, a configuration. Out: `Window`, `Windows` and what makes them. Touches: what its
sources read.
"""

from __future__ import annotations

from sketchstream.query.history import Window, Windows

__all__ = ["Window", "Windows"]
