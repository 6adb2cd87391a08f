"""Queries that only the kind `profile` has.

In: published objects of that kind. Out: profiles. Touches: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sketchstream.kinds.profile.estimate import laws
from sketchstream.kinds.profile.estimate.intervals.known_zeros import with_zeros

if TYPE_CHECKING:
    from sketchstream.kinds.profile.estimate.result import Profile
    from sketchstream.published import Published, SealedState


def reconstruct(published: Published) -> Profile:
    """The profile by the default method."""
    return published.profile()


def with_known_zeros(profile: Profile, zeros: int) -> Profile:
    """Add to a profile the items without a published slot, whose count is therefore 0."""
    return with_zeros(profile, zeros) if zeros else profile


def gain(state: SealedState) -> float:
    """Factor by which inverting this state's noise can amplify an error: at the worst frequency, over all layers."""
    epsilons = [float(layer.parameter) for layer in state.layers]
    if state.spec.modulus is not None:
        return 1 / laws.response_eigenvalue(epsilons, state.spec.modulus)
    return laws.gain(epsilons)
