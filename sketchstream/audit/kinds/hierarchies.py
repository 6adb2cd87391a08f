"""Audit of kind `hierarchy`: noise, updates, answers, ledgers, and the event with the largest privacy loss.

In: specs of both units. Out: findings for `sketchstream.audit.report`. Touches: entropy, through the sketches it
creates.
Source: docs/theory/hierarchy.md.

Nothing here calls internals of sketches. Trees are walked again by the numbers of children in the plain data of specs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np

from sketchstream.audit.cases import Case, Check
from sketchstream.audit.kinds.linear import MatrixAudit, case, moves_of, reach_of
from sketchstream.audit.observed import Ints, variance_of_unit
from sketchstream.kinds.hierarchy.spec import HierarchySpec
from sketchstream.noise import laws


@lru_cache(maxsize=1)
def specs() -> Mapping[str, HierarchySpec]:
    """Specs of both units, even and uneven trees, fresh and bare publications, with and without counters beside."""
    even = [(f"{at // 12}", f"{at // 4}", f"{at}") for at in range(48)]
    uneven = [("a", "b", f"{at}") for at in range(40)] + [("a", "c", "d"), ("e", "f", "g"), ("e", "f", "h")]
    shown: dict[str, Any] = {"epsilon_publish": "3/4"}
    more: dict[str, tuple[Any, dict[str, Any]]] = {
        "event": (even, {"max_weight": 5, **shown}),
        "event, uneven, other multipliers": (uneven, {"multipliers": [0, 2, 1, 3], "signed": True, **shown}),
        "event, bare state": (even, {"max_weight": 9, "intrusion": False}),
        "event, counted": (even, {"max_weight": 5, "counted_share": "1/4", "epsilon_records": "1/5", **shown}),
        "item": (uneven, {"unit": "item", "max_total": 20, "max_weight": 6, **shown}),
    }
    return {name: HierarchySpec(["x", "y", "z"], paths, "1", "1e-6", **given) for name, (paths, given) in more.items()}


def _placed(spec: HierarchySpec, times: list[int]) -> Ints:
    """(nodes, leaves) the number of its level at each node that has the leaf below it."""
    ways = _walked(spec)
    out = np.zeros((max(map(max, ways)) + 1, len(ways)), np.int64)
    for leaf, way in enumerate(ways):
        out[way, leaf] = times
    return out


def _walked(spec: HierarchySpec) -> list[list[int]]:
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


class HierarchyAudit(MatrixAudit):
    """See `LinearAudit`."""

    def questions(self, name: str, spec: HierarchySpec) -> Ints:
        """(nodes, leaves) which leaves each node has below it."""
        del name
        return _placed(spec, [1] * len(spec.to_dict()["multipliers"]))

    def matrix(self, spec: HierarchySpec) -> Ints:
        """(nodes, leaves) the same, times the multiplier of each node's level."""
        return _placed(spec, spec.to_dict()["multipliers"])

    def promises(self, name: str, spec: HierarchySpec) -> Case:
        """mu^2 of a unit at each epsilon and delta."""
        moves = moves_of(self.matrix(spec).shape[1], spec.max_weight)
        slack = 2e-2 if spec.counted_share else 5e-3
        return case(name, spec, lambda *look: 1 / variance_of_unit(*look), moves, slack=slack)

    def law(self, spec: HierarchySpec, epsilon: Fraction, delta: Fraction) -> laws.DiscreteGaussian:
        """Gaussian noise, beside the events counted, which have a share of mu^2 and integers."""
        alone, share = variance_of_unit(epsilon, delta), float(spec.counted_share)
        sigma2 = alone * (1 + share / alone) * reach_of(spec, self.matrix(spec)) / (1 - share)
        return laws.DiscreteGaussian(Fraction(sigma2))

    def checks(self, quick: bool) -> Iterator[Check]:
        """Those of the matrix, and the plainest unit of every spec."""
        yield from super().checks(quick)
        for name, spec in self.specs().items():
            yield f"plainest unit, {name}", partial(self.plainest, spec, quick)


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
AUDIT: Final = HierarchyAudit(specs, WORKERS)
