"""What groups cost: memory of open windows, rate of updates, time to open and to seal a window.

In: made-up records. Out: ratios, printed. Touches: about a gigabyte of memory without --quick.

Run: python bench/groups.py [--quick] [--only memory rate life]
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from sketchstream.image import DEFERRED_PART
from sketchstream.items.arrays import Items
from sketchstream.items.columns import RecordColumn
from sketchstream.items.key import Key
from sketchstream.kernels import compile_first
from sketchstream.kernels.tokens import STRING
from sketchstream.kinds.groups.group_list import GroupLimit, Groups
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.spec import OpenDomain
from sketchstream.stream.interfaces import Chunk, Restored, Snapshot
from sketchstream.stream.state.checkpoint import capture, restore
from sketchstream.stream.state.partition import PartitionState
from sketchstream.stream.state.rules import Rules
from sketchstream.stream.windows.calendar import Calendar, Width
from sketchstream.stream.windows.plans import SketchPlan
from sketchstream_connectors.files.store import DirectoryStore
from sketchstream_connectors.kafka.state import blobs

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from helpers.memory import resident_bytes

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000 // HOUR_MS * HOUR_MS
KEY = Key(bytes(range(16)))
GROUPS, SLOTS, WINDOWS = 1000, 1 << 14, 3
STEPS = {
    "updated": "updated",
    "sealed": "all of them sealed at once",
    "folder": "records counted while a snapshot of all of them goes to a folder",
    "kafka": "records counted while a snapshot of all of them is encrypted for Kafka",
    "restored": "all of them restored from a folder",
}


class Batch:
    """n text items, one a record, each with a campaign."""

    def __init__(self, n: int, windows: int, seed: int, groups: int) -> None:
        rng = np.random.default_rng(seed)
        self.record = None
        self.items = Items.packed(*_texts(b"user-%011d", rng.integers(0, 10**6, n)), "str")
        self.weights = None
        self.weight = None
        self.valid = np.ones(n, np.bool_)
        self.times = START_MS + rng.integers(0, windows * HOUR_MS, n)
        self.null = np.zeros(n, np.bool_)
        buffer, edges = _texts(b"campaign-%07d", rng.integers(0, groups, n))
        kinds = np.full(n, STRING, np.uint8)
        self.columns: Mapping[str, RecordColumn] = {"campaign": RecordColumn(kinds, buffer, edges[:-1], edges[1:])}


def _texts(form: bytes, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Texts of 16 bytes, and where they begin and end."""
    buffer = np.frombuffer(b"".join(form % int(one) for one in numbers), np.uint8)
    return buffer, np.arange(len(numbers) + 1, dtype=np.int64) * 16


def rules(slots: int, groups: int, lateness_ms: int, limit: GroupLimit | None = None) -> Rules:
    """One hourly sketch, with or without groups; with a limit it protects items in ten of them."""
    names = [f"campaign-{number:07}" for number in range(groups)]
    listed = None if not groups else Groups(names) if limit is None else Groups(names, max_groups=10, limit=limit)
    spec = ProfileSpec("1", "event" if limit is None else "item", OpenDomain(slots, 8), groups=listed)
    fields = {"group": "campaign"} if groups else {}
    plan = SketchPlan("hourly", spec, Calendar(Width.parse("1h")), 1, fields)
    return Rules((plan,), KEY, lateness_ms=lateness_ms)


def chunk(batch: Batch, begin: int) -> Chunk:
    """The same records once more, at later offsets."""
    n = len(batch.items)
    return Chunk(0, begin, begin + n, np.arange(begin, begin + n), None, batch)  # type: ignore[arg-type]


def memory(groups: int, slots: int, windows: int) -> None:
    """Memory of all open windows beside the states' own size, each step in a process of its own."""
    print(f"memory: {groups} groups x {slots} slots x {windows} open windows, most beyond an idle partition")
    spawn = multiprocessing.get_context("spawn")
    for step in STEPS:
        process = spawn.Process(target=_memory, args=(step, groups, slots, windows))
        process.start()
        process.join()
        if process.exitcode:
            raise RuntimeError(step)


def _memory(step: str, groups: int, slots: int, windows: int) -> None:
    """One step, after an idle partition has done all of it."""
    batch = Batch(20_000, windows, 1, groups)
    idle = PartitionState.fresh(rules(64, 2, windows * HOUR_MS), 0, 0, 1)
    idle.apply(chunk(batch, 0))
    with tempfile.TemporaryDirectory() as folder:
        _commit(capture(idle), Path(folder) if step == "folder" else None)
    idle.seal(everything=True)
    before = resident_bytes()
    if step == "restored":
        _restored(before, groups, slots, windows)
        return
    state = PartitionState.fresh(rules(slots, groups, windows * HOUR_MS), 0, 0, 1)
    state.apply(chunk(batch, 0))
    states = state.state_bytes
    n, deferred, took = 1, 0, 0.0
    if step == "sealed":
        state.seal(everything=True)
    elif step == "updated":
        for n in range(1, 50):
            state.apply(chunk(batch, n * len(batch.items)))
    else:
        with tempfile.TemporaryDirectory() as folder:
            snapshot = capture(state)
            began = time.perf_counter()
            place = Path(folder) if step == "folder" else None
            writing = threading.Thread(target=_commit, args=(snapshot, place))
            writing.start()
            while writing.is_alive():
                if state.deferred_bytes < states // DEFERRED_PART:  # beyond it a worker pauses the partition
                    state.apply(chunk(batch, n * len(batch.items)))
                    n += 1
                else:
                    time.sleep(0.001)
                deferred = max(deferred, state.deferred_bytes)
            writing.join()
            took = time.perf_counter() - began
    peak = (resident_bytes(peak=True) - before) / states
    more = f" ({deferred / states:.2f}x of it for events that wait), written in {took:.1f} s" if took else ""
    print(f"memory: states {states / 2**20:.0f} MiB, {STEPS[step]}: {peak:.2f}x{more}", flush=True)


def _restored(before: int, groups: int, slots: int, windows: int) -> None:
    """Read the snapshot that another process wrote."""
    with tempfile.TemporaryDirectory() as folder:
        process = multiprocessing.get_context("spawn").Process(target=_write, args=(folder, groups, slots, windows))
        process.start()
        process.join()
        store = DirectoryStore(Path(folder) / "store")
        found = store.take(0)
        assert isinstance(found, Restored)
        state = restore(rules(slots, groups, windows * HOUR_MS), 0, found, 1)
        states = state.state_bytes
        peak = (resident_bytes(peak=True) - before) / states
        print(f"memory: states {states / 2**20:.0f} MiB, {STEPS['restored']}: {peak:.2f}x", flush=True)
        store.close()


def _write(folder: str, groups: int, slots: int, windows: int) -> None:
    """A snapshot of all open windows in a folder."""
    state = PartitionState.fresh(rules(slots, groups, windows * HOUR_MS), 0, 0, 1)
    state.apply(chunk(Batch(20_000, windows, 1, groups), 0))
    _commit(capture(state), Path(folder))


def _commit(snapshot: Snapshot, folder: Path | None) -> None:
    """Write a snapshot as a worker's store does."""
    if folder is not None:
        store = DirectoryStore(folder / "store")
        store.take(0)
        store.commit(0, snapshot)
        store.close()
    else:
        for name in snapshot.blobs:
            for _ in blobs.encrypt(name.encode(), *snapshot.pieces(name), blobs.new_key()):
                pass
    snapshot.release()


def rate(groups: int, slots: int, rounds: int, n: int) -> None:
    """Records a second of processor time through a partition's state, with groups and without, in turn."""
    batch = Batch(n, 1, 2, groups)
    states = {
        "one": PartitionState.fresh(rules(slots, 0, HOUR_MS), 0, 0, 1),
        "groups": PartitionState.fresh(rules(slots, groups, HOUR_MS), 0, 0, 1),
        "wide": PartitionState.fresh(rules(slots * groups, 0, HOUR_MS), 0, 0, 1),
        "promised": PartitionState.fresh(rules(slots, groups, HOUR_MS, "promised"), 0, 0, 1),
        "ranked": PartitionState.fresh(rules(slots, groups, HOUR_MS, "ranked"), 0, 0, 1),
    }
    took: dict[str, list[float]] = {name: [] for name in states}
    for number in range(rounds):
        for name, state in states.items():
            began = time.process_time()
            state.apply(chunk(batch, number * n))
            if number:
                took[name].append(time.process_time() - began)
    alone, grouped, large, promised, ranked = (n / statistics.median(found) for found in took.values())
    print(
        f"rate: {grouped / 1e6:.1f} M records/s in {groups} groups of {slots} slots, {alone / 1e6:.1f} in one sketch "
        f"of as many: {grouped / alone:.2f}x; {large / 1e6:.1f} in one sketch of all slots: {grouped / large:.2f}x"
    )
    print(
        f"rate: {ranked / 1e6:.1f} M records/s of items that a ranking limits to 10 groups, {promised / 1e6:.1f} where "
        f"the source promises it: {ranked / promised:.2f}x"
    )


def life(groups: int, slots: int) -> None:
    """How long it takes to open a window, to seal it, and how large what is published is."""
    batch = Batch(1000, 1, 3, groups)
    state = PartitionState.fresh(rules(slots, groups, HOUR_MS), 0, 0, 1)
    began = time.perf_counter()
    state.apply(chunk(batch, 0))
    opened = time.perf_counter() - began
    began = time.perf_counter()
    state.seal(everything=True)
    sealed = time.perf_counter() - began
    print(
        f"life: a window of {groups} groups x {slots} slots opens in {opened:.2f} s, is sealed in {sealed:.2f} s, and "
        f"publishes {state.outbox.n_bytes / 2**20:.1f} MiB"
    )


def main() -> None:
    """Everything, or what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the groups")
    parser.add_argument("--only", nargs="+", choices=("memory", "rate", "life"), default=("memory", "rate", "life"))
    asked = parser.parse_args()
    compile_first()
    groups = GROUPS // 10 if asked.quick else GROUPS
    only: Collection[str] = asked.only
    if "memory" in only:  # first: peaks of memory are those of the process
        memory(groups, SLOTS, WINDOWS)
    if "rate" in only:
        rate(groups, SLOTS, 5 if asked.quick else 40, 50_000)
    if "life" in only:
        life(groups, SLOTS)


if __name__ == "__main__":
    main()
