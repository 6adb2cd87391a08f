"""Publications of workers: windows, the answer for each, and one object per window for notebooks.

In: sealed sketches and frontiers, a configuration. Out: `Window`, `Windows` and their readers. Touches: only
what its sources read.
"""

from __future__ import annotations

from sketchstream.query.history import Window, Windows

__all__ = ["Window", "Windows"]
