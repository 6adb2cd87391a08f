"""Options of questions: which methods and options a kind's answers take.

In: what a caller gave, what a kind has. Out: nothing, or an error that names both. Touches: nothing. The methods of
profiles stand here, where the command line and the service read them without importing an estimator.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, get_args

from sketchstream.errors import EstimateError

Method = Literal["likelihood", "circulant", "inverse", "monotone"]
"""Methods by which profiles are estimated; the default first."""
METHODS: Final[tuple[Method, ...]] = get_args(Method)
NormName = Literal["1", "2", "inf"]
NORMS: Final[Mapping[str, float]] = dict(zip(get_args(NormName), (1, 2, math.inf), strict=True))
"""Norms of the correction of method "circulant", by their names; the norm of a projection is not such an option."""


def require_method(method: object, known: Sequence[str]) -> None:
    """Refuse a method that a kind does not have.

    Raises:
        EstimateError: the method is not one of the known ones.
    """
    if not isinstance(method, str) or method not in known:
        raise EstimateError(f"method must be one of {', '.join(known)}, found {method!r:.40}")


def require_options(
    kind: str, options: Mapping[str, object] | Iterable[str], known: Sequence[str], question: str = "estimate"
) -> None:
    """Refuse options of `estimate` that a kind does not have.

    Args:
        kind: name of the kind.
        options: names of the options that a caller gave.
        known: options of the kind, besides `method`.
        question: "profile" for the kind whose answers have this name.

    Raises:
        EstimateError: one is not among them.
    """
    odd = sorted(set(options) - set(known))
    if odd:
        raise EstimateError(f"{question} of kind {kind!r} takes method, {', '.join(known)}; found {odd[0]!r:.40}")
