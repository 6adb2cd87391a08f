"""What snapshots cost: copied by the thread that counts, packed by another, whole, and no more than a rate allows."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from helpers.streams import EPOCH, MINUTE, rules, stream
from helpers.workers import STATE, config, driver, send
from sketchstream import wire
from sketchstream.config import resources
from sketchstream.config.loader import Config
from sketchstream.errors import BrokerError
from sketchstream.items.key import Key
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.sketch import Sketch
from sketchstream.spec import ClosedDomain, OpenDomain
from sketchstream.stream.interfaces import Snapshot
from sketchstream.stream.state.buffers import KEPT_BYTES, Buffers
from sketchstream.stream.state.checkpoint import capture
from sketchstream.stream.state.partition import PartitionState
from sketchstream.stream.state.window_sketch import WindowSketch
from sketchstream.stream.windows.units import spell_snapshots
from sketchstream.stream.worker.io_tasks import IoTasks
from sketchstream.stream.worker.policy import snapshot_every_s
from sketchstream.stream.worker.settings import Settings
from sketchstream.stream.worker.worker import Worker
from sketchstream.testing.memory import ManualClock, MemorySource, MemoryStore
from sketchstream.wire import envelope

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")


def test_a_copy_is_packed_as_the_sketch_was_when_it_was_copied() -> None:
    sketch = WindowSketch.create(ProfileSpec(epsilon="1", domain=ClosedDomain(size=100)))
    sketch.update([1, 2, 3])
    first = sketch.copy_open()
    assert first.size == len(first.buffer)
    expected = sketch.to_bytes()
    sketch.update([4] * 10)
    header, state = wire.unpack(first.finish())
    same_header, same_state = wire.unpack(expected)
    assert state is not None
    assert np.array_equal(state, same_state)
    assert not np.array_equal(wire.unpack(sketch.to_bytes())[1], same_state)
    assert {k: v for k, v in header.items() if k != "ledger"} == {k: v for k, v in same_header.items() if k != "ledger"}


@pytest.mark.parametrize("keyed", [False, True])
def test_an_object_that_is_finished_later_has_the_same_bytes(keyed: bool) -> None:
    key = Key(bytes(16)) if keyed else None
    domain = OpenDomain(slots=64, levels=2) if keyed else ClosedDomain(size=100)
    sketch = WindowSketch.create(ProfileSpec(epsilon="1", domain=domain), key)
    for room in (bytearray, lambda size: bytearray(b"x" * (2 * size))):
        sketch.to_bytes()  # two copies in a row say all that there is to say: the ledger stays as it is
        sketch.to_bytes()
        assert sketch.copy_open(room=room).finish() == sketch.to_bytes()
    assert Sketch.from_bytes(bytes(sketch.copy_open().finish()), key).spec == sketch.spec


def test_nothing_is_packed_by_the_thread_that_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[int] = []
    checksum = envelope._checksum
    monkeypatch.setattr(envelope, "_checksum", lambda pieces: packed.append(threading.get_ident()) or checksum(pieces))
    state = PartitionState.fresh(rules(), 0, 0, 1)
    s = stream(3, 50, jitter_ms=1, step_ms=10)
    state.apply(s.chunk(0, 50))
    snapshot = capture(state)
    assert packed == []
    assert snapshot.blob_bytes > 0
    other = threading.Thread(target=lambda: [len(data) for data in snapshot.blobs.values()])
    other.start()
    other.join()
    assert len(packed) == len(snapshot.blobs) > 0
    assert threading.get_ident() not in packed


def test_what_is_counted_during_a_commit_is_not_in_it() -> None:
    state = PartitionState.fresh(rules(), 0, 0, 1)
    s = stream(3, 50, jitter_ms=1, step_ms=10)
    state.apply(s.chunk(0, 20))
    (window,) = state.sketch_states["minutes"].windows.values()
    before = window.sketch._open_state("test").copy()
    snapshot = capture(state)
    state.apply(s.chunk(20, 50))
    assert not np.array_equal(before, window.sketch._open_state("test"))
    (blob,) = snapshot.blobs.values()
    assert np.array_equal(wire.unpack(blob)[1], before)


def test_copies_are_overwritten_before_their_memory_is_used_again() -> None:
    buffers = Buffers()
    state = PartitionState.fresh(rules(), 0, 0, 1)
    s = stream(3, 50, jitter_ms=1, step_ms=10)
    state.apply(s.chunk(0, 50))
    snapshot = capture(state, buffers)
    views = [data for data in snapshot.blobs.values() if isinstance(data, memoryview)]
    assert views
    assert all(any(view) for view in views)
    snapshot.release()
    assert not any(any(view) for view in views), "whoever seizes the process would see two states, and their difference"
    spare = buffers.take(len(views[0]))
    assert spare in [view.obj for view in views]
    assert not snapshot.blobs


def test_spare_memory_is_bounded_and_fits() -> None:
    buffers = Buffers()
    for _ in range(100):
        buffers.give(bytearray(1 << 20))
    assert sum(map(len, buffers._spare)) <= KEPT_BYTES
    buffers.give(bytearray(KEPT_BYTES + 1))
    assert [len(one) for one in buffers._spare] == [KEPT_BYTES + 1]
    assert len(buffers.take(1 << 10)) == 1 << 10, "a small copy does not take the large buffer"
    assert len(buffers.take(KEPT_BYTES)) == KEPT_BYTES + 1


def test_memory_is_given_back_when_a_commit_fails() -> None:
    given: list[int] = []
    snapshot = Snapshot(0, 1, {}, {}, frozenset(), release=lambda: given.append(1))

    class Broken(MemoryStore):
        def commit(self, partition: int, snapshot: Snapshot) -> None:
            raise BrokerError

    d = driver(STATE, partitions=1)
    jobs = IoTasks(d._rules, Broken(d.snapshots), d.publisher, None, ManualClock(EPOCH))
    with pytest.raises(BrokerError):
        jobs.commit(0, snapshot, ((), ()))
    assert given == [1]


class Counting(MemoryStore):
    """Notes when which partition was committed, and how much."""

    def __init__(self, saved: object, clock: ManualClock) -> None:
        super().__init__(saved)  # type: ignore[arg-type]
        self.clock = clock
        self.written: list[tuple[float, int, int]] = []

    def commit(self, partition: int, snapshot: Snapshot) -> None:
        self.written.append((self.clock.monotonic(), partition, snapshot.blob_bytes))
        MemoryStore.commit(self, partition, snapshot)


def run(rate: float, seconds: int) -> list[tuple[float, int, int]]:
    """Four partitions with a record each every tenth of a second; commits of the steady state."""
    d = driver(STATE.replace('name = "hours"\nwindow = "1h"', 'name = "hours"\nwindow = "1d"'), partitions=4)
    clock = ManualClock(EPOCH)
    store = Counting(d.snapshots, clock)
    worker = Worker(
        d._rules,
        MemorySource(d.log, d._decoder),
        store,
        d.publisher,
        settings=Settings(snapshot_every_s=1.0, snapshot_bytes_per_s=rate, idle_ms=None, threads=0),
        clock=clock,
    )
    for tick in range(10 * seconds):
        for partition in range(4):
            send(d, partition, EPOCH + tick, partition)
        worker.step(0.0)
        clock.advance(0.1)
    worker.close()
    return [one for one in store.written if one[2] and one[0] > store.written[0][0] + 1.5]


def test_small_states_are_saved_as_often_as_asked() -> None:
    found = run(1e9, 20)
    assert len(found) == pytest.approx(4 * 18, abs=4)


def test_snapshots_write_no_more_than_the_rate_and_no_partition_starves() -> None:
    size = run(1e9, 5)[0][2]
    found = run(size / 2.0, 40)  # one snapshot every two seconds, where four a second would be due
    span = found[-1][0] - found[0][0]
    assert sum(one[2] for one in found[1:]) <= size / 2.0 * span * 1.06
    assert len(found) >= 15
    order = [partition for _, partition, _ in found]
    assert all(sorted(order[i : i + 4]) == [0, 1, 2, 3] for i in range(0, len(order) - 3, 4)), "in turn"


def test_what_is_sealed_does_not_wait_for_the_rate() -> None:
    d = driver(STATE, partitions=1)
    clock = ManualClock(EPOCH)
    store = Counting(d.snapshots, clock)
    worker = Worker(
        d._rules,
        MemorySource(d.log, d._decoder),
        store,
        d.publisher,
        settings=Settings(
            snapshot_every_s=1e6, snapshot_bytes_per_s=1e-3, publish_every_s=0.1, idle_ms=None, threads=0
        ),
        clock=clock,
    )
    for minute in range(6):
        send(d, 1, EPOCH + minute * MINUTE, 0)
        worker.step(0.0)
        clock.advance(1.0)
        worker.step(0.0)
    assert len(d.publisher.log) >= 3
    worker.close()


def test_the_configuration_says_what_snapshots_cost() -> None:
    big = config(
        STATE.replace("{ size = 40 }", "{ slots = 67108864 }").replace("[store]", '[key]\nfile = "k"\n[store]')
    )
    assert resources.snapshot_cost(big, 4) == spell_snapshots(2 * (256 << 20), 4, 1000, 16 << 20)
    assert "snapshot_rate makes it 128 s" in resources.snapshot_cost(big, 4)
    fast = Config.parse(STATE.replace("[store]", '[store]\nsnapshot_rate = "1GiB"'))
    assert "snapshot_rate" not in resources.snapshot_cost(fast, 4)
    with pytest.raises(Exception, match="snapshot_rate must be at least 64KiB"):
        Config.parse(STATE.replace("[store]", '[store]\nsnapshot_rate = "1KiB"'))


def test_large_snapshots_come_so_rarely_that_neither_link_nor_disk_is_full_of_them() -> None:
    settings, minutes = Settings(), 360.0
    small = snapshot_every_s(settings, 1 << 20, 0.1, minutes)
    assert small == settings.snapshot_every_s
    for n_bytes in (1 << 20, 3 << 20, 8 << 20, 1 << 30):
        every_s = snapshot_every_s(settings, n_bytes, 0.1, minutes)
        held = n_bytes * (1 + minutes / every_s)
        assert held <= max(4 * n_bytes, 16 << 20) * (1 + 1e-9) or every_s == settings.snapshot_every_s
    assert snapshot_every_s(settings, 1 << 30, 200.0, minutes) == 600.0, "at most a third of the time"
    assert snapshot_every_s(settings, 1 << 30, 1.0, 0.0) == settings.snapshot_every_s, "a folder keeps nothing"


def test_a_partition_waits_for_its_own_interval() -> None:
    d = driver(STATE, partitions=1)
    d.worker._store.superseded_s = 1e9
    send(d, 1, EPOCH, 0)
    d.run()
    d.clock.advance(60)
    d.worker.step(0.0)
    written = d.worker.metrics.counters["snapshots"]
    send(d, 2, EPOCH + 1, 0)
    for _ in range(5):
        d.clock.advance(60)
        d.worker.step(0.0)
    assert d.worker.metrics.counters["snapshots"] == written
    assert d.worker._durable_within_s() > 300 + d.worker._partitions[0].snapshot_every_s - 1
    d.worker.finish()
    assert d.worker.metrics.counters["snapshots"] > written, "a stop does not wait"
