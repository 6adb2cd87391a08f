"""A changed configuration takes effect at one window in all partitions, however workers are started anew.

In: made-up streams, two configurations. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import numpy as np
import pytest

from helpers.streams import EPOCH, HOUR, MINUTE, Stream, plan, published, rules, spec
from sketchstream.items.key import Key
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.spec import ClosedDomain
from sketchstream.stream.interfaces import Peer, Restored, Snapshot
from sketchstream.stream.state.checkpoint import capture, restore
from sketchstream.stream.state.partition import PartitionState
from sketchstream.stream.state.rules import Rules
from sketchstream.stream.state.window_specs import CHANGE_AHEAD_MS, boundary
from sketchstream.stream.windows.calendar import NO_TIME, Calendar, Width
from sketchstream.stream.windows.plans import SketchPlan
from sketchstream_connectors.kafka.state.pointer import Pointer

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")
OLD = rules(plan(made=spec(16)), fingerprint=b"old")
NEW = rules(plan(made=spec(20)), fingerprint=b"new")


def minutes(first: int, last: int, partition: int) -> Stream:
    """One record a minute, of event times from minute `first` to before `last`, at offsets of the same numbers."""
    n = last - first
    times = EPOCH + np.arange(first, last, dtype=np.int64) * MINUTE
    return Stream(np.zeros(n, np.int64), times, times, np.ones(n, bool), np.zeros(n, bool), partition)


class Group:
    """Two partitions, of which each has the configuration of the worker that took it last."""

    def __init__(self) -> None:
        self.states = {p: PartitionState.fresh(OLD, p, 0, 2) for p in (0, 1)}
        self.snapshots: dict[int, Snapshot] = {}
        self.at = {0: 0, 1: 0}
        self.sizes: dict[int, set[int]] = {}

    def read(self, partition: int, to: int) -> None:
        state, begin = self.states[partition], self.at[partition]
        for minute in range(begin, to):
            chunk = minutes(minute, minute + 1, partition).chunk(0, 1)
            state.apply(
                type(chunk)(partition, minute, minute + 1, chunk.offsets + minute, chunk.timestamps, chunk.events)
            )
        self.at[partition] = max(begin, to)
        self.commit(partition)

    def commit(self, partition: int) -> None:
        state = self.states[partition]
        self.snapshots[partition] = capture(state)
        state.postpone(boundary(self.peers, state.rules.fingerprint, NO_TIME))
        for (_, start), found in published(state).items():
            self.sizes.setdefault(start, set()).add(found.spec.domain.size or 0)
        state.published(*state.outbox.captured())

    @property
    def peers(self) -> list[Peer]:
        return [Peer(one.spec_fingerprint, one.begins, one.newest) for one in self.snapshots.values()]


def restart(group: Group, partition: int, common: Rules) -> None:
    group.commit(partition)
    group.states[partition].store_all()
    whole = capture(group.states[partition])
    group.snapshots[partition] = whole
    group.states[partition] = restore(
        common, partition, Restored(whole.position, whole.manifest, whole.blobs), 2, group.peers
    )


def test_workers_that_are_started_anew_one_after_the_other_switch_at_one_window() -> None:
    group = Group()
    group.read(0, 20)
    group.read(1, 26)
    restart(group, 0, NEW)
    begins = EPOCH + 25 * MINUTE + CHANGE_AHEAD_MS
    assert group.states[0].lifecycle.specs.begins == begins, "no partition has reached that"
    group.read(0, 30)
    group.read(1, 31)  # the other worker still has the old configuration
    restart(group, 1, NEW)
    assert group.states[1].lifecycle.specs.begins == group.states[0].lifecycle.specs.begins
    group.read(1, 60)
    group.read(0, 60)
    assert all(len(sizes) == 1 for sizes in group.sizes.values()), group.sizes
    before = {start for start, sizes in group.sizes.items() if sizes == {16}}
    after = {start for start, sizes in group.sizes.items() if sizes == {20}}
    assert max(before) < group.states[0].lifecycle.specs.begins <= min(after)
    assert not any(state.changing for state in group.states.values())


def test_a_partition_that_goes_back_to_a_worker_with_the_old_configuration_has_it_until_the_change() -> None:
    group = Group()
    group.read(0, 20)
    group.read(1, 20)
    restart(group, 0, NEW)
    group.read(0, 22)
    restart(group, 0, OLD)
    group.read(0, 24)
    restart(group, 1, NEW)
    restart(group, 0, NEW)
    assert group.states[1].lifecycle.specs.begins == group.states[0].lifecycle.specs.begins
    group.read(0, 60)
    group.read(1, 60)
    assert all(len(sizes) == 1 for sizes in group.sizes.values()), group.sizes


def test_two_workers_that_choose_a_time_at_once_agree_on_the_later_one() -> None:
    group = Group()
    group.read(0, 20)
    group.read(1, 26)
    restart(group, 0, NEW)
    early = group.states[0]
    group.read(1, 28)
    restart(group, 1, NEW)  # it has not seen what the other one chose
    assert early.lifecycle.specs.begins < group.states[1].lifecycle.specs.begins
    group.commit(1)
    group.commit(0)
    group.commit(0)
    group.commit(1)
    begins = EPOCH + 27 * MINUTE + CHANGE_AHEAD_MS
    assert early.lifecycle.specs.begins == group.states[1].lifecycle.specs.begins == begins


def test_what_was_agreed_is_in_snapshots_and_pointers() -> None:
    group = Group()
    group.read(0, 20)
    restart(group, 0, NEW)
    begins = group.states[0].lifecycle.specs.begins
    restart(group, 0, NEW)
    assert group.states[0].lifecycle.specs.begins == begins
    assert group.states[0].lifecycle.specs.former["minutes"].domain.size == 16
    pointer = Pointer("c", "t", "s", begins=begins, newest=group.states[0].newest)
    again = Pointer.from_text(pointer.to_text())
    assert again == pointer
    assert boundary([], b"new", EPOCH) == NO_TIME, "a file's only partition changes at once"


def test_windows_of_a_list_of_items_finish_when_only_epsilon_changes() -> None:
    """Only another list halts: the items of the windows that are open are not in their snapshot."""
    items = ClosedDomain(items=[f"u{i}" for i in range(9)])
    key = Key(bytes(16))

    def listed(epsilon: str, domain: ClosedDomain, mark: bytes) -> Rules:
        made = SketchPlan(
            "minutes", ProfileSpec(epsilon, domain=domain, max_count=5), Calendar(Width.parse("1m"), "UTC")
        )
        return Rules((made,), key=key, lateness_ms=MINUTE, max_ahead_ms=HOUR, fingerprint=mark)

    state = PartitionState.fresh(listed("1", items, b"old"), 0, 0, 1)
    chunk = minutes(0, 1, 0).chunk(0, 1)
    state.apply(chunk)
    whole = capture(state)
    again = restore(listed("2", items, b"new"), 0, Restored(whole.position, whole.manifest, whole.blobs), 1, ())
    again.seal(everything=True)
    capture(again)
    (found,) = published(again).values()
    assert found.spec.epsilon == 1
