"""The theory page of workloads: its example runs and says the truth."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "theory" / "workload.md").read_text()


def test_the_example_of_the_theory_page_gives_the_numbers_in_its_comments() -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
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
