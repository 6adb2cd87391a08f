"""Which noise a workload gets: Gaussian, Laplace or the ball's, by the error that each would have.

In: a workload, exact privacy parameters, the unit's weight. Out: a mechanism's name with its strategy; the law of a
layer, and its noise. Touches: the states it is given, and entropy.
Source: Balle & Wang 2018 (calibration); Canonne, Kamath & Steinke 2020 (discrete Gaussian); Ghosh, Roughgarden &
Sundararajan 2009 (discrete Laplace); docs/theory/workload.md, sections 5 and 7.

Pure epsilon privacy implies (epsilon, delta) privacy, and where the L1 sensitivity of a good strategy is not much above
its L2 sensitivity, Laplace noise is smaller than Gaussian noise.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal, get_args

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.errors import SpecError
from sketchstream.kinds.linear.causal import MAX_ROOT_POSITIONS
from sketchstream.kinds.linear.tree import Levels, best_levels, tree_matrix
from sketchstream.kinds.workload.queries.queries import Workload
from sketchstream.kinds.workload.strategies.ball import MAX_RANK as BALL_RANK
from sketchstream.kinds.workload.strategies.ball import add_ball_noise
from sketchstream.kinds.workload.strategies.ellipsoid import paper_shape, plain_shape
from sketchstream.kinds.workload.strategies.implicit import implicit_strategies
from sketchstream.kinds.workload.strategies.optimise import MAX_RANK, Objective, optimise, reduce, too_large
from sketchstream.kinds.workload.strategies.projection import MAX_MOVED_SHARE, all_nearest, stretch_metric
from sketchstream.kinds.workload.strategies.strategy import (
    MAX_COVARIANCE_CELLS,
    Strategy,
    causal,
    causal_width,
    from_matrix,
    from_shape,
    objective_value,
)
from sketchstream.noise import discrete_gaussian, discrete_laplace
from sketchstream.noise.entropy import WordSource
from sketchstream.noise.laws import DiscreteLaplace
from sketchstream.privacy.calibration.continuous import sigma_for
from sketchstream.privacy.calibration.discrete import verify_discrete
from sketchstream.spec import require_choice

Mechanism = Literal["auto", "gaussian", "laplace", "l2ball", "paper", "plain"]
LawName = Literal["discrete-gaussian", "discrete-laplace", "discrete-ball"]

MECHANISMS: Final = get_args(Mechanism)
PURE_LAWS: Final[Mapping[str, LawName]] = {"laplace": "discrete-laplace", "l2ball": "discrete-ball"}
"""Law of each mechanism with pure noise; the others are Gaussian."""
GAUSSIAN_TIE: Final = 1.03
"""Gaussian noise is taken if its error is at most this factor above the least one: it composes better."""
LATTICE_COST: Final = 4
"""Amount added to the variance of a Gaussian layer, which pays for the lattice (docs/theory/workload.md, 7)."""
LATTICE_MARGIN: Final = Fraction(1, 1 << 40)
"""Relative amount of epsilon and delta that is left to the lattice; `verify_discrete` checks that it is enough."""
OPTIMISED: Final = 512
"""Cells up to which mechanism "gaussian" searches the best covariance of prefixes and trailing sums, in about 10 s."""
HOPELESS_FACTOR: Final = 8.0
"""Candidates whose error before projection is above 8 times the least are not tried with projection. Measured: the best
candidate lies beyond in 1 of 99 tasks, 30 individuals in 64 cells at epsilon 8."""
MAX_TRIED: Final = 1 << 17
"""Entries of a strategy up to which candidates are tried on invented tables: bounds the time of a choice."""
TRIED_NUMBERS: Final = (100, 1000, 10_000)
"""Numbers of individuals that are tried where none is known: projection helps much with few, little with many."""
TRIED_GAP: Final = 0.05
"""Gap, over the noise, at which projections of invented tables stop. Measured: smaller ones move no error by 3%."""
TRIED_STEPS: Final = 30
"""Steps after which projections of invented tables stop at the latest; see `TRIED_GAP`."""
TABLES_OF_EACH: Final = 8
"""Invented tables of each population and number of individuals. Measured: with 64 no error moves by more than 13%."""
CHOICES_REMEMBERED: Final = 8
"""Choices that are remembered: a configuration that is read again must not search again."""
_CHOSEN: dict[tuple[object, ...], Candidate] = {}


@dataclass(frozen=True)
class LayerLaw:
    """The law of one layer of noise, as data.

    Args:
        name: "discrete-gaussian", "discrete-laplace" (both independent in each counter) or "discrete-ball" (joint).
        parameter: variance sigma2 of the Gaussian law; epsilon / (W Delta1) of the Laplace law; the square of the rate,
            epsilon^2 / (W^2 D2), of the ball's law.
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
        error: predicted objective for weights of 1: the variances' sum, or the largest, of one layer.
    """

    mechanism: Mechanism
    strategy: Strategy
    error: float


@dataclass(frozen=True, eq=False)
class Task:
    """What candidates are compared for.

    Args:
        delta: privacy of a layer; only Gaussian noise uses it.
        weight: the unit's weight, W.
        row_weights: (d,) importance of each query; None: all the same.
        n_bound: upper bound of the number of individuals; None: unknown.
    """

    workload: Workload
    epsilon: Fraction
    delta: Fraction = Fraction(0)
    weight: int = 1
    objective: Objective = "total"
    row_weights: Floats | None = None
    n_bound: int | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """A key that is equal exactly for equal tasks."""
        importance = None if self.row_weights is None else self.row_weights.tobytes()
        return self.workload.digest, self.epsilon, self.delta, self.weight, self.objective, importance, self.n_bound

    @property
    def unweighted(self) -> bool:
        """Whether the objective is the sum of all variances."""
        return self.objective == "total" and self.row_weights is None

    def gaussian(self, strategy: Strategy, objective: float, mechanism: Mechanism = "gaussian") -> Candidate:
        """A strategy with Gaussian noise, from its objective for noise of variance 1 at L2 sensitivity 1."""
        variance = float(unit_variance(self.epsilon, self.delta)) * self.weight * self.weight
        return Candidate(mechanism, strategy, objective * variance)

    def laplace_variance(self, strategy: Strategy) -> float:
        """Variance of Laplace noise in each counter of a strategy."""
        return DiscreteLaplace(self.epsilon / (self.weight * strategy.sensitivity1)).variance

    def laplace_candidates(self, rank: int) -> list[Candidate]:
        """The Laplace strategies that fit the workload, which has this rank; of trees only the best."""
        workload, size = self.workload, self.workload.size
        if size > MAX_RANK:
            return []
        gram = workload.gram()
        strategies = [from_matrix(workload, np.eye(size, dtype=np.int64), "identity", rank=rank)]
        if workload.integer and workload.writable and workload.count <= MAX_RANK:
            strategies.append(from_matrix(workload, workload.dense().astype(np.int64), "queries", rank=rank))
        if len(workload.shape) == 1 and size > 1:
            levels = best_tree(gram, self.epsilon / self.weight)
            if len(levels) > 1:
                strategies.append(from_matrix(workload, tree_matrix(size, levels, size), "tree", rank=rank))
        tried = []
        for strategy in strategies:
            noise = self.laplace_variance(strategy)
            if self.unweighted:
                error = noise * _total_variance(gram, strategy)
            else:
                variances = workload.variances(strategy.cell_covariance) * noise
                error = objective_value(variances, self.objective, self.row_weights)
            tried.append(Candidate("laplace", strategy, error))
        return tried


def best_tree(gram: Floats, epsilon: Fraction) -> Levels:
    """(cells of a block, integer weight) of each level of the best tree over ordered cells.

    Args:
        epsilon: privacy of a layer, for one unit of weight.
    """
    sums = np.zeros((len(gram) + 1, len(gram) + 1))
    np.cumsum(np.cumsum(gram, axis=0), axis=1, out=sums[1:, 1:])

    def energy(width: int) -> float:
        first = np.arange(0, len(gram), width)
        last = np.minimum(first + width, len(gram))
        return float(np.sum(sums[last, last] - 2 * sums[first, last] + sums[first, first]))

    return best_levels(len(gram), energy, lambda reach: DiscreteLaplace(epsilon / reach).variance)


def layer_law(mechanism: Mechanism, strategy: Strategy, epsilon: Fraction, delta: Fraction, weight: int) -> LayerLaw:
    """The law of one layer of noise, for a unit that can spread its shift over two views.

    Args:
        delta: privacy of the layer; 0 only for "laplace" and "l2ball".
        weight: the unit's weight, W.
    """
    if mechanism in PURE_LAWS:
        return law_of_cost(mechanism, strategy, weight, epsilon)
    sigma2 = _verified_variance(epsilon, delta, strategy.sensitivity2 * weight * weight, 2 * strategy.length)
    return LayerLaw("discrete-gaussian", sigma2, strategy.length)


def law_of_cost(mechanism: Mechanism, strategy: Strategy, weight: int, cost: Fraction) -> LayerLaw:
    """The law of a layer that costs this mu^2 of Gaussian noise, or this epsilon of pure noise, for the whole unit."""
    if mechanism == "laplace":
        return LayerLaw("discrete-laplace", cost / (weight * strategy.sensitivity1), strategy.length)
    square = strategy.sensitivity2 * weight * weight
    if mechanism == "l2ball":
        return LayerLaw("discrete-ball", cost * cost / square, strategy.length)
    return LayerLaw("discrete-gaussian", square / cost, strategy.length)


def add_noise(law: LayerLaw, state: Ints, entropy: WordSource | None = None) -> None:
    """Add one independent layer to every counter of an (m,) int64 state, in place, wrapping; `entropy` is for tests."""
    if state.shape != (law.length,):
        raise SpecError(f"the state must be an array of {law.length} counters, found shape {state.shape}")
    if law.name == "discrete-gaussian":
        discrete_gaussian(state, law.parameter, entropy)
    elif law.name == "discrete-laplace":
        discrete_laplace(state, law.parameter, entropy)
    else:
        add_ball_noise(state, law.parameter, entropy)


@lru_cache(maxsize=256)
def _verified_variance(epsilon: Fraction, delta: Fraction, square: int, coordinates: int) -> Fraction:
    """Variance of a Gaussian layer on the integers for a shift of this squared length, verified."""
    sigma2 = (
        Fraction(math.ceil(unit_variance(epsilon * (1 - LATTICE_MARGIN), delta * (1 - LATTICE_MARGIN)) * square))
        + LATTICE_COST
    )
    verify_discrete(epsilon, delta, sigma2, sensitivity2=square, coordinates=coordinates)
    return sigma2


def unit_variance(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Variance of Gaussian noise on the reals for L2 sensitivity 1, never too small."""
    sigma = sigma_for(np.array([float(epsilon)]), np.array([float(delta)]), np.ones(1))
    return Fraction(float(sigma[0])) ** 2


def choose(task: Task, mechanism: Mechanism) -> Candidate:
    """The mechanism and its strategy; "auto" takes the one with the smallest predicted error of projected answers."""
    if (question := (mechanism, *task.identity)) in _CHOSEN:
        return _CHOSEN[question]
    tried = candidates(task, mechanism)
    projected = mechanism == "auto" and task.unweighted
    errors = projected_errors(task, tried) if projected else [candidate.error for candidate in tried]
    gaussian = tried[0].mechanism == "gaussian" and errors[0] <= GAUSSIAN_TIE * min(errors)
    chosen = tried[0] if gaussian else tried[int(np.argmin(errors))]
    while len(_CHOSEN) >= CHOICES_REMEMBERED:
        del _CHOSEN[next(iter(_CHOSEN))]
    return _CHOSEN.setdefault(question, chosen)


def projected_errors(task: Task, tried: list[Candidate]) -> list[float]:
    """The errors that the candidates' projected answers have on invented tables; infinite where it is sure to be large.

    Invented tables are uniform, concentrated and smooth, of `n_bound` individuals or of several numbers of them. They
    are made from digests, so that all readers of a configuration choose alike. Nothing here is ever published.
    """
    errors = [candidate.error for candidate in tried]
    near = [candidate for candidate in tried if candidate.error <= HOPELESS_FACTOR * min(errors)]
    if len(near) == 1 or max(candidate.strategy.length * candidate.strategy.size for candidate in near) > MAX_TRIED:
        return errors
    numbers = TRIED_NUMBERS if task.n_bound is None else (task.n_bound,)
    truths = np.concatenate([_invent_tables(task.workload.size, n) for n in numbers])
    counts = np.repeat(np.array(numbers, np.float64), len(truths) // len(numbers))
    return [_projected_error(task, candidate, truths, counts) if candidate in near else math.inf for candidate in tried]


def _projected_error(task: Task, candidate: Candidate, truths: Floats, counts: Floats) -> float:
    """A candidate's error after projection: its known one before, times what projection leaves of the same noise."""
    workload, strategy, n_bound = task.workload, candidate.strategy, task.n_bound
    law = layer_law(candidate.mechanism, strategy, task.epsilon, task.delta, task.weight)
    deviation = math.sqrt(law.variance)
    states = truths @ strategy.matrix.T + deviation * _invented_noise(law, len(truths))
    unprojected = strategy.estimate(states.T).T
    bounds = counts
    total = strategy.sum_coefficients
    if float(np.abs(total @ strategy.matrix - 1).max()) < 1e-8:  # the total is known, as answers do it
        more = 0.0 if n_bound is None else deviation * float(np.linalg.norm(total))
        most = np.maximum(unprojected.sum(axis=1) + more, 0.5)
        bounds = most if n_bound is None else np.minimum(counts, most)
    gram = (
        workload.gram() if workload.size <= MAX_COVARIANCE_CELLS else None
    )  # with many cells it may be too large for memory
    tolerance = TRIED_GAP * law.variance * law.length

    def squares(differences: Floats) -> Floats:
        if gram is None:
            return np.array([float(np.sum(workload.apply(table) ** 2)) for table in differences])
        return np.asarray(np.einsum("ij,ij->i", differences @ gram, differences))

    columns = strategy.matrix.astype(np.float64)
    projected = all_nearest(states, columns, bounds, unprojected, tolerance, TRIED_STEPS)[0]
    far = squares(projected - unprojected) > MAX_MOVED_SHARE * candidate.error
    if far.any():
        left, columns = stretch_metric(workload, strategy, "both", candidate.error / law.variance)
        points = states if left is None else states @ left.T
        projected[far] = all_nearest(points[far], columns, bounds[far], unprojected[far], tolerance, TRIED_STEPS)[0]
    after, before = squares(projected - truths), squares(unprojected - truths)
    shares = [float(after[counts == n].sum() / before[counts == n].sum()) for n in np.unique(counts)]
    return candidate.error * math.exp(float(np.log(shares).mean()))


def _invented_noise(law: LayerLaw, tables: int) -> Floats:
    """(t, m) noise of variance 1 for invented tables, with Laplace or normal tails, the same everywhere."""
    from scipy.special import ndtri

    even = _even("noise", tables * law.length).reshape(tables, law.length)
    if law.name == "discrete-laplace":
        return np.asarray(-np.sign(even - 0.5) * np.log1p(-np.abs(2 * even - 1)) / math.sqrt(2))
    return np.asarray(ndtri(even))


def _even(name: str, count: int) -> Floats:
    """(count,) numbers between 0 and 1 that look random and are the same everywhere; for invented tables only."""
    words = np.frombuffer(hashlib.shake_256(name.encode()).digest(8 * count), "<u8") >> np.uint64(12)
    return np.asarray((words.astype(np.float64) + 0.5) / 2.0**52)


def _invent_tables(size: int, n: int) -> Floats:
    """(t, N) tables of about n individuals: several of each of three populations."""
    place = np.arange(size) / size
    zipf = 1 / (1.0 + np.argsort(_even("order", size), kind="stable"))
    shares = np.array([np.ones(size), zipf, np.exp(-(((place - 0.3) / 0.15) ** 2)) + 0.02])
    means = np.repeat(n * shares / shares.sum(axis=1)[:, None], TABLES_OF_EACH, axis=0)
    return np.floor(means + _even(f"table {n}", means.size).reshape(means.shape))


def candidates(task: Task, mechanism: Mechanism) -> list[Candidate]:
    """Every mechanism and strategy that may be the best, with its predicted error; see `choose`."""
    require_choice(mechanism, "mechanism", MECHANISMS)
    if task.delta == 0 and mechanism in ("gaussian", "plain", "paper"):
        raise SpecError("delta must be > 0 for Gaussian noise; use mechanism='laplace' or 'l2ball'")
    workload = task.workload
    width = causal_width(workload) if task.unweighted else 0
    if too_large(workload) and not (width and mechanism != "laplace"):
        return _implicit_candidates(task, mechanism)
    if mechanism in ("paper", "plain"):
        reduced = reduce(workload)
        shape = paper_shape(reduced) if mechanism == "paper" else plain_shape(reduced)
        return [task.gaussian(from_shape(workload, shape), shape.upper, mechanism)]
    if mechanism == "laplace":
        rank = workload.size if causal_width(workload) else reduce(workload).rank
        tried = task.laplace_candidates(rank)
    elif width and workload.size > {"auto": BALL_RANK, "gaussian": OPTIMISED}.get(mechanism, MAX_ROOT_POSITIONS):
        # The best covariance has at most 2.5% less variance, takes minutes from thousands of cells on, and its last
        # digits depend on the machine.
        root = causal(workload)
        tried = [task.gaussian(root, root.total)] if task.delta > 0 else []
        tried += task.laplace_candidates(workload.size) if mechanism == "auto" else []
    else:
        tried = _optimised_candidates(task, mechanism)
    if not tried:
        raise SpecError(
            f"Laplace noise needs a workload of at most {MAX_RANK} cells, found {workload.size}; use 'gaussian'"
        )
    return tried


def _implicit_candidates(task: Task, mechanism: Mechanism) -> list[Candidate]:
    """Strategies that no matrix is made of, the best first of each mechanism."""
    workload = task.workload
    if mechanism not in ("auto", "gaussian", "laplace"):
        raise SpecError(
            f"mechanism {mechanism!r} needs a matrix of the queries, and {workload.count} x {workload.size} are too "
            "many to write out; use 'auto', 'gaussian' or 'laplace'"
        )
    tried = []
    for strategy in implicit_strategies(workload, task.epsilon / task.weight):
        spread = objective_value(strategy.variances, task.objective, task.row_weights)
        if task.delta > 0 and mechanism != "laplace":
            tried.append(task.gaussian(strategy, spread * strategy.sensitivity2))
        if mechanism != "gaussian":
            tried.append(Candidate("laplace", strategy, spread * task.laplace_variance(strategy)))
    return sorted(tried, key=lambda candidate: (candidate.mechanism, candidate.error))


def _optimised_candidates(task: Task, mechanism: Mechanism) -> list[Candidate]:
    """The strategy of the best covariance with Gaussian noise and the ball's, and Laplace strategies for "auto"."""
    shape = optimise(task.workload, objective=task.objective, row_weights=task.row_weights)
    rank = shape.reduced.rank
    if mechanism == "l2ball" and rank > BALL_RANK:
        raise SpecError(f"mechanism 'l2ball' needs a workload of rank {BALL_RANK} at most, found {rank}; use 'laplace'")
    best = from_shape(task.workload, shape, objective=task.objective, row_weights=task.row_weights)
    tried = [task.gaussian(best, shape.upper)] if mechanism != "l2ball" and task.delta > 0 else []
    tried += task.laplace_candidates(rank) if mechanism == "auto" else []
    if mechanism != "gaussian" and rank <= BALL_RANK:
        error = (rank + 1) * shape.upper * task.weight * task.weight / float(task.epsilon) ** 2
        tried.append(Candidate("l2ball", best, error))
    return tried


def _total_variance(gram: Floats, strategy: Strategy) -> float:
    """Sum of the answers' variances for noise of variance 1 in each counter of a Laplace strategy."""
    if strategy.form == "identity":
        return float(np.trace(gram))
    if strategy.form == "queries":  # least squares projects the noise on a space of that dimension
        return float(strategy.rank)
    return float(np.vdot(gram, strategy.cell_covariance))
