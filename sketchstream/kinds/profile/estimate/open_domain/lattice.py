"""The law of a counter in an open domain: a compound Poisson sum of counts plus the noise, at counts of any size.

In: nodes of counts, items per slot at each of them, the noise. Out: chances that a counter is at or above an edge,
alone and with one more item in its slot. Touches: nothing.
Source: docs/theory/profile.md 6; exponential tilting: Grubel & Hermesmeier, ASTIN Bulletin 29 (1999);
`docs/theory/reconstruction.md`, section 4.

Sums of counts up to a million on a lattice of single counts would cost too much. So each octave of counts
has a lattice of its own. Steps are 1 up to `2 size`, and double from one octave to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.kernels import kernel
from sketchstream.kinds.profile.estimate import laws

if TYPE_CHECKING:
    from scipy.sparse import csr_array

SIZE = 256
"""Least number of lattice points of an octave above the first."""
ALIAS = 1e-8
"""Weight that exponential tilting leaves to sums beyond the lattice, which the transform folds back."""
POINTS = 16
"""Counts of a wide node that stand for all of them on a lattice."""


class CountLattice:
    """Nodes of counts and the noise of counters, prepared for any number of items at the nodes.

    Args:
        low: (m,) smallest count of each node, at least 1, ascending.
        width: (m,) number of counts of each node, over which its items are spread evenly.
        epsilons: epsilons of the layers of noise.
        top: largest edge that is asked for.
    """

    def __init__(self, low: Ints, width: Ints, epsilons: Sequence[float], top: int) -> None:
        self.low, self.width = low, width
        reach = laws.radius(epsilons, 1e-9)
        self.size = SIZE
        while 2 * self.size < min(reach, 1 << 14):
            self.size *= 2
        self.octaves = 1
        while (2 * self.size) << (self.octaves - 1) < top:
            self.octaves += 1
        self.length = 4 * self.size  # the upper half is room for sums that are not asked for
        self.tilt = ALIAS ** (np.arange(-2 * self.size, self.length) / self.length)
        self.split = self._split()
        self.noise = np.stack([self._noise(epsilons, reach, 1 << j) for j in range(self.octaves)])

    def _split(self) -> csr_array:
        """Shares of each node at the lattice points of every octave; counts between points keep their mean."""
        from scipy.sparse import csr_array

        rows, columns, weights = [], [], []
        for points in range(1, POINTS + 1):
            these = np.flatnonzero(np.minimum(self.width, POINTS) == points)
            if not these.size:
                continue
            inside = (np.arange(points) + 0.5) / points
            count = self.low[these, None] + inside * self.width[these, None] - 0.5
            for j in range(self.octaves):
                place = count / (1 << j)
                below = np.floor(place)
                up = place - below
                for shift, weight in ((0, 1.0 - up), (1, up)):
                    at = below.astype(np.int64) + shift
                    kept = (at < self.length) & (weight > 0.0)
                    rows.append((j * self.length + at)[kept])
                    columns.append(np.broadcast_to(these[:, None], at.shape)[kept])
                    weights.append(weight[kept] / points)
        shape = (self.octaves * self.length, self.low.size)
        where = (np.concatenate(rows), np.concatenate(columns))
        return csr_array((np.concatenate(weights), where), shape=shape)

    def _noise(self, epsilons: Sequence[float], reach: int, step: int) -> Any:
        """Transform of the chance that a counter with a count of 0 is below i steps, tilted.

        A lattice point stands for the counts within a step of it, with the weights by which these were split.
        """
        reach = min(reach, 2 * self.size - 1)
        below = np.append(0.0, np.cumsum(laws.noise_pmf(epsilons, reach)))  # Pr[noise < -reach], ..
        within = np.arange(1 - step, step)
        weight = (step - np.abs(within)) / step**2
        if step > reach:  # a step is far wider than the noise
            within, weight = np.array([-1, 0, 1]), np.array([0.5 - 0.5 / step, 1.0 / step, 0.5 - 0.5 / step])
        near = min(reach // step + 2, 2 * self.size)
        chance = np.ones(self.tilt.size)
        chance[: 2 * self.size - near] = 0.0
        for i in range(-near, near + 1):
            at = np.clip(i * step - within + reach, 0, below.size - 1)
            chance[2 * self.size + i] = float(weight @ below[at])
        chance *= self.tilt
        folded = chance[2 * self.size :].copy()
        folded[-2 * self.size :] += chance[: 2 * self.size]
        return np.fft.rfft(folded)

    def law(self, rates: Floats, load: float) -> CounterLaw:
        """The law of a counter with `rates` (m,) items per slot at the nodes and `load` in all."""
        size = 2 * self.size
        rate = (self.split @ rates).reshape(self.octaves, self.length)
        spectrum = np.fft.rfft(rate * self.tilt[size:])
        below = np.fft.irfft(np.exp(spectrum - load) * self.noise, self.length)
        parts = [below[0, -size:] / self.tilt[:size], below[0, : size + 1] / self.tilt[size : 2 * size + 1]]
        upper = slice(self.size + 1, size + 1)
        parts += [one[upper] / self.tilt[size:][upper] for one in below[1:]]
        return CounterLaw(1.0 - np.concatenate(parts), size, size, self)


class CounterLaw:
    """The law of a counter: chances of being at or above any edge."""

    def __init__(self, above: Floats, size: int, near: int, lattice: CountLattice) -> None:
        self.size, self.near, self.lattice = size, near, lattice
        self.above = above
        self.sums = np.empty(above.size)
        sum_up(self.above, size, near, self.sums)

    def at_least(self, edges: Ints) -> Floats:
        """Chances of being at or above edges. (B,)."""
        out = np.empty((edges.size, 1))
        add_mean_chances(
            self.above, self.sums, self.size, self.near, edges, np.zeros(1, np.int64), np.ones(1, np.int64), out
        )
        return out[:, 0]

    def with_one_more(self, edges: Ints) -> Floats:
        """Chances of being at or above edges with one more item, of each node, in the slot. (B, m)."""
        out = np.empty((edges.size, self.lattice.low.size))
        add_mean_chances(self.above, self.sums, self.size, self.near, edges, self.lattice.low, self.lattice.width, out)
        return out


@kernel
def sum_up(above: Floats, size: int, near: int, out: Floats) -> None:
    """Sums of the chances over all counters from each point of the table on, linear between its points."""
    out[above.size - 1] = 0.0
    for i in range(above.size - 2, -1, -1):
        place = i + 1 - near - size
        step = 1
        while place > 0:
            step, place = 2 * step, place - size // 2
        out[i] = out[i + 1] + step * above[i] + (above[i + 1] - above[i]) * (step - 1) / 2.0


@kernel
def add_mean_chances(
    above: Floats, sums: Floats, size: int, near: int, edges: Ints, low: Ints, width: Ints, out: Floats
) -> None:
    """Mean chance of a counter to be at or above each edge less a count of each node. out: (B, m)."""
    for b in range(edges.size):
        for t in range(low.size):
            total = 0.0
            for side in range(2):
                y = edges[b] - low[t] - width[t] + 1 if side == 0 else edges[b] - low[t] + 1
                if y <= -near:
                    here = sums[0] + (-near - y)
                else:
                    first, start, step = y + near, y, 1
                    if y > size:
                        step, first, end = 2, near + size, 2 * size
                        while y > end:
                            step, first, end = 2 * step, first + size // 2, 2 * end
                        begin = end // 2
                        first += (y - begin) // step
                        start = begin + (y - begin) // step * step
                    if first >= above.size - 1:
                        here = 0.0
                    else:
                        i = y - start
                        here = sums[first] - i * above[first]
                        if step > 1:
                            here -= (above[first + 1] - above[first]) * i * (i - 1) / (2.0 * step)
                total += here if side == 0 else -here
            out[b, t] = total / width[t]
