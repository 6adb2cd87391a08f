"""Answers of linear kinds: the parts of a publication, the base of answers and their card, intervals by kurtosis.

In: a release, a sealed state, or a stack of either. Out: see `sketchstream.kinds.answers`. Touches: nothing.
Source: Madan & Seneta 1990 (the variance-gamma law); docs/theory/workload.md, section 9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from sketchstream import kinds
from sketchstream.array_types import Floats
from sketchstream.errors import EstimateError
from sketchstream.kinds.answers import LEVEL, Answers
from sketchstream.kinds.estimates import Estimate, estimate_of
from sketchstream.kinds.exports import ColumnType
from sketchstream.privacy.losses.law_names import parameter_name

if TYPE_CHECKING:
    from sketchstream.array_types import State
    from sketchstream.kinds.interface import Kind
    from sketchstream.kinds.linear.spec import LinearSpec
    from sketchstream.provenance import Origin
    from sketchstream.published import Published

MAX_NAMES: Final = 5
"""Names of numbers that an error lists."""
BELOW_ZERO: Final = (
    "some answers are below 0 by more than noise explains: weights below 0 were counted that no earlier event makes up "
    "for"
)
"""Sentence that answers carry where `below_zero` is true."""


@dataclass(frozen=True, eq=False)
class PublishedPart:
    """One published part."""

    origin: Origin
    key_id: bytes | None
    numbers: State
    layers: tuple[Fraction, ...]
    fresh: tuple[Fraction, ...]

    @property
    def parameters(self) -> tuple[Fraction, ...]:
        """Parameters of all noise: of the layers, then of the publication."""
        return self.layers + self.fresh


def parts_of(kind: Kind[Any], published: Published) -> list[PublishedPart]:
    """The parts of a publication."""
    parts = []
    for part in published.parts:
        layers = tuple(layer.parameter for layer in part.layers)
        numbers = part.state if part.cost is None else part.noised
        fresh = () if part.cost is None else (kind.accounting.parameter(part.spec, part.cost),)
        parts.append(PublishedPart(part.origin, part.key_id, numbers, layers, fresh))
    return parts


def sum_parts(spec: Any, parts: Sequence[PublishedPart]) -> State:
    """The sum of the numbers of parts of one sketch."""
    return kinds.add_states(spec, [part.numbers for part in parts])


class LinearAnswers(Answers):
    """Numbers of one publication of a linear kind."""

    spec: LinearSpec
    """Spec of the sketch."""
    published: Published | None = None
    """What the answers were computed from; None if they were computed from bare numbers."""

    def computed_from(self, published: Published) -> Self:
        """These answers, with the publication that they were computed from; called once, by the kind."""
        object.__setattr__(self, "published", published)  # frozen dataclasses derive from this class too
        return self

    def sketch_facts(self) -> dict[str, Any]:
        """Kind, unit and privacy of the sketch, from its spec."""
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
        law = kinds.kind_of(self.spec).accounting.law(self.spec)
        return [{"law": law, parameter_name(law): str(parameter)} for parameter in self._parameters()]

    def _parameters(self) -> Sequence[Fraction]:
        """Parameters of the layers of noise in the numbers."""
        if self.published is None:
            return ()
        return [
            parameter for part in parts_of(kinds.kind_of(self.spec), self.published) for parameter in part.parameters
        ]

    def number(self, name: str, level: float = LEVEL) -> Estimate:
        """A number by the name that series, pages and `--metric` know it by, such as "sum", "answer.0" or "norm.7".

        Raises:
            EstimateError: these answers have no number of that name.
        """
        from sketchstream.kinds import presentation

        data = self.numbers(level)
        named = presentation.presentation_of(data).number(data, str(name))
        if named is None:
            names = ", ".join(list(presentation.presentation_of(data).numbers(data))[:MAX_NAMES])
            raise EstimateError(f"these answers have no number {name!r:.40}; some that they have: {names}")
        return estimate_of(named[1])

    def types(self) -> Mapping[str, ColumnType]:
        return kinds.kind_of(self.spec).rows(self.spec).types

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


def below_zero(values: Floats, stderr: Floats, *, gaussian: bool) -> bool:
    """Whether an unbiased answer is so far below 0 that its true value cannot be 0 or more.

    Chance does that with less than 1e-14 for an answer (Gaussian noise), or 1e-9 (one Laplace variable).
    """
    return bool(((values + (8.0 if gaussian else 16.0) * stderr) < 0).any())


@lru_cache(maxsize=64)
def quantiles(level: float) -> tuple[Floats, Floats]:
    """Number of standard deviations for an interval of this level, for excess kurtosis 0 to 3.

    The noise of an answer is treated as the symmetric variance-gamma law with its variance and kurtosis. That is exact
    for one Laplace variable, for means of equal ones, and for every direction of the ball's noise; 0 is normal.

    Returns:
        (61,) kurtosis, and (61,) factors.
    """
    from scipy.optimize import brentq
    from scipy.special import erfc, gammaincinv, ndtri

    grid = np.linspace(0.0, 3.0, 61)
    factors = np.empty_like(grid)
    factors[0] = ndtri(0.5 + level / 2)
    # Midpoints of 4,000 equally likely parts, finer towards a small mixing variable.
    nodes, weights = np.polynomial.legendre.leggauss(400)
    levels, shares = (nodes + 1) / 2, weights / 2
    for i, kurtosis in enumerate(grid[1:], 1):
        shape = 3 / kurtosis
        mixing = gammaincinv(shape, levels) / shape

        def outside(x: float, mixing: Floats = mixing) -> float:
            return float(shares @ erfc(x / np.sqrt(2 * mixing))) - (1 - level)

        factors[i] = brentq(outside, 1e-9, 60.0)
    return grid, factors
