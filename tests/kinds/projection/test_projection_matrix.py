"""The projection matrix: published vectors, a twin on hashlib, laws of its entries; norms against exact arithmetic."""

from __future__ import annotations

import hashlib
import itertools
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from helpers.projection_attack import top_direction
from sketchstream.errors import SpecError
from sketchstream.kinds.projection.matrices import matrix as matrices
from sketchstream.kinds.projection.matrices import sensitivity
from sketchstream.kinds.projection.matrices.matrix import Matrix, thresholds
from sketchstream.kinds.projection.spec import ProjectionSpec

SEED = bytes(range(32))


def words(seed: bytes, feature: int, count: int) -> list[int]:
    """The words of a feature, from the standard library's BLAKE2b."""
    out: list[int] = []
    for block in range(-(-count // 8)):
        data = feature.to_bytes(8, "little") + block.to_bytes(4, "little")
        digest = hashlib.blake2b(data, digest_size=64, key=seed, person=b"sketchstream-P1\0").digest()
        out += [int.from_bytes(digest[8 * i : 8 * i + 8], "little") for i in range(8)]
    return out


def twin_row(family: str, seed: bytes, feature: int, d: int, k: int) -> list[int]:
    """A row, entry by entry."""
    found = words(seed, feature, k)
    if family == "gaussian":
        table = thresholds()[0][:-1].tolist()
        sizes = [sum(1 for one in table if one <= word % 2**63) for word in found]
        return [-size if word >> 63 else size for size, word in zip(sizes, found, strict=True)][:k]
    if family == "rademacher":
        return [-1 if word >> 63 else 1 for word in found][:k]
    order = 1 << (d - 1).bit_length()
    columns = list(dict.fromkeys(word % order for word in words(seed, 2**64 - 1, 80 * order)))[:k]
    sign = -1 if found[0] >> 63 else 1
    return [sign * (-1) ** (feature & column).bit_count() for column in columns]


def test_rows_have_the_entries_of_the_vectors() -> None:
    rows = Matrix("gaussian", SEED, 2**41, 12).rows([0, 1, 2**40, 5, 7]).astype(int)
    assert rows[0].tolist() == [36, -25, 135, -56, 101, 76, 49, -3, -52, 122, 218, 93]
    assert rows[1, :8].tolist() == [56, -61, 181, -8, 47, 40, -29, -15]
    assert rows[2, :8].tolist() == [-27, -38, 74, -20, 24, 15, 41, -18]
    assert (3 * rows[3] - rows[4])[:6].tolist() == [146, -272, 168, -84, -464, -182]
    table = thresholds()[0]
    assert table[:3].tolist() == [57493641771463300, 172466889637441454, 287398040751147214]
    assert len(table) == 582 + 1


@pytest.mark.parametrize("family", ["gaussian", "rademacher", "srht"])
@pytest.mark.parametrize(("d", "k"), [(1, 1), (5, 8), (100, 13), (1 << 20, 64), (3000, 300)])
def test_rows_equal_their_twin(family: Any, d: int, k: int) -> None:
    seed = hashlib.blake2b(f"{d} {k}".encode(), digest_size=32).digest()
    if family == "srht" and d == 1 << 20:
        d = 64
    features = sorted({0, d - 1, d // 2, d // 3})
    found = Matrix(family, seed, d, k).rows(features)
    assert found.tolist() == [twin_row(family, seed, one, d, k) for one in features]


def test_rows_do_not_depend_on_how_many_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Matrix("gaussian", SEED, 500, 40).rows(np.arange(500))
    monkeypatch.setattr(matrices, "WORDS_AT_ONCE", 7 * 40)
    assert np.array_equal(whole, Matrix("gaussian", SEED, 500, 40).rows(np.arange(500)))
    assert np.array_equal(whole[:, :9], Matrix("gaussian", SEED, 500, 9).rows(np.arange(500)))


def test_a_table_with_another_digest_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrices, "TABLE_SHA256", "0" * 64)
    thresholds.cache_clear()
    with pytest.raises(ArithmeticError, match="every machine"):
        thresholds()
    thresholds.cache_clear()
    monkeypatch.undo()
    thresholds()


def test_the_law_of_the_table_is_sub_gaussian_up_to_1e_9() -> None:
    with mpmath.workdps(40):
        table = [0, *thresholds()[0][:-1].tolist(), 2**63]
        law = [mpmath.mpf(b - a) / 2**63 for a, b in itertools.pairwise(table)]
        second = sum(p * i * i for i, p in enumerate(law))
        fourth = sum(p * i**4 for i, p in enumerate(law))
        assert abs(second / 4096 - 1) < 1e-17
        assert abs(fourth / second**2 - 3) < 1e-3
        worst = mpmath.mpf(0)
        # Beyond t = 2 * 582 / 4096 the exponent t * 582 is below 4096 t^2 / 2.
        for t in mpmath.linspace(mpmath.mpf("1e-4"), mpmath.mpf(2 * 582) / 4096, 60):
            mean = sum(p * mpmath.cosh(t * i) for i, p in enumerate(law))
            worst = max(worst, mpmath.log(mean) / (2048 * t * t) - 1)
        assert worst < 1e-10  # the calibration allows for 1e-9


def test_srht_columns_differ_and_are_orthogonal_over_all_features() -> None:
    one = Matrix("srht", SEED, 64, 64)
    assert len(set(one.sampled.tolist())) == 64
    rows = one.all_rows.astype(int)
    assert np.array_equal(rows.T @ rows, 64 * np.eye(64, dtype=int))
    fewer = Matrix("srht", SEED, 50, 20)
    assert np.array_equal(np.abs(fewer.all_rows), np.ones((50, 20)))


@pytest.mark.parametrize(
    ("d", "k", "total", "trace", "longest", "largest"),
    [
        (1000, 32, -10408, 131053820, 272070, "2400.32191579"),
        (1000, 100, 14164, 409387856, 632196, "2651.10030743"),
        (200, 64, -215, 52870657, 390579, "1391.07208705"),
        (4096, 64, 3079, 1073637357, 471327, "4561.11914060"),
    ],
)
def test_norms_of_the_vectors(d: int, k: int, total: int, trace: int, longest: int, largest: str) -> None:
    one = Matrix("gaussian", SEED, d, k)
    rows = one.all_rows.astype(np.int64)
    bound = sensitivity.spectral(one)
    assert int(rows.sum()) == total
    assert int((rows * rows).sum()) == trace
    assert sensitivity.longest_row(one) == longest == int((rows * rows).sum(axis=1).max())
    assert float(bound) ** 0.5 == pytest.approx(float(largest), rel=1e-11)
    top = top_direction(one)
    assert np.linalg.norm(top @ rows) == pytest.approx(float(bound) ** 0.5, rel=1e-9)
    assert longest <= bound <= trace


def positive_definite(matrix: np.ndarray) -> bool:
    """Whether all leading minors of a symmetric matrix of Python's integers are positive: exact (Bareiss 1968)."""
    rest, before = matrix.astype(object), 1
    while len(rest):
        pivot = rest[0, 0]
        if pivot <= 0:
            return False
        rest, before = (rest[1:, 1:] * pivot - np.outer(rest[1:, 0], rest[0, 1:])) // before, pivot
    return True


@pytest.mark.parametrize(
    ("d", "k"),
    [(1000, 32), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((1000, 100), (200, 64), (4096, 64)))],
)
def test_the_certified_norms_of_the_vectors_are_bounds_in_exact_arithmetic(d: int, k: int) -> None:
    one = Matrix("gaussian", SEED, d, k)
    rows = one.all_rows.astype(np.int64)
    gram, bound = (rows.T @ rows).astype(object), sensitivity.spectral(one)
    top, unit = bound.numerator, bound.denominator
    identity = np.eye(k, dtype=int).astype(object)
    assert positive_definite(identity * (top + 1) - gram * unit)  # 1 more, for a bound that is the eigenvalue itself
    assert not positive_definite(identity * (top * (10**11 - 1)) - gram * (unit * 10**11))


@pytest.mark.parametrize(("family", "d", "k"), [("gaussian", 1000, 12), ("rademacher", 300, 16), ("gaussian", 5, 20)])
def test_the_certified_norm_is_never_below_the_eigenvalue_at_fifty_digits(family: Any, d: int, k: int) -> None:
    one = Matrix(family, SEED, d, k)
    rows = one.all_rows.astype(np.int64)
    gram = rows.T @ rows if k <= d else rows @ rows.T
    with mpmath.workdps(50):
        exact = max(mpmath.eigsy(mpmath.matrix(gram.tolist()), eigvals_only=True))
        bound = sensitivity.spectral(one)
        above = mpmath.mpf(bound.numerator) / bound.denominator / exact - 1
        assert 0 <= above < 1e-11


def test_a_norm_that_is_too_small_is_not_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    gram = np.array([[4, 1], [1, 9]], np.int64)
    exact = (13 + 29**0.5) / 2
    monkeypatch.setattr(sensitivity, "_top_eigenvector", lambda _: np.array([0.6, 0.8]))
    assert float(sensitivity._certified_eigenvalue(gram)) >= exact


@pytest.mark.parametrize(("d", "k"), [(40, 12), (700, 300), (30, 90)])
def test_the_certified_norm_is_the_same_where_last_bits_differ(d: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs in bytes rest on it: a file that one machine wrote is read on another one, with another LAPACK."""
    gram = sensitivity._gram(Matrix("gaussian", SEED, d, k))
    assert len(gram) == min(d, k)
    bound = sensitivity._certified_eigenvalue(gram)
    assert float(bound) == pytest.approx(np.linalg.eigvalsh(gram.astype(float))[-1], rel=1e-10)
    found, random = sensitivity._top_eigenvector, np.random.default_rng(1)
    for _ in range(5):
        shift = random.normal(0, 1e-13, len(gram))
        monkeypatch.setattr(sensitivity, "_top_eigenvector", lambda one, shift=shift: found(one) + shift)
        assert sensitivity._certified_eigenvalue(gram) == bound


def test_overlaps_and_sparse_bounds() -> None:
    for (d, k), overlap, bound in (((1000, 32), 148051, 846.2995923), ((200, 64), 143475, 906.0927105)):
        one = Matrix("gaussian", SEED, d, k)
        assert sensitivity.largest_overlap(one) == overlap
        assert float(sensitivity.sparse(one, 4)) ** 0.5 == pytest.approx(bound, abs=5e-8)
    for family in ("gaussian", "rademacher", "srht"):
        for d in (1, 37, 64):
            one = Matrix(family, SEED, d, 8 if d > 1 else 1)  # type: ignore[arg-type]
            rows = one.all_rows.astype(int)
            products = np.abs(rows @ rows.T - np.diag((rows * rows).sum(axis=1)))
            assert sensitivity.largest_overlap(one) == products.max()
            pairs = [(i, j) for i in range(min(d, 12)) for j in range(i)]
            for i, j in pairs:
                pair = rows[[i, j]]
                assert np.linalg.eigvalsh((pair @ pair.T).astype(float))[-1] <= float(sensitivity.sparse(one, 2)) + 1e-6


def test_srht_and_signs_have_known_norms_without_a_pass() -> None:
    assert sensitivity.spectral(Matrix("srht", SEED, 2**40, 64)) == 2**40
    assert sensitivity.longest_row(Matrix("rademacher", SEED, 2**40, 64)) == 64
    rows = Matrix("srht", SEED, 100, 30).all_rows.astype(float)
    assert np.linalg.norm(rows, 2) ** 2 <= 128 * (1 + 1e-12)
    with pytest.raises(SpecError, match="needs a pass"):
        ProjectionSpec(4, 2**30, 4, "1", "1e-6", matrix="gaussian")
    with pytest.raises(SpecError, match="needs a pass"):
        ProjectionSpec(4, 2**30, 4, "1", "1e-6", matrix="rademacher", unit="item", max_norm=3)
    with pytest.raises(SpecError, match="leave max_features out"):
        sensitivity.largest_overlap(Matrix("gaussian", SEED, 2**20, 4))


@pytest.mark.parametrize(
    ("arguments", "words_found"),
    [
        (("normal", SEED, 4, 2), "matrix must be one of"),
        (("gaussian", SEED[:31], 4, 2), "32 bytes, found bytes of length 31"),
        (("gaussian", "x" * 32, 4, 2), "found str"),
        (("gaussian", SEED, 0, 2), "features must be"),
        (("gaussian", SEED, 4, 4097), "k must be"),
        (("srht", SEED, 5, 9), "k must be at most 8"),
    ],
)
def test_impossible_matrices_are_refused(arguments: Any, words_found: str) -> None:
    with pytest.raises(SpecError, match=words_found):
        Matrix(*arguments)
    assert SEED.hex() not in repr(Matrix("gaussian", SEED, 4, 2))


def test_entries_follow_their_law() -> None:
    rows = Matrix("gaussian", SEED, 1 << 15, 64).rows(np.arange(1 << 14))
    size = rows.size
    table = np.array([0, *thresholds()[0][:-1].tolist(), 2**63], dtype=object)
    law = np.diff(table).astype(float) / 2**63
    counts = np.bincount(np.abs(rows).ravel(), minlength=583)[:300]
    expected = size * law[:300]
    enough = expected > 20
    statistic = float(((counts - expected)[enough] ** 2 / expected[enough]).sum())
    freedom = int(enough.sum())
    assert abs(statistic - freedom) < 5 * (2 * freedom) ** 0.5
    assert abs(int((rows > 0).sum()) - int((rows < 0).sum())) < 5 * size**0.5
    assert Fraction(int((rows.astype(np.int64) ** 2).sum()), size) == pytest.approx(4096, rel=0.01)
