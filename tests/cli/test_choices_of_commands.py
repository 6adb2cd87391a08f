"""A word that nobody knows is refused by every command and every key of a configuration that offers a choice.

In: the commands' options and the configuration's schema. Out: nothing. Touches: folders of the tests.
"""

from __future__ import annotations

import copy
import tomllib
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from pydantic import BaseModel

from helpers.commands import Run
from sketchstream import kinds
from sketchstream.cli import app
from sketchstream.config.loader import Config
from sketchstream.config.schema import FileTable
from sketchstream.errors import ConfigError
from sketchstream.kinds.config_tables import table_of

WORDS = {
    ("create", "--kind"): ["create", "--unit", "event", "--epsilon", "1", "--size", "64", "-o", "s.sketch"],
    ("estimate", "--method"): ["estimate", "sealed"],
    ("verify", "--only"): ["verify", "--quick"],
    ("plan", "--number"): ["plan", "--unit", "event", "--epsilon", "1", "--open", "--items", "5000", "--target", "0.5"],
    ("size", "--number"): ["size", "--items", "1e6", "--error", "0.1"],
}
"""Options that are texts, and name one of several things, in a command that is otherwise right."""
TEXT = """
[input]
file = "e.jsonl"
item = "user"
time = "ts"
[key]
file = "key"
[privacy.budget]
epsilon = "24"
per = "1d"
[[sketch]]
name = "hourly"
window = "1h"
unit = "event"
epsilon = "1"
domain = { slots = 64, levels = 2 }
"""


def options() -> Iterator[tuple[str, click.Option]]:
    """Every option of every command."""

    def inside(name: str, command: click.Command) -> Iterator[tuple[str, click.Option]]:
        context = click.Context(command, info_name=name)
        if isinstance(command, click.Group):
            for part in command.list_commands(context):
                found = command.get_command(context, part)
                assert found is not None
                yield from inside(f"{name} {part}".strip(), found)
        else:
            yield from ((name, one) for one in command.params if isinstance(one, click.Option))

    return inside("", app.app)


CHOICES = [(name, one.opts[-1]) for name, one in options() if isinstance(one.type, click.Choice)]


@pytest.mark.parametrize(("name", "option"), CHOICES)
def test_a_choice_of_a_command_refuses_an_unknown_word(run: Run, name: str, option: str) -> None:
    done = run(*name.split(), option, "eror")
    assert done.code == 2
    assert "'eror'" in done.err


@pytest.mark.parametrize("which", WORDS)
def test_a_name_that_a_command_does_not_know_is_refused(run: Run, tmp_path: Path, which: tuple[str, str]) -> None:
    (tmp_path / "c.toml").write_text(TEXT)
    (tmp_path / "e.jsonl").write_text('{"user": 1, "ts": 1700000000000}\n')
    assert run("keygen", "-o", "key").code == 0
    made = ["create", "--kind", "gaussian", "--epsilon", "1", "--delta", "1e-6", "--size", "64", "-o", "g.sketch"]
    assert run(*made).code == 0
    assert run("seal", "g.sketch", "-o", "sealed").code == 0
    done = run(*WORDS[which], which[1], "eror")
    assert done.code == 2, done.err
    assert "eror" in done.err


def choices(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Places of the keys that take one of several words, true or false."""
    for name, field in model.model_fields.items():
        key = field.alias or name
        parts = [field.annotation]
        while parts:
            kind = parts.pop()
            origin = typing.get_origin(kind)
            if kind is bool or origin is typing.Literal:
                yield (*path, key)
            elif origin in (typing.Union, types.UnionType, typing.Annotated):
                parts += typing.get_args(kind)
            elif isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from choices(kind, (*path, key))


def keys() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Kind of the sketch, and place of a key."""
    for place in choices(FileTable):
        if place[0] != "sketch":
            yield "profile", place
    for kind in kinds.names():
        model = table_of(kind)
        if model is None:  # a kind that configurations do not know
            continue
        for place in choices(model):
            yield kind, ("sketch", *place)


@pytest.mark.parametrize(("kind", "place"), list(keys()))
def test_a_key_of_a_configuration_refuses_an_unknown_word(kind: str, place: tuple[str, ...]) -> None:
    assert Config.parse(TEXT).sketches
    data = copy.deepcopy(tomllib.loads(TEXT))
    data["sketch"][0]["kind"] = kind
    inner: Any = data
    for part in place[:-1]:
        inner = inner.setdefault(part, {})
        inner = inner[0] if isinstance(inner, list) else inner
    inner[place[-1]] = "eror"
    with pytest.raises(ConfigError) as caught:
        Config.from_data(data, Path("c.toml"))
    assert any(place[-1] in mistake and "eror" in mistake for mistake in caught.value.mistakes), caught.value
