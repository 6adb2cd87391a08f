"""Audit of a public matrix: the rows with the largest loss, and how well an observer detects them.

In: a `ProjectionSpec`. Out: integer rows that a unit may add, the shift each causes, lower bounds of delta.
Touches: nothing.
Source: docs/theory/projection.md, section 2 (rows that attain the sensitivity).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from sketchstream.kinds.projection.matrix import Matrix
from sketchstream.kinds.projection.sensitivity import top_direction
from sketchstream.kinds.projection.spec import ProjectionSpec

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Extreme:
    """One row that one unit may add.

    Args:
        name: name of the shift.
        features: (s,) int64, its nonzero entries.
        weights: (s,) int64, lattice units.
        shift2: squared norm of the change of the state, exact.
    """

    name: str
    features: Ints
    weights: Ints
    shift2: int


def extremes(spec: ProjectionSpec, matrix: Matrix) -> list[Extreme]:
    """Rows within the promises of a spec that move the state far.

    One feature with everything; the top singular direction, rounded toward 0; equal weights on the features whose rows
    point the same way as the longest.

    Args:
        spec: the sketch.
        matrix: its matrix, small enough to be kept.
    """
    rows = matrix.all_rows.astype(np.float64)
    unit = 1 << spec.fraction_bits
    single = min(one for one in (spec.max_weight, spec.max_total, spec.max_norm) if one is not None)
    longest = int(np.einsum("ij,ij->i", rows, rows).argmax())
    found = [_extreme("one feature", matrix, np.array([longest]), np.array([math.floor(single * unit)]))]
    if spec.max_norm is not None:
        top = top_direction(matrix)
        if spec.max_features is not None and spec.max_features < len(top):
            kept = np.argsort(-np.abs(top))[: spec.max_features]
            sparse = np.zeros_like(top)
            sparse[kept] = top[kept]
            top = sparse / np.linalg.norm(sparse)
        allowed = Fraction(min(spec.max_norm, spec.max_total or spec.max_norm))
        z = np.trunc(top * float(allowed * unit)).astype(np.int64)
        found.append(_extreme("top singular direction", matrix, np.flatnonzero(z), z[np.flatnonzero(z)]))
    return [one for one in found if within(spec, one)]


def within(spec: ProjectionSpec, one: Extreme) -> bool:
    """Whether a unit may add this row."""
    unit = 1 << spec.fraction_bits
    sizes = [abs(weight) for weight in one.weights.tolist()]
    total, norm2 = sum(sizes), sum(size * size for size in sizes)
    return bool(
        (spec.max_weight is None or (len(sizes) <= 1 and total <= spec.max_weight * unit))
        and (spec.max_total is None or total <= spec.max_total * unit)
        and (spec.max_norm is None or norm2 <= (spec.max_norm * unit) ** 2)
        and (spec.max_features is None or len(sizes) <= spec.max_features)
    )


def direction(matrix: Matrix, one: Extreme) -> npt.NDArray[np.float64]:
    """(k,) the unit vector on which an observer projects the row's cells to tell whether it was added.

    Args:
        matrix: the sketch's matrix.
        one: the row.
    """
    shift = one.weights.astype(np.float64) @ matrix.rows(one.features).astype(np.float64)
    out: npt.NDArray[np.float64] = shift / np.linalg.norm(shift)
    return out


def delta_lower_bound(
    without: npt.NDArray[np.float64],
    added: npt.NDArray[np.float64],
    epsilon: float,
    threshold: float,
    confidence: float,
) -> float:
    """A lower bound of delta at epsilon from two samples of an observer's statistic.

    Args:
        without: statistics of states without the row.
        added: statistics of states with it.
        epsilon: of the claim.
        threshold: the observer answers "added" above it; chosen independently of these samples.
        confidence: probability with which the bound holds, such as 0.999999.

    Source: Clopper & Pearson 1934 (both proportions, half of the error each).
    """
    from scipy.stats import beta

    half = (1 - confidence) / 2
    hits, false = int(np.count_nonzero(added > threshold)), int(np.count_nonzero(without > threshold))
    low = float(beta.ppf(half, hits, len(added) - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - half, false + 1, len(without) - false)) if false < len(without) else 1.0
    return max(0.0, low - math.exp(epsilon) * high)


def _extreme(name: str, matrix: Matrix, features: Ints, weights: Ints) -> Extreme:
    """The row with the exact squared norm of its shift."""
    rows = matrix.rows(features).astype(np.int64)
    weights = weights.astype(np.int64)
    shift = [sum(w * r for w, r in zip(weights.tolist(), column, strict=True)) for column in rows.T.tolist()]
    return Extreme(name, features.astype(np.int64), weights, sum(one * one for one in shift))
