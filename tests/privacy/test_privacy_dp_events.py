"""The bridge to dp-accounting: the same epsilons, or larger ones.

In: losses. Out: verdicts. Touches: nothing.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_left as bisect
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import pytest

import sketchstream as ss
from sketchstream.errors import MissingExtraError, SpecError
from sketchstream.privacy.calibration.discrete import discrete_delta_of
from sketchstream.privacy.losses.dp_events import dp_event
from sketchstream.privacy.losses.gaussian import GaussianLoss, UnitShift
from sketchstream.privacy.losses.history import History, LayerEntry, Loss, View

F = Fraction
BARE = View("publication", None)


def accountant(losses: Iterable[Loss | GaussianLoss]) -> Any:
    """A `PLDAccountant` that holds the losses of several sketches; its epsilons are upper bounds."""
    import dp_accounting
    from dp_accounting import pld

    return pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE).compose(dp_event(losses))


def gaussian(sigma2: Fraction | int, coordinates: int = 1) -> GaussianLoss:
    layer = LayerEntry(bytes(16), "discrete-gaussian", 1 / F(sigma2))
    return GaussianLoss.of(History((layer, BARE), (), 1), UnitShift.of(1, coordinates))


@pytest.mark.statistics
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
def test_gaussian_events_have_the_epsilon_of_the_ledger_or_more(delta: float) -> None:
    # So much variance that the rounding that is taken from it is below the tolerance.
    for sigma2, times in ((10**9, 10**9 // 40), (10**12, 10**12 // 3)):
        loss = gaussian(sigma2).times(times)
        theirs = accountant([loss]).get_epsilon(delta)
        exact = ss.epsilon_of(delta, math.sqrt(sigma2), math.sqrt(times))
        assert theirs == pytest.approx(exact, rel=1e-6)
        assert theirs >= exact * (1 - 1e-12)
        assert theirs == pytest.approx(loss.epsilon(delta), rel=1e-6)


@pytest.mark.statistics
def test_small_noise_has_never_less_than_the_exact_epsilon() -> None:
    for sigma2 in (F(18330, 1024), F(100), F(1000)):
        found = bisect(range(2000), -1e-6, key=lambda e, s2=sigma2: -discrete_delta_of(F(e, 1000), s2))  # type: ignore[misc]
        exact = found / 1000
        theirs = accountant([gaussian(sigma2)]).get_epsilon(1e-6)
        assert exact - 1e-3 <= theirs <= 1.2 * exact


@pytest.mark.statistics
def test_pure_and_gaussian_losses_compose_below_basic_composition_and_above_each() -> None:
    pure, mixed = [F(1, 10)] * 20, gaussian(1000).times(40)
    assert accountant([F(1)]).get_epsilon(1e-9) == pytest.approx(1, abs=1e-4)
    assert accountant([F(1)]).get_epsilon(1e-9) >= 1 - 1e-9
    together = accountant([*pure, mixed]).get_epsilon(1e-6)
    assert max(mixed.epsilon("1e-6"), accountant(pure).get_epsilon(1e-6)) < together
    assert together < 2 + mixed.epsilon("1e-6")


def test_what_has_no_bound_is_an_event_without_privacy() -> None:
    looked = LayerEntry(bytes(16), "discrete-gaussian", F(1, 100))
    twice = GaussianLoss.of(History((looked, View("look", None), BARE), (), 1), UnitShift.of(1, 1))
    assert type(dp_event([math.inf]).events[0]).__name__ == "NonPrivateDpEvent"
    assert type(dp_event([twice]).events[0]).__name__ == "NonPrivateDpEvent"
    assert type(dp_event([GaussianLoss.none()]).events[0]).__name__ == "NoOpDpEvent"
    assert type(dp_event([])).__name__ == "NoOpDpEvent"
    with pytest.raises(SpecError, match="noise too small"):
        dp_event([gaussian(1)])


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(MissingExtraError, match="accounting"):
        dp_event([F(1)])
