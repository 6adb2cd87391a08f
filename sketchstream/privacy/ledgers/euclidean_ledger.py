"""The ledger of a sketch whose noise has independent coordinates, counted in zCDP: costs are l2 norms of epsilons.

In: layers, releases, publications and looks as they happen. Out: `GaussianLoss` with the rho that is known, BudgetError
before anything is drawn, plain data for headers. Touches: nothing.
Source: docs/theory/convolution.md, section 11.

A cost is sqrt(2 rho), an exact fraction. Along a history such costs add and join as epsilons do (`EuclideanEpsilon`),
and rho is half the square of what they come to. Losses of independent sketches add in rho.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from sketchstream.privacy.ledgers.gaussian_ledger import GaussianLedger
from sketchstream.privacy.losses.gaussian import GaussianLoss
from sketchstream.privacy.losses.history import History, Loss
from sketchstream.privacy.losses.law_names import SPECTRAL_LAPLACE
from sketchstream.privacy.losses.loss_numbers import loss_number
from sketchstream.privacy.losses.measures import EUCLIDEAN, Measure, rho_of_pure


@dataclass(frozen=True)
class EuclideanLedger(GaussianLedger):
    """Layers and views of one sketch with Laplace noise in many coordinates, and the promised publication.

    Examples:
        >>> from sketchstream.privacy.losses.gaussian import UnitShift
        >>> from sketchstream.privacy.losses.history import LayerEntry
        >>> from sketchstream.privacy.ledgers.sketch_history import Promise
        >>> layer = LayerEntry(bytes(16), "spectral-laplace", Fraction(1, 4))
        >>> ledger = EuclideanLedger.create("event", layer, Promise("fresh", Fraction(1, 4)), UnitShift.of(1, 1))
        >>> ledger.loss().rho, ledger.charge_release(Fraction(1, 8)).loss(intrusion=True).rho
        (Fraction(1, 32), Fraction(9, 128))
    """

    laws: ClassVar[tuple[str, ...]] = (SPECTRAL_LAPLACE,)
    measure_key: ClassVar[str] = "l2"
    symbol: ClassVar[str] = "norm"

    @property
    def measure(self) -> Measure[Loss]:
        """How the costs of this ledger add up."""
        return EUCLIDEAN

    def of_copies(self, cost: Loss) -> GaussianLoss:
        """See `GaussianLedger`: that of the norm of all of them."""
        return GaussianLoss.of_rho(rho_of_pure(cost))

    # Private parts.

    def _release_text(self, room: Fraction) -> str:
        return f"a norm of at most {loss_number(float(room))} can be released now"

    def _loss_of(self, history: History, *, look: bool = False, since: int = 0) -> GaussianLoss:
        return GaussianLoss.of_rho(rho_of_pure(self._worst(history, look=look, since=since)))
