"""Every sampler, compiled or not, equals the oracle word for word, on honest and on forged streams."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from helpers.noise import oracle
from helpers.noise.words import Forged, Recorded, Seeded
from sketchstream.noise import gaussian, laplace, response
from sketchstream.noise.blocks import block_samples

EPSILONS = ["1/1000000", "1/10000", "1/100", "1/10", "3/7", "1", "22/7", "10", "30", "50"]
SIGMAS = ["1/9", "1", "22/7", "10000", "1048577", "123456789012345678901234567890/7"]
SMALL_TABLE = 40
LAPLACE_WAYS = [laplace.numpy_block, laplace.compiled_block]
RESPONSE_WAYS = [response.numpy_block, response.compiled_block]
GAUSSIAN_WAYS = [gaussian.numpy_block, gaussian.compiled_block]


def hostile(first: list[int], rows: int, samples: int) -> list[int]:
    """A block in which every row meets each of the given words, the words around them, all zeros and all ones."""
    special = sorted({w for t in first for w in (t - 1, t, t + 1) if 0 <= w < 1 << 32} | {0, 1, (1 << 32) - 1, 1 << 31})
    honest = np.zeros(rows * samples, np.uint32)
    Seeded(77).fill(honest)
    block = honest.reshape(rows, samples).astype(object)
    column = 0
    for row in range(rows):
        for word in special:
            block[row, column % samples] = word
            column += 1
    for word in special:  # and in all rows at once
        block[:, column % samples] = word
        column += 1
    return [int(w) for w in block.reshape(-1)]


@pytest.mark.parametrize("way", LAPLACE_WAYS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_laplace_equals_the_oracle_over_several_blocks(
    epsilon: str, way: laplace.BlockNoise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sketchstream.noise.blocks.SCRATCH_WORDS", 1 << 12)
    ready = laplace.plan(Fraction(epsilon))
    step = block_samples(ready.rows)
    samples = 2 * step + 77
    source = Recorded(Seeded(11))
    out = np.full(samples, 5, np.int64)
    laplace.add(out, ready, source, way)
    expected = oracle.laplace(source.words, samples, ready.epsilon, len(ready.digits), step)
    assert (out - 5).tolist() == expected


@pytest.mark.parametrize("way", LAPLACE_WAYS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_laplace_equals_the_oracle_where_words_tie_or_are_extreme(epsilon: str, way: laplace.BlockNoise) -> None:
    ready = laplace.plan(Fraction(epsilon))
    samples = 640
    first = [*ready.words.tolist(), int(ready.opposite)]
    # after the block: a first further word that ties again, then zeros, then ones, then honest ones
    again = [t.prefix(64) & 0xFFFFFFFF for t in (ready.sign, *ready.digits, *ready.top)]
    source = Recorded(Forged([*hostile(first, ready.rows, samples), *again, 0, 0, 0, 0xFFFFFFFF, 0xFFFFFFFF]))
    out = np.zeros(samples, np.int64)
    laplace.add(out, ready, source, way)
    assert len(source.words) > ready.rows * samples
    expected = oracle.laplace(source.words, samples, ready.epsilon, len(ready.digits), block_samples(ready.rows))
    assert out.tolist() == expected


@pytest.mark.parametrize("way", LAPLACE_WAYS)
@pytest.mark.parametrize("word", [0, 0xFFFFFFFF])
def test_laplace_equals_the_oracle_on_constant_streams(word: int, way: laplace.BlockNoise) -> None:
    ready = laplace.plan(Fraction(1, 100))
    source = Recorded(Forged([word] * (100 * ready.rows + 60)))
    out = np.zeros(100, np.int64)
    laplace.add(out, ready, source, way)
    expected = oracle.laplace(source.words, 100, ready.epsilon, len(ready.digits), block_samples(ready.rows))
    assert out.tolist() == expected
    assert word or max(abs(v) for v in expected) > 10**5  # zeros: far in the tail, and not cut


@pytest.mark.parametrize("way", LAPLACE_WAYS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_one_doubtful_word_among_decided_ones_is_noticed(epsilon: str, way: laplace.BlockNoise) -> None:
    ready = laplace.plan(Fraction(epsilon))
    calm = np.full((ready.rows, 70), 0x40000001, np.uint32)  # ties with no threshold of these epsilons
    noise = np.zeros(70, np.int32)
    assert not way(calm, ready, noise)
    doubtful: list[tuple[int, int]] = [(0, int(ready.words[0])), (0, int(ready.opposite)), (-1, 0)]
    doubtful += [(row, int(ready.words[row])) for row in range(1, ready.rows)]
    doubtful += [(-1, int(ready.words[-2])), (-1, int(ready.words[-1])), (-1, max(int(ready.words[-1]) - 1, 0))]
    for row, word in doubtful:
        for column in (0, 69):
            block = calm.copy()
            block[row, column] = word
            assert way(block, ready, noise)
            assert laplace.undecided_columns(block, ready).tolist() == [column]


@pytest.mark.parametrize("way", RESPONSE_WAYS)
@pytest.mark.parametrize("modulus", [2, 16, 32768])
def test_one_doubtful_word_of_a_response_is_noticed(modulus: int, way: response.BlockShift) -> None:
    ready = response.plan(modulus, Fraction(1))
    calm = np.full((2, 70), 0x41234567, np.uint32)
    shift = np.zeros(70, np.int32)
    assert not way(calm, ready, shift)
    for row, word in [(0, int(ready.word)), *([(1, 0)] if ready.refused else [])]:
        for column in (0, 69):
            block = calm.copy()
            block[row, column] = word
            assert way(block, ready, shift)
            assert response.undecided_columns(block, ready).tolist() == [column]


def test_a_tie_of_more_than_256_bits_is_drawn_out_and_not_guessed() -> None:
    ready = laplace.plan(Fraction(1))
    for more, sign in ((-1, -1), (1, 0)):
        tied = ready.sign.prefix(320) + more  # agrees in 288 bits or more, then differs by one unit of the tenth word
        words = [(tied >> (32 * i)) & 0xFFFFFFFF for i in range(9, -1, -1)]
        block = [words[0], *[1 << 31] * (ready.rows - 1)]
        source = Recorded(Forged([*block, *words[1:]]))
        out = np.zeros(1, np.int64)
        laplace.add(out, ready, source, laplace.numpy_block)
        assert len(source.words) == ready.rows + 9
        assert np.sign(out[0]) == sign


def test_the_high_part_is_drawn_to_its_end_and_wraps() -> None:
    ready = laplace.plan(Fraction(1, 10**8))
    block = [0, *[0xFFFFFFFF] * len(ready.digits), 0]
    words = [*block, *[0] * 24, 5]  # V is below 2^-800
    narrow, wide = np.zeros(1, np.int32), np.zeros(1, np.int64)
    laplace.add(wide, ready, Forged(words), laplace.numpy_block)
    laplace.add(narrow, ready, Forged(words), laplace.numpy_block)
    assert wide[0] < -(1 << 32)
    assert narrow[0] == wide.astype(np.int32)[0]
    assert wide.tolist() == oracle.laplace([*words, *[1] * 9], 1, ready.epsilon, len(ready.digits), 64)


@pytest.mark.parametrize("way", LAPLACE_WAYS)
def test_noise_of_very_small_epsilon_uses_64_bits_and_wraps_into_32(way: laplace.BlockNoise) -> None:
    ready = laplace.plan(Fraction(1, 10**12))
    assert len(ready.digits) > 32
    wide, narrow = np.full(500, -3, np.int64), np.full(500, -3, np.int32)
    source = Recorded(Seeded(5))
    laplace.add(wide, ready, source, way)
    laplace.add(narrow, ready, Seeded(5), way)
    expected = oracle.laplace(source.words, 500, ready.epsilon, len(ready.digits), block_samples(ready.rows))
    assert (wide + 3).tolist() == expected
    assert np.array_equal(narrow, wide.astype(np.int32))


@pytest.mark.parametrize("way", RESPONSE_WAYS)
@pytest.mark.parametrize("modulus", [2, 3, 16, 31, 32767, 32768])
@pytest.mark.parametrize("epsilon", ["1/1000000", "3/7", "10", "50"])
def test_response_equals_the_oracle(modulus: int, epsilon: str, way: response.BlockShift) -> None:
    ready = response.plan(modulus, Fraction(epsilon))
    samples = 900
    block = hostile([int(ready.word)], 2, samples)
    refusing = [k * (1 << 32) // max(modulus - 1, 1) + 1 for k in range(max(1, min(modulus - 1, 40)))]
    block[samples : samples + len(refusing)] = [w % (1 << 32) for w in refusing]
    source = Recorded(Forged([*block, 0, 0, ready.moves.prefix(64) & 0xFFFFFFFF]))
    start = np.arange(samples) % modulus
    out = start.astype(np.int16)
    response.add(out, ready, source, way)
    shift = oracle.response(source.words, samples, modulus, Fraction(epsilon), block_samples(2))
    assert out.tolist() == ((start + shift) % modulus).tolist()


@pytest.mark.statistics
@pytest.mark.parametrize("way", GAUSSIAN_WAYS)
@pytest.mark.parametrize("sigma2", SIGMAS)
@pytest.mark.parametrize("table_sigma", [SMALL_TABLE, gaussian.TABLE_SIGMA])
def test_gaussian_equals_the_oracle(sigma2: str, table_sigma: int, way: gaussian.BlockNoise) -> None:
    ready = gaussian.plan(Fraction(sigma2), table_sigma=table_sigma)
    samples = 1500
    steps = ready.steps.tolist()
    some = steps[:: max(1, len(steps) // 40)]
    first = [w + side for w in some for side in (0, 1 << 31)]
    sure = ready.sure.tolist()[:40] if ready.shift else []
    block = hostile([*first, *sure], ready.rows, samples)
    source = Recorded(Forged([*block, 0, 0, 0, 0xFFFFFFFF, 5]))
    out = np.zeros(samples, np.int64)
    gaussian.add(out, ready, source, way)
    expected = oracle.gaussian(source.words, samples, ready.sigma2, ready.shift, block_samples(ready.rows))
    wrapped = [(v + (1 << 63)) % (1 << 64) - (1 << 63) for v in expected]
    assert out.tolist() == wrapped


def test_compiled_and_plain_loops_agree_over_many_blocks() -> None:
    for epsilon in EPSILONS:
        ready = laplace.plan(Fraction(epsilon))
        sums = [np.zeros(200_003, np.int32) for _ in LAPLACE_WAYS]
        for out, way in zip(sums, LAPLACE_WAYS, strict=True):
            laplace.add(out, ready, Seeded(3), way)
        assert np.array_equal(*sums)
    for modulus in (2, 16, 1000, 32768):
        moved = [np.zeros(200_003, np.int16) for _ in RESPONSE_WAYS]
        for out, way in zip(moved, RESPONSE_WAYS, strict=True):
            response.add(out, response.plan(modulus, Fraction(1)), Seeded(4), way)
        assert np.array_equal(*moved)
    for sigma2 in SIGMAS:
        drawn = [np.zeros(100_003, np.int64) for _ in GAUSSIAN_WAYS]
        for out, way in zip(drawn, GAUSSIAN_WAYS, strict=True):
            gaussian.add(out, gaussian.plan(Fraction(sigma2)), Seeded(5), way)
        assert np.array_equal(*drawn)
