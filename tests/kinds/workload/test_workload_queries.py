"""Named workloads against their matrices, their products, their tables, and their names for cells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from sketchstream.errors import SpecError
from sketchstream.kinds.workload.queries.factors import Factor
from sketchstream.kinds.workload.queries.queries import Workload, marginals, product_workload, union
from sketchstream.kinds.workload.queries.universe import Column, Universe

RANDOM = np.random.default_rng(18)


def by_definition(name: str, size: int, width: int) -> np.ndarray:
    rows = []
    for low in range(size):
        for high in range(low + 1, size + 1):
            row = np.zeros(size)
            row[low:high] = 1
            wanted = {
                "identity": high == low + 1,
                "total": (low, high) == (0, size),
                "prefix": low == 0,
                "ranges": True,
                "windows": high == low + width,
                "trailing": high == low + width or (low == 0 and high < width),
            }[name]
            if wanted:
                rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize("name", ["identity", "total", "prefix", "ranges", "windows", "trailing"])
def test_a_factor_is_its_definition(name: str) -> None:
    width = 3 if name in ("windows", "trailing") else 0
    factor = Factor(name, 7, width)
    matrix = by_definition(name, 7, width)
    assert sorted(map(tuple, factor.dense())) == sorted(map(tuple, matrix))
    assert factor.rows == len(matrix)
    matrix = factor.dense()
    np.testing.assert_array_equal(factor.gram(), matrix.T @ matrix)
    values = RANDOM.normal(size=(4, 7, 2))
    np.testing.assert_allclose(factor.apply(values, 1), np.einsum("ij,ajb->aib", matrix, values), atol=1e-12)
    half = RANDOM.normal(size=(7, 7))
    covariance = half @ half.T
    found = factor.quadratic(np.stack([covariance, 2 * covariance], axis=-1))
    expected = np.einsum("ij,jk,ik->i", matrix, covariance, matrix)
    np.testing.assert_allclose(found, np.stack([expected, 2 * expected], axis=-1), atol=1e-9)
    assert len(factor.labels(tuple("abcdefg"))) == factor.rows


def some_workloads() -> list[Workload]:
    matrix = Workload.of_matrix(RANDOM.normal(size=(4, 6)))
    tables = marginals({"a": 3, "b": 2, "c": 4}, (0, 1, 2))
    mixed = union(
        product_workload({"x": Factor("prefix", 4), "y": Factor("identity", 3)}),
        product_workload({"x": Factor("total", 4), "y": Factor("ranges", 3)}),
    )
    return [matrix, tables, mixed, Workload.named("ranges:4 x windows:5:2"), Workload.named("marginals:3:1,2")]


def test_powers_of_all_intervals_do_not_need_their_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """For ranges:1024 that is a product of 524,800 rows with the decoder, in every default answer."""
    workload, half = Workload.named("ranges:60"), RANDOM.normal(size=(60, 130))
    expected = [np.sum((workload.dense() @ half) ** power, axis=1) for power in (2, 4)]
    monkeypatch.setattr(Factor, "apply", None)
    monkeypatch.setattr(Factor, "some_rows", None)
    for power, known in zip((2, 4), expected, strict=True):
        np.testing.assert_allclose(workload.power_sums(half, power), known, rtol=1e-9)
    nothing = workload.power_sums(np.zeros((60, 3)), 4)
    assert not nothing.any()


@pytest.mark.parametrize("index", range(5))
def test_a_workload_acts_as_its_matrix(index: int) -> None:
    workload = some_workloads()[index]
    matrix = workload.dense()
    assert matrix.shape == (workload.count, workload.size)
    np.testing.assert_allclose(workload.gram(), matrix.T @ matrix, atol=1e-9)
    histogram = RANDOM.normal(size=workload.size)
    np.testing.assert_allclose(workload.apply(histogram), matrix @ histogram, atol=1e-9)
    half = RANDOM.normal(size=(workload.size, 5))
    covariance = half @ half.T
    expected = np.einsum("ij,jk,ik->i", matrix, covariance, matrix)
    np.testing.assert_allclose(workload.variances(covariance), expected, atol=1e-9)
    for power in (2, 4):
        np.testing.assert_allclose(
            workload.power_sums(half, power), np.sum((matrix @ half) ** power, axis=1), rtol=1e-9
        )
    chosen = np.array([workload.count - 1, 0, workload.count // 2])
    np.testing.assert_array_equal(workload.some_rows(chosen), matrix[chosen])
    again = Workload.from_dict(workload.to_dict())
    assert again.digest == workload.digest
    assert len({one.digest for one in some_workloads()[1:]}) == 4


def test_tables_name_every_answer() -> None:
    workload = marginals({"carrier": 3, "origin": 2}, (0, 1, 2))
    tables = workload.tables([("AA", "DL", "UA"), ("EWR", "JFK")])
    assert [table.name for table in tables] == ["total", "carrier", "origin", "carrier x origin"]
    assert tables[3].axes[0].labels == ("AA", "DL", "UA")
    assert tables[3].shape == (3, 2)
    assert sum(table.count for table in tables) == workload.count
    (delays,) = Workload.named("ranges:3").tables([("early", "on time", "late")])
    assert delays.axes[0].labels == ("early", "early to on time", "early to late", "on time", "on time to late", "late")


def test_matrices_are_read_from_files(tmp_path: Path) -> None:
    matrix = RANDOM.integers(0, 2, (5, 8)).astype(float)
    matrix[0, 0] = 1
    np.save(tmp_path / "a.npy", matrix)
    scipy.sparse.save_npz(tmp_path / "b.npz", scipy.sparse.csr_matrix(matrix))
    for name in ("a.npy", "b.npz"):
        assert Workload.named(str(tmp_path / name)).digest == Workload.of_matrix(matrix).digest
    (tmp_path / "c.npy").write_bytes(b"not an array")
    with pytest.raises(SpecError, match="could not be read"):
        Workload.named(str(tmp_path / "c.npy"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("prefix", "written as"),
        ("prefix:x", "written as"),
        ("prefix:0", "from 1 to"),
        ("squares:8", "one of identity"),
        ("windows:8", "width of windows"),
        ("windows:8:9", "width of windows"),
        ("marginals:8", "marginals over bits"),
        ("marginals:3:4", "orders of marginals"),
        ("marginals:40:1", "at most 24 bits"),
        (3, "must be a string"),
    ],
)
def test_a_text_that_is_no_workload_is_refused(wrong: object, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Workload.named(wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.zeros((2, 2)), "no effect on the answers"),
        (np.ones(3), "two dimensions"),
        (np.ones((0, 3)), "none of them empty"),
        (np.array([[np.nan, 1]]), "must be finite"),
        (np.array([["a", "b"]]), "must hold numbers"),
    ],
)
def test_a_matrix_that_is_no_workload_is_refused(wrong: np.ndarray, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Workload.of_matrix(wrong)


def table() -> Universe:
    return Universe(
        [
            Column("carrier", ["AA", "DL", "9"], other=True),
            Column("delay", edges=["-60", "0", "0.1", "1e2"]),
            Column.buckets("hour", 0, 6, 4, field="when"),
        ]
    )


@pytest.mark.parametrize(
    ("record", "cell"),
    [
        ({"carrier": "AA", "delay": -60, "when": 0}, 0),
        ({"carrier": "DL", "delay": 0, "when": 23}, 12 + 4 + 3),
        ({"carrier": 9, "delay": 0.1, "when": "6"}, 24 + 8 + 1),
        ({"carrier": None, "delay": 99.999, "when": 5.99}, 36 + 8),
        ({"carrier": "AA", "delay": 100, "when": 0}, -1),
        ({"carrier": "AA", "delay": float("nan"), "when": 0}, -1),
        ({"carrier": "AA", "delay": True, "when": 0}, -1),
        ({"carrier": "AA", "delay": "1e999999999", "when": 0}, -1),
        ({"carrier": "AA", "delay": 0}, -1),
    ],
)
def test_records_fall_into_the_cell_of_their_fields(record: dict[str, object], cell: int) -> None:
    universe = table()
    assert universe.locate(record) == cell
    fields = {name: [record.get(name)] * 2 for name in ("carrier", "delay", "when")}
    assert universe.locate_fields(fields).tolist() == [cell, cell]
    if cell >= 0:
        assert universe.locate_fields(fields)[0] == np.ravel_multi_index(
            [
                column.cells.index(word)
                for column, word in zip(universe.columns, universe.describe(cell).values(), strict=True)
            ],
            universe.shape,
        )


def test_a_table_survives_its_plain_data_and_names_its_cells() -> None:
    universe = table()
    assert Universe.from_dict(universe.to_dict()) == universe
    assert universe.size == 48
    assert universe.cells[0] == ("AA", "DL", "9", "other")
    assert universe.cells[1] == ("-60..0", "0..0.1", "0.1..100")
    assert universe.marginals((1,)).count == 4 + 3 + 4
    wide = Column.from_dict({"name": "hour", "start": 0, "width": "0.5", "count": 3, "other": True})
    assert wide.cells == ("0..0.5", "0.5..1", "1..1.5", "other")
    assert wide.locate("1.4999") == 2
    assert wide.locate("1.5") == 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "a"}, "either values or edges"),
        ({"name": "a", "values": ["x"], "edges": [1, 2]}, "either values or edges"),
        ({"name": "a", "values": ["x", "x"]}, "must differ"),
        ({"name": "a", "values": [1.5]}, "text or whole numbers"),
        ({"name": "a", "edges": [2, 1]}, "ascending"),
        ({"name": "a", "edges": ["x", 1]}, "must be numbers"),
        ({"name": "a", "start": 0, "width": 1}, "start, width and count"),
        ({"name": "a", "colour": 1}, "found colour"),
        ({"values": ["x"]}, "no name"),
    ],
)
def test_a_column_that_cannot_be_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Column.from_dict(wrong)
