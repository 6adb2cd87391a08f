"""Coverage and errors of crowded sketches of people (unit item, open domain), over a grid of cases; prints a table.

    python bench/crowded.py                        every cell, 100 runs each: days of one core
    python bench/crowded.py --cells 40 --runs 25   a random sample of the cells
    python bench/crowded.py --slots 65536 --seed 1 --method inverse

In: nothing. Out: a row a cell, and the coverage over all. Touches: nothing. Counters as README's: epsilon 4, published
at 1. Each number: share of runs whose interval holds the truth, and the root mean squared error of the estimate over
the standard deviation that its interval claims.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from helpers.crowds import NAMES, covered, grid


def main() -> None:
    """Run the cells that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--cells", type=int, default=0, help="so many cells, drawn at random; 0: all")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--slots", type=int, default=1 << 16, help="of each part")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--method", default="likelihood")
    asked = parser.parse_args()
    cells = list(grid())
    if asked.cells:
        order = np.random.default_rng(asked.seed).permutation(len(cells))[: asked.cells]
        cells = [cells[i] for i in order]
    held, runs = dict.fromkeys(NAMES, 0), dict.fromkeys(NAMES, 0)
    print("users/slot  mean  law                modulus levels parts  refused unknown  " + "  ".join(NAMES))
    for cell in cells:
        found, refused = covered(cell, asked.runs, asked.slots, asked.method, asked.seed)
        shown = []
        for name, one in found.items():
            held[name], runs[name] = held[name] + one.held, runs[name] + one.runs
            error = np.sqrt(np.mean(np.square(one.errors))) / np.mean(one.deviations) if one.deviations else np.nan
            shown.append(f"{one.held / max(one.runs, 1):.2f} ({error:.2f})")
        print(
            f"{cell.users:10g} {cell.mean:5g}  {cell.law:18} {cell.modulus:7} {cell.levels:6} {cell.parts:5}  "
            f"{refused:7} {found['distinct'].unknown:7}  " + "  ".join(shown),
            flush=True,
        )
    print({name: round(held[name] / max(runs[name], 1), 4) for name in NAMES})


if __name__ == "__main__":
    main()
