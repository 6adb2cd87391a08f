"""Defaults of series and workloads against the best mechanism in the house: a short run of `bench/best.py`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.paths import ROOT


@pytest.fixture(scope="module")
def best() -> Any:
    """The bench, as a module."""
    path = Path(ROOT) / "bench" / "best.py"
    found = importlib.util.spec_from_file_location("best", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["best"] = module
    found.loader.exec_module(module)
    return module


def test_no_noise_has_a_smaller_error_than_the_default_of_a_series(best: Any) -> None:
    for what, ratio, names in best.series(7, 10, 200):
        assert ratio <= best.MOST, (what, names)


@pytest.mark.statistics
def test_no_mechanism_is_much_better_than_the_default_of_a_table(best: Any) -> None:
    """Errors are measured, hence a margin beside the 1.03 that the bench asks of many runs."""
    for what, ratio, names in best.tables(7, 5, 20):
        assert ratio <= best.MOST + 0.12, (what, names)
