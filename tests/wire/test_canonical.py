"""Published bytes are refused unless their spec is in its one form and their body has the size that is declared."""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.paths import GOLDEN
from sketchstream import kinds, provenance, wire
from sketchstream.errors import FormatError, SketchstreamError


def _headers() -> dict[str, dict[str, Any]]:
    """The header of each golden file that is no stack and has a spec of a kind."""
    out = {}
    for path in sorted(GOLDEN.rglob("*.bin")):
        header = wire.unpack_header(path.read_bytes())
        if header["kind"] != "stack" and not path.name.startswith("wire-"):
            out[str(path.relative_to(GOLDEN))] = header
    return out


HEADERS = _headers()


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all values in plain data."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield (*path, name)
        yield from _places(inner, (*path, name))


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copied(inner) for name, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value


def _mutations(old: Any) -> list[Any]:
    """Values that mean the same to a careless reader."""
    if isinstance(old, bool):
        return [int(old), str(old), None]
    if isinstance(old, int):
        return [str(old), f" {old}", bool(old), None, [old]]
    if isinstance(old, str):
        return [f" {old}", f"{old} ", f"+{old}", f"0{old}", f"{old}.0", f"{old}/1", old.encode(), None]
    return [None, str(old), 0]


def test_every_kind_is_among_the_golden_headers() -> None:
    assert {header["spec"].get("kind", "profile") for header in HEADERS.values()} >= set(kinds.names())


@pytest.mark.parametrize("name", HEADERS)
def test_golden_specs_are_read(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert kinds.read_published_spec(HEADERS[name]["spec"]).to_dict() == HEADERS[name]["spec"]


@given(st.data())
def test_a_spec_with_one_altered_field_is_refused_or_in_its_one_form(data: st.DataObject) -> None:
    spec = _copied(HEADERS[data.draw(st.sampled_from(sorted(HEADERS)))]["spec"])
    path = data.draw(st.sampled_from(list(_places(spec))))
    inner = spec
    for name in path[:-1]:
        inner = inner[name]
    change = data.draw(st.sampled_from(["remove", "add", "replace"]))
    if change == "replace":
        inner[path[-1]] = data.draw(st.sampled_from(_mutations(inner[path[-1]])))
    elif change == "remove":
        del inner[path[-1]]
    elif isinstance(inner, dict):
        inner["stranger"] = 1
    else:
        inner.append(inner[-1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with provenance.well_formed():
                found = kinds.read_published_spec(spec)
        except SketchstreamError:
            return
    with_types = [(name, type(value)) for name, value in sorted(spec.items())]
    assert [(name, type(value)) for name, value in sorted(found.to_dict().items())] == with_types
    assert found.to_dict() == spec


def test_fields_that_no_version_has_are_refused() -> None:
    for header in HEADERS.values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(SketchstreamError), provenance.well_formed():
                kinds.read_published_spec({**header["spec"], "stranger": 1})


@pytest.mark.parametrize("kind", ["sealed-state", "instalment", "release", "stack"])
def test_a_body_of_another_size_is_refused_before_it_is_decoded(kind: str) -> None:
    spec = next(header["spec"] for header in HEADERS.values() if header["kind"] == "sealed-state")
    body = np.zeros(1 << 23, np.int64 if kind != "stack" else np.uint8)
    header: dict[str, Any] = {"kind": kind, "spec": spec} | ({"lengths": [8]} if kind == "stack" else {"slots": 8})
    data = wire.pack(header, body, codec=wire.RAW if kind == "stack" else wire.HUFFMAN)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=r"declares|bins"):
            wire.unpack(data)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < body.nbytes / 16
