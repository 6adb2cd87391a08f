"""Slow and obvious twins of the compiled kernels, and the published vectors of SipHash.

In: plain Python values. Out: plain Python values. Touches: nothing.
Source: Aumasson & Bernstein 2012 (SipHash); the vectors are `vectors_sip64` of the authors' reference implementation:
key 00 01 .. 0f, message i = the first i bytes of 00 01 02 .., output as eight bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from sketchstream.items.key import Key
from sketchstream.spec import Domain, OpenDomain

MASK = (1 << 64) - 1
Item = int | str | bytes

_VECTORS = """
310e0edd47db6f72 fd67dc93c539f874 5a4fa9d909806c0d 2d7efbd796666785 b7877127e09427cf 8da699cd64557618
cee3fe586e46c9cb 37d1018bf50002ab 6224939a79f5f593 b0e4a90bdf82009e f3b9dd94c5bb5d7a a7ad6b22462fb3f4
fbe50e86bc8f1e75 903d84c02756ea14 eef27a8e90ca23f7 e545be4961ca29a1 db9bc2577fcc2a3f 9447be2cf5e99a69
9cd38d96f0b3c14b bd6179a71dc96dbb 98eea21af25cd6be c7673b2eb0cbf2d0 883ea3e395675393 c8ce5ccd8c030ca8
94af49f6c650adb8 eab8858ade92e1bc f315bb5bb835d817 adcf6b0763612e2f a5c91da7acaa4dde 716595876650a2a6
28ef495c53a387ad 42c341d8fa92d832 ce7cf2722f512771 e37859f94623f3a7 381205bb1ab0e012 ae97a10fd434e015
b4a31508beff4d31 81396229f0907902 4d0cf49ee5d4dcca 5c73336a76d8bf9a d0a704536ba93e0e 925958fcd6420cad
a915c29bc8067318 952b79f3bc0aa6d4 f21df2e41d4535f9 87577519048f53a9 10a56cf5dfcd9adb eb75095ccd986cd0
51a9cb9ecba312e6 96afadfc2ce666c7 72fe52975a4364ee 5a1645b276d592a1 b274cb8ebf87870a 6f9bb4203de7b381
eaecb2a30b22a87f 9924a43cc1315724 bd838d3aafbf8db7 0b1a2a3265d51aea 135079a3231ce660 932b2846e4d70666
e1915f5cb1eca46c f325965ca16d629f 575ff28e60381be5 724506eb4c328a95
"""
SIPHASH_VECTORS = _VECTORS.split()


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & MASK


def siphash(key0: int, key1: int, message: bytes) -> int:
    """SipHash-2-4, 64 bits."""
    v = [key0 ^ 0x736F6D6570736575, key1 ^ 0x646F72616E646F6D, key0 ^ 0x6C7967656E657261, key1 ^ 0x7465646279746573]

    def sip_round() -> None:
        v[0] = v[0] + v[1] & MASK
        v[2] = v[2] + v[3] & MASK
        v[1] = _rotated(v[1], 13) ^ v[0]
        v[3] = _rotated(v[3], 16) ^ v[2]
        v[0] = _rotated(v[0], 32)
        v[2] = v[2] + v[1] & MASK
        v[0] = v[0] + v[3] & MASK
        v[1] = _rotated(v[1], 17) ^ v[2]
        v[3] = _rotated(v[3], 21) ^ v[0]
        v[2] = _rotated(v[2], 32)

    padded = message + bytes(-(len(message) + 1) % 8) + bytes([len(message) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        sip_round()
        sip_round()
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(4):
        sip_round()
    return v[0] ^ v[1] ^ v[2] ^ v[3]


@cache
def item_hash(key: Key, item: Item) -> int:
    """The keyed hash of one item: ints as eight little-endian bytes, text as UTF-8, under the key of the type."""
    if isinstance(item, int):
        kind, message = "int", item.to_bytes(8, "little", signed=True)
    elif isinstance(item, str):
        kind, message = "str", item.encode()
    else:
        kind, message = "bytes", item
    key0, key1 = key.item_key(kind)  # type: ignore[arg-type]
    return siphash(int(key0), int(key1), message)


def slot_of(domain: Domain, key: Key | None, item: Item, keep: Sequence[bool] | None = None) -> int:
    """Slot of an item; -1 outside the domain, -2 inside but not sampled."""
    if isinstance(domain, OpenDomain):
        assert key is not None
        value = item_hash(key, item)
        level = 0
        while level < domain.levels - 1 and not value >> level & 1:
            level += 1
        return level * domain.slots_per_level + (value * domain.slots_per_level >> 64)
    items = domain.items if domain.items is not None else range(domain.size or 0)
    threshold = None if domain.sample_rate is None else int(domain.sample_rate * (1 << 64))
    slot = 0
    for number, other in enumerate(items):
        kept = keep is None or keep[number]
        sampled = threshold is None
        if threshold is not None:
            assert key is not None
            sampled = item_hash(key, other) < threshold
        if type(other) is type(item) and other == item:
            return -1 if not kept else slot if sampled else -2
        slot += kept and sampled
    return -1


def applied(
    state: np.ndarray, slots: Sequence[int], weights: Sequence[int] | None, modulus: int | None = None
) -> np.ndarray:
    """The state with one weight after the other added in exact integers, then wrapped or reduced."""
    exact = [int(value) for value in state]
    for number, slot in enumerate(slots):
        if slot >= 0:
            exact[slot] += 1 if weights is None else int(weights[number])
    if modulus is not None:
        return np.array([value % modulus for value in exact], state.dtype)
    bits = 8 * state.itemsize
    half = 1 << bits - 1
    return np.array([(value + half) % (1 << bits) - half for value in exact], state.dtype)


def half_circle_counts(state: Sequence[int], edges: Sequence[int], bits: int) -> list[int]:
    """For each edge k: counters x for which the sign bit of x - k, wrapped to `bits` bits, is clear."""
    return [sum(not (int(x) - int(k)) >> bits - 1 & 1 for x in state) for k in edges]


def bin_counts(state: Sequence[int], edges: Sequence[int]) -> list[int]:
    """For each bin [edges[i], edges[i + 1]), the last one unbounded: the counters in it."""
    ends = [*edges[1:], 1 << 70]
    return [sum(int(low) <= int(x) < int(high) for x in state) for low, high in zip(edges, ends, strict=True)]
