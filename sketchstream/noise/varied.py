"""Discrete Gaussian noise whose variance differs from one coordinate to the next, sampled exactly.

In: an int32 or int64 array, rational parameters sigma2, and which of them applies to each element. Out: the array with
one independent draw added to each element. Touches: the entropy source.
Source: von Neumann 1951 (rejection); docs/theory/noise.md, section 4.

A parameter that many elements share, or that has no near neighbour, has tables of its own. Others share the tables of
the next larger tau2 on a grid whose steps are at most 1/8: z is drawn with tau2 and accepted with probability
exp(-z^2 (1/sigma2 - 1/tau2) / 2), at least 94 times in 100 on average. Refused samples are drawn again from the start.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Ints
from sketchstream.errors import SpecError
from sketchstream.noise import gaussian
from sketchstream.noise.blocks import flat, positive
from sketchstream.noise.entropy import Words, WordSource, word_by_word, words_of
from sketchstream.noise.thresholds import WORD_BITS

TABLES_PER_OCTAVE: Final = 8
"""Parameters of shared tables between a power of two and the next."""
OWN_TABLES: Final = 1 << 14
"""Number of elements from which on a parameter gets tables of its own."""
BLOCK: Final = 1 << 16
ROOT_BITS: Final = 60
"""Binary places of the square root of an acceptance's coefficient."""


def discrete_gaussians(
    out: npt.NDArray[np.signedinteger],
    sigma2s: Sequence[Fraction],
    which: npt.NDArray[Any],
    entropy: WordSource | None = None,
) -> None:
    """Add exact discrete Gaussian noise to an array in place, each element with a variance of its own.

    Args:
        out: int32 or int64 array of any shape, C-contiguous. Sums wrap.
        sigma2s: the exact parameters, each above 0 and at most 2^100.
        which: integers of out's shape: element i gets the parameter sigma2s[which[i]].
        entropy: words for tests; by default a keystream under a key that is erased before this returns.

    Raises:
        SpecError: an argument is not as described above.
    """
    view = flat(out, (np.int32, np.int64))
    parameters = [positive(sigma2, "sigma2") for sigma2 in sigma2s]
    places = np.asarray(which)
    if places.dtype.kind not in "iu" or places.shape != np.shape(out):
        raise SpecError(
            f"which must be integers of shape {np.shape(out)}, found {places.dtype} of shape {places.shape}"
        )
    places = places.reshape(-1)
    if places.size and not 0 <= int(places.min()) <= int(places.max()) < len(parameters):
        raise SpecError(
            f"which must be from 0 to {len(parameters) - 1}, found {int(places.min())} to {int(places.max())}"
        )
    places = places.astype(np.int64)
    tables, table_of = _tables(parameters, np.bincount(places, minlength=len(parameters)))
    order = np.argsort(table_of[places], kind="stable")
    ends = np.searchsorted(table_of[places[order]], np.arange(len(tables)), side="right")
    noise = np.zeros(min(len(view), BLOCK), np.int64)
    with words_of(entropy) as source:
        try:
            start = 0
            for table, end in zip(tables, ends.tolist(), strict=True):
                for first in range(start, end, BLOCK):
                    chosen = order[first : min(first + BLOCK, end)]
                    drawn = noise[: len(chosen)]
                    draw_thinned(drawn, places[chosen], table, parameters, source)
                    view[chosen] = (view[chosen].astype(np.int64) + drawn).astype(view.dtype)
                start = end
        finally:
            noise.fill(0)


def table_parameter(sigma2: Fraction) -> Fraction:
    """The smallest (1 + j / TABLES_PER_OCTAVE) 2^e that is at least sigma2, j from 0 to TABLES_PER_OCTAVE - 1."""
    exponent = sigma2.numerator.bit_length() - sigma2.denominator.bit_length()
    power = Fraction(2) ** exponent
    if power > sigma2:
        power /= 2
    return math.ceil(sigma2 / power * TABLES_PER_OCTAVE) * power / TABLES_PER_OCTAVE


def _tables(parameters: Sequence[Fraction], counts: npt.NDArray[np.intp]) -> tuple[list[Fraction], Ints]:
    """The ascending parameters of the tables that are needed; for each parameter, the index of its table."""
    near: dict[Fraction, set[Fraction]] = {}
    for parameter, count in zip(parameters, counts, strict=True):
        if 0 < count < OWN_TABLES:
            near.setdefault(table_parameter(parameter), set()).add(parameter)
    chosen: list[Fraction | None] = []
    for parameter, count in zip(parameters, counts, strict=True):
        table = table_parameter(parameter)
        alone = count >= OWN_TABLES or len(near.get(table, ())) == 1
        chosen.append(None if count == 0 else parameter if alone else table)
    tables = sorted({table for table in chosen if table is not None})
    index = {table: place for place, table in enumerate(tables)}
    return tables, np.array([-1 if table is None else index[table] for table in chosen], np.int64)


def draw_thinned(
    noise: Ints, which: npt.NDArray[Any], table: Fraction, sigma2s: Sequence[Fraction], source: WordSource
) -> None:
    """Write one draw for each element: proposals with parameter `table`, thinned to each element's own.

    Args:
        noise: (n,) int64, overwritten.
        which: (n,) indices into sigma2s.
        table: the parameter of the proposals, at least every sigma2 used.
        sigma2s: the exact parameters.
        source: words.
    """
    coefficients = {int(index): (1 / sigma2s[index] - 1 / table) / 2 for index in np.unique(which)}
    roots = np.zeros(len(sigma2s), np.int64)
    for index, coefficient in coefficients.items():
        roots[index] = _root(coefficient)
    pending = np.arange(len(noise))
    while pending.size:
        drawn = np.zeros(pending.size, np.int64)
        gaussian.discrete_gaussian(drawn, table, source)
        thinned = np.flatnonzero(roots[which[pending]])
        words = np.empty(thinned.size, np.uint32)
        source.fill(words)
        accepted = np.ones(pending.size, np.bool_)
        accepted[thinned], unsure = decide(words, drawn[thinned], roots[which[pending[thinned]]])
        for place in np.flatnonzero(unsure).tolist():
            at = int(thinned[place])
            exponent = int(drawn[at]) ** 2 * coefficients[int(which[pending[at]])]
            accepted[at] = gaussian.below_exponential(
                int(words[place]), WORD_BITS, exponent, WORD_BITS, word_by_word(source)
            )
        noise[pending] = drawn
        pending = pending[~accepted]
        drawn.fill(0)
        words.fill(0)


def decide(words: Words, drawn: Ints, roots: Ints) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which proposals are accepted, and which are not decided by the first 32 bits of their uniform real.

    x = z^2 c is enclosed in units of 2^-32; from x = 1 on everything is left open.

    Args:
        words: (n,) first 32 bits of uniform reals.
        drawn: (n,) proposals z.
        roots: (n,) smallest r with r^2 >= c 2^120; not 0.
    """
    size = np.abs(drawn)
    small = size <= ((1 << 62) - 1) // roots  # else z^2 c is out of reach: left open
    low = np.where(small, size, 0) * (roots - 1) >> 44  # sqrt(x) 2^16, rounded down
    high = (np.where(small, size, 0) * roots >> 44) + 1
    small &= high < 1 << 16  # x below 1
    least_x, most_x = (np.where(small, root * root, 0).astype(np.uint64) for root in (low, high))  # x 2^32
    least, most = gaussian.exponential_ends(least_x, most_x)
    uniform = words.astype(np.uint64)
    accepted = small & (uniform < least)
    return accepted, ~accepted & ~(small & (uniform >= most))


def _root(coefficient: Fraction) -> int:
    """Smallest r with r^2 >= coefficient 2^120; 0 for 0."""
    scaled = coefficient * (1 << 2 * ROOT_BITS)
    return 0 if coefficient == 0 else math.isqrt(math.ceil(scaled) - 1) + 1
