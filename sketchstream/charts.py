"""Charts: reach, exact counts and numbers over time, each with its intervals and, where it is known, the truth.

In: numbers that were published or reconstructed. Out: a PNG image, or an SVG that is a part of a page: it takes its
colors from the page, so that it can be read on light and dark paper. Touches: nothing. Needs matplotlib, asked for
when a chart is drawn.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from sketchstream.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]

BLUE: Final = "#1f5fa8"
INK: Final = "#1d2733"
GREY: Final = "#55616e"
LINE: Final = "#e3e7eb"
SERIES: Final = (BLUE, "#14755f", "#a8560a", "#8b3f8f")
PAGE_COLORS: Final = {
    BLUE: "--blue",
    INK: "--ink",
    GREY: "--muted",
    LINE: "--line",
    SERIES[1]: "--green",
    SERIES[2]: "--orange",
    SERIES[3]: "--violet",
    "#000000": "--ink",
}
"""Names under which a page says what a color of a chart is."""
MANY: Final = 40
"""More windows than this are drawn as a line with its band, not as dots with bars."""
LABELS: Final = 12
"""At most so many windows have a label."""
WRITTEN: Final = (24, 8)
"""Tables of at most so many rows and columns have their numbers written into the heat map."""
TICKS: Final = tuple(digit * 10**power for power in range(7) for digit in (1, 2, 5))


@dataclass(frozen=True)
class Curve:
    """Numbers of items by count: seen at least k times, or exactly k times.

    Args:
        k: (n,) ascending, from 1.
        value: (n,) numbers of items.
        low: (n,) lower ends of the intervals; equal to `value` without intervals.
        high: (n,) upper ends of the intervals; equal to `value` without intervals.
        truth: (n,), or None.
    """

    k: npt.NDArray[np.int64]
    value: Floats
    low: Floats
    high: Floats
    truth: Floats | None = None

    def spoken(self, name: str) -> str:
        """The curve's shape in a sentence, for those who do not see it."""
        chosen = [index for index, k in enumerate(self.k) if int(k) in TICKS]
        parts = [f"k = {self.k[at]}: {self.value[at]:,.0f}" for at in chosen]
        return f"{name}. " + ", ".join(parts) + "."


@dataclass(frozen=True)
class Series:
    """One number over time: estimates with intervals, and the truth if it is known.

    Args:
        label: what it is.
        value: (n,) estimates, one for each window.
        low: (n,) lower ends of the intervals.
        high: (n,) upper ends of the intervals.
        truth: (n,), or None.
    """

    label: str
    value: Floats
    low: Floats
    high: Floats
    truth: Floats | None = None


@dataclass(frozen=True)
class Chart:
    """A chart of a page: its SVG element, and what stands below it."""

    svg: str
    caption: str


def reach_chart(curve: Curve, title: str, axis: str, caption: str) -> Chart:
    """Items counted at least k times, k on a logarithmic axis."""
    return Chart(_element(lambda axes: _draw_reach(axes, curve, title, axis), curve.spoken(axis)), caption)


def exact_chart(curve: Curve, title: str, axis: str, caption: str) -> Chart:
    """Items counted exactly k times, as bars."""
    return Chart(_element(lambda axes: _draw_exact(axes, curve, title, axis), curve.spoken(axis)), caption)


def series_chart(series: Sequence[Series], windows: Sequence[str], title: str, axis: str, caption: str) -> Chart:
    """A few numbers, from the largest to the smallest, over all windows."""
    spoken = f"{axis}, {windows[0]} to {windows[-1]}. " + " ".join(
        f"{' '.join(one.label.split())}: {one.value.min():,.0f} to {one.value.max():,.0f}." for one in series
    )
    return Chart(_element(lambda axes: _draw_series(axes, series, windows, title, axis), spoken), caption)


def comparison(
    reach: Curve,
    series: Sequence[Series],
    windows: Sequence[str],
    *,
    reach_title: str,
    series_title: str,
    item: str,
) -> bytes:
    """A PNG image of two panels: the k+ reach of one window, and a few numbers over all windows.

    Args:
        reach: left panel.
        series: right panel, from the largest to the smallest.
        windows: (n,) labels of the windows.
        reach_title: above the left panel.
        series_title: above the right panel.
        item: what is counted, in the plural.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure = _figure(11.0, 4.5)
    left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.15))
    _draw_reach(left, reach, reach_title, f"{item} counted at least k times")
    _draw_series(right, series, windows, series_title, item)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=110, metadata={"Software": None})
    return out.getvalue()


def draw_panels(figure: Figure, title: str, reach: Curve, exact: Curve) -> None:
    """Two panels of a figure: items counted exactly, and at least, so many times."""
    left, right = figure.subplots(1, 2)
    _draw_exact(left, exact, "Seen exactly k times", "items")
    _draw_reach(right, reach, "Seen k times or more", "items")
    figure.suptitle(title, fontsize=10, color=INK)


def draw_bars(
    figure: Figure, title: str, names: Sequence[str], value: Floats, low: Floats, high: Floats, axis: str
) -> None:
    """Horizontal bars with intervals, the first on top.

    Args:
        figure: an empty one.
        title: of the figure.
        names: of n bars.
        value: (n,) lengths.
        low: (n,) lower ends.
        high: (n,) upper ends.
        axis: what is counted.
    """
    axes = figure.subplots(1, 1)
    at = np.arange(len(names))
    axes.barh(at, value, color=BLUE, alpha=0.35)
    axes.errorbar(value, at, xerr=[value - low, high - value], fmt="none", ecolor=INK, elinewidth=1, capsize=2)
    axes.set_yticks(at, list(names))
    axes.invert_yaxis()
    axes.set_xlabel(axis, color=GREY)
    axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=10, color=INK)


def draw_heat_map(figure: Figure, title: str, values: Floats, names: Sequence[str] | None, meaning: str) -> None:
    """A square of colours, dark where values are small.

    Args:
        figure: an empty one.
        title: of the figure.
        values: (n, n).
        names: of the n rows and columns; None where they have none, or there are too many.
        meaning: of the colours.
    """
    axes = figure.subplots(1, 1)
    drawn = axes.imshow(values, cmap="Blues_r", interpolation="nearest")
    axes.tick_params(length=0, labelsize=7)
    if names is None:
        axes.set_xticks([])
        axes.set_yticks([])
    else:
        axes.set_xticks(np.arange(len(names)), list(names), rotation=90)
        axes.set_yticks(np.arange(len(names)), list(names))
    axes.spines[:].set_visible(False)
    figure.colorbar(drawn, ax=axes, shrink=0.8).set_label(meaning, color=GREY)
    figure.suptitle(title, fontsize=10, color=INK)


def draw_columns(
    axes: Axes, title: str, names: Sequence[str], value: Floats, ends: tuple[Floats, Floats] | None, axis: str
) -> None:
    """Upright bars with intervals.

    Args:
        axes: of one panel.
        title: of the panel.
        names: of n bars.
        value: (n,) heights.
        ends: (n,) lower and (n,) upper ends of the intervals, or None.
        axis: what the names are.
    """
    at = np.arange(len(names))
    axes.bar(at, value, width=0.72, color=BLUE, alpha=0.35, lw=0)
    if ends is not None:
        width = (value - ends[0], ends[1] - value)
        axes.errorbar(at, value, yerr=width, fmt="none", ecolor=INK, elinewidth=1, capsize=2)
    _finish_named(axes, title, names, axis)


def draw_band(
    axes: Axes, title: str, names: Sequence[str], value: Floats, ends: tuple[Floats, Floats] | None, axis: str
) -> None:
    """A line with the band of its intervals.

    Args:
        axes: of one panel.
        title: of the panel.
        names: of n points.
        value: (n,) the line.
        ends: (n,) lower and (n,) upper ends of the intervals, or None.
        axis: what the names are.
    """
    at = np.arange(len(names))
    if ends is not None:
        axes.fill_between(at, *ends, color=BLUE, alpha=0.2, lw=0)
    axes.plot(at, value, color=BLUE, lw=1.5)
    _finish_named(axes, title, names, axis)


def draw_table(
    axes: Axes, title: str, values: Floats, rows: Sequence[str], columns: Sequence[str], names: tuple[str, str]
) -> None:
    """A table as a heat map with its color bar; small tables have their numbers written in.

    Args:
        axes: of one panel.
        title: of the panel.
        values: (n, m) table; nan where there is nothing.
        rows: of n rows, from the top.
        columns: of m columns.
        names: of the rows and of the columns.
    """
    image = axes.imshow(values, aspect="auto", cmap="Blues", interpolation="nearest")
    axes.figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02, format="{x:,.0f}").outline.set_visible(False)
    for axis, labels, name in ((axes.yaxis, rows, names[0]), (axes.xaxis, columns, names[1])):
        step = -(-len(labels) // (LABELS if axis is axes.xaxis else 2 * LABELS))
        axis.set_ticks(np.arange(len(labels))[::step], list(labels)[::step])
        axis.set_label_text(name, color=GREY)
    _turn_long_labels(axes, columns)
    if values.shape[0] <= WRITTEN[0] and values.shape[1] <= WRITTEN[1]:
        dark = float(np.nanmax(values) + np.nanmin(values)) / 2
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                color = "white" if value > dark else INK
                axes.annotate(f"{value:,.0f}", (column, row), ha="center", va="center", color=color, fontsize=7)
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    axes.tick_params(color=GREY, labelcolor=GREY, labelsize=8)
    axes.spines[:].set_visible(False)


def _finish_named(axes: Axes, title: str, names: Sequence[str], axis: str) -> None:
    """Names along the lower axis, as many as can be read."""
    step = -(-len(names) // LABELS) if sum(map(len, names)) > 4 * LABELS else 1
    axes.set_xticks(np.arange(len(names))[::step], list(names)[::step])
    _turn_long_labels(axes, names)
    axes.set_xlabel(axis, color=GREY)
    _finish(axes, title, "", zero=False)


def _turn_long_labels(axes: Axes, names: Sequence[str]) -> None:
    """Slanted labels where upright ones would run into each other."""
    if sum(map(len, names)) > LABELS * 3 and max(map(len, names)) > 2:
        for tick in axes.get_xticklabels():
            tick.set(rotation=40, ha="right")


def notebook_figure(width: float, height: float) -> Figure:
    """An empty figure, inches wide and high, that a notebook shows without any setting of matplotlib.

    It lives outside pyplot: nothing keeps it open, and it needs no backend.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        return _notebook_class()(figsize=(width, height), layout="constrained")
    except ImportError:
        msg = "plots need matplotlib: pip install 'sketchstream[plots]'"
        raise MissingExtraError(msg) from None


@cache
def _notebook_class() -> type[Figure]:
    """The class of such figures; its base is imported with the first one."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class Picture(Figure):
        """A figure with a PNG for notebooks."""

        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            FigureCanvasAgg(self)

        def _repr_png_(self) -> bytes:
            out = io.BytesIO()
            self.savefig(out, format="png", dpi=100)
            return out.getvalue()

    return Picture


def _figure(width: float, height: float) -> Figure:
    """An empty figure, inches wide and high."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        msg = "charts need matplotlib: pip install 'sketchstream[plots]'"
        raise MissingExtraError(msg) from None
    return Figure(figsize=(width, height), layout="constrained")


def _element(draw: Callable[[Axes], None], spoken: str) -> str:
    """One panel as an SVG element of a page: text stays text, colors are the page's, no paper of its own."""
    figure = _figure(5.2, 3.9)
    from matplotlib import rc_context

    draw(figure.subplots())
    out = io.StringIO()
    # Without a date and with a fixed salt, equal inputs give equal files.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "sketchstream"}):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = re.sub(r' id="[\w.]+_\d{1,3}"', "", text[text.index("<svg") :])
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"'DejaVu Sans'[^;\"]*sans-serif", "system-ui, sans-serif", text)
    for color, name in PAGE_COLORS.items():
        text = text.replace(color, f"var({name})")
    return text.replace("<svg ", f'<svg role="img" aria-label="{html.escape(spoken)}" ', 1)


def _draw_reach(axes: Axes, curve: Curve, title: str, label: str) -> None:
    """Reach on a logarithmic axis of k: circles for the truth, a line with its band for the estimate."""
    if np.any(curve.high > curve.low):
        low = np.maximum(curve.low, 0)
        axes.fill_between(curve.k, low, curve.high, color=BLUE, alpha=0.2, lw=0, label="95% interval")
    axes.plot(curve.k, curve.value, color=BLUE, lw=1.8, label="estimate")
    if curve.truth is not None:
        axes.plot(curve.k, curve.truth, "o", color=INK, ms=3.2, mfc="none", mew=0.9, label="truth")
    axes.set_xscale("log")
    ticks = [k for k in TICKS if curve.k[0] <= k <= curve.k[-1]]
    axes.set_xticks(ticks, [f"{k:,}" for k in ticks])
    axes.minorticks_off()
    axes.set_xlabel("k (times)", color=GREY)
    if curve.truth is not None or np.any(curve.high > curve.low):
        axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    _finish(axes, title, label)


def _draw_exact(axes: Axes, curve: Curve, title: str, label: str) -> None:
    """Bars for the estimates, whiskers for their intervals, circles for the truth."""
    axes.bar(curve.k, curve.value, width=0.72, color=BLUE, alpha=0.55, lw=0, label="estimate")
    if np.any(curve.high > curve.low):
        ends = (np.maximum(curve.value - curve.low, 0), np.maximum(curve.high - curve.value, 0))
        axes.errorbar(
            curve.k, curve.value, yerr=ends, fmt="none", ecolor=INK, elinewidth=1.2, capsize=2.5, label="95% interval"
        )
    if curve.truth is not None:
        axes.plot(curve.k, curve.truth, "o", color=INK, ms=3.2, mfc="none", mew=0.9, label="truth")
    axes.set_xticks(curve.k, [str(k) for k in curve.k])
    axes.set_xlabel("k (times)", color=GREY)
    axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    _finish(axes, title, label)


def _draw_series(axes: Axes, series: Sequence[Series], windows: Sequence[str], title: str, label: str) -> None:
    """Numbers over time: error bars for estimates, dashes for the truth."""
    from matplotlib.lines import Line2D

    at = np.arange(len(windows))
    many = len(windows) > MANY
    # Neighbouring series stand a little apart, so that their bars can be told from each other.
    apart = np.linspace(-0.14, 0.14, len(series)) if len(series) > 1 else np.zeros(1)
    for one, color, shift in zip(series, SERIES, apart, strict=False):
        low, high = np.maximum(one.value - one.low, 0), np.maximum(one.high - one.value, 0)
        if one.truth is not None:
            axes.hlines(one.truth, at - 0.4, at + 0.4, color=INK, lw=1.1, zorder=1)
        if many:
            axes.fill_between(at, np.maximum(one.low, 0), one.high, color=color, alpha=0.2, lw=0)
            axes.plot(at, one.value, color=color, lw=1.5)
        else:
            axes.errorbar(at + shift, one.value, yerr=(low, high), fmt="o", ms=4.2, lw=1.5, capsize=2.5, color=color)
        axes.annotate(
            one.label,
            (1.01, float(one.value.mean())),
            xycoords=("axes fraction", "data"),
            color=color,
            va="center",
            fontsize=9,
        )
    legend = [
        Line2D([], [], color=GREY, marker="o", ms=4.2, lw=1.5, label="estimate, 95% interval"),
        Line2D([], [], color=INK, lw=1.1, label="truth"),
    ]
    if any(one.truth is not None for one in series):
        axes.legend(
            handles=legend, frameon=False, fontsize=9, labelcolor=INK, loc="upper left", bbox_to_anchor=(0.0, 0.6)
        )
    step = -(-len(windows) // LABELS) if any(len(label) > 3 for label in windows) else 1
    axes.set_xticks(at[::step], list(windows[::step]))
    if any(len(label) > 5 for label in windows):
        for tick in axes.get_xticklabels():
            tick.set(rotation=30, ha="right")
    axes.set_xlim(-0.7, len(windows) - 0.3)
    _finish(axes, title, label)


def _finish(axes: Axes, title: str, label: str, *, zero: bool = True) -> None:
    """From zero, thousands apart, light grid, no box, title to the left."""
    from matplotlib.ticker import StrMethodFormatter

    if zero:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_ylabel(label, color=GREY)
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    axes.grid(visible=True, which="major", color=LINE, lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_color(GREY)
    axes.tick_params(color=GREY, labelcolor=GREY, labelsize=9)
