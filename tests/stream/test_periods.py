"""Periods of a window as groups: who came back, through a worker that is killed at random places.

In: made-up records, configurations with next to no noise. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import sketchstream as ss
from helpers.commands import Run
from helpers.configurations import KEYED_TOPIC
from helpers.workers import close_all, run_and_perhaps_kill
from sketchstream.config.loader import Config
from sketchstream.errors import ConfigError, SpecError
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.stream.windows.calendar import Calendar, Width
from sketchstream.testing.driver import Driver

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")
TOPIC = KEYED_TOPIC.replace('item = "user"', 'item = "user"\nitem_type = "int"')
BLOCK = """
[[sketch]]
name = "back"
window = "4h"
every = "1h"
periods = "2h"
epsilon = "30"
unit = "item"
domain = { size = 300 }
overlap = true
epsilon_overlap = "30"
"""
ORIGIN_MIN = 28_401_120
"""2024-01-01T00:00Z, minutes since 1970."""


def streamed(text: str, seed: int) -> tuple[Any, list[tuple[int, int]]]:
    """The windows of a worker that was killed from time to time; minute and user of all events."""
    rng = random.Random(seed)
    driver = Driver(text, partitions=4, now="2024-01-01T08:00:00Z", key=ss.Key(bytes(16)))
    events = []
    for number in range(900):
        minute, user = number // 3, rng.randrange(200)
        events.append((minute, user))
        driver.send({"user": user, "ts": f"2024-01-01T{minute // 60:02}:{minute % 60:02}:00Z"})
        if number % 150 == 149:
            run_and_perhaps_kill(driver, rng)
    close_all(driver)
    return driver.windows("back"), events


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("more", "within"),
    [
        ("modulus = 64\nhistograms = false\n", 0.5),
        ("modulus = 64\nepsilon_publish = 30\n", 0.5),
        ('counts = "presence"\nmodulus = 2000\nnoise = "joint"\n', 3.0),
    ],
)
def test_who_came_back_in_overlapping_windows(seed: int, more: str, within: float) -> None:
    windows, events = streamed(TOPIC + BLOCK + more, seed)
    assert len(windows) == 8
    for window in windows:
        start = window.window[0] // 60_000 - ORIGIN_MIN
        first, second = ({user for at, user in events if low <= at < low + 120} for low in (start, start + 120))
        found = window.result().overlap()
        assert found.groups == ("p1", "p2")
        truth = {
            "p1": first,
            "p2": second,
            "p1 & p2": first & second,
            "p2 - p1": second - first,
            "p1 | p2": first | second,
        }
        for query, users in truth.items():
            assert found.query(query).value == pytest.approx(len(users), abs=within), (start, query)


def test_each_period_has_a_profile_of_its_own() -> None:
    text = BLOCK.replace("overlap = true\nepsilon_overlap", "modulus = 64\nepsilon_publish").replace(
        'every = "1h"\n', ""
    )
    windows, events = streamed(TOPIC + text, 3)
    assert len(windows) == 2
    for window in windows:
        start = window.window[0] // 60_000 - ORIGIN_MIN
        for place, name in enumerate(("p1", "p2")):
            low = start + 120 * place
            users = {user for at, user in events if low <= at < low + 120}
            assert window.of_group(name).result().profile().distinct.value == pytest.approx(len(users), abs=0.5)


def test_a_period_is_where_its_time_lies() -> None:
    groups = ss.Groups.periods(3, 1000)
    times = np.array([500, 999, 1000, 2999, 3000, 9000, -4], np.int64)
    assert groups.codes_in(times, (0, 3000)).tolist() == [0, 0, 1, 2, 2, 2, 0]
    assert groups.codes_in(times + 70, (70, 3070)).tolist() == [0, 0, 1, 2, 2, 2, 0]
    with pytest.raises(SpecError, match="periods need a window"):
        groups.codes_in(times, None)


def test_a_spec_with_periods_is_its_own_and_comes_back() -> None:
    def spec(groups: ss.Groups) -> ProfileSpec:
        return ProfileSpec("1", "item", ss.ClosedDomain(size=9), groups=groups, overlap=True)

    periods, fields = spec(ss.Groups.periods(2, 3_600_000)), spec(ss.Groups(["p1", "p2"]))
    assert periods.fingerprint != fields.fingerprint
    assert periods.fingerprint != spec(ss.Groups.periods(2, 60_000)).fingerprint
    again = ProfileSpec.from_dict(periods.to_dict())
    assert again == periods
    assert again.groups is not None
    assert again.groups.period_ms == 3_600_000
    sketch = ss.Sketch.create(periods)
    sketch.update([("p1", 3), ("p2", 3)])
    assert sketch.seal().overlap().groups == ("p1", "p2")


@pytest.mark.parametrize("more", [{"other": True}, {"of_item": True}, {"max_groups": 1, "limit": "ranked"}])
def test_what_contradicts_periods_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="periods of a window are all there is"):
        ss.Groups(["p1", "p2"], period_ms=5, **more)


@pytest.mark.parametrize(
    ("block", "says"),
    [
        (BLOCK.replace('"2h"', '"3h"'), "periods must divide the window of 4h into two or more, found '3h'"),
        (BLOCK.replace('"2h"', '"4h"'), "two or more"),
        (BLOCK.replace('"2h"', '"tomorrow"'), "a period is"),
        (BLOCK + 'timezone = "Europe/Berlin"\n', 'timezone = "UTC"'),
        (BLOCK + 'group_by = "campaign"\ngroups = ["a"]\n', "either group_by or periods"),
        (BLOCK.replace('window = "4h"\nevery = "1h"', 'windows = ["4h", "8h"]'), "periods need one window"),
        (
            BLOCK.replace('"4h"', '"1d"').replace('every = "1h"\n', "").replace('"2h"', '"1h"'),
            "2 to 12 groups, found 24",
        ),
        (BLOCK.replace('periods = "2h"\n', ""), "or periods"),
    ],
)
def test_a_configuration_with_other_periods_is_refused(block: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        Config.parse(TOPIC + block)
    assert says in str(error.value)


def test_periods_of_months_are_refused() -> None:
    with pytest.raises(ConfigError, match="months everywhere"):
        Calendar(Width.parse("1mo")).periods("1mo", "1w")


def test_a_file_without_windows_is_told_what_to_do(run: Run, tmp_path: Any) -> None:
    spec = ProfileSpec("2", "item", ss.ClosedDomain(size=9), groups=ss.Groups.periods(2, 60_000))
    ss.Sketch.create(spec).save(tmp_path / "open.sketch")
    (tmp_path / "events.jsonl").write_text('{"user": 3}\n')
    assert "periods need a window" in run("update", "open.sketch", "events.jsonl", "--item", "user").complaint
