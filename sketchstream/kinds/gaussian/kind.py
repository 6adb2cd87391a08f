"""The kind `gaussian`: implementation of the engine's interface.

In: calls of the engine. Out: results from the spec, the state and the estimators. Touches: the states it is
given, and entropy through `noise`.
Source: docs/theory/gaussian.md and docs/theory/gaussian_ledger.md prove each line of the statement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Flags, Ints
from sketchstream.components import ADMITTED, COUNTED, TOTAL, Component
from sketchstream.errors import EstimateError, FormatError
from sketchstream.items.domains import Index
from sketchstream.kinds.capabilities import SlotsOfItems
from sketchstream.kinds.exports import USUAL, AnswerRows, Types
from sketchstream.kinds.gaussian.spec import GaussianSpec
from sketchstream.kinds.interface import Kind
from sketchstream.kinds.linear.answers import parts_of
from sketchstream.kinds.linear.events import hint_of, in_units, valid_events
from sketchstream.kinds.linear.kind import LinearAccounting, LinearKind
from sketchstream.kinds.options import require_options
from sketchstream.noise.laws import gaussian_variance
from sketchstream.privacy.deployments.guarantee import PACKED, RELATION, assumptions
from sketchstream.privacy.ledgers.sketch_history import SketchHistory
from sketchstream.privacy.losses.law_names import DISCRETE_GAUSSIAN
from sketchstream.privacy.losses.loss_numbers import loss_number
from sketchstream.spec import Item

if TYPE_CHECKING:
    from sketchstream.items.key import Key
    from sketchstream.kinds.gaussian.answers import GaussianEstimate
    from sketchstream.privacy.deployments.surroundings import Context
    from sketchstream.provenance import Origin
    from sketchstream.published import Published

Variances = tuple[Fraction, ...]
OPTIONS: Final = ("target", "nonnegative", "total", "whole", "items", "kept")
"""Options that `estimate` takes besides the method."""


class GaussianAccounting(LinearAccounting[GaussianSpec]):
    """Costs are mu^2 of the slots and of the counters besides them."""

    def noise_cost(self, spec: GaussianSpec, epsilon: Fraction, delta: Fraction) -> Fraction:
        return spec.shift.cost(spec.calibrated(epsilon, delta).sigma2)

    def components(self, spec: GaussianSpec) -> tuple[Component, ...]:
        """The slots, then the total, the events counted, the records admitted.

        The total and the slots are in lattice units. The number of records is a function of envelopes: it has discrete
        Laplace noise of its own, outside the ledger.
        """
        square = spec.sensitivity2
        root = math.isqrt(square)
        slots = Component("slots", spec.slots_share, root + (root * root < square), DISCRETE_GAUSSIAN, square=square)
        total = spec.total_share / 2 if spec.counted else spec.total_share
        counters = [Component(TOTAL, total, spec.most_total, DISCRETE_GAUSSIAN)] if total else []
        counters += [Component(COUNTED, total, 1, DISCRETE_GAUSSIAN)] if spec.counted else []
        counters += [Component(ADMITTED, Fraction(0), own_cost=spec.epsilon_records)] if spec.epsilon_records else []
        return slots, *counters


class GaussianKind(LinearKind[GaussianSpec], SlotsOfItems):
    """One count or sum for each item of a closed domain, under discrete Gaussian noise; costs are mu^2."""

    name = "gaussian"
    spec_type = GaussianSpec
    accounting = GaussianAccounting()

    def read_spec(self, data: Mapping[str, Any], items: Sequence[Item] | None = None) -> GaussianSpec:
        return GaussianSpec.from_dict(data, items)

    # Descriptions and the statement.

    def facts_of_kind(self, spec: GaussianSpec, slots: int) -> list[tuple[str, str]]:
        return [("domain", f"closed, {slots:,} slots")]

    def unit_in_words(self, spec: GaussianSpec) -> str:
        if spec.unit == "event":
            return (
                f"one event: whether it counted, for which item, and with which weight up to {spec.max_weight} in "
                "absolute value; an event and its later deletion are two"
            )
        each = "" if spec.max_per_slot is None else f", and to at most {spec.max_per_slot} in each slot"
        return (
            "everything that one item's source did in this sketch: events of absolute weights that add up to at most "
            f"{spec.max_total}{each}"
        )

    def relation(self, spec: GaussianSpec) -> tuple[str, ...]:
        return (
            PACKED.format("item"),
            f"{RELATION}to swap someone for someone else, or to flip the sign of a weight: the shift doubles, so every "
            "mu^2 below becomes four times as large",
        )

    def assumes(self, spec: GaussianSpec, ledger: SketchHistory, context: Context) -> tuple[str, ...]:
        exact = spec.calibration.route == "exact"
        how = "summed exactly for every shift" if exact else "bounded by a rounded Gaussian nearby"
        lines = [
            f"delta of the discrete noise: {how}; sigma2 {loss_number(spec.sigma2)} in squared units of "
            f"{loss_number(spec.step)}"
        ]
        if spec.total_share:
            lines.append(
                f"counters beside the slots have {loss_number(spec.total_share)} of every mu^2; they are in it"
            )
        return (*assumptions(spec, context, "and (epsilon, delta)"), *lines)

    # Updates and states.

    def index(self, spec: GaussianSpec, key: Key | None, keep: Flags | None, origin: Origin | None = None) -> Index:
        """A slot for each item; weights are added in lattice units, wrapping."""
        slots = Index.build(spec.domain, key if spec.needs_key else None, keep)
        return replace(slots, max_weight=spec.lattice.most, units=partial(lattice_weights, spec))

    # Publications.

    def require_state(self, spec: GaussianSpec, slots: int, body: npt.NDArray[Any]) -> None:
        Kind.require_state(self, spec, slots, body)
        if slots > spec.domain.size:
            raise FormatError(f"a sketch of this spec has at most {spec.domain.size} slots, found {slots}")

    # Answers.

    def rows(self, spec: GaussianSpec) -> AnswerRows:
        """One row for each slot, with its count as published; ranks are those of the largest."""
        types: Types = {**USUAL, "slot": "int64", "raw": "float64", "rank": "int64"}
        return AnswerRows(("slot", "item", *USUAL, "raw"), types=types)

    def expected_error(self, spec: GaussianSpec) -> tuple[str, float]:
        return "count", float(spec.step) * math.sqrt(sum(map(gaussian_variance, spec.published_variances)))

    def estimate(
        self,
        published: Published,
        *,
        items: Sequence[Item] | None = None,
        kept: Sequence[Flags] | None = None,
        **options: Any,
    ) -> GaussianEstimate:
        """See `GaussianEstimate`.

        Args:
            items: items of a listed domain, whose names are not in published bytes.
            kept: (size,) bool of each part, its items; for parts without a slot for every item.
        """
        from sketchstream.kinds.gaussian.answers import GaussianEstimate

        require_options(self.name, options.keys() - {"method"}, OPTIONS)
        spec = published.spec if items is None else self.read_spec(published.spec.to_dict(), items)
        parts = [(part.numbers, (*sorted(part.layers), *part.fresh)) for part in parts_of(self, published)]
        state, variances, positions = join_parts(spec, parts, kept)
        return GaussianEstimate(spec, variances, state, positions=positions, **options).computed_from(published)


def lattice_weights(spec: GaussianSpec, weights: object, n: int, *, alone: bool) -> object:
    """(n,) int32 or int64 weights in lattice units, or None for ones; an invalid one becomes larger than the largest.

    Args:
        alone: whether to keep invalid ones, which its batch then skips.

    Raises:
        WeightError: a weight is invalid, unless `alone`; gives the position, never the weight.
    """
    lattice = spec.lattice
    if lattice.bits == 0:  # as they are, without a copy
        as_they_are = isinstance(weights, np.ndarray) and weights.ndim == 1 and weights.dtype in (np.int32, np.int64)
        if weights is None or as_they_are:
            return weights
    units, good = in_units(lattice, weights, n)
    if good.all():
        return units
    valid_events(np.zeros(n, np.bool_), good, "noop" if alone else "skip", lattice.max_weight, hint=hint_of(lattice))
    return np.where(good, units, lattice.most + 1)


def join_parts(
    spec: GaussianSpec, parts: Sequence[tuple[Ints, Variances]], kept: Sequence[Flags] | None = None
) -> tuple[Ints, Variances, Ints | None]:
    """Join the parts of a stack, or a single part, into one vector.

    The count of an item in several parts is the sum of its counts.

    Args:
        kept: (size,) bool of each part, the items that have slots in it; None: all parts have all items.

    Returns:
        (n,) int64, noise included; parameters of all noise in each count; (n,) int64, ascending, the item of each
        count by its place in the domain, or None: all items.
    """
    size = spec.domain.size
    if kept is None:
        if any(len(state) != size for state, _ in parts):
            raise EstimateError(
                "this part has slots for some items of the domain: say which, with kept=[mask, ...], one (size,) bool "
                "array for each part; `sketchstream estimate -c` does so"
            )
        kept = [np.ones(size, np.bool_)] * len(parts)
    if len(kept) != len(parts) or any(
        mask.dtype != np.bool_ or mask.shape != (size,) or int(mask.sum()) != len(state)
        for mask, (state, _) in zip(kept, parts, strict=False)
    ):
        raise EstimateError(
            f"kept must be one bool array of {size} entries for each of {len(parts)} parts, true for its slots"
        )
    total = np.zeros(size, np.int64)
    distinct = sorted({variance for _, variances in parts for variance in variances})
    times = np.zeros((len(distinct), size), np.int64)  # how often each variance is in the noise of each count
    for mask, (state, variances) in zip(kept, parts, strict=True):
        total[mask] += state
        times[:, mask] += np.array([[variances.count(variance)] for variance in distinct])
    has = times.any(axis=0)
    if not has.any() or (times[:, has] != times[:, has][:, :1]).any():
        raise EstimateError(
            "the counts of this stack have different noise: its parts were made with different epsilon, or items lie "
            "in several of them; estimate its parts one by one"
        )
    number = times[:, has.argmax()].tolist()
    variances = tuple(variance for variance, n in zip(distinct, number, strict=True) for _ in range(n))
    return (total, variances, None) if has.all() else (total[has], variances, np.flatnonzero(has))


KIND: Final = GaussianKind()
