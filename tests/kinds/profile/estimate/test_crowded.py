"""However many users share a slot, intervals hold the truth: a few cells of the grid of bench/crowded.py.

In: cells. Out: verdicts on coverage, and on errors against what was planned and what can be known. Touches: nothing.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from helpers.crowds import LAWS, LEVELS, MODULI, PARTS, Cell, covered, grid, spread_out

RUNS = 30
CELLS = [
    Cell(1.0, 5.0, "poisson", 32, 8, 1),
    Cell(0.5, 10.0, "poisson", 32, 8, 1),
    Cell(2.0, 10.0, "geometric", 32, 4, 1),
    Cell(4.0, 2.0, "zipf", 32, 10, 1),
    Cell(0.25, 5.0, "negative binomial", 64, 8, 1),
    Cell(1.0, 5.0, "negative binomial", 32, 4, 6),
]


@pytest.mark.statistics
def test_intervals_hold_the_truth_however_many_users_share_a_slot() -> None:
    held: dict[str, list[int]] = {}
    for cell in CELLS:
        found, refused = covered(cell, RUNS, 1 << 13, method="inverse")
        assert refused == 0, cell
        for name, one in found.items():
            # five standard deviations of a share of 30 runs
            assert one.held >= RUNS * (0.95 - 5.0 * math.sqrt(0.05 * 0.95 / RUNS)), (cell, name)
            assert one.unknown == 0 or name != "distinct", (cell, name)
            held.setdefault(name, []).append(one.held)
        spread = np.sqrt(np.mean(np.square(found["distinct"].errors))) / np.mean(found["distinct"].deviations)
        assert 1.0 - 5.0 / math.sqrt(2.0 * RUNS) <= spread <= 1.0 + 5.0 / math.sqrt(2.0 * RUNS), cell
        if cell.crowd > 2.0:  # what is told there hangs on the law, which is not known that well
            continue
        for name, one in found.items():
            if one.told:
                assert one.planned is not None, (cell, name)
                assert 1.0 / 1.15 <= one.planned / one.claimed <= 1.15, (cell, name, one.planned, one.claimed)
                assert 0.85 <= one.claimed / one.least <= 1.15, (cell, name, one.claimed, one.least)
        assert found["distinct"].told, cell
    for name, counts in held.items():
        least = 0.95 - 5.0 * math.sqrt(0.05 * 0.95 / (RUNS * len(CELLS)))
        assert sum(counts) >= RUNS * len(CELLS) * least, name


def test_cells_are_spread_over_the_whole_grid() -> None:
    cells = spread_out(72)
    assert len(set(cells)) == 72
    assert set(cells) <= set(grid())
    assert {(one.users, one.mean) for one in cells} == {(one.users, one.mean) for one in grid()}
    for name, values in (("law", LAWS), ("modulus", MODULI), ("levels", LEVELS), ("parts", PARTS)):
        for value in values:
            assert sum(getattr(one, name) == value for one in cells) == 72 / len(values)


@pytest.mark.slow
@pytest.mark.timeout(36_000)
@pytest.mark.parametrize("cell", spread_out(72), ids=str)
def test_every_cell_of_a_spread_over_the_grid_holds_the_truth(cell: Cell) -> None:
    """Hours of one core: `python bench/crowded.py` prints the same cells as a table."""
    runs = 100
    found, refused = covered(cell, runs, 1 << 14, method="inverse")
    for name, one in found.items():
        if one.runs - one.unknown >= 0.5 * runs:
            # 92%, and three standard deviations of a share of the runs
            assert one.held >= one.runs * (0.92 - 3.0 * math.sqrt(0.92 * 0.08 / one.runs)), (name, refused)
