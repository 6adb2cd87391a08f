"""The groups in which an item counts, where a keyed ranking limits them.

In: the key, events with the position of their group. Out: the positions of the groups in which they count. Touches:
nothing.
Source: docs/theory/privacy.md, section 5 (groups).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sketchstream.errors import KeyMismatchError
from sketchstream.items.arrays import Items
from sketchstream.items.key import TYPE_NAMES, Key, TypeName
from sketchstream.kinds.groups.group_list import Codes, Groups


@dataclass(frozen=True, eq=False)
class Ranking:
    """A ranking of the groups for each item.

    Args:
        keys: the two words of the hash key for each type of items.
        groups: number of groups.
        most: groups in which an item counts.
    """

    keys: dict[TypeName, tuple[np.uint64, np.uint64]] = field(repr=False)
    groups: int
    most: int

    @classmethod
    def of(cls, groups: Groups, key: Key | None) -> Ranking:
        """The ranking of a list of groups by a key.

        Raises:
            KeyMismatchError: there is no key.
        """
        if key is None:
            raise KeyMismatchError(
                "group_limit = 'ranked' needs the hash key: it decides in which groups an item counts"
            )
        return cls({name: key.ranking_key(name) for name in TYPE_NAMES}, len(groups), groups.of_one_item)

    def first(self, part: Items, codes: Codes, hashes: npt.NDArray[np.uint64]) -> Codes:
        """(n,) positions of the events' groups, -1 where an event does not count.

        Args:
            part: n items in one piece.
            codes: (n,) positions of their groups, -1: none.
            hashes: memory for n hashes; the caller overwrites it afterwards.
        """
        from sketchstream import kernels

        hash_items: Callable[..., None] = kernels.hash_ints if part.type_name == "int" else kernels.hash_spans
        hash_items(*part.arrays, *self.keys[part.type_name], hashes)
        out = np.empty(len(codes), np.int32)
        kernels.first_groups(hashes, codes, self.most, self.groups, smallest_prime(self.groups), out)
        return out


def smallest_prime(least: int) -> int:
    """The smallest prime that is not below `least`."""
    number = max(least, 2)
    while any(number % factor == 0 for factor in range(2, int(number**0.5) + 1)):
        number += 1
    return number
