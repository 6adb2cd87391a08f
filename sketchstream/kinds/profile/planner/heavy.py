"""How many items may have counts beyond the modulus: what plans and `validate` say before any data are there.

In: a spec, a mean count. Out: shares, a sentence. Touches: nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sketchstream.kinds.profile.planner.forecast import Expected
    from sketchstream.kinds.profile.spec import ProfileSpec

SPREAD: Final = 1.5
"""Standard deviation of the logarithm of counts that are called heavy-tailed: at a mean of 5 events, 2.4% of the items
have more than 31, as people do in advertising."""
NEGLIGIBLE_SHARE: Final = 0.005
"""Share of items beyond the modulus that hardly moves a k+ number."""


def share_beyond(modulus: int, mean: float) -> float:
    """Share of the items with a count of `modulus` or more under a log-normal law.

    Args:
        modulus: p.
        mean: mean of the counts of items that occur.
    """
    middle = math.log(max(mean, 1e-9)) - SPREAD**2 / 2.0
    return 0.5 * math.erfc((math.log(modulus - 0.5) - middle) / (SPREAD * math.sqrt(2.0)))


def large_enough_modulus(mean: float, modulus: int) -> int:
    """The smallest modulus, doubling from this one, with few heavy-tailed items beyond it."""
    while share_beyond(modulus, mean) > NEGLIGIBLE_SHARE and modulus < 1 << 15:
        modulus *= 2
    return modulus


def noise_factor(spec: ProfileSpec, modulus: int) -> float:
    """How much larger the noise of the state is with another modulus."""
    assert spec.modulus is not None
    excess = math.exp(float(spec.epsilon)) - 1.0
    return (excess + modulus) / (excess + spec.modulus)


def expected_mean(numbers: Mapping[str, Expected]) -> float:
    """The mean count that a plan assumes."""
    return numbers["mean"].value if "mean" in numbers else numbers["total"].value / numbers["distinct"].value


def tail_note(spec: ProfileSpec, mean: float) -> str:
    """What a heavy tail at this mean would do.

    Args:
        spec: spec with unit "item".
        mean: mean of the counts of items that occur.
    """
    assert spec.modulus is not None
    share, larger = share_beyond(spec.modulus, mean), large_enough_modulus(mean, spec.modulus)
    text = (
        f"if counts of mean {mean:.3g} are heavy-tailed (log-normal, as people's often are), {share:.2%} of the items "
        f"have {spec.modulus} or more: such results mark totals and means as lower bounds"
    )
    if larger == spec.modulus:
        return text
    return (
        f"{text}; modulus {larger} leaves {share_beyond(larger, mean):.2%}, with up to "
        f"{noise_factor(spec, larger):.2g} times the noise"
    )
