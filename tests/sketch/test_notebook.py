"""What a notebook shows: cards that close their tags and load nothing; numbers that format; figures."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import sketchstream as ss

KEY = ss.Key(bytes(range(16)))
SPEC = ss.ProfileSpec(
    epsilon="4", unit="item", epsilon_publish="1", domain=ss.OpenDomain(slots=4096, levels=2), modulus=16
)


class Card(HTMLParser):
    """The tags of a card; fails where they do not close, and where something would be loaded."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
        assert self.stack == []
        assert "@import" not in text

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert tag not in ("script", "link", "img", "iframe", "object")
        assert all(str(value).startswith("#") for name, value in attrs if name in ("src", "href", "xlink:href"))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag


def counted(events: int, spec: ss.ProfileSpec = SPEC) -> ss.Sketch:
    sketch = ss.Sketch.create(spec, KEY)
    sketch.update([f"user{i % 900}" for i in range(events)])
    return sketch


@pytest.fixture(scope="module")
def release() -> ss.Release:
    return counted(2000).seal()


@pytest.fixture(scope="module")
def profile(release: ss.Release) -> ss.Profile:
    return release.profile()


def test_everything_that_people_look_at_has_a_card(release: ss.Release, profile: ss.Profile) -> None:
    state = ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=50), publish="state", intrusion=False)
    found = {
        "sketch": counted(3),
        "release": release,
        "profile": profile,
        "ledger": release.ledger,
        "guarantee": release.guarantee(),
        "state": ss.Sketch.create(state).seal(),
        "stack": ss.stack([release]),
    }
    for name, one in found.items():
        text = one._repr_html_()
        card = Card(text)
        assert "table" in card.tags, name
        assert ("svg" in card.tags) == (name in ("release", "profile")), name
        assert "loses at most" in text if name == "ledger" else "The loss of one" in text, name
    assert "is at most epsilon 1 against readers of what is published" in found["profile"]._repr_html_()
    assert "it is at most epsilon 5." in found["guarantee"]._repr_html_()
    assert "it has no bound." in found["state"]._repr_html_()


def test_the_card_of_an_open_sketch_does_not_depend_on_what_was_counted() -> None:
    assert counted(0)._repr_html_() == counted(1500)._repr_html_()
    assert "1,500" not in counted(1500)._repr_html_()


def test_the_card_of_a_release_draws_what_was_published_without_computing_a_profile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sketchstream.kinds.profile import reconstruction

    monkeypatch.setattr(reconstruction, "reconstruct", None)
    for unit in ("event", "item"):
        spec = ss.ProfileSpec(epsilon="1", unit=unit, domain=ss.ClosedDomain(size=3000))
        sketch = ss.Sketch.create(spec)
        sketch.update(np.arange(3000))
        one = sketch.release("5")
        first = one.values[one.edges >= 1].sum() if unit == "item" else one.values[one.edges == 1][0]
        assert f"k = 1: {first:,}," in one._repr_html_()


def test_cards_do_without_matplotlib(release: ss.Release, profile: ss.Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for one in (release, profile):
        assert "svg" not in Card(one._repr_html_()).tags


def test_a_warning_stands_in_the_card() -> None:
    with pytest.warns(ss.NoPrivacyWarning):
        loud = ss.ProfileSpec(epsilon="20", domain=ss.ClosedDomain(size=50))
    assert "NO PRIVACY" in ss.Sketch.create(loud)._repr_html_()


def test_an_estimate_is_a_number_in_formats_and_arithmetic(profile: ss.Profile) -> None:
    one = ss.Estimate(1234.567, 1200.0, 1300.0)
    assert float(one) == 1234.567
    assert f"{one:.0f} {one:,.1f} {one}" == "1235 1,234.6 1,235 [1,200, 1,300]"
    assert one._repr_html_() == "<b>1,235</b> [1,200, 1,300]"
    assert np.asarray([profile.distinct, one], dtype=float)[1] == one.value
    with pytest.raises(ValueError, match="Unknown format code"):
        f"{one:d}"


def test_a_plot_is_a_figure_with_or_without_a_file(profile: ss.Profile, tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    figure = profile.plot()
    assert isinstance(figure, Figure)
    assert len(figure.axes) == 2
    assert figure._repr_png_().startswith(b"\x89PNG")
    profile.plot(tmp_path / "p.svg")
    assert (tmp_path / "p.svg").read_bytes().startswith(b"<?xml")


def test_an_open_sketch_says_how_to_get_a_profile() -> None:
    with pytest.raises(ss.SealedError, match="seal or release first"):
        counted(1).profile(method="likelihood")


def test_drawing_reports_its_progress_and_every_slot_has_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    from sketchstream.kinds.profile import mechanism as kind

    monkeypatch.setattr(kind, "PROGRESS_SLOTS", 4000)
    told: list[int] = []
    spec = ss.ProfileSpec(epsilon="1/100", domain=ss.ClosedDomain(size=9000))
    sketch = ss.Sketch.create(spec, progress=told.append)
    assert told == [4000, 8000, 9000]
    parts = np.split(sketch._state, [4000, 8000])
    # the sd of the noise is 141: a slot is 0 with probability .005; no two parts have the same noise
    assert all((part == 0).mean() < 0.02 for part in parts)
    assert (parts[0] != parts[1]).mean() > 0.9


NOTICE = """
import sys
class Terminal:
    def isatty(self): return {terminal}
    def write(self, text): sys.stdout.write(text)
    def flush(self): pass
sys.stderr = Terminal()
from sketchstream.kernels.compilation import kernel
@kernel
def theirs(x): return x
theirs(1)
print("before")
def ours(x): return x + 1
ours.__module__ = "sketchstream.made_up"
one, two = kernel(ours), kernel(ours)
one(1), two(1.0)
print("after")
"""


@pytest.mark.parametrize("terminal", [True, False])
def test_the_first_use_says_that_it_compiles_once_and_to_people_only(terminal: bool) -> None:
    script = NOTICE.format(terminal=terminal)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.count("compiling for this machine; it happens once") == int(terminal)
    assert done.stdout.startswith("before\n")


def test_ledger_and_guarantee_are_exported() -> None:
    assert isinstance(counted(0).ledger, ss.Ledger)
    assert isinstance(counted(0).guarantee(), ss.Guarantee)
