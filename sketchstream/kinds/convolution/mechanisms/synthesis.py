"""Correlated noise made of exact independent noise by Fourier transforms in fixed point.

In: independent draws, and what they are filtered with. Out: correlated noise. Touches: nothing.
Source: Cooley & Tukey 1965; Bluestein 1970; docs/theory/convolution.md, section 7 (the share of delta).

All numbers are Python integers with FRACTION binary places, in numpy arrays of objects. No float touches them: the
standard deviations are floats that are read as the exact rationals they are.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Floats
from sketchstream.kinds.convolution.fourier.group import Coordinates

Objects = npt.NDArray[Any]

SYNTHESIS_BITS: Final = 128
"""The base noise differs from the continuous one by at most 2^-SYNTHESIS_BITS of its scale."""
FRACTION: Final = 192
"""Binary places: the base noise is good to 2^-129 of its scale, rounding in the transform stays far below."""
GUARD: Final = 32
"""Further places of the roots of unity: their errors double in each of the steps of `roots`, 25 at most."""
DIRECT: Final = 61
"""Largest prime factor of a length that is transformed by a direct sum."""


def filter_draws(drawn: Objects, series: Floats, scales: Floats) -> Objects:
    """(N,) integers with FRACTION places: scales[n] times the sum of series[j] * drawn[n - j] / 2^128 over j <= n.

    Both sequences are transformed as one: the imaginary part of the square of a + bi is twice their product.

    Args:
        series: (N,) float64, each read as the exact rational it is, to FRACTION places.
    """
    size = len(drawn)
    long = 1 << (2 * size - 1).bit_length()
    real, imaginary = np.zeros((long, 1), np.object_), np.zeros((long, 1), np.object_)
    real[:size, 0] = drawn << (FRACTION - SYNTHESIS_BITS)
    imaginary[:size, 0] = _times_floats(1 << FRACTION, series, 0)
    real, imaginary = inverse_dft(real, imaginary)
    real, imaginary = _times(real, imaginary, real, imaginary)
    real, imaginary = inverse_dft(real, -imaginary)  # the conjugate of the transform back
    return _times_floats(-imaginary[:size, 0] >> long.bit_length(), scales, 0)


def _times_floats(values: Any, floats: Floats, places: int) -> Objects:
    """(n,) integers times floats, each read as the exact rational it is, times 2^places, rounded down."""
    mantissas, exponents = np.frexp(floats)
    product = values * (mantissas * 2.0**53).astype(np.int64).astype(np.object_)
    shift = (exponents.astype(np.int64) - 53 + places).astype(np.object_)
    return np.asarray(np.where(shift >= 0, product << np.maximum(shift, 0), product >> np.maximum(-shift, 0)))


def synthesize(coordinates: Coordinates, drawn: Objects, scales: Floats) -> Objects:
    """(M,) integers with FRACTION places: the function whose real Fourier coordinates are drawn * scales / 2^128."""
    group = coordinates.group
    values = _times_floats(drawn, scales, FRACTION + 64 - SYNTHESIS_BITS)  # in units of 2^-(FRACTION + 64)
    s, p = len(coordinates.singles), len(coordinates.pairs)
    root = math.isqrt((1 << 2 * FRACTION) // group.size)
    half_root = math.isqrt((1 << 2 * FRACTION) // (2 * group.size))
    real, imaginary = np.zeros(group.size, np.object_), np.zeros(group.size, np.object_)
    down = FRACTION + 64
    real[coordinates.singles] = (values[:s] * root) >> down
    cosines, sines = (values[s : s + p] * half_root) >> down, (values[s + p :] * half_root) >> down
    conjugates = group.conjugate[coordinates.pairs]
    real[coordinates.pairs], real[conjugates] = cosines, cosines
    imaginary[coordinates.pairs], imaginary[conjugates] = -sines, sines
    # In units of 2^-FRACTION: FRACTION + 64 of values, FRACTION of root, minus what was shifted away.
    real, imaginary = real.reshape(group.shape), imaginary.reshape(group.shape)
    for axis, order in enumerate(group.shape):
        first = np.moveaxis(real, axis, 0).reshape(order, -1), np.moveaxis(imaginary, axis, 0).reshape(order, -1)
        moved = np.moveaxis(real, axis, 0).shape
        turned = inverse_dft(*first)
        real, imaginary = (np.moveaxis(part.reshape(moved), 0, axis) for part in turned)
    return real.reshape(-1)


def inverse_dft(real: Objects, imaginary: Objects) -> tuple[Objects, Objects]:
    """Unnormalised inverse transforms of (N, batch) columns: the sum over k of x[k] exp(2 pi i k n / N)."""
    size, batch = real.shape
    if size == 1:
        return real, imaginary
    radix = _radix(size)
    if radix > DIRECT:
        return _bluestein(real, imaginary)
    rest = size // radix
    table = roots(size)
    real, imaginary = inverse_dft(real.reshape(rest, radix * batch), imaginary.reshape(rest, radix * batch))
    real, imaginary = real.reshape(rest, radix, batch), imaginary.reshape(rest, radix, batch)
    parts = []
    for place in range(radix):
        x, y = real[:, place], imaginary[:, place]
        if place:
            index = np.arange(rest) * place % size
            x, y = _times(x, y, table[0][index][:, None], table[1][index][:, None])
        parts.append((x, y))
    out_real, out_imaginary = np.empty((radix, rest, batch), np.object_), np.empty((radix, rest, batch), np.object_)
    for k in range(radix):
        x, y = parts[0]
        for place in range(1, radix):
            a, b = parts[place]
            turn = (place * k * 4) % (4 * radix)
            if turn % radix == 0:  # a quarter turn needs no product
                quarter = turn // radix
                a, b = ((a, b), (-b, a), (-a, -b), (b, -a))[quarter]
            else:
                step = place * k % radix * rest
                a, b = _times(a, b, table[0][step], table[1][step])
            x, y = x + a, y + b
        out_real[k], out_imaginary[k] = x, y
    return out_real.reshape(size, batch), out_imaginary.reshape(size, batch)


@lru_cache(maxsize=8)
def roots(size: int) -> tuple[Objects, Objects]:
    """Cosines and sines of 2 pi j / size for j < size, with FRACTION places, off by less than 2^-(FRACTION - 2)."""
    places = FRACTION + GUARD
    x, y = _first_root(size, places)
    real, imaginary = np.array([1 << places], np.object_), np.array([0], np.object_)
    while len(real) < size:
        a, b = (real * x - imaginary * y) >> places, (real * y + imaginary * x) >> places
        real, imaginary = np.concatenate([real, a]), np.concatenate([imaginary, b])
        x, y = (x * x - y * y) >> places, (2 * x * y) >> places
    return real[:size] >> GUARD, imaginary[:size] >> GUARD


def _first_root(size: int, places: int) -> tuple[int, int]:
    """Cosine and sine of 2 pi / size, with this many binary places."""
    if size == 1:
        return 1 << places, 0
    if size == 2:
        return -(1 << places), 0
    spare = 32
    places += spare
    angle = 2 * _fixed_point_pi(places) // size
    square = angle * angle >> places
    cosine, sine = 0, 0
    term_cos, term_sin, k = 1 << places, angle, 0
    while term_cos or term_sin:
        cosine += term_cos
        sine += term_sin
        k += 2
        term_cos = -(term_cos * square >> places) // ((k - 1) * k)
        term_sin = -(term_sin * square >> places) // (k * (k + 1))
        if abs(term_cos) <= 1 and abs(term_sin) <= 1:
            break
    return cosine >> spare, sine >> spare


def _fixed_point_pi(places: int) -> int:
    """Pi by Machin's formula."""
    work = places + 16

    def arctan(inverse: int) -> int:
        power = (1 << work) // inverse
        total, k = power, 1
        while power:
            power //= inverse * inverse
            k += 2
            total += power // k if k % 4 == 1 else -(power // k)
        return total

    return 4 * (4 * arctan(5) - arctan(239)) >> 16


def _radix(size: int) -> int:
    """4 if it divides the size, else the smallest prime factor, or the largest if it is too large for a sum."""
    rest, largest, smallest = size, 1, 0
    prime = 2
    while prime * prime <= rest:
        while rest % prime == 0:
            rest //= prime
            largest, smallest = prime, smallest or prime
        prime += 1
    largest = max(largest, rest)
    if largest > DIRECT:
        return largest
    return 4 if size % 4 == 0 else smallest or rest


def _times(a: Objects, b: Objects, c: Any, d: Any) -> tuple[Objects, Objects]:
    """(a + bi)(c + di), rounded down."""
    return (a * c - b * d) >> FRACTION, (a * d + b * c) >> FRACTION


def _bluestein(real: Objects, imaginary: Objects) -> tuple[Objects, Objects]:
    """Transform of any size, by a convolution with a chirp whose length is a power of two."""
    size, batch = real.shape
    long = 1 << (2 * size - 1).bit_length()
    table = roots(2 * size)
    squares = np.array([n * n % (2 * size) for n in range(size)])
    c, d = table[0][squares][:, None], table[1][squares][:, None]  # exp(i pi n^2 / N)
    a, b = _times(real, imaginary, c, d)
    x, y = np.zeros((long, batch), np.object_), np.zeros((long, batch), np.object_)
    x[:size], y[:size] = a, b
    u, v = np.zeros((long, 1), np.object_), np.zeros((long, 1), np.object_)
    u[:size], v[:size] = c, -d
    u[long - size + 1 :], v[long - size + 1 :] = c[:0:-1], -d[:0:-1]
    x, y = inverse_dft(x, y)
    u, v = inverse_dft(u, v)
    x, y = _times(x, y, u, v)
    # The transform back is the conjugate of the inverse transform of the conjugate.
    x, y = inverse_dft(x, -y)
    shift = long.bit_length() - 1
    x, y = x[:size] >> shift, -(y[:size] >> shift)
    return _times(x, y, c, d)
