"""Which noise a workload gets: Gaussian, Laplace or the ball's, by the error that each would have.

In: a workload, exact privacy parameters, the unit's weight. Out: a mechanism's name with its strategy; the law and the
variance of a layer. Touches: nothing.
Source: Balle & Wang 2018 (calibration); docs/theory/workload.md, sections 5 and 7.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal

import numpy as np

from sketchstream.errors import SpecError
from sketchstream.kinds.linear.causal import LONGEST_ROOT
from sketchstream.kinds.workload.queries.factors import Floats
from sketchstream.kinds.workload.queries.queries import Workload
from sketchstream.kinds.workload.strategies import pure
from sketchstream.kinds.workload.strategies.ball import MAX_RANK as BALL_RANK
from sketchstream.kinds.workload.strategies.ellipsoid import paper_shape, plain_shape
from sketchstream.kinds.workload.strategies.implicit import implicit_strategies
from sketchstream.kinds.workload.strategies.optimise import MAX_RANK, optimise, reduce, too_large
from sketchstream.kinds.workload.strategies.projection import FAR, all_nearest, stretched
from sketchstream.kinds.workload.strategies.strategy import (
    MOST_SPREAD,
    Strategy,
    causal,
    causal_total,
    causal_width,
    from_matrix,
    from_shape,
    objective_value,
)
from sketchstream.noise.laws import DiscreteLaplace
from sketchstream.privacy.calibration.continuous import sigma_for
from sketchstream.privacy.calibration.discrete import verify_discrete
from sketchstream.spec import require_choice

Mechanism = Literal["auto", "gaussian", "laplace", "l2ball", "paper", "plain"]
LawName = Literal["discrete-gaussian", "discrete-laplace", "discrete-ball"]

MECHANISMS: Final = ("auto", "gaussian", "laplace", "l2ball", "paper", "plain")
TIE: Final = 1.03
"""Gaussian noise is taken up to this factor above the best other one: it composes better."""
SLACK: Final = 4
"""Added to the variance of a Gaussian layer: pays for the lattice in any dimension (docs/theory/workload.md, 7)."""
MARGIN: Final = Fraction(1, 1 << 40)
"""Relative amount of epsilon and delta that is left to the lattice."""


@dataclass(frozen=True)
class LayerLaw:
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
            return DiscreteLaplace(self.parameter).variance
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


OPTIMISED: Final = 512
"""Cells up to which mechanism "gaussian" searches the best covariance of prefixes and trailing sums."""
HOPELESS: Final = 8.0
"""Candidates whose error before projection is above so many times the least are not tried with it."""
MOST_TRIED: Final = 1 << 17
"""Entries of a strategy up to which candidates are tried on invented tables."""
MANY: Final = (100, 1000, 10_000)
"""Numbers of individuals that are tried where none is known."""
TRIED_GAP: Final = 0.05
TRIED_STEPS: Final = 30
"""Projections of invented tables stop at this gap, over the noise, and after these steps at the latest."""
DRAWN: Final = 8
"""Invented tables of each population and number of individuals."""
REMEMBERED: Final = 8
"""Choices that are remembered: a configuration that is read again must not search again."""
_CHOSEN: dict[tuple[object, ...], Candidate] = {}


def layer_law(
    mechanism: Mechanism, strategy: Strategy, epsilon: Fraction, delta: Fraction, weight: int, *, looks: int = 2
) -> LayerLaw:
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
        return LayerLaw("discrete-laplace", epsilon / (weight * strategy.sensitivity1), strategy.length)
    square = strategy.sensitivity2 * weight * weight
    if mechanism == "l2ball":
        return LayerLaw("discrete-ball", epsilon * epsilon / square, strategy.length)
    sigma2 = _verified_variance(epsilon, delta, square, looks * strategy.length)
    return LayerLaw("discrete-gaussian", sigma2, strategy.length)


@lru_cache(maxsize=256)
def _verified_variance(epsilon: Fraction, delta: Fraction, square: int, coordinates: int) -> Fraction:
    """Variance of a Gaussian layer on the integers for a shift of this squared length, verified."""
    sigma2 = Fraction(math.ceil(unit_variance(epsilon * (1 - MARGIN), delta * (1 - MARGIN)) * square)) + SLACK
    verify_discrete(epsilon, delta, sigma2, sensitivity2=square, coordinates=coordinates)
    return sigma2


def unit_variance(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Variance of Gaussian noise on the reals for L2 sensitivity 1, never too small."""
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
    n_bound: int | None = None,
) -> Candidate:
    """The mechanism and its strategy; "auto" takes the one with the smallest predicted error, as answers are given.

    Args:
        workload: the queries.
        mechanism: which, or "auto".
        epsilon: privacy of a layer.
        delta: privacy of a layer.
        weight: the unit's weight, W.
        objective: "total" or "max".
        row_weights: (d,) importance of each query.
        n_bound: most individuals, if that is known.

    Raises:
        SpecError: a mechanism that does not exist, or does not apply.
    """
    given = None if row_weights is None else row_weights.tobytes()
    name = (workload.digest, mechanism, epsilon, delta, weight, objective, given, n_bound)
    if name in _CHOSEN:
        return _CHOSEN[name]
    tried = candidates(workload, mechanism, epsilon, delta, weight=weight, objective=objective, row_weights=row_weights)
    errors = [one.error for one in tried]
    if mechanism == "auto" and objective == "total" and row_weights is None:
        errors = projected_errors(workload, tried, epsilon, delta, weight, n_bound)
    gaussian = tried[0].mechanism == "gaussian" and errors[0] <= TIE * min(errors)
    chosen = tried[0] if gaussian else tried[int(np.argmin(errors))]
    while len(_CHOSEN) >= REMEMBERED:
        del _CHOSEN[next(iter(_CHOSEN))]
    return _CHOSEN.setdefault(name, chosen)


def projected_errors(
    workload: Workload, tried: list[Candidate], epsilon: Fraction, delta: Fraction, weight: int, n_bound: int | None
) -> list[float]:
    """The errors that the candidates' projected answers have on invented tables; infinite where it is sure to be large.

    Invented tables are uniform, concentrated and smooth, of `n_bound` individuals or of several numbers of them. They
    are made from digests, so that all readers of a configuration choose alike. Nothing here is ever published.
    """
    near = [one for one in tried if one.error <= HOPELESS * min(other.error for other in tried)]
    if len(near) == 1 or max(one.strategy.length * one.strategy.size for one in near) > MOST_TRIED:
        return [one.error for one in tried]
    numbers = MANY if n_bound is None else (n_bound,)
    truths = np.concatenate([_invented(workload.size, n) for n in numbers])
    counts = np.repeat(np.array(numbers, np.float64), len(truths) // len(numbers))
    laws = [layer_law(one.mechanism, one.strategy, epsilon, delta, weight) for one in tried]
    return [
        _projected(workload, one, truths, counts, law, n_bound) if one in near else math.inf
        for one, law in zip(tried, laws, strict=True)
    ]


def _projected(
    workload: Workload, one: Candidate, truths: Floats, counts: Floats, law: LayerLaw, n_bound: int | None
) -> float:
    """A candidate's error after projection: its known one before, times what projection leaves of the same noise."""
    from scipy.special import ndtri

    strategy, deviation = one.strategy, math.sqrt(law.variance)
    even = _even("noise", len(truths) * law.length).reshape(len(truths), law.length)
    if law.name == "discrete-laplace":
        drawn = -np.sign(even - 0.5) * np.log1p(-np.abs(2 * even - 1)) / math.sqrt(2)
    else:
        drawn = ndtri(even)
    states = truths @ strategy.matrix.T + deviation * drawn
    starts = strategy.estimate(states.T).T
    bounds = counts
    if float(np.abs(strategy.backwards @ strategy.matrix - 1).max()) < 1e-8:  # the total is known, as answers do it
        more = 0.0 if n_bound is None else deviation * float(np.linalg.norm(strategy.backwards))
        most = np.maximum(starts.sum(axis=1) + more, 0.5)
        bounds = most if n_bound is None else np.minimum(counts, most)
    gram = workload.gram() if workload.size <= MOST_SPREAD else None  # of many cells it may be too large for memory
    tolerance = TRIED_GAP * law.variance * law.length

    def squares(off: Floats) -> Floats:
        if gram is None:
            return np.array([float(np.sum(workload.apply(one) ** 2)) for one in off])
        return np.asarray(np.einsum("ij,ij->i", off @ gram, off))

    found = all_nearest(states, strategy.matrix.astype(np.float64), bounds, starts, tolerance, TRIED_STEPS)[0]
    far = squares(found - starts) > FAR * one.error
    if far.any():
        left, columns = stretched(workload, strategy, "both", one.error / law.variance)
        points = states if left is None else states @ left.T
        found[far] = all_nearest(points[far], columns, bounds[far], starts[far], tolerance, TRIED_STEPS)[0]
    after, before = squares(found - truths), squares(starts - truths)
    shares = [float(after[counts == n].sum() / before[counts == n].sum()) for n in np.unique(counts)]
    return one.error * math.exp(float(np.log(shares).mean()))


def _even(name: str, count: int) -> Floats:
    """(count,) numbers between 0 and 1 that look random and are the same everywhere; for invented tables only."""
    words = np.frombuffer(hashlib.shake_256(name.encode()).digest(8 * count), "<u8") >> np.uint64(12)
    return np.asarray((words.astype(np.float64) + 0.5) / 2.0**52)


def _invented(size: int, n: int) -> Floats:
    """(t, N) tables of about n individuals: several of each of three populations."""
    place = np.arange(size) / size
    zipf = 1 / (1.0 + np.argsort(_even("order", size), kind="stable"))
    shares = np.array([np.ones(size), zipf, np.exp(-(((place - 0.3) / 0.15) ** 2)) + 0.02])
    means = np.repeat(n * shares / shares.sum(axis=1)[:, None], DRAWN, axis=0)
    return np.floor(means + _even(f"table {n}", means.size).reshape(means.shape))


def candidates(
    workload: Workload,
    mechanism: Mechanism,
    epsilon: Fraction,
    delta: Fraction,
    *,
    weight: int = 1,
    objective: str = "total",
    row_weights: Floats | None = None,
) -> list[Candidate]:
    """Every mechanism and strategy that may be the best, with its predicted error; see `choose`."""
    require_choice(mechanism, "mechanism", MECHANISMS)
    if delta == 0 and mechanism in ("gaussian", "plain", "paper"):
        msg = "delta must be > 0 for Gaussian noise; use mechanism='laplace' or 'l2ball'"
        raise SpecError(msg)
    tried: list[Candidate] = []
    width = causal_width(workload) if objective == "total" and row_weights is None else 0
    if too_large(workload) and not (width and mechanism != "laplace"):
        if mechanism not in ("auto", "gaussian", "laplace"):
            msg = (
                f"mechanism {mechanism!r} needs a matrix of the queries, and {workload.count} x {workload.size} are too"
            )
            msg += " many to write out; use 'auto', 'gaussian' or 'laplace'"
            raise SpecError(msg)
        for strategy in implicit_strategies(workload, epsilon / weight):
            spread = objective_value(strategy.variances, objective, row_weights)
            if delta > 0 and mechanism != "laplace":
                error = _gaussian_error(spread * strategy.sensitivity2, epsilon, delta, weight)
                tried.append(Candidate("gaussian", strategy, error))
            if mechanism != "gaussian":
                noise = DiscreteLaplace(epsilon / (weight * strategy.sensitivity1)).variance
                tried.append(Candidate("laplace", strategy, spread * noise))
        return sorted(tried, key=lambda one: (one.mechanism, one.error))
    if mechanism in ("paper", "plain"):
        reduced = reduce(workload)
        shape = paper_shape(reduced) if mechanism == "paper" else plain_shape(reduced)
        made = from_shape(workload, shape)
        return [Candidate(mechanism, made, _gaussian_error(shape.upper, epsilon, delta, weight))]
    if mechanism == "laplace":
        rank = workload.size if causal_width(workload) else reduce(workload).rank
        tried += laplace_candidates(workload, rank, epsilon, weight, objective, row_weights)
    least = {"auto": BALL_RANK, "gaussian": OPTIMISED}.get(mechanism, LONGEST_ROOT)
    if width and workload.size > least:
        # The best covariance has at most 2.5% less variance, takes minutes from thousands of cells on, and its last
        # digits depend on the machine.
        if delta > 0:
            made = causal(workload)
            tried.append(Candidate("gaussian", made, _gaussian_error(causal_total(made), epsilon, delta, weight)))
        if mechanism == "auto":
            tried += laplace_candidates(workload, workload.size, epsilon, weight, objective, row_weights)
    elif mechanism in ("auto", "gaussian", "l2ball"):
        shape = optimise(workload, objective=objective, row_weights=row_weights)
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
    """The Laplace strategies that fit the workload, with their errors; the best tree only."""
    size = workload.size
    if size > MAX_RANK:
        return []
    gram = workload.gram()
    made = [from_matrix(workload, np.eye(size, dtype=np.int64), "identity", rank=rank)]
    if workload.integer and workload.writable and workload.count <= MAX_RANK:
        made.append(from_matrix(workload, workload.dense().astype(np.int64), "queries", rank=rank))
    if len(workload.shape) == 1 and size > 1:
        levels = pure.best_tree(gram, epsilon / weight)
        if len(levels) > 1:
            made.append(from_matrix(workload, pure.tree_matrix(size, levels), "tree", rank=rank))
    out = []
    for strategy in made:
        noise = DiscreteLaplace(epsilon / (weight * strategy.sensitivity1)).variance
        if objective == "total" and row_weights is None:
            error = noise * _total_spread(gram, strategy)
        else:
            error = objective_value(workload.variances(strategy.spread) * noise, objective, row_weights)
        out.append(Candidate("laplace", strategy, error))
    return out


def _total_spread(gram: Floats, strategy: Strategy) -> float:
    """Sum of the answers' variances for noise of variance 1 in each counter of a Laplace strategy."""
    if strategy.form == "identity":
        return float(np.trace(gram))
    if strategy.form == "queries":  # least squares projects the noise on a space of that dimension
        return float(strategy.rank)
    return float(np.vdot(gram, strategy.spread))


def _gaussian_error(objective: float, epsilon: Fraction, delta: Fraction, weight: int) -> float:
    """The objective with a Gaussian layer's variance."""
    return objective * float(unit_variance(epsilon, delta)) * weight * weight
