"""What published parts hold: their numbers, and the parameters of all noise in them.

In: a release, a sealed state, or a stack of either. Out: `PublishedPart`s. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sketchstream import kinds

if TYPE_CHECKING:
    from sketchstream.array_types import State
    from sketchstream.kinds.interface import Kind
    from sketchstream.published import Origin, Published


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
    out = []
    parts: Sequence[Any] = published.parts
    for part in parts:
        layers = tuple(layer.parameter for layer in part.layers)
        numbers = part.state if part.cost is None else part.noised
        own = () if part.cost is None else (kind.accounting.parameter(part.spec, part.cost),)
        out.append(PublishedPart(part.origin, part.key_id, numbers, layers, own))
    return out


def added_up(spec: Any, parts: Sequence[PublishedPart]) -> State:
    """The sum of the numbers of parts of one sketch."""
    return kinds.add(spec, [part.numbers for part in parts])
