"""The kind `hierarchy` as the engine sees it.

In: calls of the engine. Out: noise, updates and answers of a tree of counts. Touches: the states it is given, and
entropy through `noise`.
Source: docs/theory/hierarchy.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sketchstream.array_types import Flags, Ints
from sketchstream.items.arrays import Items
from sketchstream.items.events import Events
from sketchstream.kinds.exports import USUAL, AnswerRows
from sketchstream.kinds.hierarchy.answers import METHODS, HierarchyAnswers, estimate
from sketchstream.kinds.hierarchy.spec import HierarchySpec
from sketchstream.kinds.hierarchy.tree import BETWEEN
from sketchstream.kinds.intake import Intake
from sketchstream.kinds.linear.answers import parts_of, sum_parts
from sketchstream.kinds.linear.events import ColumnIndex, place_indices
from sketchstream.kinds.linear.kind import LinearAccounting, LinearKind, unit_of_places
from sketchstream.kinds.options import require_method, require_options
from sketchstream.privacy.deployments.guarantee import RELATION, assumptions

if TYPE_CHECKING:
    from sketchstream.items.key import Key
    from sketchstream.privacy.deployments.surroundings import Context
    from sketchstream.privacy.ledgers.sketch_history import SketchHistory
    from sketchstream.provenance import Origin
    from sketchstream.published import Published


class Leaves(ColumnIndex):
    """Where items go: leaves by their numbers or paths. Every event moves the counters of all nodes on its way."""

    spec: HierarchySpec

    def locate(self, items: Items) -> Ints:
        """(n,) leaf of each item; -1: it has none. Texts are paths, with tabs between their names."""
        return place_indices(items, self.spec.tree.leaves, self.spec.tree.leaf)

    def add(self, state: Ints, places: Ints, weights: Ints | None) -> None:
        """Add weights along the ways to their leaves. Levels without a counter of their own stay noise alone."""
        inside = places >= 0
        leaves, amounts = places[inside], np.int64(1) if weights is None else weights[inside]
        for nodes, times in zip(self.spec.tree.ways, self.spec.multipliers, strict=True):
            if times:
                np.add.at(state, nodes[leaves], amounts * np.int64(times))


class HierarchyAccounting(LinearAccounting[HierarchySpec]):
    """Costs are mu^2 of all counters."""

    def noise_cost(self, spec: HierarchySpec, epsilon: Fraction, delta: Fraction) -> Fraction:
        """mu^2 of noise that is calibrated to (epsilon, delta)."""
        return spec.shift.cost(spec.sigma2(epsilon, delta))


class HierarchyIntake(Intake[HierarchySpec]):
    """Leaves by the fields of the levels."""

    def roles(self, spec: HierarchySpec) -> tuple[str, ...]:
        """The fields of the levels."""
        return spec.tree.levels

    def events(self, spec: HierarchySpec, given: Events) -> Events:
        """Numbers of leaves; a record without a leaf is not an event."""
        usual = super().events(spec, given)
        leaves = spec.tree.locate(given.columns)
        return usual.counted(Items.of(leaves), leaves >= 0)


class HierarchyKind(LinearKind[HierarchySpec]):
    """Counts of all nodes of a tree, each under its own noise; answers are consistent; costs are mu^2."""

    name = "hierarchy"
    partitions = "merge"
    promised_for_all_partitions = True
    spec_type = HierarchySpec
    accounting = HierarchyAccounting()
    intake = HierarchyIntake()

    # Descriptions and the statement.

    def facts_of_kind(self, spec: HierarchySpec, slots: int) -> list[tuple[str, str]]:
        """The levels with their nodes and multipliers."""
        named = zip(("all", *spec.tree.levels), spec.tree.sizes, spec.multipliers, strict=True)
        rows = "; ".join(f"{name}: {size:,}, x{times}" for name, size, times in named)
        return [("levels (nodes, multiplier)", rows), ("counters", f"{slots:,}")]

    def unit_in_words(self, spec: HierarchySpec) -> str:
        """One event with its leaf, or everything of one item."""
        return unit_of_places(spec, "leaf")

    def relation(self, spec: HierarchySpec) -> tuple[str, ...]:
        """Sentences of the statement: to move an event is two changes."""
        return (f"{RELATION}to move an event to another leaf is two changes: four times the mu^2",)

    def assumes(self, spec: HierarchySpec, ledger: SketchHistory, context: Context) -> tuple[str, ...]:
        return (*assumptions(spec, context, "and (epsilon, delta)"), "the tree and its multipliers are public")

    # Updates and states.

    def index(self, spec: HierarchySpec, key: Key | None, keep: Flags | None, origin: Origin | None = None) -> Leaves:
        """The index of leaves."""
        self.require_all_places(keep)
        return Leaves(spec)

    def items(self, source: object) -> Items:
        """Leaves as numbers, as texts, or as tuples of names."""
        if isinstance(source, (list, tuple)) and source and isinstance(source[0], (tuple, list)):
            source = [BETWEEN.join(map(str, path)) for path in source]
        return Items.of(source)

    # Answers.

    def rows(self, spec: HierarchySpec) -> AnswerRows:
        """The level of a node, the names on its way, its count beside the unbiased one."""
        header = ("level", *spec.tree.levels, *USUAL, "unbiased")
        return AnswerRows(header, "count.0", {**USUAL, "unbiased": "float64"})

    def expected_error(self, spec: HierarchySpec) -> tuple[str, float]:
        """The error of all counts together."""
        layers = [(spec.epsilon, spec.delta), (spec.epsilon_publish, spec.delta_publish)][: 1 + spec.intrusion]
        variance = sum((spec.sigma2(*layer) for layer in layers), Fraction(0))
        return "count", math.sqrt(float(variance) * float(spec.variances.mean()))

    def estimate(self, published: Published, **options: Any) -> HierarchyAnswers:
        """Counts of all nodes, which add up on all levels, with standard errors and intervals.

        Args:
            published: parts of a stack are added up.
            options: `method`: "auto", "nonnegative" or "unbiased" (docs/theory/hierarchy.md); "auto" is "unbiased" for
                signed counts and "nonnegative" for others. `levels`: names of the levels to answer, "all" for the root.

        Raises:
            EstimateError: another method, option or level.
        """
        method = options.pop("method", "auto")
        require_method(method, METHODS)
        require_options(self.name, options, ("levels",))
        parts = parts_of(self, published)
        spec: HierarchySpec = published.spec
        variance = sum((parameter for part in parts for parameter in part.parameters), Fraction(0))
        return estimate(spec, variance, sum_parts(spec, parts), method, **options).computed_from(published)


KIND: Final = HierarchyKind()
