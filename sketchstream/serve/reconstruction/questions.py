"""Questions to one window, and their answers.

In: a question as plain data, published windows. Out: `Computed` answers. Touches: the sources of the windows.
The answers are those of `sketchstream.query`, and so of the command line and the results topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from sketchstream.errors import ConfigError, EstimateError
from sketchstream.kinds import presentation
from sketchstream.kinds.capabilities import Reconstructing
from sketchstream.kinds.estimates import is_estimate
from sketchstream.kinds.exports import as_csv, as_json
from sketchstream.kinds.options import NORMS
from sketchstream.query import overlaps
from sketchstream.query.answers import ProfileAnswer
from sketchstream.query.differences import Point
from sketchstream.query.estimates import RowQuestion, Selection, known_names, require_rows
from sketchstream.serve.store.stored_windows import Computed
from sketchstream.stream.windows.calendar import iso

if TYPE_CHECKING:
    from sketchstream.kinds.profile_answers import Profile
    from sketchstream.published import Published
    from sketchstream.query.sealed import SealedWindow
    from sketchstream.query.windows import PublishedWindows

SINGLE_NUMBERS: Final = ("distinct", "total", "mean", "entropy", "one_hit_ratio", "coverage", "above")
"""Numbers that a profile has once."""
FAMILIES: Final = {"at_least": "at_least", "exactly": "exactly", "quantile": "quantiles"}
"""Numbers that a profile has for several k, or q: "at_least.7" is `answer["at_least"]["7"]`."""
KEPT_COUNTS: Final = ("1", "2", "3", "5", "10", "20", "30", "50", "100")
"""Values of k for which numbers are kept apart for series; those of others are read from whole answers."""


@dataclass(frozen=True)
class Question:
    """A question about one window; by default its usual answer.

    Args:
        method: estimator; empty: the usual one of the kind.
        max_count: profiles: largest count to resolve.
        norm: profiles by "circulant": norm of the correction.
        items: items whose estimates are wanted.
        top: number of the largest counts that are wanted.
        sums: estimates: ranges of the domain, "LOW:HIGH".
        rows: estimates of rows: one question about them.
        group: group to ask, for a sketch with groups.
        overlap: whether the question is what groups have in common; then only `sets` and `among` belong to it.
        sets: sets of groups, as expressions; empty: the usual ones.
        among: groups to combine; empty: all.
    """

    method: str = ""
    max_count: int | None = None
    norm: str | None = None
    items: tuple[str, ...] = ()
    top: int | None = None
    sums: tuple[str, ...] = ()
    rows: RowQuestion = field(default_factory=RowQuestion)
    group: str | None = None
    overlap: bool = False
    sets: tuple[str, ...] = ()
    among: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Canonical text; empty for the usual question."""
        usual = Question()
        fields = {name: value for name, value in asdict(self).items() if getattr(self, name) != getattr(usual, name)}
        return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS).decode() if fields else ""

    @property
    def special(self) -> bool:
        """Whether the question needs more than the usual answer of a window or one of its groups."""
        return replace(self, group=None) != Question()

    @property
    def names_items(self) -> bool:
        """Whether the question contains items or rows: then neither it nor its answer is stored or logged."""
        return bool(self.items or self.rows.named)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Question:
        """The question that `to_dict` described."""
        fields: dict[str, Any] = dict(data)
        for name in ("items", "sums", "sets", "among"):
            fields[name] = tuple(fields[name])
        fields["rows"] = RowQuestion.from_dict(fields["rows"])
        return cls(**fields)


def compute(windows: PublishedWindows, window: SealedWindow, question: Question | None) -> Computed:
    """The answer of one window.

    Args:
        windows: published windows.
        window: one of them.
        question: question about that window; None: only the guarantee is wanted, and the numbers are empty.

    Raises:
        EstimateError, MergeError, ConfigError, DomainError, SpecError: it has no answer to this question.
    """
    if question is None:
        computed = Computed(b"", b"", as_json(windows.guarantee(window)))
    elif question.overlap:
        computed = _overlap(windows, window, question)
    else:
        asked = window if question.group is None else window.of_group(question.group)
        profile = isinstance(window.parts[0].kind, Reconstructing)
        computed = (_profile if profile else _estimate)(windows, asked, question)
    return replace(computed, guarantee_alone=as_json(windows.guarantee(window, alone=True)))


def _profile(windows: PublishedWindows, window: SealedWindow, question: Question) -> Computed:
    """The profile of a window."""
    if question.names_items or question.top is not None or question.sums:
        raise EstimateError(
            "a sketch of kind 'profile' has no counts of single items: ask for its profile, without item, top and sum"
        )

    def reconstruct(published: Published) -> Profile:
        return published.profile(
            method=question.method or "likelihood",  # type: ignore[arg-type]
            max_count=question.max_count,
            norm=None if question.norm is None else NORMS[question.norm],
        )

    answer = windows.answer(window, reconstruct)
    bare = ProfileAnswer(answer.profile, {} if window.group is None else {"group": window.group}, answer.intervals)
    numbers = bare.to_dict()
    guarantee = numbers.pop("guarantee", None)
    return Computed(as_json(numbers).encode(), bare.to_csv().encode(), as_json(guarantee), points=points(numbers))


def _overlap(windows: PublishedWindows, window: SealedWindow, question: Question) -> Computed:
    """What the groups of a window have in common."""
    answer = overlaps.of_window(windows, window, question.among or None)
    sets = question.sets or None
    rows = as_csv(answer.rows(sets), overlaps.COLUMNS)
    return Computed(as_json(answer.numbers(sets)).encode(), rows.encode(), as_json(answer.guarantee))


def _estimate(windows: PublishedWindows, window: SealedWindow, question: Question) -> Computed:
    """The estimates of a window."""
    if question.max_count is not None or question.norm is not None:
        raise ConfigError("max_count and norm belong to profiles: leave them out")
    published = windows.result(window)
    names: dict[str, Any] = {}
    if question.rows:
        names = known_names(windows.config.find(window.sketch), published)
        require_rows(published, "row, other, nearest, among and drift")
        names |= _about_rows(windows, window, question.rows, names)
    whole = windows.estimates(window, question.method or "auto", names)
    answers = whole.answers
    chosen = Selection(question.items, question.top, question.sums, prefix="")
    rows = chosen.rows(answers, published.kind.name) if chosen else None
    answer = replace(whole, selected=rows)
    # facts of the window are kept apart; that the window before has a part in the numbers goes with the numbers
    joined = {name: answer.facts[name] for name in ("joined",) if name in answer.facts}
    numbers = as_json({**joined, **answer.numbers()}).encode()
    return Computed(numbers, answer.to_csv().encode(), as_json(answer.guarantee), points=points(orjson.loads(numbers)))


def _about_rows(
    windows: PublishedWindows, window: SealedWindow, question: RowQuestion, names: Mapping[str, Any]
) -> dict[str, Any]:
    """A question about rows as arguments of `estimate`; for drift with the windows after this one."""
    if not question.drift:
        return question.options(names)
    several = list(windows.every(window.sketch, window.window[0], question.until))
    if len(several) < 2:
        raise ConfigError("drift compares windows: choose a range of two or more with from and to")
    later = [windows.result(window) for window in several[1:]]
    return question.options(names, later) | {"windows": [iso(window.window[0]) for window in several]}


def points(numbers: Mapping[str, Any]) -> dict[str, tuple[Any, Any, Any, str | None]]:
    """The numbers of an answer that are kept apart for series, by name: value, low, high, what they are bounds of."""
    estimates = {name: value for name, value in numbers.items() if is_estimate(value)}
    for name, spelled in FAMILIES.items():
        for key, value in (numbers.get(spelled) or {}).items():
            if name == "quantile" or key in KEPT_COUNTS:
                estimates[f"{name}.{key}"] = value
    return {name: (*_ends(value), value.get("bound")) for name, value in estimates.items()}


def title_of_number(numbers: Mapping[str, Any], metric: str) -> tuple[str, Point, str | None] | None:
    """The title of one number of an answer, the number with its interval, and what it is a bound of; None: not there.

    Args:
        numbers: numbers of an answer.
        metric: such as "distinct", "at_least.7" or "quantile.0.9" of profiles; of the other kinds what
            `sketchstream.kinds.presentation` knows: "sum", "count.7", "answer.7", "last.0", "norm.7".
    """
    name, number = presentation.presentation_of(numbers).number(numbers, metric) or ("", None)
    return (name, _ends(number), number.get("bound")) if is_estimate(number) else None


def _ends(value: Mapping[str, Any]) -> Point:
    return value["value"], value["low"], value["high"]
