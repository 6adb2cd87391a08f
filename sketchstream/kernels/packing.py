"""Where the items of a packed list or a foreign buffer lie.

In: msgpack bytes, offsets. Out: starts and ends, or why not. Touches: nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sketchstream.kernels.door import kernel

I64 = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

INTS, TEXTS, BLOBS = range(3)
"""Item types as `read_packed` knows them."""


@kernel
def _big_endian(piece: Bytes) -> Any:
    """A big-endian unsigned integer."""
    value = np.uint64(0)
    for i in range(len(piece)):
        value = (value << np.uint64(8)) | np.uint64(piece[i])
    return value


@kernel
def read_packed(packed: Bytes, kind: Any, starts: I64, ends: I64, values: I64) -> Any:
    """Where the items of a msgpack array lie (`starts`, `ends`), or what they are (`values`, ints).

    Returns how many items, from the first on, are of the expected kind.
    """
    n = len(values) if kind == INTS else len(starts)
    at = 1 if n < 16 else 3 if n < 65536 else 5
    for i in range(n):
        tag = packed[at]
        at += 1
        width = 0
        if kind == INTS:
            if tag < 0x80:
                values[i] = tag
            elif tag >= 0xE0:
                values[i] = np.int64(tag) - 256
            elif 0xCC <= tag <= 0xCF:
                width = 1 << (tag - 0xCC)
                value = _big_endian(packed[at : at + width])
                at += width
                values[i] = np.int64(value)
                if values[i] < 0:
                    return i
            elif 0xD0 <= tag <= 0xD3:
                width = 1 << (tag - 0xD0)
                value = _big_endian(packed[at : at + width])
                at += width
                unused = np.int64(64 - 8 * width)
                values[i] = np.int64(value << np.uint64(unused)) >> unused
            else:
                return i
            continue
        if kind == TEXTS and 0xA0 <= tag < 0xC0:
            length: Any = np.int64(tag) - 0xA0
        elif kind == TEXTS and 0xD9 <= tag <= 0xDB:
            width = 1 << (tag - 0xD9)
            length = np.int64(_big_endian(packed[at : at + width]))
            at += width
        elif kind == BLOBS and 0xC4 <= tag <= 0xC6:
            width = 1 << (tag - 0xC4)
            length = np.int64(_big_endian(packed[at : at + width]))
            at += width
        else:
            return i
        starts[i] = at
        at += length
        ends[i] = at
    return n


@kernel
def check_spans(starts: Any, ends: Any, size: Any) -> Any:
    """Position of the first span that does not lie in 0..size, or -1."""
    bad = 0
    for i in range(len(starts)):
        bad += (starts[i] < 0) | (ends[i] < starts[i]) | (ends[i] > size)
    if bad > 0:
        for i in range(len(starts)):
            if starts[i] < 0 or ends[i] < starts[i] or ends[i] > size:
                return i
    return -1


# Histograms of counters.


def release_counts(state: Integers, edges: I64, form: str, modulus: int, bits: int) -> I64:
    """(B,) exact histogram of the counters at the edges at which it will be published, in one pass.

    Args:
        state: (m,) int16, int32 or int64 counters of one level.
        edges: (B,) int64 ascending, see `ProfileSpec.edges`.
        form: "cumulative": value i is the number of counters in the half circle of Z_{2^bits} that starts at edges[i]
            (so that wrapping costs nothing: one event crosses at most one end of one of them); "bins": in
            [edges[i], edges[i + 1]), the last bin unbounded.
        modulus: of unit "item", else 0.
        bits: width of a counter that wraps.
    """
    if form == "bins":
        return cells(state, edges)[1:]
    half = 1 << (bits - 1)
    # [k, k + half) on the circle, as linear counts "x >= point": for k > 0 its far end lies at k - 2 half + half
    wrapped = np.array([int(k) - half if k > 0 else int(k) + half - 1 for k in edges], dtype=np.int64)
    # k <= 0: x >= k + half is written x > k + half - 1, for k = 0 in 64 bits half itself is not an int64
    points = np.unique(np.concatenate([edges, wrapped, wrapped[wrapped < half - 1] + 1]))
    held = cells(state, points)
    at_least = held[::-1].cumsum()[::-1][1:]  # x >= points[i]

    def from_point(values: I64) -> I64:
        found: I64 = at_least[np.searchsorted(points, values)]
        return found

    out = from_point(edges)
    positive = edges > 0
    out[positive] += state.size - from_point(wrapped[positive])
    inside = ~positive & (wrapped < half - 1)
    out[inside] -= from_point(wrapped[inside] + 1)
    return out


def cells(state: Integers, points: I64) -> I64:
    """(P + 1,) numbers of counters below points[0], in [points[i], points[i + 1]), and from points[P - 1] on."""
    out = np.zeros(points.size + 1, np.int64)
    near = int(np.searchsorted(points, 0))
    first = near
    while first > 0 and points[first - 1] == points[first] - 1:
        first -= 1
    last = near
    while last + 1 < points.size and points[last + 1] == points[last] + 1:
        last += 1
    dense = np.zeros((4, max(last - first, 1)), np.int64)
    _cells(state.reshape(-1), points, first, last, dense, out)
    out[first + 1 : last + 1] += dense.sum(axis=0)[: last - first]
    return out


@kernel
def _cells(state: Integers, points: I64, first: int, last: int, dense: I64, out: I64) -> None:
    """Unit cells from points[first] to points[last] by index, in four copies in turn; other cells by search."""
    low = points[first]
    width = np.uint64(last - first)
    for i in range(state.shape[0]):
        x = np.int64(state[i])
        offset = np.uint64(x - low)
        if offset < width:
            dense[i & 3, offset] += 1
            continue
        a = 0
        b = points.shape[0]
        while a < b:
            middle = (a + b) >> 1
            if points[middle] <= x:
                a = middle + 1
            else:
                b = middle
        out[a] += 1


def value_counts(state: Integers) -> tuple[I64, I64]:
    """The distinct counters, ascending, and how many of each: the exact histogram of a published state."""
    span = 1 << 16
    near = cells(state, np.arange(-span, span + 1, dtype=np.int64))
    values = np.flatnonzero(near[1:-1]) - span
    counts = near[1:-1][values + span]
    far, times = np.unique(state[(state >= span) | (state < -span)].astype(np.int64), return_counts=True)
    below = int(np.searchsorted(far, 0))
    return (
        np.concatenate([far[:below], values, far[below:]]),
        np.concatenate([times[:below], counts, times[below:]]).astype(np.int64),
    )
