"""Compares the values that sketches list (groups, filters, cells, closed domains) with a sample of the input.

In: a plan, decoded records of a sample. Out: sentences: that a sketch counts none of them, or leaves many out; which
listed values none of them has. Touches: nothing.

As in `stream.input.sampling`, these are exact statements about payloads, for the operator who asks: they name values
that the configuration lists, and no value of a record. A worker, whose log is kept, says only that all records are left
out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from sketchstream import kinds
from sketchstream.items.columns import Choices
from sketchstream.items.events import Events
from sketchstream.items.key import Key
from sketchstream.kinds.interface import ItemIndex
from sketchstream.spec import OpenDomain
from sketchstream.stream.windows.plans import SketchPlan

MAX_NAMED_VALUES: Final = 8
"""Most values that one sentence names."""
PREPARED: Final = lru_cache(maxsize=64)(Choices)
"""Listed values for `RecordColumn.codes`, prepared once for all partitions of a sample."""
SHARES: Final = ((2, "half"), (4, "a quarter"), (10, "one in ten"), (20, "one in twenty"))
"""Shares that a doubt names, each as a divisor of the number of records and in words; the largest share first."""


@dataclass
class ListedValues:
    """How many records of a sample one sketch counts, and how many have each of the values that it lists.

    Args:
        plan: plan of the sketch.
    """

    plan: SketchPlan
    records: int = 0
    counted: int = field(default=0, repr=False)
    having: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict, repr=False)

    def add(self, events: Events) -> None:
        """Add the records of a batch that hold an item."""
        usable = events.usable()
        spec, kind = self.plan.spec, kinds.kind_of(self.plan.spec)
        columns = {role: usable.columns[name] for role, name in self.plan.fields.items()}
        counted = kind.intake.events(
            spec, replace(usable, weights=None, weight_column=None, columns=columns, window=(0, 1))
        )
        good = np.ones(len(usable), np.bool_) if counted.good is None else counted.good
        if self._index is not None:
            good = good & (self._index.locate(counted.items) != -1)
        self.records += len(usable)
        self.counted += int(np.count_nonzero(good))
        for role, values in self.plan.listed.items():
            places = columns[role].codes(PREPARED(values))
            counts = np.bincount(places[places >= 0], minlength=len(values))
            self.having[role] = self.having.get(role, 0) + counts

    @cached_property
    def _index(self) -> ItemIndex | None:
        """Finds out which items are in a closed domain, under any key; None: all are."""
        spec = self.plan.spec
        return None if isinstance(spec.domain, OpenDomain) else kinds.kind_of(spec).index(spec, Key.generate(), None)

    def nothing(self) -> Iterator[str]:
        """Say that the sketch would stay empty."""
        if self.records and not self.counted:
            yield (
                f'sketch "{self.plan.name}" counts none of the {self.records:,} records of a sample that hold an item: '
                f"{self._outside()}"
            )

    def doubts(self) -> Iterator[str]:
        """Values that no record has, and how many records have none of them."""
        if not self.counted:
            return
        noted = False
        for role, counts in self.having.items():
            missing = [value for value, count in zip(self.plan.listed[role], counts, strict=True) if not count]
            share = self._share(self.records - int(counts.sum()))
            if missing and (share or role.startswith("where.")):
                named = ", ".join(repr(value) for value in missing[:MAX_NAMED_VALUES])
                more = f" and {len(missing) - MAX_NAMED_VALUES:,} more" if len(missing) > MAX_NAMED_VALUES else ""
                others = f", and {share} of them have a value that is not listed" if share else ""
                noted = noted or bool(share)
                yield (
                    f'sketch "{self.plan.name}" lists {named}{more} of the field {self.plan.fields[role]!r}, which '
                    f"none of the {self.records:,} records of a sample has{others}: check the spelling"
                )
        share = self._share(self.records - self.counted)
        filtered = any(role.startswith("where.") for role in self.plan.listed)
        if share and not noted and not filtered:
            yield (
                f'sketch "{self.plan.name}" leaves out {share} of the {self.records:,} records of a sample that hold '
                f"an item: {self._outside()}"
            )

    def _share(self, part: int) -> str:
        """A part of the records in words; empty for a small one."""
        return next((f"more than {words}" for factor, words in SHARES if part * factor > self.records), "")

    def _outside(self) -> str:
        """Why records do not count."""
        listed = {role for role, counts in self.having.items() if counts.sum() == self.records}
        fields = " or ".join(repr(name) for role, name in self.plan.fields.items() if role not in listed)
        return f"their {fields} is not in its list, or range" if fields else "their items are not in its domain"
