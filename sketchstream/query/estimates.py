"""Answers of the kinds that give estimates, and selections of them.

In: published objects, lists of items, a selection. Out: answers of a kind, rows. Touches: nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, get_args

from sketchstream.errors import ConfigError, EstimateError
from sketchstream.kinds import options_of_lists, presentation
from sketchstream.kinds.capabilities import SlotsOfItems
from sketchstream.kinds.estimates import estimate_of
from sketchstream.kinds.exports import as_csv, as_json
from sketchstream.spec import ClosedDomain
from sketchstream.stream.input.partitioner import Partitioner, items_kept

if TYPE_CHECKING:
    from sketchstream.array_types import Flags
    from sketchstream.published import Published
    from sketchstream.stream.windows.plans import SketchPlan


def knows_names(plan: SketchPlan | None, spec: Any) -> bool:
    """Whether a configuration has the lists of a publication.

    Args:
        plan: plan of the sketch, as it is configured now; None: it is not.
        spec: spec of the publication.
    """
    return plan is not None and plan.spec.domain.to_dict() == spec.domain.to_dict()


def known_names(plan: SketchPlan | None, published: Published) -> dict[str, Any]:
    """Names that are listed in a configuration but not in published bytes, as arguments of `estimate`.

    Args:
        plan: plan of the sketch, as it is configured now; None: it is not.
        published: a publication, perhaps of another domain: then nothing is known.
    """
    return options_of_lists(plan.spec) if plan is not None and knows_names(plan, published.spec) else {}


def estimate(published: Published, method: str, names: Mapping[str, Any]) -> Any:
    """The answers of one published object.

    Args:
        published: a release, a sealed state, or a stack.
        method: estimator of the kind; "auto" is the default one.
        names: lists of items or rows, if known.

    Raises:
        EstimateError: the kind has no estimates, or none by this method.
    """
    arguments = dict(names)
    if isinstance(published.kind, SlotsOfItems):
        rows_kept = _slots_of_items(published, arguments.get("items"))
        arguments |= {} if rows_kept is None else {"kept": rows_kept}
    return published.estimate(method=method, **arguments)


def _slots_of_items(published: Published, items: Sequence[Any] | None) -> list[Flags] | None:
    """The items with slots in each part, as (size,) bool; None where all parts have all items.

    The items of a listed domain are not in published bytes.
    """
    parts = published.parts
    if any(part.origin.partitioner not in get_args(Partitioner) or part.origin.partition is None for part in parts):
        return None
    domain = published.spec.domain if items is None else ClosedDomain(items=list(items))
    if domain.listed and domain.items is None:
        return None
    return [
        items_kept(domain, part.origin.partitioner, part.origin.partition_counts, part.origin.partition)  # type: ignore[arg-type]
        for part in parts
    ]


@dataclass(frozen=True)
class Selection:
    """A selection of answers.

    Args:
        items: items whose counts are wanted.
        top: number of the largest counts.
        sums: ranges of the domain, "LOW:HIGH".
        prefix: prefix of the options' names in errors.
    """

    items: tuple[str, ...] = ()
    top: int | None = None
    sums: tuple[str, ...] = ()
    prefix: str = "--"

    def __bool__(self) -> bool:
        return bool(self.items or self.top or self.sums)

    def rows(self, answers: Any, name: str) -> list[dict[str, Any]]:
        """Select answers as rows.

        Args:
            answers: answers of any kind of sketch.
            name: name of the kind, for errors.

        Raises:
            EstimateError: the kind does not answer this question.
            ConfigError: a range is invalid.
            DomainError: an item is not in the domain.
        """
        return [*self._of_items(answers, name), *self._largest(answers, name), *self._added(answers, name)]

    def _of_items(self, answers: Any, name: str) -> Iterator[dict[str, Any]]:
        """A row for each item."""
        if self.items:
            count = self._method(answers, "count", "item", name)
            for item in self.items:
                yield {"what": item, **count(_item(answers, item)).to_dict()}

    def _largest(self, answers: Any, name: str) -> Iterator[dict[str, Any]]:
        """A row for each of the largest."""
        if self.top is not None:
            for count in self._method(answers, "top", "top", name)(self.top):
                place = f"slot {count.slot}" if count.item is None else count.item
                what = place.hex() if isinstance(place, bytes) else str(place)
                yield {"what": what, "rank": count.rank, "value": count.value, "low": count.low, "high": count.high}

    def _added(self, answers: Any, name: str) -> Iterator[dict[str, Any]]:
        """A row for each sum."""
        if self.sums:
            add = self._method(answers, "sum", "sum", name)
            for text in self.sums:
                low, high = self._range(text)
                yield {"what": f"sum {text}", **add(low, high).to_dict()}

    def _method(self, answers: Any, name: str, option: str, kind: str) -> Any:
        """The method that answers this question."""
        method = getattr(answers, name, None)
        if method is None:
            raise EstimateError(
                f"kind {kind!r} does not answer {self.prefix}{option}: leave it out, and read all its answers"
            )
        return method

    def _range(self, text: str) -> tuple[int | None, int | None]:
        """Parse LOW:HIGH; either may be left out."""
        low, colon, high = text.partition(":")
        if not colon or any(end and not end.isdecimal() for end in (low, high)):
            raise ConfigError(f"{self.prefix}sum must be LOW:HIGH, such as 0:100, found {text!r:.40}")
        return int(low) if low else None, int(high) if high else None


def require_rows(published: Published, options: str) -> None:
    """Refuse a kind without rows.

    Args:
        published: a published object.
        options: names of the options given, for the error.

    Raises:
        EstimateError: the kind has none.
    """
    if "row" not in published.kind.intake.carries:
        raise EstimateError(f"kind {published.kind.name!r} has no rows: {options} are for kind 'projection'")


@dataclass(frozen=True)
class RowQuestion:
    """One question about rows, as texts name them.

    Args:
        distance: pairs of rows: squared distances.
        inner: pairs of rows: inner products.
        nearest: rows whose nearest rows are asked for.
        count: number of nearest rows of each.
        sq_norm: rows: squared norms.
        with_vector: rows: inner products with a public vector.
        vector: features and numbers of that vector; all others are 0.
        drift: rows that are compared over windows: squared distances from each window to the next.
        until: drift: end of the last window, ms.
        among: number of first rows of which squared distances of all pairs are computed.
    """

    distance: tuple[tuple[str, str], ...] = ()
    inner: tuple[tuple[str, str], ...] = ()
    nearest: tuple[str, ...] = ()
    count: int | None = None
    sq_norm: tuple[str, ...] = ()
    with_vector: tuple[str, ...] = ()
    vector: tuple[tuple[str, float], ...] = ()
    drift: tuple[str, ...] = ()
    until: int | None = None
    among: int | None = None

    def __bool__(self) -> bool:
        return bool(self.asked)

    @property
    def asked(self) -> tuple[str, ...]:
        """Names of the questions that are asked; at most one has an answer at a time."""
        names = ("distance", "inner", "nearest", "sq_norm", "with_vector", "drift", "among")
        return tuple(name for name in names if getattr(self, name))

    @property
    def named(self) -> bool:
        """Whether rows or features are named: all questions do, except for one about the first rows."""
        return bool(self.asked) and self.asked != ("among",)

    def options(self, names: Mapping[str, Any], later: Sequence[Any] = ()) -> dict[str, Any]:
        """The question as arguments of `estimate`.

        Args:
            names: the lists of users and features, as far as they are known.
            later: the publications of later windows, for `drift`.
        """
        users, features = names.get("users"), names.get("features")
        for question in ("distance", "inner"):
            if pairs := getattr(self, question):
                firsts, seconds = (rows_named([pair[at] for pair in pairs], users) for at in (0, 1))
                return {question: list(zip(firsts, seconds, strict=True))}
        if self.among:
            return {"among": self.among}
        if self.nearest:
            return {"nearest": rows_named(self.nearest, users), "count": self.count}
        if self.sq_norm:
            return {"sq_norm": rows_named(self.sq_norm, users)}
        if self.with_vector:
            places = rows_named([feature for feature, _ in self.vector], features)
            numbers = (number for _, number in self.vector)
            vector = list(zip(places, numbers, strict=True))
            return {"with_vector": rows_named(self.with_vector, users), "vector": vector}
        return {"drift": rows_named(self.drift, users), "later": list(later)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RowQuestion:
        """The question whose fields these are, lists for tuples."""
        fields: dict[str, Any] = dict(data)
        for name in ("distance", "inner", "vector"):
            fields[name] = tuple((first, second) for first, second in fields[name])
        for name in ("nearest", "sq_norm", "with_vector", "drift"):
            fields[name] = tuple(fields[name])
        return cls(**fields)


def vector_of(features: Sequence[str], weights: Sequence[str], prefix: str = "") -> tuple[tuple[str, float], ...]:
    """Features and numbers of a public vector; without numbers ones.

    Args:
        features: features as they were typed.
        weights: decimal numbers, one for each feature, or none.
        prefix: prefix of the options' names in errors.

    Raises:
        ConfigError: they do not go together, or one is not a number. The text names none of their values.
    """
    if weights and len(weights) != len(features):
        raise ConfigError(
            f"{prefix}feature and {prefix}weight come in pairs, found {len(features)} of {prefix}feature and "
            f"{len(weights)} of {prefix}weight"
        )
    if not all(_FINITE.fullmatch(weight) for weight in weights):
        raise ConfigError(
            f"each {prefix}weight must be a number such as 2.5: the entry of the vector for one {prefix}feature"
        )
    numbers = [float(weight) for weight in weights] or [1.0] * len(features)
    return tuple(zip(features, numbers, strict=True))


_FINITE: Final = re.compile(r"[+-]?[0-9]{1,15}(\.[0-9]{1,15})?(e[+-]?[0-9]{1,2})?", re.IGNORECASE | re.ASCII)


def rows_named(texts: Iterable[str], listed: Sequence[Any] | None) -> list[Any]:
    """Parse names of rows by their domain: integers if rows are integers, or ids.

    Args:
        texts: rows as typed.
        listed: the rows of a listed domain; None: rows are ids.
    """
    whole = listed is None or isinstance(listed[0], int)
    binary = bool(listed) and isinstance((listed or [b""])[0], bytes)
    return [int(text) if whole and text.isdecimal() else text.encode() if binary else text for text in texts]


@dataclass(frozen=True)
class EstimateAnswer:
    """Estimates with facts about their origin, for all outputs.

    Args:
        answers: answers of any kind of sketch.
        facts: facts about the window; empty without a window.
        guarantee: guarantee as plain data.
        selected: selected rows; None: all of `answers`.
    """

    answers: Any
    facts: Mapping[str, Any]
    guarantee: Mapping[str, Any]
    selected: Sequence[Mapping[str, Any]] | None = None

    def numbers(self) -> dict[str, Any]:
        """Plain data of the answers, without facts and guarantee."""
        numbers: dict[str, Any] = self.answers.numbers() if self.selected is None else {"answers": list(self.selected)}
        return numbers

    def named(self, names: Sequence[Any]) -> dict[Any, Any]:
        """Numbers by name, with intervals.

        Args:
            names: "sum" (of all items), the name of an item for its count, or a number that
                `sketchstream.kinds.presentation` knows, such as "count.7", "answer.7", "last.0" and "norm.7".

        Raises:
            EstimateError: the kind has no such numbers.
        """
        data = self.answers.numbers() if any("." in str(name) for name in names) else {}
        in_answer = {name: presentation.presentation_of(data).number(data, str(name)) for name in names} if data else {}
        estimates = {name: estimate_of(value[1]) for name, value in in_answer.items() if value is not None}
        return self._asked([name for name in names if name not in estimates]) | estimates

    def _asked(self, names: Sequence[Any]) -> dict[Any, Any]:
        """Numbers computed by methods of the answers."""
        ask = {name: getattr(self.answers, "sum" if name == "sum" else "count", None) for name in names}
        for name, method in ask.items():
            if method is None:
                kind = self.answers.spec.kind
                raise EstimateError(
                    f"kind {kind!r} has no number {name!r:.40} to give: ask the window's .estimate() for its answers"
                )
        return {name: method() if name == "sum" else method(name) for name, method in ask.items()}  # type: ignore[misc]

    def rows(self) -> list[Mapping[str, Any]]:
        """The answers as rows of a table; rows may lack columns."""
        return list(self.answers.rows() if self.selected is None else self.selected)

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the facts, the answers, the guarantee."""
        return {**self.facts, **self.numbers(), "guarantee": self.guarantee}

    def to_json(self) -> str:
        """One line of JSON, as printed by `estimate --format json` and written to the results topic."""
        return as_json(self.to_dict())

    def to_csv(self) -> str:
        """RFC 4180 text with a header line."""
        return as_csv(self.rows())


def _item(answers: Any, text: str) -> Any:
    """Parse an item by its domain: an integer if items are integers, or ids."""
    domain = answers.spec.domain
    whole = domain.items is None or (len(domain.items) > 0 and isinstance(domain.items[0], int))
    if whole and text.lstrip("-").isdecimal():
        return int(text)
    return text.encode() if domain.items and isinstance(domain.items[0], bytes) else text
