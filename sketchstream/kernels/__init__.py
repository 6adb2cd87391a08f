"""All compiled loops over items and counters; other packages compile theirs through `kernel`.

In: plain arrays and numbers, checked by the callers. Out: arrays filled in place. Touches: nothing else.
"""

from sketchstream.kernels import plain
from sketchstream.kernels.addition import (
    BLOCK,
    ERROR,
    NOOP,
    SKIP,
    add_deferred,
    add_to_groups,
    update_ints,
    update_spans,
)
from sketchstream.kernels.compilation import compile_first, kernel, part, use_numpy_twin
from sketchstream.kernels.packing import check_spans, read_packed
from sketchstream.kernels.ranking import first_groups
from sketchstream.kernels.routing import (
    HASHED,
    IDS,
    LISTED,
    NEVER,
    NOWHERE,
    RANKED,
    UNSAMPLED,
    Route,
    count_before,
    fill_table,
    locate_ints,
    locate_spans,
)
from sketchstream.kernels.siphash import hash_ints, hash_spans
from sketchstream.kernels.tally import release_counts, value_counts
from sketchstream.kernels.texts import check_payloads, check_utf8, find_texts, list_texts, read_integers

__all__ = [
    "BLOCK",
    "ERROR",
    "HASHED",
    "IDS",
    "LISTED",
    "NEVER",
    "NOOP",
    "NOWHERE",
    "RANKED",
    "SKIP",
    "UNSAMPLED",
    "Route",
    "add_deferred",
    "add_to_groups",
    "check_payloads",
    "check_spans",
    "check_utf8",
    "compile_first",
    "count_before",
    "fill_table",
    "find_texts",
    "first_groups",
    "hash_ints",
    "hash_spans",
    "kernel",
    "list_texts",
    "locate_ints",
    "locate_spans",
    "part",
    "plain",
    "read_integers",
    "read_packed",
    "release_counts",
    "update_ints",
    "update_spans",
    "use_numpy_twin",
    "value_counts",
]
