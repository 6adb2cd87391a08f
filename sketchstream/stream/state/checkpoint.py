"""Converts the state of a partition to a snapshot and back, and rejects snapshots that do not fit.

In: a `PartitionState`; a restored snapshot. Out: a `Snapshot`; a state. Touches: the state it is given.
Source: docs/streams.md, "Snapshots" and "Changing the configuration while windows are open".
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sketchstream import kinds, wire
from sketchstream.errors import DataLossError, KeyMismatchError, SketchstreamError, SpecError, VersionError
from sketchstream.kinds.interface import Spec
from sketchstream.spec import ClosedDomain
from sketchstream.stream.input.partition_counts import Steps, perform, run_without_cluster
from sketchstream.stream.interfaces import BytesOrView, Frontier, Peer, Plain, Restored, SealedEntry, Snapshot
from sketchstream.stream.published import frontiers
from sketchstream.stream.published.values import digits, integer, read_signed, require_list, table, tables
from sketchstream.stream.state.buffers import Buffers
from sketchstream.stream.state.domain_lists import DomainLists, SavedLists
from sketchstream.stream.state.outbox import Outgoing, new_name
from sketchstream.stream.state.partition import PartitionState
from sketchstream.stream.state.rules import Rules
from sketchstream.stream.state.sketch_state import (
    LastFrontier,
    OpeningBounds,
    OpenWindow,
    PartitionGrowth,
    SealProgress,
    SketchState,
)
from sketchstream.stream.state.window_sketch import WindowSketch
from sketchstream.stream.state.window_specs import boundary
from sketchstream.stream.state.work_pace import copying_takes_long
from sketchstream.stream.windows.boundary import NO_LIVE_WINDOW
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream.stream.windows.window_ranges import Mark
from sketchstream.wire import Streamed, Unfinished

if TYPE_CHECKING:
    from sketchstream.stream.windows.plans import SketchPlan

MANIFEST_FORMAT = 3
"""The format that is written; 1, with blobs of byte format 1, and 2, without evidence about windows, are also read."""
EARLY_FORMAT = 4
"""Written instead where the outbox holds releases from open windows: earlier versions of the program would publish them
as those of sealed ones."""


class Blobs(Mapping[str, BytesOrView]):
    """The new blobs of a snapshot, in memory that `release` returns.

    Tags and checksums are computed when a blob is read, so not by the thread that counts. A large state is not copied:
    `pieces` reads it, once.
    """

    def __init__(self, blobs: Mapping[str, bytes | Unfinished | Streamed], buffers: Buffers | None) -> None:
        self._blobs = dict(blobs)
        self._buffers = buffers

    def __getitem__(self, name: str) -> BytesOrView:
        return b"".join(blob.pieces()) if isinstance(blob := self._blobs[name], Streamed) else _in_memory(blob)

    def pieces(self, name: str) -> tuple[int, Iterator[BytesOrView]]:
        """Size of a blob, and its bytes in order, each piece good until the next one is asked for."""
        blob = self._blobs[name]
        if isinstance(blob, Streamed):
            return blob.size, blob.pieces()
        whole = _in_memory(blob)
        return len(whole), iter((whole,))

    def __iter__(self) -> Iterator[str]:
        return iter(self._blobs)

    def __len__(self) -> int:
        return len(self._blobs)

    @property
    def n_bytes(self) -> int:
        """Size of all blobs without the headers of open states."""
        return sum(len(held) if isinstance(held, bytes) else held.body_bytes for held in self._blobs.values())

    @property
    def copied_bytes(self) -> int:
        """Memory that they need in addition to the states."""
        return self.n_bytes - sum(held.body_bytes for held in self._blobs.values() if isinstance(held, Streamed))

    def release(self) -> None:
        """Overwrite the copies of open states and return their memory; no blob is read after this."""
        for blob in self._blobs.values():
            if isinstance(blob, Streamed):
                blob.close()
        if self._buffers is not None:
            blobs, self._blobs = self._blobs, {}
            for blob in blobs.values():
                if isinstance(blob, Unfinished):
                    self._buffers.give(blob.buffer)


def _in_memory(blob: bytes | Unfinished) -> BytesOrView:
    """A blob that lies in memory."""
    return blob if isinstance(blob, bytes) else blob.finish()


def capture(state: PartitionState, buffers: Buffers | None = None) -> Snapshot:
    """Like `capturing`, without a cluster to ask for partitions."""
    return run_without_cluster(capturing(state, buffers))


def capturing(state: PartitionState, buffers: Buffers | None = None) -> Steps[Snapshot]:
    """Copy a state completely for the store, after sealing what is due. The caller commits or drops it.

    Asks for the partition count before the first window is sealed, and if a domain is closed.

    Args:
        state: state of a partition.
        buffers: memory for the copies of open states, returned by `Snapshot.release`; None: fresh memory.
    """
    windows = yield from state.sealing_for_snapshot()
    return (yield from perform(partial(_written, state, buffers), long=copying_takes_long(windows)))


def _written(state: PartitionState, buffers: Buffers | None) -> Snapshot:
    """Copy a state. The windows and entries that it marks as saved are saved once the snapshot is committed."""
    blobs: dict[str, bytes | Unfinished | Streamed] = {}
    room = bytearray if buffers is None else buffers.take
    keep: set[str] = set()
    sketches: dict[str, Plain] = {}
    for sketch_state in state.sketch_states.values():
        windows: list[Plain] = []
        for window in sketch_state.windows.values():
            if window.dirty or window.blob is None:
                window.blob, window.dirty = new_name(), False
                blobs[window.blob] = (
                    window.sketch.image_open() if window.sketch.large else window.sketch.copy_open(room=room)
                )
            else:
                keep.add(window.blob)
            windows.append(_window_fields(window, window.blob))
        sketches[sketch_state.name] = _sketch_fields(sketch_state, windows)
    outbox: list[Plain] = []
    for outgoing in state.outbox.entries:
        if outgoing.saved:
            keep.add(outgoing.blob)
        else:
            blobs[outgoing.blob] = outgoing.entry.body
            outgoing.saved = True
        outbox.append(_outgoing_fields(outgoing))
    state.outbox.capture()
    lists, fresh = state.lists.capture(_specs(state))
    blobs |= fresh
    keep |= set(lists.values()) - fresh.keys()
    has_early = any(outgoing.entry.early is not None for outgoing in state.outbox.entries)
    manifest: dict[str, Plain] = {
        "format": EARLY_FORMAT if has_early else MANIFEST_FORMAT,
        "partition": state.partition,
        "position": state.position,
        "revision": state.revision,
        "watermark": state.watermark,
        "votes": state._watermark.fields(),
        "newest": state.newest,
        "partitions": state.counts.now,
        "former_counts": [[count, until] for count, until in state.counts.former.items()],
        "partial": state.lost.missing,
        "idled": [list(span) for span in state._watermark.idled],
        "fingerprint": state.rules.fingerprint,
        "begins": state.lifecycle.specs.begins,
        "specs": {plan.name: plan.spec.to_dict() for plan in state.rules.sketches},
        "former_specs": {name: spec.to_dict() for name, spec in state.lifecycle.specs.former.items()},
        "lists": dict(lists),
        "sketches": sketches,
        "outbox": outbox,
        "frontiers": [_frontier_fields(frontier) for frontier in state.outbox.frontiers.values()],
    }
    rewound, state._rewound, state._changed = state._rewound, False, False
    new_blobs = Blobs(blobs, buffers)
    return Snapshot(
        partition=state.partition,
        position=state.position,
        manifest=manifest,
        blobs=new_blobs,
        keep=frozenset(keep),
        revision=state.revision,
        spec_fingerprint=state.rules.fingerprint,
        rewound=rewound,
        begins=state.lifecycle.specs.begins,
        newest=state.newest,
        blob_bytes=new_blobs.n_bytes,
        copied_bytes=new_blobs.copied_bytes,
        release=new_blobs.release,
    )


def _window_fields(window: OpenWindow, blob: str) -> dict[str, Plain]:
    """Plain data about an open window whose state is in this blob."""
    return {
        "start": window.start,
        "end": window.end,
        "counts": list(window.counts),
        "slots_for": list(window.slots_for),
        "blob": blob,
        **({"closed": window.closed} if window.closed else {}),
        **({"early": window.early} if window.early else {}),
    }


def _sketch_fields(state: SketchState, windows: list[Plain]) -> dict[str, Plain]:
    """Plain data about one sketch; `windows`: what `_window_fields` says of its open windows."""
    progress, opening, frontier, late = state.progress, state.opening, state.frontier, state.late
    closes = progress.positions != NO_TIME
    return {
        "through": progress.through,
        **({} if progress.published == progress.through else {"published": progress.published}),
        **_mark_fields("partial", state.partial),
        **_mark_fields("diverged", state.diverged),
        "sequence": frontier.sequence,
        "announced": frontier.partitions,
        "grown_from": state.growth.former,
        "grown_through": state.growth.through,
        "late": digits(late.value),
        "late_draws": late.draws,
        "late_noise": str(late.epsilon),
        "evidence": state.evidence.fields(),
        "reported": frontier.watermark,
        "retired": state.plan is None,
        **({"begins": opening.created_from} if state.overlapping else {}),
        **({} if state.plan is None else {"plan": state.plan.windows_text}),
        **({} if opening.claimed_from == NO_LIVE_WINDOW else {"live": opening.claimed_from}),
        **({} if opening.before_sketch == NO_TIME else {"earlier": opening.before_sketch}),
        "windows": windows,
        **({"closed": progress.positions, "opens_from": opening.positions_from} if closes else {}),
    }


def _outgoing_fields(outgoing: Outgoing) -> dict[str, Plain]:
    """Plain data about an entry of the outbox."""
    entry = outgoing.entry
    return {
        "sketch": entry.sketch,
        "revision": entry.revision,
        "start": entry.window[0],
        "end": entry.window[1],
        "seal_id": entry.seal_id,
        "blob": outgoing.blob,
        **({} if entry.positions is None else {"positions": list(entry.positions)}),
        **({} if entry.early is None else {"early": entry.early}),
    }


def _specs(state: PartitionState) -> Iterator[Spec]:
    """The specs of all windows that are open or will be."""
    yield from (plan.spec for plan in state.rules.sketches)
    yield from state.lifecycle.specs.former.values()
    yield from (window.sketch.spec for window in state._open_windows())


def open_windows(manifests: Iterable[Mapping[str, Any]]) -> dict[str, list[tuple[int, int]]]:
    """The bounds of the windows that are open in some of these manifests, by sketch, ascending; no state is read."""
    by_sketch: dict[str, set[tuple[int, int]]] = {}
    for manifest in manifests:
        for name, fields in manifest["sketches"].items():
            bounds = {(int(window["start"]), int(window["end"])) for window in fields["windows"]}
            by_sketch.setdefault(name, set()).update(bounds)
    return {name: sorted(bounds) for name, bounds in by_sketch.items()}


def restore(
    rules: Rules, partition: int, restored: Restored, partitions: int, peers: Sequence[Peer] = ()
) -> PartitionState:
    """Restore the state that a snapshot holds.

    Args:
        rules: rules of the worker. Its sketches may differ from the snapshot's: open windows finish under the spec
            with which they began, new sketches begin with the next window.
        partition: partition of the input.
        restored: snapshot that the store has.
        partitions: number of partitions of the input now.
        peers: snapshots of all partitions: changed sketches begin at one time in all of them.

    Raises:
        DataLossError: the snapshot cannot be used; the message says why and what to do.
    """
    manifest = restored.manifest
    with _usable(partition):
        if manifest["format"] not in range(1, EARLY_FORMAT + 1):
            raise DataLossError(
                f"partition {partition}: its snapshot has format {manifest['format']!r:.20}, this version reads "
                f"formats 1 to {EARLY_FORMAT}; run the version that wrote it, or a newer one"
            )
        if manifest["partition"] != partition or manifest["position"] != restored.position:
            raise DataLossError(f"partition {partition}: its snapshot belongs to another partition or position")
        counts, revision = integer(manifest["partitions"]), integer(manifest["revision"])
        state = PartitionState(rules, partition, restored.position, counts, revision)
        votes = manifest.get("votes")
        state._watermark.restore(integer(manifest["watermark"]), None if votes is None else table(votes))
        state.lifecycle.early.through = state.watermark
        # older snapshots: no time is beyond the watermark
        state.newest = integer(manifest.get("newest", state.watermark))
        idled = require_list(manifest.get("idled", []))
        state._watermark.idled = [(integer(before), integer(after)) for before, after in idled]
        former = require_list(manifest.get("former_counts", []))
        state.counts.restore({integer(count): None if until is None else integer(until) for count, until in former})
        state.counts.passed(state.position)
        names = {str(digest): str(name) for digest, name in table(manifest.get("lists", {})).items()}
        state.lists, lists = DomainLists(rules.key, names), SavedLists(rules.key, names, restored.blobs)
        _restore_specs(state, manifest, peers, lists)
        saved = table(manifest["sketches"])
        for name, fields in saved.items():
            _restore_sketch_state(state, name, table(fields), restored.blobs, lists, len(peers))
        if manifest["partial"]:
            state.mark_missing_records()
        for plan in rules.sketches:
            if plan.name not in saved:
                _begin(state, plan)
        for entry in tables(manifest["outbox"]):
            _restore_outgoing(state, entry, restored.blobs)
        for entry in tables(manifest["frontiers"]):
            frontier = frontiers.read(entry["sketch"], entry["revision"], entry["partition"], entry)
            state.outbox.frontiers[frontier.sketch] = frontier
    state._changed = bool(state.outbox.pending)
    state.set_partitions(partitions)
    return state


def _restore_sketch_state(
    state: PartitionState,
    name: str,
    fields: dict[str, Any],
    blobs: Mapping[str, BytesOrView],
    lists: SavedLists,
    total: int,
) -> None:
    """Restore what a snapshot holds about one sketch.

    Args:
        state: state of the partition.
        name: name of the sketch.
        fields: what `_sketch_fields` wrote; older snapshots lack some.
        blobs: blobs of the snapshot.
        lists: lists of items of the snapshot.
        total: number of partitions that have snapshots.
    """
    sketch_state = state.sketch_states.get(name) or SketchState(name, None)
    sketch_state.partial, sketch_state.diverged = _mark(fields, "partial"), _mark(fields, "diverged")
    through = integer(fields["through"])
    sketch_state.progress = SealProgress(
        through, integer(fields.get("published", through)), positions=integer(fields.get("closed", NO_TIME))
    )
    sketch_state.opening = OpeningBounds(
        before_sketch=integer(fields.get("earlier", NO_TIME)),
        created_from=integer(fields.get("begins", NO_TIME)),
        claimed_from=integer(fields.get("live", NO_LIVE_WINDOW)),
        positions_from=integer(fields.get("opens_from", NO_TIME)),
    )
    sketch_state.frontier = LastFrontier(
        integer(fields["sequence"]), integer(fields["announced"]), integer(fields.get("reported", NO_TIME))
    )
    sketch_state.growth = PartitionGrowth(
        integer(fields.get("grown_from", 0)), integer(fields.get("grown_through", NO_TIME))
    )
    noise = str(sketch_state.late.epsilon)
    same = noise != "0" and fields.get("late_noise", noise) == noise
    if same and integer(fields.get("late_draws", 0)):  # else the number keeps its own first draw
        sketch_state.late.value, sketch_state.late.draws = (
            read_signed(str(fields["late"])),
            integer(fields["late_draws"]),
        )
    latest_end = through
    for window_fields in tables(fields["windows"]):
        window = _restore_window(state, sketch_state, window_fields, blobs, lists)
        sketch_state.windows[window.start] = window
        latest_end = max(latest_end, window.end)
        if sketch_state.fields(window.sketch.spec) is None:  # records can no longer be counted in it
            sketch_state.mark_partial(window.end)
    state.sketch_states[name] = sketch_state
    evidence = fields.get("evidence")
    sketch_state.evidence.restore(None if evidence is None else table(evidence), latest_end)
    plan = sketch_state.plan
    changed = plan is not None and fields.get("plan", plan.windows_text) != plan.windows_text
    sketch_state.restored(changed=changed)
    if plan is not None and changed and total > 1:  # other partitions begin the new windows elsewhere
        latest = max(state.lifecycle.specs.begins, state.newest, state.watermark, sketch_state.opening.created_from)
        if latest != NO_TIME:
            sketch_state.mark_partial(max(latest_end, plan.last_end(latest)))
    if fields["retired"] and plan is not None:
        _begin(state, plan)


def _restore_window(
    state: PartitionState,
    sketch_state: SketchState,
    fields: dict[str, Any],
    blobs: Mapping[str, BytesOrView],
    lists: SavedLists,
) -> OpenWindow:
    """Restore an open window from what `_window_fields` wrote and from its blob."""
    start, end = integer(fields["start"]), integer(fields["end"])
    counts = tuple(integer(count) for count in fields["counts"])
    slots_for = tuple(integer(count) for count in fields.get("slots_for", fields["counts"][:1]))
    sketch = _restore_sketch(state, sketch_state, blobs[fields["blob"]], slots_for, lists)
    origin = sketch.origin
    name, place = sketch_state.name, (state.partition, (start, end), state.revision)
    if (origin.name, origin.partition, origin.window, origin.revision) != (name, *place):
        raise DataLossError(f"partition {state.partition}: a blob of sketch {name!r} belongs to another window")
    window = OpenWindow(start, end, sketch, counts, fields["blob"], dirty=False, slots_for=slots_for)
    window.closed, window.early = integer(fields.get("closed", 0)), integer(fields.get("early", 0))
    state.lifecycle.slots.fit(window, counts)
    return window


def _restore_specs(
    state: PartitionState, manifest: Mapping[str, Any], peers: Sequence[Peer], lists: SavedLists
) -> None:
    """Restore the sketches of windows that start before a change of the configuration takes effect."""
    if "fingerprint" not in manifest:  # an older release wrote it: new windows have the new sketches at once
        return
    begins, specs, former = integer(manifest["begins"]), table(manifest["specs"]), table(manifest["former_specs"])
    if manifest["fingerprint"] == state.rules.fingerprint:
        state.lifecycle.specs.begins = begins
    else:
        state.lifecycle.specs.begins = boundary(peers, state.rules.fingerprint, state.newest)
        former = specs | (former if state.newest < begins else {})
    for plan in state.rules.sketches:
        if plan.name in former:
            spec = _spec(table(former[plan.name]), plan, lists)
            if spec is not None and spec.fingerprint != plan.spec.fingerprint:
                state.lifecycle.specs.former[plan.name] = spec


def _spec(described: Mapping[str, Any], plan: SketchPlan | None, lists: SavedLists) -> Spec | None:
    """Rebuild a spec with its list of items, the configured one or one of the snapshot; None if neither is the list."""
    configured = None if plan is None else getattr(plan.spec.domain, "items", None)
    for items in (configured, *lists, None):
        try:
            spec: Spec = kinds.read_spec(described, items)
        except SpecError:  # this list belongs to another spec
            continue
        if not (isinstance(spec.domain, ClosedDomain) and spec.domain.listed and spec.domain.items is None):
            return spec
    return None


def _restore_sketch(
    state: PartitionState, sketch_state: SketchState, data: BytesOrView, slots_for: tuple[int, ...], lists: SavedLists
) -> WindowSketch:
    """Read an open sketch from its bytes; the configuration or the snapshot has the list of items of its domain."""
    plan, key = sketch_state.plan, state.rules.key
    header = wire.unpack_header(data)
    same = plan is not None and kinds.read_spec(header["spec"]).fingerprint == plan.spec.fingerprint
    spec = plan.spec if plan is not None and same else _spec(header["spec"], plan, lists)
    if spec is None:
        raise DataLossError(
            f"partition {state.partition}: sketch {sketch_state.name!r} has open windows with another list of items, "
            "and its snapshot, of an older release, does not hold that list; put the former sketch and items_file "
            "back, run this release until it has committed once, and change them then"
        )
    return WindowSketch.from_bytes(
        data, key, spec=spec, keep=state.lifecycle.slots.keep(spec, slots_for), take_over=True
    )


def _restore_outgoing(state: PartitionState, fields: dict[str, Any], blobs: Mapping[str, BytesOrView]) -> None:
    entry = SealedEntry(
        sketch=str(fields["sketch"]),
        revision=integer(fields["revision"]),
        window=(integer(fields["start"]), integer(fields["end"])),
        partition=state.partition,
        seal_id=bytes(fields["seal_id"]),
        body=bytes(blobs[fields["blob"]]),
        positions=_positions(fields.get("positions")),
        early=None if fields.get("early") is None else integer(fields["early"]),
    )
    state.outbox.entries.append(Outgoing(entry, str(fields["blob"]), saved=True))


def _positions(value: object) -> tuple[int, int] | None:
    """Positions of an instalment; None for a whole sketch."""
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2:
        raise TypeError("expected two positions")
    return integer(value[0]), integer(value[1])


def _begin(state: PartitionState, plan: SketchPlan) -> None:
    """Begin a sketch that was added (or put back) while the stream ran, with the first window without a past.

    It adds nothing to new windows that begin by the watermark. Windows up to the newest record that was read
    without it are partial. Windows that were open when the sketch was removed are still open, and finish.
    """
    if state.newest == NO_TIME and state.watermark == NO_TIME:
        return
    sketch_state = state.sketch_states[plan.name]
    sketch_state.mark_partial(plan.last_end(max(state.newest, state.watermark)))
    if not sketch_state.windows and state.watermark != NO_TIME:
        through = max(sketch_state.progress.through, plan.last_end(state.watermark))
        sketch_state.progress.through = sketch_state.opening.before_sketch = through
    state._announce(sketch_state)


@contextlib.contextmanager
def _usable(partition: int) -> Iterator[None]:
    """Halt the partition, with an error that says what to do, if the snapshot is incomplete or malformed."""
    try:
        yield
    except DataLossError:
        raise
    except KeyMismatchError:
        raise DataLossError(
            f"partition {partition}: its open windows were made with another hash key; put the former key "
            "back, or start a new revision with `sketchstream reset`"
        ) from None
    except VersionError as error:
        raise DataLossError(
            f"partition {partition}: its snapshot was written by a newer release: {error}; run that release"
        ) from None
    except (KeyError, TypeError, ValueError, AttributeError, SketchstreamError) as error:
        raise DataLossError(f"partition {partition}: its snapshot cannot be read ({type(error).__name__})") from None


def _frontier_fields(frontier: Frontier) -> Plain:
    """Plain data for a snapshot, in which the size of evidence does not depend on its numbers."""
    named = {"sketch": frontier.sketch, "revision": frontier.revision, "partition": frontier.partition}
    stored = {} if frontier.evidence is None else {frontiers.EVIDENCE: frontier.evidence.stored()}
    return {**named, **frontiers.plain_frontier(frontier, unset=True), **stored}


def _mark_fields(name: str, mark: Mark) -> dict[str, int]:
    """A mark of a sketch in the form that a snapshot stores."""
    return {name: mark.through, f"{name}_from": mark.after}


def _mark(fields: Mapping[str, Any], name: str) -> Mark:
    """Read a mark of a sketch; older snapshots lack some marks."""
    return Mark(integer(fields.get(f"{name}_from", NO_TIME)), integer(fields.get(name, NO_TIME)))


def mark_partial(manifest: dict[str, Any]) -> None:
    """Mark a snapshot: records that come next in the input are lost (`PartitionState.skip`)."""
    manifest.pop("votes", None)
    manifest["partial"] = True


def mark_diverged(manifest: dict[str, Any]) -> None:
    """Mark the open windows of a snapshot: they may hold records that the input has lost (`PartitionState.rewind`)."""
    manifest.pop("votes", None)
    for fields in manifest["sketches"].values():
        ends = [window["end"] for window in fields["windows"]]
        if ends:
            mark = _mark(fields, "diverged").extended(fields["through"], max(ends))
            fields.update(_mark_fields("diverged", mark))
