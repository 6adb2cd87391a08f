"""Reports: pages that need nothing else, everything escaped; charts that repeat; profiles of every kind."""

from __future__ import annotations

import html
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from helpers.commands import Run
from sketchstream.pictures import charts, numbers, report

REACH = charts.CountsCurve(
    np.arange(1, 41),
    np.linspace(900, 5, 40),
    np.linspace(880, 0, 40),
    np.linspace(920, 20, 40),
    np.linspace(905, 4, 40),
)
SERIES = [
    charts.ChartSeries(
        "distinct", np.array([9.0, 8.0]), np.array([8.0, 7.0]), np.array([10.0, 9.0]), np.array([9.0, 8.5])
    ),
    charts.ChartSeries("2+", np.array([4.0, 3.0]), np.array([3.0, 2.0]), np.array([5.0, 4.0])),
]
HEAT = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def drawn() -> list[charts.Chart]:
    return [
        charts.reach_chart(REACH, "left", "items <at> least", "caption & more"),
        charts.exact_chart(charts.CountsCurve(*(np.arange(1, 5),) * 4), "middle", "items", "caption"),
        charts.series_chart(SERIES, ("Jan", "Feb"), "right", "aircraft", "caption"),
        charts.series_chart(SERIES, ("Jan", "Feb"), "wide", "aircraft", "caption", wide=True),
        charts.bar_chart(charts.Bars(["<a>", "b"], *np.array([[3.0, 1.0], [2.0, -1.0], [4.0, 3.0]])), "bars", "n", "c"),
        charts.heat_chart(
            charts.GridChart(["x", "y"], ["u", "v", "w"], *(HEAT,) * 3), "heat", ("rows", "columns"), "c"
        ),
        charts.band_chart(charts.Bars(["4", "9"], *np.array([[-3.0, 1.0]] * 3)), "line", "days", "c"),
    ]


def test_pictures_are_images_and_equal_for_equal_input() -> None:
    def picture() -> bytes:
        return charts.comparison(
            REACH, SERIES, ("Jan", "Feb"), reach_title="left", series_title="right", item="aircraft"
        )

    assert picture().startswith(b"\x89PNG")
    assert picture() == picture()
    assert drawn() == drawn()


def test_charts_take_their_colors_from_the_page_and_say_what_they_show() -> None:
    for chart in drawn():
        assert chart.svg.startswith('<svg role="img" aria-label="')
        colors = set(re.findall(r"(?:fill|stroke)=\"([^\"]+)", chart.svg))
        assert "var(--ink)" in colors
        assert not [color for color in colors if color.startswith("#")], colors
        defined = set(re.findall(r"(--[a-z]+):", report.page("title", (), ())))
        assert {color[4:-1] for color in colors if color.startswith("var(")} <= defined
    assert "k = 1: 900, k = 2: 877" in drawn()[0].svg
    assert "distinct: 8 to 9." in drawn()[2].svg


def test_charts_need_no_inline_style_and_say_each_number_where_it_is_drawn() -> None:
    for chart in drawn():
        assert "style" not in chart.svg
        assert chart.points
        assert all(0 <= point.x <= 1 and 0 <= point.y <= 1 for point in chart.points)
    reach, _, series, _, bars, heat, line = drawn()
    assert reach.points[0].text == "1 times or more: 900, 95% interval 880 to 920"
    assert [point.text for point in series.points[:2]] == [
        "Jan, distinct: 9, 95% interval 8 to 10",
        "Feb, distinct: 8, 95% interval 7 to 9",
    ]
    assert [point.y for point in bars.points] == sorted(point.y for point in bars.points), "the first bar is on top"
    assert [point.text for point in heat.points] == [
        f"{row}, {column}: {value}" for row, column, value in zip("xxxyyy", "uvwuvw", range(1, 7), strict=True)
    ]
    assert line.points[0].x < line.points[1].x
    assert line.points[0].y > line.points[1].y, "negative numbers are below"
    # x of the first point of the curve, in the units of the picture
    path = re.search(r'd="M ([\d.]+) ([\d.]+)[^"]*"[^>]*stroke="var\(--blue\)" stroke-width="1.8"', reach.svg)
    assert path
    width, height = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', reach.svg).groups())  # type: ignore[union-attr]
    assert (reach.points[0].x, reach.points[0].y) == pytest.approx(
        (float(path[1]) / width, float(path[2]) / height), abs=1e-3
    )


def test_windows_without_a_number_are_gaps_and_incomplete_ones_say_so() -> None:
    value = np.array([1.0, np.nan, 3.0])
    one = charts.ChartSeries("", value, value - 1, value + 1, firm=np.array([True, True, False]))
    chart = charts.series_chart([one], ("Jan", "Feb", "Mar"), "t", "items", "c")
    assert [point.text for point in chart.points] == [
        "Jan: 1, 95% interval 0 to 2",
        "Mar: 3, 95% interval 2 to 4 (not complete)",
    ]
    assert "nan" not in chart.svg.lower()


class Page(HTMLParser):
    """Collects what a page would load, and checks that tags close and that no id comes twice."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.stack: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.feed(text)
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in ("meta", "br", "hr", "img", "link", "input"):
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [str(value) for name, value in attrs if name in ("src", "href", "xlink:href", "srcset", "data")]
        self.ids += [str(value) for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag


def needs_nothing_else(text: str) -> Page:
    page = Page(text)
    assert all(load.startswith("#") for load in page.loads), page.loads
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert "@import" not in text
    assert not re.findall(r"url\((?!#)", text)
    return page


def test_page_needs_no_other_file_and_no_other_host() -> None:
    sections = [
        report.Section(
            "One & two",
            ("A <b>paragraph</b>.",),
            charts=drawn(),
            tables=[report.ReportTable("caption", ("a", "b"), [("1", "<script>")])],
            lists=[("List", ("x < y",))],
            listing="a < b",
        )
    ]
    text = report.page("Title <1>", ("lead & more",), sections, "foot", "mind <this>")
    page = needs_nothing_else(text)
    assert page.tags.count("svg") == 7
    assert "Title &lt;1&gt;" in text
    assert "&lt;script&gt;" in text
    assert "A &lt;b&gt;paragraph&lt;/b&gt;." in text
    assert "items &lt;at&gt; least" in text
    assert text.index("mind &lt;this&gt;") < text.index("lead &amp; more")


KINDS = {
    "closed": ["--unit", "event", "--epsilon", "1", "--size", "200"],
    "open": ["--unit", "event", "--epsilon", "1", "--open", "--slots", "1024", "--levels", "2"],
    "item": ["--epsilon", "2", "--open", "--slots", "1024", "--levels", "2", "--unit", "item", "--modulus", "16"],
    "loud": ["--unit", "event", "--epsilon", "20", "--size", "200"],
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_profile_of_every_kind_has_a_report(run: Run, tmp_path: Path, key: Path, kind: str) -> None:
    (tmp_path / "events").write_text("".join(f"{i % 150}\n" for i in range(400)))
    more = ["--key-file", key] if "--open" in KINDS[kind] else []
    for command in (
        ["create", "-o", "s", *KINDS[kind], *more],
        ["update", "s", "events", "--format", "lines", *more],
        ["seal", "s", "-o", "s.sealed", *more],
        ["profile", "s.sealed", "--html", "report.html"],
    ):
        result = run(*command)
        assert result.code == 0, result.err
    text = (tmp_path / "report.html").read_text()
    page = needs_nothing_else(text)
    assert page.tags.count("svg") == 2
    assert page.tags.count("table") == 3
    for words in ("distinct items were counted", "95% interval", "Not protected", "2 times or more", "s.sealed"):
        assert words in text
    assert ("NO PRIVACY" in text) == (kind == "loud")
    assert not re.search(r"\b(nan|inf)\b", re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL))


def test_a_report_without_a_plot_library_has_its_tables(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("create", "-o", "s", *KINDS["loud"])
    run("seal", "s", "-o", "s.sealed")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = run("profile", "s.sealed", "--html", "report.html")
    assert result.code == 0, result.err
    page = needs_nothing_else((tmp_path / "report.html").read_text())
    assert page.tags.count("svg") == 0
    assert page.tags.count("table") == 3


def test_reports_that_cannot_be_written_are_errors_of_files(run: Run, tmp_path: Path) -> None:
    (tmp_path / "events").write_text("1\n")
    for command in (
        ["create", "-o", "s", *KINDS["closed"]],
        ["update", "s", "events", "--format", "lines"],
        ["seal", "s", "-o", "s.sealed"],
    ):
        assert run(*command).code == 0
    result = run("profile", "s.sealed", "--html", "nowhere/report.html")
    assert result.code == 1
    assert "no such file or directory" in result.complaint


def test_an_interval_of_one_number_is_shown_beside_another_value() -> None:
    """An estimate below 0 of a number that cannot be: its interval is cut to 0. Exact numbers have no interval."""
    drawn = (np.array([-5.0, 7.0, np.nan]), np.array([0.0, 7.0, np.nan]), np.array([0.0, 7.0, np.nan]))
    table, _ = numbers.table("Distances", ["a", "b", "c"], drawn, ("pair", "distance"))
    assert [str(row[2]) != "-" for row in table.rows] == [True, False, False]


def test_many_numbers_are_drawn_as_what_each_column_of_pixels_holds() -> None:
    """A year of hours: nothing that is far out is lost, and the picture is small."""
    value = np.sin(np.arange(8760) / 24.0)
    value[5000] = 50.0
    many = charts.band_chart(
        charts.Bars([str(i) for i in range(8760)], value, value - 1, value + 1), "year", "hours", "c"
    )
    few = charts.band_chart(
        charts.Bars([str(i) for i in range(700)], *(value[:700] + d for d in (0, -1, 1))), "a", "b", "c"
    )
    assert len(many.svg) < 60_000
    assert "of some 22 neighbouring numbers" in many.caption
    assert few.caption == "c"
    figure = charts.notebook_figure(5, 4)
    axes = figure.subplots()
    charts.draw_band(axes, "year", [str(i) for i in range(8760)], value, (value - 1, value + 1), "hours")
    tops = [float(one.get_paths()[0].vertices[:, 1].max()) for one in axes.collections]
    assert tops == [51.0, 50.0]


def test_heat_maps_carry_their_numbers_where_they_fit() -> None:
    grid = charts.GridChart(["x", "y"], [f"c{i}" for i in range(16)], *(np.arange(32.0).reshape(2, 16) * 12_345,) * 3)
    narrow, wide = (charts.heat_chart(grid, "heat", ("r", "c"), "", wide=wide) for wide in (False, True))
    assert ">382,695<" not in narrow.svg
    assert ">382,695<" in wide.svg
    assert ">6</text>" in drawn()[5].svg


@pytest.mark.parametrize("name", ["a $x_1$ b", r"a $\foo$ b", "$5 or $6", r"\$"])
def test_names_are_no_formulas(name: str) -> None:
    values = np.array([[3.0, 2.0], [1.0, 0.0]])
    bars = charts.Bars([name, "c"], values[0], values[0] - 1, values[0] + 1)
    grid = charts.GridChart([name, "c"], [name, "c"], values, values - 1, values + 1)
    series = charts.ChartSeries(name, *values[[0, 0, 0]])
    drawn = [
        (charts.bar_chart(bars, name, name, ""), 3),
        (charts.heat_chart(grid, name, (name, "c"), ""), 4),
        (charts.band_chart(bars, name, name, ""), 3),
        (charts.series_chart([series], [name, "c"], name, name, ""), 4),
    ]
    for chart, times in drawn:
        assert chart.svg.count(f">{html.escape(name, quote=False)}</text>") == times
        assert chart.png()[:4] == b"\x89PNG"
    assert charts.bars_figure(name, bars, name)._repr_png_()


def test_cells_without_a_number_have_no_color() -> None:
    """Also where all numbers are equal, as when one of many has been computed."""
    value = np.full((2, 3), np.nan)
    value[0, 1] = 7.0
    axes = charts._figure(6.0, 4.0).subplots()
    charts._draw_heat(axes, charts.GridChart(["x", "y"], ["a", "b", "c"], *(value,) * 3), "heat", ("r", "c"), 6.0)
    (cells,) = axes.collections
    assert [float(face[3]) > 0 for face in cells.get_facecolors()] == [False, True, False, False, False, False]
