"""The partitioner of a sample: found where one fits, by scores that no event and no item moves by more than 1."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchstream.items.arrays import Items
from sketchstream.stream.input.partitioner import PARTITIONERS, Partitioner, belongs
from sketchstream.stream.input.partitioner_detection import (
    CANDIDATES,
    MIN_ITEMS,
    Placements,
    agrees,
    contradiction,
    missing,
)

Record = tuple[str, int]
EXTENT = "it has 7 records"


def place(item: str, partitioner: Partitioner, partitions: int) -> int:
    return next(p for p in range(partitions) if belongs(Items.of([item]), partitioner, [partitions], p)[0])


def placed(records: list[Record], partitions: int) -> Placements:
    found = Placements(partitions)
    for partition in range(partitions):
        here = [item for item, at in records if at == partition]
        if here:
            found.add(Items.of(here), partition)
    return found


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize("partitions", [2, 4, 7])
def test_the_partitioner_of_the_producer_is_found(partitioner: Partitioner, partitions: int) -> None:
    items = [f"user{number}" for number in range(MIN_ITEMS)]
    records = [(item, place(item, partitioner, partitions)) for item in items] * 2
    found = placed(records, partitions)
    assert found.scores()["none"] == Fraction(3, 4) * MIN_ITEMS
    choice = found.choose()
    assert (
        choice
        == {"murmur2": "murmur2", "consistent": "consistent_random", "fnv1a": "fnv1a"}[
            partitioner.removesuffix("_random")
        ]
    )
    assert agrees(choice, partitioner)
    assert contradiction(choice, partitioner) is None
    assert f'partitioner = "{choice}"' in missing(choice, partitions, EXTENT)
    other: Partitioner = "fnv1a" if choice != "fnv1a" else "murmur2"
    assert f'"{choice}"' in (contradiction(choice, other) or "")


@pytest.mark.parametrize("partitions", [2, 4])
def test_rows_that_are_spread_fit_no_partitioner(partitions: int) -> None:
    draw = random.Random(5)
    records = [(f"user{number}", draw.randrange(partitions)) for number in range(4 * MIN_ITEMS)]
    choice = placed(records, partitions).choose()
    assert choice == "none"
    assert "key the topic by the item" in missing(choice, partitions, EXTENT)
    assert "does not fit" in (contradiction(choice, "murmur2") or "")


def test_few_items_and_one_partition_say_nothing() -> None:
    few = placed([(f"user{n}", place(f"user{n}", "murmur2", 4)) for n in range(100)], 4)
    assert few.choose() == "unknown"
    assert "too few distinct items to find it with privacy (it takes about 1,000): it has 7 records" in missing(
        "unknown", 4, EXTENT
    )
    one = placed([(f"user{n}", 0) for n in range(3000)], 1)
    assert one.choose() == "unknown"
    assert "one partition" in missing("unknown", 1, EXTENT)
    assert contradiction("unknown", "murmur2") is None


records_of = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 2)), max_size=30)


@given(records=records_of, gone=st.sampled_from("abcdefgh"), at=st.integers(0, 29))
def test_one_item_or_one_event_moves_each_score_by_at_most_one(records: list[Record], gone: str, at: int) -> None:
    before = placed(records, 3).scores()
    without_item = placed([record for record in records if record[0] != gone], 3).scores()
    without_event = placed(records[:at] + records[at + 1 :], 3).scores()
    for after in (without_item, without_event):
        assert after.keys() == {*CANDIDATES, "none", "unknown"}
        assert all(abs(after[one] - before[one]) <= 1 for one in before)


def test_int_items_are_placed_by_their_digits() -> None:
    found = Placements(4)
    numbers = list(range(2000))
    for partition in range(4):
        here = [n for n in numbers if place(str(n), "murmur2", 4) == partition]
        found.add(Items.of(here), partition)
    assert found.scores()["murmur2"] == 2000
    assert found.choose() == "murmur2"
