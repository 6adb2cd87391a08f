"""What a published sketch of kind `convolution` answers: all its filters at once.

In: a release, a sealed state, or parts that are added up. Out: a `Series`, which prints as text and turns into rows and
plain data. Touches: nothing. Post-processing only.
Source: docs/theory/convolution.md, section 8.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sketchstream.errors import EstimateError
from sketchstream.kinds.convolution.answers import LEVEL, Answers, answers

if TYPE_CHECKING:
    from sketchstream.kinds.convolution.spec import ConvolutionSpec, Layer
    from sketchstream.published import Published


@dataclass(frozen=True)
class Series:
    """Answers of all filters of a sketch, or of those that were asked for.

    Args:
        spec: of the sketch.
        answers: one object for each filter.
        level: of the intervals in rows, data and text.
        guarantee: what the publication guarantees, as plain data.

    Examples:
        >>> import sketchstream as ss
        >>> sketch = ss.Sketch.create(ss.ConvolutionSpec(["sum", "window:24"], 48, epsilon="1", delta="1e-6"))
        >>> sketch.update([0, 0, 1, 25])
        >>> found = sketch.seal().estimate()
        >>> found.names, len(found["sum"].values)
        (('sum', 'window:24'), 48)
    """

    spec: ConvolutionSpec = field(repr=False)
    answers: tuple[Answers, ...]
    level: float = LEVEL
    guarantee: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the filters."""
        return tuple(one.filter.name for one in self.answers)

    def __getitem__(self, name: str) -> Answers:
        """The answers of one filter.

        Raises:
            EstimateError: there is no such filter.
        """
        for one in self.answers:
            if one.filter.name == name:
                return one
        msg = f"this sketch has the filters {', '.join(self.names)}, found {name!r:.60}"
        raise EstimateError(msg)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of what a row may have: those of columns of a table only in rows of their marginals."""
        table = () if self.spec.columns is None else tuple(self.spec.columns.values)
        return ("filter", *(table or ("position",)), "value", "stderr", "lower", "upper", "partial")

    def rows(self) -> list[dict[str, Any]]:
        """One flat row for each answer."""
        return [row for one in self.answers for row in one.rows(self.level)]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "kind": self.spec.kind,
            "unit": self.spec.unit,
            "length": self.spec.length,
            "no_privacy": self.spec.no_privacy,
            "level": self.level,
            "answers": [one.to_dict(self.level) for one in self.answers],
            "guarantee": self.guarantee,
        }

    def __str__(self) -> str:
        """Short tables for people."""
        return "\n\n".join(one.text() for one in self.answers)


def estimate(published: Published, *, method: str = "auto", name: str | None = None, level: float = LEVEL) -> Series:
    """All filters' answers from what was published; parts are added up, and so is their noise.

    Args:
        published: a release, a sealed state, or a stack of either.
        method: "auto": the unbiased answers, the only ones.
        name: of one filter; default all.
        level: of intervals, above 0 and below 1.

    Raises:
        EstimateError: another method, name or level.
    """
    if method != "auto":
        msg = f"kind 'convolution' has one method, 'auto', found {method!r:.40}"
        raise EstimateError(msg)
    parts: Any = getattr(published, "parts", (published,))
    spec, kind = published.spec, published.kind
    layers: list[Layer] = []
    for part in parts:
        layers += [spec.layer_of(kind.cost(spec, layer.parameter)) for layer in part.layers]
        cost = getattr(part, "cost", None)
        layers += [] if cost is None else [spec.layer_of(cost)]
    shown = [part.state if getattr(part, "cost", None) is None else part.noised for part in parts]
    found = answers(spec, layers, np.sum(shown, axis=0, dtype=np.int64))
    made = Series(spec, found, level, published.guarantee().to_dict())
    if name is not None:
        made = Series(spec, (made[name],), level, made.guarantee)
    for one in made.answers:
        one.interval(level)  # refuses a level outside
    return made
