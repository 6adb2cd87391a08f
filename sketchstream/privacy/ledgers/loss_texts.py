"""One function that prints a loss: it knows the measure, so that no mu^2 is ever taken for an epsilon.

In: losses in any measure, or a cost with the ledger that charges it. Out: text. Touches: nothing.
Source: docs/theory/gaussian_ledger.md (which epsilon follows from mu^2 at a delta).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from sketchstream.privacy.ledgers.sketch_history import SketchHistory
from sketchstream.privacy.losses.composition import Losses, compose
from sketchstream.privacy.losses.gaussian import GaussianLoss
from sketchstream.privacy.losses.history import Loss
from sketchstream.privacy.losses.loss_numbers import loss_number
from sketchstream.privacy.losses.zcdp import DELTA

AnyLoss = Loss | GaussianLoss | Losses
UNLIMITED: Final = "unlimited"
MEANING: Final = (
    "(epsilon, delta) means: whatever set of outcomes is chosen, its probability is at most e^epsilon times that "
    "without the unit, plus delta; single outcomes may be more than e^epsilon times as likely, with a probability that "
    "can exceed delta"
)


def loss_text(loss: AnyLoss, delta: Fraction | float = 0) -> str:
    """A loss as text: '3/2'; '(epsilon 1.05, delta 1e-06; ...), mu^2 0.0154'; 'unlimited'.

    Args:
        loss: a pure epsilon, a loss to Gaussian noise, or losses to several sketches.
        delta: delta at which losses that are not pure are stated; 0: 1e-6.
    """
    at = Fraction(str(DELTA)) if not delta else Fraction(str(delta))
    if isinstance(loss, Losses):
        if loss.gaussian.mu2 and loss.pure:
            return str(compose(loss.pure, loss.rho, loss.gaussian, at))
        return loss_text(loss.gaussian, at) if loss.gaussian.mu2 else loss_number(loss.pure)
    if not isinstance(loss, GaussianLoss):
        return loss_number(loss)
    if not loss.mu2:
        return "0"
    return UNLIMITED if loss.known == math.inf else f"{loss.at(at)}, {loss.measured}"


def loss_words(loss: AnyLoss, delta: Fraction | float = 0) -> str:
    """A loss for a sentence: as `loss_text`, and '3/2 (1.5)' for fractions."""
    text = loss_text(loss, delta)
    value = loss.pure if isinstance(loss, Losses) else loss
    if isinstance(value, Fraction) and value.denominator != 1 and text == str(value):
        return f"{text} ({float(value):.4g})"
    return text


def cost_text(ledger: SketchHistory, cost: Fraction, delta: Fraction | float = 0) -> str:
    """What one layer or view costs by itself: 'epsilon 1/2', '(epsilon 0.5, delta 1e-06; ...), mu^2 0.0154'.

    Args:
        ledger: ledger in which it is charged.
        cost: cost in the measure of that ledger.
        delta: delta at which losses that are not pure are stated; 0: 1e-6.
    """
    loss = ledger.loss_of_cost(cost)
    return loss_text(loss, delta) if isinstance(loss, GaussianLoss) else f"epsilon {loss_number(loss)}"
