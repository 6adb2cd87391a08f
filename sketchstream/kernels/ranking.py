"""The groups in which items count: a keyed ranking of groups for each item, of which the first count.

In: keyed hashes of items, positions of groups. Out: positions of the groups in which the events count. Touches: nothing
else.
Source: docs/theory/privacy.md, section 5 (groups); Black & Rogaway 2002 (cycle walking).

The hash of an item chooses a permutation of the G groups: x -> a x + b modulo a prime P >= G, followed again until it
is below G, and turned by c. A group is among the first k with probability exactly k/G, because c is uniform, and two
groups are so together about as often as in a random ranking, because two values of a x + b are any two with the same
probability. So no search, no table, and the same time for every k.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sketchstream.kernels.compilation import kernel
from sketchstream.kernels.machine_code import U64

_32 = np.uint64(32)
_33 = np.uint64(33)
_LOW = np.uint64(0xFFFFFFFF)
_FIRST = np.uint64(0xFF51AFD7ED558CCD)
_SECOND = np.uint64(0xC4CEB9FE1A85EC53)
"""Multipliers of MurmurHash3's finalizer, which makes a second word of the first."""


@kernel
def first_groups(hashes: U64, codes: Any, most: Any, groups: Any, prime: Any, out: Any) -> None:
    """Leave out the events whose group is not among the first groups of their item.

    Args:
        hashes: (n,) keyed hashes of the items.
        codes: (n,) int32 positions of the events' groups, -1 for none.
        most: int64, number of groups in which an item counts.
        groups: int64, number of groups; at most 2^31.
        prime: int64, the smallest prime that is not below `groups`.
        out: (n,) int32, set to `codes`, or to -1 where the event does not count.
    """
    for i in range(len(out)):
        code: Any = np.int64(codes[i])
        if code < 0:
            out[i] = -1
            continue
        first = hashes[i]
        second = (first ^ (first >> _33)) * _FIRST
        second = (second ^ (second >> _33)) * _SECOND
        second = second ^ (second >> _33)
        # 32 bits times n, shifted by 32, are a number below n: no division. All three parts come from separate bits.
        turn = (np.int64(first >> _32) * groups) >> 32
        factor = 1 + ((np.int64(second >> _32) * (prime - 1)) >> 32)
        shift = (np.int64(second & _LOW) * prime) >> 32
        place = (factor * code + shift) % prime
        # Cycle walking. The prime is the first one from G on, so that few places are beyond the groups.
        while place >= groups:
            place = (factor * place + shift) % prime
        # The turn modulo G, by a subtraction: both terms are below G.
        place += turn
        if place >= groups:
            place -= groups
        out[i] = code if place < most else -1
