"""`sketchstream plan --kind projection`: the best k, and whether to project at all."""

from __future__ import annotations

import csv
import io
import json
import math

import pytest

from helpers.commands import Run
from sketchstream.kinds.projection.forecast import expected_errors, plan, with_columns
from sketchstream.kinds.projection.spec import ProjectionSpec

EVENTS = ("plan", "--kind", "projection", "--rows", "50", "--features", "300", "--epsilon", "1", "--delta", "1e-6",
          "--family", "rademacher")  # fmt: skip
SECRET = ("plan", "--kind=projection", "--rows", "1000", "--features", "100000", "--epsilon", "1", "--delta", "1e-6",
          "--unit", "item", "--max-norm", "1", "--matrix-seed", "secret", "--squared-distance", "1e4")  # fmt: skip


def test_the_best_k_is_that_of_the_closed_form(run: Run) -> None:
    """Without noise of its own for each k, the best k is the squared distance over 4 sigma^2, with the fresh layer."""
    data = json.loads(run(*EVENTS, "--squared-distance", "10000", "--format", "json").out)
    sigma = data["best"]["sigma"]
    ideal = 10_000 / (4 * sigma**2)
    assert ideal / 2 < data["best"]["k"] < ideal * 2
    assert data["best"]["distance"] / 10_000 == pytest.approx(4 * math.sqrt(2) * sigma / 100, rel=0.1)
    spec = ProjectionSpec(50, 300, 64, "1", "1e-6", matrix="rademacher")
    (own,) = [one for one in data["tried"] if one["k"] == 64]
    assert own == expected_errors(spec, 10_000.0).to_dict()
    rows = list(csv.DictReader(io.StringIO(run(*EVENTS, "--squared-distance", "10000", "--format", "csv").out)))
    assert [int(row["k"]) for row in rows] == [one["k"] for one in data["tried"]]


def test_it_says_whether_identity_rows_would_be_more_accurate(run: Run) -> None:
    table = run(*EVENTS, "--squared-distance", "1e6").out
    assert "Do not project: rows kept as they are (matrix = 'identity', 50 rows x 300 features)" in table
    assert "more accurate" in table
    told = run(*SECRET, "-k", "128").out
    assert "Projecting is 15.8 times more accurate than rows kept as they are" in told
    public = run(
        *EVENTS, "--unit", "item", "--max-norm", "1", "--squared-distance", "100", "-k", "16", "--no-intrusion"
    )
    assert "never gains accuracy" in public.out
    assert "larger than the distance itself" in public.out


def test_it_advises_random_signs_where_they_have_a_smaller_error() -> None:
    spec = ProjectionSpec(40, 2000, 64, "1", "1e-6", intrusion=False)
    found = plan(spec, 12_630.0, candidates=(64, 256))
    signs = with_columns(spec, 256, "rademacher")
    assert signs.matrix == "rademacher"
    assert found.signs == expected_errors(signs, 12_630.0)
    assert found.signs.distance < found.best.distance
    advice = "Take random signs: matrix = 'rademacher' with k = 256 has a standard error of 1,9"
    assert any(said.startswith(advice) for said in found.sentences())
    assert plan(signs, 12_630.0, candidates=(64, 256)).signs is None


def test_the_table_of_the_document_is_what_plan_says(run: Run) -> None:
    """docs/theory/projection.md, section 8: one layer, d = 1000 and 1e5."""
    for features, distance2, columns, wanted in (("1000", "1e2", "64", 471), ("100000", "1e4", "256", 1718)):
        data = json.loads(
            run(*SECRET[:4], "--features", features, *SECRET[6:-1], distance2, "-k", columns,
                "--no-intrusion", "--format", "json").out
        )  # fmt: skip
        assert data["best"]["distance"] == pytest.approx(wanted, rel=0.03)


def test_help_and_mistakes(run: Run) -> None:
    told = run("plan", "--kind", "projection", "--help")
    assert told.code == 0
    assert "\n    sketchstream plan --kind projection --rows 105" in told.out
    for wrong, said in (
        (("--squared-distance", "0"), "squared-distance"),
        (("--squared-distance", "1", "--max-norm", "1"), "max_norm"),
        (("--squared-distance", "1", "--family", "srht", "-k", "2000"), "k"),
        ((), "--squared-distance"),
    ):
        done = run(*EVENTS, *wrong)
        assert done.code not in (0, 70)
        assert said in done.err
