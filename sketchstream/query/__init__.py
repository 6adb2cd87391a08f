"""What workers have published, for notebooks: one object a window, and a table of all.

In: a configuration. Out: `Windows`. Touches: the sealed topic or folder, reading.
"""

from __future__ import annotations

from sketchstream.query.history import Window, Windows, windows

__all__ = ["Window", "Windows", "windows"]
