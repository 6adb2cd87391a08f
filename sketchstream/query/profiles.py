"""Queries of the kinds that reconstruct profiles.

In: published objects of those kinds. Out: profiles, growths of errors. Touches: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sketchstream.kinds.capabilities import Reconstructing

if TYPE_CHECKING:
    from sketchstream.kinds.profile_answers import Profile
    from sketchstream.published import Published, SealedState


def reconstruct(published: Published) -> Profile:
    """The profile by the default method."""
    return published.profile()


def growth(merged: SealedState, part: SealedState) -> float | None:
    """Factor by which the error of merged states can exceed that of one of them; None: their kind has no profiles."""
    kind = merged.kind
    if not isinstance(kind, Reconstructing):
        return None
    parameters = ([float(layer.parameter) for layer in state.layers] for state in (merged, part))
    after, before = (kind.gain(merged.spec, scales) for scales in parameters)
    return after / before
