"""A single number of an answer, with its interval: one class for all kinds of sketches.

In: a value and its ends, or a level. Out: `Estimate`; ends of normal intervals. Touches: nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeGuard

import numpy as np

from sketchstream.errors import EstimateError
from sketchstream.texts.number_texts import number_text

ENDS: Final = frozenset({"value", "low", "high"})
"""Keys of a number with its interval as plain data; it may have others, see `Estimate.to_dict`."""
Bound = Literal["lower", "upper", "modulo"]
"""What a number is where counts wrapped: a lower bound, an upper bound, or a statement about counts modulo p."""


def bound_text(bound: str | None, before: str) -> str:
    """Words after an interval beyond which the number may lie; empty if it is not a bound.

    Args:
        bound: the side on which the number bounds the truth, as in `Estimate`.
        before: text that separates the words from the interval.
    """
    words = {"lower": "or more", "upper": "or less"}.get(bound or "")
    return "" if words is None else f"{before}{words}"


@dataclass(frozen=True)
class Estimate:
    """A single number of an answer, with its interval.

    Args:
        value: the estimate.
        low: lower end of the interval; minus infinity or NaN where there is none.
        high: upper end of the interval; infinity or NaN where there is none.
        bound: what counts modulo p make of the value: a "lower" or an "upper" bound, or a statement about counts
            "modulo" p only; None: it is an estimate.
        stderr: standard error of the unbiased estimate that the interval comes from; None where the interval is not
            that of one such estimate.
    """

    value: float
    low: float
    high: float
    bound: Bound | None = None
    stderr: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data; None for an end that does not exist, `stderr` and `bound` only where there is one."""
        error = {} if self.stderr is None else {"stderr": self.stderr}
        low, high = (end if math.isfinite(end) else None for end in (self.low, self.high))
        fields = {"value": self.value, **error, "low": low, "high": high}
        return fields if self.bound is None else {**fields, "bound": self.bound}

    def __float__(self) -> float:
        """The estimate without its interval."""
        return float(self.value)

    def __format__(self, spec: str) -> str:
        """The estimate in a format for floats, such as `,.0f`; without a format, as text with its interval."""
        return format(self.value, spec) if spec else str(self)

    def __str__(self) -> str:
        return f"{number_text(self.value)} {self.between()}"

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        return f"<b>{number_text(self.value)}</b> {self.between()}"

    def between(self, spell: Callable[[float], str] = number_text) -> str:
        """The interval in text, its ends written so, with what the number may be beyond it."""
        open_end = math.isinf(self.low if self.bound == "upper" else self.high)
        return f"[{spell(self.low)}, {spell(self.high)}]{'' if open_end else bound_text(self.bound, ' ')}"


def is_estimate(data: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether plain data are a number with its interval, of whatever kind."""
    return isinstance(data, Mapping) and data.keys() >= ENDS


def without_intervals(value: Any) -> Any:
    """Plain data of answers whose intervals do not hold: their ends, and errors from which they follow, are None."""
    if isinstance(value, list):
        return [without_intervals(one) for one in value]
    if not isinstance(value, dict):
        return value
    bare = ("low", "high", "stderr", "sd") if "value" in value else ("intervals", "stderr")
    return {name: None if name in bare else without_intervals(one) for name, one in value.items()}


def estimate_of(data: Mapping[str, Any]) -> Estimate:
    """A number from its plain data; NaN for an end that does not exist."""
    value, low, high = (math.nan if data[end] is None else float(data[end]) for end in ("value", "low", "high"))
    return Estimate(value, low, high, data.get("bound"), data.get("stderr"))


def checked_level(level: float) -> float:
    """Check the level of an interval.

    Raises:
        EstimateError: it is not between 0 and 1.
    """
    if not isinstance(level, (int, float, np.number)) or isinstance(level, bool) or not 0 < level < 1:
        raise EstimateError(f"level must be above 0 and below 1, found {level!r:.40}")
    return float(level)


def normal_quantile(level: float) -> float:
    """Z with Pr[|N(0,1)| <= z] = level.

    Raises:
        EstimateError: a level that is not between 0 and 1.
    """
    from statistics import NormalDist

    return NormalDist().inv_cdf(0.5 + checked_level(level) / 2.0)
