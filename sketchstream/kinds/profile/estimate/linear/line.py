"""Unbiased linear estimates with their variances on the line (unit event), from one level of one published object.

In: an `Observed`, a level. Out: estimates of the share of slots at each count, of k+ shares, and of any
functional (1/d) sum b(h), each with its variance and, where bins are wide, with a bracket. Touches: nothing.
Source: docs/theory/profile.md 2, 3, 5; Ghazi et al., NeurIPS 2022; variances: `docs/theory/reconstruction.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.kinds.profile.estimate import laws
from sketchstream.kinds.profile.estimate.linear.circle import Circle
from sketchstream.kinds.profile.estimate.linear.tail import Tail
from sketchstream.kinds.profile.estimate.linear.wide import undone_bins
from sketchstream.kinds.profile.estimate.observed import UNBOUNDED, Cells, Observed, tally
from sketchstream.kinds.profile.estimate.uncertainty.bands import Band, Hidden, Moments, Score, decreasing
from sketchstream.kinds.profile.estimate.uncertainty.monotone_tails import WIDTHS, squared_score_weights


class Line:
    """Linear estimates on the line (unit event) from one level.

    Shares and k+ shares read every cell. Functionals of counts beyond the unit range end at a horizon.
    """

    def __init__(self, observed: Observed, level: int = 0, cells: Cells | None = None) -> None:
        self.epsilons = observed.epsilons
        self.k = len(self.epsilons)
        self.cells: Cells = observed.cells(level) if cells is None else cells
        self.whole: Cells = observed.published(level) if cells is None else cells
        self.d = self.cells.d
        self.form = observed.form
        self.v = observed.noise_variance
        self.taps = laws.stencil(self.epsilons)
        self.a = laws.decay(self.epsilons[0])

    @cached_property
    def resolved(self) -> int:
        """Largest count whose cell and k+ share have unbiased estimates."""
        last = self.whole.unit_range[1]
        return last if last >= UNBOUNDED else last - self.k

    def _window(self, n: int) -> tuple[Floats, Floats, float]:
        """Slots at 1-k..n+k, the same with everything <= 0 pooled for one layer's first cell, and those above."""
        low, high = 1 - self.k, n + self.k
        below, g, above = self.whole.dense(low, high)
        first = g.copy()
        if self.k == 1:
            first[0] += below
        elif below and self.whole.unit_range[0] > low:
            # more layers than negative unit bins: spread the pooled bin by the law of noise around zero
            deep = -int(self.whole.unit_range[0]) + 1
            law = laws.noise_pmf(self.epsilons, max(4 * deep, laws.radius(self.epsilons, 1e-9)))
            mid = law.size // 2
            part = law[mid + deep : mid + self.k]
            g[: part.size] += (below * part / law[mid + deep :].sum())[::-1]
        return g, first, above

    def _noise(self, squares: Floats, steps: Floats, sums: Floats) -> Floats:
        """Variance of the published noise in sum C_B H_B: sums of C^2, of squared steps, and of C over the bins."""
        if self.form == "state":
            return np.zeros_like(squares)
        if self.form == "cumulative":
            return np.asarray(self.v * steps)
        return np.asarray(self.v * (squares - sums**2 / self.whole.low.size))

    def _centred(self, raw: Floats, sums: Floats) -> Floats:
        """Sum C H / d, using the known total (bins only)."""
        if self.form != "bins":
            return np.asarray(raw / self.d)
        mean = sums / self.whole.low.size
        return np.asarray(mean + (raw - mean * self.whole.slots.sum()) / self.d)

    def shares(self, n: int) -> Band:
        """Shares of slots at counts 0..n. (n+1,)."""
        top = min(n, self.resolved)
        low, high, variance = np.zeros(n + 1), np.zeros(n + 1), np.zeros(n + 1)
        if top >= 1:
            g, first, _ = self._window(top)
            taps, k = self.taps, self.k
            raw = np.convolve(g, taps, "valid")
            square = np.convolve(g, taps**2, "valid")
            ones = np.ones(top)
            squares, steps, sums = (taps**2).sum() * ones, (np.diff(taps, prepend=0, append=0) ** 2).sum() * ones, ones
            if k == 1:
                a = self.a
                c = np.array([-a / (1.0 - a), taps[1], taps[2]])
                near = first[:3]
                raw[0], square[0] = c @ near, c**2 @ near
                below = int((self.whole.high <= 0).sum())
                squares[0] = c[0] ** 2 * below + (c[1:] ** 2).sum()
                sums[0] = c[0] * below + c[1:].sum()
                steps[0] = (np.diff(c, append=0.0) ** 2).sum()
            value = self._centred(raw, sums)
            low[1 : top + 1] = high[1 : top + 1] = value
            variance[1 : top + 1] = (square - raw + self._noise(squares, steps, sums)) / self.d**2
        tails = self.tails(1)
        low[0], high[0], variance[0] = 1.0 - tails.high[1], 1.0 - tails.low[1], tails.variance[1]
        if n > top:
            edge, value, own = self._undone_bins[0], *self._estimated(self._undone_bins[1])
            index = np.searchsorted(edge, np.arange(top + 1, n + 1), side="right") - 1
            single = np.append(np.diff(edge) == 1, False)
            low[top + 1 :] = np.where(single, value, 0.0)[index]
            high[top + 1 :] = np.where(single, value, np.maximum(value, 0.0))[index]
            variance[top + 1 :] = own[index]
        return Band(low, high, variance)

    def tails(self, n: int) -> Band:
        """Shares of slots with counts of at least 0..n+1. (n+2,)."""
        size = n + 2
        low, high, variance = np.ones(size), np.ones(size), np.zeros(size)
        top = min(n + 1, self.resolved)
        k = self.k
        if top >= 1:
            g, first, above = self._window(top)
            steps_c = self.taps
            rise = np.cumsum(self.taps)[:-1]  # C at offsets -k..k-1; 1 above
            beyond = np.concatenate([np.cumsum(g[::-1])[::-1], [0.0]]) + above
            raw = np.convolve(g, rise[::-1], "valid")[:top] + beyond[2 * k : 2 * k + top]
            square = np.convolve(g, (rise**2)[::-1], "valid")[:top] + beyond[2 * k : 2 * k + top]
            over = self._cells_from(np.arange(1, top + 1) + k)
            squares = (rise**2).sum() + over
            sums = rise.sum() + over
            steps = np.full(top, (steps_c**2).sum())
            if k == 1:
                a = self.a
                c0, c1 = -a / (1.0 - a), rise[1]
                raw[0] = c0 * first[0] + c1 * first[1] + beyond[2]
                square[0] = c0**2 * first[0] + c1**2 * first[1] + beyond[2]
                below = float((self.whole.high <= 0).sum())
                squares[0] = c0**2 * below + c1**2 + over[0]
                sums[0] = c0 * below + c1 + over[0]
                steps[0] = (c1 - c0) ** 2 + (1.0 - c1) ** 2
            value = self._centred(raw, sums)
            low[1 : top + 1] = high[1 : top + 1] = value
            variance[1 : top + 1] = (square - raw + self._noise(squares, steps, sums)) / self.d**2
        if n + 1 > top:
            t = np.arange(top + 1, n + 2)
            edge, at, noise = self.edge_tails
            up = np.minimum(np.searchsorted(edge, t, side="left"), edge.size)
            down = np.searchsorted(edge, t, side="right") - 1
            values = np.concatenate([at, [0.0]])
            noises = np.concatenate([noise, [0.0]])
            low[top + 1 :] = np.minimum(values[up], values[down])
            high[top + 1 :] = np.maximum(values[up], values[down])
            variance[top + 1 :] = np.maximum(noises[up], noises[down])
        return Band(low, high, variance)

    @cached_property
    def edge_tails(self) -> tuple[Ints, Floats, Floats]:
        """Edges from just before the last unit cell on, estimates of the k+ shares there, and their variances."""
        edge, cells = self._undone_bins
        return edge, *self._estimated(np.cumsum(cells[::-1], axis=0)[::-1])

    @cached_property
    def _undone_bins(self) -> tuple[Ints, Floats]:
        """Lower ends of the cells from just before the wide ones on; C of the share of each, as rows.

        Below the first of them C is 0: once the score is 0 in k unit cells, C is 0 in all cells below.
        """
        first = int(np.searchsorted(self.whole.low, max(self.whole.unit_range[1] - 2 * self.k, 1)))
        low, high = self.whole.low[first:], self.whole.high[first:]
        return low, undone_bins(low, high, self.epsilons)

    def _estimated(self, c: Floats) -> tuple[Floats, Floats]:
        """Estimates and variances of shares of slots, from C on the last cells. c: (r, m) -> (r,), (r,)."""
        slots = self.whole.slots[self.whole.low.size - c.shape[1] :]
        sums, squares = c.sum(axis=1), c**2
        steps = (np.diff(c, axis=1, prepend=0.0) ** 2).sum(axis=1)
        value = self._centred(c @ slots, sums)
        noise = self._noise(squares.sum(axis=1), steps, sums)
        return value, (squares @ slots - self.d * value + noise) / self.d**2

    def window_variances(self, n: int) -> dict[int, Floats]:
        """Variances of the means of neighbouring k+ shares, k = 1..n+1, by the first k; for each width."""
        top = min(n + 1, self.resolved)
        if top < WIDTHS[0]:
            return {}
        g, first, above = self._window(top)
        beyond = np.concatenate([np.cumsum(g[::-1])[::-1], [0.0]]) + above
        share, k = self.tails(top - 1).low[1:], self.k
        out = {}
        for width in WIDTHS:
            size = top - width + 1
            if size < 1:
                break
            jumps = np.convolve(self.taps, np.ones(width) / width)
            rise = np.cumsum(jumps)[:-1]
            rest = beyond[rise.size : rise.size + size]
            over = self._cells_from(np.arange(size) + width + k)
            square = np.convolve(g, (rise**2)[::-1], "valid")[:size] + rest
            squares, sums = (rise**2).sum() + over, rise.sum() + over
            steps = np.full(size, (jumps**2).sum())
            if k == 1:  # the 1+ share has the same coefficient for all counters <= 0
                own = rise.copy()
                own[0] = -self.a / (1.0 - self.a) / width
                square[0] = own**2 @ first[: own.size] + rest[0]
                below = float((self.whole.high <= 0).sum()) - 1.0
                squares[0] = (own**2).sum() + below * own[0] ** 2 + over[0]
                sums[0] = own.sum() + below * own[0] + over[0]
                steps[0] = (np.diff(own, append=1.0) ** 2).sum()
            scores = self.d * np.convolve(share, squared_score_weights(width), "valid")
            out[width] = (square - scores + self._noise(squares, steps, sums)) / self.d**2
        return out

    def joint(self, scores: Floats, other: Floats, law: Floats) -> tuple[Floats, Floats]:
        """Noise variance of (1/d) sum b(h) for each score, and its covariance with that of `other`.

        Args:
            scores: (r, S+1) b at counts 0..S, 0 above.
            other: (S+1,) one more score, in the same form.
            law: (S+1,) law of a slot's count.

        Source: docs/theory/profile.md 5, with the expected counters in place of the observed ones.
        """
        k = self.k
        c, c_other = self.inverted(scores), self.inverted(other[None, :])
        weight = self.expected_cells(law) / self.d
        variance = (c * c) @ weight - (scores * scores) @ law / self.d
        cross = c @ (weight * c_other[0]) - scores @ (other * law) / self.d
        if self.form == "cumulative":
            steps, steps_other = np.diff(c, axis=1, append=0.0), np.diff(c_other, axis=1, append=0.0)
            variance += self.v / self.d**2 * (steps**2).sum(axis=1)
            cross += self.v / self.d**2 * (steps @ steps_other[0])
        elif self.form == "bins":
            size = self.whole.low.size
            copies = np.ones(c.shape[1])
            copies[0] = float((self.whole.high <= (0 if k == 1 else -k)).sum())
            mean, mean_other = c @ copies / size, float(c_other[0] @ copies) / size
            variance += self.v / self.d**2 * ((c * c) @ copies - size * mean**2)
            cross += self.v / self.d**2 * (c @ (copies * c_other[0]) - size * mean * mean_other)
        return np.maximum(variance, 0.0), cross

    def expected_cells(self, law: Floats) -> Floats:
        """Expected slots on the cells of `inverted`, if a slot's count has this law at 0..S."""
        k, span = self.k, law.size - 1
        reach = min(laws.radius(self.epsilons, 1e-9), 1 << 16)
        seen = np.convolve(law, laws.noise_pmf(self.epsilons, reach))
        zero = reach  # index of counter 0
        tail = np.concatenate([seen, np.zeros(k)])[zero + 1 : zero + span + k + 1]
        slots = np.concatenate([[seen[: zero + 1].sum()], tail])
        if k > 1:
            slots = np.concatenate([[seen[: zero + 1 - k].sum()], seen[zero + 1 - k : zero + 1], tail])
        return slots

    def inverted(self, scores: Floats) -> Floats:
        """C on the cells: pooled below, then single counters up to S+k. (r, S+1) -> (r, 1+S+k) or (r, 1+S+2k)."""
        k = self.k
        padded = np.concatenate(
            [np.repeat(scores[:, :1], 2 * k - 1, axis=1), scores, np.zeros((scores.shape[0], 2 * k))], axis=1
        )
        size = padded.shape[1] - 2 * k
        c = sum((tap * padded[:, j : j + size] for j, tap in enumerate(self.taps)), np.zeros((scores.shape[0], size)))
        if k > 1:
            return np.concatenate([scores[:, :1], c], axis=1)
        first = (scores[:, :1] - self.a * scores[:, 1:2]) / (1.0 - self.a)
        return np.concatenate([first, c[:, 1:]], axis=1)

    def _cells_from(self, t: Ints) -> Floats:
        """Number of cells at or above each t."""
        return (self.whole.low.size - np.searchsorted(self.whole.low, t, side="left")).astype(np.float64)

    def _edges(self) -> tuple[Ints, Floats, Floats]:
        """Lower ends of the positive cells, published share at or above them, variance of its noise."""
        first = int(np.searchsorted(self.whole.low, 1))
        edge = self.whole.low[first:]
        above = np.cumsum(self.whole.slots[::-1])[::-1][first:]
        count = np.arange(edge.size, 0, -1, dtype=np.float64)
        value = self._centred(above, count)
        noise = self._noise(count, np.ones_like(count), count) / self.d**2
        return edge, value, noise

    def moments(self, scores: Sequence[Score], horizon: int | None = None) -> Moments:
        """Joint estimates of (1/d) sum b(h) for several scores: the inputs of ratios and entropy.

        Args:
            scores: vectorised over float counts >= 0.
            horizon: index of the first cell beyond the estimate; default: `horizon` of the estimator.
        """
        cells, form = self.whole, self.form
        cut = self.horizon if horizon is None else horizon
        single = cells.low == cells.high
        at = np.where(cells.low <= -UNBOUNDED, -self.k, cells.low).astype(np.float64)
        end = np.where(cells.high >= UNBOUNDED, at, cells.high).astype(np.float64)
        middle = np.where(cells.low <= -UNBOUNDED, at, (at + end) / 2.0)
        if cut < at.size and form == "cumulative":
            middle[cut:] = at[cut]  # treat counts beyond as if they were there: no noise of far thresholds
        c, e = self._undone(scores, middle)
        if cut < at.size and form == "bins":
            c[:, cut:] = 0.0
            e[:, :, cut:] = 0.0
        seen = cells.slots
        value = c @ seen / self.d
        noise = np.zeros((len(scores), len(scores)))
        if form == "cumulative":
            steps = np.diff(c, axis=1)
            noise = self.v * steps @ steps.T
        elif form == "bins":
            mean = c.mean(axis=1, keepdims=True)
            value = mean[:, 0] + (c - mean) @ seen / self.d
            noise = self.v * (c - mean) @ (c - mean).T
        wide = ~single & (cells.low > -UNBOUNDED) & (np.arange(at.size) < cut)
        mass = np.zeros(0)
        if wide.any():
            first = int(np.argmax(wide))
            above = np.append(np.cumsum(seen[::-1])[::-1], 0.0)[first : cut + 1]
            mass = np.maximum(-np.diff(decreasing(above)), 0.0) / self.d
        ends = [np.stack([score(t[wide]) - score(middle[wide]) for score in scores]) for t in (at, end)]
        covariance = ((c * seen) @ c.T - e @ seen + noise) / self.d**2
        return Moments(value, covariance, mass, ends[0], ends[1], self.hidden(cut))

    def _undone(self, scores: Sequence[Score], counter: Floats) -> tuple[Floats, Floats]:
        """C = D_1 D_2 .. b of every score and E, the same of every product of two. (m, B), (m, m, B).

        For negative counts b is b(0); with one layer all counters <= 0 share their mean.
        """
        shifts, taps = np.arange(-self.k, self.k + 1), self.taps
        b = np.stack([score(np.maximum(counter - shifts[:, None], 0.0)) for score in scores])
        c, e = np.einsum("t,itB->iB", taps, b), np.einsum("t,itB,jtB->ijB", taps, b, b)
        if self.k == 1:
            first = np.stack([score(np.array([0.0, 1.0])) for score in scores])
            rule = np.array([1.0, -self.a]) / (1.0 - self.a)
            c[:, counter <= 0] = (first @ rule)[:, None]
            e[:, :, counter <= 0] = ((first * rule) @ first.T)[:, :, None]
        return c, e

    @cached_property
    def tail(self) -> Tail:
        """Bounds on the counts beyond the resolved ones."""
        edge, above, noise = self._edges()
        unit = self.tails(self.resolved - 1)
        # the unit range adds almost no noise to edges so far beyond it
        blur = sum(6.0 / epsilon for epsilon in self.epsilons)
        clear = min(int(np.searchsorted(edge, self.whole.unit_range[1] + 1 + blur)), edge.size - 1)
        single = self.form == "cumulative"
        return Tail(self.d, single, edge, above, noise, unit.low[1:], unit.variance[1:], clear, blur)

    @cached_property
    def horizon(self) -> int:
        """Index of the first cell from which on noise may hide all items."""
        size = self.whole.low.size
        if self.form == "state":
            return size
        return max(self.cells.low.size, size - self.tail.edge.size + self.tail.quiet)

    def tail_at(self, cut: int) -> int:
        """Index of a cell among those of the tail."""
        return cut - (self.whole.low.size - self.tail.edge.size)

    def hidden(self, cut: int) -> Hidden | None:
        """Bounds on events and items in the cells from `cut` on."""
        return None if self.form == "state" else self.tail.hidden(self.tail_at(cut))


def linear(observed: Observed, level: int = 0) -> Line | Circle:
    """The linear estimates that fit the unit."""
    return Line(observed, level) if observed.unit == "event" else Circle(observed, level)


def expected_line(observed: Observed, level: int, law: Floats, heavy: Floats, heavy_shares: Floats) -> Line | Circle:
    """Linear estimates at the slots that are expected under a law of counts.

    Its variances cannot be negative: they replace unbiased ones that fail.

    Args:
        observed: a published histogram.
        level: index of the level.
        law: (n+1,) shares at counts 0..n; negative ones count as zero.
        heavy: (k,) counts above n.
        heavy_shares: (k,) shares at those counts.
    """
    d = observed.slots[level]
    law = np.maximum(law, 0.0)
    cells = observed.published(level)
    if observed.unit == "item":
        assert observed.modulus is not None
        p = observed.modulus
        full = np.zeros(p)
        full[: law.size] = law
        np.add.at(full, np.minimum(heavy.astype(np.int64), p - 1), heavy_shares)
        lam = laws.response_eigenvalue(observed.epsilons, p)
        slots = d * (lam * full + (1.0 - lam) / p * full.sum())
        return Circle(observed, level, Cells(cells.low, cells.high, slots[cells.low], d))
    reach = min(laws.radius(observed.epsilons, 1e-9), 1 << 20)
    pmf = laws.noise_pmf(observed.epsilons, reach)
    size = law.size + pmf.size - 1
    length = 1 << (size - 1).bit_length()
    seen = np.fft.irfft(np.fft.rfft(law, length) * np.fft.rfft(pmf, length), length)[:size].clip(0.0) * d
    counter = np.arange(-reach, law.size + reach)
    if observed.form == "state":
        far = np.rint(heavy).astype(np.int64)
        low = np.concatenate([counter, np.unique(far[far > counter[-1]])])
        slots = np.zeros(low.size)
        slots[: counter.size] = seen
        np.add.at(slots, np.searchsorted(low, far), heavy_shares * d)
        return Line(observed, level, Cells(low, low, slots, d))
    where = np.searchsorted(cells.low, counter, side="right") - 1
    slots = tally(where, seen, cells.low.size)
    np.add.at(slots, np.searchsorted(cells.low, heavy, side="right") - 1, heavy_shares * d)
    return Line(observed, level, Cells(cells.low, cells.high, slots, d))
