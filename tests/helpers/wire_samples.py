"""The objects behind the golden files: one for each kind, codec, type and way of tagging, built from fixed numbers.

In: nothing. Out: name -> (header, body, codec, whether tagged). Touches: nothing.

`PYTHONPATH=tests python -m helpers.wire_samples` writes the files that are missing. A file that exists is never
rewritten: it stands for bytes that earlier releases wrote.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from helpers.paths import GOLDEN as ALL_GOLDEN
from sketchstream import wire
from sketchstream.items.key import Key
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.spec import ClosedDomain, OpenDomain

GOLDEN = ALL_GOLDEN / "v1"
KEY = Key(bytes(range(16)))

_OPEN = ProfileSpec("1", domain=OpenDomain(slots=64, levels=4), total_share=0).to_dict()
_ITEM = ProfileSpec("1/2", "item", ClosedDomain(items=["a", "b", "c"]), modulus=32).to_dict()
_STATE = ProfileSpec(
    "1", domain=ClosedDomain(size=40), publish="state", intrusion=True, bits=64, total_share=0
).to_dict()
_LAYER = {"law": "discrete-laplace", "epsilon": "1", "lineage": bytes(range(16, 32))}
_RESPONSE = {"law": "randomized-response", "epsilon": "1/2", "lineage": bytes(range(32, 48))}
_WHERE = {
    "name": "hourly",
    "revision": 2,
    "window": [1_356_998_400_000, 1_357_002_000_000],
    "partition": 3,
    "partitions_open": 16,
}


def _counters(n: int, dtype: type, low: int, high: int) -> np.ndarray[Any, Any]:
    """Reproducible numbers without any generator: squares modulo a prime."""
    return (low + (np.arange(n, dtype=np.int64) ** 2 * 7919) % (high - low + 1)).astype(dtype)


SAMPLES: dict[str, tuple[dict[str, Any], np.ndarray[Any, Any] | None, int, bool]] = {
    "sketch-open-int32": (
        {"kind": "sketch", "spec": _OPEN, "slots": 64, "layers": [_LAYER], **_WHERE},
        _counters(64, np.int32, -9, 40),
        wire.RAW,
        True,
    ),
    "sketch-item-int16": (
        {"kind": "sketch", "spec": _ITEM, "slots": 3, "layers": [_RESPONSE]},
        _counters(3, np.int16, 0, 31),
        wire.RAW,
        True,
    ),
    "sketch-closed-int64-untagged": (
        {"kind": "sketch", "spec": _STATE, "slots": 40, "layers": [_LAYER]},
        _counters(40, np.int64, -(1 << 40), 1 << 40),
        wire.RAW,
        False,
    ),
    "sealed-state-huffman": (
        {
            "kind": "sealed-state",
            "spec": _STATE,
            "slots": 40,
            "layers": [_LAYER, {**_LAYER, "lineage": bytes(range(48, 64))}],
            "seal_id": bytes(range(64, 80)),
            "partitions_seal": 17,
            **_WHERE,
        },
        np.concatenate([_counters(38, np.int64, -20, 20), [1 << 62, -(1 << 63)]]).astype(np.int64),
        wire.HUFFMAN,
        False,
    ),
    "sealed-state-wide-huffman": (
        {"kind": "sealed-state", "spec": _STATE, "slots": 3000, "layers": [_LAYER]},
        _counters(3000, np.int32, -200_000, 200_000),
        wire.HUFFMAN,
        False,
    ),
    "release-levels-huffman": (
        {
            "kind": "release",
            "spec": _OPEN,
            "slots": 64,
            "layers": [_LAYER],
            "cost": "1",
            "form": "cumulative",
            "edges_version": 1,
            "seal_id": bytes(range(80, 96)),
            **_WHERE,
        },
        _counters(4 * 50, np.int64, -5, 900).reshape(4, 50),
        wire.HUFFMAN,
        True,
    ),
    "release-raw": (
        {"kind": "release", "spec": _ITEM, "form": "bins", "cost": "1/2", "edges_version": 1},
        _counters(32, np.int64, -5, 90),
        wire.RAW,
        False,
    ),
    "stack-bytes": (
        {"kind": "stack", "spec": _OPEN, "lengths": [3, 4]},
        np.arange(7, dtype=np.uint8),
        wire.RAW,
        False,
    ),
    "stack-empty": ({"kind": "stack", "spec": _OPEN}, None, wire.RAW, False),
}


def packed(name: str) -> bytes:
    """The sample as this release writes it."""
    header, body, codec, tagged = SAMPLES[name]
    return wire.pack(header, body, codec, KEY if tagged else None)


def main() -> None:
    """Write the golden files that are missing."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name in SAMPLES:
        path = GOLDEN / f"wire-{name}.bin"
        if not path.exists():
            path.write_bytes(packed(name))


if __name__ == "__main__":
    main()
