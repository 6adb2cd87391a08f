"""Fields that a sample does not have are named, with those that it has; no value is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sketchstream.errors import ConfigError
from sketchstream.stream.sampling import ENOUGH, Sample, Wanted
from sketchstream_connectors.files.source import Layout, sample_of

EVENT = {"user_id": "zebra-5512", "n": 3, "ts": "2024-01-01T00:00:00Z", "device": {"os": "zebra-7"}}


def sample(tmp_path: Path, events: list[object], wanted: Wanted, form: str = "jsonl") -> Sample:
    path = tmp_path / "events.jsonl"
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    layout = Layout(form, wanted.item, wanted.item_type, wanted.weight, wanted.time)  # type: ignore[arg-type]
    return sample_of(path, layout, wanted)


GOOD = Wanted("user_id", "n", "ts", max_weight=3)
BAD = [
    (Wanted("userid", "n", "ts", max_weight=3), "has the field 'userid' (input.item); fields there are: device.os, n"),
    (Wanted("user_id", "m", "ts"), "has the field 'm' (input.weight): every event would count as 1; fields there"),
    (Wanted("user_id", "n", "tss", max_weight=3), "has the field 'tss' (input.time); fields there are"),
    (Wanted("device.so", None, "ts"), "did you mean 'device.os'?"),
    (Wanted("user_id", "n", "ts", max_weight=2), "every weight of a sample is above max_weight = 2"),
    (Wanted("user_id", None, "n", item_type="int"), "hold no item of type int (input.item_type)"),
    (Wanted("user_id", "ts", "ts"), "or no whole number as its weight (input.weight)"),
    (Wanted("user_id", None, "user_id"), "has a readable time in 'user_id' (input.time)"),
]


def test_a_sample_with_every_field_has_nothing_to_say(tmp_path: Path) -> None:
    found = sample(tmp_path, [EVENT] * 200, GOOD)
    assert found.verdict() == ([], [])
    assert found.require() == []


@pytest.mark.parametrize(("wanted", "words"), BAD)
def test_a_field_that_no_record_has_is_a_mistake(tmp_path: Path, wanted: Wanted, words: str) -> None:
    found = sample(tmp_path, [EVENT] * ENOUGH, wanted)
    mistakes, warnings = found.verdict()
    assert any(words in line for line in mistakes), mistakes
    assert warnings == []
    with pytest.raises(ConfigError) as caught:
        found.require()
    assert caught.value.mistakes == tuple(mistakes)
    fewer = sample(tmp_path, [EVENT] * (ENOUGH - 1), wanted)
    assert fewer.verdict()[0] == []
    assert any(words in line for line in fewer.verdict()[1])
    assert "zebra" not in str(mistakes) + str(fewer.verdict())


def test_one_record_with_the_field_is_no_mistake_but_many_without_are_a_doubt(tmp_path: Path) -> None:
    other = {name: value for name, value in EVENT.items() if name != "user_id"}
    found = sample(tmp_path, [EVENT, *[other] * 199], GOOD)
    assert found.lacking() == ([], [])
    (doubt,) = found.verdict()[1]
    assert "more than one in twenty records of a sample hold no item" in doubt


def test_a_json_array_is_refused_however_short(tmp_path: Path) -> None:
    for text in (json.dumps([EVENT] * 5), json.dumps([EVENT] * 5, indent=2)):
        path = tmp_path / "a.jsonl"
        path.write_text(text)
        found = sample_of(path, Layout("jsonl", "user_id", time="ts"), Wanted("user_id", None, "ts"))
        (mistake,) = found.verdict()[0]
        assert "JSON array, not one JSON object a line" in mistake


def test_names_are_shown_only_where_many_records_have_them(tmp_path: Path) -> None:
    events = [{f"marked-{number}": 1, "common": 2} for number in range(200)]
    (mistake,) = sample(tmp_path, events, Wanted("user_id", timed=False)).verdict()[0]
    assert mistake.endswith("fields there are: common")
    (warning,) = sample(tmp_path, events[:5], Wanted("user_id", timed=False)).verdict()[1]
    assert "fields there are" not in warning


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    assert sample(tmp_path, [], GOOD).verdict() == ([], [])
