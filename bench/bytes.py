"""Bytes of a published state, as multiples of the empirical entropy of its counters, against named peers.

In: nothing. Out: a table on the terminal. Touches: nothing.

Counters: discrete Laplace noise at each epsilon, with the counts of case B (half an item a slot, P(t) ~ t^-2, t <= 64)
or without (case A). WordSource: of the counters' empirical histogram; no code that treats counters one by one can be
shorter on average. All codecs see the same array in the same run; the header is counted in ours.

Run: python bench/bytes.py [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import datasketches
import msgpack
import numpy as np
import zstandard
from pcodec import ChunkConfig, standalone

from sketchstream import wire

WANTED = 1.05


def counters(epsilon: float, n: int, items: bool) -> np.ndarray:
    """(n,) int32 noisy counters; an insecure generator will do for a bench."""
    rng = np.random.default_rng(2024)
    share = 1 - np.exp(-epsilon)
    state = rng.geometric(share, n) - rng.geometric(share, n)
    if items:
        counts = np.arange(1, 65)
        weight = counts**-2.0
        np.add.at(state, rng.integers(0, n, n // 2), rng.choice(counts, n // 2, p=weight / weight.sum()))
    return state.astype(np.int32)


def entropy(state: np.ndarray) -> float:
    """Bits a counter."""
    share = np.unique(state, return_counts=True)[1] / len(state)
    return float(-(share * np.log2(share)).sum())


def zigzag_bytes(state: np.ndarray) -> bytes:
    """One byte a counter, 255 for what does not fit and follows at the end as int32."""
    wide = (state.astype(np.int64) << 1) ^ (state.astype(np.int64) >> 63)
    return np.minimum(wide, 255).astype(np.uint8).tobytes() + state[wide >= 255].tobytes()


def seconds(call: Callable[[], object], rounds: int) -> float:
    """Median time of a call."""
    call()
    seen = []
    for _ in range(rounds):
        start = time.thread_time()
        call()
        seen.append(time.thread_time() - start)
    return statistics.median(seen)


def table(epsilon: float, n: int, items: bool, rounds: int) -> None:
    state = counters(epsilon, n, items)
    bits = entropy(state)
    header = {"kind": "sealed-state", "spec": {}}
    raw = state.tobytes()
    peers: dict[str, Callable[[], bytes]] = {
        "ours, Huffman": lambda: wire.pack(header, state, wire.HUFFMAN),
        "ours, raw": lambda: wire.pack(header, state, wire.RAW),
        "pcodec 8": lambda: bytes(standalone.simple_compress(state, ChunkConfig(compression_level=8))),
        "pcodec 12": lambda: bytes(standalone.simple_compress(state, ChunkConfig(compression_level=12))),
        "zstd-3, int32": lambda: zstandard.ZstdCompressor(3).compress(raw),
        "zstd-19, int32": lambda: zstandard.ZstdCompressor(19).compress(raw),
        "zstd-1, zigzag bytes": lambda: zstandard.ZstdCompressor(1).compress(zigzag_bytes(state)),
        "zstd-19, zigzag bytes": lambda: zstandard.ZstdCompressor(19).compress(zigzag_bytes(state)),
        "msgpack, list of ints": lambda: msgpack.packb(state.tolist()),
    }
    print(f"\nepsilon {epsilon}, case {'B' if items else 'A'}, {n:,} counters, entropy {bits:.3f} bits")
    for name, call in peers.items():
        size = 8 * len(call()) / n
        slow = name.startswith("zstd-19")
        rate = n / seconds(call, 1 if slow else rounds) / 1e6
        verdict = ""
        if name == "ours, Huffman":
            written = call()
            assert np.array_equal(wire.unpack(written)[1], state)
            read = n / seconds(lambda data=written: wire.unpack(data), rounds) / 1e6
            verdict = f"   read {read:.0f} M/s   at most {WANTED}: {'ok' if size / bits <= WANTED else 'NO'}"
        print(f"  {name:24s}{size:8.3f} bits   {size / bits:7.3f} x entropy   {rate:7.0f} M/s{verdict}")
    sketch = datasketches.count_min_sketch(1, n)
    sketch.update("one item: an empty sketch is written without its counters")
    count_min = 8 * len(sketch.serialize()) / n
    print(f"  {'datasketches count-min':24s}{count_min:8.3f} bits   {count_min / bits:7.3f} x entropy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer counters and rounds")
    quick = parser.parse_args().quick
    n, rounds = (1 << 17, 3) if quick else (1 << 20, 5)
    for epsilon in (0.1, 0.5, 1.0):
        table(epsilon, n, True, rounds)
    for epsilon in (1.0, 0.01):
        table(epsilon, n, False, rounds)


if __name__ == "__main__":
    main()
