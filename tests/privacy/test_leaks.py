"""A marked item and unusual counts through every interface: nothing but what may hold them does.

In: marked events. Out: verdicts. Touches: temporary folders.

What is searched: standard output and error of every command, log records at DEBUG, metrics, error texts, reprs, every
file that may leave, published bytes, frontiers, dead letters without payload. Where a mark may be (the operator's own
input, the secret open file of a listed domain) the search must find it: so the search itself is tested.
"""

from __future__ import annotations

import json
import logging
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sketchstream as ss
from helpers.commands import Run
from sketchstream import wire
from sketchstream.errors import SketchstreamError
from sketchstream.log_events import JsonLines
from sketchstream.published import Release
from sketchstream.sketch import Sketch
from sketchstream.spec import NoPrivacyWarning
from sketchstream.stream.monitoring.exposition import exposition
from sketchstream.stream.monitoring.metrics import PAYLOAD
from sketchstream.testing.driver import Driver

MARK = "zq7markedperson"
UNUSUAL = 7919
"""How often the marked item comes: a number that appears nowhere else."""


def holds(data: bytes | str) -> bool:
    """Whether the marked item or the unusual count is in it, as text, as decimal number or as a counter's bytes."""
    octets = data.encode() if isinstance(data, str) else data
    return any(sign in octets for sign in (MARK.encode(), str(UNUSUAL).encode(), UNUSUAL.to_bytes(4, "little")))


def without_counters(data: bytes | str, published: Any) -> Any:
    """The same without the values of the published noisy counters: one of them is the exact number now and then."""
    for counter in published.counters:
        if isinstance(data, str):
            data = data.replace(f"value={counter.value})", "value=)")
        else:
            data = data.replace(counter.value.to_bytes(8, "little", signed=True), b"")
    return data


def test_the_search_finds_what_it_looks_for() -> None:
    assert holds(f"item {MARK}")
    assert holds(f"count={UNUSUAL}")
    assert holds(np.array([3, UNUSUAL], np.int32).tobytes())
    assert not holds("item count=12")


# Commands.


def test_no_command_prints_or_writes_the_mark(run: Run, tmp_path: Path) -> None:
    (tmp_path / "events").write_text(f"{MARK}\n" * UNUSUAL + "other\n")
    (tmp_path / "odd.jsonl").write_text(json.dumps({"u": MARK, "n": "many"}) + "\n" + json.dumps({"u": MARK}) + "\n{\n")
    assert holds((tmp_path / "events").read_bytes())
    for arguments in (
        ("keygen", "-o", "key"),
        (
            "create",
            "-o",
            "s.sketch",
            "--unit",
            "event",
            "--epsilon",
            "1",
            "--open",
            "--slots",
            "256",
            "--levels",
            "2",
            "--key-file",
            "key",
        ),
        ("update", "s.sketch", "events", "--format", "lines", "--key-file", "key"),
        ("update", "s.sketch", "odd.jsonl", "--format", "jsonl", "--item", "u", "--weight", "n", "--key-file", "key"),
        ("inspect", "s.sketch"),
        ("ledger", "s.sketch"),
        ("profile", "s.sketch"),
        ("release", "s.sketch", "-o", "look", "--epsilon", "1/10", "--key-file", "key"),
        ("seal", "s.sketch", "-o", "s.sealed", "--key-file", "key"),
        ("inspect", "s.sealed"),
        ("ledger", "s.sealed", "--format", "json"),
        ("update", "s.sealed", "events", "--format", "lines", "--key-file", "key"),
    ):
        text = run(*arguments).said
        assert not holds(text), arguments
        assert "internal error" not in text, text
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name not in ("events", "odd.jsonl")}
    assert set(written) == {"key", "look", "s.sealed"}
    for name in ("look", "s.sealed"):
        assert not holds(without_counters(written[name], ss.load(written[name])))
        assert not holds(np.array(wire.unpack(written[name])[1]).tobytes())


def test_errors_of_commands_name_positions_and_not_items(run: Run, tmp_path: Path) -> None:
    (tmp_path / "items").write_text("a\nb\n")
    (tmp_path / "events").write_text(f"a\n{MARK}\n")
    run("keygen", "-o", "key")
    done = run("create", "-o", "s", "--unit", "event", "--epsilon", "1", "--items-file", "items", "--key-file", "key")
    assert done.code == 0, done.err
    assert not holds(run("update", "s", "events", "--format", "lines", "--key-file", "key").said)
    (tmp_path / "items2").write_text(f"{MARK}\n{MARK}\n")
    done = run("create", "-o", "t", "--unit", "event", "--epsilon", "1", "--items-file", "items2", "--key-file", "key")
    assert done.code != 0
    assert not holds(done.said)


# The library.


def test_no_error_or_repr_of_the_library_holds_the_mark() -> None:
    key = ss.Key(bytes(range(16)))
    closed = ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(items=["a", MARK]), max_weight=3)
    opened = ss.ProfileSpec(epsilon="1", domain=ss.OpenDomain(slots=64, levels=2))
    other = Sketch.create(ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(items=["a", "b"])), key)
    made = [Sketch.create(closed, key), Sketch.create(opened, key)]
    for sketch in made:
        sketch.update([MARK] * UNUSUAL)
        for thing in (
            sketch,
            sketch.ledger,
            sketch.spec,
            sketch.spec.domain,
            sketch.guarantee(),
            sketch.release("1/10"),
        ):
            plain = (
                without_counters(text, thing) if isinstance(thing, Release) else text
                for text in (repr(thing), str(thing))
            )
            assert not any(map(holds, plain))
    texts = []
    for wrong in (
        lambda: other.update([MARK]),
        lambda: other.update(["a", MARK], [1, 1]),
        lambda: made[0].update([MARK], [UNUSUAL]),
        lambda: made[0].update([MARK], [0.5]),
        lambda: made[1].update([MARK, None]),
        lambda: made[1].update([MARK, 1.5]),
        lambda: made[1].update({MARK: 1}),
        lambda: made[1].update([MARK.encode(), MARK]),
        lambda: ss.ClosedDomain(items=[MARK, MARK]),
        lambda: Sketch.from_bytes(made[0].to_bytes()[:-5], key),
        lambda: Sketch.from_bytes(made[0].to_bytes(), ss.Key(bytes(16))),
        lambda: ss.merge([made[0], made[1]]),
    ):
        try:
            wrong()
        except (SketchstreamError, TypeError, ValueError) as error:
            texts.append(str(error) + repr(error.__cause__) + repr(getattr(error, "__notes__", "")))
    assert len(texts) >= 8
    assert not any(holds(text) for text in texts), texts


def test_open_sketches_and_keys_are_not_pickled() -> None:
    key = ss.Key(bytes(range(16)))
    sketch = Sketch.create(ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=4)))
    for secret in (key, sketch):
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(secret)


# The worker.

CONFIG = """
[kafka]
bootstrap.servers = "unused:9092"
group.id = "leaks"
[input]
topic = "events"
item = "user"
weight = "n"
time = "record"
partitioned_by = "item"
partitioner = "unchecked"
lateness = "1m"
quorum = 1
quorum_time = "1ms"
late_topic = "late"
dead_letter_topic = "dead"
[key]
file = "unused"
[[sketch]]
name = "hourly"
unit = "event"
window = "1h"
epsilon = 1
domain = { slots = 256, levels = 2 }
"""
START = 1_700_000_040_000 // 3_600_000 * 3_600_000


def test_nothing_that_a_worker_shows_or_stores_holds_the_mark(caplog: pytest.LogCaptureFixture) -> None:
    driver = Driver(CONFIG, partitions=2, now=START, key=ss.Key(bytes(16)))
    with caplog.at_level(logging.DEBUG):
        for turn in range(UNUSUAL):
            driver.send({"user": MARK, "n": 1}, timestamp=START + turn, partition=0)
        for payload in ({"user": MARK, "n": "many"}, {"user": MARK, "n": 2**70}, {"user": [MARK]}, MARK.encode(), None):
            driver.send(payload, timestamp=START + 60_000, partition=0)
        driver.snapshot()
        stored = [repr(snapshot) for snapshot in driver.snapshots.snapshots.values()]
        blobs = [(p, name, data) for p, held in driver.snapshots.blobs.items() for name, data in held.items()]
        shown = [repr(driver.worker), str(driver.worker.progress()), driver.worker.progress().line()]
        shown += [repr(slot) for slot in driver.worker._partitions.values()] + [repr(driver.worker.gauges())]
        driver.kill()
        driver.send({"user": MARK, "n": 1}, timestamp=START - 86_400_000, partition=0)  # late
        driver.advance(hours=3)
    assert len(driver.publisher.log) >= 1
    for entry in driver.publisher.log:
        assert not holds(without_counters(entry.body, ss.load(entry.body)))
        assert not holds(np.array(wire.unpack(entry.body)[1]).tobytes())
        assert not holds(repr(entry))
        assert not holds(entry.key)
    lines = [JsonLines().format(record) for record in caplog.records]
    assert any('"event": "published"' in line for line in lines)
    metrics = exposition(driver.worker.metrics, driver.worker.gauges, ["events"]).decode()
    assert "sketchstream_publication_delay_seconds_count" in metrics
    for text in [*shown, *stored, repr(driver.publisher.frontiers()), caplog.text, *lines, metrics]:
        assert not holds(text)
    for _, name, data in blobs:
        assert not holds(name)
        assert MARK.encode() not in data
    plain = [snapshot.manifest for snapshot in driver.snapshots.snapshots.values()]
    assert MARK not in json.dumps(plain, default=repr)
    counters = {name: n for name, n in driver.worker.metrics.counters.items() if name not in PAYLOAD}
    assert MARK not in json.dumps(counters)


FIELDS = """
[kafka]
bootstrap.servers = "x:1"
group.id = "leaks"
[input]
topic = "t"
item = "user"
item_type = "int"
weight = "n"
partitioned_by = "none"
lateness = "5m"
quorum = 1
[[sketch]]
name = "sums"
kind = "gaussian"
window = "1h"
epsilon = 1
delta = "1e-6"
fraction_bits = 6
max_weight = 3
domain = { size = 50 }
[[sketch]]
name = "tables"
kind = "workload"
window = "1h"
epsilon = 1
delta = "1e-6"
mechanism = "laplace"
workload = ["marginals:1"]
[[sketch.columns]]
name = "who"
field = "person.name"
values = ["someone", "other"]
[[sketch.columns]]
name = "mood"
values = ["good", "bad"]
"""
SECRET_WEIGHT = "0.79197919791979197919"


def test_no_field_or_decimal_weight_is_shown_stored_or_told(caplog: pytest.LogCaptureFixture) -> None:
    driver = Driver(FIELDS, partitions=2, now=START, key=ss.Key(bytes(16)))
    marks = (MARK, SECRET_WEIGHT, SECRET_WEIGHT[:12], "person.name")
    with caplog.at_level(logging.DEBUG):
        for turn in range(UNUSUAL):
            value = f'{{"user":7,"n":{SECRET_WEIGHT},"person":{{"name":"{MARK}"}},"mood":"good"}}'.encode()
            driver.send(value, timestamp=START + turn, partition=0)
        for name, weight in (
            (f'["{MARK}"]', "1"),
            (f'"{MARK}{MARK}"', f'"{SECRET_WEIGHT}"'),
            ("null", "1e999"),
            ("7", "null"),
        ):
            value = f'{{"user":8,"n":{weight},"person":{{"name":{name}}}}}'.encode()
            driver.send(value, timestamp=START + 60_000, partition=0)
        driver.snapshot()
        stored = [repr(snapshot) for snapshot in driver.snapshots.snapshots.values()]
        stored += [json.dumps(one.manifest, default=repr) for one in driver.snapshots.snapshots.values()]
        shown = [repr(driver.worker), str(driver.worker.progress()), driver.worker.progress().line()]
        shown += [repr(slot) for slot in driver.worker._partitions.values()] + [repr(driver.worker.gauges())]
        counters = {name: n for name, n in driver.worker.metrics.counters.items() if name not in PAYLOAD}
        driver.kill()
        driver.advance(hours=3)
    assert len(driver.publisher.log) >= 2
    for text in [*shown, *stored, json.dumps(counters), repr(driver.publisher.frontiers()), caplog.text]:
        assert not [mark for mark in marks if mark in text], text[:400]
    for entry in driver.publisher.log:
        for mark in marks:
            assert mark.encode() not in entry.body
        assert MARK not in repr(entry) + entry.key
    for sent in driver.sink.sent:
        assert not [mark for mark in marks if mark in repr(sent)]


def test_columns_and_what_is_made_of_them_show_no_value() -> None:
    from dataclasses import replace

    from helpers.records import records_of
    from sketchstream.items.columns import Choices
    from sketchstream.items.lattice import Units
    from sketchstream_connectors.decode.decoder import Decoder

    decoder = Decoder(item="u", weight="n", columns=("who",), decimals=True)
    decoded = decoder.decode(records_of([f'{{"u":"{MARK}","n":{SECRET_WEIGHT},"who":"{MARK}"}}'.encode()] * 3))
    units = Units(np.array([UNUSUAL]), 3)
    for one in (
        decoded,
        decoded.weight_column,
        decoded.columns["who"],
        Choices([MARK]),
        units,
        replace(decoded, weights=units),
    ):
        assert not holds(repr(one)), type(one)
        assert SECRET_WEIGHT[:8] not in repr(one)


def test_metrics_hold_no_payload_counter_when_diagnostics_are_off() -> None:
    from prometheus_client import CollectorRegistry, generate_latest

    from sketchstream.stream.monitoring.exposition import _Collector
    from sketchstream.stream.monitoring.metrics import Metrics

    driver = Driver(CONFIG, partitions=1, now=START, key=ss.Key(bytes(16)))
    for _ in range(UNUSUAL):
        driver.send({"user": MARK, "n": "many"}, timestamp=START)
    driver.run()
    texts = {}
    for diagnostics in (True, False):
        metrics = Metrics(diagnostics=diagnostics)
        for name, n in driver.worker.metrics.counters.items():
            metrics.add(name, n)
        registry = CollectorRegistry()
        registry.register(_Collector(metrics, driver.worker.gauges, ["events"]))  # type: ignore[arg-type]
        texts[diagnostics] = generate_latest(registry).decode()
    assert "sketchstream_invalid_total" in texts[True]
    for name in PAYLOAD:
        assert f"sketchstream_{name}_total" not in texts[False]
    assert MARK not in texts[True] + texts[False]


def test_sizes_of_all_that_is_stored_while_a_sketch_is_open_are_those_of_an_empty_one() -> None:
    def sizes(records: list[Any]) -> list[tuple[int, list[int], int]]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoPrivacyWarning)
            driver = Driver(CONFIG, partitions=2, now=START, key=ss.Key(bytes(16)))
        for partition in range(2):
            for turn, record in enumerate(records):
                driver.send(record, timestamp=START + turn, partition=partition)
        driver.snapshot()
        store = driver.snapshots
        return [
            (p, sorted(map(len, store.blobs[p].values())), len(json.dumps(store.snapshots[p].manifest, default=repr)))
            for p in sorted(store.blobs)
        ]

    marked = sizes([{"user": MARK, "n": 1}] * 500)
    many = sizes([{"user": f"u{n}", "n": 1} for n in range(500)])
    nothing = sizes([{"user": None}] * 500)
    assert marked == many == nothing
    assert all(blobs for _, blobs, _ in marked)


def test_dead_letters_hold_no_payload_unless_it_is_asked_for() -> None:
    driver = Driver(CONFIG, partitions=1, now=START, key=ss.Key(bytes(16)))
    driver.send({"user": [MARK]}, timestamp=START)
    driver.run()
    assert [reason for _, reason, _, _ in driver.sink.sent] == ["undecodable"]
    for _, reason, record, detail in driver.sink.sent:
        assert not holds(reason + detail)
        assert not holds(repr(record))
        assert not holds(record.value or b"")


def test_what_became_of_a_chunk_shows_no_payload_counter() -> None:
    from sketchstream.stream.state.outcome import Outcome
    from sketchstream.stream.worker.status import Progress

    counted = dict.fromkeys(("updates", "nulls", "invalid", "misplaced"), UNUSUAL)
    assert not holds(repr(Outcome(records=3, **counted)))
    assert not holds(repr(Progress(records=3, updates=UNUSUAL)))
