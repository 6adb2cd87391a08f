"""What requests may ask: typed models of the parameters of each path.

In: query strings and forms. Out: checked parameters; what is wrong with others, in words. Touches: nothing.

The framework reads parameters with these models, and the OpenAPI document describes them from the same source. Values
of a form may name items and rows: no error repeats them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Annotated, Any, Final, Literal
from urllib.parse import parse_qsl

import annotated_types
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic.json_schema import SkipJsonSchema

from sketchstream.errors import ConfigError
from sketchstream.kinds.answers import MAX_LISTED_ROWS
from sketchstream.kinds.options import METHODS, Method, NormName
from sketchstream.query.estimates import RowQuestion, vector_of
from sketchstream.query.times import read_time, require_order
from sketchstream.serve.reconstruction.questions import Question
from sketchstream.serve.service import MAX_WINDOWS
from sketchstream.stream.windows.calendar import iso

Format = Literal["json", "csv", "arrow", "parquet"]
Quantity = Literal["distance", "inner", "sq_norm", "with_vector"]

TIME: Final = {"type": "string", "format": "date-time", "example": "2013-01-01T05:00:00Z"}
From = Annotated[int, BeforeValidator(partial(read_time, name="from")), WithJsonSchema(TIME)]
To = Annotated[int, BeforeValidator(partial(read_time, name="to")), WithJsonSchema(TIME)]
AgainstFrom = Annotated[int, BeforeValidator(partial(read_time, name="against_from")), WithJsonSchema(TIME)]
AgainstTo = Annotated[int, BeforeValidator(partial(read_time, name="against_to")), WithJsonSchema(TIME)]
Sum = Annotated[str, WithJsonSchema({"type": "string", "pattern": "^[0-9]*:[0-9]*$"})]
Cursor = Annotated[str, WithJsonSchema({"type": "string", "pattern": "^-?[0-9]{1,16}_-?[0-9]{1,16}$"})]
Group = Annotated[str, WithJsonSchema({"type": "string", "example": "spring"})]
Set = Annotated[str, WithJsonSchema({"type": "string", "example": "spring & summer - brand"})]
Names = Annotated[str, WithJsonSchema({"type": "string", "example": "spring,summer"})]
Metric = Annotated[
    str,
    WithJsonSchema({"type": "string", "pattern": r"^[a-z][a-z_]{0,30}(\.[0-9]{1,8}){0,2}$", "example": "exactly.1"}),
]
MethodName = Annotated[str, Field(pattern="^[a-z][a-z_-]{0,20}$", examples=["auto"])]

METRIC: Final = (
    "A number of the answer: distinct, total, mean, entropy, at_least.K, exactly.K, quantile.Q, ... of profiles; sum "
    "and count.P of gaussian sketches, answer.N of workloads, last.F and answer.F.P of convolutions, norm.P of "
    "projections, count.N of hierarchies. Without it the first of its kind."
)
SUM: Final = "LOW:HIGH, the places of the domain from LOW to below HIGH: 0:50 is the first 50, : is all."
PRIVATE: Final = ("item", "row", "other", "nearest", "drift", "feature", "weight")
"""Parameters that name items or rows: they come in forms only."""
MANY: Final = frozenset({*PRIVATE, "sum", "query"})
"""Parameters that may be given several times."""
MAX_SETS: Final = 1000
"""Sets of groups in one request."""
TIMES: Final = frozenset({"from", "to", "against_from", "against_to"})
PAIRED: Final = ("distance", "inner")
"""What is asked of pairs of rows; other quantities are asked of single ones."""


def _after(start: str, names: tuple[str, str], until: int | None, info: ValidationInfo) -> int | None:
    """The end of a range of time, which lies after its start."""
    require_order(info.data.get(start), until, names)
    return until


class Parameters(BaseModel):
    """No parameters; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Form(Parameters):
    """What to answer in."""

    format: Format = Field("json", description="What to answer in.")


class Plain(Parameters):
    """No parameters but the only format that there is."""

    format: Literal["json"] = Field("json", description="What to answer in: there is no table.")


class Span(Parameters):
    """A range of time."""

    since: From | SkipJsonSchema[None] = Field(
        None, alias="from", description="Windows that start at or after this time, RFC 3339 with an offset."
    )
    until: To | SkipJsonSchema[None] = Field(None, alias="to", description="Windows that end at or before this time.")
    _ordered = field_validator("until")(partial(_after, "since", ("from", "to")))


class Ranged(Span, Form):
    """A range of time, in a format."""


class WindowsQuery(Ranged):
    """A page of windows."""

    limit: int = Field(100, ge=1, le=MAX_WINDOWS, description="Of one page.")
    order: Literal["desc", "asc"] = Field("desc", description="desc: the newest first.")
    cursor: Cursor | SkipJsonSchema[None] = Field(None, description="What the page before gave as `next`.")


class ProfileQuery(Ranged):
    """A question to one window of profiles."""

    group: Group | SkipJsonSchema[None] = Field(None, description="Of a sketch with groups: the one to show.")
    method: Method = Field("likelihood", description="Estimator.")
    max_count: int | SkipJsonSchema[None] = Field(None, ge=0, le=10_000_000, description="Largest count.")
    norm: NormName | SkipJsonSchema[None] = Field(None, description="With method=circulant: norm of the correction.")

    @property
    def question(self) -> Question:
        """The question."""
        return Question("" if self.method == METHODS[0] else self.method, self.max_count, self.norm, group=self.group)


class OverlapQuery(Ranged):
    """A question to one window about what its groups have in common."""

    query: list[Set] = Field(
        default_factory=list,
        max_length=MAX_SETS,
        description="A set of groups: & and, | or, - but not in, ~ not in, brackets. Default: each group, all pairs, "
        "increments.",
    )
    groups: Names | SkipJsonSchema[None] = Field(
        None, description="Groups to combine, separated by commas, at most 8. Default: all."
    )

    @property
    def question(self) -> Question:
        """The question."""
        among = () if self.groups is None else tuple(name.strip() for name in self.groups.split(","))
        return Question(overlap=True, sets=tuple(self.query), among=among)


class EstimateQuery(Ranged):
    """A question to one window of estimates that names neither items nor rows."""

    method: MethodName = Field("auto", description="Estimator, of those that the kind has.")
    top: int | SkipJsonSchema[None] = Field(None, ge=1, le=100_000, description="The largest counts.")
    among: int | SkipJsonSchema[None] = Field(
        None, ge=2, le=MAX_LISTED_ROWS, description="Squared distances of all pairs of the first so many rows."
    )
    sum: list[Sum] = Field(default_factory=list, description=SUM)

    @property
    def question(self) -> Question:
        """The question.

        Raises:
            ConfigError: parameters that do not belong together. The text names none of their values.
        """
        return self._asking((), RowQuestion() if self.among is None else RowQuestion(among=self.among))

    def _asking(self, items: Iterable[str], rows: RowQuestion) -> Question:
        items, sums = tuple(items), tuple(self.sum)
        if rows and (items or sums or self.top):
            raise ConfigError("ask about rows, or about items, top and sum: one of them at a time")
        method = "" if self.method == "auto" else self.method
        return Question(method, items=items, top=self.top, sums=sums, rows=rows)


class EstimateForm(EstimateQuery):
    """A question to one window of estimates."""

    item: list[str] = Field(default_factory=list)
    row: list[str] = Field(default_factory=list)
    other: list[str] = Field(default_factory=list)
    nearest: list[str] = Field(default_factory=list)
    drift: list[str] = Field(default_factory=list)
    feature: list[str] = Field(default_factory=list)
    weight: list[str] = Field(default_factory=list)
    count: int | SkipJsonSchema[None] = Field(None, ge=1, le=10_000)
    quantity: Quantity | SkipJsonSchema[None] = None

    @property
    def question(self) -> Question:
        """The question; see `EstimateQuery`."""
        return self._asking(self.item, self._rows)

    @property
    def _rows(self) -> RowQuestion:
        """The question about rows, if any."""
        quantity = self.quantity or PAIRED[0]
        if sum(map(bool, (self.row, self.nearest, self.drift, self.among))) > 1:
            msg = "ask one question about rows at a time: row, nearest, among or drift"
        elif self.count is not None and not self.nearest:
            msg = "count belongs to nearest: leave it out"
        elif not self.row and (self.other or self.feature or self.weight or self.quantity):
            msg = "other, feature, weight and quantity belong to row: name the rows that are asked for"
        elif self.row and quantity in PAIRED and len(self.row) != len(self.other):
            msg = f"row and other come in pairs, found {len(self.row)} of row and {len(self.other)} of other"
        elif self.other and quantity not in PAIRED:
            msg = f"other belongs to the quantities {' and '.join(PAIRED)}: leave it out"
        elif bool(self.feature) != (quantity == "with_vector"):
            msg = "feature and quantity=with_vector go together: they name the entries of a public vector"
        else:
            pairs = tuple(zip(self.row, self.other, strict=False))
            rows = tuple(self.row)
            return RowQuestion(
                distance=pairs if quantity == "distance" else (),
                inner=pairs if quantity == "inner" else (),
                nearest=tuple(self.nearest),
                count=self.count,
                sq_norm=rows if quantity == "sq_norm" else (),
                with_vector=rows if self.feature else (),
                vector=vector_of(tuple(self.feature), tuple(self.weight)),
                drift=tuple(self.drift),
                among=self.among,
            )
        raise ConfigError(msg)


class SeriesQuery(Ranged):
    """A number by window."""

    group: Group | SkipJsonSchema[None] = Field(None, description="Of a sketch with groups: the one to show.")
    by: Literal["group"] | SkipJsonSchema[None] = Field(
        None, description="All groups of the sketch, each with its series under `groups`."
    )
    metric: Metric | SkipJsonSchema[None] = Field(None, description=METRIC)


class DifferenceQuery(Plain):
    """Two windows, or two groups of one."""

    since: From = Field(alias="from", description="Start of the window.")
    until: To = Field(alias="to", description="Its end.")
    against_since: AgainstFrom = Field(alias="against_from", description="Start of the window to compare with.")
    against_until: AgainstTo = Field(alias="against_to", description="End of the window to compare with.")
    _ordered = field_validator("until")(partial(_after, "since", ("from", "to")))
    _against = field_validator("against_until")(partial(_after, "against_since", ("against_from", "against_to")))
    group: Group | SkipJsonSchema[None] = Field(None, description="Of a sketch with groups: the one to show.")
    against_group: Group | SkipJsonSchema[None] = Field(
        None, description="The group of the other window; default: the same."
    )
    metric: Metric | SkipJsonSchema[None] = Field(None, description=METRIC)


def names_of(model: type[Parameters]) -> list[str]:
    """Names of the parameters, as requests spell them."""
    return [field.alias or name for name, field in model.model_fields.items()]


def require_once(pairs: Iterable[tuple[str, str]]) -> None:
    """Refuse a parameter that is given twice, unless it may be.

    Raises:
        ConfigError: says which.
    """
    names = set()
    for name, _ in pairs:
        if name in names and name not in MANY:
            raise ConfigError(f"parameter {name!r:.40} is given twice")
        names.add(name)


def read_form(body: bytes) -> tuple[EstimateForm, str]:
    """The parameters of a form, and what the log says of them.

    Raises:
        ConfigError: it is not a form, or a parameter cannot be used. The text names no value.
    """
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=10_000)
    except ValueError:
        raise ConfigError(
            "the form cannot be read: names and values must be percent-encoded UTF-8, at most 10,000 of them"
        ) from None
    require_once(pairs)
    fields: dict[str, Any] = {name: value for name, value in pairs if name not in MANY}
    for name, value in pairs:
        if name in MANY:
            fields.setdefault(name, []).append(value)
    try:
        return EstimateForm.model_validate(fields), question_for_log(fields, EstimateForm)
    except ValidationError as error:
        raise ConfigError(refusal(error.errors(), EstimateForm, with_values=False)) from None


def refusal(errors: Iterable[Mapping[str, Any]], model: type[Parameters], *, with_values: bool = True) -> str:
    """What is wrong with the first parameter that cannot be used, and what may stand there.

    Args:
        errors: errors of the validation.
        model: model that refused the parameters.
        with_values: whether the value is repeated.
    """
    error = next(iter(errors))
    name, kind = str(error["loc"][1 if with_values else 0]), error["type"]  # in a query string after "query" or "path"
    value = f", found {error['input']!r:.40}" if error["loc"][0] == "query" and with_values else ""
    if kind == "extra_forbidden":
        if name in PRIVATE:
            return f"send {name} in a POST form, with from and to, where no log on the way has it"
        return f"unknown parameter {name!r:.40}; there are: {', '.join(names_of(model)) or 'none'}"
    if kind == "missing":
        return f"{name} is needed; {', '.join(names_of(model))} can be given"
    if kind == "value_error":  # one of our functions raised it, and its text says it all
        return str(error["ctx"]["error"])
    if kind == "literal_error":
        return f"{name} must be one of {_choices_text(error['ctx']['expected'])}{value}"
    limits = [
        limit for key, field in model.model_fields.items() if name in (key, field.alias) for limit in field.metadata
    ]
    least = next((limit.ge for limit in limits if isinstance(limit, annotated_types.Ge)), None)
    most = next((limit.le for limit in limits if isinstance(limit, annotated_types.Le)), None)
    if least is not None:
        return f"{name} must be a whole number from {least} to {most}{value}"
    return f"{name} cannot be used: {error['msg'][0].lower()}{error['msg'][1:]}{value}"


def _choices_text(expected: str) -> str:
    """Choices as they are typed, from a text with quotes."""
    return expected.replace(" or ", ", ").replace("'", "")


def question_for_log(fields: Mapping[str, Any], model: type[Parameters]) -> str:
    """What a request asks for, for the log: its range of time, and the names of its other parameters.

    Args:
        fields: parameters, perhaps with unknown ones, which may be anything: they are left out.
        model: model of the known parameters.
    """
    names, parts = set(names_of(model)), []
    for name, value in fields.items():
        if name not in names:
            continue
        try:
            when = read_time(value, name) if name in TIMES else None
            parts.append(name if when is None else f"{name}:{iso(when)}")
        except (ConfigError, OverflowError, ValueError):  # no time, or one of the year 10,000
            parts.append(name)
    return ",".join(parts)
