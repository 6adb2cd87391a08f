"""The compiled loops of the likelihood: two-pass filters, the saddlepoint of published noise, the shrinkage path.

In: plain float arrays, checked by the callers. Out: arrays filled in place. Touches: nothing else.
Source: docs/theory/profile.md 7.1, 7.4, 7.6; `docs/theory/reconstruction.md`. Kernels that call each other share
this file: numba's cache does not follow edits across files.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kernels import kernel

EXACT, CUMULATIVE, BINS = 0, 1, 2
"""How the counters' histogram was published, as the kernels see it."""
MIN_SHARE = 1e-120
"""Least share on a shrinkage path: its square is still a number."""
PIVOT = 1e-14
"""A difference that is less than this part of the numbers it is made of is rounding."""
SINGLE, DOUBLE = 24, 13
"""Rows of scratch memory of `path`. A kernel that makes its own brings numba's module of arrays along."""
IMPOSSIBLE = -1e300
"""Log-likelihood of data that cannot have come from the law."""


@kernel
def two_pass(rho: Floats, u: Floats, out: Floats) -> None:
    """Out = A u for A_ij = product of rho between i and j: one filter from each side. rho: (m-1,), u, out: (m,)."""
    m = u.size
    run = 0.0
    for i in range(m):
        run += u[i]
        out[i] = run
        if i < m - 1:
            run *= rho[i]
    run = 0.0
    for i in range(m - 2, -1, -1):
        run = (run + u[i + 1]) * rho[i]
        out[i] += run


@kernel
def two_pass_columns(rho: Floats, u: Floats, out: Floats, run: Floats) -> None:
    """Apply `two_pass` to each column. u, out: (m, k), run: (k,) scratch memory."""
    m, k = u.shape
    run[:] = 0.0
    for i in range(m):
        row, to = u[i], out[i]
        factor = rho[i] if i < m - 1 else 0.0
        for j in range(k):
            value = run[j] + row[j]
            to[j] = value
            run[j] = value * factor
    run[:] = 0.0
    for i in range(m - 2, -1, -1):
        row, to = u[i + 1], out[i]
        factor = rho[i]
        for j in range(k):
            value = (run[j] + row[j]) * factor
            to[j] += value
            run[j] = value


@kernel
def gram(rows: Floats, out: Floats) -> None:
    """Out = rows' rows. rows: (m, k), out: (k, k). One thread: BLAS's threads cost more than they gain here.

    The inner loop starts at 0: otherwise numba guards each index against wrapping around and does not vectorise.
    """
    m, k = rows.shape
    out[:] = 0.0
    whole = m - m % 4
    for i in range(0, whole, 4):
        r0, r1, r2, r3 = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        for a in range(k):
            x0, x1, x2, x3 = r0[a], r1[a], r2[a], r3[a]
            to = out[a]
            for b in range(a + 1):
                to[b] += x0 * r0[b] + x1 * r1[b] + x2 * r2[b] + x3 * r3[b]
    for i in range(whole, m):
        row = rows[i]
        for a in range(k):
            x0 = row[a]
            to = out[a]
            for b in range(a + 1):
                to[b] += x0 * row[b]
    for a in range(k):
        for b in range(a):
            out[b, a] = out[a, b]


@kernel
def _curvature(e: Any, q: Any) -> Any:
    """First two derivatives of the cumulant of discrete Laplace noise at s = log e, |s| < -log q (profile.md 7.1)."""
    up, down = max(1.0 - q * e, PIVOT), max(1.0 - q / e, PIVOT)
    high, low = q * e / up, q / e / down
    return high - low, high / up + low / down


@kernel
def _exponent(
    form: Any, mu: Floats, h: Floats, y: Floats, z: Any, d: Any, q: Any, mult: Any, e: Floats, last: Any
) -> Any:
    """Phi(y, z) of profile.md 7.1; fills e = exp(y). The cumulants' logarithms are taken eight at a time."""
    m = mu.size
    total, logs, product, inside = 0.0, 0.0, 1.0, 1.0
    for i in range(m):
        if not -600.0 < y[i] < 600.0:
            return math.inf
        e[i] = math.exp(y[i])
        total += mu[i] * (e[i] - 1.0) - h[i] * y[i]
    square = 1.0 + q * q
    if form == CUMULATIVE:
        for i in range(1, m):
            ratio = e[i] / e[i - 1]
            inside = square - q * (ratio + 1.0 / ratio)
            if not inside > 0.0:
                return math.inf
            product *= inside
            if i % 8 == 0:
                logs += math.log(product)
                product = 1.0
        terms = m - 1
    else:
        mass, shift = 0.0, math.exp(-z)
        for i in range(m):
            ratio = e[i] * shift
            inside = square - q * (ratio + 1.0 / ratio)
            if not inside > 0.0:
                return math.inf
            product *= inside
            mass += h[i]
            if i % 8 == 0:
                logs += math.log(product)
                product = 1.0
        terms = m
        total += (mass - d) * z + mult * (last - 1.0) * (2.0 * math.log1p(-q) - math.log(inside))
    logs += math.log(product)
    return total + mult * (2.0 * terms * math.log1p(-q) - logs)


@kernel
def _step_of_thresholds(mu: Floats, h: Floats, e: Floats, q: Any, mult: Any, work: Floats) -> Any:
    """The Newton step of Phi into work[3], for CUMULATIVE; the gain that it promises. Each y meets its neighbours."""
    g, diag, low, step = work[0], work[1], work[2], work[3]
    m = mu.size
    for i in range(m):
        n = mu[i] * e[i]
        g[i] = n - h[i]
        diag[i] = n + 1e-300
    for i in range(1, m):
        first, second = _curvature(e[i] / e[i - 1], q)
        g[i] += mult * first
        g[i - 1] -= mult * first
        diag[i] += mult * second
        diag[i - 1] += mult * second
        low[i] = -mult * second
    # a tridiagonal system, eliminated without pivoting: Phi is convex, and a floor keeps rounded pivots above 0
    promise = g[0] * g[0] / diag[0]
    for i in range(1, m):
        factor = low[i] / diag[i - 1]
        diag[i] = max(diag[i] - factor * low[i], PIVOT * diag[i])
        g[i] -= factor * g[i - 1]
        promise += g[i] * g[i] / diag[i]
    step[m - 1] = -g[m - 1] / diag[m - 1]
    for i in range(m - 2, -1, -1):
        step[i] = -(g[i] + low[i + 1] * step[i + 1]) / diag[i]
    return promise


@kernel
def _step_of_bins(mu: Floats, h: Floats, e: Floats, z: Any, d: Any, q: Any, mult: Any, last: Any, work: Floats) -> Any:
    """The Newton step of Phi into work[3], for BINS; that of z, and the gain that both promise. Each y meets z."""
    g, diag, low, step = work[0], work[1], work[2], work[3]
    m = mu.size
    gz, shift = -d, math.exp(-z)
    for i in range(m):
        first, second = _curvature(e[i] * shift, q)
        n, terms = mu[i] * e[i], mult * last if i == m - 1 else mult
        g[i] = n - h[i] + terms * first
        diag[i] = n + terms * second
        low[i] = terms * second
        gz += h[i] - terms * first
    # an arrow: each y meets z alone, so that eliminating all y leaves one equation, bottom * dz = top
    top, bottom = -gz, 0.0
    for i in range(m):
        top -= low[i] * g[i] / diag[i]
        bottom += low[i] * (1.0 - low[i] / diag[i])
    dz = top / max(bottom, 1e-300)
    promise = -gz * dz
    for i in range(m):
        step[i] = (low[i] * dz - g[i]) / diag[i]
        promise -= g[i] * step[i]
    return dz, promise


@kernel
def _longest_step(form: Any, y: Floats, z: Any, step: Floats, dz: Any, limit: Any) -> Any:
    """The part of a step, 1 at most, that keeps each |s| below `limit` and moves no y by more than 2."""
    m = y.size
    big, scale = 0.0, 1.0
    for i in range(m):
        big = max(big, abs(step[i]))
    if big > 2.0:
        scale = 2.0 / big
    for i in range(m):
        if form == CUMULATIVE:
            if i == 0:
                continue
            s, ds = y[i] - y[i - 1], step[i] - step[i - 1]
        else:
            s, ds = y[i] - z, step[i] - dz
        if ds > 0.0:
            scale = min(scale, 0.95 * (limit - s) / ds)
        elif ds < 0.0:
            scale = min(scale, 0.95 * (-limit - s) / ds)
    return scale


@kernel
def saddlepoint(
    form: Any, mu: Floats, h: Floats, y: Floats, z: Floats, d: Any, q: Any, mult: Any, work: Floats, last: Any = 1.0
) -> Any:
    """Minimise Phi over y (and z[0] in bins), starting from their present values; returns l(mu).

    For EXACT there is no noise: y = log(h/mu), -1e300 where h is 0. mu, h, y: (m,), z: (1,), work: (5, m). In BINS the
    last cell may be the sum of `last` published ones, with the noise of each.
    Newton with a step that keeps |s| < -log q and max dy <= 2; stops after a full step with a predicted gain below
    1e-6, which leaves about the square of that (profile.md 7.1).
    """
    m = mu.size
    if form == EXACT:
        total = 0.0
        for i in range(m):
            if h[i] > 0.0:
                y[i] = math.log(h[i] / mu[i])
                total += h[i] - mu[i] - h[i] * y[i]
            else:
                y[i] = -1e300
                total -= mu[i]
        return total
    limit = -math.log(q)
    step, e = work[3], work[4]
    value = _exponent(form, mu, h, y, z[0], d, q, mult, e, last)
    if value == math.inf:
        y[:] = 0.0
        z[0] = 0.0
        value = _exponent(form, mu, h, y, z[0], d, q, mult, e, last)
    promise = 0.0
    for _ in range(60):
        dz = 0.0
        if form == CUMULATIVE:
            promise = _step_of_thresholds(mu, h, e, q, mult, work)
        else:
            dz, promise = _step_of_bins(mu, h, e, z[0], d, q, mult, last, work)
        if promise < 1e-15 * m:
            break
        scale = _longest_step(form, y, z[0], step, dz, limit)
        gone, new = 0.0, value  # gone: the part of the step that y and z have taken
        for _ in range(40):
            for i in range(m):
                y[i] += (scale - gone) * step[i]
            z[0] += (scale - gone) * dz
            gone = scale
            new = _exponent(form, mu, h, y, z[0], d, q, mult, e, last)
            if new <= value + 1e-10 * abs(value) + 1e-12:
                break
            scale *= 0.5
        value = new
        if promise < 1e-6 and scale == 1.0:
            break
    if promise > 1.0 or not math.isfinite(value):
        return IMPOSSIBLE  # the data are so far from mu that Phi has no minimum within reach
    return value


@kernel
def saddlepoints(
    form: Any, mu: Floats, h: Floats, y: Floats, z: Floats, d: Floats, q: Any, mult: Floats, work: Floats, last: Floats
) -> Any:
    """Sum of l(mu) over rows of cells, as `saddlepoint` finds them; a row whose start is too far off starts again.

    mu, h, y: (L, m), z: (L, 1), d, mult, last: (L,), work: (5, m).
    """
    total = 0.0
    for j in range(mu.shape[0]):
        value = saddlepoint(form, mu[j], h[j], y[j], z[j], d[j], q, mult[j], work, last[j])
        if value <= IMPOSSIBLE:
            y[j] = 0.0
            z[j] = 0.0
            value = saddlepoint(form, mu[j], h[j], y[j], z[j], d[j], q, mult[j], work, last[j])
        total += value
    return max(total, IMPOSSIBLE)


@kernel
def settle_rows(form: Any, mu: Floats, noise: Any, d: Any, jacobian: Floats, tail: Floats, last: Any = 1.0) -> None:
    """Turn J into rows whose Gram matrix is J' S^-1 J, in place. jacobian: (m, k), tail: (k,) rank-one part (BINS).

    S = diag(mu) + noise R (CUMULATIVE), diag(mu + noise) - mu mu'/d (BINS), diag(mu) (EXACT). Source: profile.md 7.1.
    In BINS the last cell has `last` times the noise of the others.
    """
    m, k = jacobian.shape
    if form == CUMULATIVE:
        pivot = mu[0] + (noise if m > 1 else 0.0)
        for i in range(m):
            row = jacobian[i]
            if i > 0:
                ends = noise if i == m - 1 else 2.0 * noise
                factor = -noise / pivot
                root = math.sqrt(pivot)
                before = jacobian[i - 1]
                # the row before holds L^-1 J / sqrt(pivot)
                for j in range(k):
                    row[j] -= factor * before[j] * root
                pivot = max(mu[i] + ends - noise * noise / pivot, PIVOT * (mu[i] + ends))
            scale = 1.0 / math.sqrt(max(pivot, 1e-300))
            for j in range(k):
                row[j] *= scale
        return
    if form == BINS:
        # S^-1 is diag(1 / (mu + own)) and a term of rank one, whose row is `tail`
        weight = 0.0
        tail[:] = 0.0
        for i in range(m):
            own = noise * last if i == m - 1 else noise
            share = mu[i] / (mu[i] + own)
            weight += own * share
            row = jacobian[i]
            for j in range(k):
                tail[j] += share * row[j]
        scale = 1.0 / math.sqrt(max(weight, 1e-300))
        for j in range(k):
            tail[j] *= scale
    for i in range(m):
        own = noise * last if i == m - 1 else noise
        scale = 1.0 / math.sqrt(max(mu[i] + (own if form == BINS else 0.0), 1e-300))
        row = jacobian[i]
        for j in range(k):
            row[j] *= scale


@kernel
def _objective(
    form: Any, v: Floats, p: Floats, h: Floats, f: Floats, f0: Floats, tau: Floats, d: Any, q: Any, mult: Any,
    mu: Floats, y: Floats, z: Floats, work: Floats,
) -> Any:  # fmt: skip
    """l(mu) + sum tau (f0 log f - f) with y solved; afterwards mu, y, z are those of p."""
    total = 0.0
    for i in range(p.size):
        mu[i] = max(d * v[i] * p[i], 1e-300)
        if tau[i] > 0.0:
            total += tau[i] * (f0[i] * math.log(f[i]) - f[i])
    return total + saddlepoint(form, mu, h, y, z, d, q, mult, work)


@kernel
def _unspread(diag: Floats, off: Floats, u: Floats, out: Floats) -> None:
    """Out = Q u for the tridiagonal inverse Q of A."""
    m = u.size
    for i in range(m):
        total = diag[i] * u[i]
        if i > 0:
            total += off[i - 1] * u[i - 1]
        if i < m - 1:
            total += off[i] * u[i + 1]
        out[i] = total


@kernel
def _band_solve(band: Floats, rhs: Floats) -> None:
    """Solve a symmetric banded system in place by LDL' without pivoting. band: (b+1, m), band[j, i] = a[i+j, i].

    Pivots are floored at 1e-13 of the diagonal, their sign kept (the system is quasi-definite).
    """
    b = band.shape[0] - 1
    m = rhs.size
    for i in range(m):
        pivot = band[0, i]
        if abs(pivot) < 1e-300:
            pivot = 1e-300
            band[0, i] = pivot
        for j in range(1, min(b, m - 1 - i) + 1):
            factor = band[j, i] / pivot
            if factor != 0.0:
                for k in range(j, min(b, m - 1 - i) + 1):
                    before = band[k - j, i + j]
                    after = before - factor * band[k, i]
                    if k == j and abs(after) < 1e-13 * abs(before):
                        after = math.copysign(1e-13 * abs(before), before)
                    band[k - j, i + j] = after
                rhs[i + j] -= factor * rhs[i]
    for i in range(m):
        rhs[i] /= band[0, i]
    for i in range(m - 1, -1, -1):
        total = rhs[i]
        for j in range(1, min(b, m - 1 - i) + 1):
            total -= band[j, i] / band[0, i] * rhs[i + j]
        rhs[i] = total


@kernel
def _prior_band(diag: Floats, off: Floats, weight: Floats, p: Floats, out: Floats) -> None:
    """Out (3, m) = bands of p_i p_j [Q diag(weight) Q]_ij."""
    m = p.size
    for i in range(m):
        total = weight[i] * diag[i] * diag[i]
        if i > 0:
            total += weight[i - 1] * off[i - 1] * off[i - 1]
        if i < m - 1:
            total += weight[i + 1] * off[i] * off[i]
        out[0, i] = total * p[i] * p[i]
        out[1, i] = 0.0
        out[2, i] = 0.0
        if i < m - 1:
            out[1, i] = off[i] * (weight[i] * diag[i] + weight[i + 1] * diag[i + 1]) * p[i] * p[i + 1]
        if i < m - 2:
            out[2, i] = weight[i + 1] * off[i] * off[i + 1] * p[i] * p[i + 2]


@kernel
def _copy(source: Floats, target: Floats) -> None:
    """Target = source, both (m,); `target[:] = source` brings texts of errors about shapes into the machine code."""
    for i in range(target.size):
        target[i] = source[i]


@kernel
def _exact_step(p: Floats, qr: Floats, h: Floats, prior: Floats, narrow: Floats, new_p: Floats, step: Floats) -> None:
    """The Newton step of log p of `path` where nothing was added to the histogram; new_p: the gradient."""
    for i in range(p.size):
        step[i] = p[i] * qr[i] + h[i]
        narrow[0, i] = prior[0, i] + max(h[i], 1e-3)
        narrow[1, i] = prior[1, i]
        narrow[2, i] = prior[2, i]
        new_p[i] = step[i]
    _band_solve(narrow, step)


@kernel
def _noisy_step(
    form: Any, p: Floats, qr: Floats, mu: Floats, y: Floats, z: Any, q: Any, mult: Any, prior: Floats, double: Floats,
    new_p: Floats, step: Floats,
) -> None:  # fmt: skip
    """The Newton step of log p of `path` in a noisy histogram, with y and, in BINS, z; new_p: the gradient."""
    # unknowns alternate: y_0, p_0, y_1, p_1, ..; wide: bands of the system, as `_band_solve` has them
    wide, copy, wide_rhs, border, column = double[:5], double[5:10], double[10], double[11], double[12]
    m = p.size
    wide[:] = 0.0
    for i in range(m):
        n = mu[i] * math.exp(y[i])
        new_p[i] = p[i] * qr[i] + n
        wide_rhs[2 * i] = 0.0
        wide_rhs[2 * i + 1] = -new_p[i]
        wide[0, 2 * i] = n + 1e-300
        wide[1, 2 * i] = n
        wide[0, 2 * i + 1] = -prior[0, i] - (1e-6 if n >= 1e-3 else 1e-3)
        wide[2, 2 * i + 1] = -prior[1, i]
        wide[4, 2 * i + 1] = -prior[2, i]
    if form == CUMULATIVE:
        for i in range(1, m):
            second = mult * _curvature(math.exp(y[i] - y[i - 1]), q)[1]
            wide[0, 2 * i] += second
            wide[0, 2 * i - 2] += second
            wide[2, 2 * i - 2] -= second
        _band_solve(wide, wide_rhs)
        for i in range(m):
            step[i] = wide_rhs[2 * i + 1]
        return
    # in BINS z meets every y: a border of the band, eliminated by a second solve, for the border as right-hand side
    corner = 0.0
    border[:] = 0.0
    for i in range(m):
        second = mult * _curvature(math.exp(y[i] - z), q)[1]
        wide[0, 2 * i] += second
        border[2 * i] = -second
        corner += second
    for i in range(5):
        _copy(wide[i], copy[i])
    _copy(border, column)
    _band_solve(copy, column)
    _band_solve(wide, wide_rhs)
    top, bottom = 0.0, corner
    for i in range(m):
        top -= border[2 * i] * wide_rhs[2 * i]
        bottom -= border[2 * i] * column[2 * i]
    dz = top / bottom if abs(bottom) > 1e-300 else 0.0
    for i in range(m):
        step[i] = wide_rhs[2 * i + 1] - dz * column[2 * i + 1]


@kernel
def path(
    form: Any, rho: Floats, v: Floats, s: Floats, h: Floats, d: Any, q: Any, mult: Any, f0: Floats, taus: Floats,
    start: Floats, tolerance: Any, out: Floats, single: Floats, double: Floats,
) -> None:  # fmt: skip
    """Shrinkage path: Newton in p for each row of taus, warm from the row before.

    out: (rows, m), single: (SINGLE, m) and double: (DOUBLE, 2m) scratch memory.
    Source: docs/theory/profile.md 7.4 and 7.6: interleaved quasi-definite system in (y, p), half-bandwidth 4,
    or pentadiagonal where nothing was added to the histogram.
    """
    rows, m = taus.shape
    f, p, mu, y, r, qr, step, df = (
        single[0], single[1], single[2], single[3], single[4], single[5], single[6], single[7]
    )  # fmt: skip
    new_f, new_p, diag, off, prior, narrow = single[8], single[9], single[10], single[11], single[12:15], single[15:18]
    work, z = single[18:23], single[23, :1]
    y[:], z[:], diag[:], off[:] = 0.0, 0.0, 1.0, 0.0
    _copy(start, f)
    # diag, off: the inverse of A, which is tridiagonal as A is the covariance of a Markov chain
    for i in range(m - 1):
        square = 1.0 - rho[i] * rho[i]
        off[i] = -rho[i] / square
        diag[i] += rho[i] * rho[i] / square
        diag[i + 1] += rho[i] * rho[i] / square
    for row in range(rows):
        tau = taus[row]
        for i in range(m):
            r[i] = s[i] * f[i]
        two_pass(rho, r, p)
        value = _objective(form, v, p, h, f, f0, tau, d, q, mult, mu, y, z, work)
        for _ in range(30):
            for i in range(m):
                r[i] = (tau[i] * f0[i] / f[i] - d - tau[i]) / s[i]
                df[i] = tau[i] * f0[i] / (f[i] * s[i] * (f[i] * s[i]))
            _unspread(diag, off, r, qr)
            _prior_band(diag, off, df, p, prior)
            if form == EXACT:
                _exact_step(p, qr, h, prior, narrow, new_p, step)
            else:
                _noisy_step(form, p, qr, mu, y, z[0], q, mult, prior, double, new_p, step)
            # step: of log p, and new_p the gradient in it: their product is twice the gain that the step promises
            gain = 0.0
            for i in range(m):
                gain += step[i] * new_p[i]
            if not math.isfinite(gain):
                break
            for i in range(m):
                step[i] *= p[i]
            # from here on steps of p and f themselves; 0.95: both stay above 0
            _unspread(diag, off, step, df)
            scale = 1.0
            for i in range(m):
                df[i] /= s[i]
                if df[i] < 0.0:
                    scale = min(scale, -0.95 * f[i] / df[i])
                if step[i] < 0.0:
                    scale = min(scale, -0.95 * p[i] / step[i])
            better = False
            for _ in range(30):
                for i in range(m):
                    new_f[i] = max(f[i] + scale * df[i], MIN_SHARE)
                    new_p[i] = max(p[i] + scale * step[i], 1e-300)
                new = _objective(form, v, new_p, h, new_f, f0, tau, d, q, mult, mu, y, z, work)
                if new >= value - max(min(1e-7, tolerance), 1e-13 * abs(value)):
                    better = True
                    break
                scale *= 0.5
            if not better:  # mu, y and z are those of the last trial: back to those of p
                _objective(form, v, p, h, f, f0, tau, d, q, mult, mu, y, z, work)
                break
            _copy(new_f, f)
            _copy(new_p, p)
            value = new
            if 0.5 * gain < tolerance and scale > 0.5:
                break
        _copy(f, out[row])


@kernel
def _pooled_objective(
    table: Floats, h: Floats, f: Floats, f0: Floats, tau: Floats, d: Any, q: Any, mult: Any, mu: Floats, y: Floats,
    z: Floats, work: Floats,
) -> Any:  # fmt: skip
    """l(table f) + sum tau (f0 log f - f); afterwards mu, y, z are those of f."""
    total = 0.0
    for i in range(f.size):
        mean = 0.0
        for j in range(f.size):
            mean += table[i, j] * f[j]
        mu[i] = max(mean, 1e-300)
        if tau[i] > 0.0:
            total += tau[i] * (f0[i] * math.log(f[i]) - f[i])
    return total + saddlepoint(BINS, mu, h, y, z, d, q, mult, work)


@kernel
def _find_column_ranges(table: Floats, left: Any, right: Any, first: Any) -> None:
    """Columns left[i]..right[i]-1 of each row that are not negligible in their column; first[j]: least column that
    shares a row with column j.
    """  # noqa: D205
    m = table.shape[0]
    most = np.zeros(m)
    for i in range(m):
        for j in range(m):
            most[j] = max(most[j], table[i, j])
    for j in range(m):
        first[j] = j
    for i in range(m):
        left[i], right[i] = m, 0
        for j in range(m):
            if table[i, j] > 1e-14 * most[j]:
                left[i] = min(left[i], j)
                right[i] = j + 1
        for j in range(left[i], right[i]):
            first[j] = min(first[j], left[i])
    for j in range(m - 2, -1, -1):
        first[j] = min(first[j], first[j + 1])


@kernel
def _factor(a: Floats, first: Any) -> None:
    """Cholesky in place of a symmetric matrix whose row j starts at column first[j]; the lower half is read."""
    for j in range(a.shape[0]):
        for k in range(first[j], j + 1):
            total = a[j, k]
            for i in range(max(first[j], first[k]), k):
                total -= a[j, i] * a[k, i]
            if k < j:
                a[j, k] = total / a[k, k]
            else:
                a[j, j] = math.sqrt(max(total, 1e-300))


@kernel
def _back_substitute(a: Floats, first: Any, x: Floats) -> None:
    """Solve in place with the factor of `_factor`."""
    m = x.size
    for j in range(m):
        total = x[j]
        for k in range(first[j], j):
            total -= a[j, k] * x[k]
        x[j] = total / a[j, j]
    for j in range(m - 1, -1, -1):
        x[j] /= a[j, j]
        for k in range(first[j], j):
            x[k] -= a[j, k] * x[j]


@kernel
def pooled_path(
    table: Floats, h: Floats, d: Any, q: Any, mult: Any, f0: Floats, taus: Floats, start: Floats, tolerance: Any,
    out: Floats,
) -> None:  # fmt: skip
    """The shrinkage path for noisy bins with any kernel: Newton in the scaled shares of the bins.

    table: (m, m), expected slots in bin i for a share of one in bin j; taus, out: (rows, m).
    Source: see `path`, with y and z eliminated: S^-1 of profile.md 7.1 at the data instead of mu.
    """
    rows, m = taus.shape
    f, mu, y, z, work = start.copy(), np.empty(m), np.zeros(m), np.zeros(1), np.empty((5, m))
    new_mu, gradient, tail, side, part = np.empty(m), np.empty(m), np.empty(m), np.empty(m), np.empty(m)
    information = np.empty((m, m))
    left, right, first = np.empty(m, np.int64), np.empty(m, np.int64), np.empty(m, np.int64)
    _find_column_ranges(table, left, right, first)
    for row in range(rows):
        tau = taus[row]
        value = _pooled_objective(table, h, f, f0, tau, d, q, mult, mu, y, z, work)
        for _ in range(30):
            # gradient and information in log f; each cell i adds a row of the table, left[i]..right[i]-1 of it
            shift, weight = math.exp(-z[0]), 0.0
            information[:] = 0.0
            for j in range(m):
                tail[j] = 0.0
                gradient[j] = tau[j] * (f0[j] - f[j])
                information[j, j] = tau[j] * f0[j]
            for i in range(m):
                e = math.exp(y[i])
                n = mu[i] * e
                # y eliminated, of curvature `total`: shares couple with shares (square) and with z (share)
                second = mult * _curvature(e * shift, q)[1]
                total = max(n + second, 1e-300)
                weight += second * n / total
                square, share = e * e / total, second * e / total
                for j in range(left[i], right[i]):
                    part[j] = table[i, j] * f[j]
                    tail[j] += share * part[j]
                    gradient[j] += (e - 1.0) * part[j]
                for j in range(left[i], right[i]):  # the lower half: `_factor` reads no other
                    here = square * part[j]
                    for k in range(left[i], j + 1):
                        information[j, k] += here * part[k]
            biggest = 0.0
            for j in range(m):
                biggest = max(biggest, information[j, j])
            for j in range(m):
                information[j, j] += 1e-12 * biggest + 1e-9
            # z by a term of rank one (Sherman & Morrison): weight and tail are its pivot and its border
            _factor(information, first)
            step = gradient.copy()
            side[:] = tail
            _back_substitute(information, first, step)
            _back_substitute(information, first, side)
            top, bottom = 0.0, weight
            for j in range(m):
                top += tail[j] * step[j]
                bottom += tail[j] * side[j]
            gain, scale = 0.0, 1.0
            for j in range(m):
                step[j] -= top / max(bottom, 1e-300) * side[j]
                gain += step[j] * gradient[j]
                if step[j] < 0.0:
                    scale = min(scale, -0.95 / step[j])
            if not math.isfinite(gain):
                break
            better = False
            for _ in range(30):
                new_f = np.maximum(f * (1.0 + scale * step), MIN_SHARE)
                new = _pooled_objective(table, h, new_f, f0, tau, d, q, mult, new_mu, y, z, work)
                if new >= value - max(min(1e-7, tolerance), 1e-13 * abs(value)):
                    better = True
                    break
                scale *= 0.5
            if not better:
                _pooled_objective(table, h, f, f0, tau, d, q, mult, mu, y, z, work)
                break
            f[:] = new_f
            mu[:] = new_mu
            value = new
            if 0.5 * gain < tolerance and scale > 0.5:
                break
        out[row] = f


@kernel
def compound(weighted: Floats, load: Any, out: Floats) -> None:
    """Slot law P(0..S) from t * intensity_t per slot and the full load. weighted, out: (S+1,).

    Source: Panjer's recursion; docs/theory/profile.md 6.
    """
    out[0] = math.exp(-load)
    for s in range(1, out.size):
        part, law = weighted[1 : s + 1], out[:s][::-1]
        total = 0.0
        for t in range(s):
            total += part[t] * law[t]
        out[s] = total / s


@kernel
def meet(ratio: Floats, law: Floats, top: Any, out: Floats) -> None:
    """out[t] = sum over s of ratio[s] P(s-t) for s = t..S, and the mass above S at `top`. All (S+1,)."""
    size = law.size
    above = np.empty(size)
    left = 1.0
    for j in range(size):
        left -= law[j]
        above[j] = left
    for t in range(size):
        here, there = ratio[t:], law[: size - t]
        total = 0.0
        for j in range(size - t):
            total += here[j] * there[j]
        out[t] = total + top * max(above[size - 1 - t], 0.0)


@kernel
def smear(law: Floats, columns: Floats, out: Floats) -> None:
    """Out = the first S+1 rows of the product of the power series `law` with each column. columns, out: (S+1, k)."""
    size, k = columns.shape
    out[:] = 0.0
    for s in range(size):
        to = out[s]
        for j in range(s + 1):
            factor = law[s - j]
            if factor > 1e-18:
                row = columns[j]
                for a in range(k):
                    to[a] += factor * row[a]
