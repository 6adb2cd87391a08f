"""A plan: the numbers that a sketch will give, each with its expected error.

In: computed errors. Out: plain data, rows of text. Touches: nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.texts.number_texts import number_text


@dataclass(frozen=True)
class Expected:
    """One number of a plan.

    Args:
        value: what the assumed stream has.
        sd: standard deviation of the linear estimate, on which the published interval rests (half its width / 1.96);
            infinite where it is not known beforehand, because the interval does not tell how far noise reaches. Of
            counts modulo p it includes how much wrapping shifts the number, as the root of the sum of both squares.
        simulated: root mean squared error of the chosen method in simulated runs; None without simulated runs.
        central: standard deviation that a curator with raw counts would reach at the same epsilon; None where no
            such law is known.
    """

    value: float
    sd: float
    simulated: float | None = None
    central: float | None = None

    @property
    def relative(self) -> float:
        """`sd` as a share of the value; infinite for a value of 0."""
        return self.sd / self.value if self.value > 0 else math.inf

    def to_dict(self) -> dict[str, float | None]:
        """Plain data; an infinite relative error is null."""
        relative = self.relative
        return {
            "value": self.value,
            "sd": self.sd,
            "relative": relative if math.isfinite(relative) else None,
            "simulated": self.simulated,
            "central": self.central,
        }


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to expect of a sketch.

    Args:
        spec: specification of the sketch.
        items: expected distinct items; of a sketch with groups: in one of them.
        parts: number of stacked partitions.
        merges: number of merged states.
        windows: number of windows over which an item's losses add up.
        numbers: expected error by name: distinct, at_least.K, total, mean, entropy, one_hit_ratio; of one group.
        loss: largest loss of an event (or item) through the publication of one window.
        loss_with_intrusion: the same, with one unannounced look at the open state.
        merge_gain: factor by which the noise's worst frequency grows in each merged state (1 without merging).
        method: estimator that was simulated.
        runs: number of simulated sketches.
        loss_notes: remarks on the losses, for the reader of the plan.
        other_notes: further remarks.
    """

    spec: ProfileSpec
    items: float
    parts: int
    merges: int
    windows: int
    numbers: Mapping[str, Expected]
    loss: Fraction | float
    loss_with_intrusion: Fraction | float
    merge_gain: float
    method: str
    runs: int = 0
    loss_notes: tuple[str, ...] = ()
    other_notes: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """All remarks for the reader of the plan."""
        return self.loss_notes + self.other_notes

    def __getitem__(self, name: str) -> Expected:
        """One number by name."""
        return self.numbers[name]

    def worst(self, names: Sequence[str]) -> Expected:
        """The number with the largest relative error."""
        return max((self.numbers[name] for name in names), key=lambda one: one.relative)

    def to_dict(self) -> dict[str, Any]:
        """Plain data; exact rationals as strings, "inf" for an unlimited loss."""
        domain = self.spec.domain
        return {
            "epsilon": str(self.spec.epsilon),
            "epsilon_publish": str(self.spec.epsilon_publish),
            "unit": self.spec.unit,
            "slots": domain.expected_slots,
            "levels": domain.levels,
            "items": self.items,
            "parts": self.parts,
            "merges": self.merges,
            "windows": self.windows,
            "numbers": {name: number.to_dict() for name, number in self.numbers.items()},
            "loss": str(self.loss),
            "loss_with_intrusion": str(self.loss_with_intrusion),
            "loss_over_windows": str(self.loss * self.windows),
            "merge_gain": self.merge_gain,
            "simulated": {"method": self.method, "runs": self.runs} if self.runs else None,
            "notes": list(self.notes),
        }

    def rows(self) -> list[list[str]]:
        """Number, value, error, relative error, simulated error, central error; as text."""

        def cell(value: float | None) -> str:
            return "-" if value is None else number_text(value)

        return [
            [
                name,
                number_text(number.value),
                number_text(number.sd),
                f"{number.relative:.2%}" if math.isfinite(number.relative) else number_text(number.relative),
                cell(number.simulated),
                cell(number.central),
            ]
            for name, number in self.numbers.items()
        ]

    COLUMNS: ClassVar[Mapping[str, str]] = {
        "number": "what is asked; at_least.K: items counted K times or more",
        "value": "what the assumed stream has",
        "sd": "standard deviation behind intervals, 1.96 of them to either side; method likelihood may err by less; "
        "inf: not known beforehand; includes what wrapping shifts",
        "relative": "sd as a share of the value",
        "simulated": "root mean squared error in simulated windows (--runs)",
        "central": "standard deviation for a curator who keeps raw counts, at the same epsilon",
    }
    """Columns of the table, and what they mean."""

    def __str__(self) -> str:
        header = list(self.COLUMNS)
        table = [header, *self.rows()]
        widths = [max(len(row[column]) for row in table) for column in range(len(header))]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(text.rjust(w) for text, w in zip(row[1:], widths[1:], strict=True))])
            for row in table
        ]
        return "\n".join([*lines, *self.notes])
