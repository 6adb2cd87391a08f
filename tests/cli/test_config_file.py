"""A line put into a configuration file leaves everything else as it is."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from sketchstream.cli.config_file import insert, set_partitioner
from sketchstream.errors import ConfigError

FILE = """# ours
[kafka]
"group.id" = "reach"   # a comment

[input]  # what comes in
  topic = "events"
  partitioned_by = "item"   # by user
  time = "ts"

[key]
file = "k"
"""


def test_the_line_stands_below_partitioned_by_and_nothing_else_changes(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(FILE)
    path.chmod(0o640)
    set_partitioner(path, "fnv1a")
    below = '  partitioned_by = "item"   # by user\n'
    assert path.read_text() == FILE.replace(below, below + '  partitioner = "fnv1a"\n')
    assert path.stat().st_mode & 0o777 == 0o640
    assert [one.name for one in tmp_path.iterdir()] == ["c.toml"]


@pytest.mark.parametrize(
    "text",
    [
        'input.topic = "e"\ninput.partitioned_by = "item"\n',
        '[input]\ntopic = "e"\n',
        '[input]\r\npartitioned_by = "item"\r\ntopic = "e"\r\n',
        '[input]\n"partitioned_by" = "item"',
        '[a]\npartitioned_by = "other"\n[input]\npartitioned_by = "item"\n',
        '[input]\ntext = """\npartitioned_by = 1\n"""\npartitioned_by = "item"\n',
    ],
)
def test_other_spellings_are_edited_too(text: str) -> None:
    edited = insert(text, "input", "partitioner", "murmur2", after="partitioned_by")
    assert edited is not None
    wanted = tomllib.loads(text)
    wanted["input"]["partitioner"] = "murmur2"
    assert tomllib.loads(edited) == wanted
    assert len(edited.splitlines()) == len(text.splitlines()) + 1


def test_what_cannot_be_edited_by_a_line_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('input = { topic = "e", partitioned_by = "item" }\n')
    with pytest.raises(ConfigError, match='by hand: partitioner = "murmur2"'):
        set_partitioner(path, "murmur2")
    assert path.read_text() == 'input = { topic = "e", partitioned_by = "item" }\n'
    assert insert('[input]\npartitioner = "x"\n', "input", "partitioner", "y", after="topic") is None
