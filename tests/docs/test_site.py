"""The documents build as a site without a warning; every page is in its navigation, and no asset is of another host."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import sketchstream
from helpers.paths import ROOT

DOCS = ROOT / "docs"


def test_every_page_is_in_the_navigation_once() -> None:
    index = (DOCS / "index.md").read_text()
    listed = re.findall(r"^([a-z][a-z_-]*)$", index, re.MULTILINE)
    pages = {page.stem for page in DOCS.glob("*.md")} - {"README", "index"}
    assert sorted(listed) == sorted(pages)
    assert "\ntheory/*\n" in index


def test_the_page_of_the_interface_names_every_public_name() -> None:
    text = (DOCS / "api.md").read_text()
    documented = set(re.findall(r"sketchstream\.([A-Za-z_]+)$", text, re.MULTILINE))
    errors = {name for name in sketchstream.__all__ if name.endswith("Error")}  # the page has the whole module
    assert {name for name in sketchstream.__all__ if not name.startswith("_")} - errors <= documented


@pytest.mark.statistics
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(DOCS), str(tmp_path)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) >= 25
    for page in pages:
        loaded = re.findall(
            r"<(?:script|img|iframe)[^>]+src=\"([^\"]+)\"|<link[^>]+href=\"([^\"]+)\"", page.read_text()
        )
        assert not [one for pair in loaded for one in pair if one.startswith(("http:", "https:", "//"))], page.name
    interface = (tmp_path / "api.html").read_text()
    assert "Draw the noise and return an empty sketch" in interface
    for name in ("distinct", "at_least", "quantile", "number"):  # wherever in the family of `Profile` they are written
        assert f'id="sketchstream.Profile.{name}"' in interface
