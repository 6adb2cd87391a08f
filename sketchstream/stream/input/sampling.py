"""Checks the configured fields against a sample of the input, before any sketch exists.

In: decoded records of a sample, and their JSON texts where they have any. Out: mistakes (nothing of the kind is in the
sample) and warnings, one line each. Touches: nothing.

These are exact statements about payloads. They are for the operator, at `validate`, `update` and the start of a worker:
nothing of them is kept or published. A line names fields that at least half of the records have, and at least ten of
them; it holds no value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np

from sketchstream.array_types import Ints
from sketchstream.errors import ConfigError, did_you_mean
from sketchstream.items.events import Events
from sketchstream.stream.formats import UNITS_PER_S, TimeUnit
from sketchstream.stream.input.listed_values import ListedValues
from sketchstream.stream.windows.calendar import DAY_MS, NO_TIME
from sketchstream.stream.windows.plans import SketchPlan

MIN_RECORDS: Final = 100
"""Records from which a sample without a field is a mistake; below it is a warning."""
PARSED: Final = 1000
"""Most JSON texts that are looked at field by field."""
NAMED_FROM: Final = 10
"""Fewest records that must have a field before its name is shown."""
ARRAY: Final = "a JSON array, not one JSON object a line: `jq -c '.[]' FILE > FILE.jsonl` makes lines of it"
UNREACHABLE: Final = (
    "is one name with a dot in it, and a dotted name is a path, b in a for a.b: give it another, as "
    '`jq -c \'with_entries(.key |= gsub("[.]"; "_"))\' FILE` does'
)
MAX_NAMES: Final = 20
"""Names of fields that a message lists."""
DEPTH: Final = 3
"""Levels of objects inside of each other whose fields are named."""
TOLERATED: Final = 20
"""Up to one record in 20 may be unusable; more are a warning."""
YEAR_MS: Final = 366 * DAY_MS
"""Distance from the records' own timestamps from which event times are suspected to be in another unit."""
EARLY_MS: Final = 100 * DAY_MS
"""Distance from the beginning of 1970 below which a number is no time of an event of today, but a count, say."""
UNIT_NAMES: Final = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
RECENT_S: Final = (631_152_000, 4_102_444_800)
"""Seconds since 1970 of the years 1990 to 2099. Read as milliseconds, seconds are 6 weeks of 1970, and microseconds and
nanoseconds lie after the year 20,000: no stream of events is there."""


@dataclass(frozen=True)
class Wanted:
    """The configured fields, and the names of the settings by which the user chose them.

    Args:
        item: field of the item, None where the format has no named fields.
        weight: field of the weight, None if none is configured.
        time: field of the event time, None if none is configured.
        item_type: "text", "int" or "bytes".
        max_weight: largest weight that counts; None: any.
        timed: whether events have a time of their own.
        called: "item" -> "input.item" or "--item", and so on.
        columns: (field, name of the setting) of further fields that sketches need.
        decimals: whether weights may have fractions.
        time_unit: what numbers in the field of the event time are taken for.
        plans: plans of the sketches that count the records.
        lateness_ms: how long windows wait for late records, of an input whose sample is in its order; None: another.
    """

    item: str | None
    weight: str | None = None
    time: str | None = None
    item_type: str = "text"
    max_weight: int | None = 1
    timed: bool = True
    called: Callable[[str], str] = "input.{}".format
    columns: tuple[tuple[str, str], ...] = ()
    decimals: bool = False
    time_unit: TimeUnit = "ms"
    plans: tuple[SketchPlan, ...] = field(default=(), repr=False)
    lateness_ms: int | None = None


@dataclass
class Sample:
    """Counts over the records of a sample."""

    wanted: Wanted
    records: int = 0
    with_item: int = field(default=0, repr=False)
    usable: int = field(default=0, repr=False)
    too_heavy: int = field(default=0, repr=False)
    light: int = field(default=0, repr=False)
    with_time: int = field(default=0, repr=False)
    far: int = field(default=0, repr=False)
    behind: int = field(default=0, repr=False)
    early: int = field(default=0, repr=False)
    in_unit: Counter[str] = field(default_factory=Counter, repr=False)
    texts: int = field(default=0, repr=False)
    objects: int = field(default=0, repr=False)
    arrays: int = field(default=0, repr=False)
    has: Counter[str] = field(default_factory=Counter, repr=False)
    names: Counter[str] = field(default_factory=Counter, repr=False)
    unreached: set[str] = field(default_factory=set, repr=False)
    sketches: list[ListedValues] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        different = {(plan.spec.fingerprint, *plan.fields.items()): plan for plan in self.wanted.plans}
        self.sketches = [ListedValues(plan) for plan in different.values()]

    def add(
        self, events: Events, text: Callable[[int], bytes | None] | None = None, stamps: Ints | None = None
    ) -> None:
        """Add the records of a batch.

        Args:
            events: what they say.
            text: the JSON text of a record; None for other formats.
            stamps: (n,) the records' own timestamps, ms; None: they have none, or are counted by them.
        """
        n = events.null.size
        self.records += n
        self.with_item += int(np.count_nonzero(~events.null))
        usable = np.zeros(n, np.bool_)
        usable[np.flatnonzero(events.valid) if events.record is None else events.record[events.valid]] = True
        self.usable += int(np.count_nonzero(usable))
        if events.weights is not None and self.wanted.max_weight is not None:
            weights, limit = events.weights, self.wanted.max_weight
            if events.weight_column is not None:
                units, number = events.weight_column.decimals(0)
                weights = np.where(number, units, weights)
            weights = weights[events.valid]
            light = (weights <= limit) & (weights >= -limit)
            self.light += int(np.count_nonzero(light))
            self.too_heavy += int(np.count_nonzero(~light))
        timed = events.times != NO_TIME
        times = events.times[timed]
        self.with_time += times.size
        self.early += int(np.count_nonzero(np.abs(times) < EARLY_MS))
        self._time(times, None if stamps is None else stamps[timed])
        if self.wanted.lateness_ms is not None and self.wanted.plans:
            width = min(plan.shortest_ms for plan in self.wanted.plans)
            self.behind += count_behind(times, width + self.wanted.lateness_ms)
        for sketch in self.sketches:
            sketch.add(events)
        if text is not None:
            for index in range(min(n, PARSED - self.texts)):
                self._look(text(index))

    def _time(self, times: Ints, stamps: Ints | None) -> None:
        """Which times would be recent, or near the records' own, in another unit than milliseconds. All (n,)."""
        apart = None if stamps is None else np.abs(times - stamps.astype(np.float64)) > YEAR_MS
        if apart is not None:
            self.far += int(np.count_nonzero(apart))
        given = times * (UNITS_PER_S[self.wanted.time_unit] / 1000)
        for unit, per_s in UNITS_PER_S.items():
            first, last = (second * per_s for second in RECENT_S)
            fits = (given >= first) & (given < last)
            if stamps is not None and apart is not None:
                fits |= apart & (np.abs(given * (1000.0 / per_s) - stamps) <= YEAR_MS) & (stamps > 10 * YEAR_MS)
            self.in_unit[unit] += int(np.count_nonzero(fits))

    def _look(self, text: bytes | None) -> None:
        """Which fields one JSON text has."""
        import orjson

        if text is None:
            return
        self.texts += 1
        try:
            document = orjson.loads(text)
        except orjson.JSONDecodeError:
            self.arrays += text.lstrip()[:1] == b"["
            return
        if not isinstance(document, dict):
            self.arrays += isinstance(document, list)
            return
        self.objects += 1
        self.names.update(name for name, _ in paths(document))
        named = (self.wanted.item, self.wanted.weight, self.wanted.time, *(name for name, _ in self.wanted.columns))
        names = {name for name in named if name}
        self.has.update(name for name in names if _has(document, name.split(".")))
        self.unreached |= {name for name in names if unreachable(document, name)}

    # ------------------------------------------------------------------------------------------------ verdicts

    def verdict(self, *, doubts: bool = True) -> tuple[list[str], list[str]]:
        """Mistakes and warnings, for an operator who asks, and for logs.

        Args:
            doubts: also fields and listed values that many records lack; not where `privacy.diagnostics` forbids them.
        """
        refused, warned = self.lacking()
        doubted = doubts and self.records and not any(self._mistakes())
        return refused, warned + (list(self._doubts()) if doubted else [])

    def lacking(self) -> tuple[list[str], list[str]]:
        """Fields that no record of the sample has: mistakes, or warnings among fewer than `MIN_RECORDS` records.

        Sketches that would count none of the records are warnings too.
        """
        if not self.records:
            return [], []
        mistakes = list(self._mistakes())
        sure = self.records >= MIN_RECORDS or (self.arrays > 0 and not self.usable)
        nothing = [] if mistakes else [*self._early(), *(text for sketch in self.sketches for text in sketch.nothing())]
        return (mistakes, []) if sure and mistakes else ([], mistakes + nothing)

    def require(self) -> list[str]:
        """Return the warnings of a sample without mistakes.

        Raises:
            ConfigError: one line for each mistake.
        """
        refused, warned = self.lacking()
        if refused:
            raise ConfigError(*refused)
        return warned

    def _mistakes(self) -> Iterator[str]:
        """Fields that no record of the sample has."""
        wanted, called = self.wanted, self.wanted.called
        if self.texts and not self.objects:
            none = f"{self._none()} is a JSON object: check {called('format')}"
            yield f"the input is {ARRAY}" if self.arrays else none
            return
        for role, name in (("item", wanted.item), ("weight", wanted.weight), ("time", wanted.time)):
            if name is not None and self.objects and not self.has[name]:
                effect = {"weight": ": every event would count as 1"}.get(role, "")
                yield f"{self._none()} has the field {name!r} ({called(role)}){effect}{self._advice(name)}"
        for name, called_so in wanted.columns:
            if self.objects and not self.has[name]:
                yield f"{self._none()} has the field {name!r} ({called_so}){self._advice(name)}"
        if self.with_item == 0 and not self.objects:
            yield f"{self._none()} holds an item: check {called('item')} and {called('format')}"
        elif self.with_item and not self.usable and (wanted.item is None or not self.objects or self.has[wanted.item]):
            weighted = wanted.weight is not None and (not self.objects or self.has[wanted.weight])
            number = "number" if wanted.decimals else "whole number"
            whole = f", or no {number} as its weight ({called('weight')})" if weighted else ""
            whole += "" if self.texts else ", or are rows of csv with more or fewer cells than the first line"
            yield (
                f"all {self.records:,} records of a sample hold no item of type {wanted.item_type}"
                f"{' in UTF-8' * (wanted.item_type == 'text')} ({called('item_type')}){whole}"
            )
        if self.too_heavy and not self.light:
            yield (
                f"every weight of a sample is above max_weight = {wanted.max_weight}: no event would be counted; "
                "raise max_weight"
            )
        if wanted.timed and not self.with_time and (wanted.time is None or not self.objects or self.has[wanted.time]):
            where = f" in {wanted.time!r}" if wanted.time else ""
            numbers = f"{'whole ' * (wanted.time_unit != 's')}{UNIT_NAMES[wanted.time_unit]}"
            yield f"{self._none()} has a readable time{where} ({called('time')}): {numbers} or RFC 3339 with its offset"
        unit = self._other_unit()
        if unit is not None:
            place = f"of {wanted.time!r}" if wanted.time else "of the records themselves"
            later = UNITS_PER_S[unit] > UNITS_PER_S[wanted.time_unit]
            read = "in the distant future" if later else "in the first weeks of 1970, or before"
            yield (
                f"the times {place} in a sample ({called('time')}) are {UNIT_NAMES[unit]} since 1970: as "
                f"{UNIT_NAMES[wanted.time_unit]}, which are expected, they would lie {read}; "
                + (f'set {called("time_unit")} = "{unit}"' if wanted.time else "write milliseconds")
            )

    def _early(self) -> Iterator[str]:
        """Times that are none, such as counts, which would open windows in 1970."""
        if self.wanted.timed and 2 * self.early > self.with_time:
            place = f"of {self.wanted.time!r}" if self.wanted.time else "of the records themselves"
            yield (
                f"most times {place} in a sample ({self.wanted.called('time')}) lie in the first weeks of 1970, where "
                "no events of today are: check that the field holds times"
            )

    def _doubts(self) -> Iterator[str]:
        """Fields that many records of the sample lack."""
        wanted, called = self.wanted, self.wanted.called
        many = "more than one in twenty records of a sample"
        without = self.texts - self.has[wanted.item] if wanted.item is not None and self.texts else 0
        if (self.records - self.usable) * TOLERATED > self.records or without * TOLERATED > max(self.texts, 1):
            yield f"{many} hold no item: check {called('format')}, {called('item')} and {called('item_type')}"
        if self.too_heavy * TOLERATED > self.too_heavy + self.light:
            yield (
                f"more than one in twenty weights of a sample are above max_weight = {wanted.max_weight}: such events "
                "are not counted"
            )
        if wanted.timed and (self.records - self.with_time) * TOLERATED > self.records:
            yield f"{many} have no readable time: check {called('time')}"
        if wanted.timed and self.far * TOLERATED > self.with_time:
            yield (
                f"{many} have a time ({called('time')}) more than a year away from the record's own timestamp: check "
                "the field and its unit, unless these are old events that were written lately"
            )
        if self.behind * TOLERATED > self.with_time:
            yield (
                "more than one in twenty records of a sample come after records that are later by more than a window "
                "and input.lateness: they would be late, and not counted; sort the input by its times, or set "
                "input.lateness to all the time that it spans"
            )
        for sketch in self.sketches:
            yield from sketch.doubts()

    def _other_unit(self) -> TimeUnit | None:
        """The unit in which most times of the sample are recent, if it is not the one that is expected."""
        if not self.wanted.timed:
            return None
        others = (unit for unit in UNITS_PER_S if unit != self.wanted.time_unit)
        return next((unit for unit in others if 2 * self.in_unit[unit] > self.with_time), None)

    def _none(self) -> str:
        """The beginning of a mistake."""
        several = f"none of the {self.records:,} records of a sample"
        return several if self.records > 1 else "no record of a sample of one"

    def _advice(self, name: str) -> str:
        """Fields that most records have, and the one that was probably meant; or why no path leads to this one."""
        if name in self.unreached:
            return f": {name!r} {UNREACHABLE}"
        least = max(NAMED_FROM, (self.objects + 1) // 2)
        common = [name for name, count in self.names.most_common() if count >= least and len(name) <= 60][:MAX_NAMES]
        if not common:
            return ""
        return f"; fields there are: {', '.join(sorted(common))}{did_you_mean(name, common)}"


def paths(document: Mapping[str, Any], before: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    """Dotted fields of a JSON object that hold no object, with their values."""
    for name, value in document.items():
        if isinstance(value, dict) and depth < DEPTH:
            yield from paths(value, f"{before}{name}.", depth + 1)
        else:
            yield before + name, value


def count_behind(times: Ints, reach_ms: int) -> int:
    """How many of (n,) times in the order of their records lie further than this behind the times that came first.

    The latest twentieth of those is left out: a few wrong clocks put no other record behind, as they move no watermark.
    """
    cuts = [*range(0, times.size, times.size // TOLERATED + 1), times.size]
    ends = ((first, last, np.quantile(times[:first], 1 - 1 / TOLERATED)) for first, last in pairwise(cuts) if first)
    return sum(int(np.count_nonzero(times[first:last] + reach_ms < reached)) for first, last, reached in ends)


def unreachable(document: Mapping[str, Any], name: str) -> bool:
    """Whether a dotted name is that of one field of a JSON document, which no path leads to; see `UNREACHABLE`."""
    return "." in name and name in document and not _has(document, name.split("."))


def _has(document: object, path: list[str]) -> bool:
    """Whether a JSON document has this field, null or not."""
    for part in path:
        if not isinstance(document, dict) or part not in document:
            return False
        document = document[part]
    return True
