"""Events: what the records of a chunk say, in one table from the decoder to the sketch.

In: arrays from a decoder, or from a kind. Out: `Events`. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sketchstream.array_types import Flags, Ints

if TYPE_CHECKING:
    from sketchstream.items.columns import RecordColumn


@dataclass(frozen=True, eq=False, repr=False)
class Events:
    """u events of n records (u = n unless records are packed), first as they were read, then as a kind counts them.

    Args:
        record: (u,) ascending index of the record that holds each event; None: event i is record i, u = n.
        items: (u,) a batch with `take`: `Items`, placeholders where `valid` is False; kinds may make `Pairs` of them.
        weights: (u,) int64, or None if all are 1; 0 where `weight_column` is no integer; kinds may make `Units` of
            them.
        valid: (u,) whether the event is to be applied (its type, its weight). Not valid and not null: a poison payload.
        times: (n,) event times in ms since 1970; NO_TIME where unreadable: moves no watermark, opens no window.
        null: (n,) tombstones, null items, missing fields: no-ops that are not errors (never dead letters).
        weight_column: (u,) the weights as they were found, where they may be decimal.
        columns: (n,) further fields, by name, and for a kind by role, those that `Intake.roles` names; u = n then.
        window: [start, end) of the sketch, ms, where `Intake.stretch_ms` says so; else that of any window of the chunk.
            None: the sketch has none.
        good: (u,) events that the kind can use; None: all.
    """

    record: Ints | None
    items: Any
    weights: Any
    valid: Flags
    times: Ints
    null: Flags
    weight_column: RecordColumn | None = None
    columns: Mapping[str, RecordColumn] = field(default_factory=dict)
    window: tuple[int, int] | None = None
    good: Flags | None = None

    def __len__(self) -> int:
        return len(self.valid)

    def __repr__(self) -> str:
        return f"Events({len(self)} of {len(self.times)} records)"

    @property
    def event_times(self) -> Ints:
        """(u,) time of the record of each event."""
        return self.times if self.record is None else self.times[self.record]

    @property
    def poison(self) -> Flags:
        """(u,) events whose payload cannot be used, without those that are no-ops."""
        wrong: Flags = ~self.valid & ~(self.null if self.record is None else self.null[self.record])
        return wrong

    def usable(self) -> Events:
        """The events that are valid."""
        chosen = self.valid
        if chosen.all():
            return self
        return Events(
            None,
            self.items.take(chosen),
            None if self.weights is None else self.weights[chosen],
            chosen[chosen],
            self.event_times[chosen],
            ~chosen[chosen],
            None if self.weight_column is None else self.weight_column.take(chosen),
            {name: column.take(chosen) for name, column in self.columns.items()},
            self.window,
        )

    def counted(self, items: Any, good: Flags) -> Events:
        """Replace the items by those that a kind makes of them; events that the kind cannot use are not counted."""
        good = good if self.good is None else good & self.good
        return replace(self, items=items, good=None if good.all() else good)
