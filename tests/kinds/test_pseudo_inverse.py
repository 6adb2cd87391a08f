"""The pseudo-inverse takes for zero what rounding alone can make, whatever the processor."""

from __future__ import annotations

import numpy as np
import pytest

from sketchstream.kinds.pseudo_inverse import pseudo_inverse


@pytest.mark.parametrize("left", [0.0, 1e-16, 3e-15, 1e-14])
def test_a_singular_value_that_rounding_can_make_is_zero(left: float) -> None:
    rng = np.random.default_rng(5)
    u, v = (np.linalg.qr(rng.normal(size=(n, 40)))[0] for n in (112, 256))
    sizes = np.array([5.0, 2.0, 1.0, *[left] * 37])
    found = pseudo_inverse((u * sizes) @ v.T)
    assert np.linalg.norm(found, 2) == pytest.approx(1.0)
    assert found == pytest.approx(v[:, :3] / sizes[:3] @ u[:, :3].T, abs=1e-9)


def test_a_small_singular_value_that_is_one_stays() -> None:
    assert pseudo_inverse(np.diag([1.0, 1e-9])) == pytest.approx(np.diag([1.0, 1e9]))


def test_marginals_are_decoded_by_small_numbers() -> None:
    """112 queries of rank 37, which is what a strategy of all marginals of two of eight attributes is."""
    cells = np.arange(256)
    bits = cells[:, None] >> np.arange(8) & 1
    rows = [(bits[:, a] == x) & (bits[:, b] == y) for a in range(8) for b in range(a) for x in (0, 1) for y in (0, 1)]
    queries = np.array(rows, np.float64)
    found = pseudo_inverse(queries)
    assert np.linalg.matrix_rank(queries) == 37
    assert np.abs(found).max() < 1
    assert queries @ found @ queries == pytest.approx(queries, abs=1e-9)
