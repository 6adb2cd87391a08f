"""Reports in a real browser: they fit narrow and wide screens, can be read in light and dark, and load nothing.

In: Chromium, which `make chromium` brings. Out: verdicts. Touches: temporary folders.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from helpers import pages
from helpers.browsers import chromium
from helpers.commands import Run
from sketchstream.pictures.report import POLICY

pytestmark = pytest.mark.browser

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
]
FRAME = """<!doctype html><meta charset="utf-8">
<style>:root {{ color-scheme: light dark }} iframe {{ border: 0 }}</style>
<iframe width="{width}" height="1000" srcdoc="{inner}"></iframe>"""
SCRIPT = """
<script>
let refused = 0;
addEventListener("securitypolicyviolation", () => { refused += 1; });
addEventListener("load", () => {
  function light(color) {
    const parts = color.match(/[0-9.]+/g).slice(0, 3).map(Number).map(
      (part) => (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  }
  const paper = getComputedStyle(document.body).backgroundColor;
  let contrast = 99;
  for (const element of document.querySelectorAll("body *")) {
    const said = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!said || ["SCRIPT", "STYLE", "style"].includes(element.tagName)) continue;
    const look = getComputedStyle(element);
    const under = element.tagName === "PRE" ? look.backgroundColor : paper;
    const [a, b] = [light(element.closest("svg") ? look.fill : look.color), light(under)];
    contrast = Math.min(contrast, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  const letters = [...document.querySelectorAll("svg text")].map((text) => text.getBoundingClientRect());
  const folds = [...document.querySelectorAll("details")];
  const opened = folds.map((fold) => fold.open);
  if (folds.length) folds.at(-1).open = true;
  const found = {
    opened, chosen: folds.map((fold) => fold.open),
    paper, contrast,
    width: document.documentElement.clientWidth,
    needed: document.documentElement.scrollWidth,
    scrolled: [...document.querySelectorAll(".scroll")].filter((box) => box.scrollWidth > box.clientWidth).length,
    refused,
    charts: [...document.querySelectorAll("svg")].map((chart) => chart.getBoundingClientRect().width),
    smallest: Math.min(...letters.map((box) => Math.min(box.width, box.height)).filter((size) => size > 0)),
    unnamed: document.querySelectorAll("svg:not([aria-label]), table:not(:has(caption)), th:empty").length,
  };
  const place = parent.document.createElement("pre");
  place.id = "found";
  place.textContent = JSON.stringify(found);
  parent.document.body.append(place);
});
</script>
"""


@pytest.fixture
def report(run: Run, tmp_path: Path) -> Path:
    """A report with wide numbers and a warning."""
    (tmp_path / "events").write_text("".join(f"{i % (1 + i % 4000)}\n" for i in range(20_000)))
    for command in (
        ["create", "-o", "s", "--unit", "event", "--epsilon", "11", "--size", "4000"],
        ["update", "s", "events", "--format", "lines"],
        ["seal", "s", "-o", "s.sealed"],
        ["profile", "s.sealed", "--html", "report.html"],
    ):
        result = run(*command)
        assert result.code == 0, result.err
    return tmp_path / "report.html"


def measured(page: Path, width: int, dark: bool) -> dict[str, Any]:
    """What a script finds in the page as it is laid out."""
    # In a frame, because no window of the browser is narrower than 500 pixels.
    assert POLICY in page.read_text()
    inner = (
        page.read_text().replace(POLICY, f"{POLICY}; script-src 'unsafe-inline'").replace("</head>", f"{SCRIPT}</head>")
    )
    copy = page.with_name("measured.html")
    copy.write_text(FRAME.format(width=width, inner=html.escape(inner)))
    more = ["--blink-settings=preferredColorScheme=0"] if dark else ["--blink-settings=preferredColorScheme=1"]
    folder = page.with_name(f"browser-{width}-{dark}")
    done = subprocess.run(
        [
            chromium(),
            *FLAGS,
            *more,
            f"--user-data-dir={folder}",
            "--window-size=1300,1100",
            "--virtual-time-budget=2000",
            "--dump-dom",
            copy.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, flags=re.DOTALL)
    assert found, done.stderr[-2000:]
    data: dict[str, Any] = json.loads(html.unescape(found[1]))
    return data


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [400, 1200])
def test_a_report_fits_the_screen_and_can_be_read(report: Path, width: int, dark: bool) -> None:
    found = measured(report, width, dark)
    assert found["width"] == width
    assert found["needed"] <= width, "the page itself never scrolls sideways"
    assert found["scrolled"] == 0, "tables fit"
    assert found["contrast"] >= 4.5
    assert found["paper"] == ("rgb(20, 24, 29)" if dark else "rgb(255, 255, 255)")
    assert found["refused"] == 0
    assert found["unnamed"] == 0
    assert len(found["charts"]) == 2
    assert min(found["charts"]) >= min(width - 40, 400)
    assert found["smallest"] >= 5, "digits on the axes can be read"


def test_the_measurements_find_what_is_wrong(report: Path) -> None:
    page = (
        report.read_text()
        .replace("--muted: #55616e", "--muted: #aab0b6")
        .replace("width: 100%; max", "min-width: 900px; max")
    )
    report.write_text(page.replace("</main>", '<img src="nowhere.png" alt=""></main>'))
    found = measured(report, 400, dark=False)
    assert found["contrast"] < 4.5
    assert found["scrolled"] > 0
    assert found["refused"] == 1


@pytest.fixture
def windows(run: Run, tmp_path: Path) -> Path:
    """A report over six windows."""
    events = [{"ts": f"2024-05-01T0{i // 400}:{i % 60:02d}:00Z", "user": i * 7919 % 997} for i in range(2400)]
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    (tmp_path / "c.toml").write_text(
        '[input]\nfile = "events.jsonl"\nitem = "user"\nitem_type = "int"\ntime = "ts"\nlateness = "1h"\nquorum = 1\n'
        'quorum_time = "1ms"\nclose_at_end = true\n[output]\ndirectory = "sealed"\n[[sketch]]\nname = "hourly"\n'
        'unit = "event"\nwindow = "1h"\nepsilon = "1"\ndomain = { size = 1000 }\n'
    )
    for command in (["worker", "-c", "c.toml"], ["profile", "-c", "c.toml", "--all", "--html", "all.html"]):
        result = run(*command)
        assert result.code == 0, result.err
    return tmp_path / "all.html"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [400, 1200])
def test_a_report_over_windows_fits_and_shows_one_of_them(windows: Path, width: int, dark: bool) -> None:
    found = measured(windows, width, dark)
    assert found["needed"] <= width, "the page itself never scrolls sideways"
    assert found["scrolled"] <= 1, (
        "only the wide table scrolls in its own box: on narrow screens, and where noise makes long numbers"
    )
    assert found["contrast"] >= 4.5
    assert (found["refused"], found["unnamed"]) == (0, 0)
    assert len(found["charts"]) == 7
    assert found["opened"] == [True] + 5 * [False]
    assert found["chosen"] == 5 * [False] + [True], "opening one window closes the other"
    assert found["smallest"] >= 5, "digits on the axes can be read"


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What sketches of all kinds published."""
    folder = tmp_path_factory.mktemp("kinds")
    pages.publish_every_kind(folder)
    return folder


@pytest.mark.parametrize(("sketch", "width", "dark"), [("tables", 400, True), ("series", 1200, False)])
def test_a_report_of_another_kind_fits_and_can_be_read(
    kinds: Path, run: Run, tmp_path: Path, sketch: str, width: int, dark: bool
) -> None:
    result = run("estimate", "-c", kinds / "sketchstream.toml", "--sketch", sketch, "--all", "--html", "all.html")
    assert result.code == 0, result.err
    found = measured(tmp_path / "all.html", width, dark)
    assert found["needed"] <= width, "the page itself never scrolls sideways"
    assert found["contrast"] >= 4.5
    assert (found["refused"], found["unnamed"]) == (0, 0)
    assert len(found["charts"]) >= 6
    assert found["smallest"] >= 5, "digits on the axes can be read"
