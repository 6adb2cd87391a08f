"""Numbers as text, with the digits that their intervals leave them.

In: numbers, ends of intervals. Out: text. Touches: nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable


def number_text(value: float) -> str:
    """Format a number: thousands separated, four digits for small ones, 0 for tiny ones."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) < 1e-6:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def speller(
    low: float | None, high: float | None, spell: Callable[[float], str] = number_text
) -> Callable[[float], str]:
    """How a number is written between these ends, without digits after the point of which its interval tells nothing.

    Args:
        low: lower end; None or infinite: no end on this side.
        high: upper end.
        spell: how a number is written otherwise.
    """
    if spell is not number_text or low is None or high is None or not 0 < high - low < math.inf:
        return spell
    digits = max(1 - math.floor(math.log10(high - low)), 0)
    return lambda value: number_text(round(value, digits)) if math.isfinite(value) else number_text(value)


def interval_text(low: float | None, high: float | None, spell: Callable[[float], str] = number_text) -> str:
    """The ends of an interval as text; None or infinite: no end on this side.

    Args:
        low: lower end.
        high: upper end.
        spell: writes an end; what it writes may be `Markup`, and so is then the text.
    """
    low, high = (None if end is None or not math.isfinite(end) else end for end in (low, high))
    spell = speller(low, high, spell)
    if low is None:
        return "no interval" if high is None else spell(high) + " or less"
    return spell(low) + (" or more" if high is None else " to " + spell(high))


def with_interval(value: float, low: float, high: float, spell: Callable[[float], str] = number_text) -> str:
    """A number with its interval as text; only the number if the ends are not an interval."""
    spell = speller(low, high, spell)
    return f"{spell(value)}, 95% interval {interval_text(low, high, spell)}" if low < high else spell(value)
