"""Which noise a workload gets: Gaussian, Laplace or the ball's, by the error that each would have.

In: a workload, exact privacy parameters, the unit's weight. Out: a mechanism's name with its strategy; the law and the
variance of a layer. Touches: nothing.
Source: Balle & Wang 2018 (calibration); docs/theory/workload.md, sections 5 and 7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal

import numpy as np

from sketchstream.errors import SpecError
from sketchstream.kinds.workload import pure
from sketchstream.kinds.workload.ball import MAX_RANK as BALL_RANK
from sketchstream.kinds.workload.ellipsoid import paper_shape, plain_shape
from sketchstream.kinds.workload.factors import Floats
from sketchstream.kinds.workload.optimise import MAX_RANK, TOLERANCE, optimise, reduce
from sketchstream.kinds.workload.queries import Workload
from sketchstream.kinds.workload.strategy import Strategy, from_matrix, from_shape
from sketchstream.privacy.calibration.continuous import sigma_for
from sketchstream.privacy.calibration.discrete import verify_discrete
from sketchstream.spec import require_choice

Mechanism = Literal["auto", "gaussian", "laplace", "l2ball", "paper", "plain"]
LawName = Literal["discrete-gaussian", "discrete-laplace", "discrete-ball"]

MECHANISMS: Final = ("auto", "gaussian", "laplace", "l2ball", "paper", "plain")
TIE: Final = 1.05
"""Gaussian noise is taken up to this factor above the best other one: it composes better."""
SLACK: Final = 4
"""Added to the variance of a Gaussian layer: pays for the lattice in any dimension (docs/theory/workload.md, 7)."""
MARGIN: Final = Fraction(1, 1 << 40)
"""Relative amount of epsilon and delta that is left to the lattice."""


@dataclass(frozen=True)
class Law:
    """The law of one layer of noise, as data.

    Args:
        name: "discrete-gaussian", "discrete-laplace" (both independent in each counter) or "discrete-ball" (joint).
        parameter: sigma2 of the Gaussian law; epsilon / (W Delta1) of the Laplace law; the square of the rate,
            epsilon^2 / (W^2 D2), of the ball's law.
        length: counters.
    """

    name: LawName
    parameter: Fraction
    length: int

    @property
    def variance(self) -> float:
        """Variance of one counter's noise; an upper bound, tight to 1e-9 if the noise spreads over many integers."""
        if self.name == "discrete-gaussian":
            return float(self.parameter)
        if self.name == "discrete-laplace":
            return pure.laplace_variance(self.parameter, 1)
        return (self.length + 1) / float(self.parameter)

    @property
    def shape(self) -> float:
        """Number of Laplace variables whose mean has as heavy tails as one counter's noise; inf for Gaussian noise."""
        if self.name == "discrete-gaussian":
            return math.inf
        return 1.0 if self.name == "discrete-laplace" else (self.length + 1) / 2


@dataclass(frozen=True)
class Candidate:
    """A mechanism that was considered.

    Args:
        mechanism: its name.
        strategy: matrix from cells to counters.
        error: predicted objective for weights of 1: the variances' sum, or the largest, of one layer.
    """

    mechanism: Mechanism
    strategy: Strategy
    error: float


REMEMBERED: Final = 8
"""Choices that are remembered: a configuration that is read again must not search again."""
_CHOSEN: dict[tuple[object, ...], Candidate] = {}


def layer_law(
    mechanism: Mechanism, strategy: Strategy, epsilon: Fraction, delta: Fraction, weight: int, *, looks: int = 2
) -> Law:
    """The law of one layer of noise.

    Args:
        mechanism: not "auto".
        strategy: matrix from cells to counters.
        epsilon: privacy of the layer.
        delta: privacy of the layer; 0 only for "laplace" and "l2ball".
        weight: the unit's weight, W.
        looks: views over which one unit can spread its shift, for the dimension of the lattice's correction.

    Raises:
        SpecError: no noise within the limits is private enough.
    """
    if mechanism == "laplace":
        return Law("discrete-laplace", epsilon / (weight * strategy.sensitivity1), strategy.length)
    square = strategy.sensitivity2 * weight * weight
    if mechanism == "l2ball":
        return Law("discrete-ball", epsilon * epsilon / square, strategy.length)
    sigma2 = _verified_variance(epsilon, delta, square, looks * strategy.length)
    return Law("discrete-gaussian", sigma2, strategy.length)


@lru_cache(maxsize=256)
def _verified_variance(epsilon: Fraction, delta: Fraction, square: int, coordinates: int) -> Fraction:
    """Variance of a Gaussian layer on the integers for a shift of this squared length, verified."""
    sigma2 = Fraction(math.ceil(unit_variance(epsilon * (1 - MARGIN), delta * (1 - MARGIN)) * square)) + SLACK
    verify_discrete(epsilon, delta, sigma2, sensitivity2=square, coordinates=coordinates)
    return sigma2


def unit_variance(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Variance of Gaussian noise on the reals for L2 sensitivity 1, never too small.

    Args:
        epsilon: privacy.
        delta: privacy.
    """
    sigma = sigma_for(np.array([float(epsilon)]), np.array([float(delta)]), np.ones(1))
    return Fraction(float(sigma[0])) ** 2


def choose(
    workload: Workload,
    mechanism: Mechanism,
    epsilon: Fraction,
    delta: Fraction,
    *,
    weight: int = 1,
    objective: str = "total",
    row_weights: Floats | None = None,
    tolerance: float = TOLERANCE,
) -> Candidate:
    """The mechanism and its strategy; "auto" takes the one with the smallest predicted error.

    Args:
        workload: the queries.
        mechanism: which, or "auto".
        epsilon: privacy of a layer.
        delta: privacy of a layer.
        weight: the unit's weight, W.
        objective: "total" or "max".
        row_weights: (d,) importance of each query.
        tolerance: of the optimiser.

    Raises:
        SpecError: a mechanism that does not exist, or does not apply.
    """
    given = None if row_weights is None else row_weights.tobytes()
    name = (workload.digest, mechanism, epsilon, delta, weight, objective, given, tolerance)
    if name in _CHOSEN:
        return _CHOSEN[name]
    tried = candidates(
        workload,
        mechanism,
        epsilon,
        delta,
        weight=weight,
        objective=objective,
        row_weights=row_weights,
        tolerance=tolerance,
    )
    best = min(tried, key=lambda one: one.error)
    first = tried[0]
    chosen = first if first.mechanism == "gaussian" and first.error <= TIE * best.error else best
    while len(_CHOSEN) >= REMEMBERED:
        del _CHOSEN[next(iter(_CHOSEN))]
    return _CHOSEN.setdefault(name, chosen)


def candidates(
    workload: Workload,
    mechanism: Mechanism,
    epsilon: Fraction,
    delta: Fraction,
    *,
    weight: int = 1,
    objective: str = "total",
    row_weights: Floats | None = None,
    tolerance: float = TOLERANCE,
) -> list[Candidate]:
    """Every mechanism and strategy that may be the best, with its predicted error.

    Args:
        workload: the queries.
        mechanism: which, or "auto".
        epsilon: privacy of a layer.
        delta: privacy of a layer.
        weight: the unit's weight, W.
        objective: "total" or "max".
        row_weights: (d,) importance of each query.
        tolerance: of the optimiser.

    Raises:
        SpecError: a mechanism that does not exist, or does not apply.
    """
    require_choice(mechanism, "mechanism", MECHANISMS)
    if delta == 0 and mechanism in ("gaussian", "plain", "paper"):
        msg = "delta must be > 0 for Gaussian noise; use mechanism='laplace' or 'l2ball'"
        raise SpecError(msg)
    if mechanism in ("paper", "plain"):
        reduced = reduce(workload)
        shape = paper_shape(reduced) if mechanism == "paper" else plain_shape(reduced)
        made = from_shape(workload, shape)
        return [Candidate(mechanism, made, _gaussian_error(shape.upper, epsilon, delta, weight))]
    tried: list[Candidate] = []
    if mechanism == "laplace":
        rank = reduce(workload).rank
        tried += laplace_candidates(workload, rank, epsilon, weight, objective, row_weights)
    if mechanism in ("auto", "gaussian", "l2ball"):
        shape = optimise(workload, objective=objective, row_weights=row_weights, tolerance=tolerance)
        rank = shape.reduced.rank
        if mechanism == "l2ball" and rank > BALL_RANK:
            msg = f"mechanism 'l2ball' needs a workload of rank {BALL_RANK} at most, found {rank}; use 'laplace'"
            raise SpecError(msg)
        made = from_shape(workload, shape, objective=objective, row_weights=row_weights)
        if mechanism != "l2ball" and delta > 0:
            error = _gaussian_error(shape.upper, epsilon, delta, weight)
            tried.insert(0, Candidate("gaussian", made, error))
        if mechanism == "auto":
            tried += laplace_candidates(workload, rank, epsilon, weight, objective, row_weights)
        if mechanism != "gaussian" and rank <= BALL_RANK:
            error = (rank + 1) * shape.upper * weight * weight / float(epsilon) ** 2
            tried.append(Candidate("l2ball", made, error))
    if not tried:
        msg = f"Laplace noise needs a workload of at most {MAX_RANK} cells, found {workload.size}; use 'gaussian'"
        raise SpecError(msg)
    return tried


def laplace_candidates(
    workload: Workload, rank: int, epsilon: Fraction, weight: int, objective: str, row_weights: Floats | None
) -> list[Candidate]:
    """The Laplace strategies that fit the workload, with their errors; the best tree only.

    Args:
        workload: the queries.
        rank: of the workload.
        epsilon: privacy of a layer.
        weight: the unit's weight.
        objective: "total" or "max".
        row_weights: (d,) importance of each query.
    """
    size = workload.size
    if size > MAX_RANK:
        return []
    gram = workload.gram()
    made = [from_matrix(workload, np.eye(size, dtype=np.int64), "identity", rank=rank)]
    if workload.integer and workload.writable and workload.count <= MAX_RANK:
        made.append(from_matrix(workload, workload.dense().astype(np.int64), "queries", rank=rank))
    if len(workload.shape) == 1 and size > 1:
        levels = pure.best_tree(gram)
        if levels:
            made.append(from_matrix(workload, pure.tree_matrix(size, levels), "tree", rank=rank))
    out = []
    for strategy in made:
        noise = pure.laplace_variance(epsilon, weight * strategy.sensitivity1)
        if objective == "total" and row_weights is None:
            error = noise * _total_spread(gram, strategy)
        else:
            variances = workload.variances(strategy.spread) * noise
            error = float(
                variances.max()
                if objective == "max"
                else np.sum(variances if row_weights is None else variances * row_weights)
            )
        out.append(Candidate("laplace", strategy, error))
    return out


def _total_spread(gram: Floats, strategy: Strategy) -> float:
    """Sum of the answers' variances for noise of variance 1 in each counter of a Laplace strategy."""
    if strategy.form == "identity":
        return float(np.trace(gram))
    if strategy.form == "queries":  # least squares projects the noise on a space of that dimension
        return float(strategy.rank)
    floats = strategy.matrix.astype(np.float64)
    return float(np.trace(np.linalg.solve(floats.T @ floats, gram)))


def _gaussian_error(objective: float, epsilon: Fraction, delta: Fraction, weight: int) -> float:
    """The objective with a Gaussian layer's variance."""
    return objective * float(unit_variance(epsilon, delta)) * weight * weight
