"""UpSet plot of groups: bars of the largest regions with intervals, over a matrix of the groups that they are in.

In: an `Overlap`. Out: a figure, and a file if a path is given. Touches: that file. Needs matplotlib, imported on use.
Source: Lex et al., IEEE TVCG 2014 (UpSet).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sketchstream import charts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sketchstream.kinds.profile.overlap.answers import Overlap

MOST: Final = 30
"""Regions that are drawn, the largest ones."""


def plot(overlap: Overlap, path: Path | None = None, *, intervals: bool = True, most: int = MOST) -> Figure:
    """Draw regions whose interval does not contain 0, largest first; if there is none, the largest one.

    Args:
        overlap: the answers.
        path: file to write; its ending decides the format.
        intervals: whether intervals are valid; without them all regions above 0 are drawn, without whiskers.
        most: regions at most.
    """
    rows = overlap.regions()
    told = [row for row in rows if (row["low"] if intervals else row["value"]) > 0][:most] or rows[:1]
    reaches = [overlap.reach(name) for name in overlap.groups]
    number, groups = len(told), len(overlap.groups)
    figure = charts.notebook_figure(max(5.0, 1.8 + 0.34 * number + 2.2), 3.2 + 0.28 * groups)
    grid = figure.add_gridspec(
        2, 2, width_ratios=(2.2, max(2.0, 0.34 * number)), height_ratios=(3.0, 0.28 * groups + 0.4), wspace=0.05
    )
    bars, matrix, sizes = (
        figure.add_subplot(grid[0, 1]), figure.add_subplot(grid[1, 1]), figure.add_subplot(grid[1, 0])
    )  # fmt: skip
    at, values = np.arange(number), np.array([row["value"] for row in told])
    bars.bar(at, values, color=charts.BLUE, width=0.6)
    if intervals:
        low, high = (np.array([row[end] for row in told], np.float64) for end in ("low", "high"))
        bars.errorbar(at, values, [values - low, high - values], fmt="none", ecolor=charts.INK, elinewidth=1, capsize=2)
    bars.set_xlim(-0.6, number - 0.4)
    bars.set_ylim(bottom=0)
    bars.set_xticks([])
    bars.set_ylabel("items in exactly these groups")
    bars.yaxis.set_major_formatter("{x:,.0f}")
    _draw_matrix(matrix, overlap, told)
    sizes.barh(np.arange(groups), [one.value for one in reaches], color=charts.GREY, height=0.6)
    sizes.invert_xaxis()
    sizes.set_ylim(groups - 0.5, -0.5)
    sizes.set_yticks([])
    sizes.xaxis.set_major_formatter("{x:,.0f}")
    sizes.tick_params(axis="x", labelrotation=45, labelsize=7)
    sizes.set_xlabel("items of each group")
    for axes in (bars, matrix, sizes):
        for side in ("top", "right", *(("left", "bottom") if axes is matrix else ())):
            axes.spines[side].set_visible(False)
    if path is not None:
        figure.savefig(path, dpi=130, bbox_inches="tight")
    return figure


def _draw_matrix(matrix: Axes, overlap: Overlap, told: list[dict[str, Any]]) -> None:
    """A column of dots for each region: dark in the groups that its items are in, joined by a line."""
    groups = len(overlap.groups)
    for column, row in enumerate(told):
        inside = [overlap.groups.index(name) for name in row["in"]]
        outside = [group for group in range(groups) if group not in inside]
        matrix.scatter([column] * len(outside), outside, s=28, color=charts.LINE, zorder=2)
        matrix.plot([column] * len(inside), inside, color=charts.INK, linewidth=1.5, marker="o", markersize=5, zorder=3)
    matrix.set_xlim(-0.6, len(told) - 0.4)
    matrix.set_ylim(groups - 0.5, -0.5)
    matrix.set_xticks([])
    matrix.set_yticks(range(groups), [name.replace("$", r"\$") for name in overlap.groups])
    matrix.tick_params(axis="y", length=0)
