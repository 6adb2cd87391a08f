"""The projection matrix: integer rows made on demand from a seed and the number of a feature, never stored as floats.

In: the family of the matrix, a 32-byte seed, numbers of features and columns. Out: rows, int16, equal on every machine.
Touches: nothing.
Source: Johnson & Lindenstrauss 1984; Achlioptas 2003 (rademacher); Ailon & Chazelle 2006, Tropp 2011 (srht); RFC 7693
(BLAKE2b); docs/theory/projection.md, section 1.

Block t of feature j is BLAKE2b(j, 8 bytes; t, 4 bytes; little-endian) under the seed; its eight words decide entries
8 t to 8 t + 7. So a row with fewer columns is the beginning of one with more.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Ints
from sketchstream.errors import SpecError
from sketchstream.noise.gaussian import GaussianTails
from sketchstream.spec import checked_int

Family = Literal["gaussian", "rademacher", "srht", "identity"]
FAMILIES: Final = get_args(Family)

SEED_BYTES: Final = 32
PERSON: Final = b"sketchstream-P1\0"
SIGMA2: Final = 4096
"""Parameter of the discrete Gaussian law of the gaussian matrix's entries, and their variance."""
TABLE_SHA256: Final = "1957ce533487ec79c1994ee20bbc343c47c39aed2d4baf0c9ee3fe7823ba4bd9"
"""Digest of the thresholds as little-endian words: a table that differs anywhere is refused."""
GUIDE_BITS: Final = 12
COLUMN_FEATURE: Final = 2**64 - 1
"""The number whose words choose the columns of the srht matrix; no feature has it."""
MAX_COLUMNS: Final = 4096
MAX_FEATURES: Final = 1 << 62
PRECOMPUTED: Final = 1 << 26
"""Entries of a matrix that is made once and kept, at most; rows of larger ones are made batch by batch."""
WORDS_AT_ONCE: Final = 1 << 16
"""Words made at a time: 512 KiB, which stay in a core's own cache."""

Rows = npt.NDArray[np.int16]


@dataclass(frozen=True)
class Matrix:
    """A d x k integer matrix R, known by its family and its seed.

    Args:
        family: "gaussian" (entries of a discrete Gaussian law with variance 4096), "rademacher" (signs), or "srht"
            (random signs, columns of a Hadamard matrix), or "identity" (rows are kept as they are; no seed is used).
        seed: 32 bytes; not shown.
        columns: k, at most 4096; for srht at most d rounded up to a power of two; for identity d.
    """

    family: Family
    seed: bytes = field(repr=False)
    features: int
    columns: int

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise SpecError(f"matrix must be one of {', '.join(FAMILIES)}, found {self.family!r:.40}")
        if not isinstance(self.seed, bytes) or len(self.seed) != SEED_BYTES:
            msg = f"the seed of a matrix must be {SEED_BYTES} bytes, found {type(self.seed).__name__}"
            msg += f" of length {len(self.seed)}" if isinstance(self.seed, bytes) else ""
            raise SpecError(msg)
        checked_int(self.features, "features", 1, MAX_FEATURES)
        checked_int(self.columns, "k", 1, MAX_FEATURES if self.family == "identity" else MAX_COLUMNS)
        if self.family == "identity" and self.columns != self.features:
            raise SpecError(f"matrix = 'identity' keeps all features: k must be {self.features}, found {self.columns}")
        if self.family == "srht" and self.columns > self.order:
            raise SpecError(
                f"k must be at most {self.order} for matrix = 'srht' of {self.features} features, found {self.columns}"
            )

    @property
    def order(self) -> int:
        """d', the number of features rounded up to a power of two."""
        return 1 << (self.features - 1).bit_length()

    @property
    def entry_variance(self) -> Fraction:
        """E[R_jc^2]: 4096 for the gaussian matrix, 1 for signs, and 1/k, the mean over a row, for identity."""
        if self.family == "identity":
            return Fraction(1, self.columns)
        return Fraction(SIGMA2 if self.family == "gaussian" else 1)

    @property
    def precomputable(self) -> bool:
        """Whether the whole matrix is small enough to be kept."""
        return self.features * self.columns <= PRECOMPUTED

    def rows(self, features: npt.ArrayLike) -> Rows:
        """(n, k) int16, the rows of (n,) features, numbers from 0 to d - 1 that are not checked."""
        from sketchstream.kinds.projection.matrices import kernels

        numbers = np.ascontiguousarray(features, np.uint64)
        out: Rows = np.empty((len(numbers), self.columns), np.int16)
        if self.family == "identity":
            np.equal(numbers[:, None], np.arange(self.columns, dtype=np.uint64), out=out)
            return out
        blocks = 1 if self.family == "srht" else -(-self.columns // kernels.WORDS)
        step = max(1, WORDS_AT_ONCE // (blocks * kernels.WORDS))
        words = np.empty((min(step, len(numbers)), blocks * kernels.WORDS), np.uint64)
        for start in range(0, len(numbers), step):
            part, target = numbers[start : start + step], out[start : start + step]
            here = words[: len(part)]
            kernels.keyed_words(self._chain, part, 0, here)
            if self.family == "gaussian":
                cumulative, guide = thresholds()
                kernels.gaussian_entries(here, cumulative, guide, np.uint64(63 - GUIDE_BITS), target)
            elif self.family == "rademacher":
                kernels.sign_entries(here, target)
            else:
                kernels.hadamard_entries(part, here, self.sampled, target)
        words.fill(0)
        return out

    @cached_property
    def all_rows(self) -> Rows:
        """The whole matrix, (d, k) int16, cached. Only if `precomputable`."""
        out = self.rows(np.arange(self.features, dtype=np.uint64))
        out.flags.writeable = False
        return out

    @cached_property
    def sampled(self) -> npt.NDArray[np.uint64]:
        """(k,) uint64, the columns of the Hadamard matrix that the srht matrix keeps, all different."""
        from sketchstream.kinds.projection.matrices.kernels import WORDS, keyed_words

        columns: dict[int, None] = {}
        block, batch = 0, max(1, min(1 << 10, self.columns // 2))
        words = np.empty((1, batch * WORDS), np.uint64)
        while len(columns) < self.columns:
            keyed_words(self._chain, np.array([COLUMN_FEATURE], np.uint64), block, words)
            columns.update(dict.fromkeys((words[0] & np.uint64(self.order - 1)).tolist()))
            block += batch
        return np.array(list(columns)[: self.columns], np.uint64)

    @cached_property
    def _chain(self) -> npt.NDArray[np.uint64]:
        return np.array(chaining_value(self.seed), np.uint64)


def chaining_value(seed: bytes) -> list[int]:
    """The eight words of BLAKE2b's state after the block that holds the key."""
    from sketchstream.kinds.projection.matrices.kernels import BLOCK_BYTES, IV, MIXED, ROTATIONS, ROUNDS, SIGMA

    parameters = bytes([64, len(seed), 1, 1]) + bytes(44) + PERSON
    h = [word ^ int.from_bytes(parameters[8 * i : 8 * i + 8], "little") for i, word in enumerate(IV)]
    block = seed.ljust(BLOCK_BYTES, b"\0")
    m = [int.from_bytes(block[8 * i : 8 * i + 8], "little") for i in range(16)]
    v = h + list(IV)
    v[12] ^= BLOCK_BYTES
    for number in range(ROUNDS):
        schedule = SIGMA[number % len(SIGMA)]
        for step, (a, b, c, d) in enumerate(MIXED):
            for half in range(2):
                v[a] = (v[a] + v[b] + m[schedule[2 * step + half]]) % 2**64
                v[d] = _rotate_right(v[d] ^ v[a], ROTATIONS[2 * half])
                v[c] = (v[c] + v[d]) % 2**64
                v[b] = _rotate_right(v[b] ^ v[c], ROTATIONS[2 * half + 1])
    return [word ^ v[i] ^ v[i + 8] for i, word in enumerate(h)]


def _rotate_right(word: int, bits: int) -> int:
    return (word >> bits | word << (64 - bits)) % 2**64


@lru_cache(maxsize=1)
def thresholds() -> tuple[npt.NDArray[np.uint64], Ints]:
    """floor(2^63 Pr[abs z <= i]) for i = 0, 1, ..., z discrete Gaussian with sigma2 = 4096, and a guide into them.

    Computed with integer interval arithmetic; a last entry above every 63-bit number ends each search.

    Raises:
        ArithmeticError: the table does not have the digest it should have.
    """
    tails = GaussianTails(Fraction(SIGMA2), half=True)
    steps: list[int] = []
    while not steps or steps[-1] < 2**63 - 1:
        # Pr[abs z <= i] = 1 - Pr[abs z >= i + 1], which no number of bits ends: its floor is one below.
        steps.append(2**63 - 1 - tails.first_bits(len(steps) + 1, 63))
    table = np.array(steps, "<u8")
    if hashlib.sha256(table.tobytes()).hexdigest() != TABLE_SHA256:
        raise ArithmeticError("the table of the gaussian matrix is not the one that every machine must have")
    cells = np.arange(1 << GUIDE_BITS, dtype=np.uint64) << np.uint64(63 - GUIDE_BITS)
    guide = np.searchsorted(table, cells, side="right").astype(np.int64)
    return np.append(table, np.uint64(2**64 - 1)).astype(np.uint64), guide
