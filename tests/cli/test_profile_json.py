"""The JSON of `profile` follows docs/profile.schema.json, for every kind of published object and method."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from helpers import json_schema
from helpers.commands import Run
from helpers.paths import ROOT

SCHEMA: dict[str, Any] = json.loads((ROOT / "docs" / "profile.schema.json").read_text())


def faults(value: Any, schema: Mapping[str, Any]) -> list[str]:
    return json_schema.faults(value, schema, SCHEMA)


def test_the_checker_finds_faults() -> None:
    assert len(faults({"value": "1", "low": None}, {"$ref": "#/$defs/estimate"})) == 2
    assert faults({"value": 1, "low": None, "high": 2.5}, {"$ref": "#/$defs/estimate"}) == []
    assert faults({"method": "magic"}, SCHEMA)
    assert faults({"new field": 1}, SCHEMA)[-1] == ".new field is unknown"


OPEN = ("--open", "--slots", "256", "--levels", "2")
SPECS = {
    "closed": ("--size", "50"),
    "open": OPEN,
    "weights": ("--size", "50", "--max-weight", "3"),
    "item": ("--open", "--slots", "65536", "--levels", "2", "--unit", "item", "--modulus", "8"),
    "state": ("--size", "50", "--publish", "state", "--no-intrusion"),
    "fresh": ("--size", "50", "--publish", "state", "--intrusion"),
    "wide": ("--size", "50", "--max-count", "6000"),
}


@pytest.mark.statistics
@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("method", ["likelihood", "circulant", "inverse", "monotone"])
def test_profile_follows_its_schema(run: Run, key: Path, tmp_path: Path, name: str, method: str) -> None:
    (tmp_path / "e.txt").write_text("".join(f"{number % 17}\n" for number in range(60)))
    made = run("create", "-o", "s", "--unit", "event", "--epsilon", "2", *SPECS[name], "--key-file", key)
    assert made.code == 0, made.err
    assert run("update", "s", "e.txt", "--key-file", key).code == 0
    assert run("seal", "s", "-o", "p", "--key-file", key).code == 0
    result = run("profile", "p", "--method", method, "--format", "json")
    if result.code == 2:  # a method that does not apply to what was published says so
        assert method in result.complaint or "does not" in result.complaint or "needs" in result.complaint
        assert method in ("circulant", "monotone")
        return
    assert result.code == 0, result.err
    (line,) = result.out.splitlines()
    data = json.loads(line)
    assert faults(data, SCHEMA) == []
    n = data["max_count"]
    assert len(data["fractions"]) == len(data["counts"]) == n + 1
    if method != "inverse":  # which keeps its noise: shares of a number that may be near zero, or below it
        assert abs(sum(data["fractions"]) + data["above"]["value"] - 1) < 1e-6 or data["distinct"]["value"] == 0
    steps = [str(k) for k in range(1, min(n, 1000) + 1)] + [str(k) for k in (2000, 5000) if k <= n]
    assert list(data["at_least"]) == steps
    reach = list(data["at_least"].values())
    # "inverse" keeps its noise: its numbers, which intervals hold inside, may rise
    for end in () if method == "inverse" else ("low", "value", "high"):
        assert all(one[end] >= other[end] - 1e-9 for one, other in pairwise(reach)), "k+ numbers fall, and their ends"
    assert any(one["high"] > one["low"] for one in reach), "noise leaves room"
    assert reach[0] == data["distinct"]
    assert data["guarantee"]["unit"] == data["unit"]


@pytest.mark.filterwarnings("ignore:epsilon above 10")
def test_a_window_of_mixed_sketches_has_a_row_that_says_so_and_the_others_their_answers(
    run: Run, tmp_path: Path
) -> None:
    """Partitions of one window under two sizes, one that may hold lost records, and one as it should be."""
    from sketchstream.kinds.profile.spec import ProfileSpec
    from sketchstream.provenance import Origin
    from sketchstream.sketch import Sketch
    from sketchstream.spec import ClosedDomain
    from sketchstream.stream.interfaces import Frontier, SealedEntry
    from sketchstream.stream.windows.window_ranges import Mark
    from sketchstream_connectors.files.publisher import DirectoryPublisher

    hour, first = 3_600_000, 1_357_002_000_000
    (tmp_path / "c.toml").write_text(
        "[input]\nfile = 'e.jsonl'\nitem = 'u'\nitem_type = 'int'\ntime = 't'\n[output]\ndirectory = 'sealed'\n"
        "[[sketch]]\nname = 'hourly'\nunit = 'event'\nwindow = '1h'\nepsilon = '2'\nmax_count = 5\n"
        "domain = { size = 40 }\n"
    )
    publisher = DirectoryPublisher(tmp_path / "sealed")
    for number, sizes in enumerate(((30, 40), (40, 40), (40, 40))):
        span = (first + number * hour, first + (number + 1) * hour)
        for partition, size in enumerate(sizes):
            spec = ProfileSpec("2", domain=ClosedDomain(size=size), max_count=5)
            origin = Origin("hourly", 0, span, partition, 2, 2)
            sealed = Sketch.create(spec, origin=origin).seal()
            entry = SealedEntry("hourly", 0, span, partition, sealed.seal_id, sealed.to_bytes())
            publisher.publish(partition, [entry], [])
    diverged = Mark(first + hour, first + 2 * hour)
    for partition in range(2):
        publisher.publish(partition, [], [Frontier("hourly", 0, partition, first + 3 * hour, 2, 1, diverged=diverged)])
    every = ("profile", "-c", str(tmp_path / "c.toml"), "--sketch", "hourly", "--all")
    result = run(*every, "--format", "json")
    rows = [json.loads(line) for line in result.out.splitlines()]
    assert [sorted({"error", "distinct", "diverged"} & row.keys()) for row in rows] == [
        ["error"],
        ["distinct", "diverged"],
        ["distinct"],
    ]
    assert "domain" in rows[0]["error"]
    assert [fault for row in rows for fault in faults(row, SCHEMA)] == []
    assert faults({"error": "x"}, SCHEMA), "an error names its window"
    assert "1 windows have no answer" in result.err
    table = run(*every)
    assert "no answer" in table.out
    lines = run(*every, "--format", "csv")
    assert lines.out.startswith("window_start,complete,")
    assert lines.out.count("window_start") == 1
    assert rows[0]["window_start"] in lines.err
