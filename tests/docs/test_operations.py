"""docs/operations.md says what runs: its tables are compared with workers, services and the code."""

from __future__ import annotations

import ast
import json
import logging
import re
import sys
import time
import warnings
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from helpers.metric_names import Documented, below, documented, documented_events
from helpers.paths import ROOT
from helpers.serving import publish, serving
from helpers.streams import EPOCH, MINUTE
from helpers.workers import driver, send
from sketchstream import log_events
from sketchstream.serve.http.metrics import exposition as of_service
from sketchstream.serve.newest import SHOWN_NUMBERS
from sketchstream.stream.monitoring.exposition import exposition as of_worker
from sketchstream.stream.monitoring.metrics import PAYLOAD, Metrics

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")

SOURCES = [*(ROOT / "sketchstream").rglob("*.py"), *(ROOT / "connectors" / "sketchstream_connectors").rglob("*.py")]


def exported(text: str) -> dict[str, Documented]:
    """Metrics by the name under which Prometheus has them, with type and labels; `of` is left empty."""
    found = {}
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[name] = Documented(family.type, frozenset(labels), "")
    return found


def compare(found: dict[str, Documented], of: str) -> None:
    """Every metric that is exported is in the table with its type and labels, and the other way round."""
    promised = {name: one for name, one in documented().items() if one.of in (of, "both")}
    assert found.keys() == promised.keys()
    for name, one in found.items():
        assert one.type == promised[name].type, name
        assert one.labels <= promised[name].labels, name
        assert one.labels == promised[name].labels or not one.labels, name


def test_the_table_lists_what_a_worker_exports() -> None:
    d = driver(partitions=2)
    for minute in range(4):
        send(d, minute, EPOCH + minute * MINUTE, 0)
    d.run()
    memory = d.worker._store
    memory.broker_time = (EPOCH, d.clock.monotonic())  # type: ignore[attr-defined]
    d.clock.advance(10)
    d.run()
    send(d, 1, EPOCH, 0)  # late
    d.run()
    text = of_worker(d.worker.metrics, d.worker.gauges, "events").decode()
    compare(exported(text), "worker")
    off = exported(of_worker(Metrics(diagnostics=False), d.worker.gauges, "events").decode())
    hidden = {f"sketchstream_{name}_total" for name in PAYLOAD} | {"sketchstream_partition_throttled"}
    assert exported(text).keys() - off.keys() == hidden
    lines = below("Metrics").splitlines()
    marked = {line.split("`")[1] for line in lines if 'diagnostics = "exact"' in line and line.startswith("| `")}
    assert marked == hidden


def test_the_table_lists_what_a_service_exports(tmp_path: Path) -> None:
    publish(tmp_path / "sealed", minutes=2, partitions=1)
    with serving(tmp_path) as (service, client):
        deadline = time.monotonic() + 300
        while service.store.pending() and time.monotonic() < deadline:
            time.sleep(0.1)
        text = client.get("/metrics").raise_for_status().text
        assert of_service(service)
        compare(exported(text), "serve")
        families = {one.name: one for one in text_string_to_metric_families(text)}
        newest = max(service.store.windows("minutes"), key=lambda one: one.window)
        *known, bound = service.store.points("minutes", "distinct")[newest.window]
        assert bound is None
        for part, expected in zip(("answer", "answer_low", "answer_high"), known, strict=True):
            shown = {
                (one.labels["sketch"], one.labels["number"]): one.value
                for one in families[f"sketchstream_serve_{part}"].samples
            }
            assert shown["minutes", "distinct"] == expected
            assert {number for _, number in shown} <= set(SHOWN_NUMBERS)
        ends = families["sketchstream_serve_answer_window_end_timestamp_seconds"].samples
        assert {one.labels["sketch"]: one.value for one in ends}["minutes"] == newest.window[1] / 1000


def calls() -> list[tuple[str, str, set[str]]]:
    """Every event that the code logs: its name, its level, the names of its fields."""
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            log, _, method = ast.unparse(node.func).rpartition(".")
            if log == "event_log" or log.startswith("log_events.EventLog("):
                level = "error" if method == "exception" else method
                fields = {one.arg for one in node.keywords if one.arg}
                found += [(event, level, fields) for event in _texts(node.args[0])]
    return found


def _texts(node: ast.expr) -> list[str]:
    return [_text(one) for one in (node.body, node.orelse)] if isinstance(node, ast.IfExp) else [_text(node)]


def _text(node: ast.expr) -> str:
    assert isinstance(node, ast.Constant), ast.unparse(node)
    return str(node.value)


RESERVED = {"time", "level", "logger", "event", "message", "traceback"}
"""Keys of every JSON line; no field of an event has such a name."""


def test_the_list_of_events_is_that_of_the_code_and_of_the_document() -> None:
    logged = calls()
    assert {event for event, _, _ in logged} | {log_events.OTHER} == set(log_events.EVENTS)
    for event, level, fields in logged:
        assert level in log_events.EVENTS[event].levels, (event, level)
        assert not fields & RESERVED, event
    listed = documented_events()
    assert {name: levels for name, (levels, _) in listed.items()} == {
        name: one.levels for name, one in log_events.EVENTS.items()
    }
    for name, (_, meaning) in listed.items():
        assert meaning == log_events.EVENTS[name].meaning.rstrip("."), name


def test_nothing_is_logged_that_is_no_event() -> None:
    plain = re.compile(r"\blog(?:ger)?\.(?:debug|info|warning|error|exception|critical|log)\(")
    found = {path.name for path in SOURCES if plain.search(path.read_text())}
    assert found == {"log_events.py"}


def test_json_lines_hold_the_event_and_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(log_events.JsonLines())
    event_log = log_events.EventLog("sketchstream.worker")
    log = event_log.logger
    log.addHandler(handler)
    try:
        event_log.warning("dropped", partition=3, reason='a "b"\nc')
        event_log.warning("progress", "5 records, lag 3", records=5)
        log.warning("of %s", "a library")
        try:
            raise ValueError
        except ValueError:
            event_log.exception("follow_failed")
    finally:
        log.removeHandler(handler)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    for line in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
        assert line.pop("logger") == "sketchstream.worker"
    assert lines[0] == {"level": "warning", "event": "dropped", "partition": 3, "reason": 'a "b"\nc'}
    assert lines[1] == {"level": "warning", "event": "progress", "text": "5 records, lag 3", "records": 5}
    assert lines[2] == {"level": "warning", "event": "message", "message": "of a library"}
    assert lines[3]["event"] == "follow_failed"
    assert "ValueError" in lines[3]["traceback"]


def test_begin_with_json_makes_lines_of_warnings_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sketchstream.spec import NoPrivacyWarning

    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    assert not log_events.writes_json()
    log_events.begin("warning", "json")
    assert log_events.writes_json()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("epsilon above 10 protects nobody", NoPrivacyWarning, stacklevel=1)
        warnings.warn("of a library", UserWarning, stacklevel=1)
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == "epsilon above 10 protects nobody"


@pytest.mark.parametrize(
    "words",
    [
        ("epsilon", "Two dials|two dials"),
        ("item", 'unit = "item"'),
        ("slots", "sketchstream size"),
        ("Java", "sealed-topic.md"),
        ("interval", "95 of 100"),
        ("monitor", "alerts.yaml"),
        ("upgrade", "SIGTERM"),
        ("hash key", "new revision"),
        ("back up", "sealed topic"),
        ("deleted", "nothing of one person"),
        ("HyperLogLog", "no privacy"),
    ],
)
def test_each_question_of_an_operator_has_an_answer_at_the_top(words: tuple[str, str]) -> None:
    question, answer = words
    top = (ROOT / "docs" / "operations.md").read_text().split("\n## ")[0]
    (row,) = [line for line in top.splitlines() if line.startswith("| ") and question in line.split("|")[1]]
    assert re.search(answer, row)
    for anchor in re.findall(r"\]\(#([\w-]+)\)", row):
        assert re.search(
            rf"^## {anchor.replace('-', ' ')}$", (ROOT / "docs" / "operations.md").read_text(), re.I | re.M
        )
