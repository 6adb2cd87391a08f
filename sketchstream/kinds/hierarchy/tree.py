"""The declared tree of a sketch: its levels, its nodes, and how events find their leaf.

In: the paths of all leaves. Out: nodes level by level, children beside each other; the leaf of a record. Touches:
nothing.

Nodes are numbered level by level, the root first, and the children of a node follow each other. Paths are sorted, so
that equal sets of paths give equal trees in whatever order they were declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np

from sketchstream.array_types import Ints
from sketchstream.errors import SpecError
from sketchstream.items.columns import Choices, RecordColumn

NodePath = tuple[str, ...]

MAX_LEVELS: Final = 16
MAX_NODES: Final = 1 << 22
BETWEEN: Final = "\t"
"""Stands between the names of a path that is written as one text."""


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree whose leaves all lie on the last level.

    Args:
        levels: names of the levels below the root, from the top.
        names: names of the nodes of each of them, in their order.
        children: number of children of each node, for the root and each level but the last.
    """

    levels: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]
    children: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, levels: object, paths: Iterable[Sequence[str] | str]) -> Tree:
        """The tree with these leaves.

        Args:
            levels: names of the levels, such as ("country", "region", "city").
            paths: names on the way from the top to each leaf; or one text with tabs between them.

        Raises:
            SpecError: names that cannot be, or a leaf twice.
        """
        named = _level_names(levels)
        checked = [_path(path, len(named)) for path in paths]
        leaves = sorted(set(checked))
        if not leaves or len(leaves) != len(checked):
            raise SpecError(
                f"paths must be those of all leaves, each once, found {len(checked)} of {len(leaves)} leaves"
            )
        names: list[tuple[str, ...]] = []
        children: list[tuple[int, ...]] = []
        above: list[NodePath] = [()]
        for depth in range(1, len(named) + 1):
            nodes = list(dict.fromkeys(leaf[:depth] for leaf in leaves))
            number = dict.fromkeys(above, 0)
            for node in nodes:
                number[node[:-1]] += 1
            names.append(tuple(node[-1] for node in nodes))
            children.append(tuple(number.values()))
            above = nodes
        if sum(map(len, names)) >= MAX_NODES:
            raise SpecError(f"a tree has fewer than {MAX_NODES:,} nodes, found {sum(map(len, names)):,}")
        return cls(named, tuple(names), tuple(children))

    @classmethod
    def from_dict(cls, data: object) -> Tree:
        """The tree that `to_dict` described.

        Raises:
            SpecError: these data describe none.
        """
        try:
            if isinstance(data, Mapping) and data.keys() == {"levels", "names", "children"}:
                names = tuple(tuple(map(str, names)) for names in data["names"])
                children = tuple(tuple(map(int, numbers)) for numbers in data["children"])
                made = cls(_level_names(data["levels"]), names, children)
                if made._fits():
                    return made
        except (TypeError, ValueError):
            pass
        raise SpecError("tree must have levels, names and children as `to_dict` writes them")

    def to_dict(self) -> dict[str, Any]:
        """The object as plain data."""
        return {
            "levels": list(self.levels),
            "names": list(map(list, self.names)),
            "children": [*map(list, self.children)],
        }

    @property
    def leaves(self) -> int:
        """Number of leaves."""
        return len(self.names[-1])

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of nodes on each level, the root's first."""
        return (1, *map(len, self.names))

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Number of the first node of each level, and the number of all nodes."""
        return tuple(np.cumsum((0, *self.sizes)).tolist())

    @property
    def nodes(self) -> int:
        """Number of nodes on all levels."""
        return self.starts[-1]

    @cached_property
    def parents(self) -> tuple[Ints, ...]:
        """For each level below the root: (n,) place of each node's parent on the level above."""
        return tuple(np.repeat(np.arange(len(child)), child) for child in self.children)

    @cached_property
    def first(self) -> tuple[Ints, ...]:
        """For the root and each level but the last: (n,) place of each node's first child on the level below."""
        return tuple(np.cumsum((0, *child[:-1])) for child in self.children)

    @cached_property
    def ways(self) -> Ints:
        """(levels + 1, leaves) number of the node on each level above each leaf, the leaf itself last."""
        way = np.arange(self.leaves)
        out = [way + self.starts[-2]]
        for start, parents in zip(self.starts[-3::-1], reversed(self.parents), strict=True):
            way = parents[way]
            out.append(way + start)
        return np.stack(out[::-1])

    @cached_property
    def depths(self) -> Ints:
        """(nodes,) level of each node, 0 for the root."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def path(self, node: int) -> NodePath:
        """Names on the way to a node from the top; none for the root."""
        depth = int(self.depths[node])
        place, names = node - self.starts[depth], []
        for level in range(depth - 1, -1, -1):
            names.append(self.names[level][place])
            place = int(self.parents[level][place])
        return tuple(reversed(names))

    def find(self, path: Sequence[str]) -> int | None:
        """Number of the node at the end of a path; None if there is none."""
        place = np.zeros(1, np.int64)
        for depth, name in enumerate(path[: len(self.levels)]):
            place = self._below(depth, place, np.array([self._codes[depth].get(name, -1)]))
        return None if len(path) > len(self.levels) or place[0] < 0 else int(place[0]) + self.starts[len(path)]

    def leaf(self, text: str) -> int:
        """The leaf of a path that is written as one text; -1 for any other text."""
        path = text.split(BETWEEN)
        node = self.find(path) if len(path) == len(self.levels) else None
        return -1 if node is None else node - self.starts[-2]

    def locate(self, columns: Mapping[str, RecordColumn]) -> Ints:
        """(n,) leaf of each record; -1: it has none."""
        place: Ints | None = None
        for depth, level in enumerate(self.levels):
            codes = columns[level].codes(self._choices[depth]).astype(np.int64)
            place = self._below(depth, np.zeros(len(codes), np.int64) if place is None else place, codes)
        assert place is not None
        return place

    def _below(self, depth: int, place: Ints, codes: Ints) -> Ints:
        """(n,) the child with this name of each node on a level; -1: there is none."""
        keys = self._keys[depth]
        codes_there = place * len(self._codes[depth]) + codes
        at = np.minimum(np.searchsorted(keys, codes_there), len(keys) - 1)
        return np.where((place >= 0) & (codes >= 0) & (keys[at] == codes_there), at, -1)

    @cached_property
    def _codes(self) -> tuple[dict[str, int], ...]:
        """For each level the different names on it, in their order, numbered."""
        return tuple({name: code for code, name in enumerate(sorted(set(names)))} for names in self.names)

    @cached_property
    def _choices(self) -> tuple[Choices, ...]:
        """Paths of the tree as choices of values, for columns of records."""
        return tuple(Choices(list(code)) for code in self._codes)

    @cached_property
    def _keys(self) -> tuple[Ints, ...]:
        """The (parent, name) of each node of each level as one number; ascending, as paths are sorted."""
        return tuple(
            parents * len(codes) + np.array([codes[name] for name in names], np.int64)
            for parents, codes, names in zip(self.parents, self._codes, self.names, strict=True)
        )

    def _fits(self) -> bool:
        """Whether each level has as many nodes as the one above it has children, all in their order."""
        return (
            len(self.names) == len(self.levels)
            and [len(child) for child in self.children] == [*self.sizes[:-1]]
            and [sum(child) for child in self.children] == [*self.sizes[1:]]
            and min(min(child) for child in self.children) > 0
            and all(self._ascending(depth) for depth in range(len(self.names)))
        )

    def _ascending(self, depth: int) -> bool:
        """Whether the names of each node's children are different and sorted."""
        same = self.parents[depth][1:] == self.parents[depth][:-1]
        pairs = zip(pairwise(self.names[depth]), same.tolist(), strict=True)
        return all(low < high for (low, high), siblings in pairs if siblings)


def _level_names(levels: object) -> tuple[str, ...]:
    """Names of levels, checked."""
    named = tuple(levels) if isinstance(levels, (list, tuple)) else ()
    if (
        not 1 <= len(named) <= MAX_LEVELS
        or len(set(named)) != len(named)
        or any(not isinstance(name, str) or not name for name in named)
        or {"level", "value", "stderr", "low", "high", "unbiased"} & set(named)
    ):
        raise SpecError(
            f"levels must be 1 to {MAX_LEVELS} different names, such as ('country', 'region', 'city'), none of them a "
            f"column of answers (level, value, stderr, low, high, unbiased), found {levels!r:.80}"
        )
    return named


def _path(written: Sequence[str] | str, depth: int) -> NodePath:
    """The names of a path, checked."""
    path = tuple(written.split(BETWEEN)) if isinstance(written, str) else tuple(written)
    if len(path) != depth or any(not isinstance(name, str) or not name or BETWEEN in name for name in path):
        raise SpecError(
            f"each path must have {depth} names, one for each level, without tabs in them, found {len(path)}; "
            "where a branch is shorter, repeat its last name"
        )
    return path
