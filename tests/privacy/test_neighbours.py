"""Neighbouring streams through the worker: whatever one payload holds, every other slot and every envelope is equal.

In: streams that differ in one payload. Out: verdicts. Touches: memory only (the test driver).

At epsilon 50 creation noise is zero with probability above 1 - 1e-7 a slot, so open states are the true counts and
can be compared over two runs.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgpack
import numpy as np
import pytest

from sketchstream.spec import NoPrivacyWarning
from sketchstream.stream.input.partition_counts import Steps
from sketchstream.stream.monitoring.metrics import PAYLOAD
from sketchstream.testing.driver import Driver

SIZE = 16
START = 1_700_000_040_000 // 3_600_000 * 3_600_000
MINUTE = 60_000
CONFIG = """
[kafka]
bootstrap.servers = "unused:9092"
group.id = "neighbours"
[input]
topic = "events"
{input}
time = "record"
partitioned_by = "item"
partitioner = "{partitioner}"
lateness = "5m"
max_ahead = "1h"
quorum = 1
quorum_time = "1ms"
[privacy]
diagnostics = "off"
[[sketch]]
name = "hourly"
window = "1h"
epsilon = 50
{unit}
domain = {{ size = 16 }}
[[sketch]]
name = "quarter"
window = "15m"
epsilon = 50
{unit}
domain = {{ size = 16 }}
"""
JSON = 'item = "user"\nitem_type = "int"\nweight = "n"'
PACKED = 'format = "packed"\nitem_type = "int"'
UNITS = {"event": 'unit = "event"\nmax_weight = 3', "item": 'unit = "item"\nmodulus = 64'}

NOT_COMPARED = {"bytes", "snapshot_bytes"}
"""Sizes of records are envelopes, which this test lets differ; snapshots hold published bytes, whose size is public."""
Payload = Any
Seen = dict[tuple[str, int, int], np.ndarray[Any, np.dtype[np.int64]]]


def driver(unit: str, form: str, partitioner: str = "murmur2", partitions: int = 2) -> Driver:
    text = CONFIG.format(input=JSON if form == "json" else PACKED, unit=UNITS[unit], partitioner=partitioner)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoPrivacyWarning)
        return Driver(text, partitions=partitions, now=START)


def open_states(made: Driver) -> Seen:
    """Every open counter: (sketch, window start, partition) -> counters."""
    found: Seen = {}
    for partition, slot in made.worker._partitions.items():
        assert slot.state is not None, slot.reason
        for name, sketch_state in slot.state.sketch_states.items():
            for start, window in sketch_state.windows.items():
                state = window.sketch._state
                assert state is not None
                found[name, start, partition] = state.astype(np.int64)
    return found


def envelopes(made: Driver) -> list[Any]:
    """What may depend on envelopes only: watermarks, frontiers, what was published, sizes of what is stored."""
    marks = [
        (g.partition, g.position, g.watermark_ms, g.open_windows, g.status) for g in made.worker.gauges().partitions
    ]
    # the numbers of late, refused and misplaced records are published with noise of their own
    frontiers = []
    for name, one in sorted(made.publisher.frontiers().items()):
        said = one.evidence
        assert said is not None
        shown = {window: replace(it, refused=0, misplaced=None) for window, it in said.windows.items()}
        frontiers.append((name, replace(one, late=0, evidence=replace(said, older=0, windows=shown))))
    published = [one.key for one in made.publisher.log]
    sizes = [(partition, sorted(map(len, blobs.values()))) for partition, blobs in sorted(made.snapshots.blobs.items())]
    counters = {name: n for name, n in made.worker.metrics.counters.items() if name not in PAYLOAD | NOT_COMPARED}
    late = [(p, reason, record.offset) for p, reason, record, _ in made.sink.sent if reason in ("late", "future")]
    return [marks, frontiers, published, sizes, counters, made.worker.metrics.late, late]


def run(unit: str, form: str, payloads: list[tuple[int, int, Payload]], **more: Any) -> tuple[Seen, list[Any]]:
    """Feed (partition, timestamp, payload) records; the open states, and what the envelopes gave."""
    made = driver(unit, form, **more)
    for partition, stamp, payload in payloads:
        made.send(payload, timestamp=stamp, partition=partition)
    made.snapshot()
    states = open_states(made)
    return states, envelopes(made)


def home(item: int, partitions: int = 2) -> int:
    """Partition of an item."""
    from sketchstream.items.arrays import Items
    from sketchstream.stream.input.partitioner import belongs

    return next(p for p in range(partitions) if belongs(Items.of([str(item).encode()]), "murmur2", [partitions], p)[0])


HERE = [item for item in range(SIZE) if home(item) == 0]
AWAY = [item for item in range(SIZE) if home(item) == 1]


def stream(marked: Payload, late: Payload = None) -> list[tuple[int, int, Payload]]:
    """40 minutes of records in two partitions; one payload, and one that comes late, are to be chosen."""
    rng = np.random.default_rng(8)
    records: list[tuple[int, int, Payload]] = []
    for minute in range(40):
        for _ in range(5):
            item = int(rng.integers(0, SIZE))
            payload = {"user": item, "n": int(rng.integers(1, 4))}
            records.append((home(item), START + minute * MINUTE + int(rng.integers(0, MINUTE)), payload))
    records.insert(70, (0, START + 14 * MINUTE, marked))
    records.append((0, START + MINUTE, late))  # its quarter of an hour is over
    return records


def slot(item: int) -> int:
    """A partition has slots for its own items only, in order."""
    return (HERE if item in HERE else AWAY).index(item)


def differing(one: Seen, two: Seen) -> dict[tuple[str, int, int], list[int]]:
    assert one.keys() == two.keys()
    moved = {place: np.flatnonzero(one[place] != two[place]).tolist() for place in one}
    return {place: slots for place, slots in moved.items() if slots}


MARKED = HERE[1]
PAYLOADS: dict[str, Payload] = {
    "missing field": {"n": 1},
    "null item": {"user": None, "n": 1},
    "tombstone": None,
    "not JSON": b"\xff{{{",
    "empty": b"",
    "outside the domain": {"user": SIZE + 5, "n": 1},
    "negative id": {"user": -1, "n": 1},
    "huge id": {"user": 2**70, "n": 1},
    "text item": {"user": "five", "n": 1},
    "float item": {"user": 1.5, "n": 1},
    "boolean item": {"user": True, "n": 1},
    "list item": {"user": [1, 2], "n": 1},
    "weight too large": {"user": HERE[2], "n": 4},
    "weight huge": {"user": HERE[2], "n": 2**80},
    "weight text": {"user": HERE[2], "n": "many"},
    "weight float": {"user": HERE[2], "n": 0.5},
    "weight zero": {"user": HERE[2], "n": 0},
    "deletion": {"user": MARKED, "n": -3},
    "item of another partition": {"user": AWAY[0], "n": 1},
    "deep": b'{"user":' + b"[" * 200 + b"]" * 200 + b"}",
    "two items": b'{"user": 1, "user": 2, "n": 1}',
}


@pytest.mark.parametrize("unit", ["event", "item"])
@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
def test_one_payload_moves_one_slot_of_each_sketch_whatever_it_holds(unit: str, payload: Payload) -> None:
    valid, seen = run(unit, "json", stream({"user": MARKED, "n": 2}))
    other, also_seen = run(unit, "json", stream(payload))
    noop, _ = run(unit, "json", stream({}))
    assert seen == also_seen
    assert all(len(slots) == 1 for slots in differing(valid, noop).values())
    assert all(len(slots) == 1 for slots in differing(other, noop).values())
    quarters = {place for place in differing(valid, noop) if place[0] == "quarter"}
    assert differing(valid, noop) == {place: [slot(MARKED)] for place in (("hourly", START, 0), *quarters)}
    assert all(np.abs(valid[place] - noop[place]).max() <= 3 for place in valid)
    if unit == "event":
        assert all(np.abs(other[place] - noop[place]).max() <= 3 for place in valid)


def test_another_item_moves_two_slots_which_is_twice_the_cost() -> None:
    valid, seen = run("event", "json", stream({"user": MARKED, "n": 1}))
    other, also_seen = run("event", "json", stream({"user": HERE[2], "n": 1}))
    assert seen == also_seen
    assert set(map(tuple, differing(valid, other).values())) == {(slot(MARKED), slot(HERE[2]))}


@pytest.mark.parametrize("payload", [{"user": MARKED}, {"user": 99}, b"junk", None, {"user": MARKED, "n": "x"}])
def test_a_late_record_is_late_whatever_it_holds(payload: Payload) -> None:
    noop, seen = run("event", "json", stream({}, late={}))
    found, also_seen = run("event", "json", stream({}, late=payload))
    assert seen == also_seen
    moved = differing(noop, found)
    assert all(place[0] == "hourly" for place in moved)  # the quarter of an hour has taken nothing
    assert all(len(slots) == 1 for slots in moved.values())


def test_a_misplaced_item_counts_nowhere() -> None:
    found, seen = run("item", "json", stream({"user": AWAY[0], "n": 1}))
    noop, also_seen = run("item", "json", stream({}))
    assert seen == also_seen
    assert differing(found, noop) == {}


@pytest.mark.parametrize("unit", ["event", "item"])
def test_all_payloads_of_one_item_move_its_slot_only(unit: str) -> None:
    whole = stream({})
    for change in (
        lambda payload: {},
        lambda payload: {"user": MARKED, "n": -3},
        lambda payload: b"junk",
        lambda payload: {"user": 10**6},
    ):
        other = [(p, t, change(v) if isinstance(v, dict) and v.get("user") == MARKED else v) for p, t, v in whole]
        one, seen = run(unit, "json", whole)
        two, also_seen = run(unit, "json", other)
        assert seen == also_seen
        assert set(map(tuple, differing(one, two).values())) <= {(slot(MARKED),)}
        assert differing(one, two)


def packed(items: list[int], weights: list[int]) -> bytes:
    body = {"i": np.array(items, "<u8").tobytes(), "w": np.array(weights, "<i4").tobytes()}
    return bytes(msgpack.packb(body))


@pytest.mark.parametrize("unit", ["event", "item"])
@pytest.mark.parametrize(
    ("item", "weight"),
    [(HERE[1], 2), (HERE[1], 0), (99, 1), (2**63, 1), (HERE[1], 2**31 - 1), (HERE[1], -(2**31)), (AWAY[0], 1)],
)
def test_one_entry_of_a_packed_record_cannot_switch_off_its_neighbours(unit: str, item: int, weight: int) -> None:
    items, weights = (HERE * 40)[:300], [1] * 300

    def fed(one: int, so_much: int) -> tuple[Seen, list[Any]]:
        record = packed([*items[:150], one, *items[150:]], [*weights[:150], so_much, *weights[150:]])
        return run(unit, "packed", [(0, START + MINUTE, record), (1, START + MINUTE, packed(AWAY, [1] * len(AWAY)))])

    noop, seen = fed(HERE[0], 0)
    found, also_seen = fed(item, weight)
    assert seen == also_seen
    assert set(map(tuple, differing(noop, found).values())) <= {(slot(HERE[1]),)}
    total = sum(int(state.sum()) for place, state in found.items() if place[0] == "hourly" and place[2] == 0)
    assert total >= 250 or unit == "item"


def broken(kind: str) -> Callable[[pytest.MonkeyPatch], None]:
    """A build in which one payload reaches beyond its slot."""

    def refuse_batches(patch: pytest.MonkeyPatch) -> None:
        from sketchstream.errors import ItemError
        from sketchstream.sketch import Sketch

        update = Sketch.update

        def whole(self: Any, items: Any, weights: Any = None, **rest: Any) -> None:
            try:
                update(self, items, weights, **{**rest, "invalid": "error"})
            except ItemError:
                return

        patch.setattr(Sketch, "update", whole)

    def lazy_windows(patch: pytest.MonkeyPatch) -> None:
        from sketchstream.stream.state.record_counter import RecordCounter

        count = RecordCounter._count

        def only_with_items(self: Any, track: Any, events: Any, admission: Any, outcome: Any) -> Steps[None]:
            if events.valid.any():
                yield from count(self, track, events, admission, outcome)

        patch.setattr(RecordCounter, "_count", only_with_items)

    return {"batches": refuse_batches, "windows": lazy_windows}[kind]


def test_a_worker_that_refuses_whole_batches_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    broken("batches")(monkeypatch)
    valid, _ = run("event", "json", stream({"user": MARKED, "n": 2}))
    other, _ = run("event", "json", stream({"user": MARKED, "n": 9}))
    assert any(len(slots) > 1 for slots in differing(valid, other).values())


def test_windows_exist_by_envelopes_and_a_worker_with_lazy_windows_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = [(0, START + MINUTE, {"user": MARKED, "n": 1})]
    empty: list[tuple[int, int, Payload]] = [(0, START + MINUTE, {"user": 99, "n": 1})]
    null: list[tuple[int, int, Payload]] = [(0, START + MINUTE, b"junk")]
    assert run("event", "json", alone)[1] == run("event", "json", empty)[1] == run("event", "json", null)[1]
    broken("windows")(monkeypatch)
    assert run("event", "json", alone)[0].keys() != run("event", "json", null)[0].keys()


def test_published_bytes_have_the_size_and_place_that_envelopes_give_them() -> None:
    def published(payload: Payload) -> list[tuple[str, int]]:
        made = driver("event", "json")
        for partition, stamp, value in stream(payload):
            made.send(value, timestamp=stamp, partition=partition)
        made.run()
        made.advance(hours=3)
        return [(one.key, json.loads(json.dumps(one.window))[0]) for one in made.publisher.log]

    assert published({"user": MARKED, "n": 1}) == published({"user": 99}) == published(None) != []


def test_a_misplaced_payload_does_not_decide_what_later_windows_look_like(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker asks for the partition count when it meets one; the answer must help that payload only."""
    from sketchstream.testing.driver import MemorySource

    monkeypatch.setattr(MemorySource, "partition_count", lambda self, partition=0, *, fresh=False: 3 if fresh else 2)
    never_here = next(item for item in AWAY if home(item, 3) != 0)
    left = next(item for item in HERE if home(item, 3) != 0)

    def fed(payload: Payload) -> Seen:
        later = {"user": left, "n": 1}
        return run("event", "json", [(0, START + MINUTE, payload), (0, START + 20 * MINUTE, later)])[0]

    assert differing(fed({"user": never_here, "n": 1}), fed({})) == {}
