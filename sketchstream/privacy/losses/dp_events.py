"""Losses as events of Google's dp-accounting, for composition with other systems.

In: losses of sketches, pure or to Gaussian noise. Out: a `dp_accounting.DpEvent`. Touches: nothing; needs the extra
`accounting`.
Source: docs/theory/gaussian_ledger.md section 5; Vadhan & Wang, TCC 2021 (a pure loss is that of randomized response).

The two worlds are dp-accounting's REPLACE_ONE: one answer of randomized response was 0 or 1, one Gaussian view was
centred at one end of its shift or the other. dp-accounting lets a replaced value move by twice its norm, so the noise
multiplier of a shift of mu is 2 / mu.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sketchstream.errors import SpecError, optional_import
from sketchstream.privacy.losses.gaussian import NEGLIGIBLE, GaussianLoss

if TYPE_CHECKING:
    from sketchstream.privacy.losses.history import Loss

SAFE = 1e-12
"""Relative amount by which parameters are moved to the safe side: more than the rounding of what computes them."""


def dp_event(losses: Iterable[Loss | GaussianLoss]) -> Any:
    """One event for the losses to several sketches with independent noise; it never understates epsilon.

    Discrete Gaussian noise is represented by continuous noise of a smaller variance. The variance of a rounding is
    subtracted, chosen so large that the two laws are within 1e-12 of each other.

    Args:
        losses: one for each sketch: `Ledger.loss()`, `GaussianLedger.loss()`, or those of a deployment's records.

    Returns:
        A `dp_accounting.ComposedDpEvent`, for accountants of the relation REPLACE_ONE.

    Raises:
        MissingExtraError: dp-accounting is not installed.
        SpecError: noise so small that its lattice cannot be neglected.
    """
    with optional_import("events need dp-accounting: pip install 'sketchstream[accounting]'"):
        import dp_accounting as module
    events = [_event(module, loss) for loss in losses]
    return module.ComposedDpEvent(events) if events else module.NoOpDpEvent()


def _event(module: Any, loss: Loss | GaussianLoss) -> Any:
    """The event of one sketch."""
    if isinstance(loss, GaussianLoss):
        if not loss.mu2:
            return module.NoOpDpEvent()
        if loss.mu2 == math.inf:
            return module.NonPrivateDpEvent()
        if not loss.normal:
            raise SpecError("a loss of which rho alone is known is no event of REPLACE_ONE: use loss.epsilon(delta)")
        near = [bound.mu2 for bound in loss.smoothed if bound.kappa < NEGLIGIBLE]
        if not near or min(near) == math.inf:
            raise SpecError(
                "noise too small for an event of dp-accounting: sigma2 must be above 4; use loss.epsilon(delta)"
            )
        return module.GaussianDpEvent(2 / math.sqrt(min(near)) * (1 - SAFE))
    if loss == math.inf:
        return module.NonPrivateDpEvent()
    return module.RandomizedResponseDpEvent(2 / (1 + math.exp(float(loss) * (1 + SAFE))) * (1 - SAFE), 2)
