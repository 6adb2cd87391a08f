"""What the audit must know of kind `hierarchy`, computed from plain data and not by the kind's own code.

In: plain data of specs. Out: see `sketchstream.audit.kinds.linear.OracleAudit`. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np

from sketchstream.array_types import Ints
from sketchstream.kinds.hierarchy.spec import HierarchySpec


@lru_cache(maxsize=1)
def specs() -> Mapping[str, HierarchySpec]:
    """Specs of both units, even and uneven trees, fresh and bare publications, with and without further counters."""
    even = [(f"{at // 12}", f"{at // 4}", f"{at}") for at in range(48)]
    uneven = [("a", "b", f"{at}") for at in range(40)] + [("a", "c", "d"), ("e", "f", "g"), ("e", "f", "h")]
    published: dict[str, Any] = {"epsilon_publish": "3/4"}
    more: dict[str, tuple[Any, dict[str, Any]]] = {
        "event": (even, {"max_weight": 5, **published}),
        "event, uneven, other multipliers": (uneven, {"multipliers": [0, 2, 1, 3], "signed": True, **published}),
        "event, bare state": (even, {"max_weight": 9, "intrusion": False}),
        "event, counted": (even, {"max_weight": 5, "counted_share": "1/4", "epsilon_records": "1/5", **published}),
        "item": (uneven, {"unit": "item", "max_total": 20, "max_weight": 6, **published}),
    }
    return {name: HierarchySpec(["x", "y", "z"], paths, "1", "1e-6", **given) for name, (paths, given) in more.items()}


def questions(spec: HierarchySpec) -> Ints:
    """(nodes, leaves) which leaves each node has below it."""
    return _levels_by_leaf(spec, [1] * len(spec.to_dict()["multipliers"]))


def matrix(spec: HierarchySpec) -> Ints:
    """(nodes, leaves) the same, times the multiplier of each node's level."""
    return _levels_by_leaf(spec, spec.to_dict()["multipliers"])


def _levels_by_leaf(spec: HierarchySpec, times: list[int]) -> Ints:
    """(nodes, leaves) the number of its level at each node that has the leaf below it."""
    ways = _paths_of_leaves(spec)
    out = np.zeros((max(map(max, ways)) + 1, len(ways)), np.int64)
    for leaf, way in enumerate(ways):
        out[way, leaf] = times
    return out


def _paths_of_leaves(spec: HierarchySpec) -> list[list[int]]:
    """For each leaf the numbers of the nodes on its way, found by walking down the numbers of children."""
    children = spec.to_dict()["tree"]["children"]
    starts = np.cumsum([0, 1, *map(sum, children)]).tolist()
    ways = [[0]]
    for depth, counts in enumerate(children):
        below, place = [], 0
        for way, count in zip(ways, counts, strict=True):
            for _ in range(count):
                below.append([*way, starts[depth + 1] + place])
                place += 1
        ways = below
    return ways


WORKERS: Final = {
    "event": """
kind = "hierarchy"
epsilon = 1
delta = "1e-6"
max_weight = 5
intrusion = false
epsilon_records = "1/5"
levels = ["country", "city"]
paths = [["fr", "paris"], ["fr", "lyon"], ["de", "bonn"], ["de", "koeln"], ["de", "ulm"], ["it", "rom"]]
"""
}
"""Fields of a `[[sketch]]` for the audit of a worker's windows."""
