"""Strategies that no matrix is made of: noise on every cell, on blocks of cells, or on every answer.

In: a workload whose queries are runs of cells, or named. Out: `Implicit` strategies with the variances of all answers
in closed form, updates, answers, a lower bound. Touches: nothing but the states it is given.
Source: docs/theory/workload.md, section 14.

Cells are a tree with one level. A counter of a query holds its noisy answer: nothing is solved.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.errors import FormatError, SpecError
from sketchstream.kinds.linear.events import add_up
from sketchstream.kinds.linear.tree import WHOLE, BlockTree, Levels, best_levels, checked_levels, tree_matrix
from sketchstream.kinds.workload.queries.queries import Workload
from sketchstream.kinds.workload.queries.runs import ROUNDING
from sketchstream.kinds.workload.strategies.optimise import reduce_matrix, smallest_total
from sketchstream.kinds.workload.strategies.projection import ANSWERS, Metric, Projected, curvature, descend
from sketchstream.kinds.workload.strategies.strategy import MAX_STATE, VERSION, Form, Strategy, declared_head
from sketchstream.noise.laws import DiscreteLaplace

CELLS: Final[Levels] = ((1, 1),)
"""Levels of the strategy with noise on every cell."""
BLOCKS: Final = 512
"""Most blocks of cells in the computation of the lower bound."""
MEANS: Final = 1 << 25
"""Most entries of the matrix of means in that computation: blocks times runs, or times queries."""
OPTIMUM_GAP: Final = 0.02
"""Gap to which that matrix's optimum is searched."""


class Implicit(Strategy):
    """Sums of blocks of cells, each times the weight of its level; or the queries themselves.

    Args:
        levels: pairs (cells of a block, weight), as `BlockTree` has them; empty: a counter for each query.
        stored: further fields of stored bytes, which follow from `workload` and `levels`.
    """

    workload: Workload
    levels: Levels

    def __init__(self, workload: Workload, levels: Levels, **stored: object) -> None:
        form: Form = "tree" if len(levels) > 1 else "identity" if levels else "queries"
        length = BlockTree(workload.size, levels).words if levels else workload.count
        fields = {"workload": workload, "levels": levels, "form": form, "rank": length if form == "queries" else 0}
        alike = {"bits": 0, "objective": "total", "lower": 0.0, "upper": 0.0, "root": None, "chosen": None, "width": 0}
        vars(self).update(fields | alike | {"workload_digest": workload.digest})

    def __repr__(self) -> str:
        return f"Implicit({self.form!r}, levels={self.levels}, {self.length} x {self.size})"

    @cached_property
    def tree(self) -> BlockTree:
        """The blocks; of the queries that of the cells."""
        return BlockTree(self.workload.size, self.levels or CELLS)

    @property
    def length(self) -> int:
        return self.tree.words if self.levels else self.workload.count

    @property
    def size(self) -> int:
        return self.workload.size

    @cached_property
    def matrix(self) -> Ints:
        """(m, N) the strategy written out, for audits of small ones."""
        if self.length * self.size > MAX_STATE:
            raise SpecError(
                f"a strategy of {self.length} x {self.size} is too large to write out; at most 2^27 entries"
            )
        if not self.levels:
            return self.workload.runs.dense().astype(np.int64)
        return tree_matrix(self.size, self.levels, self.tree.cells)

    @cached_property
    def largest(self) -> int:
        return max(weight for _, weight in self.levels) if self.levels else int(np.abs(self.workload.runs.values).max())

    @cached_property
    def sensitivity2(self) -> int:
        return self._reach(2)

    @cached_property
    def sensitivity1(self) -> int:
        return self._reach(1)

    def _reach(self, power: int) -> int:
        """Largest sum of a power of a column's entries."""
        if self.levels:
            return sum(weight**power for _, weight in self.levels)
        return int(self.workload.runs.column_sums(power).max())

    @cached_property
    def variances(self) -> Floats:
        """(d,) variance of each answer for independent noise of variance 1 in each counter."""
        if not self.levels:
            return np.ones(self.length)
        if self.levels == CELLS:
            return self.workload.norms()
        return self.tree.variances([self.workload.runs.energies(width) for width, _ in self.levels])

    @cached_property
    def fourths(self) -> Floats:
        """(d,) sum of the fourth powers of each answer's coefficients in the counters."""
        if not self.levels:
            return np.ones(self.length)
        return self.workload.norms(4) if self.levels == CELLS else self.workload.runs.fourths(self.tree)

    def answers(self, state: Ints) -> Floats:
        """(d,) unbiased answers."""
        return self.workload.apply(self.tree.solve(state)) if self.levels else state.astype(np.float64)

    def individuals(self, state: Ints) -> tuple[float, float]:
        """The estimated sum of all cells and its variance for noise of variance 1, of counters of cells or blocks."""
        counts = [np.bincount(np.arange(self.size) // width).astype(np.float64) for width, _ in self.tree.levels]
        variance = self.tree.variances([np.array([float(count @ count)]) for count in counts])
        return float(self.tree.solve(state).sum()), float(variance[0])

    def nearest(self, state: Ints, bound: float, tolerance: float, metric: Metric) -> Projected:
        """The x >= 0 of sum at most n that is nearest to a state; see `stretched`.

        Args:
            metric: metric of distances; where the counters are the answers, all metrics are theirs.
        """
        workload, start = self.workload, np.zeros(self.size)
        blocks = bool(self.levels) and metric != "answers"
        both = ANSWERS * self.length / float(self.variances.sum())
        share = {"state": 0.0, "both": both}.get(metric, 1.0) if blocks else 1.0

        def times(table: Floats) -> Floats:
            out = share * workload.gram_times(table) if share else np.zeros(self.size)
            return out + self.tree.gram_times(table) if blocks else out

        if self.levels:
            start = self.tree.solve(state)
            pull = share * workload.gram_times(start) + (self.tree.back(state)[: self.size] if blocks else 0.0)
        else:
            pull = workload.runs.back(state.astype(np.float64))
        steepest = curvature(times, np.ones(self.size))
        bounds, starts = np.array([bound]), start[None]
        best, gap, steps = descend(lambda one: (times(one[0]) - pull)[None], steepest, bounds, starts, tolerance)
        return Projected(best[0], gap, steps)

    def add(self, state: Ints, cells: Ints, weights: Ints | None = None) -> None:
        """Add a batch of events, in place; sums wrap, and events outside of the cells do nothing.

        Which way is taken depends on the number of events only.
        """
        inside = (cells >= 0) & (cells < self.size)
        effective = inside.astype(np.int64) if weights is None else np.where(inside, weights, 0)
        if self.levels:
            self.tree.add(state, np.where(inside, cells, 0), effective)
            return
        if len(cells) * len(self.workload.runs.lows) <= self.size:
            state += self.workload.runs.column_of(cells, effective)
            return
        sums = np.zeros(self.size, np.int64)
        add_up(sums, cells, effective)
        state += self.workload.runs.apply(sums)
        sums[:] = 0

    @cached_property
    def digest(self) -> bytes:
        head = (VERSION, self.length, self.size, str(self.sensitivity2), self.form, self.levels)
        return hashlib.sha256(b"implicit" + repr(head).encode() + self.workload_digest).digest()

    def _body(self) -> tuple[dict[str, Any], bytes]:
        """The levels; everything else follows from the workload."""
        return {"levels": [list(level) for level in self.levels]}, b""

    @staticmethod
    def _read_body(head: dict[str, Any], body: bytes, workload: Workload) -> dict[str, Any]:
        """The levels, of a strategy of this size."""
        levels = checked_levels(head["levels"]) if head["levels"] else ()
        length = BlockTree(workload.size, levels).words if levels else workload.count
        if body or head["shape"] != [length, workload.size]:
            raise FormatError("the bytes of a workload strategy declare an impossible shape")
        return {"workload": workload, "levels": levels}

    @cached_property
    def least_total(self) -> float:
        """See `Strategy`, here of any strategy: the larger of two bounds, not known for several columns and for unions.

        They are the optimum of the mean columns of blocks of cells, which ask less, and the bound of the
        nuclear norm from products of pairs of queries.
        """
        if not self.workload.flat:
            return 0.0
        runs = self.workload.runs
        ends = np.unique(np.concatenate([[0, self.size], runs.lows, runs.highs]))
        blocks = max(1, min(BLOCKS, MEANS // max(runs.rows, len(runs.lows)), len(ends) - 1))
        means = runs.means(ends[np.arange(blocks + 1) * (len(ends) - 1) // blocks])
        if runs.rows > means.shape[1]:  # the same Gram matrix in fewer rows
            means = np.asarray(np.linalg.qr(means, mode="r"))
        return max(ROUNDING * smallest_total(reduce_matrix(means), tolerance=OPTIMUM_GAP).lower, runs.pair_bound())


def implicit_strategies(workload: Workload, epsilon: Fraction) -> list[Implicit]:
    """Every implicit strategy that applies: cells, and for one column the queries and the best tree.

    Args:
        epsilon: epsilon of a layer, for one unit of weight.
    """
    if not workload.flat:
        return [Implicit(workload, CELLS)]

    def energy(width: int) -> float:
        return float(workload.runs.energies(width).sum())

    pure = best_levels(workload.size, energy, lambda reach: DiscreteLaplace(epsilon / reach).variance)
    trees = {pure, gaussian_levels(workload.size, energy), CELLS, ()}
    return [Implicit(workload, levels) for levels in sorted(trees)]


def gaussian_levels(size: int, energy: Callable[[int], float]) -> Levels:
    """The levels of blocks of 1, 2, 4, ... cells whose answers have the smallest variance for an L2 sensitivity.

    With t_l the trace of the answers' Gram matrix on level l's projection, d_l = t_l - t_(l+1) and eigenvalues e_l that
    do not fall, sum d_l / e_l is minimised where the squared weights (e_l - e_(l-1)) / v_l add up to 1: e_l^2 is the
    isotonic regression of d_l / (1/v_l - 1/v_(l+1)) with the denominators as weights.

    Args:
        energy: sum over answers and blocks of a width of the squares of the coefficients' sums in the block.
    """
    from scipy.optimize import isotonic_regression

    widths = 1 << np.arange(size.bit_length())
    traces = np.array([energy(int(width)) for width in widths]) / widths
    shares = 1 / widths - np.append(1 / widths[1:], 0.0)
    roots = np.sqrt(isotonic_regression(np.maximum(-np.diff(traces, append=0.0), 0.0) / shares, weights=shares).x)
    weights = np.sqrt(np.diff(roots, prepend=0.0) / widths)
    whole = np.rint(WHOLE * weights / weights.max()).astype(np.int64)
    whole[0] = max(whole[0], 1)
    return tuple((int(width), int(weight)) for width, weight in zip(widths, whole, strict=True) if weight)


def read_strategy(data: bytes, workload: Workload) -> Strategy:
    """The strategy of these bytes, of either sort."""
    return (Implicit if "levels" in declared_head(data) else Strategy).from_bytes(data, workload)
