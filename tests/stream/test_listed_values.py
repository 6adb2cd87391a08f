"""A sketch that lists other values than the records have says so before anything is published; no value is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sketchstream.config.loader import Config
from sketchstream.items.domains import Index
from sketchstream.stream.input.sampling import Sample
from sketchstream_connectors import factory
from sketchstream_connectors.files.source import add_to_sample, chunks, sample_of

SEEN = ("zebra", "yak", "xerus", "wombat")
HEAD = """
[input]
file = "events.jsonl"
item = "user"
weight = "n"
time = "ts"
close_at_end = true
[key]
file = "sketch.key"
[output]
directory = "sealed"
[[sketch]]
name = "s"
window = "1d"
epsilon = "1"
unit = "event"
"""
GROUPS = 'domain = {{ slots = 64, levels = 2 }}\ngroup_by = "kind"\ngroups = {}\n'
WHERE = "domain = {{ slots = 64, levels = 2 }}\nwhere = {{ kind = {} }}\n"
WORKLOAD = 'kind = "workload"\nworkload = "kind"\ncolumns = [{{ name = "kind", values = {} }}]\n'
LISTS = {"groups": GROUPS, "where": WHERE, "workload": WORKLOAD}


def doubts(folder: Path, block: str, change: Callable[[int], dict[str, object]] = lambda _: {}) -> list[str]:
    """What a sample of 400 records, 100 of each kind, gives rise to."""
    events = [{"user": n % 50, "kind": SEEN[n % 4], "n": 1, "ts": 1_763_251_200_000} | change(n) for n in range(400)]
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in events))
    head = HEAD.replace('item = "user"', 'item = "user"\nitem_type = "int"') if "projection" in block else HEAD
    config = Config.parse(head + block, folder / "sketchstream.toml", {})
    wanted = factory.wanted_fields(config)
    mistakes, found = sample_of(folder / "events.jsonl", factory.file_layout(config), wanted).verdict()
    assert mistakes == []
    return found


@pytest.mark.parametrize("kind", LISTS)
def test_a_misspelt_value_is_named(tmp_path: Path, kind: str) -> None:
    block = LISTS[kind].format(json.dumps(["zebbra", "yak", "xerus", "wombat"]))
    (said,) = doubts(tmp_path, block)
    assert said.startswith("sketch \"s\" lists 'zebbra' of the field 'kind', which none of the 400 records")
    assert "more than one in ten of them have a value that is not listed" in said
    assert "zebra" not in said


@pytest.mark.parametrize("kind", LISTS)
def test_right_lists_have_nothing_to_say(tmp_path: Path, kind: str) -> None:
    assert doubts(tmp_path, LISTS[kind].format(json.dumps(SEEN))) == []


@pytest.mark.parametrize("kind", LISTS)
def test_lists_of_nothing_that_occurs_leave_the_sketch_empty(tmp_path: Path, kind: str) -> None:
    (said,) = doubts(tmp_path, LISTS[kind].format(json.dumps(["Zebra", "Yak"])))
    assert said == (
        'sketch "s" counts none of the 400 records of a sample that hold an item: '
        "their 'kind' is not in its list, or range"
    )


def test_a_rare_group_that_the_sample_lacks_is_no_doubt(tmp_path: Path) -> None:
    assert doubts(tmp_path, GROUPS.format(json.dumps([*SEEN, "vole"]))) == []


def test_groups_chosen_among_many_leave_records_out(tmp_path: Path) -> None:
    (said,) = doubts(tmp_path, GROUPS.format('["zebra"]'))
    assert said.startswith('sketch "s" leaves out more than half of the 400 records of a sample that hold an item: the')
    assert "yak" not in said
    assert doubts(tmp_path, GROUPS.format('["zebra"]\nother_group = true')) == []
    assert doubts(tmp_path, WHERE.format('["zebra"]')) == [], "a filter is meant to leave records out"


def test_a_misspelt_name_is_named_beside_a_group_of_others(tmp_path: Path) -> None:
    (said,) = doubts(tmp_path, GROUPS.format('["zebbra", "yak"]\nother_group = true'))
    assert "'zebbra'" in said


def test_numbers_are_compared_as_sketches_compare_them(tmp_path: Path) -> None:
    def change(n: int) -> dict[str, object]:
        return {"kind": n % 4}

    assert doubts(tmp_path, GROUPS.format("[0, 1, 2, 3]"), change) == []
    (said,) = doubts(tmp_path, GROUPS.format("[0, 1, 2, 33]"), change)
    assert "lists '33' of the field 'kind'" in said


@pytest.mark.parametrize("kind", ["profile", "gaussian"])
def test_items_outside_of_a_closed_domain_are_said(tmp_path: Path, kind: str) -> None:
    block = f'kind = "{kind}"\n' + ('delta = "1e-6"\n' if kind == "gaussian" else "")
    (tmp_path / "items.txt").write_text("".join(f"{n}\n" for n in range(20)))
    (said,) = doubts(tmp_path, block + 'domain = { items_file = "items.txt" }\n')
    assert said == (
        'sketch "s" leaves out more than half of the 400 records of a sample that hold an item: '
        "their items are not in its domain"
    )
    (tmp_path / "items.txt").write_text("".join(f"{n}\n" for n in range(50)))
    assert doubts(tmp_path, block + 'domain = { items_file = "items.txt" }\n') == []


def test_leaves_and_rows_that_are_not_listed_are_said(tmp_path: Path) -> None:
    tree = 'kind = "hierarchy"\ndelta = "1e-6"\nlevels = ["kind"]\npaths = ["zebra", "yak"]\n'
    (said,) = doubts(tmp_path, tree)
    assert "leaves out more than a quarter of the 400 records" in said
    rows = (
        'kind = "projection"\ndelta = "1e-6"\nrow = "kind"\nk = 16\nmax_weight = 1\n'
        'rows = { items_file = "rows.txt" }\ndomain = { size = 50 }\n'
    )
    (tmp_path / "rows.txt").write_text("zebra\nyak\n")
    (said,) = doubts(tmp_path, rows)
    assert "their 'kind' is not in its list, or range" in said


def test_windows_of_several_lengths_say_it_once(tmp_path: Path) -> None:
    block = GROUPS.format('["zebbra", "yak", "xerus", "wombat"]')
    (tmp_path / "two").mkdir()
    events = [{"user": n, "kind": SEEN[n % 4], "n": 1, "ts": 1_763_251_200_000} for n in range(400)]
    path = tmp_path / "two" / "events.jsonl"
    path.write_text("".join(f"{json.dumps(one)}\n" for one in events))
    text = (HEAD + block).replace('window = "1d"', 'windows = ["1h", "1d"]')
    config = Config.parse(text, tmp_path / "two" / "sketchstream.toml", {})
    sample = sample_of(path, factory.file_layout(config), factory.wanted_fields(config))
    assert len(config.sketches) == 2
    assert len(sample.verdict()[1]) == 1


def test_an_index_is_built_once_for_all_partitions_of_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    build = Index.build
    monkeypatch.setattr(Index, "build", lambda *given: (built.append(1), build(*given))[1])
    (tmp_path / "items.txt").write_text("".join(f"{n}\n" for n in range(50)))
    block = 'kind = "profile"\ndomain = { items_file = "items.txt" }\n'
    assert doubts(tmp_path, block) == []
    config = Config.parse(HEAD + block, tmp_path / "sketchstream.toml", {})
    sample = Sample(factory.wanted_fields(config))
    built.clear()
    for _ in range(5):
        layout = factory.file_layout(config)
        for chunk in chunks(tmp_path / "events.jsonl", layout):
            if chunk is not None:
                add_to_sample(layout, chunk, sample)
    assert (sample.records, len(built)) == (2000, 1)


@pytest.mark.parametrize("kind", LISTS)
def test_records_without_an_item_say_nothing_of_lists(tmp_path: Path, kind: str) -> None:
    found = doubts(tmp_path, LISTS[kind].format('["zebbra"]'), lambda _: {"user": None})
    assert not any("lists" in one or "counts none" in one for one in found), found
