"""What queries do with the kind `profile` alone.

In: what was published of that kind. Out: profiles. Touches: nothing. Another kind's answers come from a file like
this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sketchstream.kinds.profile.estimate import laws

if TYPE_CHECKING:
    from sketchstream.kinds.profile.estimate.result import Profile
    from sketchstream.published import Published, SealedState


def reconstruct(published: Published) -> Profile:
    """The profile by the default method."""
    return published.profile()


def with_known_zeros(profile: Profile, zeros: int) -> Profile:
    """The profile with items that have no slot in what was published, and whose count is therefore 0."""
    from sketchstream.kinds.profile.estimate.intervals.known_zeros import with_zeros

    return with_zeros(profile, zeros) if zeros else profile


def gain(state: SealedState) -> float:
    """How far the inversion of this state's noise can stretch an error: at the worst frequency, over all layers."""
    epsilons = [float(layer.parameter) for layer in state.layers]
    if state.spec.modulus is not None:
        return 1 / laws.response_eigenvalue(epsilons, state.spec.modulus)
    return laws.gain(epsilons)
