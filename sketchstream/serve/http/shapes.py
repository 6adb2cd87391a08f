"""What answers look like: typed models of the JSON of each path, for the OpenAPI document.

In: nothing. Out: models. Touches: nothing. Answers are written from bytes that are kept, not from these models: a test
sends generated requests to a running service and holds its answers to the document.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
Whole = Annotated[int, Field(ge=0)]
State = Literal["ready", "pending", "on_request", "none", "incident"]
Kind = Literal["text", "float64", "int64", "bool", "time"]
Bound = Annotated[
    Literal["lower", "upper", "modulo"],
    Field(
        description="what counts modulo `modulus` (unit item) make of the number: a lower or an upper bound, or a "
        "statement about counts modulo it only; absent: it is an estimate"
    ),
]


class Shape(BaseModel):
    """An object that has these fields and no others."""

    model_config = ConfigDict(extra="forbid")


class Problem(Shape):
    """Why a request has no answer."""

    type: str
    title: str
    status: Whole
    detail: str


class Ends(Shape):
    """A number with its interval; null where there is none."""

    value: float | None
    low: float | None
    high: float | None


class Number(Ends):
    """A number of an answer."""

    bound: Bound | None = None


class Facts(BaseModel):
    """A window."""

    model_config = ConfigDict(extra="allow")
    sketch: str
    window_start: Time
    window_end: Time
    complete: bool | None


class Counts(Shape):
    """Numbers of windows."""

    windows: Whole
    settled: Whole
    pending: Whole
    incidents: Whole


class Sketch(Shape):
    """A sketch; one that the service's configuration does not name has no window and no summary."""

    name: str
    configured: bool
    counts: Counts
    first: Time | None
    last: Time | None
    published_through: Time | None
    kind: str | None = None
    answer: Literal["profile", "estimate"] | None = None
    unit: str | None = None
    window: str | None = None
    timezone: str | None = None
    summary: str | None = None
    groups: list[str] | None = None


class Sketches(Shape):
    """All sketches."""

    sketches: list[Sketch]


class Window(Facts):
    """A window of a list."""

    status: str
    answer: State
    failure: str | None = None


class Windows(Shape):
    """A page of windows."""

    sketch: str
    windows: list[Window]
    next: str | None


class Profile(Facts):
    """The profile of a window."""

    method: str
    max_count: Whole
    fractions: list[float]
    counts: list[float]
    distinct: Number
    at_least: dict[str, Number]
    guarantee: dict[str, Any]


class Estimate(Facts):
    """The estimates of a window."""

    guarantee: dict[str, Any]


class Set(Ends):
    """A number of items with its standard error; null where there is none."""

    sd: float | None


class AskedSet(Set):
    """The items of a set of groups."""

    query: str


class Region(Set):
    """The items that are in exactly these groups."""

    model_config = ConfigDict(serialize_by_alias=True, extra="forbid")
    inside: list[str] = Field(alias="in")


class Increment(Shape):
    """What a group adds to those before it, and what all have reached by then."""

    group: str
    added: Set
    reached: Set


class Overlap(Facts):
    """What the groups of a window have in common; all numbers are of one fit, so those of disjoint sets add up."""

    kind: Literal["overlap"]
    groups: list[str]
    people: Set
    answers: list[AskedSet]
    regions: list[Region]
    increments: list[Increment]
    epsilon: str
    coverage: float
    guarantee: dict[str, Any]


class Estimates(Shape):
    """The estimates of several windows."""

    sketch: str
    windows: list[Estimate]


class ClosedWindow(Facts):
    """Answers at positions of a window that have closed."""

    closed: Whole


class Closed(Shape):
    """Windows of which positions have closed."""

    sketch: str
    windows: list[ClosedWindow]


class Point(Number):
    """A number of one window."""

    window_start: Time
    window_end: Time
    complete: bool | None
    answer: State


class Followed(Shape):
    """A number that is followed from window to window."""

    sketch: str
    metric: str
    level: float
    pending: Whole
    pending_seconds: float | None
    bound: Bound | None = None


class Series(Followed):
    """A number by window."""

    title: str
    points: list[Point]


class GroupSeries(Shape):
    """A number of one group by window."""

    group: str
    title: str
    pending: Whole
    points: list[Point]


class SeriesByGroup(Followed):
    """A number of each group by window."""

    groups: list[GroupSeries]


class Difference(Shape):
    """A number of one window minus that of another."""

    sketch: str
    metric: str
    title: str
    level: float
    independent: bool
    difference: Ends
    window: Point
    against: Point
    assumes: str
    bound: Bound | None = None


class Total(Shape):
    """Losses, as exact fractions."""

    event: str
    event_zcdp: str
    item: str
    item_zcdp: str
    event_gaussian: dict[str, Any] | None = None
    event_together: dict[str, Any] | None = None
    item_gaussian: dict[str, Any] | None = None
    item_together: dict[str, Any] | None = None
    record: str | None = None
    misplaced_item: str | None = None


class Budget(Shape):
    """What may be lost, and what has been."""

    limit: str
    event: str
    item: str
    kept: bool


class LedgerRow(Shape):
    """What a sketch costs."""

    sketch: str
    revision: str
    unit: str
    windows: str
    partitions: str
    one_window: str
    all_windows: str


class Ledger(Shape):
    """What one unit can have lost so far."""

    keyed: bool
    limit: str | None
    budget: Budget | None
    total: Total
    days: dict[str, Total]
    unbounded_for_items: list[str]
    conflicts: Whole
    copied: Whole
    sketches: list[LedgerRow]


class Incident(Shape):
    """A publication of which nothing is shown."""

    sketch: str
    window_start: Time
    text: str


class Incidents(Shape):
    """Publications of which nothing is shown."""

    incidents: list[Incident]


class Behind(Shape):
    """How far the store of a sketch is behind."""

    behind_seconds: float | None


class Status(Shape):
    """What is unread, and still to be reconstructed."""

    ready: bool
    unread: int | None
    error: str | None
    pending: Whole
    rate_per_second: float | None
    pending_seconds: float | None
    sketches: dict[str, Behind]


class Column(Shape):
    """A column of a table."""

    name: str
    type: Kind


class FlatTable(Shape):
    """A table as a file."""

    sketch: str
    table: Literal["windows", "numbers", "answers"]
    path: str
    columns: list[Column]


class Tables(Shape):
    """The tables that there are."""

    tables: list[FlatTable]
