"""Estimates of published windows: the same from the command line, the results topic and in notebooks."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.feather as feather
import pytest

import sketchstream as ss
from helpers.configurations import EVENTS_FILE, SEALED_DIRECTORY
from helpers.outlet import Outlet
from sketchstream.config.loader import Config
from sketchstream_connectors.kafka import results as kafka_results
from sketchstream_connectors.kafka.results import KafkaResults
from sketchstream_connectors.readers import open_published

# The total's small share of so large an epsilon leaves it little noise: no epsilon is known at this delta.
pytestmark = pytest.mark.filterwarnings("ignore:.*NO PRIVACY")
Run = Callable[..., Any]
HOUR = 3_600_000
START = 1_357_000_000_000 // HOUR * HOUR
COUNTS = np.array([[30, 0, 5, 1], [7, 9, 0, 0], [0, 0, 0, 40]])
"""By hour and user."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the published windows, which are made once."""
    return tmp_path_factory.mktemp("hours")


@pytest.fixture
def published(run: Run, folder: Path) -> Path:
    """Three hours of users by name, beside a sketch that has profiles."""
    if (folder / "c.toml").exists():
        return folder / "c.toml"
    (folder / "users.txt").write_text("ada\nbob\ncy\ndot\n")
    records = [
        {"ts": START + hour * HOUR + 1000 * number, "user": name}
        for hour, row in enumerate(COUNTS.tolist())
        for name, count in zip(("ada", "bob", "cy", "dot"), row, strict=True)
        for number in range(count)
    ]
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in records))
    assert run("keygen", "-o", folder / "key").code == 0
    text = EVENTS_FILE.replace('item_type = "int"', 'item_type = "text"')
    (folder / "c.toml").write_text(
        f"""{text}close_at_end = true{SEALED_DIRECTORY}[key]
file = "key"
[[sketch]]
name = "counts"
kind = "gaussian"
window = "1h"
epsilon = 9
delta = "1e-3"
domain = {{ items_file = "users.txt" }}
[[sketch]]
name = "reach"
unit = "event"
window = "1h"
epsilon = 2
domain = {{ slots = 64, levels = 2 }}
"""
    )
    done = run("worker", "-c", folder / "c.toml")
    assert done.code == 0, done.err
    return folder / "c.toml"


def test_the_topic_the_command_line_and_notebooks_give_out_the_same(
    run: Run, published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run("estimate", "-c", published, "--sketch", "counts", "--all", "--format", "json")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert len(lines) == 3
    monkeypatch.setattr(kafka_results, "Outlet", Outlet)
    config = Config.load(published)
    publishing = KafkaResults(None, config, lambda: False, every_s=1000)  # type: ignore[arg-type]
    try:
        publishing._done = set()
        with open_published(config) as windows:
            assert publishing.publish_complete(windows) == 6
        sent = [value.decode() for value in publishing._outlet.sent]  # type: ignore[attr-defined]
    finally:
        publishing.close()
    assert sent[:3] == lines
    profiles = run("profile", "-c", published, "--sketch", "reach", "--all", "--format", "json").out.splitlines()
    assert sent[3:] == profiles
    found = ss.windows(published, "counts")
    assert [window.answer.to_json() for window in found] == lines
    data = [json.loads(line) for line in lines]
    assert data[0]["labels"]["item"] == ["ada", "bob", "cy", "dot"]
    assert all("over 2 sketches" in " ".join(one["guarantee"]["seen"]) for one in data), "the deployment's guarantee"
    values = np.array([one["raw"] for one in data])
    assert np.abs(values - COUNTS).max() < 12, "noise of standard deviation below 1"


def test_notebooks_have_columns_of_sums_and_items(published: Path) -> None:
    found = ss.windows(published, "counts")
    sums = found.columns()
    assert sorted(sums) == ["complete", "history", "sum", "sum_high", "sum_low", "window_end", "window_start"]
    np.testing.assert_allclose(sums["sum"], COUNTS.sum(axis=1), atol=15)
    columns = found.columns(["ada", "sum"])
    np.testing.assert_allclose(columns["ada"], COUNTS[:, 0], atol=12)
    assert (columns["ada_low"] < columns["ada"]).all()
    assert (columns["ada"] < columns["ada_high"]).all()
    assert found[0].intervals
    card = found._repr_html_()
    assert "sum" in card
    assert found[-1]._repr_html_() in card
    with pytest.raises(ss.EstimateError, match=r"\.estimate\(\)"):
        _ = found[0].profile()
    with pytest.raises(ss.EstimateError, match=r"\.profile\(\)"):
        _ = ss.windows(published, "reach")[0].estimate()


def test_all_windows_as_rows_and_as_one_file(run: Run, published: Path, tmp_path: Path) -> None:
    asked = ("estimate", "-c", published, "--sketch", "counts", "--all", "--item", "ada", "--sum", ":")
    rows = list(csv.DictReader(io.StringIO(run(*asked, "--format", "csv").out)))
    assert [row["what"] for row in rows] == ["ada", "sum :"] * 3
    assert len({row["window_start"] for row in rows}) == 3
    assert {row["complete"] for row in rows} == {"True"}
    table = run(*asked, "--arrow", tmp_path / "a.arrow").out
    assert table.count("sum :") == 3
    held = feather.read_table(tmp_path / "a.arrow")
    assert held.num_rows == 12
    assert len(set(held.column("window_start").to_pylist())) == 3


def test_windows_are_merged_into_one(run: Run, published: Path) -> None:
    done = run("estimate", "-c", published, "--sketch", "counts", "--merge", "--method", "raw", "--format", "json")
    assert done.code == 0, done.err
    data = json.loads(done.out)
    assert data["windows"] == 3
    assert data["labels"]["item"] == ["ada", "bob", "cy", "dot"]
    np.testing.assert_allclose(data["values"], COUNTS.sum(axis=0), atol=20)
    (single, *_) = run(
        "estimate", "-c", published, "--sketch", "counts", "--all", "--method", "raw", "--format", "json"
    ).out.splitlines()
    assert data["stderr"] == pytest.approx(np.array(json.loads(single)["stderr"]) * 3**0.5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-c", "c.toml", "--all", "--merge"), "--all gives one result"),
        (("-c", "c.toml", "--all", "--plot", "x.png"), "--all gives one result"),
        (("s.sealed", "--all"), "belong to -c"),
        (("-c", "c.toml", "--sketch", "reach", "--all"), "profile"),
        (("-c", "c.toml", "--sketch", "counts"), "more than one window"),
    ],
)
def test_mistakes_say_what_to_do(run: Run, published: Path, options: tuple[str, ...], said: str) -> None:
    done = run("estimate", *(str(published) if one == "c.toml" else one for one in options))
    assert done.code not in (0, 70)
    assert said in done.err
