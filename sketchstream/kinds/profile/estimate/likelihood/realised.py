"""Exact posterior mean of the slots in each cell given a published cumulative histogram, if it is cheap.

In: expected slots of each cell, the published numbers. Out: slots expected, given these inputs. Touches: nothing.
Source: forward and backward recursion (Baum et al. 1970); `docs/theory/reconstruction.md`. The saddlepoint of
docs/theory/profile.md 7.1 treats the few slots of a cell as a continuum: for 1,000 slots at epsilon 2 its errors are
larger by 5% in L1, and by 20% in earth mover's distance.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.kernels import kernel
from sketchstream.kinds.profile.estimate.likelihood.kernels import CUMULATIVE
from sketchstream.kinds.profile.estimate.likelihood.published_counts import PublishedCounts

RARE = 1e-10
"""Probability of the values of published noise that are left out."""
WORK = 3e7
"""Most products for the recursion; where it needs more, the noise is wide, and the saddlepoint approximation good."""


def expected_slots(seen: PublishedCounts, mu: Floats, y: Floats) -> Floats:
    """Expected slots of each cell given the published numbers. mu: prior mean, y: saddlepoint at mu. All (m,)."""
    if seen.form == CUMULATIVE:
        noise, out = noise_of_sum(seen.q, round(seen.mult)), np.empty(mu.size)
        above = np.rint(np.cumsum(seen.h[:0:-1])[::-1]).astype(np.int64)
        least = np.concatenate([[round(seen.d)], above - noise.size // 2, [0]])
        if mu.size * noise.size**2 <= WORK:
            tables, rows = np.zeros((3, least.size, 2 * noise.size - 1)), np.zeros((3, noise.size))
            if chain(mu, least, noise, out, tables, rows):
                return out
    return mu * np.exp(y)


def noise_of_sum(q: float, times: int) -> Floats:
    """(2R+1,) probabilities of -R..R for the sum of `times` discrete Laplace numbers of ratio q; RARE is cut off."""
    reach = math.ceil(math.log(RARE) / math.log(q))
    single_draw = q ** np.abs(np.arange(-reach, reach + 1)) * (1.0 - q) / (1.0 + q)
    out = single_draw
    for _ in range(times - 1):
        out = np.convolve(out, single_draw)
        cut = int(np.searchsorted(np.cumsum(out), 0.1 * RARE))
        out = out[cut : out.size - cut]
    return np.asarray(out)


@kernel
def chain(mu: Floats, least: Ints, noise: Floats, out: Floats, tables: Floats, rows: Floats) -> Any:
    """Expected slots of each cell given noisy numbers of slots above thresholds; False if these are impossible.

    The true numbers form a Markov chain from d down to 0: a cell holds a Poisson number of slots. States within the
    range of the noise are summed over.

    Args:
        mu: (m,) slots expected before.
        least: (m+1,) smallest number of slots above each threshold in the sum, from all slots down to 0.
        noise: (2R+1,) law of the noise of one published number.
        out: (m,) filled in.
        tables: (3, m+1, 4R+1) zeros, scratch memory: chances of numbers of slots in a cell; these times the numbers;
            probability of the published numbers from a threshold on, given the number above it.
        rows: (3, 2R+1) zeros, scratch memory.
    """
    m, k = mu.size, noise.size
    chance, slots, after = tables[0], tables[1], tables[2]
    for i in range(m):
        rate, highest = math.log(mu[i]), -math.inf
        start = least[i] - least[i + 1] - (k - 1)
        for x in range(max(0, -start), 2 * k - 1):
            chance[i, x] = (start + x) * rate - math.lgamma(start + x + 1.0)
            highest = max(highest, chance[i, x])
        for x in range(max(0, -start), 2 * k - 1):
            chance[i, x] = math.exp(chance[i, x] - highest)
            slots[i, x] = (start + x) * chance[i, x]
    after[m, 0] = 1.0
    for i in range(m - 1, 0, -1):
        here, top = after[i], 0.0
        for j in range(k):
            weight = after[i + 1, j]
            if weight > 1e-30:
                for x in range(k):
                    here[x] += weight * chance[i, k - 1 + x - j]
        for x in range(k):
            here[x] = here[x] * noise[k - 1 - x] if least[i] + x >= 0 else 0.0
            top = max(top, here[x])
        if not top > 0.0:
            return False
        for x in range(k):
            here[x] /= top
    before, both, mean = rows[0], rows[1], rows[2]
    before[0] = 1.0
    for i in range(m):
        both[:], mean[:] = 0.0, 0.0
        for x in range(k):
            weight = before[x]
            if weight > 1e-30:
                for j in range(k):
                    both[j] += weight * chance[i, k - 1 + x - j]
                    mean[j] += weight * slots[i, k - 1 + x - j]
        total, part, top = 0.0, 0.0, 0.0
        for j in range(k):
            total += both[j] * after[i + 1, j]
            part += mean[j] * after[i + 1, j]
            before[j] = both[j] * noise[k - 1 - j]
            top = max(top, before[j])
        if not total > 0.0 or not top > 0.0:
            return False
        out[i] = part / total
        for j in range(k):
            before[j] /= top
    return True
