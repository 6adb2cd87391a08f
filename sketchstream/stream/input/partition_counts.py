"""The input's current and former partition counts, and how a computation requests a fresh one or leaves work to others.

In: counts, positions. Out: the counts by which a record may have been placed. Touches: nothing; the caller of a
computation that needs a fresh count asks the cluster, and decides which thread does its long work.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeVar

Result = TypeVar("Result")
MANY_RECORDS: Final = 1000
"""Records in each former partition before the first one of an added partition: fewer may be chance."""
PRODUCERS_LEARN_MS: Final = 900_000
"""Time after which producers have heard of added partitions."""


class CountNeeded(Enum):
    """Why a fresh partition count is needed. Answers are kept separately, because only one may be remembered."""

    SEAL = "seal"
    """A window is about to be sealed. This reason depends on envelopes alone."""
    ITEMS = "items"
    """An item does not belong to this partition. This depends on a payload: the answer holds for such items only."""


@dataclass
class LongWork:
    """A part of a computation that takes long and touches nothing that the rest of the worker uses.

    Args:
        run: does it, in any thread.
        result: what `run` has returned.
    """

    run: Callable[[], Any] = field(repr=False)
    result: Any = field(default=None, repr=False)

    def do(self) -> None:
        """Do it, and keep the result."""
        self.result = self.run()


Steps = Generator[CountNeeded | LongWork, int | None, Result]
"""A computation that stops when it needs a fresh partition count, and resumes with the answer (None: unknown); or when
long work is to be done, and resumes once it is."""


def perform(run: Callable[[], Result], *, long: bool) -> Steps[Result]:
    """Do a part of a computation, and return its result.

    Args:
        run: does it, in any thread if it is long work.
        long: whether it is long work.
    """
    if not long:
        return run()
    work = LongWork(run)
    yield work
    result: Result = work.result
    return result


def run_in_thread(steps: Steps[Result], count: Callable[[CountNeeded], int | None]) -> Result:
    """Run a computation to its end in this thread.

    Args:
        steps: the computation.
        count: answers each of its questions. An exception from it ends the computation.
    """
    try:
        needed = next(steps)
        while True:
            answer = None
            if isinstance(needed, LongWork):
                needed.do()
            else:
                answer = count(needed)
            needed = steps.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result


def run_without_cluster(steps: Steps[Result]) -> Result:
    """Run a computation to its end without a cluster to ask."""
    return run_in_thread(steps, lambda _: None)


def growths(count: int, first: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """Numbers of partitions that a topic may have had before, with the time (ms) at which it had more.

    Partitions that are added come last, begin at offset 0, and have no record before they are there.

    Args:
        count: partitions now.
        first: offset and timestamp of the first record of each partition that has one.
    """
    out = {}
    for n in range(1, count):
        added = [first[partition] for partition in range(n, count) if partition in first]
        if not added or any(offset for offset, _ in added):
            continue
        came = min(time for _, time in added)
        if all(partition in first and first[partition][1] < came for partition in range(n)):
            out[n] = came
    return out


class PartitionCounts:
    """The partition count of the input, and former counts by which unread records may have been placed.

    Args:
        now: partitions of the input.
    """

    def __init__(self, now: int) -> None:
        self.now = now
        self.former: dict[int, int | None] = {}
        self._answers: dict[CountNeeded, int | None] = {}

    def forget_answers(self) -> None:
        """Ask anew from now on."""
        self._answers.clear()

    def ask(self, needed: CountNeeded) -> Steps[int | None]:
        """Ask for the current partition count, once for each reason; None if there is no cluster to ask."""
        if self._answers.get(needed) is None:
            self._answers[needed] = yield needed
        return self._answers[needed]

    def grow(self, count: int) -> bool:
        """Note a count; return whether partitions were added. A smaller one is older: topics never lose partitions.

        The former count stays valid until `settle`: records waiting in the log were placed by it, and producers
        learn of new partitions minutes later.
        """
        if count <= self.now:
            return False
        self.former[self.now] = None
        self.now = count
        return True

    @property
    def unsettled(self) -> bool:
        """Whether the position up to which records may be placed by a former count is still unknown."""
        return None in self.former.values()

    def settle(self, position: int) -> None:
        """Note that records from `position` on were placed by the present count only."""
        self.former = {count: position if until is None else until for count, until in self.former.items()}

    def restore(self, former: Mapping[int, int | None]) -> None:
        """Restore the former counts of a snapshot."""
        self.former = dict(former)

    def passed(self, position: int) -> None:
        """Forget the former counts by which no record from `position` on was placed."""
        if self.former:
            self.former = {n: until for n, until in self.former.items() if until is None or position < until}

    @property
    def valid(self) -> tuple[int, ...]:
        """Counts by which records that were not passed may be placed, ascending."""
        return (*sorted(self.former), self.now)
