"""Coverage of k+ numbers of open domains at every k up to 300, where bins are wider than one count.

    python bench/wide_bins.py [--runs N] [--sets tailnum,topics] [--epsilons 0.5,2] [--weights 1,2,5] [--method NAME]

In: real count vectors (bench/data.py), and the words of a text that comes with the interpreter. Out: a table on stdout.
Touches: the cache of bench/data.py. Covered: the share of runs whose ends hold the truth, before these are widened to
hold the estimate, its mean over k and the least of all k. Inside: the share of estimates within those ends. Width:
the mean over k, before and after. Bias: of the estimate, in standard deviations, mean of its sizes over k.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import data

from sketchstream.kinds.estimates import normal_quantile
from sketchstream.kinds.profile.estimate.simulate import hash_counts, publish
from sketchstream.kinds.profile.reconstruction import reconstruct

N, SLOTS, LEVELS = 300, 8192, 2
Z = normal_quantile(0.95)


def topics() -> np.ndarray:
    """Words of the texts of Python's `help`."""
    from pydoc_data import topics

    text = " ".join(topics.topics.values()).lower()
    return np.array(list(Counter(re.findall(r"[a-z]+", text)).values()), dtype=np.int64)


def counted(name: str) -> np.ndarray:
    """Counts of a set; of large ones, 4,000 at random."""
    counts = topics() if name == "topics" else data.load(name)
    return counts if counts.size <= 6_000 else np.random.default_rng(0).choice(counts, 4_000, replace=False)


def row(name: str, epsilon: str, weight: int, runs: int, method: str) -> str:
    """One line of the table."""
    counts = counted(name)
    truth = np.array([(counts >= k).sum() for k in range(1, N + 1)])
    rng, found = np.random.default_rng([9, weight, counts.size]), []
    for _ in range(runs):
        seen = publish(
            hash_counts(counts, SLOTS, LEVELS, rng), epsilon=epsilon, rng=rng, max_count=N, max_weight=weight,
            form="cumulative" if weight == 1 else "bins", open_domain=True, grouped=True,
        )  # fmt: skip
        profile = reconstruct([seen], max_count=N, method=method)
        low, high, _ = profile._known.tails.ends_and_ways(Z)
        shown = profile.tail_ends(Z)[1 : N + 1].T
        found.append((np.maximum(low, 0.0)[1 : N + 1], high[1 : N + 1], *shown))
    low, high, value, least, most = np.moveaxis(np.array(found), 1, 0)
    covered = ((low <= truth) & (truth <= high)).mean(axis=0)
    inside = ((low <= value) & (value <= high)).mean()
    bias = np.abs(((value - truth) / np.maximum((high - low) / (2.0 * Z), 0.5)).mean(axis=0)).mean()
    return (
        f"{name:14} {weight:3} {epsilon:>5}  {covered.mean():.3f} / {covered.min():.2f} (k = {covered.argmin() + 1:3})"
        f"  {inside:.3f}  {(high - low).mean():9.1f} {(most - least).mean():9.1f}  {bias:.2f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--sets", default="tailnum,topics,python_names")
    parser.add_argument("--epsilons", default="0.5,1,2,5")
    parser.add_argument("--weights", default="2,3,5")
    parser.add_argument("--method", default="likelihood")
    options = parser.parse_args()
    print("set        weight epsilon  covered: mean / least   inside  width    as shown  bias")
    for name in options.sets.split(","):
        for weight in options.weights.split(","):
            for epsilon in options.epsilons.split(","):
                print(row(name, epsilon, int(weight), options.runs, options.method), flush=True)


if __name__ == "__main__":
    main()
