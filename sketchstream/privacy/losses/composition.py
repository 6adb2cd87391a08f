"""One (epsilon, delta) for losses in several measures: pure epsilon and Gaussian noise.

In: a pure total, its rho of zCDP, a Gaussian total. Out: the tighter of two compositions, and its name. Touches:
nothing.
Source: Bun & Steinke, TCC 2016 (Propositions 1.3, 1.4); docs/theory/gaussian_ledger.md section 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from sketchstream.privacy.losses.gaussian import GaussianLoss
from sketchstream.privacy.losses.history import Loss
from sketchstream.privacy.losses.loss_numbers import rounded_up
from sketchstream.privacy.losses.measures import rho_of_pure
from sketchstream.privacy.losses.zcdp import to_approximate
from sketchstream.spec import Rational, exact_rational


@dataclass(frozen=True)
class Composed:
    """An (epsilon, delta) that holds for everything together.

    Args:
        epsilon: upper bound.
        delta: delta for which it holds; 0 if all losses are pure.
        by: "basic composition" (epsilons add), or "zCDP" (rhos add).
    """

    epsilon: float
    delta: float
    by: Literal["basic composition", "zCDP"]

    def to_dict(self) -> dict[str, Any]:
        """Plain data; epsilon None where there is no bound."""
        return {"epsilon": None if math.isinf(self.epsilon) else self.epsilon, "delta": self.delta, "by": self.by}

    def __str__(self) -> str:
        """Text for people."""
        if math.isinf(self.epsilon):
            return "unlimited"
        return f"(epsilon {rounded_up(self.epsilon)}, delta {self.delta:g}) by {self.by}"


def compose(pure: Loss, rho: Loss, gaussian: GaussianLoss, delta: Rational) -> Composed:
    """The tighter of basic composition and zCDP, for sketches with independent noise.

    Args:
        pure: sum of the pure losses.
        rho: sum of half their squares.
        gaussian: sum of the losses to Gaussian noise.
        delta: number from 1e-300 to 0.5.

    Raises:
        SpecError: delta is outside that range.

    Examples:
        >>> compose(Fraction(1), Fraction(1, 2), GaussianLoss.none(), "1e-6").epsilon
        1.0
    """
    target = exact_rational(delta, "delta must be in [1e-300, 0.5]")
    basic = Composed(_round_up(float(pure) + gaussian.epsilon(target)), float(target), "basic composition")
    epsilons = [math.inf]
    for bound in gaussian.smoothed:
        if math.isfinite(bound.mu2) and bound.kappa <= 1:
            inner = float(target) * math.exp(-bound.kappa)
            epsilons.append(to_approximate(rho + Fraction(bound.mu2) / 2, inner) + 2 * bound.kappa)
    concentrated = Composed(_round_up(min(epsilons)), float(target), "zCDP")
    return concentrated if concentrated.epsilon < basic.epsilon else basic


@dataclass(frozen=True)
class Losses:
    """What a unit loses to independent sketches, in all measures.

    Args:
        pure: sum of the pure losses.
        rho: rho of zCDP of the sketches with pure losses.
        gaussian: sum of the losses to Gaussian noise.
    """

    pure: Loss = Fraction(0)
    rho: Loss = Fraction(0)
    gaussian: GaussianLoss = field(default_factory=GaussianLoss.none)

    @classmethod
    def of_sketch(cls, loss: Loss | GaussianLoss) -> Losses:
        """Make the losses of one sketch."""
        if isinstance(loss, GaussianLoss):
            return cls(gaussian=loss)
        return cls(loss, rho_of_pure(loss))

    @classmethod
    def unlimited(cls) -> Losses:
        """Infinite losses, where no bound is known."""
        return cls(math.inf, math.inf)

    def __add__(self, other: Losses) -> Losses:
        """The losses to the sketches of both."""
        return Losses(self.pure + other.pure, self.rho + other.rho, self.gaussian + other.gaussian)

    def times(self, number: int) -> Losses:
        """The losses to this many equal sketches, at least one."""
        return Losses(self.pure * number, self.rho * number, self.gaussian.times(number))

    def epsilon(self, delta: Fraction | None) -> Loss:
        """Epsilon for a delta, by the tighter of two compositions; without a delta the exact sum of the pure losses.

        Args:
            delta: number from 1e-300 to 0.5, or None: infinite where noise is Gaussian.
        """
        if delta is None:
            return math.inf if self.gaussian.mu2 else self.pure
        if not self.gaussian.mu2 and not self.pure:
            return Fraction(0)
        return compose(self.pure, self.rho, self.gaussian, delta).epsilon


def _round_up(value: float) -> float:
    """Rounded up by more than the rounding error of the sums; whole numbers are exact and stay as they are."""
    return value if value.is_integer() or math.isinf(value) else value * (1 + 1e-14)
