"""Reads from the logs of workers whether their states hold every record of the input exactly once.

In: logs of workers at level debug. Out: sentences about chunks that were applied twice, or not at all.
Touches: nothing.

A state holds every record once if it began at the position of a snapshot, every chunk began where the one before it
ended, and every chunk has one record for each of its positions. If nothing is found here, and the log of the input is
what was sent, wrong counts come from something else than records: a counter was changed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_LINE = re.compile(
    r"event=(running|applied|captured|dropped|revoked|halted) partition=(\d+)"
    r"(?: position=(\d+))?(?: next=(\d+) records=(\d+))?"
)


class _Step(NamedTuple):
    """What a worker did with a partition; `next` and `records` of a chunk."""

    what: str
    partition: int
    position: int
    next: int
    records: int


def _steps(log: str) -> Iterator[_Step]:
    """The whole lines of a log; a killed worker may have written half of its last one."""
    for line in log[: log.rfind("\n") + 1].splitlines():
        found = _LINE.search(line)
        if found:
            what, *numbers = found.groups()
            yield _Step(what, *(int(number or 0) for number in numbers))


def complaints(logs: Iterable[str]) -> list[str]:
    """Find records that were applied twice, or not at all.

    Args:
        logs: logs of all workers that ever ran, one text each. The offsets of the input have no gaps.

    Returns:
        One sentence for each contradiction; none if every state holds every record before its position once.
    """
    workers = [list(_steps(log)) for log in logs]
    captured: dict[int, set[int]] = defaultdict(set)
    for step in (step for steps in workers for step in steps):
        if step.what == "captured":
            captured[step.partition].add(step.position)
    found = []
    for number, steps in enumerate(workers):
        states: dict[int, int] = {}  # positions
        for step in steps:
            where = f"worker {number}, partition {step.partition}"
            at = states.get(step.partition)
            if step.what == "running":
                if step.position not in captured[step.partition]:
                    found.append(f"{where}: began at {step.position}, where no snapshot was captured")
                states[step.partition] = step.position
            elif step.what == "captured":
                if at is not None and step.position != at:
                    found.append(f"{where}: a snapshot at {step.position} of a state at {at}")
            elif step.what == "applied":
                if step.position != at:
                    found.append(f"{where}: a chunk from {step.position} for a state at {at}")
                if step.records != step.next - step.position:
                    found.append(f"{where}: {step.records} records from {step.position} to {step.next}")
                states[step.partition] = step.next
            else:
                states.pop(step.partition, None)
    return found
