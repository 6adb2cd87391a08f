"""Partitions added to an input: what windows that are open, and windows that open later, take from either count.

In: made-up streams of partitions whose number grows. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from helpers.streams import EPOCH, EXACT, HOUR, MINUTE, Stream, asking, exact, plan, published, rules, spec
from sketchstream.errors import BrokerError
from sketchstream.items.arrays import Items
from sketchstream.items.key import Key
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.published import Release, SealedState
from sketchstream.sketch import Sketch
from sketchstream.spec import ClosedDomain
from sketchstream.stream.input.partitioner import belongs, items_kept
from sketchstream.stream.interfaces import Frontier, Restored
from sketchstream.stream.state.checkpoint import capture, capturing, restore
from sketchstream.stream.state.partition import PartitionState
from sketchstream.stream.state.window_sketch import WindowSketch
from sketchstream_connectors.files.publisher import decode_frontier, encode_frontier
from sketchstream_connectors.kafka.publishing.sealed import frontier_record, read_frontier

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")

SIZE = 64
IDS = np.arange(SIZE, dtype=np.int64)


def here(count: int, partition: int = 1) -> np.ndarray:
    return IDS[belongs(Items.of(IDS), "murmur2", [count], partition)]


def records(items: np.ndarray, at: int = EPOCH, partition: int = 1) -> Stream:
    n = items.size
    return Stream(items, np.full(n, at), np.full(n, at), np.ones(n, bool), np.zeros(n, bool), partition)


def joined(*streams: Stream) -> Stream:
    return Stream(
        *(
            np.concatenate([getattr(s, name) for s in streams])
            for name in ("items", "times", "stamps", "valid", "null")
        ),
        partition=streams[0].partition,
    )


def begun(count: int, partition: int = 1, position: int = 0) -> PartitionState:
    return PartitionState.fresh(rules(plan(made=spec(SIZE)), partitioner="murmur2"), partition, position, count)


def sealed(state: PartitionState, count_now: Callable[[], int] | None = None) -> dict[int, Release | SealedState]:
    asking(state.sealing(everything=True), count_now)
    asking(capturing(state), count_now)
    return {start: found for (_, start), found in published(state).items()}


@pytest.mark.parametrize("heard", ["before", "because of an item", "after a restart"])
def test_items_that_a_new_partition_count_brings_here_are_counted_in_a_closed_domain(heard: str) -> None:
    """From 4 to 6 partitions, items come to partition 1 that it had no slots for."""
    old, new = here(4), here(6)
    moved = np.setdiff1d(new, old)
    assert moved.size >= 3
    state = begun(4)
    s = joined(records(old), records(new))
    asking(state.applying(s.chunk(0, old.size)), lambda: 4)
    if heard == "before":
        state.set_partitions(6)
    elif heard == "after a restart":
        snapshot = asking(capturing(state), lambda: 4)
        state = restore(state.rules, 1, Restored(old.size, snapshot.manifest, snapshot.blobs), 6)
    outcome = asking(state.applying(s.chunk(old.size, len(s))), lambda: 6)
    assert (outcome.updates, outcome.misplaced) == (new.size, 0)
    snapshot = asking(capturing(state), lambda: 6)
    state = restore(state.rules, 1, Restored(len(s), snapshot.manifest, snapshot.blobs), 6)
    (found,) = sealed(state, lambda: 6).values()
    assert exact(found, 1) == np.union1d(old, new).size
    assert exact(found, 2) == np.intersect1d(old, new).size
    assert found.slots == np.union1d(old, new).size
    assert found.repartitioned


def test_records_that_wait_from_before_partitions_were_added_are_counted_in_windows_that_open_later() -> None:
    """A worker that is behind, or was stopped, finds records that were placed by the former count."""
    old, new = here(4), here(6)
    gone = np.setdiff1d(old, new)
    assert gone.size
    state = begun(4)
    s = joined(records(old[:1], EPOCH - HOUR), records(old), records(old, EPOCH + HOUR), records(old, EPOCH + 2 * HOUR))
    asking(state.applying(s.chunk(0, 1)), lambda: 4)
    snapshot = asking(capturing(state), lambda: 4)
    state = restore(state.rules, 1, Restored(1, snapshot.manifest, snapshot.blobs), 6)
    ends = [1, 1 + old.size, 1 + 2 * old.size, len(s)]
    assert asking(state.applying(s.chunk(*ends[:2])), lambda: 6).misplaced == 0
    assert state.counts.unsettled
    state.settle_counts(ends[2])
    assert not state.counts.unsettled
    assert asking(state.applying(s.chunk(*ends[1:3])), lambda: 6).misplaced == 0
    assert asking(state.applying(s.chunk(*ends[2:])), lambda: 6).misplaced == gone.size, (
        "placed by the new count from here on"
    )
    found = sealed(state, lambda: 6)
    counted = {start: (exact(one, 1), one.repartitioned) for start, one in found.items()}
    assert counted[EPOCH] == counted[EPOCH + HOUR] == (old.size, True)
    assert counted[EPOCH + 2 * HOUR] == (old.size - gone.size, False)


def test_what_is_remembered_of_partition_counts_does_not_depend_on_items() -> None:
    """Partitions are added twice; only a worker that meets a misplaced item hears of the first time."""
    old = here(4)
    moved = np.setdiff1d(here(6), old)
    traces = []
    for items in (moved, old[: moved.size]):
        state = begun(4)
        s = joined(records(old), records(items))
        asking(state.applying(s.chunk(0, old.size)), lambda: 4)
        asking(state.applying(s.chunk(old.size, len(s))), lambda: 4, lambda: 6)
        snapshot = asking(capturing(state), lambda: 8)
        sizes = sorted(len(blob) for blob in snapshot.blobs.values())
        (found,) = sealed(state, lambda: 8).values()
        traces.append((sizes, snapshot.manifest["partitions"], found.slots, found.origin))
    assert traces[0] == traces[1]
    assert traces[0][2] == np.union1d(old, here(8)).size


def test_a_seal_asks_again_though_a_misplaced_item_has_asked() -> None:
    asked: list[str] = []

    def count(what: str, n: int) -> int:
        asked.append(what)
        return n

    old, away = here(4), np.setdiff1d(IDS, here(4))
    state = begun(4)
    s = joined(records(old), records(away[:1]), records(old, EPOCH + HOUR))
    asking(state.applying(s.chunk(0, len(s))), lambda: count("windows", 8), lambda: count("items", 4))
    assert asked == ["items", "windows"]
    asking(capturing(state), lambda: 8)
    assert published(state)["minutes", EPOCH].origin.partitions[-1] == 8


def test_brokers_that_disagree_make_the_partition_wait_with_its_seal() -> None:
    old = here(4)
    moved = np.setdiff1d(here(6), old)
    state = begun(4)
    s = joined(records(old), records(moved))
    asking(state.applying(s.chunk(0, old.size)), lambda: 4)
    asking(state.applying(s.chunk(old.size, len(s))), lambda: 4, lambda: 6)
    with pytest.raises(BrokerError, match="disagree"):
        sealed(state, lambda: 4)


def test_a_new_partition_takes_nothing_into_windows_that_others_sealed_before_it_was_added() -> None:
    items = here(6, 5)
    through = EPOCH + 10 * MINUTE
    before = Frontier("minutes", 0, 0, through, 4, 3)
    after = Frontier("minutes", 0, 1, through + HOUR, 6, 9, grown_from=4, grown_through=through - MINUTE)
    always = Frontier("minutes", 0, 2, through + HOUR, 6, 9)
    assert [one.sealed_without(5) for one in (before, after)] == [through, through - MINUTE]
    assert always.sealed_without(5) < 0
    assert after.sealed_without(3) < 0, "it was there before partitions were added"
    common = begun(6, 5).rules
    state = PartitionState.fresh(common, 5, 0, 6, sealed_elsewhere={"minutes": through, "gone": 5})
    s = joined(records(items, through - MINUTE, 5), records(items, through, 5))
    outcome = state.apply(s.chunk(0, len(s)))
    assert outcome.late == {"minutes": items.size}
    snapshot = capture(state)
    state = restore(common, 5, Restored(len(s), snapshot.manifest, snapshot.blobs), 6)
    assert list(sealed(state)) == [through]
    (frontier,) = state.outbox.captured()[1]
    assert frontier.published_through >= through


def test_frontiers_say_how_far_a_partition_was_when_partitions_were_added() -> None:
    old = here(4)
    state = begun(4)
    s = joined(records(old), records(old, EPOCH + HOUR))
    asking(state.applying(s.chunk(0, len(s))), lambda: 4)
    reached = state.sketch_states["minutes"].progress.through
    state.set_partitions(6)
    snapshot = asking(capturing(state), lambda: 6)
    state = restore(state.rules, 1, Restored(len(s), snapshot.manifest, snapshot.blobs), 6)
    (frontier,) = state.outbox.captured()[1]
    assert (frontier.partitions, frontier.grown_from, frontier.grown_through) == (6, 4, reached)
    assert decode_frontier(encode_frontier(frontier)) == frontier
    _, value, _ = frontier_record(frontier)
    assert read_frontier((frontier.sketch, 0, 1), value) == frontier
    assert b"grown" not in frontier_record(Frontier("minutes", 0, 0, 1, 4, 3))[1]


@pytest.mark.parametrize("unit", ["event", "item"])
def test_new_slots_get_noise_of_their_own_and_the_others_keep_their_counters(unit: str) -> None:
    size = 4000
    more = {"modulus": 16} if unit == "item" else {}
    made = ProfileSpec("1", unit=unit, domain=ClosedDomain(size=size), publish="state", intrusion=False, **more)  # type: ignore[arg-type]
    first, then = np.arange(size) % 4 == 1, np.arange(size) % 6 == 1
    sketch = WindowSketch.create(made, keep=first)
    sketch.update(np.flatnonzero(first))
    before = sketch._open_state("test").copy()
    sketch.change_slots(first | then)
    after = sketch._open_state("test").copy()
    both = np.flatnonzero(first | then)
    old, new = first[both], ~first[both]
    assert (after[old] == before).all()
    assert sketch.slots == both.size
    added = after[new]
    assert (added != 0).mean() > 0.4, "54% at epsilon 1; 5 standard deviations"
    assert not np.array_equal(added, before[: added.size])
    sketch.update(both)
    moved = sketch.seal().state.astype(np.int64) - after  # type: ignore[union-attr]
    assert (moved % made.modulus == 1).all() if made.modulus else (moved == 1).all()


def test_slots_can_be_taken_from_items_of_lists_and_samples_too() -> None:
    key = Key(bytes(16))
    items = [*range(40), *(f"t{i}" for i in range(40)), *(b"b%d" % i for i in range(40))]
    for domain in (ClosedDomain(items=items), ClosedDomain(size=400, sample_rate="1/2")):
        made = ProfileSpec(EXACT, domain=domain, publish="state", intrusion=False)
        size = domain.size or 0
        first, then = np.arange(size) % 3 == 0, np.arange(size) % 2 == 0
        sketch = WindowSketch.create(made, key, keep=first)
        batches = [items[0:40], items[40:80], items[80:]] if domain.listed else [list(range(size))]
        for batch in batches:
            sketch.update(batch, invalid="noop")
        sketch.change_slots(then)
        for batch in batches:
            sketch.update(batch, invalid="noop")
        twice = Sketch.create(made, key, keep=first & then).slots
        state = sketch.seal().state  # type: ignore[union-attr]
        assert sorted(np.unique(state)) == [1, 2]
        assert (state == 2).sum() == twice


def test_slots_of_a_partition_are_those_of_all_counts() -> None:
    domain = ClosedDomain(size=SIZE)
    union = items_kept(domain, "murmur2", [4, 6], 1)
    assert np.array_equal(np.flatnonzero(union), np.union1d(here(4), here(6)))
