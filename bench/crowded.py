"""Coverage and errors of crowded sketches of people (unit item, open domain), over a grid of cases; prints a table.

    python bench/crowded.py                        72 cells over the whole grid, 100 runs each: some hours of one core
    python bench/crowded.py --cells 0              every one of the 1,728 cells: days
    python bench/crowded.py --slots 65536 --seed 1 --method inverse --moduli 32 64
    python bench/crowded.py --slots 16384 --users .002 .006 .02 .05    few users, who hardly show above the noise

In: nothing. Out: a row a cell, and the coverage over all. Touches: nothing. Sketches like README's: epsilon 4, and 1
for what is published. Each number: share of runs whose interval holds the truth (* below 92%, ? where most runs set no
upper end), and three ratios of standard deviations: claimed by intervals over measured, planned over measured, claimed
over the inverse of the Fisher information. Ratios are left out (-) where intervals end at the limits of the possible.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from helpers.crowds import MODULI, NAMES, USERS, Found, covered, grid, spread_out


def told(found: Found) -> str:
    """One number of a cell."""
    if not found.runs:
        return "refused".center(21)
    share = found.held / found.runs
    mark = "?" if 2 * found.unknown > found.runs else "*" if share < 0.92 else " "
    ratios = "   -    -    -  "
    if found.told:
        foretold = f"{found.planned / found.measured:5.2f}" if found.planned else "    -"
        ratios = f"{found.claimed / found.measured:5.2f}{foretold}{found.claimed / found.least:5.2f}"
    return f"{share:4.2f}{mark}{ratios:>15} "


def main() -> None:
    """Run the cells that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--cells", type=int, default=72, help="so many cells, spread over the grid; 0: all")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--slots", type=int, default=1 << 16, help="of each part")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--method", default="likelihood")
    parser.add_argument("--users", type=float, nargs="*", help="users a slot, instead of those of the grid")
    parser.add_argument("--moduli", type=int, nargs="*", default=list(MODULI), help="only cells with these")
    asked = parser.parse_args()
    held, runs, cells = dict.fromkeys(NAMES, 0), dict.fromkeys(NAMES, 0), dict.fromkeys(NAMES, 0)
    print("users/slot mean law               modulus levels parts refused  " + " ".join(f"{one:21}" for one in NAMES))
    for cell in spread_out(asked.cells, users=asked.users or USERS) if asked.cells else grid():
        if cell.modulus not in asked.moduli:
            continue
        found, refused = covered(cell, asked.runs, asked.slots, asked.method, asked.seed)
        for name, one in found.items():
            held[name], runs[name] = held[name] + one.held, runs[name] + one.runs
            cells[name] += one.runs > 0 and one.held < 0.92 * one.runs
        said = (
            f"{cell.users:10g} {cell.mean:4g} {cell.law:18}{cell.modulus:7} {cell.levels:6} {cell.parts:5} {refused:7}"
        )
        print(said, "", *map(told, found.values()), flush=True)
    print("covered over all:", {name: round(held[name] / max(runs[name], 1), 4) for name in NAMES})
    print("cells below 92%:", cells)


if __name__ == "__main__":
    main()
