"""Fields that a sample does not have are named, with those that it has; no value is."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchstream.config.loader import Config
from sketchstream.errors import ConfigError
from sketchstream.items.arrays import Items
from sketchstream.items.events import Events
from sketchstream.stream.formats import UNITS_PER_S, TimeUnit
from sketchstream.stream.input.sampling import MIN_RECORDS, UNIT_NAMES, YEAR_MS, Sample, Wanted
from sketchstream.stream.windows.calendar import DAY_MS
from sketchstream_connectors.factory import look_at_file
from sketchstream_connectors.files.layout import Layout
from sketchstream_connectors.files.source import sample_of

EVENT = {"user_id": "zebra-5512", "n": 3, "ts": "2024-01-01T00:00:00Z", "device": {"os": "zebra-7"}}


def sample(tmp_path: Path, events: list[object], wanted: Wanted, form: str = "jsonl") -> Sample:
    path = tmp_path / "events.jsonl"
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    fields = wanted.item, wanted.item_type, wanted.weight, wanted.time
    layout = Layout(form, *fields, time_unit=wanted.time_unit)  # type: ignore[arg-type]
    return sample_of(path, layout, wanted)


DAILY = """
[input]
file = "events.jsonl"
item = "user_id"
time = "ts"
lateness = "1d"
[key]
file = "sketch.key"
[output]
directory = "sealed"
[[sketch]]
name = "s"
window = "1d"
epsilon = "1"
unit = "event"
domain = { slots = 64, levels = 2 }
"""
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
    found = sample(tmp_path, [EVENT] * MIN_RECORDS, wanted)
    mistakes, warnings = found.verdict()
    assert any(words in line for line in mistakes), mistakes
    assert warnings == []
    with pytest.raises(ConfigError) as caught:
        found.require()
    assert caught.value.mistakes == tuple(mistakes)
    fewer = sample(tmp_path, [EVENT] * (MIN_RECORDS - 1), wanted)
    assert fewer.verdict()[0] == []
    assert any(words in line for line in fewer.verdict()[1])
    assert "zebra" not in str(mistakes) + str(fewer.verdict())


def test_of_a_single_record_it_is_said_what_it_lacks(tmp_path: Path) -> None:
    (said,) = sample(tmp_path, [EVENT], BAD[0][0]).verdict()[1]
    assert said.startswith("no record of a sample of one has the field 'userid' (input.item)")
    (said,) = sample(tmp_path, [5], GOOD).verdict()[1]
    assert said.startswith("no record of a sample of one is a JSON object")


def test_rows_of_csv_with_a_trailing_comma_are_told(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("user_id,ts\n" + "zebra,1700000000000,\n" * 200)
    found = sample_of(tmp_path / "e.csv", Layout("csv", "user_id", time="ts"), Wanted("user_id", None, "ts"))
    (mistake, _) = found.verdict()[0]
    assert mistake.endswith(", or are rows of csv with more or fewer cells than the first line")


@pytest.mark.parametrize("unit", UNITS_PER_S)
def test_numbers_that_are_no_times_are_named(tmp_path: Path, unit: TimeUnit) -> None:
    found = sample(tmp_path, [EVENT | {"n": at % 7} for at in range(200)], Wanted("user_id", None, "n", time_unit=unit))
    (said,) = found.verdict()[1]
    assert said.startswith("most times of 'n' in a sample (input.time) lie in the first weeks of 1970")
    assert sample(tmp_path, [EVENT] * 200, Wanted("user_id", None, "ts", time_unit=unit)).verdict() == ([], [])


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


SECONDS = [632_000_000, 1_700_000_000, 4_102_444_799]


@pytest.mark.parametrize("second", SECONDS)
@pytest.mark.parametrize("expected", UNITS_PER_S)
@pytest.mark.parametrize("unit", UNITS_PER_S)
def test_times_in_another_unit_than_the_expected_one_are_a_mistake_that_names_theirs(
    tmp_path: Path, unit: TimeUnit, expected: TimeUnit, second: int
) -> None:
    wanted, per_s = Wanted("user_id", None, "ts", time_unit=expected), UNITS_PER_S[unit]
    events: list[object] = [
        {"user_id": "zebra", "ts": second * per_s + (n if second < 2_000_000_000 else -n)}
        for n in range(1, MIN_RECORDS)
    ]
    found = sample(tmp_path, [*events, {"user_id": "zebra", "ts": "2024-01-01T00:00:00Z"}], wanted)
    if unit == expected:
        assert found.verdict() == ([], [])
        return
    if (unit, expected) == ("ns", "s"):  # beyond 64 bits
        (doubt,) = found.verdict()[1]
        assert doubt.endswith("have no readable time: check input.time")
        return
    (mistake,) = found.verdict()[0]
    theirs, ours = UNIT_NAMES[unit], UNIT_NAMES[expected]
    assert mistake.startswith(f"the times of 'ts' in a sample (input.time) are {theirs} since 1970: as {ours}, which")
    assert mistake.endswith(f'set input.time_unit = "{unit}"')
    assert "zebra" not in mistake
    assert str(second)[:4] not in mistake


@pytest.mark.parametrize("time", [-7_000_000_000_000, 0, 1, 500_000_000, 631_152_000_000, 1_700_000_000_000, 4.1e12])
def test_milliseconds_of_any_year_are_no_mistake(tmp_path: Path, time: float) -> None:
    found = sample(tmp_path, [{"user_id": "z", "ts": int(time) + n} for n in range(200)], Wanted("user_id", None, "ts"))
    mistakes, warnings = found.verdict()
    assert mistakes == []
    assert len(warnings) == (0 <= time < 1e9), "only numbers so near to 0 are told, as they may be no times"


@given(
    second=st.integers(400_000_000, 4_000_000_000),
    shift=st.integers(-20_000_000, 20_000_000),
    unit=st.sampled_from(list(UNITS_PER_S)),
)
def test_the_unit_fits_the_records_own_timestamps_whatever_the_year(second: int, shift: int, unit: TimeUnit) -> None:
    per_s = UNITS_PER_S[unit]
    times = np.full(MIN_RECORDS, second * per_s, np.int64)
    nothing = np.zeros(MIN_RECORDS, np.bool_)
    found = Sample(Wanted(None, None, "ts"))
    decoded = Events(None, Items.of(["z"] * MIN_RECORDS), None, ~nothing, times, nothing)
    found.add(decoded, None, np.full(MIN_RECORDS, 1000 * (second + shift), np.int64))
    mistakes, doubts = found.verdict()
    assert [f"are {UNIT_NAMES[unit]} since 1970" in line for line in mistakes] == ([] if unit == "ms" else [True])
    assert doubts == []


def test_times_far_from_the_records_own_are_a_doubt() -> None:
    times = np.full(MIN_RECORDS, 1_500_000_000_000, np.int64)
    nothing = np.zeros(MIN_RECORDS, np.bool_)
    found = Sample(Wanted(None, None, "ts"))
    found.add(Events(None, Items.of(["z"] * MIN_RECORDS), None, ~nothing, times, nothing), None, times + 400 * DAY_MS)
    (doubt,) = found.verdict()[1]
    assert "more than a year away from the record's own timestamp" in doubt


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    assert sample(tmp_path, [], GOOD).verdict() == ([], [])


ORDERS = {
    "sorted": list(range(400)),
    "shuffled": random.Random(5).sample(range(400), 400),
    "backwards": list(range(400))[::-1],
    "two runs": [*range(0, 400, 2), *range(1, 400, 2)],
    "a wrong clock": [0, 1, 2, 100_000, *range(4, 400)],
}


@pytest.mark.parametrize("order", ORDERS)
def test_a_file_that_is_not_in_the_order_of_its_times_is_a_doubt(tmp_path: Path, order: str) -> None:
    events = (EVENT | {"ts": YEAR_MS * 50 + hour * DAY_MS // 24} for hour in ORDERS[order])
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    for lateness in ("1d", "400h"):
        config = Config.parse(DAILY.replace("1d", lateness, 1), tmp_path / "sketchstream.toml", {})
        mistakes, doubts = look_at_file(config)
        doubted = lateness == "1d" and order in ("shuffled", "backwards", "two runs")
        assert (mistakes, len(doubts)) == ([], doubted)
        assert all("sort the input by its times" in text for text in doubts)
