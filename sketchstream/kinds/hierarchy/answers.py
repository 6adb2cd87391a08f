"""Answers of kind `hierarchy`: the counts of all nodes, consistent, with their errors.

In: a spec, the noise of a published state, the state. Out: `HierarchyAnswers`. Touches: nothing.
Source: docs/theory/hierarchy.md, sections 4 to 6.

Intervals come from the unbiased estimates, whatever the method; where counts are not signed they end at 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.errors import DomainError, EstimateError
from sketchstream.kinds.answers import LEVEL, ColumnValues
from sketchstream.kinds.estimates import Estimate, checked_level
from sketchstream.kinds.hierarchy.fit import fit_unbiased, nonnegative
from sketchstream.kinds.hierarchy.spec import HierarchySpec
from sketchstream.kinds.linear.answers import BELOW_ZERO, LinearAnswers, below_zero

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS: Final = ("auto", "nonnegative", "unbiased")
ROOT: Final = "all"
"""Name of the root's level."""


@dataclass(frozen=True, eq=False)
class HierarchyAnswers(LinearAnswers):
    """Counts of the nodes of a tree.

    Args:
        spec: spec of the sketch.
        values: (n,) counts of the chosen nodes; children add up to their parent.
        stderr: (n,) standard error of each unbiased estimate.
        unbiased: (n,) the unbiased estimates.
        nodes: (n,) the chosen nodes, ascending.
        variance: variance of the noise in each counter.
        method: "nonnegative" or "unbiased".
        negative: whether some counts are below 0 by more than noise explains, though the spec is not signed.
    """

    question = "counts"

    spec: HierarchySpec = field(repr=False)
    values: Floats
    stderr: Floats
    unbiased: Floats
    nodes: Ints = field(repr=False)
    variance: Fraction
    method: str = "unbiased"
    negative: bool = False

    @cached_property
    def labels(self) -> Mapping[str, ColumnValues]:
        """The level of each node, and the names on its way; None below it."""
        tree, depths = self.spec.tree, self.spec.tree.depths[self.nodes].tolist()
        paths = [tree.path(node) for node in self.nodes.tolist()]
        named = (ROOT, *tree.levels)
        columns: dict[str, ColumnValues] = {"level": [named[depth] for depth in depths]}
        for depth, name in enumerate(tree.levels):
            columns[name] = [path[depth] if len(path) > depth else None for path in paths]
        return columns

    def extra_columns(self, level: float) -> Mapping[str, ColumnValues]:
        """The unbiased estimates, as a further column of the rows."""
        return {"unbiased": self.unbiased}

    def more(self, level: float) -> dict[str, Any]:
        """The numbers of the nodes, and the unbiased estimates."""
        return {"nodes": self.nodes.tolist(), "unbiased": self.unbiased.tolist(), "levels": list(self.spec.tree.levels)}

    def _ends(self, level: float) -> tuple[Floats, Floats]:
        """Ends of intervals by the normal law, and half a unit of noise that is whole.

        An estimate takes at most stderr / sigma of one counter, whose noise jumps by whole units of sigma's scale.
        """
        from scipy.special import ndtri

        half = (float(ndtri(0.5 + level / 2)) + 0.5 / math.sqrt(self.variance)) * self.stderr
        low, high = self.unbiased - half, self.unbiased + half
        return (low, high) if self.spec.signed or self.negative else (np.maximum(low, 0.0), np.maximum(high, 0.0))

    def count(self, *path: str, level: float = LEVEL) -> Estimate:
        """The count of one node; that of the root without arguments.

        Args:
            path: names on its way from the top.
            level: level of the interval.

        Raises:
            DomainError: the tree has no such node, or these answers are of other levels.
        """
        node = self.spec.tree.find(path)
        at = int(np.searchsorted(self.nodes, -1 if node is None else node))
        if node is None or at == len(self.nodes) or self.nodes[at] != node:
            raise DomainError("the tree has no node of this path, or these answers are of other levels")
        low, high = (float(end[at]) for end in self._ends(checked_level(level)))
        return Estimate(float(self.values[at]), low, high, stderr=float(self.stderr[at]))

    def _draw(self, k: int = 20) -> Figure:
        """The k largest nodes of the first level that has several, as bars with their intervals."""
        from sketchstream.pictures import charts

        depths = self.spec.tree.depths[self.nodes]
        wide = next((depth for depth in np.unique(depths).tolist() if (depths == depth).sum() > 1), int(depths[-1]))
        places = np.flatnonzero(depths == wide)
        places = places[np.argsort(-self.values[places], kind="stable")[:k]]
        low, high = self.interval().T
        names = [", ".join(self.spec.tree.path(node)) or ROOT for node in self.nodes[places].tolist()]
        title = f"The {len(names)} largest of level {(ROOT, *self.spec.tree.levels)[wide]}, {LEVEL:.0%} intervals"
        return charts.bars_figure(title, charts.Bars(names, self.values[places], low[places], high[places]), "counts")

    def __str__(self) -> str:
        """The root, and the errors of each level."""
        lines = [f"{len(self.values):,} counts, {self.method}"]
        depths = self.spec.tree.depths[self.nodes]
        for depth, name in enumerate((ROOT, *self.spec.tree.levels)):
            errors = self.stderr[depths == depth]
            if len(errors):
                lines.append(
                    f"  {name}: {len(errors):,} nodes, standard error {errors.min():.4g} to {errors.max():.4g}"
                )
        if self.negative:
            lines.append(f"{BELOW_ZERO}; set signed = true, so that nothing is cut at 0")
        return "\n".join(lines)


def estimate(
    spec: HierarchySpec, variance: Fraction, state: Ints, method: str = "auto", levels: Sequence[str] | None = None
) -> HierarchyAnswers:
    """Answers from one published state.

    Args:
        spec: spec of the sketch.
        variance: variance of the noise in each counter, all layers together.
        state: (nodes,) int64, as published.
        method: see `METHODS`.
        levels: names of the levels to answer; None: all.

    Raises:
        EstimateError: an unknown level, a state of another length, or no noise.
    """
    tree = spec.tree
    if state.shape != (tree.nodes,) or variance <= 0:
        raise EstimateError(f"expected a published state of {tree.nodes} counters and the variance of its noise")
    counts = state / np.maximum(spec.scale, 1)
    estimates, variances = fit_unbiased(tree, counts, spec.precisions)
    stderr = np.sqrt(variances) * math.sqrt(variance)
    negative = not spec.signed and below_zero(estimates, stderr, gaussian=True)
    if method == "auto":
        method = "unbiased" if spec.signed or negative else "nonnegative"
    # Where many counts are cut at 0, their sum rises far beyond its interval: so the root is known before the others.
    values = (
        estimates if method == "unbiased" else nonnegative(tree, counts, spec.precisions, max(float(estimates[0]), 0.0))
    )
    named = (ROOT, *tree.levels)
    unknown = [level for level in levels or () if level not in named]
    if unknown:
        raise EstimateError(f"levels are {', '.join(named)}, found {unknown[0]!r:.40}")
    chosen = np.isin(tree.depths, [named.index(level) for level in (named if levels is None else levels)])
    nodes = np.flatnonzero(chosen)
    return HierarchyAnswers(spec, values[nodes], stderr[nodes], estimates[nodes], nodes, variance, method, negative)
