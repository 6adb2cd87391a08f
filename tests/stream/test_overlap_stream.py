"""Patterns of groups through a worker: four partitions, kills at random places, every region as the stream holds it.

In: made-up records, a configuration with next to no noise. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

import sketchstream as ss
from helpers.configurations import KEYED_TOPIC
from helpers.workers import close_all, run_and_perhaps_kill
from sketchstream.query import overlaps
from sketchstream.testing.driver import Driver

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")
NAMES = ("spring", "summer", "brand")
BLOCK = """
[[sketch]]
name = "reach"
window = "1h"
epsilon = "30"
unit = "item"
domain = { size = 300 }
group_by = "campaign"
groups = ["spring", "summer", "brand"]
overlap = true
epsilon_overlap = "30"
"""
TOPIC = KEYED_TOPIC.replace('item = "user"', 'item = "user"\nitem_type = "int"')


def streamed(more: str, seed: int) -> tuple[Any, dict[frozenset[str], int]]:
    """The answers of one window whose worker was killed from time to time, and its items by their groups."""
    rng = random.Random(seed)
    driver = Driver(TOPIC + BLOCK + more, partitions=4, now="2024-01-01T03:00:00Z", key=ss.Key(bytes(16)))
    groups: dict[int, set[str]] = {}
    for number in range(900):
        user, name = rng.randrange(200), rng.choice((*NAMES, "unheard of"))
        driver.send({"user": user, "ts": f"2024-01-01T00:{number // 15:02}:00Z", "campaign": name})
        if name in NAMES:
            groups.setdefault(user, set()).add(name)
        if number % 150 == 149:
            run_and_perhaps_kill(driver, rng)
    close_all(driver)
    (window,) = driver.windows("reach")
    regions: dict[frozenset[str], int] = {}
    for inside in groups.values():
        regions[frozenset(inside)] = regions.get(frozenset(inside), 0) + 1
    return window.result().overlap(), regions


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("more", ["modulus = 64\nepsilon_publish = 30\n", "modulus = 64\nhistograms = false\n"])
def test_all_regions_are_those_of_the_stream_whatever_was_killed(seed: int, more: str) -> None:
    found, regions = streamed(more, seed)
    for row in found.regions():
        assert row["value"] == pytest.approx(regions.get(frozenset(row["in"]), 0), abs=0.5)
    assert found.people.value == pytest.approx(sum(regions.values()), abs=0.5)


@pytest.mark.parametrize("noise", ["groups", "joint"])
def test_presence_is_right_within_what_its_residues_hide(noise: str) -> None:
    more = f'counts = "presence"\nmodulus = 1000\nnoise = "{noise}"\n'
    found, regions = streamed(more, 3)
    for row in found.regions():  # one residue in 1,000 is 0
        assert row["value"] == pytest.approx(regions.get(frozenset(row["in"]), 0), abs=5)
    assert found.people.value == pytest.approx(sum(regions.values()), abs=5)


def test_an_answer_has_the_facts_and_the_guarantee_of_its_window() -> None:
    driver = Driver(TOPIC + BLOCK + "modulus = 64\n", partitions=2, now="2024-01-01T03:00:00Z", key=ss.Key(bytes(16)))
    driver.send({"user": 5, "ts": "2024-01-01T00:10:00Z", "campaign": "spring"})
    driver.run()
    driver.advance(hours=12)
    driver.run()
    (window,) = driver.windows("reach")
    answer = overlaps.OverlapAnswer(window.result().overlap(), window.fields(), {}, intervals=False)
    data = answer.to_dict(["spring", "spring & summer"])
    assert data["window_start"] == "2024-01-01T00:00:00Z"
    assert [row["low"] for row in data["answers"]] == [None, None]
    assert data["people"]["sd"] is None
