"""Numbers of partitions that a topic may have had, from the first records of its partitions."""

from __future__ import annotations

import pytest

from sketchstream.stream.input.partition_counts import growths


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
