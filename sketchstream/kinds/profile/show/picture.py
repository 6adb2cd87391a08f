"""A figure that a notebook shows without any setting of matplotlib.

In: what matplotlib's `Figure` takes. Out: such a figure, with a PNG for notebooks. Touches: nothing. Needs matplotlib.
"""

from __future__ import annotations

import io

from matplotlib.figure import Figure


class Picture(Figure):
    """A matplotlib figure outside pyplot: nothing keeps it open, and it needs no backend."""

    def _repr_png_(self) -> bytes:
        """For notebooks."""
        out = io.BytesIO()
        self.savefig(out, format="png", dpi=100)
        return out.getvalue()
