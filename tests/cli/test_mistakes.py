"""Mistakes that newcomers make, at a prompt and in Python: each is refused in words that say what to do.

In: wrong calls. Out: verdicts. Touches: temporary folders.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import sketchstream as ss
from helpers.commands import Run
from sketchstream.errors import ItemError, KeyMismatchError, MergeError, SpecError

KEY = ss.Key(bytes(range(16)))
OPEN = ss.ProfileSpec(epsilon="1", domain=ss.OpenDomain(slots=64, levels=2))


@pytest.fixture
def opened() -> ss.Sketch:
    return ss.Sketch.create(OPEN, KEY)


@pytest.mark.parametrize(
    ("items", "advice"),
    [
        pytest.param("abc", "in a list", id="text"),
        pytest.param((i for i in range(3)), "generator: make it a list", id="generator"),
        pytest.param(range(3), "range: make it a list", id="range"),
        pytest.param({1, 2}, "set: make it a list", id="set"),
        pytest.param(["a", None], "NoneType at position 1; drop missing values first", id="None"),
        pytest.param(["a", float("nan")], "float at position 1; drop missing values first", id="nan"),
        pytest.param([1.0], "make floats integers or text first", id="float"),
        pytest.param(np.array([1.0]), "make floats integers or text first", id="floats"),
        pytest.param(pd.Series(["a", None]), "drop missing values first", id="series with a gap"),
        pytest.param(pd.DataFrame({"a": [1]}), "choose one column", id="frame"),
        pytest.param(pa.table({"a": [1]}), "choose one column", id="Arrow table"),
        pytest.param(pa.array(["a", None]), "drop missing values first", id="Arrow null"),
    ],
)
def test_what_is_no_batch_of_items_is_refused_with_advice(opened: ss.Sketch, items: object, advice: str) -> None:
    with pytest.raises(ItemError, match="must be") as caught:
        opened.update(items)
    assert advice in str(caught.value)


@pytest.mark.parametrize(
    ("items", "same"),
    [
        pytest.param(np.array([]), [], id="empty array"),
        pytest.param(pd.Series(["a", "b"], index=[7, 9]), ["a", "b"], id="series"),
        pytest.param(pd.Series(["a", "b"], dtype="category"), ["a", "b"], id="categories"),
        pytest.param(pa.array(["a", "b"], pa.string_view()), ["a", "b"], id="Arrow view of strings"),
        pytest.param(pa.array([b"a"], pa.binary_view()), [b"a"], id="Arrow view of bytes"),
        pytest.param(pa.array(["b", "b"]).dictionary_encode(), ["b", "b"], id="Arrow dictionary"),
    ],
)
def test_batches_from_other_libraries_are_items(opened: ss.Sketch, items: object, same: list[Any]) -> None:
    assert opened._state is not None
    before = opened._state.copy()
    opened.update(items)
    opened.update(same, weights=[-1] * len(same))
    assert np.array_equal(opened._state, before)


@pytest.mark.parametrize("written", [np.float32(0.1), np.float64(0.1), np.float16(0.1)])
def test_epsilon_is_the_shortest_decimal_of_any_float(written: object) -> None:
    assert ss.ProfileSpec(epsilon=written, domain=ss.ClosedDomain(size=3)).epsilon == Fraction(1, 10)  # type: ignore[arg-type]


def test_whole_numbers_of_numpy_are_numbers() -> None:
    spec = ss.ProfileSpec(epsilon=np.int64(2), domain=ss.ClosedDomain(items=np.array([3, 1])))  # type: ignore[arg-type]
    assert spec.fingerprint == ss.ProfileSpec(epsilon=2, domain=ss.ClosedDomain(items=[3, 1])).fingerprint


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ss.ClosedDomain(items="abc"), SpecError, "must be a list"),
        (lambda: ss.ClosedDomain(items={"a", "b"}), SpecError, "whose order never changes, found set"),
        (lambda: ss.ClosedDomain(items=[]), SpecError, "must not be empty"),
        (lambda: ss.ClosedDomain(items=[1, 2**63]), SpecError, "position 1 as str"),
        (
            lambda: ss.Sketch.create({"epsilon": 1}),
            SpecError,
            "one of a kind of sketch, such as ProfileSpec, found dict",
        ),
        (lambda: ss.Sketch.create(OPEN, "key"), KeyMismatchError, r"Key\.load\(path\), found str"),
        (lambda: ss.Sketch.create(OPEN), KeyMismatchError, "needs a hash key"),
        (lambda: ss.Sketch.from_bytes(ss.Sketch.create(OPEN, KEY).to_bytes()), KeyMismatchError, "needs the hash key"),
        (lambda: ss.Sketch.from_bytes(b"", "key"), KeyMismatchError, "found str"),
        (lambda: ss.merge(ss.Sketch.create(OPEN, KEY)), MergeError, "takes a list"),
        (lambda: ss.stack(ss.Sketch.create(OPEN, KEY).seal()), MergeError, "takes a list"),
        (lambda: ss.plan(None, items=5), SpecError, "spec must be a ProfileSpec, found NoneType"),
    ],
)
def test_wrong_arguments_are_refused_with_what_was_expected(
    call: Callable[[], object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        call()


def test_a_missing_key_is_asked_for(run: Run, key: Path, tmp_path: Path) -> None:
    more = ["--unit", "event", "--epsilon", "1", "--open", "--slots", "64", "--levels", "2", "--key-file", key]
    assert run("create", "-o", "s", *more).code == 0
    (tmp_path / "events").write_text("a\n")
    result = run("update", "s", "events", "--format", "lines")
    assert result.code == 1
    assert result.complaint == "s: the sketch needs the hash key it was created with: give a Key, or --key-file"


@pytest.mark.parametrize("command", ["update", "profile", "inspect", "ledger", "seal"])
@pytest.mark.parametrize(("content", "words"), [("hello world", "not a sketch"), ("", "end after 0")])
def test_files_that_are_no_sketches_are_named(run: Run, tmp_path: Path, command: str, content: str, words: str) -> None:
    (tmp_path / "notes.txt").write_text(content)
    more = {"update": ["notes.txt", "--format", "lines"], "seal": ["-o", "out"]}.get(command, [])
    result = run(command, "notes.txt", *more)
    assert result.code == 1
    assert result.complaint.startswith("notes.txt: ")
    assert words in result.complaint


@pytest.mark.parametrize("group", [[], ["topics"]])
def test_a_command_without_arguments_shows_its_help(run: Run, group: list[str]) -> None:
    result = run(*group)
    assert result.code == 2
    assert result.err.startswith("Usage: sketchstream")
    assert result.err.count("\n") > 8


def test_an_open_sketch_that_others_can_read_is_refused_as_a_key_is(
    run: Run, made: Callable[..., Path], key: Path
) -> None:
    sketch = made()
    sketch.chmod(0o644)
    for command in (["seal", sketch, "-o", "x"], ["release", sketch, "--epsilon", "1", "-o", "x"]):
        result = run(*command, "--key-file", key)
        assert result.code == 1
        assert "mode 0644: others could read or change it; chmod 600 it; if somebody" in result.complaint
    sketch.chmod(0o600)
    assert run("seal", sketch, "-o", "x", "--key-file", key).code == 0
