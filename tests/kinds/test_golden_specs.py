"""Specs with every option away from its default keep their data, fingerprints, ledgers and draws, for ever."""

from __future__ import annotations

import inspect
import json
from typing import Any, Final

import pytest

from helpers.golden_specs import LISTS, SPECS, data, recorded, text
from helpers.paths import GOLDEN
from sketchstream import kinds
from sketchstream.kinds.linear.kind import LinearKind

RECORD: Final = json.loads((GOLDEN / "specs" / "specs.json").read_text())
KINDS: Final = tuple(name for name in kinds.names() if isinstance(kinds.by_name(name), LinearKind))
NEVER_DEFAULT: Final = {"kernel", "users", "features", "k", "workload", "epsilon"}
"""Parameters without a default that every spec has."""


def made(name: str) -> Any:
    """The spec from its constructor, with the recorded strategy where it has one."""
    return SPECS[name](data(RECORD[name]["spec"]).get("strategy"))


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_keeps_its_data_fingerprint_ledger_and_draws(name: str) -> None:
    assert recorded(made(name)) == RECORD[name]


@pytest.mark.parametrize("name", SPECS)
def test_recorded_data_are_read_and_written_again_key_by_key(name: str) -> None:
    written = data(RECORD[name]["spec"])
    spec = kinds.read_spec(written, LISTS.get(name))
    assert list(text(spec.to_dict())) == list(RECORD[name]["spec"]), "the order of the keys is part of the bytes"
    assert text(spec.to_dict()) == RECORD[name]["spec"]
    assert spec.fingerprint.hex() == RECORD[name]["fingerprint"]
    ledger = data(RECORD[name]["ledger"])
    assert kinds.kind_of(spec).accounting.read_ledger(spec, ledger).to_dict() == ledger


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_is_away_from_its_default_in_some_recorded_spec(kind: str) -> None:
    parameters = inspect.signature(kinds.by_name(kind).spec_type).parameters
    specs = [made(name) for name in SPECS if name.startswith(kind)]
    usual = {
        name: one.default
        for name, one in parameters.items()
        if one.default is not inspect.Parameter.empty and name not in NEVER_DEFAULT
    }
    for name, default in usual.items():
        values = [getattr(spec, name) for spec in specs if hasattr(spec, name)]
        assert any(str(value) != str(default) for value in values), name
