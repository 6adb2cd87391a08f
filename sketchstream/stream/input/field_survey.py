"""Surveys the fields of a sample of records, for `init`: which there are, of which type, which hold people or times.

In: documents (decoded JSON objects, rows of a table). Out: fields by name, with type and share. Touches: nothing.

Like `stream.input.sampling` this is for the operator who asks: nothing is kept or published, a field is named only if
at least `NAMED_FROM` records and half of the sample have it, and no value is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Final

from sketchstream.stream.formats import UNITS_PER_S, TimeUnit
from sketchstream.stream.input.sampling import NAMED_FROM, RECENT_S, paths, unreachable

TIME_NAMES: Final = ("ts", "time", "timestamp", "event_time", "eventtime", "occurred_at", "created_at", "at", "when")
"""Names of event times, the likeliest first."""


@dataclass(frozen=True)
class Field:
    """One field of the records.

    Args:
        name: The dotted name.
        type_name: "text", "whole number", "decimal", "truth value", "time", "time without offset" (which says no
            instant) or "list"; "mixed" for several; "name with a dot" for one that cannot be named.
        share: The share of the records that have it, 0 to 1.
    """

    name: str
    type_name: str
    share: float


@dataclass
class Survey:
    """Counts of fields and of types of their values, over the records of a sample."""

    records: int = 0
    has: Counter[str] = field(default_factory=Counter, repr=False)
    kinds: dict[str, Counter[str]] = field(default_factory=dict, repr=False)
    units: dict[str, Counter[TimeUnit]] = field(default_factory=dict, repr=False)
    unreached: set[str] = field(default_factory=set, repr=False)
    tabular: bool = False
    """Whether the records are rows, whose columns may be called as they like: no name is a path."""
    headed: bool = False
    """Whether the names of fields are the first line of a file, which may be a record by mistake."""

    def add(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """Add records."""
        for document in documents:
            self.records += 1
            for name, value in paths(document):
                if not self.tabular and unreachable(document, name):
                    self.unreached.add(name)
                self.has[name] += 1
                if value is not None:
                    self.kinds.setdefault(name, Counter())[_kind(value)] += 1
                    self.units.setdefault(name, Counter()).update(_units(value))

    def fields(self) -> list[Field]:
        """Return the fields that at least half of the records have, the most frequent first, then by name."""
        least = max(NAMED_FROM, (self.records + 1) // 2)
        names = sorted((name for name, count in self.has.items() if count >= least), key=lambda n: (-self.has[n], n))
        return [Field(name, self._kind(name), self.has[name] / self.records) for name in names]

    def time(self) -> str | None:
        """Return the field that is probably the event time: milliseconds or RFC 3339 in nearly all records.

        Numbers that would be recent in another unit may be anything, so that only a field named like a time is one.
        """
        fields = self.fields()
        times = [field.name for field in fields if field.type_name == "time"]
        last_parts = [(field.name, field.name.rpartition(".")[2].lower()) for field in fields]
        called = [name for wanted in TIME_NAMES for name, last in last_parts if last == wanted]
        named = [name for name in called if name in times] or times
        return next(iter(named or (name for name in called if self.unit(name) != "ms")), None)

    def unit(self, name: str) -> TimeUnit:
        """What nearly all numbers of a field count since 1970, if they are times; "ms" if that cannot be said."""
        seen = self.units.get(name, Counter())
        return next((unit for unit, count in seen.most_common(1) if count * 20 >= self.has[name] * 19), "ms")

    def _kind(self, name: str) -> str:
        """Type of nearly all values of a field."""
        if name in self.unreached:
            return "name with a dot"
        seen = self.kinds.get(name, Counter())
        total = seen.total()
        return next((kind for kind, count in seen.most_common(1) if count * 20 >= total * 19), "mixed")


def _kind(value: object) -> str:
    """Type of one value; whole numbers that are milliseconds of 1990 to 2099 are times."""
    if isinstance(value, bool):
        return "truth value"
    if isinstance(value, int):
        return "time" if "ms" in _units(value) else "whole number"
    if isinstance(value, float):
        return "decimal"
    if isinstance(value, str):
        return _kind_of_text(value)
    if isinstance(value, datetime):
        return "time without offset" if value.tzinfo is None else "time"
    if isinstance(value, date):  # a date stands for its first moment in UTC
        return "time"
    return "list" if isinstance(value, (list, tuple)) else "mixed"


def _units(value: object) -> list[TimeUnit]:
    """The unit in which a number is a time of 1990 to 2099, if there is one; parts of a second only in seconds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return []
    units: list[TimeUnit] = ["s"] if isinstance(value, float) else list(UNITS_PER_S)
    return [unit for unit in units if RECENT_S[0] * UNITS_PER_S[unit] <= value < RECENT_S[1] * UNITS_PER_S[unit]]


def _kind_of_text(text: str) -> str:
    """Whether a text is a time, with its offset or without one."""
    if not 17 <= len(text) <= 40 or not text[:4].isdecimal():
        return "text"
    try:
        return "time without offset" if datetime.fromisoformat(text).tzinfo is None else "time"
    except ValueError:
        return "text"
