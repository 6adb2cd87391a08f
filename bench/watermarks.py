"""What wrong clocks cost: records lost and windows closed late, under the watermark's quorum and under simpler rules.

In: made-up partitions, each with event times, record timestamps and true times of arrival. Out: a table, printed.
Touches: nothing.

For each load and rule: the share of right records (those of producers with right clocks that arrive within the
lateness) that are late, and how long after window end + lateness a window closes (median over windows, minutes).

Run: python bench/watermarks.py [--quick]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sketchstream.kernels import kernel
from sketchstream.stream.state.watermark import Watermark
from sketchstream.stream.windows.quorum import MAXIMUM, Quorum

Ints = npt.NDArray[np.int64]

SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000
DAY = 24 * HOUR
START = 1_700_000_000_000 // DAY * DAY
LAST = 256
"""Records of the rule that takes a median."""


@dataclass
class Load:
    """One partition in offset order.

    Args:
        name: name of the table's row.
        arrival: (n,) true times, ms.
        times: (n,) event times.
        stamps: (n,) record timestamps.
        right: (n,) bool, records that must not be late.
        width: width of windows, ms.
        lateness: ms.
        closes: whether windows are closed by the clock's progress, so that a delay can be told.
    """

    name: str
    arrival: Ints
    times: Ints
    stamps: Ints
    right: npt.NDArray[np.bool_]
    width: int = HOUR
    lateness: int = 10 * MINUTE
    closes: bool = True


@kernel
def median_watermarks(times: Ints, size: int, before: Ints) -> None:
    """Largest median so far of the last `size` times."""
    ring = np.zeros(size, np.int64)
    ordered = np.zeros(size, np.int64)
    watermark = np.iinfo(np.int64).min
    for i in range(times.size):
        before[i] = watermark
        n = min(i, size)
        if n == size:
            at = np.searchsorted(ordered, ring[i % size])
            ordered[at : size - 1] = ordered[at + 1 :].copy()
            n -= 1
        at = np.searchsorted(ordered[:n], times[i])
        ordered[at + 1 : n + 1] = ordered[at:n].copy()
        ordered[at] = times[i]
        ring[i % size] = times[i]
        watermark = max(watermark, ordered[(n + 1) // 2])


def by_maximum(load: Load) -> Ints:
    """The largest event time, as most engines have it."""
    return Watermark(MAXIMUM, load.lateness).admit(load.times, None).before


def by_both(load: Load) -> Ints:
    """The largest min(event time, timestamp)."""
    return Watermark(MAXIMUM, load.lateness).admit(load.times, load.stamps).before


def by_median(load: Load) -> Ints:
    """The median of the last records."""
    before = np.empty(load.times.size, np.int64)
    median_watermarks(load.times, LAST, before)
    return before


def by_quorum(load: Load) -> Ints:
    """The product's rule at its defaults."""
    return Watermark(Quorum(), load.lateness).admit(load.times, load.stamps).before


RULES: dict[str, Callable[[Load], Ints]] = {
    "largest time": by_maximum,
    f"median of {LAST}": by_median,
    "largest min(t, s)": by_both,
    "quorum": by_quorum,
}


def lost(load: Load, before: Ints) -> float:
    """Share of the right records that are late, per cent."""
    ends = load.times // load.width * load.width + load.width
    late = ends + load.lateness <= before
    return float(100 * late[load.right].mean())


def delays(load: Load, before: Ints) -> npt.NDArray[np.float64]:
    """For each window that should close while the load lasts: how late it does, minutes; infinite if it never does."""
    first = int(load.arrival[0]) // load.width + 1
    last = (int(load.arrival[-1]) - load.lateness) // load.width
    due = np.arange(first, last) * load.width + load.lateness
    at = np.searchsorted(before, due)
    arrival = np.append(load.arrival.astype(np.float64), np.inf)
    return (arrival[at] - due) / MINUTE


def cell(load: Load, before: Ints) -> str:
    """Lost / delay."""
    part = lost(load, before)
    text = "0" if part == 0 else f"{part:.0f}" if part >= 1 else f"{part:.2g}"
    if not load.closes:
        return text
    found = delays(load, before)
    if not found.size:
        return text
    middle = float(np.median(found))
    return f"{text} / {'never' if np.isinf(middle) else f'{middle:.1f}'}"


# ----------------------------------------------------------------------------------------------------- loads


def arrivals(rng: np.random.Generator, per_s: float, hours: float) -> Ints:
    """True times at a steady rate, at random."""
    n = int(per_s * hours * 3600)
    return START + np.sort(rng.integers(0, int(hours * HOUR), n))


def steady(rng: np.random.Generator, name: str, per_s: float, hours: float, **more: int) -> Load:
    """Right clocks: an event is up to two seconds old when it is stamped."""
    at = arrivals(rng, per_s, hours)
    return Load(name, at, at - rng.integers(0, 2 * SECOND, at.size), at.copy(), np.ones(at.size, np.bool_), **more)


def fast(load: Load, which: npt.NDArray[np.bool_], ahead: int, *, stamps: bool = True) -> Load:
    """Some producers' clocks are ahead, and their timestamps with them unless somebody else sets these."""
    load.times[which] += ahead
    if stamps:
        load.stamps[which] += ahead
    load.right = load.right & ~which
    return load


def share(rng: np.random.Generator, load: Load, part: float) -> npt.NDArray[np.bool_]:
    """A random part of the records."""
    return rng.random(load.times.size) < part


def loads(quick: bool) -> Iterator[Load]:
    """Row by row."""
    hours = 3.0 if quick else 6.0
    rng = np.random.default_rng(1)
    yield steady(rng, "right clocks, 1/s", 1, hours)
    yield steady(rng, "right clocks, 100/s", 100, hours / 3, width=15 * MINUTE)
    yield steady(rng, "right clocks, 2,000/s, 5 min windows", 2000, 0.5, width=5 * MINUTE)
    for part, ahead in ((0.001, 59), (0.02, 20), (0.02, 45), (0.02, 59), (0.1, 59), (0.4, 59)):
        load = steady(rng, f"{part:.1%} +{ahead} min, t and s", 10, hours)
        yield fast(load, share(rng, load, part), ahead * MINUTE)
    load = steady(rng, "90% +59 min, s right", 10, hours)
    yield fast(load, share(rng, load, 0.9), 59 * MINUTE, stamps=False)
    load = steady(rng, "2% +59 min in bursts of 500, 100/s", 100, hours / 3, width=15 * MINUTE)
    burst = np.arange(load.times.size) % 25_000 >= 24_500
    yield fast(load, burst, 59 * MINUTE)
    for stall in (90, 240):
        load = steady(rng, f"the other 98% stall for {stall} s, 100/s", 100, hours / 3, width=15 * MINUTE)
        wrong = share(rng, load, 0.02)
        since = load.arrival - START - HOUR // 2
        kept = wrong | ~((since >= 0) & (since < stall * SECOND))
        load = fast(load, wrong, 59 * MINUTE)
        cut = (column[kept] for column in (load.arrival, load.times, load.stamps, load.right))
        yield Load(load.name, *cut, width=load.width)
    load = steady(rng, "first record a year ahead, t and s", 10, hours)
    yield fast(load, np.arange(load.times.size) == 0, 365 * DAY)
    load = steady(rng, "60% uploaded ~2 h later, 2% +45 min, s right", 10, hours)
    held = share(rng, load, 0.6)
    load.times[held] -= rng.gamma(4.0, HOUR / 2, int(held.sum())).astype(np.int64)
    load.right = load.right & ~held
    yield fast(load, share(rng, load, 0.02), 45 * MINUTE, stamps=False)
    load = steady(rng, "90% late by ~2 h with s = t, 2% +45 min", 10, hours)
    held = share(rng, load, 0.9)
    load.times[held] -= rng.gamma(4.0, HOUR / 2, int(held.sum())).astype(np.int64)
    load.stamps[held] = load.times[held]
    load.right = load.right & ~held
    yield fast(load, share(rng, load, 0.02) & ~held, 45 * MINUTE)
    long = 8.0 if quick else 48.0
    load = steady(rng, "1 a minute, 10% +59 min", 1 / 60, long)
    yield fast(load, share(rng, load, 0.1), 59 * MINUTE)
    load = steady(rng, "1 per 5 minutes, 10% +59 min", 1 / 300, 3 * long)
    yield fast(load, share(rng, load, 0.1), 59 * MINUTE)
    yield back_fill(rng, 1.0 if quick else 3.0)
    yield shuffled(rng, DAY, "1 d")
    yield shuffled(rng, 10 * MINUTE, "10 min")


def back_fill(rng: np.random.Generator, days: float) -> Load:
    """History written now, in order, one record a second of it, with a few live records in between."""
    n = int(days * 86_400)
    times = START + np.arange(n) * SECOND
    now = START + 30 * DAY
    arrival = now + np.arange(n)
    live = np.zeros(n, np.bool_)
    live[rng.choice(n, 20, replace=False)] = True
    times[live] = arrival[live]
    return Load("back-fill, s = now, 20 records at now", arrival, times, arrival.copy(), ~live, closes=False)


def shuffled(rng: np.random.Generator, lateness: int, said: str) -> Load:
    """The records of a day in random order, s = t."""
    times = START + rng.permutation(86_400) * SECOND
    arrival = START + DAY + np.arange(86_400)
    right = np.ones(86_400, np.bool_)
    return Load(f"a day in random order, lateness {said}", arrival, times, times.copy(), right, HOUR, lateness, False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="shorter loads")
    quick = parser.parse_args().quick
    print(
        "10 records/s, hourly windows, lateness 10 min unless said. Right records lost, % / delay in closing, median "
        "min\n"
    )
    print(f"| load | {' | '.join(RULES)} |\n|---|{'---|' * len(RULES)}")
    for load in loads(quick):
        print(f"| {load.name} | {' | '.join(cell(load, rule(load)) for rule in RULES.values())} |", flush=True)
    print("\nRight clocks, the quorum's delay in closing windows of 5 min, min:\n")
    print("| records | median | largest |\n|---|---|---|")
    rng = np.random.default_rng(2)
    for said, per_s, hours in (
        ("1,000/s", 1000.0, 0.5),
        ("100/s", 100.0, 2.0),
        ("10/s", 10.0, 6.0),
        ("1/s", 1.0, 24.0),
        ("1 per 10 s", 0.1, 24.0),
        ("1 a minute", 1 / 60, 96.0),
        ("1 per 5 min", 1 / 300, 240.0),
    ):
        load = steady(rng, said, per_s, max(0.75, hours / 4 if quick else hours), width=5 * MINUTE)
        found = delays(load, by_quorum(load))
        found = found[np.isfinite(found)]
        print(f"| {said} | {np.median(found):.1f} | {found.max():.1f} |")


if __name__ == "__main__":
    main()
