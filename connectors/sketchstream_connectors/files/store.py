"""The local directory store: snapshots of files, standard input, the demo and tests.

In: snapshots. Out: the newest complete one. Touches: one folder, which it locks. Files are not encrypted (the keys
would have to lie next to them) and have mode 0600: reading this folder once is one look at the state, see
docs/guarantee.md.

    store.json                      format, id, revision, name of the input
    lock                            held while a process uses the store
    p00000/<sequence>.<random>.snapshot   checkpoint, position, names and digests of the blobs it needs
    p00000/<name>.blob              one open sketch, or one sealed sketch on its way out

A snapshot is durable once its file has its final name: all its blobs were synced before. Only then are superseded files
removed. The file with the highest sequence is valid. Leftovers of a crash are removed when a partition is taken.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgpack

from sketchstream import faults, files, wire
from sketchstream.errors import DataLossError, StoreError
from sketchstream.stream.interfaces import BytesOrView, Fresh, Peer, Restored, Snapshot
from sketchstream.stream.state import checkpoint

FORMAT = 1
_SNAPSHOT = re.compile(r"(\d{12})\.[0-9a-f]{16}\.snapshot")
_BLOB = re.compile(r"([0-9a-f]{32})\.blob")
_PARTITION = re.compile(r"p\d{5}")
_DIGEST = 16
"""Bytes of the digest in front of what is stored; 128 bits do not agree by accident."""


class DirectoryStore:
    """A `StateStore` with snapshots in one folder, for one process at a time.

    Args:
        root: folder; made if it does not exist, with mode 0700.
        mend: write a `store.json` that is gone or damaged again, with the newest revision that a snapshot names.
        counts: the file whose positions are kept; None: nothing that has a name.

    Raises:
        StoreError: it is in use by another process, cannot be written, is not a store, or that of another file.
    """

    def __init__(self, root: str | Path, *, mend: bool = False, counts: Path | None = None) -> None:
        self.root = Path(root)
        self._input = None if counts is None else os.path.relpath(counts, self.root)
        self.rewrite_after_s: float | None = None
        self.superseded_s = 0.0
        self.broker_time: tuple[int, float] | None = None
        self._sequence: dict[int, int] = {}
        self._blobs: dict[int, dict[str, bytes]] = {}
        self._guard = threading.Lock()
        with files.os_errors_as(f"cannot use {self.root} as a store"):
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock: int | None = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            self._lock = None
            raise StoreError(
                f"the store {self.root} is in use by another process; a store serves one process at a time"
            ) from None
        self.mended = False
        try:
            if mend:
                revision, readable = read_about(self.root)
                if not readable:
                    self._write_about(revision)
                    self.mended = True
            self.revision = self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> int:
        """Read `store.json`, or write it for a new store."""
        about = self.root / "store.json"
        try:
            data = json.loads(about.read_bytes())
        except FileNotFoundError:
            if any(_PARTITION.fullmatch(path.name) for path in self.root.iterdir()):
                raise DataLossError(
                    f"{self.root} holds snapshots but no store.json; put it back, or choose another store.path"
                ) from None
            self._write_about(0)
            return 0
        except (OSError, ValueError) as error:
            raise StoreError(f"{about} cannot be read") from error
        revision = data.get("revision") if isinstance(data, dict) else None
        if not isinstance(revision, int) or data.get("format") != FORMAT:
            raise StoreError(f"{about} is not one that this version of sketchstream wrote")
        if self._input not in (None, data.get("input")):
            self._require_new(data.get("input"))
            self._write_about(revision)
        return revision

    def _require_new(self, before: str | None) -> None:
        """Refuse to continue in one file where another one ended.

        Args:
            before: the file that was counted, from this folder; None: a release that did not note it.
        """
        headers = (newest_snapshot(self.root, partition) for partition in partitions_in(self.root))
        if before is not None and any(header is not None and header["position"] for header in headers):
            raise StoreError(
                f"the store {self.root} has counted {before!r:.200}, and would continue in {self._input!r:.200} where "
                "that ended: give this configuration a store.path and an output.directory of its own; `sketchstream "
                "reset` lets go of the former file, and one that was only moved can be named in "
                f"{self.root / 'store.json'}"
            )

    def _write_about(self, revision: int) -> None:
        data = {"format": FORMAT, "id": secrets.token_hex(16), "revision": revision, "input": self._input}
        files.write_durably(
            self.root / "store.json", json.dumps(data, sort_keys=True).encode(), replace=True, step="about"
        )

    def _folder(self, partition: int) -> Path:
        return self.root / f"p{partition:05d}"

    # ------------------------------------------------------------------------------------------ StateStore

    def take(self, partition: int) -> Restored | Fresh:
        """Take the newest complete snapshot, and remove temporaries of a crash. See `StateStore.take`."""
        folder = self._folder(partition)
        with files.reading(f"the store {folder}"):
            header = newest_snapshot(self.root, partition)
            if header is None:
                return self._nothing(partition)
            if header["revision"] < self.revision:  # `reset` was interrupted: its new revision is already written
                self._sweep(folder, set(), everything=True)
                return self._nothing(partition)
            blobs = read_blobs(self.root, partition, header)
            name = header["name"]
            self._sequence[partition], self._blobs[partition] = int(name[:12]), header["blobs"]
            self._sweep(folder, {name, *(f"{blob}.blob" for blob in blobs)})
        return Restored(header["position"], header["manifest"], blobs)

    def _nothing(self, partition: int) -> Fresh:
        """The state of a partition that was never committed under this revision."""
        if self._folder(partition).is_dir():
            self._sweep(self._folder(partition), set())
        self._sequence[partition], self._blobs[partition] = 0, {}
        return Fresh(self.revision)

    def commit(self, partition: int, snapshot: Snapshot) -> None:
        """Write blobs, then the snapshot that names them, then remove superseded files. See `StateStore.commit`."""
        if partition not in self._sequence:
            raise StoreError(f"partition {partition} was not taken from this store")
        before = self._blobs[partition]
        if not before.keys() >= set(snapshot.keep):
            raise StoreError(f"partition {partition}: the snapshot keeps a blob that the store does not have")
        folder = self._folder(partition)
        with files.os_errors_as(f"cannot write the store {folder}"):
            files.make_folder(folder, 0o700)
            digests = {}
            for name in snapshot.blobs:
                digest = hashlib.blake2b(digest_size=_DIGEST)
                pieces = _digest_pieces(snapshot.pieces(name)[1], digest)
                files.write_durably(folder / f"{name}.blob", pieces, step="blob")
                digests[name] = digest.digest()
            digests.update({name: before[name] for name in snapshot.keep})
            sequence = self._sequence[partition] + 1
            body = msgpack.packb(
                {
                    "format": FORMAT,
                    "partition": partition,
                    "position": snapshot.position,
                    "revision": snapshot.revision,
                    "fingerprint": snapshot.spec_fingerprint,
                    "manifest": snapshot.manifest,
                    "blobs": digests,
                }
            )
            name = f"{sequence:012d}.{secrets.token_hex(8)}.snapshot"
            checked = hashlib.blake2b(body, digest_size=_DIGEST).digest() + body
            files.write_durably(folder / name, checked, step="snapshot")
            self._sequence[partition], self._blobs[partition] = sequence, digests
            self._sweep(folder, {name, *(f"{blob}.blob" for blob in digests)})
            files.sync_folder(folder)

    def _sweep(self, folder: Path, names: set[str], *, everything: bool = False) -> None:
        """Remove our files that are not wanted; older snapshots go before the blobs they name.

        With `everything` after them: a snapshot of an earlier revision is what says, after a crash, that its blobs may
        go.

        A superseded state and its successor show what came between them, so the bytes of blobs, and of what a killed
        writer left, are overwritten first. Snapshots hold no counters: they go whole, so that a crash leaves none that
        looks damaged.
        """
        ours = [
            file
            for file in folder.iterdir()
            if file.name not in names
            and (_SNAPSHOT.fullmatch(file.name) or _BLOB.fullmatch(file.name) or files.written_for(file) is not None)
        ]
        for file in sorted(ours, key=lambda path: (path.suffix != ".snapshot") != everything):
            faults.checkpoint("sweep")
            if _SNAPSHOT.fullmatch(file.name):
                file.unlink(missing_ok=True)
            else:
                files.erase(file)

    def peers(self) -> Sequence[Peer]:
        """Return no peers: a file is one partition, and its own snapshot is complete."""
        return ()

    def drop(self, partition: int) -> None:
        """Forget the partition; its snapshot stays."""
        self._sequence.pop(partition, None)
        self._blobs.pop(partition, None)

    def close(self) -> None:
        """Release the lock."""
        with self._guard:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    # ------------------------------------------------------------------------------------------------ reset

    def reset(self) -> int:
        """Begin a new revision: all snapshots are erased, positions go back to the beginning. Returns the revision."""
        self._write_about(self.revision + 1)
        self.revision += 1
        faults.checkpoint("reset")
        for partition in partitions_in(self.root):
            self._sweep(self._folder(partition), set(), everything=True)
            shutil.rmtree(self._folder(partition))
        self._sequence.clear()
        return self.revision


def partitions_in(root: Path) -> list[int]:
    """Partitions that have a folder in a store."""
    return sorted(int(path.name[1:]) for path in root.iterdir() if _PARTITION.fullmatch(path.name))


def read_about(root: Path) -> tuple[int, bool]:
    """The revision of a store, and whether it is from `store.json`; else the newest one of a complete snapshot."""
    try:
        fields = json.loads((root / "store.json").read_bytes())
        if isinstance(fields, dict) and fields.get("format") == FORMAT and isinstance(fields.get("revision"), int):
            return int(fields["revision"]), True
    except (FileNotFoundError, ValueError):
        pass
    revisions = [0]
    for partition in partitions_in(root):
        try:
            header = newest_snapshot(root, partition)
        except DataLossError:
            continue
        if header is not None:
            revisions.append(int(header["revision"]))
    return max(revisions), False


def newest_snapshot(root: Path, partition: int) -> dict[str, Any] | None:
    """The newest snapshot of a partition, and its file's `name`; None if nothing was ever committed.

    Raises:
        DataLossError: it is damaged; or there are blobs and no snapshot, although the first commit of a worker, which
            is made before the first record, has none.
    """
    folder = root / f"p{partition:05d}"
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    snapshots = [name for name in names if _SNAPSHOT.fullmatch(name)]
    if snapshots:
        return _read_snapshot(folder / snapshots[-1], partition) | {"name": snapshots[-1]}
    if any(_BLOB.fullmatch(name) for name in names):
        raise DataLossError(
            f"partition {partition}: {folder} holds blobs but no snapshot, so something was removed; put it back, or "
            "start a new revision with `sketchstream reset`"
        )
    return None


def open_windows(root: Path) -> dict[str, list[tuple[int, int]]]:
    """Windows that are open in the newest snapshots of a store, by sketch; empty without a store.

    Raises:
        DataLossError: a snapshot is damaged.
    """
    headers = [newest_snapshot(root, partition) for partition in partitions_in(root)] if root.is_dir() else []
    return checkpoint.open_windows(header["manifest"] for header in headers if header is not None)


def _digest_pieces(pieces: Iterator[BytesOrView], digest: hashlib.blake2b) -> Iterator[BytesOrView]:
    """Yield the pieces, and update the digest with them."""
    for piece in pieces:
        digest.update(piece)
        yield piece


def read_blobs(root: Path, partition: int, header: Mapping[str, Any]) -> dict[str, BytesOrView]:
    """The blobs that a snapshot names. Raises DataLossError where one is missing or damaged."""
    folder = root / f"p{partition:05d}"
    return {name: _read_blob(folder, name, digest, partition) for name, digest in header["blobs"].items()}


def _read_snapshot(path: Path, partition: int) -> dict[str, Any]:
    """The contents of a snapshot file, or DataLossError."""
    data = path.read_bytes()
    digest, body = data[:_DIGEST], data[_DIGEST:]
    damaged = f"partition {partition}: the snapshot {path.name} in {path.parent} is damaged"
    if hashlib.blake2b(body, digest_size=_DIGEST).digest() != digest:
        raise DataLossError(f"{damaged}; start a new revision with `sketchstream reset`")
    header: dict[str, Any] = msgpack.unpackb(body, strict_map_key=False)
    if header.get("format") != FORMAT or header.get("partition") != partition:
        raise DataLossError(f"{damaged}, or of another version or partition")
    return header


def _read_blob(folder: Path, name: str, digest: bytes, partition: int) -> BytesOrView:
    """One blob, or DataLossError."""
    data: BytesOrView = b""
    with contextlib.suppress(FileNotFoundError), (folder / f"{name}.blob").open("rb") as file:
        first = file.read(wire.PREFIX_BYTES)
        room = wire.aligned_memory(os.fstat(file.fileno()).st_size, first)
        room[: len(first)] = first
        at = len(first)
        while at < len(room) and (n := file.readinto(room[at:])):
            at += n
        data = room[:at]
    if hashlib.blake2b(data, digest_size=_DIGEST).digest() != digest:
        raise DataLossError(
            f"partition {partition}: a blob of its snapshot in {folder} is missing or damaged; "
            "start a new revision with `sketchstream reset`"
        )
    return data
