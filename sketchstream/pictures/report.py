"""Reports and cards: self-contained HTML for light and dark, wide and narrow screens.

In: text, tables, charts. Out: a separate page, or a card for the output of a notebook's cell.
Touches: the templates in `sketchstream/templates`, reading.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from sketchstream.pictures.charts import Chart
from sketchstream.texts.number_texts import number_text

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


@dataclass(frozen=True)
class ReportTable:
    """A table of a report: its caption, its columns and its rows (text). The first cell of a row names it."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Fold:
    """A part of a section that a reader can open; at most one of a page is open at a time."""

    title: str
    charts: Sequence[Chart] = ()
    tables: Sequence[ReportTable] = ()


@dataclass(frozen=True)
class Section:
    """A part of a report: a heading; paragraphs, charts, tables, titled lists, preformatted text and folds, if any.

    Tables of `long` are folded separately.
    """

    heading: str
    paragraphs: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[ReportTable] = ()
    long: Sequence[ReportTable] = ()
    lists: Sequence[tuple[str, Sequence[str]]] = ()
    listing: str | None = None
    folds: Sequence[Fold] = ()


def exact(value: float, spell: Callable[[float], str] = number_text) -> Markup:
    """A cell of a table with a number as `spell` writes it, and its exact value as machine-readable data."""
    from markupsafe import Markup

    return Markup('<data value="{}">{}</data>').format(repr(float(value)), spell(value))


POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
"""What browsers may load for a report: nothing."""


@cache
def environment(*folders: tuple[str, str]) -> Environment:
    """The templates of this package, and of other packages; all inserted values are escaped.

    Args:
        folders: other packages, each with its folder of templates, which are searched first.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined  # loaded for the first page

    return Environment(
        loader=ChoiceLoader([PackageLoader(*folder) for folder in (*folders, ("sketchstream", "templates"))]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def card(
    title: str,
    *,
    tables: Sequence[ReportTable] = (),
    charts: Sequence[Chart | None] = (),
    lists: Sequence[tuple[str, Sequence[str]]] = (),
    note: str = "",
) -> str:
    """A part of a page as the output of a notebook's cell; its style applies only to itself.

    Args:
        title: title of the card.
        tables: tables, side by side.
        charts: charts that stand next to the tables; None for one that could not be drawn.
        lists: folded lists with titles.
        note: text below everything.
    """
    drawn = [chart for chart in charts if chart is not None]
    template = environment().get_template("card.html")
    return template.render(title=title, tables=tables, charts=drawn, lists=lists, note=note)


def page(title: str, lead: Sequence[str], sections: Sequence[Section], footer: str = "", alarm: str = "") -> str:
    """A report: one HTML document that contains its style and charts.

    Args:
        title: title of the page.
        lead: first paragraph.
        sections: sections, in order.
        footer: origin of the report.
        alarm: warning before everything else.
    """
    template = environment().get_template("page.html")
    return template.render(policy=POLICY, title=title, lead=lead, sections=sections, footer=footer, alarm=alarm)
