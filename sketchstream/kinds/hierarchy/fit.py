"""Consistent estimates of all nodes from one noisy counter a node, unbiased or not negative, both exact.

In: a tree, the count of each node by its counter, the precision of each. Out: an estimate for each node. Touches:
nothing. Post-processing only.
Source: Hay, Rastogi, Miklau & Suciu 2010 (weighted least squares on trees); docs/theory/hierarchy.md, sections 4 and 5.

Both minimise the same weighted squares over all counts whose children add up to their parent. Without a constraint
that is the best linear unbiased estimate; it takes two passes over the tree. With counts of at least 0 the minimum is
found by one pass up, which builds for each node the total that is best at each price of an item, and one down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.kinds.hierarchy.tree import Tree


def fit_unbiased(tree: Tree, counts: Floats, precisions: Sequence[float]) -> tuple[Floats, Floats]:
    """(nodes,) the best linear unbiased estimates, and their variances.

    Args:
        tree: the tree.
        counts: (nodes,) count of each node by its counter; anything where the precision is 0.
        precisions: one over the variance of the noise of each level's counters; above 0 for the leaves.
    """
    counters = _by_level(tree, counts)
    # Up: each node from its own counter and those below it.
    mean, variance = counters[-1], np.full(tree.leaves, 1 / precisions[-1])
    sums: list[tuple[Floats, Floats]] = []  # sums over the children of each node, the last level's parents first
    means = [(mean, variance)]
    for level in range(len(counters) - 2, -1, -1):
        total, spread = (np.add.reduceat(values, tree.first[level]) for values in (mean, variance))
        sums.append((total, spread))
        variance = 1 / (precisions[level] + 1 / spread)
        mean = (precisions[level] * counters[level] + total / spread) * variance
        means.append((mean, variance))
    # Down: what a node is by its own counter and by all that is not below it, then both sides together.
    out = [means[-1]]
    estimate, precision = counters[0], np.full(1, float(precisions[0]))
    for level, parents in enumerate(tree.parents, 1):
        (total, spread), (below, narrow) = sums[-level], means[-1 - level]
        weight = np.zeros(len(parents))
        if precision[0] > 0:  # above 0 on a whole level or nowhere; 0: no counter lies above
            weight = 1 / ((1 / precision + spread)[parents] - narrow)
        outside = (estimate - total)[parents] + below
        precision = precisions[level] + weight
        estimate = (precisions[level] * counters[level] + weight * outside) / np.where(precision > 0, precision, 1)
        if level == len(tree.parents):
            out.append((estimate, 1 / precision))
            break
        total, spread = sums[-level - 1]
        variance = 1 / (precision + 1 / spread)
        out.append(((precision * estimate + total / spread) * variance, variance))
    estimates, variances = zip(*out, strict=True)
    return np.concatenate(estimates), np.concatenate(variances)


@dataclass(frozen=True, eq=False)
class _Totals:
    """For each node of a level the best total of what is below it, as a function of the price of an item.

    The function is 0 up to its first break, then a rising chain of lines. Breaks are sorted by node, then by price.

    Args:
        first: (n,) place of each node's first break.
        price: (m,) prices at the breaks.
        total: (m,) value of the function at each break.
        slope: (m,) slope of the function after each break.
        shifted: (m,) the price at which the node's own counter asks for this total too.
    """

    first: Ints
    price: Floats
    total: Floats
    slope: Floats
    shifted: Floats


def nonnegative(tree: Tree, counts: Floats, precisions: Sequence[float], whole: float) -> Floats:
    """(nodes,) the counts of at least 0, consistent and of a given whole, that are nearest to the counters.

    Each node's cost is a convex function of its total. Its slope, the price that one more item of this node is worth,
    rises with the total; so the total as a function of the price is what is added up over children, and what the
    node's own counter bends: at total t, it adds precision (t - counter) to the price.

    Args:
        tree: the tree.
        counts: (nodes,) count of each node by its counter.
        precisions: see `fit_unbiased`.
        whole: the root's count, at least 0.
    """
    counters = _by_level(tree, counts)
    prices = -precisions[-1] * counters[-1]
    rises = np.full(tree.leaves, 1 / precisions[-1])
    node = np.arange(tree.leaves)
    levels: list[_Totals] = []
    for level in range(len(counters) - 2, -1, -1):
        node = tree.parents[level][node]
        order = np.lexsort((prices, node))
        node, prices, rises = node[order], prices[order], rises[order]
        first = np.searchsorted(node, np.arange(len(counters[level])))
        slope = _running(rises, first, node)
        total = _running(np.diff(prices, prepend=prices[:1]) * np.roll(slope, 1), first, node, skip=True)
        precision = precisions[level]
        shifted = prices + precision * (total - counters[level][node])
        levels.append(_Totals(first, prices, total, slope, shifted))
        bent = slope / (1 + precision * slope)
        rises = np.diff(bent, prepend=0.0)
        rises[first] = bent[first]
        prices = shifted
    out: list[Floats] = []
    root = levels[-1]
    at = np.maximum(np.searchsorted(root.total, [whole], "right") - 1, 0)
    price = root.shifted[at] + (whole - root.total[at]) * (1 / root.slope[at] + precisions[0])  # asks for the whole
    for level, totals in enumerate(reversed(levels)):
        size = np.diff(totals.first, append=len(totals.price))
        passed = np.add.reduceat((totals.shifted <= np.repeat(price, size)).astype(np.int64), totals.first)
        at = totals.first + np.maximum(passed - 1, 0)
        further = (price - totals.shifted[at]) / (1 + precisions[level] * totals.slope[at])
        within = passed > 0
        out.append(np.where(within, totals.total[at] + totals.slope[at] * further, 0.0))
        inner = np.where(within, totals.price[at] + further, price + precisions[level] * counters[level])
        price = inner[tree.parents[level]]
    leaves = np.maximum(counters[-1] + price / precisions[-1], 0.0)
    return np.concatenate([*out, leaves])


def _by_level(tree: Tree, values: Floats) -> list[Floats]:
    """The part of each level."""
    return np.split(values, tree.starts[1:-1])


def _running(steps: Floats, first: Ints, node: Ints, *, skip: bool = False) -> Floats:
    """(m,) sums of the steps of each node up to each of its breaks; without its first step if `skip`."""
    if skip:
        steps[first] = 0.0
    sums = np.cumsum(steps)
    return np.asarray(sums - (sums[first] - steps[first])[node])
