"""Recovers halted partitions of the directory store.

In: the folder of a store, the end of its input. Out: findings. Touches: the store (not with dry_run), under its lock.

A snapshot is repaired only if nothing has to be guessed. A damaged snapshot is lost, because an older one would publish
windows a second time.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from sketchstream.errors import DataLossError
from sketchstream.files import reading
from sketchstream.stream.interfaces import Snapshot
from sketchstream.stream.recover import Diagnosis
from sketchstream.stream.state.checkpoint import mark_diverged
from sketchstream_connectors.files import store as stores


def recover_directory(
    root: Path, end: int | None, *, accept_loss: bool = False, dry_run: bool = False
) -> list[Diagnosis]:
    """Look at every partition of a directory store, and mend those that can be mended.

    Args:
        root: folder of the store.
        end: position behind the last record of the input; None if unknown (standard input, no file).
        accept_loss: whether to continue at the end of an input shorter than its counted part, with open windows marked.
        dry_run: only look; a worker may be running.

    Raises:
        StoreError: a process uses the store, or it cannot be read.
    """
    if not root.is_dir():
        return [Diagnosis(0, "unstarted", f"there is no store at {root}: a worker makes it")]
    with reading(f"the store {root}"):
        if dry_run:
            return _look(root, end)
        with contextlib.closing(stores.DirectoryStore(root, mend=True)) as store:
            findings = _look(root, end, mended=store.mended)
            for finding in findings:
                if finding.outcome == "accept" and accept_loss:
                    _move(store, finding)
    return findings


def _look(root: Path, end: int | None, *, mended: bool = False) -> list[Diagnosis]:
    revision, readable = stores.read_about(root)
    partitions = stores.partitions_in(root) or [0]
    findings = [_judge(root, p, end, revision) for p in partitions]
    if readable and not mended:
        return findings
    text = "store.json was gone or damaged: written again from the snapshot"
    return [
        replace(finding, outcome="adopt", text=f"{text}; {finding.text}") if finding.outcome == "healthy" else finding
        for finding in findings
    ]


def _judge(root: Path, partition: int, end: int | None, revision: int) -> Diagnosis:
    """Examine one partition as a worker that takes it would."""
    try:
        header = stores.newest_snapshot(root, partition)
        if header is None:
            return Diagnosis(partition, "unstarted", "no snapshot: a worker starts it at its beginning", -1, revision)
        if header["revision"] < revision:
            text = f"a reset was interrupted: revision {revision} begins at the beginning"
            return Diagnosis(partition, "unstarted", text, -1, revision)
        stores.read_blobs(root, partition, header)
    except DataLossError as error:
        return Diagnosis(partition, "lost", str(error), -1, revision)
    position, revision = header["position"], header["revision"]
    if end is not None and position > end:
        text = (
            f"the input ends at {end}, {position} were counted: it can continue at {end}; open windows may hold "
            "records that the input does not have any more"
        )
        return Diagnosis(partition, "accept", text, end, revision)
    return Diagnosis(partition, "healthy", f"revision {revision} at position {position}", position, revision)


def _move(store: stores.DirectoryStore, at: Diagnosis) -> None:
    """Move a snapshot to an earlier position, its open windows marked."""
    header = stores.newest_snapshot(store.root, at.partition)
    store.take(at.partition)
    assert header is not None
    manifest: dict[str, Any] = dict(header["manifest"])
    manifest["position"] = at.position
    mark_diverged(manifest)
    blobs = frozenset(header["blobs"])
    snapshot = Snapshot(at.partition, at.position, manifest, {}, blobs, at.revision, header["fingerprint"], True)
    store.commit(at.partition, snapshot)
