"""The examples in docstrings print what they say."""

from __future__ import annotations

import doctest
import importlib

import pytest

from helpers.paths import ROOT

ROOTS = (ROOT, ROOT / "connectors")
MODULES = sorted(
    path.relative_to(root).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
    for root, package in zip(ROOTS, ("sketchstream", "sketchstream_connectors"), strict=True)
    for path in (root / package).rglob("*.py")
    if ">>> " in path.read_text()
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0
    assert found.failed == 0
