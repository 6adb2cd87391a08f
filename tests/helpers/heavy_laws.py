"""Laws of users' counts with heavy tails, and how often intervals hold the truth where counts exceed the modulus.

In: laws (Zipf, log-normal, negative binomial, outliers), moduli, runs. Out: counts; whether each number is covered; as
a program (`python -m tests.helpers.heavy_laws`) a table of it. Touches: nothing.

Each number is covered if its interval holds the truth, or if it is marked as a bound and the end that it bounds holds.
`shown` is the share of runs in which counts near the modulus were found.
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from sketchstream.kinds.profile.estimate.simulate import publish
from sketchstream.kinds.profile.reconstruction import reconstruct

Ints = npt.NDArray[np.int64]
Law = Callable[[np.random.Generator, int], Ints]
MOST = 1_000_000


def zipf(exponent: float) -> Law:
    """P(t) ~ t^-exponent, up to `MOST`."""

    def draw(rng: np.random.Generator, n: int) -> Ints:
        found = rng.zipf(exponent, n)
        return np.where(found > MOST, rng.integers(MOST // 10, MOST, n), found).astype(np.int64)

    return draw


def log_normal(mean: float, spread: float) -> Law:
    """Rounded up, of this mean before."""
    middle = np.log(mean) - spread**2 / 2
    return lambda rng, n: np.ceil(rng.lognormal(middle, spread, n)).clip(1, MOST).astype(np.int64)


def negative_binomial(mean: float, shape: float) -> Law:
    """One more than a negative binomial number."""
    return lambda rng, n: 1 + rng.negative_binomial(shape, shape / (shape + mean - 1.0), n).astype(np.int64)


def outliers(law: Law, share: float, least: int, most: int) -> Law:
    """With a share of items that have any number of events in this range."""

    def draw(rng: np.random.Generator, n: int) -> Ints:
        found = law(rng, n)
        far = rng.random(n) < share
        return np.where(far, rng.integers(least, most, n), found)

    return draw


LAWS: dict[str, Law] = {
    **{f"Zipf {s}": zipf(s) for s in (1.3, 1.6, 1.9, 2.2, 2.6, 3.0)},
    **{
        f"log-normal {mean}, {spread}": log_normal(mean, spread)
        for mean, spread in ((2, 0.8), (3, 1.2), (5, 1.5), (5, 1.0), (10, 1.0), (10, 1.5), (8, 2.0))
    },
    **{
        f"negative binomial {mean}, {shape}": negative_binomial(mean, shape)
        for mean, shape in ((3, 1.0), (5, 0.5), (8, 2.0))
    },
    "negative binomial, 2.3% outliers": outliers(negative_binomial(3, 1.0), 0.023, 32, 200),
    "negative binomial, 0.5% outliers": outliers(negative_binomial(3, 1.0), 0.005, 20, 2000),
    "negative binomial, 0.05% huge": outliers(negative_binomial(3, 1.0), 0.0005, 1000, 100_000),
    "log-normal, 1% bots": outliers(log_normal(3, 0.8), 0.01, 100, 1000),
}


def truths(counts: Ints, names: list[str], max_count: int) -> dict[str, float]:
    """What a profile without noise and without wrapping would say."""
    n, total = counts.size, float(counts.sum())
    out: dict[str, Any] = {
        "distinct": n,
        "total": total,
        "mean": total / n,
        "one_hit_ratio": float((counts == 1).mean()),
        "coverage": 1.0 - float((counts == 1).sum()) / total,
        "entropy": float(np.log(total) - (counts * np.log(counts)).sum() / total),
    }
    for name in names:
        kind, _, rest = name.partition(".")
        if kind == "at_least":
            out[name] = int((counts >= int(rest)).sum())
        elif kind == "exactly":
            out[name] = int((counts == int(rest)).sum())
        elif kind == "quantile":
            out[name] = float(np.quantile(counts, float(rest), method="inverted_cdf"))
        elif kind == "above":
            out[name] = float((counts > max_count).mean())
    return {name: float(out[name]) for name in names}


USERS, SLOTS = 20_000, 65_536


def names_of(modulus: int) -> list[str]:
    """Numbers that are checked."""
    reach = [k for k in (2, 3, 5, 10, 20, 30, 50) if k < modulus]
    return [
        *("distinct", "total", "mean", "one_hit_ratio", "coverage", "entropy"),
        *(f"at_least.{k}" for k in reach),
        *(f"exactly.{k}" for k in (1, 2, 5, 10)),
        *("quantile.0.5", "quantile.0.9", "quantile.0.99"),
    ]


def run(
    law: Law, modulus: int, rng: np.random.Generator, *, method: str = "likelihood", open_domain: bool = False
) -> tuple[bool, dict[str, tuple[bool, bool, bool]]]:
    """One window: whether counts near the modulus show; by number whether it is covered, marked, two-sided covered."""
    counts = law(rng, USERS)
    levels = [1 / 2, 1 / 4, 1 / 8, 1 / 8] if open_domain else [1.0]
    level = rng.choice(len(levels), USERS, p=levels)
    held = []
    for at in range(len(levels)):
        slots = np.zeros(SLOTS // len(levels), np.int64)
        own = counts[level == at]
        where = rng.integers(0, slots.size, own.size) if open_domain else np.arange(own.size)
        np.add.at(slots, where, own)
        held.append(slots % modulus)
    observed = publish(
        held,
        epsilon="4",
        cost="1",
        rng=rng,
        unit="item",
        form="bins",
        modulus=modulus,
        max_count=modulus - 1,
        open_domain=open_domain,
        grouped=True,
    )
    found = reconstruct([observed], method=method, max_count=modulus - 1)
    names = names_of(modulus)
    true = truths(counts, names, modulus - 1)
    out = {}
    for name in names:
        one = found.interval(name)
        inside = one.low <= true[name] <= one.high
        sides = {"lower": one.low <= true[name], "upper": true[name] <= one.high, "modulo": True}
        out[name] = (inside if one.bound is None else sides[one.bound], one.bound is not None, inside)
    assert found.facts.wrapping is not None
    return found.facts.wrapping.shows, out


def main() -> None:
    """Print the least coverage of any number, and that of the worst, by law and modulus."""
    parser = argparse.ArgumentParser(description="Coverage where counts exceed the modulus.")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--method", default="inverse")
    parser.add_argument("--moduli", type=int, nargs="*", default=[16, 32, 64])
    parser.add_argument("--open", action="store_true")
    given = parser.parse_args()
    print(f"{'law':<36}{'p':>4}{'beyond':>8}{'shown':>7}  worst: covered or bound, without a mark, two-sided")
    for name, law in LAWS.items():
        for modulus in given.moduli:
            rng = np.random.default_rng(sum(name.encode()) + modulus)
            held: dict[str, list[tuple[bool, bool, bool]]] = collections.defaultdict(list)
            shown = 0
            for _ in range(given.runs):
                shows, found = run(law, modulus, rng, method=given.method, open_domain=given.open)
                shown += shows
                for what, one in found.items():
                    held[what].append(one)
            rates = {what: np.mean([one[0] for one in runs]) for what, runs in held.items()}
            sided = {what: np.mean([one[2] for one in runs]) for what, runs in held.items()}
            free = {what: rates[what] for what, runs in held.items() if not any(one[1] for one in runs)}
            beyond = float((law(rng, 100_000) >= modulus).mean())
            texts = [
                "-" if not some else f"{(least := min(some, key=lambda one: some[one]))} {some[least]:.2f}"
                for some in (rates, free, {k: v for k, v in sided.items() if k not in ("total", "mean", "entropy")})
            ]
            print(f"{name:<36}{modulus:>4}{beyond:>8.2%}{shown / given.runs:>7.0%}  {'   '.join(texts)}", flush=True)


if __name__ == "__main__":
    main()
