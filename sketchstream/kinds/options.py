"""Options of questions: which methods and options a kind's answers take.

In: what a caller gave, what a kind has. Out: nothing, or an error that names both. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sketchstream.errors import EstimateError


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
