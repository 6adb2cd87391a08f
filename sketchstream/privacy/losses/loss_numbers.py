"""A loss as a number in text.

In: losses. Out: text. Touches: nothing.
"""

from __future__ import annotations

import math

from sketchstream.privacy.losses.history import Loss


def loss_number(loss: Loss) -> str:
    """A loss for people: '3/2', or 'unlimited'; an epsilon at a delta in four digits, rounded up."""
    if isinstance(loss, float):
        return "unlimited" if loss == math.inf else rounded_up(loss)
    return str(loss)


def rounded_up(value: float, digits: int = 4) -> str:
    """Write a number with this number of digits, rounded up."""
    if value == 0:
        return "0"
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(value)))
    most = math.ceil(value * scale) / scale
    return f"{most:,.0f}" if most >= 10**digits else f"{most:.{digits}g}"
