"""Pictures of a profile.

In: a `Profile`. Out: a figure, and a file if a path is given. Touches: that file. Needs matplotlib, asked for when it
is used.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sketchstream.errors import MissingExtraError
from sketchstream.estimate.export import heading, tail_ends
from sketchstream.estimate.observed import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sketchstream.estimate.result import Profile

ESTIMATE, BAND, TRUTH = "#1f5fa8", "#9dc3e6", "#c0392b"


def plot(profile: Profile, path: Path | None = None, truth: Floats | None = None) -> Figure:
    """Profile (left) and k+ curve (right), each with its 95% band; the truth too where it is known."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        from sketchstream.estimate.picture import Picture
    except ImportError:
        msg = "plots need matplotlib: pip install 'sketchstream[plots]'"
        raise MissingExtraError(msg) from None
    figure = Picture(figsize=(11, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    reach, ends = tail_ends(profile), profile.interval("counts")
    t = np.arange(1, profile.max_count + 1)
    real = None if truth is None else np.asarray(truth, dtype=np.float64)
    _curve(left, t, profile.counts[1:], ends[1:, 0], ends[1:, 1], real, "estimate")
    left.set_title("Items seen exactly t times")
    left.set_xlabel("t")
    over = None if real is None else np.cumsum(real[::-1])[::-1]
    _curve(right, t, reach[1:-1, 0], reach[1:-1, 1], reach[1:-1, 2], over, "estimate")
    right.set_title("Items seen k times or more")
    right.set_xlabel("k")
    figure.suptitle(heading(profile), fontsize=10)
    if path is not None:
        figure.savefig(path, dpi=130)
    return figure


def _curve(axes: Any, t: Any, value: Floats, low: Floats, high: Floats, truth: Floats | None, name: str) -> None:
    """One curve with its band; both axes logarithmic where the range asks for it."""
    shown = value > 0
    last = _last(value, low, truth)
    t, value, low, high = t[:last], value[:last], low[:last], high[:last]
    floor = max(float(value[value > 0].min(initial=np.inf)), 0.5) if (value > 0).any() else 0.5
    floor = min(floor, 1.0)
    axes.fill_between(
        t, np.maximum(low, floor / 10), np.maximum(high, floor / 10), color=BAND, lw=0, label="95% interval"
    )
    mark = "o" if last <= 60 else ""
    axes.plot(t, np.where(value > 0, value, np.nan), color=ESTIMATE, marker=mark, ms=3.5, lw=1.6, label=name)
    if truth is not None:
        real = np.asarray(truth[1 : last + 1])
        k = np.arange(1, real.size + 1)
        axes.plot(
            k,
            np.where(real > 0, real, np.nan),
            color=TRUTH,
            ls="",
            marker="x" if last <= 60 else ".",
            ms=4 if last <= 60 else 2,
            label="truth",
        )
    if shown.any():
        axes.set_yscale("log")
        top = max(float(value.max()), float(truth[1:].max()) if truth is not None and truth.size > 1 else 0.0)
        axes.set_ylim(floor / 2, top * 3)
    if last > 30:
        axes.set_xscale("log")
    axes.set_ylabel("items")
    axes.grid(True, which="major", alpha=0.3, lw=0.6)
    axes.legend(frameon=False, fontsize=9)


def _last(value: Floats, low: Floats, truth: Floats | None) -> int:
    """Number of counts to show: up to the last that holds half an item, or that surely is occupied."""
    seen = np.flatnonzero((value >= 0.5) | (low > 0.5))
    last = int(seen[-1]) + 2 if seen.size else 10
    if truth is not None and np.any(truth[1:] > 0):
        last = max(last, int(np.flatnonzero(truth > 0)[-1]) + 1)
    return max(min(last, value.size), 1)
