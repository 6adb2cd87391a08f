"""Numbers of partitions where one worker reads several topics.

In: numbers, what each partition says of the number of its topic's partitions. Out: numbers. Touches: nothing.

Partition p of topic t of the configuration, both from 0, is number `TOPIC_STRIDE` * t + p: neither growth of a topic
nor another topic at the end of the list changes a number, and those of one topic are its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sketchstream.errors import FormatError

TOPIC_STRIDE: Final = 100_000
"""Distance of the numbers of two topics; a topic has fewer partitions."""
MAX_TOPICS: Final = 16
"""Topics of one input."""
MAX_PARTITIONS: Final = 10_000
"""Most partitions of one topic of an input."""
HISTORY: Final = TOPIC_STRIDE * MAX_TOPICS
"""Number of the only part of a window that was counted from a table, and not from partitions of an input."""


def partition_numbers(known: Iterable[tuple[int, int]], topics: int = 1) -> list[int]:
    """Numbers of all partitions of an input, ascending.

    Args:
        known: number of a partition, and of how many partitions of its topic it tells.
        topics: topics of the configuration; each has a partition at least, whether anything was heard of it or not.

    Examples:
        >>> partition_numbers([(1, 3), (100_000, 2)], topics=2)
        [0, 1, 2, 100000, 100001]
    """
    counts = dict.fromkeys(range(topics), 1)
    for number, count in known:
        topic, partition = divmod(number, TOPIC_STRIDE)
        counts[topic] = max(counts.get(topic, 1), count, partition + 1)
    return [TOPIC_STRIDE * topic + p for topic, count in sorted(counts.items()) for p in range(count)]


def require_partitions(number: int, *counts: int) -> None:
    """Refuse partitions that no input has: readers go through all partitions of a window.

    Args:
        number: number of a partition, see `TOPIC_STRIDE`.
        counts: numbers of partitions of its topic.

    Raises:
        FormatError: says which number.
    """
    if number == HISTORY and max(counts, default=1) <= 1:
        return
    topic, place = divmod(number, TOPIC_STRIDE)
    for count in (place, *counts):
        if not (0 <= count <= MAX_PARTITIONS and 0 <= topic < MAX_TOPICS):
            raise FormatError(
                f"an input has at most {MAX_TOPICS} topics of at most {MAX_PARTITIONS:,} partitions, found "
                f"partition {place} of topic {topic}, and {count}"
            )
