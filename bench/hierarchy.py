"""Errors of kind `hierarchy` in a sparse tree, where most leaves are empty: unbiased, and not negative.

    python bench/hierarchy.py [--runs 200]

In: 2,000 leaves in 10 groups, 20 events on 20 of them, epsilon 1, delta 1e-6. Out: for the root, the groups and the
leaves the root mean square errors of both estimates, and how often intervals hold. Touches: entropy.
"""

from __future__ import annotations

import argparse

import numpy as np

import sketchstream as ss

LEAVES, GROUPS, BUSY = 2000, 10, 20


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=200)
    runs = parser.parse_args().runs
    paths = [(f"{leaf % GROUPS}", f"{leaf}") for leaf in range(LEAVES)]
    spec = ss.HierarchySpec(["group", "leaf"], paths, "1", "1e-6")
    depths, busy = spec.tree.depths, set(paths[:BUSY])
    truth = np.array([float(spec.tree.path(node) in busy) for node in range(spec.tree.nodes)])
    truth[depths < 2] = [BUSY, *[BUSY / GROUPS] * GROUPS]
    unbiased, kept, held = [], [], []
    for _ in range(runs):
        sketch = ss.Sketch.create(spec)
        sketch.update(paths[:BUSY])
        found = sketch.seal().estimate(method="nonnegative")
        low, high = found.interval().T
        unbiased.append(found.unbiased - truth)
        kept.append(found.values - truth)
        held.append((low <= truth) & (truth <= high))
    print(f"{'level':8} {'unbiased':>9} {'kept at 0':>9} {'intervals hold':>15}")
    for depth, name in enumerate(("root", "groups", "leaves")):
        errors = [np.sqrt(np.mean(np.square(one)[:, depths == depth])) for one in (np.array(unbiased), np.array(kept))]
        print(f"{name:8} {errors[0]:9.2f} {errors[1]:9.2f} {np.array(held)[:, depths == depth].mean():15.1%}")


if __name__ == "__main__":
    main()
