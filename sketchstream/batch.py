"""One batch of events on its way into a state: applied whole, or not at all.

In: a state, items, weights, their route. Out: the state with the weights added. Touches: the state.

A batch is checked block by block while it is added. When something invalid turns up, or anything else goes wrong,
what went in is taken out again: counters wrap, so subtracting the same events restores every counter exactly.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from sketchstream.errors import DomainError, WeightError
from sketchstream.items import Ints, Items, Spans, Weights

Invalid = Literal["error", "skip", "noop"]
State: TypeAlias = npt.NDArray[Any]
I64 = npt.NDArray[np.int64]

SMALL = 1 << 15
"""A slab of fewer items is not worth a second thread."""
_LARGE = 1 << 20
_EVENT_BYTES = 8
"""Bytes of an event that waits for the owner of its slot; a slab takes a fifth of the state beside it."""


def locate(piece: Ints | Spans, route: Any, out: npt.NDArray[np.uint64]) -> None:
    """Slots of one piece; NOWHERE outside the domain, UNSAMPLED inside but not sampled."""
    from sketchstream import kernels

    if isinstance(piece, Ints):
        kernels.locate_ints(piece.values, route, out)
    else:
        kernels.locate_spans(piece.buffer, piece.starts, piece.ends, route, out)


@dataclass(frozen=True, eq=False, repr=False)
class Batch:
    """A batch and where it goes.

    Attributes:
        max_weight: 0 if any weight will do.
        modulus: 0 if counters wrap.
        done: (1,) events that are in, counted by the kernels themselves, so that an interrupt finds it right.
    """

    state: State
    items: Items
    weights: Weights
    route: Any
    max_weight: int
    modulus: int
    invalid: Invalid
    done: I64 = field(default_factory=lambda: np.zeros(1, np.int64))

    def apply(self, threads: int) -> None:
        """Add the batch, or raise and leave the state as it was."""
        slab = min(_LARGE, self.state.nbytes // (5 * _EVENT_BYTES))
        try:
            if threads == 2 and min(len(self.items), slab) >= SMALL:
                self._run_pair(slab)
            else:
                self._run()
        except BaseException:
            self._undo()
            raise

    @property
    def _mode(self) -> int:
        """What the kernels do with an invalid event."""
        from sketchstream import kernels

        return {"error": kernels.ERROR, "skip": kernels.SKIP, "noop": kernels.NOOP}[self.invalid]

    def _run(self) -> None:
        """Add the batch in this thread."""
        for position, piece in self.items.pieces():
            if not self._add(piece, position, len(piece), 1):
                self._refuse(piece, position)

    def _undo(self) -> None:
        """Take out what went in."""
        left = int(self.done[0])
        if left == 0:
            return
        for position, piece in self.items.pieces():
            self._add(piece, position, min(len(piece), left - position), -1)
            if position + len(piece) >= left:
                break

    def _add(self, piece: Ints | Spans, position: int, n: int, sign: int) -> bool:
        """Add (or take out) the first n events of a piece; false if the next block must not be added."""
        from sketchstream import kernels

        weights = self.weights[position : position + n]
        counted = self.done if sign > 0 else np.zeros(1, np.int64)
        last = (weights, self.route, self.max_weight, self.modulus, sign, self._mode, counted)
        if isinstance(piece, Ints):
            return bool(kernels.update_ints(self.state, piece.values[:n], *last))
        return bool(kernels.update_spans(self.state, piece.buffer, piece.starts[:n], piece.ends[:n], *last))

    def _refuse(self, piece: Ints | Spans, position: int) -> NoReturn:
        """Find the first invalid event after those that are in, and say where it is."""
        from sketchstream import kernels

        start = int(self.done[0])
        for first in range(start - position, len(piece), kernels.BLOCK):
            rest = piece.take(np.arange(first, min(len(piece), first + kernels.BLOCK)))
            slots = np.empty(len(rest), np.uint64)
            locate(rest, self.route, slots)
            wrong_item = (slots == kernels.NOWHERE) & (self.invalid == "error")
            numbers = self.weights[position + first : position + first + len(rest)]
            wrong_weight = np.zeros(len(rest), np.bool_)
            if self.max_weight and len(numbers):
                wrong_weight = (numbers > self.max_weight) | (numbers < -self.max_weight)
            wrong = wrong_item | wrong_weight
            if wrong.any():
                break
        at = int(np.argmax(wrong))
        place = position + first + at
        if wrong_item[at]:
            msg = f"the item at position {place} is not in the domain; nothing was applied"
            raise DomainError(msg)
        msg = (
            f"the weight at position {place} is not within -{self.max_weight}..{self.max_weight} (max_weight); "
            "nothing was applied"
        )
        raise WeightError(msg)

    def _run_pair(self, slab: int) -> None:
        """Add the batch slab by slab in two threads, of which each owns half of the slots."""
        halves = (_Half(self, (slab + 1) // 2), _Half(self, (slab + 1) // 2))
        try:
            with ThreadPoolExecutor(1, "sketchstream-update") as other:  # leaving it waits for the other thread
                for position, piece in self.items.pieces():
                    if len(piece) >= SMALL:
                        for first in range(0, len(piece), slab):
                            self._add_slab(other, halves, piece, position, first, min(first + slab, len(piece)))
                    elif not self._add(piece, position, len(piece), 1):
                        self._refuse(piece, position)
        except BaseException:
            for half in halves:
                half.take_out()
            raise
        finally:
            for half in halves:
                half.clear()

    def _add_slab(
        self,
        other: ThreadPoolExecutor,
        halves: tuple[_Half, _Half],
        piece: Ints | Spans,
        position: int,
        first: int,
        last: int,
    ) -> None:
        """Add the items first..last of a piece: each thread locates one half, then adds what it owns in both."""
        middle = (first + last) // 2
        there = other.submit(halves[0].share, piece, position, first, middle)
        good = halves[1].share(piece, position, middle, last)
        if not (there.result() and good):
            self._refuse(piece, position)
        left = other.submit(_add_owned, halves, 0)
        _add_owned(halves, 1)
        left.result()
        self.done[0] += last - first


class _Half:
    """The located half of a slab: events of owner 0 from the left, of owner 1 from the right."""

    def __init__(self, batch: Batch, room: int) -> None:
        self.batch = batch
        self.events = np.empty(room, np.uint64)
        self.bounds = np.array([0, room - 1], np.int64)
        self.added = np.zeros((2, 1), np.int64)
        self.before = -1

    def share(self, piece: Ints | Spans, position: int, first: int, last: int) -> bool:
        """Locate the items first..last of a piece and sort them by owner; false if one is invalid."""
        from sketchstream import kernels

        batch = self.batch
        self.added[:] = 0
        self.before = int(batch.done[0])
        self.bounds[:] = 0, len(self.events) - 1
        weights = batch.weights[position + first : position + last]
        size = np.uint64(len(batch.state))
        rest = (weights, batch.route, size, batch.max_weight, batch.modulus, batch._mode, self.events, self.bounds)
        if isinstance(piece, Ints):
            return bool(kernels.share_ints(piece.values[first:last], *rest))
        return bool(kernels.share_spans(piece.buffer, piece.starts[first:last], piece.ends[first:last], *rest))

    def add(self, owner: int, sign: int) -> None:
        """Add (or take out) what one owner has here."""
        from sketchstream import kernels

        mine = slice(0, int(self.bounds[0])) if owner == 0 else slice(int(self.bounds[1]) + 1, None)
        counted = self.added[owner] if sign > 0 else np.zeros(1, np.int64)
        kernels.add_shared(self.batch.state, self.events[mine], self.batch.modulus, sign, counted)

    def take_out(self) -> None:
        """Take out what went in of a slab that is not complete (the batch has counted complete ones)."""
        for owner in range(2):
            if self.added[owner, 0] and self.before == self.batch.done[0]:
                self.add(owner, -1)

    def clear(self) -> None:
        """Forget the events."""
        self.events[:] = 0


def _add_owned(halves: tuple[_Half, _Half], owner: int) -> None:
    """Add what one owner has in both halves of a slab."""
    for half in halves:
        half.add(owner, 1)
