"""`sketchstream create --table`: a sketch of any kind that can be configured, from a file."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import sketchstream as ss
from helpers.commands import Run

TABLES: dict[str, tuple[str, dict[str, Any]]] = {
    "profile": (
        'unit = "event"\nepsilon = "1/2"\ndomain = { slots = 64, levels = 2 }\n',
        {"epsilon": Fraction(1, 2), "unit": "event"},
    ),
    "gaussian": (
        'kind = "gaussian"\nepsilon = 1\ndelta = "1e-6"\nmax_weight = 2.5\nfraction_bits = 1\ndomain = { size = 30 }\n',
        {"epsilon": Fraction(1), "max_weight": Fraction(5, 2), "fraction_bits": 1},
    ),
    "gaussian of a list": (
        'kind = "gaussian"\nepsilon = 1\ndelta = "1e-6"\nunit = "item"\nmax_total = 9\n'
        'domain = { items_file = "list.txt" }\n',
        {"unit": "item", "max_total": Fraction(9)},
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_sketch_is_made_as_the_file_says(run: Run, tmp_path: Path, name: str) -> None:
    text, wanted = TABLES[name]
    (tmp_path / "t.toml").write_text(text)
    (tmp_path / "list.txt").write_text("a\nb\nc\n")
    assert run("keygen", "-o", "key").code == 0
    done = run("create", "-o", "s.sketch", "--table", "t.toml", "--key-file", "key")
    assert done.code == 0, done.err
    sketch = ss.load(tmp_path / "s.sketch", key=ss.Key.load(tmp_path / "key"))
    assert sketch.spec.kind == name.split(maxsplit=1)[0]
    assert {one: getattr(sketch.spec, one) for one in wanted} == wanted
    again = run("create", "-o", "s.sketch", "--table", "t.toml", "--key-file", "key")
    assert again.code != 0, "an open sketch is not overwritten"


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ('kind = "gaussian"\nepsilon = 1\ndelt = "1e-6"\ndomain = { size = 3 }\n', (), "unknown key delt"),
        ('kind = "gaussian"\nepsilon = 1\ndelta = "1e-6"\n', (), "domain is missing"),
        ('kind = "gausian"\nepsilon = 1\ndomain = { size = 3 }\n', (), "kind must be"),
        ("epsilon = 1\ndomain = { size = 3 }\n", ("--size", "3"), "--size is said by the file"),
        ("epsilon = 1\ndomain = { size = 3 }\n", ("--epsilon", "1"), "--epsilon is said by the file"),
        ("epsilon = 1\ndomain = { size = 3 }\n", ("--delta", "1e-6"), "--delta is said by the file"),
        ("epsilon = 1\ndomain = { size = 3 }\n", ("--kind", "profile"), "--kind is said by the file"),
        ('name = "x"\nepsilon = 1\ndomain = { size = 3 }\n', (), "without name and windows"),
        ('[input]\nfile = "x"\n[[sketch]]\nname = "x"\nunit = "event"\n', (), "keys of one [[sketch]] block"),
        ("epsilon = = 1\n", (), "not valid TOML"),
        ('unit = "item"\nepsilon = 1\ndomain = { slots = 64 }\n', (), "needs a hash key"),
    ],
)
def test_mistakes_name_the_file_and_the_key(
    run: Run, tmp_path: Path, text: str, options: tuple[str, ...], said: str
) -> None:
    (tmp_path / "t.toml").write_text(text)
    done = run("create", "-o", "s.sketch", "--table", "t.toml", *options)
    assert done.code not in (0, 70)
    assert said in done.err
    assert not (tmp_path / "s.sketch").exists()


def test_a_file_that_is_not_there_and_a_missing_epsilon(run: Run) -> None:
    assert "cannot read" in run("create", "-o", "s.sketch", "--table", "none.toml").err
    assert "--epsilon is needed" in run("create", "-o", "s.sketch", "--size", "3").err
    assert "--epsilon is needed" in run("create", "-o", "s.sketch", "--kind", "gaussian", "--size", "3").err
