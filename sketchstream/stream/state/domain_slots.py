"""Selects the items of a closed domain that have slots in one partition, if the partitioner of the input is known.

In: rules, specs, partition counts. Out: masks of items; windows whose sketches have the slots they need. Touches: the
sketches of the windows it is given.
"""

from __future__ import annotations

from sketchstream import kinds
from sketchstream.array_types import Flags
from sketchstream.kinds.interface import Spec
from sketchstream.spec import ClosedDomain
from sketchstream.stream.input.partitioner import items_kept
from sketchstream.stream.state.rules import Rules
from sketchstream.stream.state.sketch_state import OpenWindow


class DomainSlots:
    """The items of closed domains that belong to one partition, by partition counts.

    Args:
        rules: rules of the worker.
        partition: partition of the input.
    """

    def __init__(self, rules: Rules, partition: int) -> None:
        self._rules = rules
        self._partition = partition
        self._masks: dict[tuple[bytes, tuple[int, ...]], Flags] = {}

    def keep(self, spec: Spec, counts: tuple[int, ...]) -> Flags | None:
        """The items that have slots here under these partition counts; None: all of them, or the domain is open."""
        apart = kinds.kind_of(spec).partitions == "stack"
        if self._rules.partitioner is None or not apart or not isinstance(spec.domain, ClosedDomain):
            return None
        name = (spec.fingerprint, counts)
        if name not in self._masks:
            self._masks[name] = items_kept(spec.domain, self._rules.partitioner, counts, self._partition)
        return self._masks[name]

    def fit(self, window: OpenWindow, counts: tuple[int, ...]) -> None:
        """Give slots to the items that belong here under these partition counts, and to no others."""
        keep = self.keep(window.sketch.spec, counts) if window.slots_for != counts else None
        if keep is not None:
            window.sketch.change_slots(keep)
            window.dirty = True
        window.slots_for = counts
