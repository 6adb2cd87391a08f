"""Numbers of partitions that a topic may have had, from the first records of its partitions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from sketchstream.errors import BrokerError
from sketchstream.stream.input.partition_counts import MANY_RECORDS, PRODUCERS_LEARN_MS, growths
from sketchstream_connectors.kafka.cluster.client import Admin
from sketchstream_connectors.kafka.input.growth import former_numbers


class Brokers(Admin):
    """Two partitions of many records from time 10 on, one that came at time 90; leaders that do not answer."""

    def __init__(self, records: int, silent: Collection[int] = ()) -> None:
        self.records, self.silent = records, silent

    def _offsets(self, topic: str, partitions: Collection[int], which: Any) -> dict[int, tuple[int, int]]:
        first = {0: (0, 10), 1: (0, 10), 2: (0, 90)}
        later = {0: (-1, -1), 1: (self.records, 95), 2: (0, 90)}
        ends = {0: (self.records, -1), 1: (self.records + 5, -1), 2: (5, -1)}
        said = ends if which == "latest" else first if which == 0 else later
        return {partition: said[partition] for partition in partitions if partition not in self.silent}


@pytest.mark.parametrize(
    ("first", "found"),
    [
        ({0: (0, 10), 1: (0, 11), 2: (0, 90), 3: (0, 95)}, {2: 90, 3: 95}),
        ({0: (7, 10), 1: (3, 11), 2: (0, 90), 3: (0, 80)}, {2: 80}),
        ({0: (0, 10), 1: (0, 11), 2: (0, 90)}, {2: 90}),  # partition 3 has no record yet
        ({0: (0, 10), 1: (0, 99), 2: (0, 90), 3: (0, 95)}, {}),  # partition 1 began after partition 2
        ({0: (0, 10), 1: (0, 11), 2: (5, 90), 3: (0, 91)}, {3: 91}),  # records of partition 2 were erased
        ({0: (0, 10), 2: (0, 90), 3: (0, 95)}, {}),  # partition 1 is empty: nothing says that it was there first
        ({}, {}),
    ],
)
def test_added_partitions_come_last_and_begin_later(first: dict[int, tuple[int, int]], found: dict[int, int]) -> None:
    got = growths(4, first)
    assert {n: time for n, time in got.items() if n > 1} == found
    assert all(n >= 1 for n in got)


@pytest.mark.parametrize("records", [MANY_RECORDS, MANY_RECORDS - 1])
def test_a_growth_is_told_from_chance_by_what_came_before_it(records: int) -> None:
    found = former_numbers(Brokers(records), "t", 3)
    assert found == ({2: 90 + PRODUCERS_LEARN_MS} if records == MANY_RECORDS else {})


@pytest.mark.parametrize("silent", [0, 1, 2])
def test_a_leader_that_does_not_answer_is_no_empty_partition(silent: int) -> None:
    with pytest.raises(BrokerError, match=f"no leader answers for partition {silent}"):
        former_numbers(Brokers(MANY_RECORDS, [silent]), "t", 3)
