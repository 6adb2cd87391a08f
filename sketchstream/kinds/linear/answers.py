"""The base of answers of linear kinds: what they say of the sketch, the noise and the guarantee, and their card.

In: a publication. Out: see `sketchstream.kinds.answers`. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Self

from sketchstream import kinds
from sketchstream.errors import EstimateError
from sketchstream.kinds.answers import LEVEL, Answers
from sketchstream.kinds.estimates import Estimate, estimate_of
from sketchstream.kinds.exports import ColumnType
from sketchstream.kinds.linear.publication import parts_of
from sketchstream.privacy.losses.history import parameter_name

if TYPE_CHECKING:
    from sketchstream.kinds.linear.spec import LinearSpec
    from sketchstream.published import Published


MAX_NAMES: Final = 5
"""Names of numbers that an error lists."""


class LinearAnswers(Answers):
    """Numbers of one publication of a linear kind."""

    spec: LinearSpec
    """Spec of the sketch."""
    published: Published | None = None
    """What the answers were computed from; None if they were computed from bare numbers."""

    def computed_from(self, published: Published) -> Self:
        """These answers, which now say what they were computed from; called once, by the kind that made them."""
        object.__setattr__(self, "published", published)  # frozen dataclasses derive from this class too
        return self

    def sketch_facts(self) -> dict[str, Any]:
        """What the spec says of the sketch: its kind, its unit, its privacy."""
        spec = self.spec
        privacy = {"epsilon": str(spec.epsilon), "delta": str(spec.delta), "no_privacy": spec.no_privacy}
        return {"kind": spec.kind, "unit": spec.unit, **privacy}

    @property
    def guarantee(self) -> dict[str, Any] | None:
        """The guarantee of the publication, as plain data; None if it is not known."""
        return None if self.published is None else self.published.guarantee().to_dict()

    @property
    def layers(self) -> list[dict[str, str]]:
        """Law and parameter of each layer of noise in the numbers; empty if the publication is not known."""
        law = kinds.of(self.spec).accounting.law(self.spec)
        return [{"law": law, parameter_name(law): str(parameter)} for parameter in self._parameters()]

    def _parameters(self) -> Sequence[Fraction]:
        """Parameters of the layers of noise in the numbers."""
        if self.published is None:
            return ()
        return [parameter for part in parts_of(kinds.of(self.spec), self.published) for parameter in part.parameters]

    def number(self, name: str, level: float = LEVEL) -> Estimate:
        """A number by the name that series, pages and `--metric` know it by, such as "sum", "answer.0" or "norm.7".

        Raises:
            EstimateError: these answers have no number of that name.
        """
        from sketchstream.kinds import presentation

        data = self.numbers(level)
        named = presentation.of(data).number(data, str(name))
        if named is None:
            known = ", ".join(list(presentation.of(data).numbers(data))[:MAX_NAMES])
            raise EstimateError(f"these answers have no number {name!r:.40}; some that they have: {known}")
        return estimate_of(named[1])

    def types(self) -> Mapping[str, ColumnType]:
        return kinds.of(self.spec).rows(self.spec).types

    def further(self) -> Answers | None:
        """The answers that pages, reports and notebooks show beside these; None: there are none."""
        return None

    def _repr_html_(self) -> str:
        """Card of a notebook: the headline, the first tables and charts, and a note."""
        from sketchstream.kinds import presentation

        beside = self.further()
        return presentation.card(self.numbers(), self._noted(), None if beside is None else beside.numbers())

    def _noted(self) -> str:
        """Sentence below a notebook's card."""
        return " ".join(str(self).splitlines()[:1])
