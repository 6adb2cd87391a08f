"""Applies one batch of events to a state, completely or not at all.

In: a state, items, weights, their route. Out: the state with the weights added. Touches: the state.

A batch is checked block by block while it is added. If an event is invalid, or any other error occurs, the events added
so far are subtracted again. Counters wrap, so the subtraction restores every counter exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, get_args

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Flags, Ints, State
from sketchstream.errors import DomainError, ItemError, WeightError
from sketchstream.items.arrays import Items, Weights, as_weights

Invalid = Literal["error", "skip", "noop"]
"""What an invalid event does: rejects its batch; is left out if only its item is outside; is left out."""
Outside = Literal["error", "noop"]
"""What a row outside the domain does: rejects its batch; is left out."""


def require_invalid(invalid: object) -> None:
    """Raise ItemError unless this is one of the words of `Invalid`; any other would be taken for one of them.

    Args:
        invalid: what the caller gave: without a type checker it can be anything.
    """
    if not isinstance(invalid, str) or invalid not in get_args(Invalid):
        raise ItemError(f"invalid must be 'error', 'skip' or 'noop', found {invalid!r:.20}")


def require_outside(invalid: object) -> None:
    """Raise ItemError unless this is one of the words of `Outside`.

    Args:
        invalid: what the caller gave: without a type checker it can be anything.
    """
    if not isinstance(invalid, str) or invalid not in get_args(Outside):
        raise ItemError(f"invalid must be 'error' or 'noop' for rows of sums, found {invalid!r:.20}")


def refuse_first(
    outside: Flags, heavy: Flags, limit: object, *, bound: str = "max_weight", start: int = 0, hint: str = ""
) -> None:
    """Refuse events if one is invalid; the error names the position of the first such event, never the event.

    Args:
        outside: (n,) events outside the domain.
        heavy: (n,) events with an invalid weight.
        limit: largest absolute weight.
        bound: name of the parameter that sets the limit.
        start: position of the first of these events in its batch.
        hint: text that is added to an error about a weight.

    Raises:
        DomainError, WeightError: an event is invalid.
    """
    wrong = outside | heavy
    if not wrong.any():
        return
    at = int(np.argmax(wrong))
    if outside[at]:
        raise DomainError(f"the event at position {start + at} is not in the domain; nothing was applied")
    raise WeightError.at(start + at, limit, bound, hint)


def require_sums(sums: object, events: object, n: int, most: int | None) -> tuple[Ints, Ints]:
    """(n,) int64 sums of weights and (n,) int64 numbers of events of n rows, each of which stands for its events.

    Args:
        sums: integers, in lattice units for specs with fractions.
        events: integers, at least 0.
        n: expected number of rows.
        most: largest absolute weight of one event, in the units of the sums; None: any weight is valid.

    Raises:
        WeightError: not integers, not one for each row, or a sum that its events cannot have; the message gives the
            position, never the sum.
    """
    values = as_weights(sums, n).astype(np.int64, copy=False)
    counts = as_weights(events, n).astype(np.int64, copy=False)
    if len(values) != n or len(counts) != n:
        raise WeightError(
            f"rows need one sum and one number of events each, found {len(values)} and {len(counts)} for {n} rows"
        )
    wrong = counts < 0
    if most is not None:
        room = counts.clip(0, ((1 << 63) - 1) // most) * most  # a row of more events than that cannot be too large
        wrong = wrong | (values > room) | (values < -room)
    wrong |= (counts == 0) & (values != 0)
    if wrong.any():
        bound = "" if most is None else f", of which none weighs more than {most} (max_weight, in units of the sums)"
        raise WeightError(
            f"the sum at position {int(np.argmax(wrong))} is not one of its number of events{bound}; weights are "
            "judged event by event before they are added up; nothing was applied"
        )
    return values, counts


def locate(piece: Items, route: Any, out: npt.NDArray[np.uint64]) -> None:
    """Find the slots of one piece: NOWHERE outside the domain, UNSAMPLED inside it but not sampled."""
    from sketchstream import kernels

    arguments = (*piece.arrays, route, out)
    loop, twin = (
        (kernels.locate_ints, kernels.plain.locate_ints)
        if piece.type_name == "int"
        else (kernels.locate_spans, kernels.plain.locate_spans)
    )
    has_twin = route.way in kernels.plain.ROUTES
    (twin if has_twin and kernels.use_numpy_twin(loop, piece.work, None, arguments) else loop)(*arguments)


@dataclass(frozen=True, eq=False, repr=False)
class Batch:
    """A batch of events and the state it is added to.

    Attributes:
        max_weight: largest absolute weight; 0 if any weight is valid.
        modulus: 0 if counters wrap.
        counters: (0,), (1,) or (2,) sum of weights and number of events, kept and changed with the slots.
        done: (1,) number of events processed. The kernels count them, so that it is correct even after an interrupt.
    """

    state: State
    items: Items
    weights: Weights
    route: Any
    max_weight: int
    modulus: int
    invalid: Invalid
    counters: Ints
    done: Ints = field(default_factory=lambda: np.zeros(1, np.int64))

    def apply(self) -> None:
        """Add the batch, or raise an error and leave the state unchanged."""
        try:
            with closing(self.items.pieces()) as pieces:  # packed pieces are cleared here
                for position, piece in pieces:
                    if not self._add(piece, position):
                        self._refuse(piece, position)
        except BaseException:
            self._undo()
            raise

    @property
    def _mode(self) -> int:
        """The kernels' mode for invalid events."""
        from sketchstream import kernels

        return {"error": kernels.ERROR, "skip": kernels.SKIP, "noop": kernels.NOOP}[self.invalid]

    def _undo(self) -> None:
        """Subtract the events that were added."""
        left = int(self.done[0])
        if left == 0:
            return
        for position, piece in self.items.pieces():
            self._add(piece.cut(0, left - position), position, sign=-1)
            if position + len(piece) >= left:
                break

    def _add(self, piece: Items, position: int, sign: int = 1) -> bool:
        """Add (or subtract) the events of a piece; False if the next block is invalid."""
        from sketchstream import kernels

        weights = self.weights[position : position + len(piece)]
        counted = self.done if sign > 0 else np.zeros(1, np.int64)
        rule = (self.max_weight, self.modulus, sign, self._mode, counted)
        update = kernels.update_ints if piece.type_name == "int" else kernels.update_spans
        arguments = (self.state, *piece.arrays, weights, self.route, *rule, self.counters)
        plain = self.route.way in kernels.plain.ROUTES
        if plain and kernels.use_numpy_twin(update, piece.work, (self.state.dtype, weights.dtype), arguments):
            return self._add_plain(piece, weights, rule)
        return bool(update(*arguments))

    def _add_plain(self, piece: Items, weights: Weights, rule: tuple[int, int, int, int, Ints]) -> bool:
        """`_add` without compiled loops."""
        from sketchstream import kernels

        slots = np.empty(len(piece), np.uint64)
        try:
            find: Callable[..., None] = (
                kernels.plain.locate_ints if piece.type_name == "int" else kernels.plain.locate_spans
            )
            find(*piece.arrays, self.route, slots)
            return kernels.plain.add(self.state, slots, weights, *rule, self.counters)
        finally:
            slots[:] = 0

    def _refuse(self, piece: Items, position: int) -> NoReturn:
        """Find the first invalid event after the processed ones, and raise an error that names its position."""
        from sketchstream import kernels

        for first in range(max(int(self.done[0]) - position, 0), len(piece), kernels.BLOCK):
            rest = piece.cut(first, first + kernels.BLOCK)
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
        refuse_first(wrong_item, wrong_weight, self.max_weight, start=position + first)
        raise AssertionError("no event of this batch is invalid")
