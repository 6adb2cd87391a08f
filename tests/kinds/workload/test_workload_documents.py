"""The theory page of workloads: its example runs and says the truth."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "theory" / "workload.md").read_text()

BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_recipe_of_the_theory_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    recipe, without_a_matrix = BLOCKS[1:]
    exec(recipe, names)
    assert (tmp_path / "flights.sealed").exists()
    assert names["by_hour"].shape == (3, 4)  # type: ignore[attr-defined]
    assert "Not protected" in capsys.readouterr().out
    exec(without_a_matrix, names)
    (said,) = re.findall(r"# (\(.*\))$", without_a_matrix, re.MULTILINE)
    spec = names["spec"]
    assert repr((spec.mechanism, spec.strategy.form)) == said  # type: ignore[attr-defined]


def test_the_example_of_the_theory_page_gives_the_numbers_in_its_comments() -> None:
    block = BLOCKS[0]
    names: dict[str, object] = {}
    checked = 0
    for line in block.splitlines():
        code, _, comment = line.partition("#")
        number = re.match(r" *([\d.]+)", comment)
        if number is None:
            exec(code, names)
        else:
            assert float(eval(code, names)) == pytest.approx(float(number.group(1)), abs=0.006)
            checked += 1
    assert checked == 3
