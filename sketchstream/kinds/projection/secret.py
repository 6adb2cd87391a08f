"""The ledger of a sketch whose matrix is secret: its costs are means of mu^2, its losses hold on average over matrices.

In: layers and looks as they happen. Out: `SecretLoss`, plain data for headers. Touches: nothing.
Source: docs/theory/projection.md, theorems 4 and 5.

Given the matrix, noise of parameter sigma2 has mu^2 = |z R|^2 / sigma2, whose mean over matrices is the cost: the
squared norm of the unit's row, times k, times the variance of an entry, over sigma2. A loss is not a single mu^2, so
these losses do not add up with others: sums of them have no bound here, except over sketches with other matrices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NoReturn

from sketchstream.errors import SpecError
from sketchstream.kinds.projection.calibration import TABLE_EXCESS, sub_gaussian_delta, sub_gaussian_epsilon
from sketchstream.privacy.calibration.continuous import check_delta
from sketchstream.privacy.ledgers.gaussian_ledger import GaussianLedger
from sketchstream.privacy.losses.gaussian import ComponentShift, EpsilonAtDelta, GaussianLoss, Smoothed, UnitShift
from sketchstream.privacy.losses.history import History, Loss
from sketchstream.spec import Rational, exact_rational

ROUNDING = Fraction(4)
"""Variance of the rounding with which noise on the integers is compared; others gain nothing here."""
EPSILON_STEP = 1e-7
"""Relative amount by which an epsilon is raised until its certificate holds; doubled each time."""
MAX_EPSILON = 1e4
"""Epsilons above this are no bound."""

NOTHING = Smoothed(ROUNDING, Fraction(0), 0.0)
"""The bound for a loss of 0."""


@dataclass(frozen=True)
class SecretShift(UnitShift):
    """How far one unit moves a state with a secret matrix, on average; `columns`: degrees of freedom of the square."""

    columns: int = 1

    @classmethod
    def mean(cls, norm2: Fraction, columns: int, entry_variance: Fraction | int) -> SecretShift:
        """The shift of rows up to a norm."""
        return cls((ComponentShift(norm2 * columns * entry_variance, columns),), (), columns)


@dataclass(frozen=True)
class SecretLoss(GaussianLoss):
    """The loss of a unit with a secret matrix.

    Whoever takes it for the loss of a known matrix finds mu^2 infinite and no bound of delta.

    Args:
        mean: mean of mu^2 over matrices, on the real numbers; infinite without noise.
        bound: upper bound of that mean for noise on the integers.
    """

    mean: Fraction | float = 0
    bound: Smoothed = NOTHING
    columns: int = 1

    @classmethod
    def average(cls, loss: GaussianLoss, columns: int) -> SecretLoss:
        """The loss to a secret matrix whose mean mu^2 is that of `loss`, as a ledger composed it."""
        bound = next(bound for bound in loss.smoothed if bound.rounding == ROUNDING)
        closed = GaussianLoss.without_bound_of_delta(math.inf)
        return cls(closed.mu2, closed.smoothed, mean=loss.mu2, bound=bound, columns=columns)

    def __add__(self, other: GaussianLoss) -> GaussianLoss:
        """The sum, for which no bound is known unless one of the losses is 0."""
        if not self.mean or (not isinstance(other, SecretLoss) and not other.mu2):
            return other if not self.mean else self
        if isinstance(other, SecretLoss) and not other.mean:
            return self
        return GaussianLoss.without_bound_of_delta(math.inf)

    __radd__ = __add__

    def times(self, number: int) -> SecretLoss:
        """The loss to this number of equal sketches with independent matrices and noise."""
        bound = Smoothed(self.bound.rounding, self.bound.mu2 * number, self.bound.kappa * number)
        columns = self.columns * number
        return SecretLoss(self.mu2, self.smoothed, mean=self.mean * number, bound=bound, columns=columns)

    @property
    def known(self) -> Loss:
        return self.mean

    @property
    def measured(self) -> str:
        return f"mean mu^2 {float(self.mean):.4g}"

    def delta(self, epsilon: Rational) -> float:
        eps = float(exact_rational(epsilon, "epsilon must be at least 0"))
        if isinstance(self.bound.mu2, float) or self.bound.kappa > 1:
            return 1.0
        return _delta(eps, self.bound.mu2, self.bound.kappa, self.columns)

    def at(self, delta: Rational) -> EpsilonAtDelta:
        target = check_delta(delta)
        bound = self.bound
        if isinstance(self.mean, float) or isinstance(bound.mu2, float) or bound.kappa > 1:
            return EpsilonAtDelta(math.inf, float(target), math.inf, "none")
        if not self.mean:
            return EpsilonAtDelta(0.0, float(target), 0.0, "none")
        smoothed = _epsilon(target, bound.mu2, bound.kappa, self.columns)
        plain = _epsilon(target, self.mean, 0.0, self.columns)
        return EpsilonAtDelta(smoothed, float(target), plain, "smoothing", bound.kappa, bound.rounding)


@dataclass(frozen=True)
class SecretLedger(GaussianLedger):
    """Layers and looks of one sketch with a secret matrix, and the publication that is promised. No releases."""

    shift: SecretShift = SecretShift((ComponentShift(Fraction(1), 1),))

    def propose(self, cost: Fraction) -> NoReturn:
        """Refused: a stream that reacts to a release would depend on the matrix."""
        raise SpecError(
            "a sketch with matrix_seed = 'secret' is published once, by seal: a stream that reacts to a release would "
            "depend on the matrix; use matrix_seed = 'public' for releases"
        )

    def affordable(self) -> Fraction:
        """Return 0: no release is affordable."""
        return Fraction(0)

    def of_copies(self, cost: Loss) -> GaussianLoss:
        """No bound: a mean over matrices says nothing of two views that counted different events."""
        return GaussianLoss.without_bound_of_delta(math.inf)

    def _loss_of(self, history: History, *, look: bool = False, since: int = 0) -> SecretLoss:
        composed = super()._loss_of(history, look=look, since=since)
        return SecretLoss.average(composed, self.shift.columns)


@lru_cache(maxsize=4096)
def _delta(epsilon: float, mean: Fraction, kappa: float, columns: int) -> float:
    """Theorem 5 for noise on the integers: within e^kappa of a Gaussian history, whatever the matrix."""
    if not mean:
        return 0.0 if epsilon >= 2 * kappa else -math.expm1(epsilon - 2 * kappa)
    scale = math.sqrt(mean / columns) * (1 + float(TABLE_EXCESS) / 2)
    inner = epsilon - 2 * kappa
    divergence = sub_gaussian_delta(max(inner, 0.0), scale, columns)
    return min(1.0, math.exp(kappa) * (divergence - math.expm1(min(inner, 0.0))) * (1 + 1e-12))


@lru_cache(maxsize=256)
def _epsilon(delta: Fraction, mean: Fraction, kappa: float, columns: int) -> float:
    """An epsilon with `_delta` at most delta: found by a search without certificates, then raised until it has one."""
    scale = math.sqrt(mean / columns) * (1 + float(TABLE_EXCESS) / 2)
    epsilon = 2 * kappa + sub_gaussian_epsilon(float(delta) * math.exp(-kappa), scale, columns)
    step = EPSILON_STEP
    while _delta(epsilon, mean, kappa, columns) > delta:
        if epsilon > MAX_EPSILON:
            return math.inf
        epsilon, step = epsilon * (1 + step) + step * step, 2 * step
    return epsilon
