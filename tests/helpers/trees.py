"""Trees for tests of kind `hierarchy`: random ones, dense matrices, the best budgets of levels.

In: a seed, or sizes of levels. Out: trees, matrices, multipliers. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from sketchstream.kinds.hierarchy.tree import Tree

LARGEST = 12


def random_tree(rng: np.random.Generator, most: int = 4) -> Tree:
    """A tree of 1 to 3 levels below the root, each node with 1 to `most` children."""
    paths: list[tuple[str, ...]] = [()]
    depth = int(rng.integers(1, 4))
    for _ in range(depth):
        paths = [(*path, str(at)) for path in paths for at in range(rng.integers(1, most + 1))]
    return Tree.of([f"level {at}" for at in range(depth)], paths)


def below(tree: Tree) -> Any:
    """(nodes, leaves) which leaves lie below each node, by the names of their paths."""
    paths = [tree.path(node) for node in range(tree.nodes)]
    leaves = paths[tree.starts[-2] :]
    return np.array([[leaf[: len(path)] == path for leaf in leaves] for path in paths], np.float64)


def variances(sizes: Sequence[int], multipliers: Sequence[int]) -> list[Fraction]:
    """Variance of a node's estimate on each level, where every node has its level's mean number of children.

    For noise that costs mu^2 = 1 of one event. An estimate joins a node's own counter, what is below it, and what is
    beside and above it.

    Args:
        sizes: number of nodes on each level, the root's first.
        multipliers: multipliers of each level.
    """
    square = sum(one * one for one in multipliers)
    own = [Fraction(one * one, square) for one in multipliers]
    fan = [Fraction(under, above) for above, under in pairwise(sizes)]
    up = [Fraction(0)] * len(sizes)
    up[-1] = 1 / own[-1]
    for level in range(len(sizes) - 2, -1, -1):
        up[level] = 1 / (own[level] + 1 / (fan[level] * up[level + 1]))
    out, beyond = [up[0]], own[0]
    for level, branches in enumerate(fan, 1):
        around = 1 / (1 / beyond + (branches - 1) * up[level]) if beyond else Fraction(0)
        beyond = own[level] + around
        out.append(1 / (beyond + (1 / (fan[level] * up[level + 1]) if level < len(fan) else 0)))
    return out


def best(sizes: Sequence[int]) -> tuple[int, ...]:
    """Multipliers with the smallest mean variance over the levels that steps by one reach from equal ones."""
    found = [LARGEST * 2 // 3] * len(sizes)
    error, moved = sum(variances(sizes, found)), True
    while moved:
        moved = False
        for level in range(len(sizes)):
            for step in (-1, 1):
                tried = [*found]
                tried[level] += step
                least = 1 if level == len(sizes) - 1 else 0
                if least <= tried[level] <= LARGEST and (other := sum(variances(sizes, tried))) < error:
                    found, error, moved = tried, other, True
    return tuple(found)
