"""The package: extras that messages name exist, the tested set is pinned, and wheel and sdist install and run alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from helpers.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_extra_that_is_named_exists() -> None:
    extras = set(PROJECT["optional-dependencies"])
    sources = [
        path for folder in ("sketchstream", "connectors", "docs", "docker") for path in (ROOT / folder).rglob("*")
    ]
    for path in [*sources, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        if path.is_file() and path.suffix in (".py", ".md", ".yaml", ".html", "") and "__pycache__" not in path.parts:
            for named in re.findall(r"sketchstream\[([a-z,]+)\]", path.read_text(errors="replace")):
                assert set(named.split(",")) <= extras, (path, named)


def test_everything_that_tests_need_is_pinned() -> None:
    pinned = {
        re.split("==", line)[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *extras["all"], *extras["dev"]]
    names = {re.split(r"[\[<>=!~; ]", one)[0].lower().replace("_", "-") for one in wanted} - {"sketchstream"}
    assert names <= pinned, names - pinned


def test_the_citation_has_the_version_of_the_package() -> None:
    import yaml

    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(cited["version"]) == PROJECT["version"]
    assert cited["license"] == PROJECT["license"]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["wheel", "sdist"])
def test_the_package_installs_and_runs_alone(tmp_path: Path, form: str) -> None:
    """In an environment of its own, without the tree: a life cycle of the command line."""
    python = os.environ.get("SKETCHSTREAM_TEST_PYTHON", sys.executable)
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "build>=1.2"], check=True)
    subprocess.run(
        [sys.executable, "-m", "build", "-q", f"--{form}", "-o", str(tmp_path / "dist"), str(ROOT)], check=True
    )
    (package,) = (tmp_path / "dist").iterdir()
    subprocess.run([python, "-m", "venv", str(tmp_path / "env")], check=True)
    bin_ = tmp_path / "env" / "bin"
    subprocess.run([bin_ / "pip", "install", "-q", "-c", ROOT / "constraints.txt", package], check=True)
    (tmp_path / "e.jsonl").write_text("".join(f'{{"u":"u{i % 500}"}}\n' for i in range(2000)))
    made = ["-o", "s.sketch", "--unit", "item", "--epsilon", "4", "--epsilon-publish", "1", "--open", "--slots", "1024"]
    for step in (
        ["keygen", "-o", "key"],
        ["create", *made, "--levels", "2", "--key-file", "key"],
        ["update", "s.sketch", "e.jsonl", "--format", "jsonl", "--item", "u", "--key-file", "key"],
        ["seal", "s.sketch", "-o", "s.sealed", "--key-file", "key"],
        ["profile", "s.sealed"],
    ):
        done = subprocess.run([bin_ / "sketchstream", *step], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (step, done.stderr)
    assert "distinct items" in done.stdout
