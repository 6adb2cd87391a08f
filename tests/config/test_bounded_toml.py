"""Text that the TOML parser fails on, or takes long for, is a mistake of the configuration with a clear sentence."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchstream.config.bounded_toml import DEEPEST, MAX_CHARACTERS, read_toml
from sketchstream.config.env import override
from sketchstream.config.loader import Config
from sketchstream.errors import ConfigError

HOSTILE = {
    "arrays": ("a=" + "[" * 100_000, "nested"),
    "tables": ("a=" + "{a=" * 100_000, "nested"),
    "headers": ("[" * 100_000, "nested"),
    "key": (".".join(["a"] * 50_000) + "=1", "dotted key"),
    "spaced key": (" . ".join(["'a'"] * 50_000) + "=1", "dotted key"),
    "header": ("[" + ".".join(["a"] * 50_000) + "]", "dotted key"),
    "digits": ("a=" + "9" * 100_000, "too many digits"),
    "length": ("#" * (MAX_CHARACTERS + 1), "characters"),
    "behind quotes": ('a="""' + '\\"""' * 9 + '"""\nb=' + "[" * 5_000, "nested"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_a_mistake_of_the_configuration(name: str) -> None:
    text, words = HOSTILE[name]
    with pytest.raises(ConfigError, match=words):
        Config.parse(text)


def test_hostile_values_of_the_environment_are_mistakes_too() -> None:
    assert override({}, {"SKETCHSTREAM__INPUT": "[" * 100_000})


def test_brackets_and_dots_in_strings_comments_and_numbers_do_not_count() -> None:
    much = "[{." * 200
    numbers = ", ".join(["0.5"] * 1000)
    text = f'a = \'{much}\' # {much}\nb = "\\"{much}"\nc = \'\'\'\n{much}\'\'\'\nd = """\\"""{much}"""\ne = [{numbers}]'
    assert read_toml(text) == tomllib.loads(text)


def test_the_deepest_text_is_read() -> None:
    brackets, key = "[" * DEEPEST + "]" * DEEPEST, ".".join("a" * DEEPEST)
    text = f"{key} = {brackets}"
    assert read_toml(text) == tomllib.loads(text)


@given(st.text("[]{}.=,a1\"'\\#\n ", max_size=80))
def test_what_is_read_is_what_the_parser_reads(text: str) -> None:
    try:
        expected = tomllib.loads(text)
    except ValueError:
        with pytest.raises(ValueError):
            read_toml(text)
    else:
        assert read_toml(text) == expected
