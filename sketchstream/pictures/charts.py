"""Charts: reach, exact counts, numbers over time, bars, heat maps; with intervals and, if known, the truth.

In: numbers that were published or reconstructed. Out: a PNG image, or an SVG element of a page. The SVG takes its
colors from the page, for light and dark themes; it has no inline style, for strict content security policies; and it
comes with its points as text, for pointers, keyboards and screen readers.
Touches: nothing. Needs matplotlib, imported for the first chart.
"""

from __future__ import annotations

import html
import io
import math
import re
import textwrap
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Floats
from sketchstream.errors import optional_import
from sketchstream.texts.number_texts import number_text, with_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.backend_bases import RendererBase
    from matplotlib.figure import Figure

Times = npt.NDArray[np.datetime64]

BLUE: Final = "#1f5fa8"
INK: Final = "#1d2733"
GREY: Final = "#55616e"
GRID_LINE: Final = "#e3e7eb"
SERIES_COLORS: Final = (BLUE, "#14755f", "#a8560a", "#8b3f8f")
PAGE_COLORS: Final = {
    BLUE: "--blue",
    INK: "--ink",
    GREY: "--muted",
    GRID_LINE: "--line",
    SERIES_COLORS[1]: "--green",
    SERIES_COLORS[2]: "--orange",
    SERIES_COLORS[3]: "--violet",
    "#000000": "--ink",
}
"""The CSS variable of a page that stands for each color of a chart."""
MAX_DOTTED_WINDOWS: Final = 40
"""Most windows that are drawn as dots with bars; more of them are drawn as a line with its band."""
MAX_LABELS: Final = 12
"""Most windows that have a label."""
MAX_WRITTEN_CELLS: Final = (24, 8)
"""Most rows, and most columns, of a table whose numbers are written into the heat map."""
CELL_LETTER_INCHES, MARGIN_INCHES = 0.075, 0.6
"""Inches that a letter in a cell of a heat map takes, and inches of the margins around the cells and their names."""
TITLE_LETTER_INCHES: Final = 0.085
"""Inches that a letter of a title takes."""
NARROW_INCHES, WIDE_INCHES, TREND_INCHES = (5.2, 3.9), (11.0, 4.2), (5.2, 1.1)
"""Width and height of charts for narrow screens, for wide ones, and of small charts of a trend."""
MAX_NAME_LETTERS: Final = (26, 60)
"""Most letters of a bar's name, on narrow charts and on wide ones."""
PIXEL_COLUMNS: Final = 400
"""Columns of pixels: of more than twice as many numbers, the least and the largest of each column are drawn."""
MAX_POINTS: Final = 2000
"""Most numbers of a chart that it also has as words; of more, only its table has them."""
COUNT_TICKS: Final = tuple(digit * 10**power for power in range(7) for digit in (1, 2, 5))
_ONE_DRAWS: Final = threading.Lock()


@dataclass(frozen=True)
class CountsCurve:
    """Numbers of items by count: seen at least k times, or exactly k times.

    Args:
        k: (n,) ascending, from 1.
        value: (n,) numbers of items.
        low: (n,) lower ends of the intervals; equal to `value` without intervals.
        high: (n,) upper ends of the intervals; equal to `value` without intervals.
        truth: (n,), or None.
        spell: writes a number in words: items are whole.
    """

    k: npt.NDArray[np.int64]
    value: Floats
    low: Floats
    high: Floats
    truth: Floats | None = None
    spell: Callable[[float], str] = field(default="{:z,.0f}".format, kw_only=True)

    def spoken(self, name: str) -> str:
        """The curve's shape in a sentence, for screen readers."""
        chosen = [index for index, k in enumerate(self.k) if int(k) in COUNT_TICKS]
        parts = [f"k = {self.k[at]}: {self.value[at]:z,.0f}" for at in chosen]
        return f"{name}. " + ", ".join(parts) + "."


@dataclass(frozen=True)
class ChartSeries:
    """One number over time: estimates with intervals, and the truth if it is known.

    Args:
        label: name of the number.
        value: (n,) estimates, one for each window.
        low: (n,) lower ends of the intervals.
        high: (n,) upper ends of the intervals.
        truth: (n,), or None.
        firm: (n,) whether windows are complete; others have hollow dots. None: all are complete.
        spell: writes a number in words.

    A window without an answer is NaN in the first three arrays: the line has a gap there.
    """

    label: str
    value: Floats
    low: Floats
    high: Floats
    truth: Floats | None = None
    firm: npt.NDArray[np.bool_] | None = None
    spell: Callable[[float], str] = field(default=number_text, kw_only=True)


@dataclass(frozen=True)
class Bars:
    """Numbers with names, such as counts of items.

    Args:
        names: names of n bars.
        value: (n,) lengths.
        low: (n,) lower ends of the intervals; equal to `value` without intervals.
        high: (n,) upper ends of the intervals; equal to `value` without intervals.
        spell: writes a number in words.
    """

    names: Sequence[str]
    value: Floats
    low: Floats
    high: Floats
    spell: Callable[[float], str] = field(default=number_text, kw_only=True)

    def words(self) -> list[str]:
        """Each bar as text: its name, value and interval."""
        return [f"{name}: {text}" for name, text in zip(self.names, _number_texts(self), strict=True)]


@dataclass(frozen=True)
class GridChart:
    """Numbers by two names, such as counts by age and by region.

    Args:
        rows: names of r rows.
        columns: names of c columns.
        value: (r, c) numbers; NaN if there is none.
        low: (r, c) lower ends of the intervals; equal to `value` without intervals.
        high: (r, c) upper ends of the intervals; equal to `value` without intervals.
        spell: writes a number in words.
    """

    rows: Sequence[str]
    columns: Sequence[str]
    value: Floats
    low: Floats
    high: Floats
    spell: Callable[[float], str] = field(default=number_text, kw_only=True)


@dataclass(frozen=True)
class Point:
    """A number of a chart as text, and its position.

    Args:
        x: distance from the left edge, as a share of the chart's width.
        y: distance from the upper edge, as a share of the chart's height.
        text: name, value and interval.
    """

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Chart:
    """A chart of a page.

    Args:
        svg: SVG element.
        caption: text below the chart.
        points: numbers as text, in reading order.
        png: draws a PNG image on a white background.
    """

    svg: str
    caption: str
    points: tuple[Point, ...] = ()
    png: Callable[[], bytes] = field(default=bytes, repr=False, compare=False)


Placed = tuple[float, float, str]
"""A point before it is drawn: its place on the axes, in their own units, and its words."""


def reach_chart(curve: CountsCurve, title: str, axis: str, caption: str) -> Chart:
    """Items counted at least k times, k on a logarithmic axis."""
    words = [f"{int(k):,} times or more: {text}" for k, text in zip(curve.k, _number_texts(curve), strict=True)]
    places = _place_words(curve.k, curve.value, words)
    return _chart(lambda axes: _draw_reach(axes, curve, title, axis), curve.spoken(axis), caption, places)


def exact_chart(curve: CountsCurve, title: str, axis: str, caption: str) -> Chart:
    """Items counted exactly k times, as bars."""
    words = [f"exactly {int(k):,} times: {text}" for k, text in zip(curve.k, _number_texts(curve), strict=True)]
    places = _place_words(curve.k, curve.value, words)
    return _chart(lambda axes: _draw_exact(axes, curve, title, axis), curve.spoken(axis), caption, places)


def series_chart(
    series: Sequence[ChartSeries], windows: Sequence[str], title: str, axis: str, caption: str, *, wide: bool = False
) -> Chart:
    """A few numbers, from the largest to the smallest, over all windows.

    Args:
        series: the numbers.
        windows: (n,) labels of the windows.
        title: title above the chart.
        axis: label of the axis.
        caption: text below the chart.
        wide: whether it is for wide screens; it is not legible on narrow ones.
    """
    spoken = f"{axis}, {windows[0]} to {windows[-1]}. " + " ".join(
        f"{' '.join(line.label.split())}: {np.nanmin(line.value):z,.0f} to {np.nanmax(line.value):z,.0f}."
        for line in series
        if np.isfinite(line.value).any()
    )
    places = []
    for line in series:
        label = " ".join(line.label.split())
        name = f", {label}" if label else ""
        hollow = np.zeros(len(windows), bool) if line.firm is None else ~line.firm
        for at, text in enumerate(_number_texts(line)):
            note = " (not complete)" if hollow[at] else ""
            if math.isfinite(line.value[at]):
                places.append((float(at), float(line.value[at]), f"{windows[at]}{name}: {text}{note}"))
    size = WIDE_INCHES if wide else NARROW_INCHES
    return _chart(lambda axes: _draw_series(axes, series, windows, title, axis), spoken, caption, places, size)


def band_chart(bars: Bars, title: str, axis: str, caption: str, *, wide: bool = False) -> Chart:
    """A line with the band of its intervals over names in their order, such as positions of a filtered series.

    Args:
        bars: the numbers.
        title: title above the chart.
        axis: label of the names' axis.
        caption: text below the chart.
        wide: whether it is for wide screens; it is not legible on narrow ones.
    """
    words = bars.words()
    spoken = f"{title}. {len(words)} numbers, {bars.spell(bars.value.min())} to {bars.spell(bars.value.max())}."
    places = _place_words(np.arange(len(words)), bars.value, words)
    caption += _columns(len(words))
    ends = _ends(bars) if np.any(bars.high > bars.low) else None
    size = WIDE_INCHES if wide else NARROW_INCHES
    return _chart(
        lambda axes: draw_band(axes, title, bars.names, bars.value, ends, axis), spoken, caption, places, size
    )


def trend_chart(bars: Bars, title: str) -> Chart:
    """A small line with the band of its intervals, without axes: how a number changed lately.

    Args:
        bars: the numbers, the newest last.
        title: title of the number.
    """
    words = bars.words()
    least, most = bars.spell(bars.value.min()), bars.spell(bars.value.max())
    spoken = f"{title}, {bars.names[0]} to {bars.names[-1]}: {least} to {most}."
    caption = f"{title[:1].upper()}{title[1:]}, {bars.names[0]} to {bars.names[-1]}, with 95% intervals."
    at = np.arange(len(words))

    def draw(axes: Axes) -> None:
        low, high = _ends(bars)
        axes.fill_between(at, low, high, color=BLUE, alpha=0.2, lw=0)
        axes.plot(at, bars.value, color=BLUE, lw=1.5)
        axes.plot(at[-1:], bars.value[-1:], "o", color=BLUE, ms=4.5)
        axes.set_ylim(bottom=min(0.0, float(np.nanmin(low))))
        axes.axhline(0.0, color=GREY, lw=0.6)
        axes.set_axis_off()

    return _chart(draw, spoken, caption, _place_words(at, bars.value, words), TREND_INCHES)


def bar_chart(bars: Bars, title: str, axis: str, caption: str, *, wide: bool = False) -> Chart:
    """Horizontal bars with intervals, the first on top.

    Args:
        bars: the numbers.
        title: title above the chart.
        axis: label of the axis.
        caption: text below the chart.
        wide: whether it is for wide screens, with room for long names.
    """
    words = bars.words()
    places = [(float(value), float(at), text) for at, (value, text) in enumerate(zip(bars.value, words, strict=True))]
    size = (WIDE_INCHES[0] if wide else NARROW_INCHES[0], 1.1 + 0.24 * len(bars.names))
    spoken = f"{title}. {len(words)} bars. " + ". ".join(words[:3]) + "."
    letters = MAX_NAME_LETTERS[wide]
    return _chart(lambda axes: _draw_bars(axes, bars, title, axis, letters), spoken, caption, places, size)


def heat_chart(grid: GridChart, title: str, axes_names: tuple[str, str], caption: str, *, wide: bool = False) -> Chart:
    """A heat map: larger numbers are darker, or brighter on a dark background.

    Args:
        grid: (r, c) numbers.
        title: title above the chart.
        axes_names: labels of the rows' and the columns' axis.
        caption: text below the chart.
        wide: whether it is for wide screens, where more numbers fit into their cells.
    """
    places = [
        (column + 0.5, row + 0.5, f"{grid.rows[row]}, {grid.columns[column]}: {text}")
        for (row, column), text in zip(np.ndindex(grid.value.shape), _number_texts(grid), strict=True)
        if math.isfinite(grid.value[row, column])
    ]
    spoken = (
        f"{title}. {len(grid.rows)} by {len(grid.columns)} numbers, {grid.spell(float(np.nanmin(grid.value)))} to "
        f"{grid.spell(float(np.nanmax(grid.value)))}."
    )
    height = min(1.2 + 0.3 * len(grid.rows), 6.0)
    width = WIDE_INCHES[0] if wide else NARROW_INCHES[0]
    size = (width, max(height, 2.2))
    return _chart(lambda axes: _draw_heat(axes, grid, title, axes_names, width), spoken, caption, places, size)


def _number_texts(numbers: CountsCurve | ChartSeries | Bars | GridChart) -> list[str]:
    """Each number as text, in order of position."""
    return [
        with_interval(float(value), float(low), float(high), numbers.spell)
        for value, low, high in zip(numbers.value.flat, numbers.low.flat, numbers.high.flat, strict=True)
    ]


def _place_words(x: npt.NDArray[Any], y: Floats, words: Sequence[str]) -> list[Placed]:
    return list(zip(x.astype(np.float64).tolist(), y.tolist(), words, strict=True))


def comparison(
    reach: CountsCurve,
    series: Sequence[ChartSeries],
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
        reach_title: title above the left panel.
        series_title: title above the right panel.
        item: noun for the items, plural.

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


def draw_panels(figure: Figure, title: str, reach: CountsCurve, exact: CountsCurve) -> None:
    """Draw two panels of a figure: items counted exactly k, and at least k times."""
    left, right = figure.subplots(1, 2)
    _draw_exact(left, exact, "Seen exactly k times", "items")
    _draw_reach(right, reach, "Seen k times or more", "items")
    figure.suptitle(title, fontsize=10, color=INK)


def bars_figure(title: str, bars: Bars, axis: str) -> Figure:
    """A figure for a notebook: horizontal bars with intervals, the first on top."""
    figure = notebook_figure(7.0, 1.2 + 0.26 * len(bars.names))
    _draw_bars(figure.subplots(), bars, "", axis)
    figure.suptitle(title, fontsize=10, color=INK)
    return figure


def draw_heat_map(figure: Figure, title: str, values: Floats, names: Sequence[str] | None, meaning: str) -> None:
    """Draw a square heat map; small values are dark.

    Args:
        figure: empty figure.
        title: title of the figure.
        values: (n, n) numbers.
        names: names of the n rows and columns; None if they have none, or there are too many.
        meaning: label of the color bar.
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
    """Draw vertical bars with intervals.

    Args:
        axes: axes of one panel.
        title: title of the panel.
        names: names of n bars.
        value: (n,) heights.
        ends: (n,) lower and (n,) upper ends of the intervals, or None.
        axis: label of the names' axis.
    """
    at = np.arange(len(names))
    axes.bar(at, value, width=0.72, color=BLUE, alpha=0.35, lw=0)
    if ends is not None:
        width = (value - ends[0], ends[1] - value)
        axes.errorbar(at, value, yerr=width, fmt="none", ecolor=INK, elinewidth=1, capsize=2)
    _finish_named(axes, title, names, axis)


def draw_band(
    axes: Axes,
    title: str,
    names: Sequence[str] | Times,
    value: Floats,
    ends: tuple[Floats, Floats] | None,
    axis: str,
) -> None:
    """Draw a line with the band of its intervals.

    Args:
        axes: axes of one panel.
        title: title of the panel.
        names: names of n points, or their times, (n,) datetime64, for an axis of dates.
        value: (n,) values of the line.
        ends: (n,) lower and (n,) upper ends of the intervals, or None.
        axis: label of the names' axis.
    """
    at: npt.NDArray[Any] = names if isinstance(names, np.ndarray) else np.arange(len(names))
    _line(axes, at, value, ends, BLUE)
    if not isinstance(names, np.ndarray):
        _finish_named(axes, title, names, axis)
        return
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator: Any = AutoDateLocator(maxticks=MAX_LABELS)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.set_xlabel(axis, color=GREY)
    _finish(axes, title, "", zero=False)


def _line(axes: Axes, at: npt.NDArray[Any], value: Floats, ends: tuple[Floats, Floats] | None, color: str) -> None:
    """Draw a line with the band of its intervals; of too many numbers, the range of each column of pixels.

    Positions or times are (n,), ascending; values, NaN where there is none, and ends of intervals are (n,) too.
    """
    if value.size <= 2 * PIXEL_COLUMNS:
        if ends is not None:
            axes.fill_between(at, *ends, color=color, alpha=0.2, lw=0)
        axes.plot(at, value, color=color, lw=1.5)
        return
    first = np.linspace(0, value.size, PIXEL_COLUMNS, endpoint=False).astype(np.int64)
    if ends is not None:
        low, high = np.fmin.reduceat(ends[0], first), np.fmax.reduceat(ends[1], first)
        axes.fill_between(at[first], low, high, color=color, alpha=0.2, lw=0)
    least, most = np.fmin.reduceat(value, first), np.fmax.reduceat(value, first)
    axes.fill_between(at[first], least, most, color=color, alpha=0.8, lw=0.8)


def _columns(count: int) -> str:
    """Sentence on a chart of more numbers than pixels; empty for fewer."""
    if count <= 2 * PIXEL_COLUMNS:
        return ""
    width = -(-count // PIXEL_COLUMNS)
    return f" Each column of the picture shows the least and the largest of some {width} neighbouring numbers."


def draw_table(
    axes: Axes, title: str, values: Floats, rows: Sequence[str], columns: Sequence[str], names: tuple[str, str]
) -> None:
    """Draw a table as a heat map with a color bar; small tables also show their numbers.

    Args:
        axes: axes of one panel.
        title: title of the panel.
        values: (n, m) table; NaN for empty cells.
        rows: names of n rows, from the top.
        columns: names of m columns.
        names: labels of the rows' and the columns' axis.
    """
    image = axes.imshow(values, aspect="auto", cmap="Blues", interpolation="nearest")
    axes.figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02, format="{x:,.0f}").outline.set_visible(False)
    for axis, labels, name in ((axes.yaxis, rows, names[0]), (axes.xaxis, columns, names[1])):
        step = -(-len(labels) // (MAX_LABELS if axis is axes.xaxis else 2 * MAX_LABELS))
        axis.set_ticks(np.arange(len(labels))[::step], list(labels)[::step])
        axis.set_label_text(name, color=GREY)
    _turn_long_labels(axes, columns)
    if values.shape[0] <= MAX_WRITTEN_CELLS[0] and values.shape[1] <= MAX_WRITTEN_CELLS[1]:
        dark = float(np.nanmax(values) + np.nanmin(values)) / 2
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                color = "white" if value > dark else INK
                axes.annotate(f"{value:z,.0f}", (column, row), ha="center", va="center", color=color, fontsize=7)
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    axes.tick_params(color=GREY, labelcolor=GREY, labelsize=8)
    axes.spines[:].set_visible(False)


def _finish_named(axes: Axes, title: str, names: Sequence[str], axis: str) -> None:
    """Put names along the lower axis, as many as are legible."""
    step = -(-len(names) // MAX_LABELS) if sum(map(len, names)) > 4 * MAX_LABELS else 1
    axes.set_xticks(np.arange(len(names))[::step], list(names)[::step])
    _turn_long_labels(axes, names)
    axes.set_xlabel(axis, color=GREY)
    _finish(axes, title, "", zero=False)


def _turn_long_labels(axes: Axes, names: Sequence[str]) -> None:
    """Slant labels that would overlap."""
    if sum(map(len, names)) > MAX_LABELS * 3 and max(map(len, names)) > 2:
        _slant(axes, 40)


def _slant(axes: Axes, degrees: int) -> None:
    """Turn the labels below the lower axis."""
    for tick in axes.get_xticklabels():
        tick.set(rotation=degrees, ha="right")


def notebook_figure(width: float, height: float) -> Figure:
    """Create an empty figure, size in inches, that a notebook shows without any setting of matplotlib.

    It is not managed by pyplot: nothing keeps it open, and it needs no backend.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    with optional_import("plots need matplotlib: pip install 'sketchstream[plots]'"):
        return _figure_class()(figsize=(width, height), layout="constrained")


def _figure(width: float, height: float) -> Figure:
    """Create an empty figure, size in inches."""
    with optional_import("charts need matplotlib: pip install 'sketchstream[plots]'"):
        return _figure_class()(figsize=(width, height), layout="constrained")


@cache
def _figure_class() -> type[Figure]:
    """The class of figures; its base class is imported on first use."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    class Picture(Figure):
        """A figure with a PNG for notebooks.

        No text in it is a formula: names of items and groups have whatever signs people give them.
        """

        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            FigureCanvasAgg(self)

        def draw(self, renderer: RendererBase) -> None:
            for text in self.findobj(Text):
                text.set_parse_math(False)
            super().draw(renderer)

        def _repr_png_(self) -> bytes:
            out = io.BytesIO()
            self.savefig(out, format="png", dpi=100)
            return out.getvalue()

    return Picture


def _chart(
    draw: Callable[[Axes], None],
    spoken: str,
    caption: str,
    places: Sequence[Placed],
    size: tuple[float, float] = NARROW_INCHES,
) -> Chart:
    """A figure of one panel for a page; see `chart_of`."""

    def fill(figure: Figure) -> Axes:
        axes: Axes = figure.subplots()
        draw(axes)
        return axes

    return chart_of(fill, spoken, caption, places, size)


def chart_of(
    draw: Callable[[Figure], Axes],
    spoken: str,
    caption: str,
    places: Sequence[Placed],
    size: tuple[float, float] = NARROW_INCHES,
) -> Chart:
    """A figure of one or more panels for a page.

    Args:
        draw: draws into an empty figure, and returns the panel that has the places.
        spoken: description of its shape, for screen readers.
        caption: text below it.
        places: numbers as text, with positions on that panel's scales.
        size: width and height in inches.
    """
    figure = _figure(*size)
    axes = draw(figure)
    svg = _element(figure, spoken)
    points: tuple[Point, ...] = ()
    if 0 < len(places) <= MAX_POINTS:  # the table contains all of them
        at = axes.transData.transform(np.array([(x, y) for x, y, _ in places], np.float64))
        x, y = (figure.transFigure.inverted().transform(at)).T
        points = tuple(
            Point(round(float(across), 4), round(1.0 - float(up), 4), text)
            for across, up, (_, _, text) in zip(x, y, places, strict=True)
        )
    return Chart(svg, caption, points, lambda: _image(draw, size))


def _image(draw: Callable[[Figure], Axes], size: tuple[float, float]) -> bytes:
    """A figure as a PNG image."""
    figure = _figure(*size)
    draw(figure)
    out = io.BytesIO()
    with _ONE_DRAWS:
        figure.savefig(out, format="png", dpi=160, metadata={"Software": None})
    return out.getvalue()


def _element(figure: Figure, spoken: str) -> str:
    """A figure as an SVG element of a page: text elements, the page's colors, no background, no inline style."""
    from matplotlib import rc_context

    out = io.StringIO()
    # Without a date, equal inputs give equal files; ids depend on the salt, to differ between charts of a page.
    salt = f"{spoken} {figure.get_size_inches()}"
    with _ONE_DRAWS, rc_context({"svg.fonttype": "none", "svg.hashsalt": salt}):  # a setting of the whole process
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = re.sub(r' id="[\w.]+_\d{1,3}"', "", text[text.index("<svg") :])
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r"'DejaVu Sans'[^;\"]*sans-serif", "system-ui, sans-serif", text)
    text = re.sub(r' style="([^"]*)"', lambda match: _attributes(match[1]), text)
    for color, name in PAGE_COLORS.items():
        text = text.replace(color, f"var({name})")
    label = html.escape(spoken)
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" stroke-linejoin="round" ', 1)


def standalone_svg(svg: str) -> str:
    """A chart's SVG element as a separate file, with a white background."""
    for color, name in PAGE_COLORS.items():
        svg = svg.replace(f"var({name})", color)
    paper = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return '<?xml version="1.0" encoding="utf-8"?>\n' + re.sub(r"(<svg [^>]*>)", rf"\1{paper}", svg, count=1)


def _attributes(style: str) -> str:
    """Turn declarations of inline styles into attributes of elements."""
    pairs = (declaration.partition(":") for declaration in style.split(";") if declaration.strip())
    return "".join(f' {name.strip()}="{value.strip()}"' for name, _, value in pairs)


def _draw_reach(axes: Axes, curve: CountsCurve, title: str, label: str) -> None:
    """Draw reach on a logarithmic axis of k: circles for the truth, a line with its band for the estimate."""
    if np.any(curve.high > curve.low):
        low, high = _ends(curve)
        axes.fill_between(curve.k, np.maximum(low, 0), high, color=BLUE, alpha=0.2, lw=0, label="95% interval")
    axes.plot(curve.k, curve.value, color=BLUE, lw=1.8, label="estimate")
    if curve.truth is not None:
        axes.plot(curve.k, curve.truth, "o", color=INK, ms=3.2, mfc="none", mew=0.9, label="truth")
    axes.set_xscale("log")
    ticks = [k for k in COUNT_TICKS if curve.k[0] <= k <= curve.k[-1]]
    axes.set_xticks(ticks, [f"{k:,}" for k in ticks])
    axes.minorticks_off()
    axes.set_xlabel("k (times)", color=GREY)
    if curve.truth is not None or np.any(curve.high > curve.low):
        axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    _finish(axes, title, label)


def _draw_exact(axes: Axes, curve: CountsCurve, title: str, label: str) -> None:
    """Draw bars for the estimates, whiskers for their intervals, circles for the truth."""
    axes.bar(curve.k, curve.value, width=0.72, color=BLUE, alpha=0.55, lw=0, label="estimate")
    if np.any(curve.high > curve.low):
        whiskers: Any = {"fmt": "none", "color": INK, "elinewidth": 1.2, "capsize": 2.5, "label": "95% interval"}
        axes.errorbar(curve.k, curve.value, yerr=_whiskers(curve), **whiskers)
    if curve.truth is not None:
        axes.plot(curve.k, curve.truth, "o", color=INK, ms=3.2, mfc="none", mew=0.9, label="truth")
    axes.set_xticks(curve.k, [str(k) for k in curve.k])
    axes.set_xlabel("k (times)", color=GREY)
    axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    _finish(axes, title, label)


def _draw_series(axes: Axes, series: Sequence[ChartSeries], windows: Sequence[str], title: str, label: str) -> None:
    """Draw numbers over time: error bars for estimates, hollow dots for incomplete windows, dashes for the truth."""
    from matplotlib.lines import Line2D

    at = np.arange(len(windows))
    many = len(windows) > MAX_DOTTED_WINDOWS
    # Shift neighbouring series slightly, so that their bars do not overlap.
    apart = np.linspace(-0.14, 0.14, len(series)) if len(series) > 1 else np.zeros(1)
    for line, color, shift in zip(series, SERIES_COLORS, apart, strict=False):
        if line.truth is not None:
            axes.hlines(line.truth, at - 0.4, at + 0.4, color=INK, lw=1.1, zorder=1)
        if many:
            low, high = _ends(line)
            if not np.any(line.value < 0):  # numbers that cannot be negative have no band below zero
                low = np.maximum(low, 0)
            _line(axes, at, line.value, (low, high), color)
        else:
            ends = _whiskers(line)
            firm = np.ones(len(at), bool) if line.firm is None else line.firm
            for chosen, face in ((firm, color), (~firm, "none")):
                if chosen.any():
                    bars = (ends[0][chosen], ends[1][chosen])
                    axes.errorbar(
                        at[chosen] + shift, line.value[chosen], yerr=bars, fmt="o", ms=4.2, lw=1.5, capsize=2.5,
                        color=color, mfc=face,
                    )  # fmt: skip
        if line.label and np.isfinite(line.value).any():
            place, scales = (1.01, float(np.nanmean(line.value))), ("axes fraction", "data")
            axes.annotate(line.label, place, xycoords=scales, color=color, va="center", fontsize=9)
    legend = [
        Line2D([], [], color=GREY, marker="o", ms=4.2, lw=1.5, label="estimate, 95% interval"),
        Line2D([], [], color=INK, lw=1.1, label="truth"),
    ]
    if any(line.truth is not None for line in series):
        axes.legend(
            handles=legend, frameon=False, fontsize=9, labelcolor=INK, loc="upper left", bbox_to_anchor=(0.0, 0.6)
        )
    step = -(-len(windows) // MAX_LABELS) if any(len(label) > 3 for label in windows) else 1
    axes.set_xticks(at[::step], list(windows[::step]))
    width = 0.08 * sum(len(label) + 2 for label in windows[::step])
    if any(len(label) > 5 for label in windows) and width > 0.85 * axes.get_window_extent().width / 100:
        _slant(axes, 30)
    axes.set_xlim(-0.7, len(windows) - 0.3)
    _finish(axes, title, label)


def _draw_bars(axes: Axes, bars: Bars, title: str, label: str, letters: int = 24) -> None:
    """Draw horizontal bars, with whiskers for their intervals."""
    at = np.arange(len(bars.names))
    axes.barh(at, bars.value, color=BLUE, alpha=0.35)
    if np.any(bars.high > bars.low):
        axes.errorbar(bars.value, at, xerr=_whiskers(bars), fmt="none", color=INK, elinewidth=1, capsize=2)
    names = [shorten(name, letters) for name in bars.names]
    _finish(axes, title, "", beside=max(map(len, names), default=0))
    axes.grid(visible=False, axis="y")
    axes.set_yticks(at, names)
    axes.set_ylim(len(at) - 0.4, -0.6)
    axes.set_xlabel(label, color=GREY)
    _count_scale(axes.xaxis)


def _draw_heat(axes: Axes, grid: GridChart, title: str, names: tuple[str, str], width: float) -> None:
    """Draw a blue cell for each number, more opaque for larger ones, as shapes that take the colors of a page.

    Where they fit into a chart of this width in inches, the numbers stand in their cells.
    """
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgba

    low, high = float(np.nanmin(grid.value)), float(np.nanmax(grid.value))
    share = (grid.value - low) / (high - low) if high > low else np.where(np.isfinite(grid.value), 0.5, np.nan)
    corners = np.array([(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)])
    cells = [np.add(corners, (column, row)) for row in range(len(grid.rows)) for column in range(len(grid.columns))]
    texts = [grid.spell(float(value)) if math.isfinite(value) else "" for value in grid.value.flat]
    beside = max(len(shorten(name)) for name in grid.rows)
    room = (width - MARGIN_INCHES - CELL_LETTER_INCHES * beside) / max(len(grid.columns), 1)
    written = CELL_LETTER_INCHES * (max(map(len, texts)) + 1) <= room and len(grid.rows) <= MAX_WRITTEN_CELLS[0]
    strongest = 0.45 if written else 0.94  # the color of text must be legible on it, on light and on dark paper
    faces = [to_rgba(BLUE, 0.06 + strongest * float(part) if math.isfinite(part) else 0.0) for part in share.flat]
    for place, text in zip(np.ndindex(grid.value.shape), texts if written else (), strict=False):
        axes.annotate(text, (place[1] + 0.5, place[0] + 0.5), ha="center", va="center", color=INK, fontsize=8)
    axes.add_collection(PolyCollection(cells, facecolors=faces, edgecolors="none"))
    _finish(axes, title, names[0], beside=beside)
    axes.grid(visible=False)
    axes.set_xlim(0, len(grid.columns))
    axes.set_ylim(len(grid.rows), 0)
    for axis, labels in ((axes.xaxis, grid.columns), (axes.yaxis, grid.rows)):
        step = -(-len(labels) // MAX_LABELS)
        axis.set_ticks(np.arange(len(labels))[::step] + 0.5, [shorten(name) for name in labels[::step]])
    if max(map(len, grid.columns), default=0) > 3:
        _slant(axes, 30)
    axes.set_xlabel(names[1], color=GREY)


def shorten(name: str, letters: int = 24) -> str:
    """Shorten a name to leave room for the chart."""
    return name if len(name) <= letters else f"{name[: letters - 1]}\N{HORIZONTAL ELLIPSIS}"


def _ends(numbers: CountsCurve | ChartSeries | Bars) -> tuple[Floats, Floats]:
    """Ends of intervals to draw: the value itself if there is no interval."""
    low, high = (np.where(np.isinf(end), numbers.value, end) for end in (numbers.low, numbers.high))
    return low, high


def _whiskers(numbers: CountsCurve | ChartSeries | Bars) -> tuple[Floats, Floats]:
    """How far the ends of intervals lie below and above the values."""
    low, high = _ends(numbers)
    return np.maximum(numbers.value - low, 0), np.maximum(high - numbers.value, 0)


def _count_scale(axis: Any) -> None:
    """Format ticks like the numbers of the tables."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: number_text(value)))


def _finish(axes: Axes, title: str, label: str, *, zero: bool = True, beside: int = 8) -> None:
    """Finish axes: from zero unless there are negative numbers, thousands separated, light grid, no box, left title.

    The title begins above the axes, and is wrapped to their width: labels of `beside` letters stand next to them.
    """
    if zero and not axes.dataLim.y0 < 0:
        axes.set_ylim(bottom=0)
    _count_scale(axes.yaxis)
    axes.set_ylabel(label, color=GREY)
    grid = axes.get_gridspec()
    width = axes.figure.bbox.width / axes.figure.dpi / (1 if grid is None else grid.ncols)
    room = width - MARGIN_INCHES - CELL_LETTER_INCHES * beside
    axes.set_title(textwrap.fill(title, max(int(room / TITLE_LETTER_INCHES), 12)), loc="left", fontsize=11, color=INK)
    axes.grid(visible=True, which="major", color=GRID_LINE, lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_color(GREY)
    axes.tick_params(color=GREY, labelcolor=GREY, labelsize=9)
