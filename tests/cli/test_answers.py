"""The answer for a window is the same wherever it is given out, and has no intervals where none hold."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import sketchstream as ss
from helpers.outlet import Outlet
from sketchstream.config.loader import Config
from sketchstream.query import words
from sketchstream.stream.interfaces import Frontier, SealedEntry
from sketchstream_connectors.files.publisher import DirectoryPublisher
from sketchstream_connectors.kafka import results as kafka_results
from sketchstream_connectors.kafka.results import KafkaResults
from sketchstream_connectors.readers import open_published

pytestmark = pytest.mark.filterwarnings("ignore:.*NO PRIVACY")
Run = Callable[..., Any]
HOUR = 3_600_000
CONFIG = """
[input]
file = "events.jsonl"
item = "user"
item_type = "int"
time = "ts"
[output]
directory = "sealed"
[[sketch]]
name = "s"
unit = "event"
window = "1h"
epsilon = "30"
max_count = 10
domain = { size = 40 }
[[sketch]]
name = "other"
unit = "event"
window = "1h"
epsilon = "2"
domain = { size = 40 }
"""


def publish(folder: Path, grown: Sequence[bool]) -> Path:
    """Windows of two partitions that counted the same item; where `grown`, the second one was added inside it."""
    (folder / "c.toml").write_text(CONFIG)
    publisher = DirectoryPublisher(folder / "sealed")
    spec = Config.parse(CONFIG).plan("s").spec
    for partition in range(2):
        entries = []
        for hour, added in enumerate(grown):
            window = (hour * HOUR, (hour + 1) * HOUR)
            origin = ss.Origin("s", 0, window, partition, partitions=(1, 2) if added else (2,))
            sketch = ss.Sketch.create(spec, origin=origin)
            sketch.update([1, 1, 2, 3 + partition])
            sealed = sketch.seal()
            entries.append(SealedEntry("s", 0, window, partition, sealed.seal_id, sealed.to_bytes()))
        publisher.publish(partition, entries, [Frontier("s", 0, partition, len(grown) * HOUR, 2, 1)])
    return folder / "c.toml"


def ends(value: Any) -> list[Any]:
    """Every end of an interval in plain data."""
    if isinstance(value, dict):
        if value.keys() == {"value", "low", "high"}:
            return [value["low"], value["high"]]
        return [end for one in value.values() for end in ends(one)]
    return []


def test_the_results_topic_holds_what_the_command_line_prints(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = publish(tmp_path, [False, True])
    printed_lines = run("profile", "-c", path, "--sketch", "s", "--all", "--format", "json").out.splitlines()
    monkeypatch.setattr(kafka_results, "Outlet", Outlet)
    config = Config.load(path)
    publishing = KafkaResults(None, config, lambda: False, every_s=1000)  # type: ignore[arg-type]
    try:
        publishing._done = set()
        with open_published(config) as published:
            assert publishing.publish_complete(published) == 2
        sent = [value.decode() for value in publishing._outlet.sent]  # type: ignore[attr-defined]
    finally:
        publishing.close()
    assert sent == printed_lines
    held, bare = map(json.loads, sent)
    assert None not in ends(bare["quality"]), "records are counted once, wherever they are"
    for one in (held, bare):
        del one["quality"]
    assert None not in ends(held)
    assert len(ends(bare)) == len(ends(held)) > 20
    assert set(ends(bare)) == {None}
    assert (len(held["stderr"]), bare["stderr"]) == (11, None), "intervals would follow from errors"
    assert bare["repartitioned"] is True
    for one in (held, bare):
        assert any("over 2 sketches" in sentence for sentence in one["guarantee"]["seen"]), (
            "the deployment's, not the sketch's"
        )


def test_no_form_of_a_repartitioned_window_has_intervals(run: Run, tmp_path: Path) -> None:
    path = publish(tmp_path, [True, False])
    one = run("profile", "-c", path, "--sketch", "s", "--to", "1970-01-01T01:00Z", "--format", "csv").out
    every = run("profile", "-c", path, "--sketch", "s", "--all", "--format", "csv").out
    rows = [row for text in (one, every) for row in csv.DictReader(io.StringIO(text))]
    assert len(rows) == 3 * 11
    for row in rows:
        bare = row.get("window_start") in (None, "1970-01-01T00:00:00Z")
        for name, cell in row.items():
            if name != "complete":  # nothing was published by which that could be known
                assert (cell == "") == (bare and name.endswith(("_low", "_high"))), name
    table = run("profile", "-c", path, "--sketch", "s", "--to", "1970-01-01T01:00Z").out
    assert words.NO_INTERVALS in table
    report = tmp_path / "one.html"
    assert run("profile", "-c", path, "--sketch", "s", "--to", "1970-01-01T01:00Z", "--html", report).code == 0
    assert words.NO_INTERVALS in report.read_text()


def test_notebooks_have_the_same_answer(run: Run, tmp_path: Path) -> None:
    path = publish(tmp_path, [False, True])
    lines = run("profile", "-c", path, "--sketch", "s", "--all", "--format", "json").out.splitlines()
    assert [window.answer.to_json() for window in ss.windows(path, "s")] == lines
    assert [window.answer.intervals for window in ss.windows(path, "s")] == [True, False]


def test_the_ledger_is_read_as_far_as_answers_need_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long range the ledger is read in growing stretches; one window asks for its own stretch only."""
    path = publish(tmp_path, [False] * 30)
    with open_published(Config.load(path)) as published:
        asked: list[tuple[int | None, int | None]] = []
        read = published.source.read

        def reading(sketch: str | None = None, since: int | None = None, until: int | None = None) -> Any:
            if sketch is None:
                asked.append((since, until))
            return read(sketch, since, until)

        monkeypatch.setattr(published.source, "read", reading)
        windows = list(published.every("s", None, None))
        published.answer(windows[0])
        assert asked == [(-2 * HOUR, 3 * HOUR)]
        for window in windows[1:]:
            published.answer(window)
        assert asked[1] == (-HOUR, 12 * HOUR)
        assert len(asked) == 3


def test_a_single_file_shows_its_window_and_quality(run: Run, tmp_path: Path) -> None:
    path = publish(tmp_path, [False, True])
    config = Config.load(path)
    with open_published(config) as published:
        parts = [window.parts[0] for window in published.every("s", None, None)]
        whole = [window.result() for window in published.every("s", None, None)]
    (tmp_path / "part.sealed").write_bytes(parts[1].to_bytes())
    (tmp_path / "grown.sealed").write_bytes(whole[1].to_bytes())
    part = json.loads(run("profile", "part.sealed", "--format", "json").out)
    assert (part["sketch"], part["window_start"], part["revision"]) == ("s", "1970-01-01T01:00:00Z", 0)
    assert part["quality"]["verdict"] in ("too few", "warning", "incomplete")
    assert part["distinct"]["low"] is not None, "each item is in a part once"
    assert "complete" not in part, "one file does not know"
    grown = json.loads(run("profile", "grown.sealed", "--format", "json").out)
    assert grown["repartitioned"] is True
    assert grown["distinct"]["low"] is None
    table = run("profile", "part.sealed").out
    assert "quality.verdict" in table
