"""The report: one page that needs nothing else, with everything escaped; plots that repeat."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np

from sketchstream import report

REACH = report.Reach(
    np.arange(1, 41),
    np.linspace(900, 5, 40),
    np.linspace(880, 0, 40),
    np.linspace(920, 20, 40),
    np.linspace(905, 4, 40),
)
SERIES = [
    report.Series("distinct", np.array([9.0, 8.0]), np.array([8.0, 7.0]), np.array([10.0, 9.0]), np.array([9.0, 8.5])),
    report.Series("2+", np.array([4.0, 3.0]), np.array([3.0, 2.0]), np.array([5.0, 4.0])),
]


def picture(kind: str) -> bytes:
    return report.comparison(
        REACH,
        SERIES,
        ("Jan", "Feb"),
        reach_title="left",
        series_title="right",
        item="aircraft",
        kind=kind,  # type: ignore[arg-type]
    )


def test_pictures_are_images_and_equal_for_equal_input() -> None:
    assert picture("png").startswith(b"\x89PNG")
    assert b"<svg" in picture("svg")
    assert picture("png") == picture("png")


class Page(HTMLParser):
    """Collects what a page would load, and checks that tags close."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.stack: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loads += [str(value) for name, value in attrs if name in ("src", "href", "xlink:href", "srcset", "data")]
        if tag not in ("meta", "br", "hr", "img", "link", "input"):
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [str(value) for name, value in attrs if name in ("src", "href", "xlink:href", "srcset", "data")]

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag


def test_page_needs_no_other_file_and_no_other_host() -> None:
    sections = [
        report.Section(
            "One & two",
            ("A <b>paragraph</b>.",),
            svg=picture("svg"),
            tables=[report.Table("caption", ("a", "b"), [("1", "<script>")])],
            lists=[("List", ("x < y",))],
            listing="a < b",
        )
    ]
    text = report.page("Title <1>", ("lead & more",), sections, "foot")
    page = Page()
    page.feed(text)
    assert page.stack == []
    assert all(load.startswith("#") for load in page.loads), page.loads
    assert not page.tags & {"script", "link", "img", "iframe", "object"}
    assert "@import" not in text
    assert not re.findall(r"url\((?!#)", text)
    assert "Title &lt;1&gt;" in text
    assert "&lt;script&gt;" in text
    assert "A &lt;b&gt;paragraph&lt;/b&gt;." in text
    assert text.count("<svg") == 1
