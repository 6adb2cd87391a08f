"""What an observer of a projection can do: rows with the largest loss, exact deltas, the bounds that the paper has.

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

from sketchstream.array_types import Floats
from sketchstream.errors import SpecError
from sketchstream.kinds.projection.calibration import (
    LATTICE_MARGIN,
    _check_arguments,
    _least,
    secret_delta,
    verify_public,
    verify_secret,
)
from sketchstream.kinds.projection.matrices.matrix import Matrix
from sketchstream.kinds.projection.matrices.sensitivity import _blocks
from sketchstream.kinds.projection.mechanism import row_norm2, sensitivity2, unit_shift
from sketchstream.kinds.projection.spec import ProjectionSpec
from sketchstream.privacy.calibration.continuous import calibrate, check_epsilon
from sketchstream.privacy.calibration.discrete import verify_parts
from sketchstream.privacy.calibration.divergence import log_divergence
from sketchstream.spec import Rational, checked_int

Ints = npt.NDArray[np.int64]

PANELS, NODES, MIX_INFLATION = 60, 16, 1e-8


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
        epsilon: epsilon of the claim.
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


def paper_theorem_1_as_printed(epsilon: Rational, delta: Rational, k: int) -> float:
    """Sigma of the paper's Theorem 1 as it is typeset, which is too small: for the demonstration that it fails.

    Args:
        epsilon: above 0.
        delta: from 1e-300 to 0.5.
        k: columns.
    """
    eps, target, k = _check_arguments(epsilon, delta, k)
    log2 = math.log(2 / target)
    inner = 2 * (math.log(1 / (2 * target)) + eps)
    return math.sqrt((k + 2 * math.sqrt(k * log2) + 2 * log2 * math.sqrt(inner) / eps) / k)


def paper_theorem_2(epsilon: Rational, delta: Rational, k: int) -> float:
    """Sigma of the paper's Theorem 2, corrected: far too large, it composes k mechanisms; for comparison.

    Args:
        epsilon: above 0.
        delta: from 1e-300 to 0.5.
        k: columns.
    """
    eps, target, k = _check_arguments(epsilon, delta, k)
    base = 2 * k * math.log(2 / target)
    one = (math.sqrt(base + 8 * k * eps) - math.sqrt(base)) / (4 * k)
    return math.sqrt(4 * math.log(4 * k / target) * (math.log(2 * k / target) + one) / k) / one


def verify(spec: ProjectionSpec, epsilon: Fraction, delta: Fraction, parameter: Fraction) -> float:
    """An upper bound of the delta of one layer with this parameter, counters included, which is at most `delta`.

    Args:
        spec: spec of the sketch.
        epsilon: epsilon of the layer.
        delta: delta of the layer.
        parameter: sigma2 of the layer, lattice units.

    Raises:
        SpecError: the noise is too small.
    """
    if spec.matrix_seed == "secret":
        return verify_secret(epsilon, delta, row_norm2(spec), spec.k, spec.entry_variance, parameter)
    if not spec.counted_share:
        return verify_public(epsilon, delta, sensitivity2(spec), spec.k, parameter)
    parts = [(part.sensitivity2, part.coordinates, part.share) for part in unit_shift(spec).components]
    return verify_parts(epsilon, delta, parameter, parts).delta


def secret_loss_delta(spec: ProjectionSpec, epsilon: Fraction, parameter: Fraction, views: Fraction) -> float:
    """An upper bound of delta for a secret matrix and several views.

    Args:
        spec: with matrix_seed "secret".
        epsilon: at least 0.
        parameter: sigma2 of the layer to which the views are compared, lattice units.
        views: the ladder's mu^2 over that of this layer alone: 1 for the layer alone, 1/2 for the default publication.

    Source: docs/theory/projection.md, theorem 5.
    """
    if spec.matrix_seed != "secret":
        msg = "secret_loss_delta is for matrix_seed = 'secret'; take the ledger's loss for a public matrix"
        raise SpecError(msg)
    return secret_delta(epsilon * (1 - LATTICE_MARGIN), row_norm2(spec) * views, spec.k, spec.entry_variance, parameter)


def empty_state(spec: ProjectionSpec) -> Ints:
    """(users, k) int64 zeros: a state before its first layer."""
    return np.zeros(spec.shape, np.int64)


def mixture_delta(epsilon: Rational, scale: float, k: int) -> float:
    """The delta of a secret Gaussian matrix: the mean of D(epsilon, scale sqrt c) over c ~ chi^2 with k degrees.

    Args:
        epsilon: at least 0.
        scale: the norm of the difference of two rows over sqrt(k) sigma; above 0.
        k: columns.

    Source: docs/theory/projection.md, theorem 3.
    """
    from scipy.special import gammaln

    eps = float(check_epsilon(epsilon))
    k = checked_int(k, "k", 1, 1 << 40)
    low, high = max(0.0, math.sqrt(k) - 14), math.sqrt(k) + 16
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    half = (high - low) / PANELS / 2
    centres = low + half * (2 * np.arange(PANELS) + 1)
    r = (centres[:, None] + half * nodes).reshape(-1)
    log_density = (k - 1) * np.log(r) - r * r / 2 - (k / 2 - 1) * math.log(2) - gammaln(k / 2)
    with np.errstate(under="ignore"):
        terms = np.exp(log_divergence(np.full_like(r, eps), scale * r) + log_density)
    return math.fsum((np.tile(weights, PANELS) * half * terms).tolist())


def mixture(epsilon: Rational, delta: Rational, k: int) -> float:
    """The smallest sigma for a secret matrix with Gaussian entries: necessary and sufficient.

    Args:
        epsilon: at least 0.
        delta: from 1e-300 to 0.5.
        k: columns.

    Returns:
        Sigma in JL units for rows of norm 1; at most a relative 2e-8 too large.
    """
    eps, target, k = _check_arguments(epsilon, delta, k)
    root = math.sqrt(k)
    found = _least(
        lambda log_sigma: mixture_delta(eps, math.exp(-log_sigma) / root, k),
        target,
        math.log(calibrate(eps, target)) - 1e-6,
        math.log(split(eps, target, k)) + 1e-6,
    )
    return found * (1 + MIX_INFLATION)


def split(epsilon: Rational, delta: Rational, k: int) -> float:
    """Sigma by a quantile of the sensitivity: part of delta for a longer projection, the rest for the noise.

    Sufficient for a secret matrix; for comparison.

    Args:
        epsilon: at least 0.
        delta: from 1e-300 to 0.5.
        k: columns.
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import gammainccinv

    eps, target, k = _check_arguments(epsilon, delta, k)

    def sigma(logit: float) -> float:
        share = 1 / (1 + math.exp(-logit))
        longest = 2 * float(gammainccinv(k / 2, target * share))
        return calibrate(eps, target * (1 - share), math.sqrt(longest / k))

    return float(minimize_scalar(sigma, bounds=(-25.0, 12.0), method="bounded", options={"xatol": 1e-9}).fun)


def top_direction(matrix: Matrix) -> Floats:
    """(d,) the unit vector z for which the norm of z R is largest: the worst difference of two rows."""
    gram = np.zeros((matrix.columns, matrix.columns))
    for block in _blocks(matrix):
        gram += block.T @ block
    right = np.linalg.eigh(gram)[1][:, -1]
    out: Floats = np.concatenate([block @ right for block in _blocks(matrix)])
    return out / np.linalg.norm(out)
