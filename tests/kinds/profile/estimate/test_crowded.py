"""However many users share a slot, intervals hold the truth: a few cells of the grid of bench/crowded.py."""

from __future__ import annotations

import math

import numpy as np
import pytest

from helpers.crowds import Cell, covered

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
    for name, counts in held.items():
        least = 0.95 - 5.0 * math.sqrt(0.05 * 0.95 / (RUNS * len(CELLS)))
        assert sum(counts) >= RUNS * len(CELLS) * least, name
