"""Which items of a closed domain have slots in the parts of a published object.

In: a published object, whose origins name partitions and a partitioner; the list of items. Out: a mask for each part.
Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

from sketchstream.spec import ClosedDomain
from sketchstream.stream.input.partitioner import Partitioner, kept

if TYPE_CHECKING:
    from sketchstream.array_types import Flags
    from sketchstream.published import Published


def kept_by(published: Published, items: Sequence[Any] | None = None) -> list[Flags] | None:
    """The items with slots in each part, as (size,) bool; None where all parts have all items.

    Args:
        published: a release, a sealed state, or a stack.
        items: items of a listed domain; published bytes do not contain them.
    """
    parts = published.parts
    if any(part.origin.partitioner not in get_args(Partitioner) or part.origin.partition is None for part in parts):
        return None
    domain = published.spec.domain if items is None else ClosedDomain(items=list(items))
    if domain.listed and domain.items is None:
        return None
    return [
        kept(domain, part.origin.partitioner, part.origin.partition_counts, part.origin.partition)  # type: ignore[arg-type]
        for part in parts
    ]
