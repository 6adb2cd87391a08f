"""Reference for the calibration tests: mpmath at 60 digits; and the seeded sources of the noise tests."""

from __future__ import annotations

from typing import Any

import mpmath
import pytest

mpmath.mp.dps = 60


def divergence(epsilon: Any, mu: Any) -> Any:
    """D(epsilon, mu) as Balle and Wang write it, at 60 digits."""
    epsilon, mu = mpmath.mpf(epsilon), mpmath.mpf(mu)
    if epsilon == 0:
        return mpmath.erf(mu / mpmath.sqrt(8))
    s, t = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    return (mpmath.erfc(s / mpmath.sqrt(2)) - mpmath.exp(epsilon) * mpmath.erfc(t / mpmath.sqrt(2))) / 2


@pytest.fixture(name="divergence")
def _divergence() -> Any:
    return divergence
