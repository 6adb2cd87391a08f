"""Answers about several groups: unions, intersections, differences, increments, shares, all from one fit.

In: numbers of items by region, with their covariance. Out: `SetEstimate`s, tables, plain data. Touches: nothing.
Source: docs/theory/overlap.md, section 5; Fieller, JRSS B 1954 (ratios).

Every answer is a sum of numbers of items by region (items in exactly these groups). The regions are not negative and
whole multiples of 2^-10, so that answers that must add up do, to the last digit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sketchstream.array_types import Flags, Floats, Ints
from sketchstream.kinds import exports
from sketchstream.kinds.answers import LEVEL
from sketchstream.kinds.estimates import Estimate, normal_quantile
from sketchstream.kinds.groups.expression import member, quote_name, regions_of
from sketchstream.kinds.noise_sums import fieller
from sketchstream.pictures import upset
from sketchstream.spec import checked_int

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa
    from matplotlib.figure import Figure

TYPES: exports.Types = dict.fromkeys(("value", "low", "high", "sd"), "float64")
"""Types of the columns of rows that are not text."""


class Covariance(Protocol):
    """The covariance of (2^m - 1,) numbers."""

    def parts(self, weights: Floats) -> tuple[Floats, Floats]:
        """(k, p) and (k, q) rows whose products' difference is the covariance of sums of the numbers.

        Args:
            weights: (k, 2^m - 1) of the numbers in each sum.
        """

    def variances(self) -> Floats:
        """(2^m - 1,) of each number."""


@dataclass(frozen=True)
class SetEstimate(Estimate):
    """A number of items, or a ratio of two, with its interval."""

    stderr: float = math.nan

    def to_dict(self) -> dict[str, Any]:
        """The object as plain data, in which `sd` is the standard error."""
        fields = super().to_dict()
        standard_error = fields.pop("stderr")
        return {**fields, "sd": standard_error}


@dataclass(frozen=True, eq=False, kw_only=True)
class Overlap:
    """What several groups have in common.

    Args:
        groups: names of the groups, in the order of the patterns' bits, the highest first.
        counts: (2^m,) estimated number of items that are in exactly these groups, by pattern; not negative.
        free: (2^m,) the same, unbiased, some perhaps negative.
        spread: covariance of `free`, without the items in no group.
        epsilon: cost of the patterns.
        most: number of items in the domain; None for an open one.
        notes: what readers must know besides the numbers.
    """

    groups: tuple[str, ...]
    counts: Floats
    free: Floats
    spread: Covariance
    epsilon: Fraction
    most: float | None
    notes: tuple[str, ...] = ()

    @property
    def covariance(self) -> Floats:
        """(2^m, 2^m) of `free`; for many groups as large as that."""
        out = np.zeros((len(self.free), len(self.free)))
        plus, minus = self.spread.parts(np.eye(len(self.free) - 1))
        out[1:, 1:] = plus @ plus.T - minus @ minus.T
        return out

    # Numbers of items.

    @property
    def people(self) -> SetEstimate:
        """Items in at least one group."""
        return self._sum(np.arange(len(self.counts)) > 0)

    def query(self, expression: str, level: float = LEVEL) -> SetEstimate:
        """Items of any set of groups.

        Args:
            expression: such as "spring & (summer | ~brand)"; see `sketchstream.kinds.groups.expression`.
            level: level of the interval.

        Raises:
            SpecError: the text is not an expression, or names other groups.
        """
        return self._sum(regions_of(expression, self.groups), level)

    def reach(self, *names: str) -> SetEstimate:
        """Items in at least one of these groups.

        Args:
            names: names of groups; none: all groups.
        """
        return self._sum(np.any([self._in(name) for name in names or self.groups], axis=0))

    def common(self, *names: str) -> SetEstimate:
        """Items in all of these groups.

        Args:
            names: names of groups; none: all groups.
        """
        return self._sum(np.all([self._in(name) for name in names or self.groups], axis=0))

    def only(self, *names: str, not_in: Sequence[str] | None = None) -> SetEstimate:
        """Items in all of these groups and in none of the others.

        Args:
            names: names of groups.
            not_in: the others; None: all that were not named.
        """
        others = [name for name in self.groups if name not in names] if not_in is None else not_in
        inside = np.all([self._in(name) for name in names], axis=0) & (np.arange(len(self.counts)) > 0)
        return self._sum(inside & ~np.any([self._in(name) for name in others] or [np.zeros_like(inside)], axis=0))

    def increment(self, name: str, over: Sequence[str]) -> SetEstimate:
        """Items that a group adds to those of others.

        Args:
            name: name of the group.
            over: names of the others.
        """
        return self.only(name, not_in=over)

    def at_least(self, number: int) -> SetEstimate:
        """Items in at least this number of groups.

        Args:
            number: number of groups, from 1 on.
        """
        return self._sum(self._sizes >= checked_int(number, "number", 1, len(self.groups)))

    def exactly(self, number: int) -> SetEstimate:
        """Items in exactly this number of groups.

        Args:
            number: number of groups, from 1 on.
        """
        return self._sum(self._sizes == checked_int(number, "number", 1, len(self.groups)))

    # Ratios.

    def share(self, inner: str, of: str, level: float = LEVEL) -> SetEstimate:
        """Share of the items of one set that are also in another; from 0 to 1.

        Args:
            inner: expression, such as the name of a group.
            of: expression: the items of which it is a share.
            level: level of the interval.
        """
        part, every = regions_of(inner, self.groups), regions_of(of, self.groups)
        return self._ratio(part & every, every, level)

    # Tables.

    def regions(self) -> list[dict[str, Any]]:
        """Every region with its interval, largest first: the items that are in exactly these groups."""
        found = self._estimates(self.counts[1:], self.free[1:], self.spread.variances(), LEVEL)
        order = sorted(range(1, len(self.counts)), key=lambda c: (-self.counts[c], c))
        return [{"in": list(self._names(pattern)), **found[pattern - 1].to_dict()} for pattern in order]

    def increments(self, order: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """What each group adds to those before it, and what all have reached by then.

        Args:
            order: names of groups; None: as they were declared.
        """
        names = list(self.groups if order is None else order)
        inside = [self._in(name) for name in names]
        reached = list(accumulate(inside, np.logical_or))
        added = [
            one & ~before for one, before in zip(inside, [np.zeros(len(self.counts), np.bool_), *reached], strict=False)
        ]
        adds, all_by_then = self._sums(added), self._sums(reached)
        return [
            {"group": name, "added": add.to_dict(), "reached": by_then.to_dict()}
            for name, add, by_then in zip(names, adds, all_by_then, strict=True)
        ]

    def usual(self) -> list[str]:
        """Expressions that are answered where none is given: each group, all pairs, all groups together, increments."""
        names = [quote_name(name) for name in self.groups]
        pairs = [f"{a} & {b}" for a, b in combinations(names, 2)] if len(names) <= 8 else []
        adds = [f"{name} - ({' | '.join(names[:at])})" for at, name in enumerate(names) if at]
        return [*names, *pairs, *([" & ".join(names)] if len(names) > 2 else []), " | ".join(names), *adds]

    def rows(self, queries: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """Answers as rows: `query`, `value`, `low`, `high`, `sd`.

        Args:
            queries: expressions; None: the usual ones.
        """
        expressions = self.usual() if queries is None else list(queries)
        estimates = self._sums([regions_of(expression, self.groups) for expression in expressions])
        return [{"query": expression, **row.to_dict()} for expression, row in zip(expressions, estimates, strict=True)]

    def to_dict(self, queries: Iterable[str] | None = None, *, covariance: bool = False) -> dict[str, Any]:
        """Plain data.

        Args:
            queries: expressions; None: the usual ones.
            covariance: whether the covariance of all regions is in it, in the order of `patterns`.
        """
        out: dict[str, Any] = {
            "kind": "overlap",
            "groups": list(self.groups),
            "people": self.people.to_dict(),
            "regions": self.regions(),
            "answers": self.rows(queries),
            "increments": self.increments(),
            "consistent": True,
            "epsilon": str(self.epsilon),
            "coverage": LEVEL,
            "notes": list(self.notes),
        }
        if covariance:
            out["patterns"] = [list(self._names(pattern)) for pattern in range(1, len(self.counts))]
            out["covariance"] = self.covariance[1:, 1:].tolist()
        return out

    def plot(self, path: str | Path | None = None) -> Figure:
        """UpSet plot of the largest regions; see `sketchstream.pictures.upset`.

        Args:
            path: file to write (.png, .svg or .pdf).
        """
        return upset.plot(self.to_dict(()), None if path is None else Path(path))

    def to_csv(self, queries: Iterable[str] | None = None) -> str:
        """The rows as RFC 4180 text with a header line.

        Args:
            queries: expressions; None: the usual ones.
        """
        return exports.as_csv(self.rows(queries))

    def to_arrow(self, queries: Iterable[str] | None = None) -> pa.Table:
        """The rows as an Arrow table.

        Args:
            queries: expressions; None: the usual ones.

        Raises:
            MissingExtraError: pyarrow is not installed.
        """
        return exports.table_of(self.rows(queries), TYPES)

    def to_pandas(self, queries: Iterable[str] | None = None) -> pd.DataFrame:
        """The rows as a pandas DataFrame.

        Args:
            queries: expressions; None: the usual ones.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        return exports.frame_of(self.rows(queries))

    def _repr_html_(self) -> str:
        """Card of a notebook: how many items there are, what each group adds, the largest regions."""
        return upset.card(self.to_dict())

    def __repr__(self) -> str:
        return f"<Overlap of {', '.join(self.groups)}: {self.people} items>"

    # Private parts.

    @property
    def _sizes(self) -> Ints:
        """(2^m,) number of groups of each pattern."""
        every = np.arange(len(self.counts))
        return np.asarray(np.sum([(every >> bit) & 1 for bit in range(len(self.groups))], axis=0))

    def _in(self, name: str) -> Flags:
        return member(self.groups, name)

    def _names(self, pattern: int) -> tuple[str, ...]:
        """Names of the groups of a pattern."""
        m = len(self.groups)
        return tuple(name for at, name in enumerate(self.groups) if (pattern >> (m - 1 - at)) & 1)

    def _sum(self, chosen: Flags, level: float = LEVEL) -> SetEstimate:
        """Items of some regions."""
        return self._sums([chosen], level)[0]

    def _sums(self, chosen: Sequence[Flags], level: float = LEVEL) -> list[SetEstimate]:
        """Items of each of several sets of regions."""
        if not chosen:
            return []
        weights = np.array(chosen, np.float64)
        plus, minus = self.spread.parts(weights[:, 1:])
        variances = (plus**2).sum(axis=1) - (minus**2).sum(axis=1)
        return self._estimates(weights @ self.counts, weights @ self.free, variances, level)

    def _estimates(self, values: Floats, free: Floats, variances: Floats, level: float) -> list[SetEstimate]:
        """Numbers of items with their intervals."""
        sds = np.sqrt(np.maximum(variances, 0.0))
        most = math.inf if self.most is None else self.most
        reach = normal_quantile(level) * sds
        low = np.minimum(np.maximum(free - reach, 0.0), values)
        high = np.maximum(np.minimum(free + reach, most), values)
        rows = zip(values.tolist(), low.tolist(), high.tolist(), sds.tolist(), strict=True)
        return [SetEstimate(value, least, top, stderr=sd) for value, least, top, sd in rows]

    def _ratio(self, part: Flags, every: Flags, level: float) -> SetEstimate:
        """Items of some regions over the items of a larger set of regions, by Fieller's interval."""
        above, below = float(self.counts[part].sum()), float(self.counts[every].sum())
        x, y = float(self.free[part].sum()), float(self.free[every].sum())
        plus, minus = self.spread.parts(np.array([part, every], np.float64)[:, 1:])
        (xx, xy), (_, yy) = (plus @ plus.T - minus @ minus.T).tolist()
        value = above / below if below > 0 else 0.0
        sd = math.sqrt(max(xx - 2 * value * xy + value**2 * yy, 0.0)) / y if y > 0 else math.inf
        low, high = fieller(x, xx, y, yy, normal_quantile(level), xy)
        if math.isinf(high):
            return SetEstimate(value, 0.0, 1.0, stderr=sd)
        return SetEstimate(value, min(max(low, 0.0), value), max(min(high, 1.0), value), stderr=sd)
