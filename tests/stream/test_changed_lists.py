"""Sketches with a list of items that are removed, renamed, or get another list, while their windows are open.

In: made-up streams, two configurations. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from helpers.streams import EPOCH, EXACT, HOUR, MINUTE, Stream, exact, plan, published, rules
from sketchstream.errors import DataLossError
from sketchstream.items.key import Key
from sketchstream.kinds.gaussian.spec import GaussianSpec
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.kinds.projection.spec import ProjectionSpec
from sketchstream.spec import ClosedDomain, NoPrivacyWarning
from sketchstream.stream.interfaces import Restored, Snapshot
from sketchstream.stream.state import checkpoint
from sketchstream.stream.state.checkpoint import capture, restore
from sketchstream.stream.state.domain_lists import DomainLists, SavedLists
from sketchstream.stream.state.partition import PartitionState
from sketchstream.stream.state.rules import Rules
from sketchstream.stream.windows.plans import SketchPlan

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")
KEY = Key(bytes(16))
TIMES = EPOCH + np.array([0, 10, 20, 30, 90, 100], np.int64) * MINUTE
EVENTS = Stream(np.array([1, 2, 3, 9, 1, 9]), TIMES, TIMES, np.ones(6, bool), np.zeros(6, bool))
"""Items 1, 2, 3 and 9 in the first hour, 1 and 9 in the second."""


def listed(items: list[int], name: str = "hours") -> SketchPlan:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoPrivacyWarning)
        return plan(name, "1h", made=ProfileSpec(EXACT, domain=ClosedDomain(items=items), max_count=40))


def configured(*plans: SketchPlan, name: bytes) -> Rules:
    return rules(*plans, key=KEY, lateness_ms=0, fingerprint=name)


OLD = configured(listed([1, 2, 3]), name=b"old")


def restarted(snapshots: list[Snapshot], common: Rules) -> PartitionState:
    """The state that a worker with another configuration makes of the last snapshot."""
    last, blobs = snapshots[-1], {}
    for snapshot in snapshots:
        blobs |= dict(snapshot.blobs)
    return restore(common, 0, Restored(last.position, last.manifest, blobs), 1)


def test_a_removed_sketch_counts_the_items_of_its_list_until_its_windows_close() -> None:
    state = PartitionState.fresh(OLD, 0, 0, 1)
    state.apply(EVENTS.chunk(0, 2))
    first = capture(state)
    state = restarted([first], configured(plan("minutes", "1h"), name=b"without"))
    state.apply(EVENTS.chunk(2, 3))
    second = capture(state)
    assert not second.blobs.keys() & first.blobs.keys()
    state = restarted([first, second], configured(plan("minutes", "1h"), name=b"without"))  # once more, from the second
    state.apply(EVENTS.chunk(3, 6))
    capture(state)
    sealed = published(state)
    assert exact(sealed["hours", EPOCH], 1) == 3
    assert ("hours", EPOCH + HOUR) not in sealed


def test_a_renamed_sketch_finishes_under_its_old_name_and_begins_under_the_new_one() -> None:
    state = PartitionState.fresh(OLD, 0, 0, 1)
    state.apply(EVENTS.chunk(0, 2))
    renamed = configured(listed([1, 2, 3], "by_hour"), name=b"renamed")
    state = restarted([capture(state)], renamed)
    state.apply(EVENTS.chunk(2, 6))
    capture(state)
    sealed = published(state)
    assert exact(sealed["hours", EPOCH], 1) == 3
    assert ("hours", EPOCH + HOUR) not in sealed
    assert "by_hour" in {frontier.sketch for frontier in state.outbox.captured()[1]}


def test_a_sketch_with_another_list_keeps_the_former_list_for_the_windows_that_are_open() -> None:
    state = PartitionState.fresh(OLD, 0, 0, 1)
    state.apply(EVENTS.chunk(0, 2))
    state = restarted([capture(state)], configured(listed([1, 9]), name=b"changed"))
    state.apply(EVENTS.chunk(2, 6))
    late = EPOCH + np.array([200, 400], np.int64) * MINUTE
    more = Stream(np.array([9, 9]), late, late, np.ones(2, bool), np.zeros(2, bool))
    chunk = more.chunk(0, 2)
    state.apply(replace(chunk, from_position=6, next_position=8, offsets=chunk.offsets + 6))
    capture(state)
    sealed = published(state)
    assert exact(sealed["hours", EPOCH], 1) == 3, "the open window has the former list"
    assert exact(sealed["hours", EPOCH + 3 * HOUR], 1) == 1, "later windows have the new one"


def test_a_list_is_written_once_and_kept() -> None:
    state = PartitionState.fresh(OLD, 0, 0, 1)
    state.apply(EVENTS.chunk(0, 1))
    first = capture(state)
    (blob,) = first.manifest["lists"].values()
    assert blob in first.blobs
    state.apply(EVENTS.chunk(1, 2))
    second = capture(state)
    assert second.manifest["lists"] == first.manifest["lists"]
    assert blob in second.keep
    assert blob not in second.blobs
    state.store_all()
    third = capture(state)
    assert set(third.manifest["lists"].values()) <= third.blobs.keys(), "earlier snapshots are gone"


def test_a_list_leaves_the_snapshots_with_the_last_window_that_needs_it() -> None:
    state = PartitionState.fresh(OLD, 0, 0, 1)
    state.apply(EVENTS.chunk(0, 2))
    state = restarted([capture(state)], configured(plan("minutes", "1h"), name=b"without"))
    state.apply(EVENTS.chunk(2, 6))
    capture(state)
    state.published(*state.outbox.captured())
    assert capture(state).manifest["lists"] == {}


def test_a_snapshot_of_an_older_release_without_the_list_says_what_to_do() -> None:
    state = PartitionState.fresh(OLD, 0, 0, 1)
    state.apply(EVENTS.chunk(0, 2))
    snapshot = capture(state)
    assert isinstance(snapshot.manifest, dict)
    del snapshot.manifest["lists"]
    with pytest.raises(DataLossError, match="put the former sketch and items_file back"):
        restarted([snapshot], configured(plan("minutes", "1h"), name=b"without"))


@pytest.mark.parametrize(
    "made",
    [
        GaussianSpec(epsilon="1", delta="1e-6", domain=ClosedDomain(items=["a", "b"])),
        ProjectionSpec(
            users=ClosedDomain(items=["a", "b"]), features=ClosedDomain(items=[1, 2]), k=4, epsilon="1", delta="1e-6"
        ),
    ],
    ids=["gaussian", "projection"],
)
def test_specs_of_all_kinds_with_lists_are_whole_again_without_their_configuration(
    made: GaussianSpec | ProjectionSpec,
) -> None:
    names, blobs = DomainLists(KEY).capture([made, made])
    assert len(blobs) == 1
    found = checkpoint._spec(made.to_dict(), None, SavedLists(KEY, names, blobs))
    assert found is not None
    assert found.fingerprint == made.fingerprint
    assert found.domain.items == made.domain.items


def test_stored_lists_name_no_item_and_open_with_their_key_only() -> None:
    made = GaussianSpec(epsilon="1", delta="1e-6", domain=ClosedDomain(items=["zebra", "tapir"]))
    names, blobs = DomainLists(KEY).capture([made])
    assert not any(b"zebra" in data for data in blobs.values())
    assert list(SavedLists(KEY, names, blobs)) == [["zebra", "tapir"]]
    altered = {name: data[:-1] + bytes([data[-1] ^ 1]) for name, data in blobs.items()}
    for key, held in ((Key(bytes([1]) * 16), blobs), (KEY, altered)):
        with pytest.raises(DataLossError, match="does not open with the present hash key"):
            list(SavedLists(key, names, held))
