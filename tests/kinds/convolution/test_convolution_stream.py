"""Series and tables from a stream: configuration, positions from times and fields, cells from columns, partitions."""

from __future__ import annotations

import json
import math
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import sketchstream as ss
from helpers.commands import Run
from helpers.configurations import UNKEYED_TOPIC
from sketchstream.config.loader import Config
from sketchstream.errors import ConfigError
from sketchstream.kinds.convolution.spec import ConvolutionSpec
from sketchstream.stream.windows.calendar import Calendar, Width
from sketchstream.testing.driver import Driver

HOURLY = """[[sketch]]
name = "hourly"
kind = "convolution"
window = "1d"
kernel = ["window:6", "sum"]
step = "1h"
epsilon = 1
delta = "1e-6"
"""
HOUR = 3_600_000


def mistakes(block: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        Config.parse(UNKEYED_TOPIC.replace("time", 'item = "place"\ntime') + block)
    return caught.value.mistakes


def spec_of(block: str) -> ConvolutionSpec:
    (plan,) = Config.parse(UNKEYED_TOPIC + block).sketches
    assert isinstance(plan.spec, ConvolutionSpec)
    return plan.spec


def test_a_block_is_read_with_its_defaults() -> None:
    spec = spec_of(HOURLY)
    assert (spec.length, spec.step_ms, spec.layout) == (24, HOUR, "time")
    assert (spec.epsilon, spec.delta, spec.unit, spec.intrusion) == (1, Fraction(1, 10**6), "event", True)
    assert [one.name for one in spec.filters] == ["window:6", "sum"]
    year = HOURLY.replace('"1d"', '"1y"').replace('["window:6", "sum"]', "[1, 0.5]")
    assert spec_of(year).length == 8784
    field = HOURLY.replace('step = "1h"', 'position = "where"\nlength = 40')
    assert (spec_of(field).length, spec_of(field).step_ms) == (40, None)
    cells = HOURLY.replace('step = "1h"', 'columns = { late = [0, 1], day = ["mo", "tu", "we"] }')
    cells = cells.replace('["window:6", "sum"]', '"marginal:late"')
    assert (spec_of(cells).length, spec_of(cells).layout) == (6, "fourier")
    config = Config.parse(UNKEYED_TOPIC + field)
    assert config.columns == ("where",)


@pytest.mark.parametrize(
    ("window", "zone", "length"),
    [
        ("1d", "UTC", 24),
        ("1d", "America/New_York", 25),
        ("1d", "Asia/Tokyo", 24),
        ("12h", "America/New_York", 13),
        ("1mo", "UTC", 744),
        ("1mo", "Europe/Berlin", 745),
        ("1y", "Europe/Berlin", 8784),
        ("1w", "Europe/Berlin", 169),
    ],
)
def test_a_series_is_as_long_as_the_longest_window(window: str, zone: str, length: int) -> None:
    calendar = Calendar(Width.parse(window), zone)
    assert calendar.positions("1h") == (HOUR, length)
    starts = [datetime(2013, month, day, tzinfo=ZoneInfo(zone)) for month in range(1, 13) for day in range(1, 29)]
    for start in starts:
        low, high = calendar.window(round(start.timestamp() * 1000))
        assert (high - low) / HOUR <= length


def test_a_npy_kernel_lies_beside_the_file(tmp_path: Path) -> None:
    np.save(tmp_path / "weights.npy", np.array([3.0, 2, 1]))
    (tmp_path / "s.toml").write_text(UNKEYED_TOPIC + HOURLY.replace('["window:6", "sum"]', '"weights.npy"'))
    (plan,) = Config.load(tmp_path / "s.toml").sketches
    assert plan.spec.filters[0].coefficients.tolist() == [3, 2, 1]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('step = "1h"\n', "", "exactly one of step"),
        ("step", 'position = "p"\nlength = 4\nstep', "found step, position"),
        ('step = "1h"', 'position = "p"', "length and position belong together"),
        ('step = "1h"', 'step = "1d"', "shorter than the window"),
        ('step = "1h"', 'step = "1"', "step must be a number with a unit"),
        ('window = "1d"', 'windows = ["1d", "1w"]', "step needs one window"),
        ('["window:6", "sum"]', '"windw:6"', "kernel must be one of"),
        ('["window:6", "sum"]', '"window:60"', "from 1 to the length 24"),
        ("epsilon = 1", 'epsilon = 1\nunit = "item"', "max_total"),
        ("epsilon = 1", "epsilon = 1\ndomain = { slots = 1024 }", "domain belongs to"),
        ("epsilon = 1", 'epsilon = 1\nnoise = "laplac"', "noise"),
        ("epsilon = 1", "epsilon = 1\nkernle = 3", "did you mean"),
    ],
)
def test_one_mistake_in_a_block_is_told_once(old: str, new: str, said: str) -> None:
    found = mistakes(HOURLY.replace(old, new))
    assert len(found) == 1, found
    assert said in found[0]


@pytest.mark.parametrize("noise", ["gaussian", "counts"])
def test_partitions_of_a_killed_worker_add_up(noise: str) -> None:
    """Two days over three partitions: counted once, added up with their noise, joined over midnight."""
    driver = Driver(UNKEYED_TOPIC + HOURLY + f'noise = "{noise}"\n', partitions=3, now="2024-01-03T07:00:00Z")
    random = np.random.default_rng(4)
    truth = np.zeros(72, np.int64)
    for hour in range(54):
        for number in range(int(random.integers(15, 40))):
            at = f"2024-01-{1 + hour // 24:02}T{hour % 24:02}:{number:02}:30Z"
            driver.send({"ts": at}, timestamp=at, partition=number % 3)
            truth[hour] += 1
        if hour % 7 == 6:
            driver.run()
            driver.snapshot()
        if hour % 11 == 10:
            driver.kill()
    driver.run()
    first, second = driver.windows("hourly")[:2]
    assert (first.partitions, first.missing, len(first.parts)) == (3, (), 3)
    before = ss.merge(list(first.parts))
    answer = ss.merge(list(second.parts)).estimate(before=before)
    stacked = ss.stack(second.parts).estimate(before=ss.stack(first.parts))
    moving = np.convolve(truth, np.ones(6))[24:48]
    total = np.cumsum(truth[24:48])
    for name, expected in (("window:6", moving), ("sum", total)):
        one = answer[name]
        assert np.array_equal(one.values, stacked[name].values)
        assert np.abs((one.values - expected) / one.stderr).max() < 6
        assert not one.partial.any()
        assert len(one.layers) == 6
    assert answer["sum"].times is not None
    assert answer["sum"].times[5] == "2024-01-02T05:00:00Z"
    single = ss.Sketch.create(second.parts[0].spec).seal().estimate()["sum"]
    assert answer["sum"].stderr == pytest.approx(single.stderr * math.sqrt(3))
    assert all(part.ledger.sealed for part in second.parts)


LITTLE = 'epsilon = 9\nintrusion = false\nnoise = "counts"\n'


def test_positions_of_a_field_and_cells_of_columns() -> None:
    """What is no position, or no declared value, is no event; its neighbours count."""
    blocks = (
        '[[sketch]]\nname = "field"\nkind = "convolution"\nwindow = "1h"\nkernel = "sum"\nposition = "at.bin"\n'
        "length = 5\nmax_weight = 3\n" + LITTLE,
        '[[sketch]]\nname = "cells"\nkind = "convolution"\nwindow = "1h"\nkernel = ["marginal:late", "marginal:day"]\n'
        'columns = { late = [0, 1], day = ["mo", "tu", "we"] }\nmax_weight = 3\n' + LITTLE,
    )
    text = UNKEYED_TOPIC.replace('time = "ts"', 'time = "ts"\nweight = "w"') + "".join(blocks)
    driver = Driver(text, partitions=1, now="2024-01-01T02:00:00Z")
    random = np.random.default_rng(6)
    field, cells = np.zeros(5, np.int64), np.zeros((2, 3), np.int64)
    for hour in (0, 1):
        for number in range(900):
            at = f"2024-01-01T{hour:02}:{number // 15:02}:00Z"
            where: Any = [0, 1, 2, 3, 4, 5, -1, "2", 1.5, None][int(random.integers(10))]
            late: Any = [0, 1, "1", 2, "x", None][int(random.integers(6))]
            day: Any = ["mo", "tu", "we", "su", 3][int(random.integers(5))]
            weight = int(random.integers(-1, 5))
            driver.send({"ts": at, "w": weight, "at": {"bin": where}, "late": late, "day": day}, timestamp=at)
            counted = weight * (hour == 0 and abs(weight) <= 3)
            if isinstance(where, int) and 0 <= where < 5:
                field[where] += counted
            if str(late) in ("0", "1") and day in ("mo", "tu", "we"):
                cells[int(late), ["mo", "tu", "we"].index(day)] += counted
    driver.run()
    (position,) = driver.windows("field")[0].parts[0].estimate().answers
    assert np.abs(position.values - np.cumsum(field)).max() < 8 * position.stderr.max()
    by_late, by_day = driver.windows("cells")[0].parts[0].estimate().answers
    assert np.abs(by_late.values - cells.sum(1)).max() < 8 * by_late.stderr.max()
    assert np.abs(by_day.values - cells.sum(0)).max() < 8 * by_day.stderr.max()
    assert position.stderr.max() < 20  # an event that was counted wrongly would show


@pytest.mark.parametrize(
    ("block", "joins"),
    [
        ('columns = { day = ["mo", "tu"] }\nkernel = "marginal:day"\n', False),
        ('position = "n"\nlength = 8\nkernel = "window:3"\n', False),
        ('step = "15m"\nkernel = "window:3"\n', True),
    ],
    ids=["table", "places", "times"],
)
def test_only_series_of_times_are_joined_with_the_window_before(
    run: Run, tmp_path: Path, block: str, joins: bool
) -> None:
    """Tables had no answer but in their first window; places went on where those of the window before ended."""
    start = 1_704_067_200_000  # 2024
    lines = [json.dumps({"ts": start + n * 900_000, "day": "mo", "n": n % 8}) for n in range(9)]
    (tmp_path / "events.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "s.toml").write_text(
        '[input]\nfile = "events.jsonl"\ntime = "ts"\nlateness = "0s"\nclose_at_end = true\n'
        '[store]\nkind = "dir"\npath = "state"\n[output]\ndirectory = "sealed"\n'
        '[[sketch]]\nname = "one"\nkind = "convolution"\nwindow = "1h"\n' + block + LITTLE.replace("9", "30")
    )
    assert run("worker", "-c", tmp_path / "s.toml").code == 0
    said = run("estimate", "-c", tmp_path / "s.toml", "--all", "--format", "json")
    assert said.code == 0, said.err
    joined = ["joined" in json.loads(line) for line in said.out.splitlines()]
    assert joined == ([False, True, True] if joins else [False] * 3)


def test_a_file_worker_and_estimates_of_its_windows(run: Run, tmp_path: Path) -> None:
    """Days of a zone whose clock changes; the second day is completed with the first."""
    lines, truth = [], np.zeros(48, np.int64)
    first = round(datetime(2013, 3, 9, tzinfo=ZoneInfo("America/New_York")).timestamp())
    random = np.random.default_rng(7)
    for hour in range(48):
        for second in sorted(random.integers(0, 3600, 40).tolist()):
            lines.append(json.dumps({"ts": (first + hour * 3600 + second) * 1000}))
            truth[hour] += 1
    (tmp_path / "events.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "s.toml").write_text(
        '[input]\nfile = "events.jsonl"\ntime = "ts"\nlateness = "5m"\nclose_at_end = true\n'
        '[store]\nkind = "dir"\npath = "state"\n[output]\ndirectory = "sealed"\n'
        + HOURLY.replace('step = "1h"', 'step = "1h"\ntimezone = "America/New_York"')
    )
    worked = run("worker", "-c", tmp_path / "s.toml")
    assert worked.code == 0, worked.err
    said = run("estimate", "-c", tmp_path / "s.toml", "--from", "2013-03-10T05:00Z", "--to", "2013-03-11T04:00Z",
               "--format", "json")  # fmt: skip
    assert said.code == 0, said.err
    data = json.loads(said.out)
    assert data["joined"] == "2013-03-09T05:00:00Z"
    assert [one["count"] for one in data["filters"]] == [23, 23]  # a day whose clock went forward
    assert not any(data["partial"][:23])
    expected = np.convolve(truth, np.ones(6))[24:47]
    assert np.abs((np.array(data["values"][:23]) - expected) / np.array(data["stderr"][:23])).max() < 6
    assert data["labels"]["time"][23] == "2013-03-10T05:00:00Z"
    alone = run("estimate", "-c", tmp_path / "s.toml", "--to", "2013-03-10T05:00Z", "--format", "csv")
    assert alone.code == 0, alone.err
    rows = alone.out.splitlines()
    assert rows[0] == "filter,position,time,value,stderr,low,high,partial"
    assert [row.endswith("True") for row in rows[1:25]] == [True] * 5 + [False] * 19


@pytest.mark.filterwarnings("ignore::sketchstream.NoPrivacyWarning")
@pytest.mark.parametrize("noise", ["gaussian", "counts"])
@pytest.mark.parametrize(("wrong", "verdict"), [(0, "good"), (12, "incomplete")])
def test_a_loss_of_records_shows_in_every_answer(noise: str, wrong: int, verdict: str) -> None:
    block = HOURLY.replace('step = "1h"', 'position = "where"\nlength = 24').replace("epsilon = 1", "epsilon = 2")
    driver = Driver(UNKEYED_TOPIC + block + f'noise = "{noise}"\n', partitions=2, now="2024-01-02T07:00:00Z")
    for number in range(8000):
        at = f"2024-01-01T{number // 400:02}:00:{number % 60:02}Z"
        driver.send(
            {"ts": at, "where": -1 if number % 100 < wrong else number % 24}, timestamp=at, partition=number % 2
        )
    driver.advance(hours=30)
    quality = driver.windows("hourly")[0].quality
    assert quality.verdict == verdict
    assert quality.share is not None
    assert quality.share.value == pytest.approx(1 - wrong / 100, abs=0.03)
    assert ("lost" in quality.reason) == bool(wrong)


def test_an_item_has_no_share_of_records() -> None:
    block = HOURLY.replace("epsilon = 1", 'epsilon = 1\nunit = "item"\nmax_total = 3')
    text = UNKEYED_TOPIC.replace(
        'partitioned_by = "none"', 'item = "place"\npartitioned_by = "item"\npartitioner = "murmur2"'
    )
    driver = Driver(text + block, partitions=1, now="2024-01-02T07:00:00Z")
    driver.send({"ts": "2024-01-01T10:00:00Z", "place": "x"}, timestamp="2024-01-01T10:00:00Z")
    driver.advance(hours=30)
    quality = driver.windows("hourly")[0].quality
    assert (quality.verdict, quality.share) == ("good", None), "nothing was refused or misplaced"
    assert quality.refused is not None
    assert "no loss of records shows" in quality.reason


def test_records_are_judged_unless_a_block_says_otherwise() -> None:
    assert (spec_of(HOURLY).counted_share, spec_of(HOURLY).epsilon_records) == (Fraction(1, 40), Fraction(1, 10))
    without = spec_of(HOURLY + 'counted_share = 0\nepsilon_records = "0"\n')
    assert (without.counted_share, without.epsilon_records) == (0, 0)
