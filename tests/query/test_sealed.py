"""What readers see: completeness, revisions, incidents, frontiers, and results that may be read by anyone."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.streams import EPOCH, HOUR, MINUTE, Stream, exact, plan, rules, spec
from sketchstream.errors import ConfigError, DataLossError, FormatError, MergeError, StoreError
from sketchstream.published import SealedState, Stack
from sketchstream.quality import Quality, Verdict
from sketchstream.query.sealed import SealedReader
from sketchstream.serve.page.wording import status_in_words
from sketchstream.stream.interfaces import Frontier, SealedEntry
from sketchstream.stream.published.evidence import EvidenceNoise, PublishedEvidence
from sketchstream.stream.state.checkpoint import capture, restore
from sketchstream.stream.state.partition import PartitionState
from sketchstream.stream.state.rules import Rules
from sketchstream.stream.windows.calendar import is_within
from sketchstream.stream.windows.window_ranges import Mark
from sketchstream.wire import envelope
from sketchstream_connectors.files.publisher import (
    AllPublishers,
    DirectoryPublisher,
    decode_frontier,
    encode_frontier,
    read_frontiers,
)
from sketchstream_connectors.files.sealed import DirectorySealed

pytestmark = pytest.mark.filterwarnings("ignore:epsilon above 10")


def sealed(
    partition: int, items: list[int], *, at: int = EPOCH, common: Rules | None = None, of: int = 2, revision: int = 0
) -> tuple[tuple[SealedEntry, ...], tuple[Frontier, ...]]:
    """One window of one partition, and its frontier."""
    state = PartitionState.fresh(common or rules(lateness_ms=0), partition, 0, of, revision=revision)
    n = len(items) + 1
    times = np.array([at] * len(items) + [at + MINUTE], np.int64)
    s = Stream(np.array([*items, 0]), times, times, np.ones(n, bool), np.zeros(n, bool), partition)
    state.apply(s.chunk(0, n))
    capture(state)
    return state.outbox.captured()


def reader(root: Path) -> SealedReader:
    return SealedReader(DirectorySealed(root))


def test_partitions_of_a_window_are_stacked(tmp_path: Path) -> None:
    publisher = DirectoryPublisher(tmp_path)
    for partition, items in ((0, [1, 1, 2]), (1, [3, 4])):
        publisher.publish(partition, *sealed(partition, items))
    (window,) = reader(tmp_path).windows("minutes")
    assert window.complete
    assert window.describe() == "all 2 partitions"
    quality = window.fields().pop("quality")
    assert quality["verdict"] == "good"
    assert {name: value for name, value in window.fields().items() if name != "quality"} == {
        "sketch": "minutes",
        "window_start": "2023-11-14T22:00:00Z",
        "window_end": "2023-11-14T22:01:00Z",
        "complete": True,
        "partitions": {"published": 2, "of": 2, "missing": []},
        "revision": 0,
    }
    result = window.result()
    assert isinstance(result, Stack)
    assert result.slots == 32
    assert sum(exact(part, 1) for part in window.parts) == 4
    assert DirectorySealed(tmp_path).sketches() == ["minutes"]


def test_each_part_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder's entries are named by their headers; their counters are decoded by the reader alone."""
    publisher = DirectoryPublisher(tmp_path)
    for partition in range(2):
        publisher.publish(partition, *sealed(partition, [1, 2]))
    decoded = []
    original = envelope._array

    def decode(*stored: Any, **how: Any) -> Any:
        decoded.append(stored)
        return original(*stored, **how)

    monkeypatch.setattr(envelope, "_array", decode)
    entries = [one for one in DirectorySealed(tmp_path).read("minutes") if isinstance(one, SealedEntry)]
    assert [one.partition for one in entries] == [0, 1]
    assert decoded == []
    (window,) = reader(tmp_path).windows("minutes")
    assert len(window.parts) == len(decoded) == 2


def test_absent_is_not_silent(tmp_path: Path) -> None:
    """No sketch of partition 1: unknown until its frontier has passed the window, then known to be empty."""
    publisher = DirectoryPublisher(tmp_path)
    entries, frontiers = sealed(0, [1])
    publisher.publish(0, entries, frontiers)
    (window,) = reader(tmp_path).windows("minutes")
    assert (window.partitions_done, window.partitions, window.missing, window.complete) == (1, 2, (1,), False)
    said = PublishedEvidence(EvidenceNoise(Fraction(30), unkeyed=True))
    behind = Frontier("minutes", 0, 1, EPOCH, 2, 1, evidence=said)
    publisher.publish(1, (), [behind])
    assert not next(reader(tmp_path).windows("minutes")).complete
    publisher.publish(1, (), [replace(behind, published_through=EPOCH + MINUTE, sequence=2)])
    assert next(reader(tmp_path).windows("minutes")).complete
    publisher.publish(1, (), [replace(behind, sequence=1)])
    assert next(reader(tmp_path).windows("minutes")).complete, "an old frontier only says less"


def test_windows_count_the_most_partitions_that_anything_speaks_of(tmp_path: Path) -> None:
    publisher = DirectoryPublisher(tmp_path)
    publisher.publish(0, *sealed(0, [1]))
    publisher.publish(1, *sealed(1, [2]))
    publisher.publish(0, (), [Frontier("minutes", 0, 0, EPOCH + HOUR, 5, 9)])
    (window,) = reader(tmp_path).windows("minutes")
    assert (window.partitions_done, window.partitions, window.missing) == (2, 5, (2, 3, 4))
    assert window.describe() == "2 of 5 partitions (missing: 2, 3, 4)"


def test_a_first_window_may_be_partial(tmp_path: Path) -> None:
    publisher = DirectoryPublisher(tmp_path)
    entries, (frontier,) = sealed(0, [1], of=1)
    publisher.publish(0, entries, [replace(frontier, partial=Mark(through=EPOCH + MINUTE))])
    (window,) = reader(tmp_path).windows("minutes")
    assert window.partial
    assert not window.complete
    assert window.fields()["partial"] is True


def test_ranges_choose_windows(tmp_path: Path) -> None:
    publisher = DirectoryPublisher(tmp_path)
    for hour in range(3):
        publisher.publish(0, *sealed(0, [1], at=EPOCH + hour * HOUR, of=1))
    found = reader(tmp_path)
    assert [window.window[0] for window in found.windows("minutes")] == [EPOCH, EPOCH + HOUR, EPOCH + 2 * HOUR]
    assert [w.window[0] for w in found.windows("minutes", EPOCH + 1)] == [EPOCH + HOUR, EPOCH + 2 * HOUR]
    assert [w.window[0] for w in found.windows("minutes", EPOCH, EPOCH + MINUTE)] == [EPOCH]
    assert list(found.windows("minutes", EPOCH, EPOCH + MINUTE - 1)) == []
    assert list(found.windows("other")) == []
    assert list(found.windows("../minutes")) == []


def test_the_newest_revision_is_shown(tmp_path: Path) -> None:
    publisher = DirectoryPublisher(tmp_path)
    publisher.publish(0, *sealed(0, [1], of=1))
    publisher.publish(0, *sealed(0, [1, 2], of=1, revision=1))
    (window,) = reader(tmp_path).windows("minutes")
    assert (window.revision, exact(window.parts[0], 1)) == (1, 2)
    (old,) = reader(tmp_path).windows("minutes", revision=0)
    assert (old.revision, exact(old.parts[0], 1)) == (0, 1)


@pytest.mark.parametrize("whole", [True, False])
def test_a_part_of_a_window_does_not_replace_all_of_it(tmp_path: Path, whole: bool) -> None:
    """After `reset --to committed` a late record opens a window again that the old revision has published."""
    publisher = DirectoryPublisher(tmp_path)
    publisher.publish(0, *sealed(0, [1, 2, 3]))
    if whole:
        publisher.publish(1, *sealed(1, [4]))
    entries, (frontier,) = sealed(0, [1], revision=1)
    publisher.publish(0, entries, [replace(frontier, partial=Mark(through=EPOCH + MINUTE))])
    publisher.publish(1, (), [replace(frontier, partition=1, partial=Mark(through=EPOCH + MINUTE))])
    (window,) = reader(tmp_path).windows("minutes")
    assert (window.revision, window.partial, window.whole) == ((0, False, True) if whole else (1, True, False))
    (part,) = reader(tmp_path).windows("minutes", revision=1)
    assert (part.revision, exact(part.parts[0], 1)) == (1, 1)
    entries, (frontier,) = sealed(0, [5], revision=2, of=1)
    publisher.publish(0, entries, [frontier])
    (window,) = reader(tmp_path).windows("minutes")
    assert (window.revision, window.partial) == (2, False), "a revision that counted from the start replaces both"


def test_publishing_again_gives_the_same_bytes_and_other_bytes_are_an_incident(tmp_path: Path) -> None:
    publisher = DirectoryPublisher(tmp_path)
    first = sealed(0, [1], of=1)
    publisher.publish(0, *first)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    publisher.publish(0, *first)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    with pytest.raises(DataLossError, match="two noisy views"):
        publisher.publish(0, *sealed(0, [1], of=1))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


class Listed:
    """A source that gives what it is told."""

    def __init__(self, entries: list[SealedEntry], frontiers: list[Frontier]) -> None:
        self._entries, self._frontiers = entries, frontiers

    def frontiers(self, sketch: str | None = None) -> list[Frontier]:
        return [one for one in self._frontiers if sketch in (None, one.sketch)]

    def read(self, sketch: str | None = None, since: int | None = None, until: int | None = None) -> list[object]:
        chosen = [one for one in self._entries if sketch in (None, one.sketch)]
        return [*self.frontiers(sketch), *(one for one in chosen if is_within(one.window, since, until))]

    def sketches(self) -> list[str]:
        return sorted({entry.sketch for entry in self._entries})

    def close(self) -> None:
        """Nothing."""


def test_readers_refuse_incidents() -> None:
    """Two bodies under one key, two seals of one noise, one seal id in two places."""
    (one,), frontiers = sealed(0, [1])
    (other,), _ = sealed(0, [1])

    def windows(*entries: SealedEntry) -> int:
        return len(list(SealedReader(Listed(list(entries), list(frontiers))).windows("minutes")))  # type: ignore[arg-type]

    assert windows(one, one, one) == 1
    with pytest.raises(DataLossError, match="incident"):
        windows(one, other)
    common = rules(plan(made=spec(publish="state", intrusion=False)), lateness_ms=0)
    state = PartitionState.fresh(common, 0, 0, 2)
    times = np.array([EPOCH], np.int64)
    s = Stream(np.zeros(1, np.int64), times, times, np.ones(1, bool), np.zeros(1, bool))
    state.apply(s.chunk(0, 1))
    copy = capture(state)
    from sketchstream.stream.interfaces import Restored

    published = []
    for revision_of_partition in (0, 0):
        again = restore(common, revision_of_partition, Restored(1, copy.manifest, copy.blobs), 2)
        again.seal(everything=True)
        capture(again)
        published += again.outbox.captured()[0]
    first, second = published
    assert first.seal_id != second.seal_id
    with pytest.raises(DataLossError, match="incident"):
        windows(first, second)
    from sketchstream.sketch import Sketch

    twin = Sketch.from_bytes(next(iter(copy.blobs.values())), spec=common.sketches[0].spec)
    twin.origin = replace(twin.origin, window=(EPOCH + HOUR, EPOCH + HOUR + MINUTE), partitions=(1, 2))
    other_window = twin.seal()
    entry = SealedEntry(
        "minutes", 0, (EPOCH + HOUR, EPOCH + HOUR + MINUTE), 0, other_window.seal_id, other_window.to_bytes()
    )
    assert windows(entry) == 1
    with pytest.raises(DataLossError, match="share their noise"):
        windows(first, entry)
    (elsewhere,), _ = sealed(1, [1])
    assert windows(one, elsewhere) == 1
    with pytest.raises(FormatError, match="says that it is something else"):
        windows(replace(one, partition=1))


def test_partitions_that_share_items_are_merged() -> None:
    common = rules(plan(made=spec(publish="state", intrusion=False)), lateness_ms=0)
    (a,), f0 = sealed(0, [1, 1], common=common)
    (b,), f1 = sealed(1, [1, 2], common=common)
    (window,) = SealedReader(Listed([a, b], [*f0, *f1])).windows("minutes")  # type: ignore[arg-type]
    merged = window.result(partitioned=False)
    assert isinstance(merged, SealedState)
    assert (exact(merged, 3), exact(merged, 1)) == (1, 2)
    assert isinstance(window.result(), Stack)
    (h,), f2 = sealed(0, [1])
    (histogram,) = SealedReader(Listed([h], list(f2))).windows("minutes")  # type: ignore[arg-type]
    with pytest.raises(MergeError, match="publish = 'state'"):
        histogram.result(partitioned=False)


def test_repartitioned_windows_say_so_and_states_are_merged() -> None:
    common = rules(plan(made=spec(publish="state", intrusion=False)), lateness_ms=0)
    state = PartitionState.fresh(common, 0, 0, 1)
    times = np.array([EPOCH], np.int64)
    s = Stream(np.zeros(1, np.int64), times, times, np.ones(1, bool), np.zeros(1, bool))
    state.apply(s.chunk(0, 1))
    state.set_partitions(2)
    state.seal(everything=True)
    capture(state)
    (a,), f0 = state.outbox.captured()
    (b,), f1 = sealed(1, [0], common=common)
    (window,) = SealedReader(Listed([a, b], [*f0, *f1])).windows("minutes")  # type: ignore[arg-type]
    assert window.repartitioned
    assert window.fields()["repartitioned"] is True
    assert window.describe().startswith("not complete: all 2 partitions, but ")
    assert "no intervals" in window.describe()
    merged = window.result()
    assert isinstance(merged, SealedState)
    assert exact(merged, 2) == 1


@pytest.mark.parametrize(
    ("verdict", "partial", "of", "said"),
    [
        ("good", False, 1, "complete"),
        ("good", False, 2, "all 2 partitions"),
        ("warning", False, 1, "complete, but 90% counted"),
        ("warning", False, 2, "all 2 partitions, but 90% counted"),
        ("incomplete", False, 1, "not complete: 90% counted"),
        ("incomplete", False, 2, "not complete: all 2 partitions, but 90% counted"),
        ("unknown", False, 1, "not known to be complete: 90% counted"),
        ("unknown", False, 2, "not known to be complete: all 2 partitions, but 90% counted"),
        ("good", True, 1, "not complete: counting began inside it or records were lost"),
        ("unknown", True, 1, "not complete: counting began inside it or records were lost; 90% counted"),
    ],
)
def test_the_words_on_a_window_begin_with_whether_it_is_complete(
    tmp_path: Path, verdict: Verdict, partial: bool, of: int, said: str
) -> None:
    DirectoryPublisher(tmp_path).publish(0, *sealed(0, [1], of=1))
    (window,) = reader(tmp_path).windows("minutes")
    window = replace(window, partial=partial, partitions=of)
    window.__dict__["quality"] = Quality(verdict, "90% counted")
    assert window.describe() == said
    told = status_in_words({**window.fields(), "status": said})
    assert told.count("90% counted") == 1


def test_results_may_be_read_by_anyone(tmp_path: Path) -> None:
    DirectoryPublisher(tmp_path).publish(0, *sealed(0, [1], of=1))
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert stat.S_IMODE(path.stat().st_mode) & 0o444 == 0o444, path
    frontier = json.loads((tmp_path / "minutes" / "r0" / "frontier.p00000.json").read_bytes())
    assert sorted(frontier) == [
        "evidence",
        "partial_through",
        "partition",
        "partitions",
        "published_through",
        "revision",
        "sequence",
        "sketch",
    ], "no offsets, no watermark, no counts"


def test_frontiers_round_trip_and_others_are_refused(tmp_path: Path) -> None:
    frontier = Frontier("a.b", 3, 17, EPOCH, 20, 5)
    assert decode_frontier(encode_frontier(frontier)) == frontier
    fields = json.loads(encode_frontier(frontier))
    for broken in (
        b"",
        b"[]",
        b"{}",
        json.dumps({**fields, "sequence": "5"}).encode(),
        json.dumps({**fields, "sketch": 5}).encode(),
        json.dumps({**fields, "offset": 5}).encode(),
        json.dumps({**fields, "partition": True}).encode(),
    ):
        with pytest.raises(FormatError):
            decode_frontier(broken)
    folder = tmp_path / "a" / "r0"
    folder.mkdir(parents=True)
    (folder / "frontier.p00000.json").write_bytes(b"{}")
    with pytest.raises(FormatError):
        read_frontiers(tmp_path)


def test_files_that_are_something_else_are_refused(tmp_path: Path) -> None:
    publisher = DirectoryPublisher(tmp_path)
    publisher.publish(0, *sealed(0, [1], of=1))
    path = next(tmp_path.rglob("*.sealed"))
    good = path.read_bytes()
    moved = path.with_name("p00003.sealed")
    moved.write_bytes(good)
    with pytest.raises(FormatError, match="another sketch than its name says"):
        list(reader(tmp_path).windows("minutes"))
    moved.unlink()
    path.write_bytes(good[:-1])
    with pytest.raises(FormatError):
        list(reader(tmp_path).windows("minutes"))
    path.write_bytes(good)
    assert list(reader(tmp_path).windows("minutes"))
    blocked = tmp_path / "file"
    publisher = DirectoryPublisher(blocked)
    blocked.write_text("")
    with pytest.raises(StoreError, match="cannot make the folder"):
        publisher.publish(0, *sealed(0, [1], of=1))
    with pytest.raises(ConfigError, match=r"output\.directory must be a folder, or where one can be made"):
        DirectoryPublisher(blocked)


def test_publishing_to_two_places_reaches_both(tmp_path: Path) -> None:
    both = AllPublishers([DirectoryPublisher(tmp_path / "a"), DirectoryPublisher(tmp_path / "b")])
    both.publish(0, *sealed(0, [1], of=1))
    names = [sorted(p.relative_to(tmp_path / x).as_posix() for p in (tmp_path / x).rglob("*")) for x in "ab"]
    assert names[0] == names[1]
    assert list(both.frontiers()) == [("minutes", 0, 0)]
    both.close()
