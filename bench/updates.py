"""Updates of a state, as fractions of the memory's own limit and of named peers, in one run.

In: nothing. Out: a table of rates and ratios on the terminal. Touches: nothing.

The limit is the best of three loops that add 1 to given random slots: a plain one, one that prefetches 64 slots ahead,
and one that prefetches the list of slots as well.
Every kernel is checked against `np.bincount` before it is timed. Times are CPU times of the thread. The kernels of
one table run in turn, cells are medians over the rounds.

Run: python bench/updates.py [--quick]
"""

from __future__ import annotations

import argparse
import collections
import statistics
import time
from collections.abc import Callable

import numpy as np

import sketchstream as ss
from sketchstream import kernels
from sketchstream.items.arrays import Items
from sketchstream.items.domains import Index
from sketchstream.items.key import Key
from sketchstream.kernels import kernel
from sketchstream.kernels.machine_code import prefetch
from sketchstream.spec import ClosedDomain, OpenDomain

KEY = Key(bytes(range(16)))
Loop = Callable[[], object]


@kernel
def limit_plain(state, slots):
    for i in range(len(slots)):
        state[slots[i]] += 1


@kernel
def limit_prefetched(state, slots):
    ahead = slots[64:]
    for i in range(len(ahead)):
        prefetch(state, ahead[i])
        state[slots[i]] += 1
    rest = slots[len(ahead) :]
    for i in range(len(rest)):
        state[rest[i]] += 1


@kernel
def limit_streamed(state, slots):
    ahead = slots[64:]
    far = slots[192:]
    whole = len(far) // 8 * 8
    for block in range(0, whole, 8):
        prefetch(far, block)
        for i in range(np.uint64(block), np.uint64(block + 8)):
            prefetch(state, ahead[i])
            state[slots[i]] += 1
    rest = slots[whole:]
    for i in range(len(rest)):
        state[rest[i]] += 1


@kernel
def read_once(state):
    total = 0
    for i in range(len(state)):
        total += state[i]
    return total


def clocked(loops: dict[str, Loop], rounds: int, clock: Callable[[], float] = time.thread_time) -> dict[str, float]:
    """Median seconds of each loop; the loops run in turn."""
    seen: dict[str, list[float]] = {name: [] for name in loops}
    for loop in loops.values():
        loop()
    for _ in range(rounds):
        for name, loop in loops.items():
            start = clock()
            loop()
            seen[name].append(clock() - start)
    return {name: statistics.median(times) for name, times in seen.items()}


def row(name: str, rate: float, *ratios: tuple[str, float, float | None]) -> None:
    text = "   ".join(
        f"{ratio:6.2f} of {what}"
        + ("" if wanted is None else f" (at least {wanted}: {'ok' if ratio >= wanted else 'NO'})")
        for what, ratio, wanted in ratios
    )
    print(f"  {name:44s}{rate:9.1f} M/s   {text}")


def ints(lg: int, n: int, rounds: int) -> None:
    rng = np.random.default_rng(lg)
    items = rng.integers(-(1 << 63), (1 << 63) - 1, n)
    weights = rng.choice(np.array([-1, 1]), n)
    zipf = rng.zipf(1.2, n) & ((1 << 62) - 1)
    flat = Index.build(OpenDomain(slots=1 << lg, levels=1), KEY)
    levels = Index.build(OpenDomain(slots=1 << lg, levels=8), KEY)
    closed = Index.build(ClosedDomain(size=1 << lg), None)
    slots = rng.integers(0, 1 << lg, n)
    state = np.zeros(1 << lg, np.int32)
    flat.batch(state, Items.of(items), weights).apply()
    found = flat.locate(Items.of(items))
    expected = np.bincount(found[weights > 0], minlength=1 << lg) - np.bincount(found[weights < 0], minlength=1 << lg)
    assert np.array_equal(state, expected)
    batch, ids, skewed, given = Items.of(items), Items.of(slots), Items.of(zipf), slots.astype(np.uint64)
    short = weights.astype(np.int32)
    one = clocked(
        {
            "limit, plain": lambda: limit_plain(state, given),
            "limit, prefetch 64": lambda: limit_prefetched(state, given),
            "limit, prefetch 64, slots too": lambda: limit_streamed(state, given),
            "int64, SipHash, weights": lambda: flat.batch(state, batch, weights).apply(),
            "the same, int32 weights": lambda: flat.batch(state, batch, short).apply(),
            "the same, no weights": lambda: flat.batch(state, batch).apply(),
            "the same, 8 levels, weights": lambda: levels.batch(state, batch, weights).apply(),
            "closed domain, weights": lambda: closed.batch(state, ids, weights).apply(),
            "Zipf 1.2 items, weights": lambda: flat.batch(state, skewed, weights).apply(),
        },
        rounds,
    )
    limit = n / min(seconds for name, seconds in one.items() if name.startswith("limit")) / 1e6
    print(f"\n2^{lg} slots, int32, {n:,} items; limit {limit:.0f} M/s")
    wanted = {20: 0.35, 24: 0.75, 27: 0.70}.get(lg)
    for name, seconds in one.items():
        rate = n / seconds / 1e6
        row(name, rate, ("limit", rate / limit, wanted if name == "int64, SipHash, weights" else None))


def peers(lg: int, n: int, rounds: int) -> None:
    """The same by numpy with its slots given, and datasketches' count-min with one row from Python."""
    import datasketches

    rng = np.random.default_rng(5)
    items = rng.integers(-(1 << 62), 1 << 62, n)
    slots = rng.integers(0, 1 << lg, n)
    listed = items.tolist()
    state = np.zeros(1 << lg, np.int32)
    index = Index.build(OpenDomain(slots=1 << lg, levels=1), KEY)
    count_min = datasketches.count_min_sketch(1, 1 << lg)
    hll = datasketches.hll_sketch(12)
    batch = Items.of(items)
    one = np.int32(1)  # of the state's type: numpy's quick loop

    def each(update: Callable[[int], object]) -> None:
        collections.deque(map(update, listed), maxlen=0)  # the quickest way that Python has to call it for each

    seconds = clocked(
        {
            "ours, int64 array": lambda: index.batch(state, batch).apply(),
            "ours, list of int": lambda: index.batch(state, Items.of(listed)).apply(),
            "np.add.at, slots given": lambda: np.add.at(state, slots, one),
            "np.bincount, slots given": lambda: np.bincount(slots, minlength=1 << lg),
            "datasketches count-min, 1 row": lambda: each(count_min.update),
            "datasketches HLL(12)": lambda: each(hll.update),
        },
        rounds,
    )
    print(f"\nPeers at 2^{lg} slots, {n:,} ints")
    ours = seconds["ours, int64 array"]
    for name, found in seconds.items():
        row(name, n / found / 1e6, ("ours", ours / found, None))


def strings(n: int, rounds: int) -> None:
    """Lists of keys of about 20 bytes; datasketches' update takes str, not bytes."""
    import datasketches
    import xxhash

    rng = np.random.default_rng(7)
    lengths = rng.integers(6, 37, n)
    letters = rng.integers(97, 123, int(lengths.sum())).astype(np.uint8)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    raw = letters.tobytes()
    blobs = [raw[a:b] for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]
    texts = [blob.decode() for blob in blobs]
    state = np.zeros(1 << 20, np.int32)
    index = Index.build(OpenDomain(slots=1 << 20, levels=8), KEY)
    packed = Items.of((letters, offsets))
    hll, count_min = datasketches.hll_sketch(12), datasketches.count_min_sketch(1, 1 << 20)

    def each(update: Callable[[str], object]) -> None:
        collections.deque(map(update, texts), maxlen=0)

    def xxh() -> None:
        collections.deque(map(xxhash.xxh64_intdigest, blobs), maxlen=0)

    out = np.empty(n, np.uint64)
    key0, key1 = KEY.item_key("bytes")
    seconds = clocked(
        {
            "ours, list of bytes": lambda: index.batch(state, Items.of(blobs)).apply(),
            "ours, list of str": lambda: index.batch(state, Items.of(texts)).apply(),
            "ours, packed buffer": lambda: index.batch(state, packed).apply(),
            "ours, SipHash-2-4 of the buffer alone": lambda: kernels.hash_spans(
                letters, offsets[:-1], offsets[1:], key0, key1, out
            ),
            "datasketches HLL(12), the same as str": lambda: each(hll.update),
            "datasketches count-min, 1 row": lambda: each(count_min.update),
            "xxhash.xxh64_intdigest per item": xxh,
        },
        rounds,
    )
    print(f"\n{n:,} keys of 6 to 36 bytes (mean {lengths.mean():.1f}), 2^20 slots")
    peer = seconds["datasketches HLL(12), the same as str"]
    for name, found in seconds.items():
        wanted = 1.5 if name == "ours, list of bytes" else None
        row(name, n / found / 1e6, ("datasketches HLL", peer / found, wanted))


def histogram(lg: int, rounds: int) -> None:
    """The histogram that a release publishes, against one pass that reads the array."""
    rng = np.random.default_rng(3)
    state = (rng.geometric(0.632, 1 << lg) - rng.geometric(0.632, 1 << lg)).astype(np.int32)
    lowest = int(state.min())
    from sketchstream.kinds.profile.spec import ProfileSpec

    spec = ProfileSpec(epsilon=1, domain=ClosedDomain(size=1 << lg))
    seconds = clocked(
        {
            "release_counts": lambda: kernels.release_counts(state, spec.edges, "cumulative"),
            "value_counts": lambda: kernels.value_counts(state),
            "one pass, sum": lambda: read_once(state),
            "np.unique of the clipped state": lambda: np.unique(np.clip(state, -64, 64), return_counts=True),
            "np.bincount of the clipped state": lambda: np.bincount(np.clip(state, -64, 64) + 64),
            "the same, of a state without outliers": lambda: np.bincount(state - lowest),
        },
        rounds,
    )
    print(f"\nHistogram of 2^{lg} counters")
    one = seconds["one pass, sum"]
    for name, found in seconds.items():
        row(name, (1 << lg) / found / 1e6, ("one pass", one / found, None))


def small(rounds: int) -> None:
    """What one call costs."""
    index = Index.build(OpenDomain(slots=1 << 16, levels=1), KEY)
    state = np.zeros(1 << 16, np.int32)
    print("\nItems per call, 2^16 slots")
    for n in (1, 100, 4096):
        items = np.arange(n)
        seconds = clocked(
            {"": lambda items=items: [index.batch(state, Items.of(items)).apply() for _ in range(200)]}, rounds
        )[""]
        print(f"  {n:6d} items a call: {seconds / 200 * 1e6:8.1f} us, {n * 200 / seconds / 1e6:8.2f} M/s")


def gaussian(size: int, n: int, rounds: int) -> None:
    """Sketches of kind gaussian beside those of profiles: one closed domain, int64, the same events."""
    rng = np.random.default_rng(1)
    items, weights = rng.integers(0, size, n), rng.integers(-3, 4, n)
    domain = ClosedDomain(size=size)
    profile = ss.Sketch.create(
        ss.ProfileSpec("1", domain=domain, bits=64, max_weight=3, total_share=0, publish="state", intrusion=True)
    )
    counts = ss.Sketch.create(ss.GaussianSpec("1", "1e-6", domain=domain, max_weight=3))
    print(f"\nKind gaussian, {size:,} items, int64")
    for name, given in (("ones", ()), ("weights", (weights,))):
        seconds = clocked(
            {
                "profile": lambda given=given: profile.update(items, *given),
                "gaussian": lambda given=given: counts.update(items, *given),
            },
            rounds,
        )
        ratio = ("a profile sketch", seconds["profile"] / seconds["gaussian"], 0.97)
        row(name, n / seconds["gaussian"] / 1e6, ratio)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer items and rounds")
    parser.add_argument("--only", choices=["ints", "peers", "strings", "histogram", "small", "gaussian"])
    chosen = parser.parse_args()
    kernels.compile_first()
    n, rounds = (2_000_000, 3) if chosen.quick else (10_000_000, 7)
    if chosen.only in (None, "ints"):
        for lg in (16, 20, 24) if chosen.quick else (16, 20, 24, 27):
            ints(lg, n, rounds)
    if chosen.only in (None, "peers"):
        peers(20, n // 10, rounds)
    if chosen.only in (None, "strings"):
        strings(1_000_000 if not chosen.quick else 200_000, rounds)
    if chosen.only in (None, "histogram"):
        histogram(24, rounds)
    if chosen.only in (None, "small"):
        small(rounds)
    if chosen.only in (None, "gaussian"):
        gaussian(1_000_000, n // 2, rounds)


if __name__ == "__main__":
    main()
