"""Reports and cards: HTML that needs no other file and no other host, for light and dark screens, wide and narrow.

In: text, tables, charts. Out: a page of its own, or a card for the output of a notebook's cell. Touches: nothing.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sketchstream.charts import Chart


@dataclass(frozen=True)
class Table:
    """A table of a report: its caption, its columns and its rows (text). The first cell of a row names it."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Fold:
    """A part of a section that a reader opens; of those of one page one is open at a time."""

    title: str
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True)
class Section:
    """A part of a report: a heading; paragraphs, charts, tables, titled lists, preformatted text and folds, if any."""

    heading: str
    paragraphs: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    lists: Sequence[tuple[str, Sequence[str]]] = ()
    listing: str | None = None
    folds: Sequence[Fold] = ()


POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
"""What browsers may load for a report: nothing."""

_LIGHT: Final = """
  --paper: #ffffff; --panel: #f5f7f9; --ink: #1d2733; --muted: #55616e; --line: #e3e7eb;
  --blue: #1f5fa8; --green: #14755f; --orange: #a8560a; --violet: #8b3f8f; --alarm: #a3161f;
"""
_DARK: Final = """
  --paper: #14181d; --panel: #1e242b; --ink: #e6eaee; --muted: #a9b4bf; --line: #333c45;
  --blue: #7db4f0; --green: #52c7a5; --orange: #f0a55c; --violet: #d79adb; --alarm: #ff9a9f;
"""
_STYLE: Final = (
    f"""
:root {{
  color-scheme: light dark;{_LIGHT}}}
@media screen and (prefers-color-scheme: dark) {{
  :root {{{_DARK}}}
}}
"""
    + """
* { box-sizing: border-box; }
body {
  font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 66rem; margin: 2.5rem auto; padding: 0 1.25rem; overflow-wrap: break-word;
}
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .6rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.1rem 0 .2rem; }
p, ul, figcaption { max-width: 48rem; }
ul { margin: 0; padding-left: 1.2rem; }
.lead { font-size: 1.1rem; }
.alarm { border-left: .3rem solid var(--alarm); padding-left: .8rem; color: var(--alarm); font-weight: 600; }
.side { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: 1rem 2.5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .4rem 0; width: 100%; max-width: 40rem; }
caption { text-align: left; font-weight: 600; padding-bottom: .3rem; }
th, td { text-align: right; padding: .28rem 0 .28rem .9rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
thead th { color: var(--muted); font-weight: 600; vertical-align: bottom; }
tbody th { font-weight: 400; }
th:first-child { text-align: left; padding-left: 0; white-space: normal; }
details { border-bottom: 1px solid var(--line); padding: .35rem 0; }
summary { cursor: pointer; font-variant-numeric: tabular-nums; }
details[open] summary { font-weight: 600; }
pre { background: var(--panel); padding: .9rem 1rem; overflow-x: auto; font-size: .85rem; line-height: 1.45; }
figure { margin: 0; }
figcaption { color: var(--muted); font-size: .9rem; }
svg { width: 100%; height: auto; max-width: 34rem; }
svg text { fill: var(--ink); }
footer { margin-top: 3rem; color: var(--muted); font-size: .9rem; border-top: 1px solid var(--line); }
@media (max-width: 32rem) {
  body { margin: 1.25rem auto; padding: 0 1rem; } h1 { font-size: 1.4rem; } .lead { font-size: 1rem; }
  table { font-size: .85rem; } th, td { padding-left: .5rem; }
}
@media print { body { margin: 0; max-width: none; } figure, table { break-inside: avoid; } }
"""
)


_CARD_STYLE: Final = (
    f"""
.sketchstream {{
  color-scheme: light dark;{_LIGHT}
  font: 14px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  border: 1px solid var(--line); border-radius: 4px; padding: .7rem .9rem; max-width: 60rem; overflow-wrap: break-word;
}}
@media screen and (prefers-color-scheme: dark) {{
  .sketchstream {{{_DARK}}}
}}
"""
    + """
.sketchstream h4 { font-size: 15px; margin: 0 0 .3rem; color: inherit; }
.sketchstream p { margin: .25rem 0; max-width: 48rem; }
.sketchstream .note { color: var(--muted); }
.sketchstream .side { display: flex; flex-wrap: wrap; gap: .5rem 2rem; align-items: flex-start; }
.sketchstream .scroll { overflow-x: auto; }
.sketchstream table { border-collapse: collapse; margin: .3rem 0; color: inherit; background: none; border: 0; }
.sketchstream caption { text-align: left; font-weight: 600; color: inherit; padding: 0 0 .2rem; }
.sketchstream tr { background: none; }
.sketchstream th, .sketchstream td {
  text-align: right; padding: .15rem 0 .15rem .9rem; border: 0; border-bottom: 1px solid var(--line);
  font-weight: 400; font-variant-numeric: tabular-nums; white-space: nowrap; background: none;
}
.sketchstream th:first-child { text-align: left; padding-left: 0; white-space: normal; }
.sketchstream thead th { color: var(--muted); font-weight: 600; }
.sketchstream figure { margin: 0; flex: 0 1 24rem; min-width: 15rem; }
.sketchstream figcaption { color: var(--muted); font-size: 12px; }
.sketchstream svg { width: 100%; height: auto; }
.sketchstream svg text { fill: var(--ink); }
.sketchstream details { margin: .3rem 0; }
.sketchstream ul { margin: .2rem 0; padding-left: 1.2rem; }
"""
)


def card(
    title: str,
    *,
    tables: Sequence[Table] = (),
    charts: Sequence[Chart] = (),
    lists: Sequence[tuple[str, Sequence[str]]] = (),
    note: str = "",
) -> str:
    """A part of a page, as the output of a notebook's cell: its style is its own and touches nothing else.

    Args:
        title: what it is.
        tables: side by side.
        charts: beside the tables.
        lists: titled, folded.
        note: below everything.
    """
    body = [f"<h4>{html.escape(title)}</h4>"]
    sides = [_table(table) for table in tables] + [_chart(chart) for chart in charts]
    if sides:
        body.append('<div class="side">' + "".join(sides) + "</div>")
    for name, entries in lists:
        lines = "".join(f"<li>{html.escape(entry)}</li>" for entry in entries)
        body.append(f"<details><summary>{html.escape(name)}</summary><ul>{lines}</ul></details>")
    if note:
        body.append(f'<p class="note">{html.escape(note)}</p>')
    return f'<div class="sketchstream"><style>{_CARD_STYLE}</style>\n' + "\n".join(body) + "\n</div>"


def page(title: str, lead: Sequence[str], sections: Sequence[Section], footer: str = "", alarm: str = "") -> str:
    """A report: one HTML document, its style and charts inside.

    Args:
        title: of the page.
        lead: what a reader should know first.
        sections: the rest, in order.
        footer: where it comes from.
        alarm: a warning, before everything else.
    """
    body = [f"<h1>{html.escape(title)}</h1>"]
    if alarm:
        body.append(f'<p class="alarm" role="alert">{html.escape(alarm)}</p>')
    body.extend(f'<p class="lead">{html.escape(text)}</p>' for text in lead)
    for section in sections:
        body.append(f"<h2>{html.escape(section.heading)}</h2>")
        body.extend(f"<p>{html.escape(text)}</p>" for text in section.paragraphs)
        if section.charts:
            body.append('<div class="side">' + "".join(_chart(chart) for chart in section.charts) + "</div>")
        if section.tables:
            body.append('<div class="side">' + "".join(_table(table) for table in section.tables) + "</div>")
        for name, entries in section.lists:
            lines = "".join(f"<li>{html.escape(entry)}</li>\n" for entry in entries)
            body.append(f"<h3>{html.escape(name)}</h3>\n<ul>\n{lines}</ul>")
        if section.listing is not None:
            body.append(f'<pre tabindex="0">{html.escape(section.listing)}</pre>')
        body.extend(_fold(fold, opened=position == 0) for position, fold in enumerate(section.folds))
    foot = f"<footer><p>{html.escape(footer)}</p></footer>\n" if footer else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + f"\n</main>\n{foot}</body>\n</html>\n"
    )


def _chart(chart: Chart) -> str:
    """A chart as HTML."""
    return f"<figure>{chart.svg}<figcaption>{html.escape(chart.caption)}</figcaption></figure>"


def _fold(fold: Fold, *, opened: bool) -> str:
    """A fold as HTML; browsers close the others of the same name."""
    sides = [_chart(chart) for chart in fold.charts] + [_table(table) for table in fold.tables]
    return (
        f'<details name="fold"{" open" if opened else ""}><summary>{html.escape(fold.title)}</summary>'
        f'<div class="side">{"".join(sides)}</div></details>'
    )


def _table(table: Table) -> str:
    """A table as HTML."""
    head = "".join(f'<th scope="col">{html.escape(column)}</th>' for column in table.columns)
    rows = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th>'
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        + "</tr>\n"
        for name, *cells in table.rows
    )
    return (
        f'<div class="scroll" tabindex="0"><table><caption>{html.escape(table.caption)}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>"
    )
