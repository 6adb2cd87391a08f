"""Expected errors of what groups have in common, before anything is counted.

In: a spec with `overlap`, public expectations. Out: a `OverlapForecast`. Touches: nothing; no noise is drawn.
Source: docs/theory/overlap.md, sections 2 and 3: the fit's covariance at the expected histograms of patterns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sketchstream.errors import SpecError
from sketchstream.kinds.groups.expression import quote_name
from sketchstream.kinds.groups.overlap import Overlap
from sketchstream.kinds.profile.overlap.fit import answers_of, fit
from sketchstream.kinds.profile.overlap.law import expected_cells
from sketchstream.kinds.profile.overlap.observations import cell_noise, table_of, without_hidden
from sketchstream.spec import OpenDomain

if TYPE_CHECKING:
    from sketchstream.kinds.profile.spec import ProfileSpec

COLUMNS: Final = ("set", "expected", "sd", "relative")
WRAPS: Final = (
    "counts of several events that add up to a multiple of the modulus look like none; what that adds to the error is "
    "not in these numbers: choose a modulus above nearly all counts"
)


@dataclass(frozen=True)
class OverlapForecast:
    """Expected answers and their standard errors.

    Args:
        spec: spec of the sketch.
        items: distinct items of each group in one window.
        shared: share of them that is in all groups that are combined; the others are in one group.
        parts: partitions that are stacked.
        merges: states that are merged: 1.
        overlap: the expected answers.
    """

    spec: ProfileSpec
    items: float
    shared: float
    parts: int
    merges: int
    overlap: Overlap

    def rows(self) -> list[dict[str, Any]]:
        """One row for each set: `set` in words, `expected` items, `sd`, `relative`: sd over expected; None where none
        is expected.
        """  # noqa: D205
        first, second, *more = map(quote_name, self.overlap.groups)
        sets = [
            ("one group", first),
            ("one group or another", f"{first} | {second}"),
            ("one group and another", f"{first} & {second}"),
            ("one group but not another", f"{first} - {second}"),
        ]
        if more:
            every = (first, second, *more)
            sets += [
                ("all groups", " & ".join(every)),
                ("any group", " | ".join(every)),
                ("one group and no other", f"{first} - ({' | '.join(every[1:])})"),
            ]
        answers = [(name, self.overlap.query(one)) for name, one in sets]
        return [
            {
                "set": name,
                "expected": one.value,
                "sd": one.stderr,
                "relative": one.stderr / one.value if one.value else None,
            }
            for name, one in answers
        ]

    def to_dict(self) -> dict[str, Any]:
        """The object as plain data."""
        return {
            "overlap": list(self.overlap.groups),
            "epsilon_overlap": str(self.overlap.epsilon),
            "items": self.items,
            "shared": self.shared,
            "parts": self.parts,
            "answers": self.rows(),
            "notes": self.notes(),
        }

    def notes(self) -> list[str]:
        """Sentences that say what the numbers leave out."""
        assert self.spec.overlap is not None
        return [] if self.spec.overlap.presence else [WRAPS]


def forecast(spec: ProfileSpec, items: float, *, shared: float = 0.2, parts: int = 1) -> OverlapForecast:
    """Expected answers of a sketch about sets of its groups.

    Args:
        spec: spec with `overlap`.
        items: distinct items of each group in one window, in all partitions.
        shared: share of them that is in all groups that are combined.
        parts: partitions that are stacked.

    Raises:
        SpecError: the spec has no `overlap`, or expectations cannot be.
        EstimateError: these items would fill every level.
    """
    if spec.overlap is None:
        raise SpecError("sets of groups need overlap: what the groups have in common is not published")
    if not 0 <= shared <= 1:
        raise SpecError(f"shared is a share from 0 to 1, found {shared:g}")
    if not 1 <= items <= 1e12:
        raise SpecError(f"items of a group must be from 1 to 10^12, found {items:g}")
    names, domain = spec.overlap.groups, spec.domain
    rate = 1.0 if isinstance(domain, OpenDomain) or domain.sample_rate is None else float(domain.sample_rate)
    slots = parts * domain.size * rate / spec.levels
    regions = np.zeros(2 ** len(names))
    regions[[1 << at for at in range(len(names))]] = items * (1 - shared) * rate
    regions[-1] += items * shared * rate
    most = None if isinstance(domain, OpenDomain) else slots
    if most is not None and regions.sum() > most:
        raise SpecError(f"{regions.sum() / rate:,.0f} items do not fit a closed domain of {domain.size:,}")
    noise = parts * cell_noise(spec, spec.overlap.epsilon, len(names))
    table = table_of(spec, np.zeros((spec.levels, len(regions))), [spec.epsilon], slots, noise)
    table = expected_cells(table, regions[1:])
    if table.is_open and not spec.overlap.histograms:
        table = without_hidden(table, np.full(len(names), items * rate))
    whole = fit(table)
    expected = answers_of(names, [whole], epsilon=spec.overlap.epsilon, rate=rate, most=most)
    return OverlapForecast(spec, items, shared, parts, 1, expected)
