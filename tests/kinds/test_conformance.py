"""Every kind obeys the laws of the seam, and so does one that the package does not know."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import sketchstream as ss
from helpers.conformance import CHECKS, Case
from helpers.kind_cases import CASES
from helpers.tally import KIND
from sketchstream import kinds


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy kind, for one test."""
    monkeypatch.setattr(kinds, "_LOADED", dict(kinds._LOADED))
    kinds.register(KIND)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_kind_obeys_the_laws(case: Case, check: Callable[[Case], None]) -> None:
    check(case)


def test_a_name_is_taken_once() -> None:
    kinds.register(KIND)  # the same again is nothing new

    class Other(type(KIND)):
        """Of the same name."""

    with pytest.raises(ss.SpecError, match="already"):
        kinds.register(Other())
    assert kinds.names()[-1] == "tally"
    with pytest.raises(ss.SpecError, match="found int"):
        ss.Sketch.create(3)
