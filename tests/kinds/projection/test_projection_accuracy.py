"""Errors of all distances of real data, over draws of the matrix and of the noise, against the closed form."""

from __future__ import annotations

import csv
import io
import re
import sysconfig
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.noise.words import Seeded
from sketchstream.kinds.projection.matrices.matrix import Matrix
from sketchstream.kinds.projection.mechanism import creation_sigma2, publication_sigma2
from sketchstream.kinds.projection.reading.answers import Projection
from sketchstream.kinds.projection.reading.distances import Distances
from sketchstream.kinds.projection.spec import ProjectionSpec
from sketchstream.noise import discrete_gaussian
from sketchstream_demo.flights import data_folder

ROWS = 100
K = 64


def counts(pairs: Iterable[tuple[str, str]]) -> np.ndarray:
    """(rows, features) events of the rows that have the most."""
    cells = Counter(pairs)
    heavy: Counter[str] = Counter()
    for (row, _), number in cells.items():
        heavy[row] += number
    rows = {row: place for place, (row, _) in enumerate(heavy.most_common(ROWS))}
    features: dict[str, int] = {}
    kept = [(rows[row], features.setdefault(one, len(features)), n) for (row, one), n in cells.items() if row in rows]
    out = np.zeros((len(rows), len(features)), np.int64)
    for row, feature, number in kept:
        out[row, feature] += number
    return out


@lru_cache(maxsize=1)
def flights() -> list[dict[str, str]]:
    """All flights from New York in 2013."""
    with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        return list(csv.DictReader(io.TextIOWrapper(file, "utf-8", newline="")))


def airports() -> np.ndarray:
    """Destinations; features are origin, carrier and scheduled hour."""
    return counts((one["dest"], f"{one['origin']} {one['carrier']} {one['hour']}") for one in flights())


def aircraft() -> np.ndarray:
    """Aircraft; features are origin and destination."""
    return counts((one["tailnum"], f"{one['origin']} {one['dest']}") for one in flights() if one["tailnum"] != "NA")


def names() -> np.ndarray:
    """Packages of Python's standard library; features are the identifiers in them."""
    library = Path(sysconfig.get_paths()["stdlib"])
    paths = [path for path in sorted(library.rglob("*.py")) if not {"site-packages", "test"} & set(path.parts)]
    pairs: Counter[tuple[str, str]] = Counter()
    for path in paths:
        package = path.relative_to(library).parts[0]
        pairs.update((package, one) for one in re.findall(r"[A-Za-z_]\w*", path.read_text("utf-8", "replace")))
    return counts(pairs.elements())


SETS: dict[str, Callable[[], np.ndarray]] = {"airports": airports, "aircraft": aircraft, "names": names}


def squared_errors(data: np.ndarray, spec: ProjectionSpec, draws: int, entropy: Any) -> tuple[np.ndarray, np.ndarray]:
    """(draws,) mean over all pairs of the squared error over its closed form; and as if the seal added no noise."""
    upper = np.triu_indices(len(data), 1)
    gaps = (data[upper[0]] - data[upper[1]]).astype(float)
    w2, w4 = (gaps**2).sum(axis=1), (gaps**4).sum(axis=1)
    first, fresh = creation_sigma2(spec), publication_sigma2(spec)
    out = np.empty((2, draws))
    for draw in range(draws):
        matrix = Matrix(spec.matrix, draw.to_bytes(32, "little"), data.shape[1], spec.k)
        values = np.rint(data.astype(float) @ matrix.all_rows.astype(float)).astype(np.int64)
        discrete_gaussian(values, first, entropy)
        discrete_gaussian(values, fresh, entropy)
        for place, variance in enumerate((first + fresh, Fraction(first))):
            projection = Projection(spec, values, variance, matrix)
            found = next(Distances(projection).blocks(len(data)))[1][upper]
            closed = projection.law.squared_norm(w2, 2 * projection.tau, w4)
            out[place, draw] = np.mean((found - w2) ** 2 / closed)
    return out[0], out[1]


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", ["1", "4"])
@pytest.mark.parametrize("name", SETS)
def test_errors_of_real_data_are_within_3_percent_of_the_closed_form(name: str, epsilon: str) -> None:
    data = SETS[name]()
    spec = ProjectionSpec(*data.shape, K, epsilon, "1e-6", matrix="rademacher")
    found, _ = squared_errors(data, spec, 200, Seeded(31))
    assert abs(np.sqrt(found.mean()) - 1) <= 0.03


@pytest.mark.statistics
@pytest.mark.parametrize("epsilon", ["1", "4"])
def test_errors_of_real_data_follow_the_closed_form_and_no_other(epsilon: str) -> None:
    """The short version; a closed form that forgets the layer of the seal is refused."""
    data = aircraft()
    spec = ProjectionSpec(*data.shape, K, epsilon, "1e-6", matrix="rademacher")
    found, forgotten = squared_errors(data, spec, 100, Seeded(32))
    error = found.std() / np.sqrt(found.size)
    assert error < 0.05
    assert abs(found.mean() - 1) < 5 * error
    assert abs(forgotten.mean() - 1) > 5 * error
    assert abs(np.sqrt(found.mean()) - 1) < 0.06
