"""The rules of the parameters that all linear kinds have: one function for each, with one set of words.

In: values as users write them, or as stored specs have them. Out: exact numbers. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from sketchstream.errors import SpecError
from sketchstream.spec import ClosedDomain, Epsilon, Item, exact_delta, exact_epsilon, exact_rational, stored_domain


class Stored(str):
    """The text of a number in a stored spec, where rules for what users may write do not apply."""

    __slots__ = ()


def parse_epsilon(value: Epsilon, name: str, allowed: tuple[Fraction, Fraction] | None = None) -> Fraction:
    """An exact epsilon from 1e-6 to 50; of stored specs one that is allowed, as some kinds have had a wider range."""
    if allowed is None or not isinstance(value, Stored):
        return exact_epsilon(value, name)
    expected = f"{name} must be a rational number from {allowed[0]} to {allowed[1]}, such as '1', '0.1' or '1/2'"
    exact = exact_rational(value, expected)
    if not allowed[0] <= exact <= allowed[1]:
        raise SpecError(f"{expected}, found {value!s:.40}")
    return exact


def parse_delta(value: Epsilon, name: str, *, zero: bool) -> Fraction:
    """An exact delta from 1e-300 to 1/2, or 0 where the noise may be pure."""
    if zero and not exact_rational(value, f"{name} must be 0 or in [1e-300, 0.5], such as '1e-6'"):
        return Fraction(0)
    return exact_delta(value, name)


def stored_closed(described: object, items: Sequence[Item] | None, what: str) -> ClosedDomain:
    """The closed domain that its dictionary describes; see `stored_domain`."""
    if not isinstance(described, Mapping) or described.get("kind") != "closed":
        raise SpecError(f"{what} must be a closed domain")
    try:
        domain = stored_domain(described, items)
    except TypeError:
        raise SpecError("spec has a domain with fields that this version does not know") from None
    assert isinstance(domain, ClosedDomain)
    return domain
