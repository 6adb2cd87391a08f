"""Finds the partitioner of a topic's producers in a sample of its records.

In: items of a sample, each with the partition it lay in. Out: a partitioner, or that none fits, or that the sample is
too small to say. Touches: the entropy source, once.

Which partitioner fits is a function of keys, so it is chosen with differential privacy, on the operator's side, before
a worker runs: the exponential mechanism with epsilon 1/10 over these scores, with n the number of distinct items of
the sample,

    a partitioner   items all of whose records lie in the partition where it puts them
    none            3/4 n
    unknown         512

One event, or everything of one item, changes each score by at most 1, because the sample is chosen by offsets and not
by what is in the records. Where one partitioner fits all items and n >= 1,024, the choice is wrong with a probability
below 2e-5.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final, Literal

import numpy as np

from sketchstream.items.arrays import Items
from sketchstream.noise import selection
from sketchstream.noise.entropy import WordSource
from sketchstream.stream.input.partitioner import HASHES, Partitioner, belongs

EPSILON: Final = Fraction(1, 10)
"""Cost of one choice, for an event and for an item."""
MIN_ITEMS: Final = 1024
"""Distinct items from which a choice is reliable."""
UNKNOWN_SCORE: Final = Fraction(512)
"""Items that a partitioner must place right before it is chosen: half of `MIN_ITEMS`."""
NONE_SHARE: Final = Fraction(3, 4)
"""Share of the items that a partitioner must place right, or else records are not partitioned by item."""

Choice = Literal["murmur2", "consistent_random", "fnv1a", "none", "unknown"]
CANDIDATES: Final[tuple[Literal["murmur2", "consistent_random", "fnv1a"], ...]] = (
    "murmur2",
    "consistent_random",
    "fnv1a",
)
"""One partitioner for each hash function; a `_random` variant places keys as its plain one does."""
USED_BY: Final = {
    "murmur2": "Java, kafka-python; librdkafka's murmur2 and murmur2_random place keys alike",
    "consistent_random": "librdkafka's default: confluent-kafka; librdkafka's consistent places keys alike",
    "fnv1a": "librdkafka's fnv1a and fnv1a_random; Sarama's hash partitioner",
}
"""Whose partitioner each candidate is."""
NONE_FITS: Final = (
    "no known partitioner puts the items of a sample where they lie: the record's key is not the item, or producers "
    'spread records; key the topic by the item, or set input.partitioned_by = "none" (sketches then publish their '
    'state and are merged), or, if each item does stay in one partition, input.partitioner = "unchecked"'
)
"""What to do where no partitioner fits."""


class Placements:
    """The distinct items of a sample, and which partitioners put all their records where they were found.

    Args:
        partitions: number of partitions of the topic.
    """

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._fits: dict[bytes | int, int] = {}

    def __repr__(self) -> str:
        return f"Placements({self._partitions} partitions)"

    def add(self, items: Items, partition: int, former: Sequence[int] = ()) -> None:
        """Add the items of records that were in this partition.

        Args:
            items: items of the records.
            partition: where they were.
            former: numbers of partitions that the topic may have had when they were written.
        """
        whole = items.whole()
        bits = np.zeros(len(items), np.int64)
        for number, candidate in enumerate(CANDIDATES):
            bits |= belongs(items, candidate, [self._partitions, *former], partition).astype(np.int64) << number
        for name, fits in zip(_names_of_items(whole), bits.tolist(), strict=True):
            self._fits[name] = self._fits.get(name, -1) & fits

    def scores(self) -> dict[Choice, Fraction]:
        """The score of each choice."""
        scores: dict[Choice, Fraction] = {"none": NONE_SHARE * len(self._fits), "unknown": UNKNOWN_SCORE}
        for number, candidate in enumerate(CANDIDATES):
            scores[candidate] = Fraction(sum(fits >> number & 1 for fits in self._fits.values()))
        return scores

    def choose(self, entropy: WordSource | None = None) -> Choice:
        """Make one choice, at a cost of `EPSILON`; "unknown" for a topic of one partition, which fits every one."""
        if self._partitions == 1:
            return "unknown"
        return selection.choose(self.scores(), EPSILON, entropy)


def _names_of_items(whole: Items) -> list[Any]:
    """Items of one piece as keys of a dictionary."""
    if whole.type_name == "int":
        return list(whole.arrays[0].tolist())
    buffer, starts, ends = whole.arrays
    memory = buffer.tobytes()
    return [memory[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def missing(choice: Choice, partitions: int, extent: str) -> str:
    """The message for a topic whose partitioner is not configured.

    Args:
        choice: result of `Placements.choose`.
        partitions: number of the topic's partitions.
        extent: records that the sample consists of.
    """
    if choice == "none":
        return f"input.partitioner is missing, and {NONE_FITS}"
    if choice != "unknown":
        return (
            f'input.partitioner is missing; a sample of the topic says: partitioner = "{choice}" '
            f"({USED_BY[choice]}); `sketchstream validate --write` puts this line into [input]"
        )
    why = (
        "the topic has one partition, in which every partitioner fits"
        if partitions == 1
        else (
            "a sample of the topic holds too few distinct items to find it with privacy (it takes about 1,000): "
            f"{extent}"
        )
    )
    return (
        f"input.partitioner is missing, and {why}: set it to that of the producers "
        '(Java, kafka-python: "murmur2"; librdkafka, confluent-kafka: "consistent_random")'
    )


def contradiction(choice: Choice, configured: Partitioner) -> str | None:
    """The message if a sample contradicts the configured partitioner; otherwise None."""
    if agrees(choice, configured):
        return None
    if choice == "none":
        return f'input.partitioner = "{configured}" does not fit, and {NONE_FITS}'
    return (
        f'input.partitioner = "{configured}" does not fit: a sample of the topic says partitioner = "{choice}" '
        f"({USED_BY[choice]}); most events would be dropped as misplaced"
    )


def agrees(choice: Choice, configured: Partitioner) -> bool:
    """Whether a choice agrees with a configured partitioner: it names the same hash, or says nothing."""
    if choice == "unknown":
        return True
    return choice != "none" and HASHES[choice] == HASHES[configured]
