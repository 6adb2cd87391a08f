"""Results for people who were not there: comparison plots, and a report in one HTML file.

In: numbers that were published or reconstructed (and, in the demo, the truth to compare with). Out: a PNG or SVG
image, and a page that needs no other file and no other host. Touches: nothing.
"""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import numpy.typing as npt

from sketchstream.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = npt.NDArray[np.float64]

BLUE: Final = "#1f5fa8"
INK: Final = "#1d2733"
GREY: Final = "#6b7785"
SERIES: Final = ("#1f5fa8", "#1a8a72", "#c26a12", "#8b3f8f")


@dataclass(frozen=True)
class Reach:
    """How many items were seen at least k times: estimate, interval, and the truth if it is known.

    Args:
        k: (n,) ascending, from 1.
        value, low, high: (n,) numbers of items.
        truth: (n,), or None.
    """

    k: npt.NDArray[np.int64]
    value: Floats
    low: Floats
    high: Floats
    truth: Floats | None = None


@dataclass(frozen=True)
class Series:
    """One number over time: estimates with intervals, and the truth if it is known.

    Args:
        label: what it is.
        value, low, high: (n,) one for each window.
        truth: (n,), or None.
    """

    label: str
    value: Floats
    low: Floats
    high: Floats
    truth: Floats | None = None


def comparison(
    reach: Reach,
    series: Sequence[Series],
    windows: Sequence[str],
    *,
    reach_title: str,
    series_title: str,
    item: str,
    kind: Literal["png", "svg"] = "png",
) -> bytes:
    """Two panels: the k+ reach of one window, and a few numbers over all windows.

    Args:
        reach: left panel.
        series: right panel, from the largest to the smallest.
        windows: (n,) labels of the windows.
        reach_title: above the left panel.
        series_title: above the right panel.
        item: what is counted, in the plural.
        kind: of image.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        msg = "plots need matplotlib: pip install 'sketchstream[plots]'"
        raise MissingExtraError(msg) from None
    figure = Figure(figsize=(11.0, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.15))
    _draw_reach(left, reach, reach_title, item)
    _draw_series(right, series, windows, series_title, item)
    out = io.BytesIO()
    # Without a date, equal inputs give equal files.
    metadata = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    figure.savefig(out, format=kind, dpi=110, metadata=metadata)
    return out.getvalue()


def _draw_reach(axes: Axes, reach: Reach, title: str, item: str) -> None:
    """Reach on a logarithmic axis of k: steps for the truth, a line with its band for the estimate."""
    axes.fill_between(reach.k, np.maximum(reach.low, 0), reach.high, color=BLUE, alpha=0.18, lw=0, label="95% interval")
    axes.plot(reach.k, reach.value, color=BLUE, lw=1.8, label="estimate from the published histogram")
    if reach.truth is not None:
        axes.plot(reach.k, reach.truth, "o", color=INK, ms=3.2, mfc="none", mew=0.9, label="truth")
    axes.set_xscale("log")
    ticks = [k for k in (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 500, 1000) if reach.k[0] <= k <= reach.k[-1]]
    axes.set_xticks(ticks, [str(k) for k in ticks])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("k")
    axes.set_ylabel(f"{item} counted at least k times")
    axes.legend(frameon=False, fontsize=9)
    _finish(axes, title)


def _draw_series(axes: Axes, series: Sequence[Series], windows: Sequence[str], title: str, item: str) -> None:
    """Numbers over time: error bars for estimates, dashes for the truth."""
    from matplotlib.lines import Line2D

    at = np.arange(len(windows))
    # Neighbouring series stand a little apart, so that their bars can be told from each other.
    apart = np.linspace(-0.14, 0.14, len(series)) if len(series) > 1 else np.zeros(1)
    for one, color, shift in zip(series, SERIES, apart, strict=False):
        low, high = np.maximum(one.value - one.low, 0), np.maximum(one.high - one.value, 0)
        if one.truth is not None:
            axes.hlines(one.truth, at - 0.4, at + 0.4, color=INK, lw=1.1, zorder=1)
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
        Line2D([], [], color=GREY, marker="o", ms=4.2, lw=1.5, label="estimate and 95% interval"),
        Line2D([], [], color=INK, lw=1.1, label="truth"),
    ]
    if any(one.truth is not None for one in series):
        axes.legend(handles=legend, frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(0.0, 0.6))
    axes.set_ylim(bottom=0)
    axes.set_xticks(at, list(windows))
    axes.set_xlim(-0.7, len(windows) - 0.3)
    axes.set_ylabel(item)
    _finish(axes, title)


def _finish(axes: Axes, title: str) -> None:
    """Light grid, no box, title to the left."""
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    axes.grid(visible=True, which="major", color="#e3e7eb", lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=GREY, labelsize=9)


@dataclass(frozen=True)
class Table:
    """A table of a report: its caption, its columns and its rows (text)."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Section:
    """A part of a report: a heading, paragraphs, an image, tables, titled lists, preformatted text, all optional."""

    heading: str
    paragraphs: Sequence[str] = ()
    svg: bytes | None = None
    tables: Sequence[Table] = ()
    lists: Sequence[tuple[str, Sequence[str]]] = ()
    listing: str | None = None


_STYLE: Final = """
:root { color-scheme: light; }
body {
  font: 16px/1.55 system-ui, sans-serif; color: #1d2733; background: #fff;
  max-width: 66rem; margin: 2.5rem auto; padding: 0 1.25rem;
}
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .6rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.1rem 0 .2rem; }
p, ul { max-width: 48rem; }
ul { margin: 0; padding-left: 1.2rem; }
.tables { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); column-gap: 2rem; }
.lead { font-size: 1.1rem; color: #34414f; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .6rem 0 1.4rem; }
caption { text-align: left; color: #5a6673; padding-bottom: .3rem; }
th, td { text-align: right; padding: .28rem .8rem; border-bottom: 1px solid #e3e7eb; }
th { color: #5a6673; font-weight: 600; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
pre { background: #f5f7f9; padding: .9rem 1rem; overflow-x: auto; font-size: .85rem; line-height: 1.45; }
figure { margin: 0; }
svg { max-width: 100%; height: auto; }
footer { margin-top: 3rem; color: #5a6673; font-size: .9rem; border-top: 1px solid #e3e7eb; padding-top: .8rem; }
"""


def page(title: str, lead: Sequence[str], sections: Sequence[Section], footer: str = "") -> str:
    """A report: one HTML document, its style and images inside."""
    body = [f"<h1>{html.escape(title)}</h1>", *(f'<p class="lead">{html.escape(text)}</p>' for text in lead)]
    for section in sections:
        body.append(f"<h2>{html.escape(section.heading)}</h2>")
        body.extend(f"<p>{html.escape(text)}</p>" for text in section.paragraphs)
        if section.svg is not None:
            body.append(f'<figure role="img" aria-label="{html.escape(section.heading)}">')
            body.append(_inline(section.svg) + "</figure>")
        if section.tables:
            body.append('<div class="tables">' + "".join(_table(table) for table in section.tables) + "</div>")
        for name, entries in section.lists:
            lines = "".join(f"<li>{html.escape(entry)}</li>\n" for entry in entries)
            body.append(f"<h3>{html.escape(name)}</h3>\n<ul>\n{lines}</ul>")
        if section.listing is not None:
            body.append(f"<pre>{html.escape(section.listing)}</pre>")
    if footer:
        body.append(f"<footer>{html.escape(footer)}</footer>")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _inline(svg: bytes) -> str:
    """An SVG document as a part of a page: from its root element on."""
    text = svg.decode()
    return text[text.index("<svg") :]


def _table(table: Table) -> str:
    """A table as HTML."""
    head = "".join(f'<th scope="col">{html.escape(column)}</th>' for column in table.columns)
    rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>\n" for row in table.rows)
    caption = html.escape(table.caption)
    return (
        f'<div class="scroll"><table><caption>{caption}</caption>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}</tbody></table></div>"
    )
