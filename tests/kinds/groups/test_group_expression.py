"""The language of sets: against Python's own sets, and what it refuses."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchstream.errors import SpecError
from sketchstream.kinds.groups.expression import quote_name, regions_of

NAMES = ("a", "b", "spring 24", "not")
EVERY = frozenset(range(16))


def members(name: str) -> frozenset[int]:
    bit = 3 - NAMES.index(name)
    return frozenset(pattern for pattern in range(16) if pattern >> bit & 1)


def trees() -> st.SearchStrategy[Any]:
    leaf = st.sampled_from(NAMES).map(lambda name: (quote_name(name), members(name)))

    def grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        def pair(sign: str, words: str, do: Any) -> st.SearchStrategy[Any]:
            said = st.sampled_from([sign, f" {words} "])
            return st.builds(lambda x, y, s: (f"({x[0]}){s}({y[0]})", do(x[1], y[1])), inner, inner, said)

        return st.one_of(
            pair("&", "AND", frozenset.__and__),
            pair("|", "or", frozenset.__or__),
            pair("-", "without", frozenset.__sub__),
            inner.map(lambda x: (f"~ ({x[0]})", EVERY - x[1])),
        )

    return st.recursive(leaf, grow, max_leaves=12)


@given(trees())
def test_an_expression_names_the_set_that_python_finds(tree: tuple[str, frozenset[int]]) -> None:
    text, wanted = tree
    found = set(np.flatnonzero(regions_of(text, NAMES)).tolist())
    assert found == wanted - {0}


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a | b & c", "a | (b & c)"),
        ("a - b & c", "(a - b) & c"),
        ("a - b - c", "a - (b | c)"),
        ("a | b - c", "a | (b - c)"),
        ("~a & b", "b - a"),
        ("~~a", "a"),
        ("a \u2229 b \u222a c \\ a", "(a & b) | (c - a)"),
        ("not a and b", "b - a"),
        ("!a & 'b'", 'b - "a"'),
    ],
)
def test_signs_bind_as_documented(text: str, same: str) -> None:
    assert np.array_equal(regions_of(text, ("a", "b", "c")), regions_of(same, ("a", "b", "c")))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected the name of a group"),
        ("a &", "at its end"),
        ("a b", "expected an operator .* position 3"),
        ("(a", "closing bracket"),
        ("a)", "position 2"),
        ("a ^ b", "'\\^' at position 3"),
        ("a & sprin", "did you mean 'spring'"),
        ('"a', "means nothing"),
        ("(" * 60 + "a" + ")" * 60, "at most 50"),
        ("a" * 3000, "2,000 characters"),
        ("& a", "position 1"),
    ],
)
def test_what_is_no_expression_is_refused_with_its_place(text: str, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        regions_of(text, ("a", "b", "spring"))


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(SpecError):
        assert regions_of(text, NAMES).shape == (16,)
