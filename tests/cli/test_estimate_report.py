"""Reports and notebook cards of the kinds that give estimates: their numbers, their charts, nothing from elsewhere."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import sketchstream as ss
from helpers import pages
from helpers.commands import Run
from helpers.pages import Parsed
from sketchstream.pictures.report import POLICY

KINDS = tuple(name for name in pages.KINDS if name != "reach")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("kinds")
    pages.publish_every_kind(found)
    return found


def numbers(value: Any) -> set[float]:
    """Every number in plain data."""
    if isinstance(value, dict):
        return set().union(*map(numbers, value.values()))
    if isinstance(value, list):
        return set().union(*map(numbers, value))
    return {float(value)} if isinstance(value, int | float) and not isinstance(value, bool) else set()


def distances(folder: Path, sketch: str) -> set[float]:
    """The numbers of the heat maps of rows, the answers to a question of their own; none for other kinds."""
    if sketch != "rows":
        return set()
    windows = [one.published for one in ss.windows(folder / "sketchstream.toml", sketch=sketch)]
    return set().union(*(numbers(one.estimate(among=one.spec.users.size).to_dict()) for one in windows))


def read(path: Path) -> Parsed:
    """A report; fails where something would be loaded."""
    text = path.read_text()
    assert POLICY in text
    assert "<script" not in text
    assert "loads at" not in text
    assert not re.search(r"(?:src|href)=\"(?!#)", text)
    return Parsed(text)


@pytest.mark.parametrize("sketch", KINDS)
def test_reports_hold_the_numbers_that_are_printed(run: Run, folder: Path, tmp_path: Path, sketch: str) -> None:
    base = ("estimate", "-c", folder / "sketchstream.toml", "--sketch", sketch, "--format", "json", "--html", "r.html")
    printed = [json.loads(line) for line in run(*base, "--all").out.splitlines()]
    assert len(printed) == 3
    many = read(tmp_path / "r.html")
    beside = distances(folder, sketch)
    assert set(many.values) <= set().union(beside, *map(numbers, printed))
    text = (tmp_path / "r.html").read_text()
    assert "3 windows, 01-01 00:00 to 01-01 02:00 (times of UTC)." in many.said
    assert text.count('<details name="fold"') == 3
    assert text.count("<svg") >= 4, "a trend, and a chart for each window"
    assert "What is guaranteed" in many.said

    one = ("--from", printed[1]["window_start"], "--to", printed[1]["window_end"])
    assert json.loads(run(*base, *one).out) == printed[1]
    single = read(tmp_path / "r.html")
    assert len(single.values) >= 10
    assert set(single.values) <= numbers(printed[1]) | beside
    assert printed[1]["window_start"] in single.said
    assert "<svg" in (tmp_path / "r.html").read_text()


def test_a_report_of_a_file_and_of_no_window(run: Run, folder: Path, tmp_path: Path) -> None:
    (sealed,) = list((folder / "sealed" / "counts" / "r0").rglob("*.sealed"))[:1]
    assert run("estimate", sealed, "--html", "one.html").code == 0
    assert f"Estimates: {sealed.name}" in read(tmp_path / "one.html").said
    base = ("estimate", "-c", folder / "sketchstream.toml", "--sketch", "counts", "--all", "--html", "none.html")
    assert run(*base, "--from", "1999-01-01T00:00Z", "--to", "1999-01-02T00:00Z").code == 0
    assert "No window is published in that range." in read(tmp_path / "none.html").said
    failed = run(*base[:-1], "nowhere/r.html")
    assert failed.code != 0
    assert "nowhere" in failed.complaint


@pytest.mark.parametrize("sketch", KINDS)
def test_cards_of_windows_hold_the_numbers_of_their_answers(
    folder: Path, monkeypatch: pytest.MonkeyPatch, sketch: str
) -> None:
    windows = ss.windows(folder / "sketchstream.toml", sketch=sketch)
    answers = [json.loads(one.answer.to_json()) for one in windows]
    for shown, known in ((windows[2]._repr_html_(), answers[2:]), (windows._repr_html_(), answers)):
        card = Parsed(shown)
        assert card.loads == []
        assert "<svg" in shown
        assert len(card.values) >= 3 or sketch == "counts"
        assert set(card.values) <= set().union(distances(folder, sketch), *map(numbers, known))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    bare = windows._repr_html_()
    assert "<svg" not in bare
    assert set(Parsed(bare).values) == set(card.values)


def test_a_question_about_rows_has_a_card(folder: Path) -> None:
    last = ss.windows(folder / "sketchstream.toml", sketch="rows")[2].published
    found = last.estimate(distance=[(0, 1), (0, 2)])
    card = Parsed(found._repr_html_())
    assert "Squared distance: 2 answers." in card.said
    assert "0, 1" in card.said
    assert card.values == [float(row[end]) for row in found.rows() for end in ("value", "low", "high")]
