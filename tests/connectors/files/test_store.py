"""The directory store: whole after any crash, one process at a time, nothing superseded left behind."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sketchstream.errors import DataLossError, StoreError
from sketchstream.stream.interfaces import Fresh, Restored, Snapshot
from sketchstream_connectors.files.store import DirectoryStore, partitions_in


def snapshot(position: int, blobs: dict[str, bytes], keep: frozenset[str] = frozenset(), revision: int = 0) -> Snapshot:
    return Snapshot(3, position, {"at": position, "names": sorted([*blobs, *keep])}, blobs, keep, revision)


def name(i: int) -> str:
    return f"{i:032x}"


def files(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "p00003").iterdir())


def test_what_was_committed_is_taken(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "state")
    assert store.take(3) == Fresh(0)
    store.commit(3, snapshot(0, {}))
    store.commit(3, snapshot(10, {name(1): b"one", name(2): b"two"}))
    store.commit(3, snapshot(20, {name(3): b"three"}, frozenset({name(2)})))
    store.drop(3)
    taken = store.take(3)
    assert taken == Restored(20, {"at": 20, "names": [name(2), name(3)]}, {name(2): b"two", name(3): b"three"})
    assert len(files(tmp_path / "state")) == 3
    store.commit(3, snapshot(30, {}))
    assert len(files(tmp_path / "state")) == 1


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = DirectoryStore(tmp_path / "state")
        store.take(3)
        store.commit(3, snapshot(10, {name(1): b"one"}))
    finally:
        os.umask(before)
    for path in [tmp_path / "state", *(tmp_path / "state").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_store_serves_one_process(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    with pytest.raises(StoreError, match="in use by another process"):
        DirectoryStore(tmp_path)
    store.close()
    DirectoryStore(tmp_path).close()


def test_a_store_does_not_go_on_in_another_file(tmp_path: Path) -> None:
    """Not where something was counted; a release that noted no file, and a reset, leave the choice."""
    root, first, second = tmp_path / "state", tmp_path / "a.jsonl", tmp_path / "b.jsonl"

    def opened(counts: Path | None) -> None:
        store = DirectoryStore(root, counts=counts)
        store.take(3)
        store.close()

    opened(first)
    opened(second)  # nothing was counted yet
    store = DirectoryStore(root, counts=second)
    store.take(3)
    store.commit(3, snapshot(10, {}))
    store.close()
    opened(second)
    opened(None)
    with pytest.raises(
        StoreError, match=r"has counted '../b.jsonl', and would continue in '../a.jsonl' where that ended"
    ):
        opened(first)
    about = json.loads((root / "store.json").read_bytes())
    (root / "store.json").write_text(json.dumps({name: value for name, value in about.items() if name != "input"}))
    opened(first)
    with pytest.raises(StoreError, match="would continue in"):
        opened(second)
    again = DirectoryStore(root)
    again.reset()
    again.close()
    opened(second)


def test_nothing_is_inferred_to_be_a_cold_start(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    store.take(3)
    store.commit(3, snapshot(10, {name(1): b"one"}))
    next((tmp_path / "p00003").glob("*.snapshot")).unlink()
    with pytest.raises(DataLossError, match="blobs but no snapshot"):
        store.take(3)
    store.close()
    (tmp_path / "store.json").unlink()
    with pytest.raises(DataLossError, match=r"no store\.json"):
        DirectoryStore(tmp_path)


@pytest.mark.parametrize("victim", ["*.snapshot", "*.blob"])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "remove"])
def test_damage_halts_and_is_never_read(tmp_path: Path, victim: str, damage: str) -> None:
    store = DirectoryStore(tmp_path)
    store.take(3)
    store.commit(3, snapshot(10, {name(1): b"one" * 50}))
    path = next((tmp_path / "p00003").glob(victim))
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    path.write_bytes({"flip": bytes(data), "cut": bytes(data[:-1]), "empty": b"", "remove": b""}[damage])
    if damage == "remove":
        path.unlink()
    with pytest.raises(DataLossError):
        store.take(3)


def test_a_commit_needs_a_take(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    with pytest.raises(StoreError, match="not taken"):
        store.commit(3, snapshot(10, {}))
    store.take(3)
    with pytest.raises(StoreError, match="keeps a blob"):
        store.commit(3, snapshot(10, {}, frozenset({name(9)})))


def test_reset_begins_a_new_revision(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    store.take(3)
    store.commit(3, snapshot(10, {name(1): b"one"}))
    assert partitions_in(store.root) == [3]
    assert store.reset() == 1
    assert store.take(3) == Fresh(1)
    store.commit(3, snapshot(5, {}, revision=1))
    store.close()
    again = DirectoryStore(tmp_path)
    assert again.revision == 1
    assert isinstance(again.take(3), Restored)


def test_unusable_places_say_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot use"):
        DirectoryStore(tmp_path / "file")
    (tmp_path / "store.json").write_text("{}")
    with pytest.raises(StoreError, match="not one that this version"):
        DirectoryStore(tmp_path)


CRASH = """
    import os, signal, sys
    from sketchstream import faults
    from sketchstream.stream.interfaces import Snapshot
    from sketchstream_connectors.files.store import DirectoryStore

    def work(root, at, tell):
        seen = 0

        def hook(step):
            nonlocal seen
            seen += 1
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)

        store = DirectoryStore(root)
        store.take(3)
        faults.install(hook)
        store.commit(3, Snapshot(3, 0, {"at": 0}, {}, frozenset()))  # as a worker does before the first record
        tell("0")
        for i in range(1, 4):
            keep = frozenset({f"{i - 1:032x}"}) if i > 1 else frozenset()
            blobs = {f"{i:032x}": b"%d" % i * 100, f"{i + 100:032x}": b"x" * i}
            store.commit(3, Snapshot(3, 10 * i, {"at": i}, blobs, keep))
            tell(str(i))
        commits = seen
        store.reset()
        return commits, seen

    base = sys.argv[1]
    commits, steps = work(base + "/whole", -1, lambda text: None)
    faults.install(None)
    print(commits, steps, flush=True)
    for at in range(1, steps + 1):  # one process each, which kills itself at its step
        out, into = os.pipe()
        child = os.fork()
        if child == 0:
            work(f"{base}/at{at}", at, lambda text: os.write(into, text.encode()))
            os._exit(0)
        os.close(into)
        told = b"".join(iter(lambda: os.read(out, 100), b"")).decode()
        os.close(out)
        _, status = os.waitpid(child, 0)
        print(at, os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, len(told), flush=True)
"""


@pytest.fixture(scope="module")
def crashes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, list[list[int]]]:
    """A process was killed at every step of four commits and a reset; each has left a store."""
    base = tmp_path_factory.mktemp("crashes")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CRASH), str(base)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
    assert lines[0][0] > 30
    assert len(lines) == lines[0][1] + 1
    return base, lines[0][0], lines[1:]


def test_a_crash_at_any_step_leaves_the_old_or_the_new_snapshot(crashes: tuple[Path, int, list[list[int]]]) -> None:
    """What is found after a kill at any step is whole, and nothing else stays."""
    base, commits, ends = crashes
    for at, ended, committed in ends[:commits]:
        assert ended == signal.SIGKILL
        root = base / f"at{at}"
        store = DirectoryStore(root)
        found = store.take(3)
        if isinstance(found, Fresh):
            assert committed == 0
            assert not (root / "p00003").exists() or files(root) == []
        else:
            i = found.position // 10
            assert committed - 1 <= i <= committed
            assert found.manifest == {"at": i}
            expected = {name(i): b"%d" % i * 100, name(i + 100): b"x" * i} if i else {}
            if i > 1:
                expected[name(i - 1)] = b"%d" % (i - 1) * 100
            assert found.blobs == expected
            assert len(files(root)) == 1 + len(expected), "leftovers are swept"
        store.commit(3, snapshot(99, {name(500): b"on"}))
        store.close()


def test_a_crash_inside_reset_is_finished_by_the_next_take(crashes: tuple[Path, int, list[list[int]]]) -> None:
    base, commits, ends = crashes
    found_revisions = set()
    for at, ended, committed in ends[commits:]:
        assert (ended, committed) == (signal.SIGKILL, 4)
        store = DirectoryStore(base / f"at{at}")
        found = store.take(3)
        found_revisions.add(store.revision)
        if store.revision == 0:
            assert isinstance(found, Restored)
            assert found.position == 30
        else:
            assert found == Fresh(1)
        store.close()
    assert found_revisions == {0, 1}


def test_superseded_states_are_overwritten_before_their_names_go(tmp_path: Path) -> None:
    """A second name of each blob (a hard link) shows what its bytes were when the store let go of it."""
    store = DirectoryStore(tmp_path / "state")
    store.take(3)
    folder = tmp_path / "state" / "p00003"

    def held(blob: str) -> Path:
        link = tmp_path / f"held-{blob}"
        link.hardlink_to(folder / f"{blob}.blob")
        assert link.read_bytes() == b"secret" * 100
        return link

    store.commit(3, snapshot(10, {name(1): b"secret" * 100}))
    first = held(name(1))
    store.commit(3, snapshot(20, {name(2): b"secret" * 100}))
    assert not (folder / f"{name(1)}.blob").exists()
    assert first.read_bytes() == bytes(600), "the old bytes are still on the disk"
    second = held(name(2))
    store.reset()
    assert second.read_bytes() == bytes(600)
    store.close()
