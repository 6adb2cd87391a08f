"""What published parts hold: their numbers, and the parameters of all noise in them.

In: a release, a sealed state, or a stack of either; options of `estimate`. Out: `PublishedPart`s. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sketchstream import kinds
from sketchstream.errors import EstimateError

if TYPE_CHECKING:
    from sketchstream.kinds.interface import Kind, State
    from sketchstream.published import Origin, Published


@dataclass(frozen=True, eq=False)
class PublishedPart:
    """One published part.

    Args:
        spec: of the part; parts of a stack may differ in privacy.
        origin: where it belongs.
        key_id: id of its hash key, None if it has none.
        numbers: as published.
        layers: parameters of the layers in them.
        fresh: parameter of the release's own noise, if it is one.
    """

    spec: Any
    origin: Origin
    key_id: bytes | None
    numbers: State
    layers: tuple[Fraction, ...]
    fresh: tuple[Fraction, ...]

    @property
    def parameters(self) -> tuple[Fraction, ...]:
        """Of all noise."""
        return self.layers + self.fresh


def shown(kind: Kind[Any], published: Published) -> list[PublishedPart]:
    """The parts of a publication.

    Args:
        kind: of the sketch.
        published: a release, a sealed state, or a stack of either.
    """
    parts: Sequence[Any] = getattr(published, "parts", (published,))
    out = []
    for part in parts:
        layers = tuple(layer.parameter for layer in part.layers)
        cost: Fraction | None = getattr(part, "cost", None)  # of the release's own noise
        numbers = part.state if cost is None else part.noised
        own = () if cost is None else (kind.accounting.parameter(part.spec, cost),)
        out.append(PublishedPart(part.spec, part.origin, part.key_id, numbers, layers, own))
    return out


def added_up(parts: Sequence[PublishedPart]) -> State:
    """The sum of the numbers of parts of one sketch."""
    return kinds.add(parts[0].spec, [part.numbers for part in parts])


def require_method(method: object, known: Sequence[str]) -> None:
    """Refuse a method that a kind does not have.

    Raises:
        EstimateError: it is not one of them.
    """
    if not isinstance(method, str) or method not in known:
        msg = f"method must be one of {', '.join(known)}, found {method!r:.40}"
        raise EstimateError(msg)


def require_options(
    kind: str, options: Mapping[str, object] | Iterable[str], known: Sequence[str], asked: str = "estimate"
) -> None:
    """Refuse options of `estimate` that a kind does not have.

    Args:
        kind: its name.
        options: as given.
        known: those that it has, beside `method`.
        asked: "profile" for the kind whose answers have this name.

    Raises:
        EstimateError: one is not among them.
    """
    odd = sorted(set(options) - set(known))
    if odd:
        msg = f"{asked} of kind {kind!r} takes method, {', '.join(known)}; found {odd[0]!r:.40}"
        raise EstimateError(msg)
