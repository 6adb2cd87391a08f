"""From counts of a window to its published body: booked before the noise, stored before it is published, drawn once.

In: a configuration over Parquet files, a range of time. Out: sealed sketches where the configuration publishes.
Touches: the folder of its history, and its sealed folder; entropy.

    ledger.secret                            names this ledger, in the boundary of each sketch, and snapshots
    <sketch>/r<revision>/<start>.booked      the row of the ledger: job, window, loss, input
    <sketch>/r<revision>/<start>.body        what `seal` made, before it was published
    spill                                    of the engine, where its memory is full: raw data

Laws (tests/connectors/lake):
1. A row is durable before the first noise of its window is drawn: a crash may cost loss that nobody had, never the
   reverse.
2. Nothing is published that is not stored, and what is stored never changes. Of two processes one names the file; the
   other one discards its own sketch, of which nothing was published.
3. No window is booked that the boundary does not give to the history (`sketchstream.stream.windows.boundary`).
4. The same job again publishes the same bytes. Another job for a window that is booked is refused: two noises over one
   history are two views of it.

A job is a window of a sketch over pinned files: their names, sizes and times of change. They are looked at again before
a body is stored.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal

from sketchstream import __version__, faults, files
from sketchstream.config.loader import Config
from sketchstream.errors import ConfigError, DataLossError, StoreError
from sketchstream.items.key import Key
from sketchstream.provenance import Origin
from sketchstream.sketch import Sketch
from sketchstream.stream.interfaces import Frontier, SealedEntry
from sketchstream.stream.published.evidence import EvidenceNoise, PublishedEvidence
from sketchstream.stream.windows.boundary import Boundary
from sketchstream.stream.windows.calendar import EARLIEST_MS, LATEST_MS, NO_TIME, iso
from sketchstream.stream.windows.plans import SketchPlan
from sketchstream.stream.windows.window_ranges import UNMARKED
from sketchstream.topics import HISTORY
from sketchstream_connectors.factory import history_layout
from sketchstream_connectors.files.publisher import start_name
from sketchstream_connectors.files.rows import files_of
from sketchstream_connectors.files.sealed import describe
from sketchstream_connectors.lake.count import Rows, fill, require_history
from sketchstream_connectors.lake.series import DeploymentSeries

FORMAT: Final = 1
REFUSED_NONE: Final = PublishedEvidence(EvidenceNoise(unkeyed=True))
"""Evidence about the windows of a history: no record comes late, so it counts nothing, and needs no noise."""
Outcome = Literal["published", "published again", "no records", "to publish", "to publish again", "refused"]


@dataclass(frozen=True)
class WindowDone:
    """What became of one window.

    Args:
        sketch: name of the sketch.
        window: [start, end), ms.
        outcome: what happened, or would happen.
        records: records of the window, where they were counted now.
        reason: reason of a refusal.
    """

    sketch: str
    window: tuple[int, int]
    outcome: Outcome
    records: int = 0
    reason: str = ""


class BackfillJob:
    """The job of a configuration.

    Args:
        config: configuration over a Parquet file, or a folder of them.
        start: ms since 1970; windows that begin earlier are left out.
        end: ms since 1970; windows that end later are left out.
        names: names of the sketches; empty: all.
        engine: name of the engine that counts, see `lake.engines`. All of them count the same, so another one may go
            on with a job.
        again: reason why windows that are booked are published a second time, under a new revision and at a second
            charge; the same reason over the same files goes on with that revision. Sketches of which no window of the
            range is booked are left out: nothing of theirs was wrong, and they are charged where they are asked for.
            "": no window is.

    Raises:
        ConfigError: the configuration is not one whose history can be counted, with the reason.
        FormatError: the files cannot be counted as a worker would.
    """

    def __init__(
        self, config: Config, start: int, end: int, names: Sequence[str] = (), engine: str = "duckdb", again: str = ""
    ) -> None:
        if config.history_name is None:
            raise ConfigError(
                f"{config.path}: backfill reads Parquet: [history] file, or input.file, must be a Parquet file, or a "
                "folder of them"
            )
        if not EARLIEST_MS <= start < end <= LATEST_MS:
            raise ConfigError(f"--from must lie before --to, both from 1900 to 2200; found {iso(start)} and {iso(end)}")
        if again and names:
            raise ConfigError("--again begins a new revision of all sketches of the configuration: leave --sketch out")
        self._config = config
        self._range = start, end
        self._again = again
        self._folder = config.history_path
        self.plans = [config.plan(name) for name in names] or list(config.sketches)
        if again:
            self.plans = [plan for plan in self.plans if self._revisions(plan)]
            if not self.plans:
                raise ConfigError(
                    "no window of this range is booked, so none can be published again: leave --again out"
                )
        for plan in self.plans:
            require_history(plan)
        self._key: Key | None = config.load_key()
        self._root = config.resolve(config.history_name)
        self._paths = files_of(self._root, ".parquet")
        self._layout = history_layout(config)
        self.input = self._pin_files()
        self._series = DeploymentSeries(config)
        try:
            self._rows = Rows(self._paths, self._layout, self._folder / "spill", engine)
        except BaseException:
            self._series.close()
            raise

    def close(self) -> None:
        """End the engine, and close what is published to."""
        self._rows.close()
        self._series.close()

    @property
    def revision(self) -> int:
        """Revision of the sketches."""
        return self._series.revision

    def windows(self, plan: SketchPlan) -> list[tuple[int, int]]:
        """The windows of a sketch that lie in the range as a whole, ascending."""
        return plan.within(*self._range)

    @property
    def snapshot(self) -> str:
        """Name of the pinned files, which bodies have: a digest of their names, sizes and times of change.

        It is keyed: sizes depend on what the files hold, and a bare digest of them could be guessed. Empty without a
        ledger.
        """
        path = self._folder / "ledger.secret"
        return _secret_name(path, b"sketch-snapshot", self.input) if path.exists() else ""

    @property
    def table(self) -> str:
        """Name of the table: its path as the configuration has it."""
        return str(self._config.history_name)

    @property
    def rows(self) -> int:
        """Number of rows of the files."""
        return self._rows.number

    @property
    def begins_revision(self) -> bool:
        """Whether this job is one that was asked for again, and no run of it has begun its revision."""
        rows = [row for row, _ in booked_rows(self._folder) if row["revision"] == self.revision]
        ours = any(row.get("again") == self._again and row["input"] == self.input for row in rows)
        return bool(self._again and rows and not ours)

    def _revisions(self, plan: SketchPlan) -> set[int]:
        """The revisions in which windows of the range are booked for a sketch."""
        starts = {iso(start) for start, _ in self.windows(plan)}
        rows = [row for row, _ in booked_rows(self._folder) if row["sketch"] == plan.name]
        return {row["revision"] for row in rows if row["window"][0] in starts}

    def charged(self, plan: SketchPlan) -> int:
        """Number of revisions in which windows of this sketch are booked, this job's own included."""
        revisions = {row["revision"] for row, _ in booked_rows(self._folder) if row["sketch"] == plan.name}
        return len(revisions | {self.revision + self.begins_revision})

    def boundary(self, plan: SketchPlan) -> Boundary:
        """The claims of a sketch now, with live windows that no claim names; none is added."""
        if self.begins_revision:
            return Boundary()
        boundary = self._series.publisher.settle(plan.name, self.revision, lambda before: before)
        first = self._series.first_live(plan.name)
        return boundary if first is None else boundary.with_live(first)

    def planned(self, plan: SketchPlan, boundary: Boundary) -> Iterator[WindowDone]:
        """What a run would do with each window of a sketch that has records; nothing is claimed or written.

        Args:
            plan: plan of the sketch.
            boundary: boundary between its history and live records.
        """
        secret = self._folder / "ledger.secret"
        ledger = _secret_name(secret, b"sketch-ledger", None) if secret.exists() else "of the first run"
        for window in self.windows(plan):
            try:
                boundary.with_history(plan.calendar.end(window[0]), ledger, plan.name)
                booked = not self.begins_revision and self._is_booked(plan, window, self._job(plan, window))
                again = booked and self._stored_body(plan, window) is not None
                yield WindowDone(plan.name, window, "to publish again" if again else "to publish")
            except (ConfigError, DataLossError) as error:
                yield WindowDone(plan.name, window, "refused", reason=str(error))

    def run(self) -> Iterator[WindowDone]:
        """Do what is left to do, window by window.

        Raises:
            ConfigError: windows between those that are published and the range would be passed over.
            DataLossError: a window was booked for other data, or published by another process.
            StoreError: a folder cannot be written, or the files changed meanwhile.
        """
        files.make_folder(self._folder, 0o700)  # before the engine writes temporary files into it
        if self.begins_revision:
            self._series.begin_revision()
        for plan in self.plans:
            windows = self.windows(plan)
            if not windows:
                continue
            self._require_no_gap(plan, windows)
            self._require_uncharged(plan)
            self._claim(plan, windows)
            for window in windows:
                yield self._window(plan, window)
            self._publish_frontier(plan, windows)

    def _window(self, plan: SketchPlan, window: tuple[int, int]) -> WindowDone:
        """One window, from whatever an earlier run left."""
        job = self._job(plan, window)
        if self._is_booked(plan, window, job):
            body = self._stored_body(plan, window)
            if body is not None:
                self._publish(plan, window, body)
                return WindowDone(plan.name, window, "published again")
        counts = self._rows.counts(plan, window)
        first = next(counts, None)
        if first is None:
            return WindowDone(plan.name, window, "no records")
        self._book(plan, window, job)
        origin = Origin(
            name=plan.name,
            revision=self.revision,
            window=window,
            partition=HISTORY,
            partitions=(1,),
            table=(self.table, self.snapshot),
        )
        sketch = Sketch.create(plan.spec, self._key, origin=origin)
        records = fill(sketch, chain([first], counts))
        if self._pin_files() != self.input:
            raise StoreError(
                "the files of the input changed while they were counted; nothing of this window was published"
            )
        body = self._store(plan, window, sketch.seal().to_bytes())
        self._publish(plan, window, body)
        return WindowDone(plan.name, window, "published", records)

    # ------------------------------------------------------------------------------------------ job and ledger

    def _pin_files(self) -> list[list[Any]]:
        """Names, sizes and times of change of the files."""
        with files.reading("the files of the input"):
            about = [(path, path.stat()) for path in self._paths]
        return [[str(path.relative_to(self._root)), status.st_size, status.st_mtime_ns] for path, status in about]

    def _job(self, plan: SketchPlan, window: tuple[int, int]) -> str:
        """Name of the job: equal for equal sketches, windows, fields and data."""
        parts = [
            *(FORMAT, plan.name, self.revision, plan.spec.fingerprint.hex(), list(window), self.input),
            *(
                self._key.id.hex() if self._key is not None and plan.spec.needs_key else None,
                sorted(plan.fields.items()),
            ),
            *(self._layout.item, self._layout.item_type, self._layout.weight, self._layout.time),
            *(() if self._layout.time_unit == "ms" else (self._layout.time_unit,)),
        ]
        return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16, person=b"sketch-backfill").hexdigest()

    def _path(self, plan: SketchPlan, window: tuple[int, int], ending: str) -> Path:
        return self._folder / plan.name / f"r{self.revision}" / f"{start_name(window[0])}.{ending}"

    def _is_booked(self, plan: SketchPlan, window: tuple[int, int], job: str) -> bool:
        """Whether the ledger has the row of this job.

        Raises:
            DataLossError: it has that of another one.
        """
        path = self._path(plan, window, "booked")
        try:
            row = json.loads(path.read_bytes())
            booked_job = row["job"]
        except FileNotFoundError:
            return False
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataLossError(
                f"{path} cannot be read: it says what was drawn for its window, so nothing is drawn again"
            ) from error
        if booked_job != job:
            raise DataLossError(
                f"the window of sketch {plan.name} that begins at {iso(window[0])} was booked for other data or "
                f"another configuration ({path}): a second noise over one history would be a second view of it, "
                "so nothing was drawn; for corrected data say --again REASON, which begins a new revision, whose loss "
                "is added"
            )
        return True

    def _book(self, plan: SketchPlan, window: tuple[int, int], job: str) -> None:
        """Write the row of the ledger, durably, unless it is there."""
        path = self._path(plan, window, "booked")
        row = {
            "format": FORMAT,
            "job": job,
            "sketch": plan.name,
            "revision": self.revision,
            "window": [iso(time) for time in window],
            "unit": plan.spec.unit,
            "epsilon": plan.loss,
            "spec": plan.spec.fingerprint.hex(),
            "input": self.input,
            "again": self._again,
            "version": __version__,
        }
        files.make_folder(path.parent, 0o700)
        if not files.write_new(path, json.dumps(row, indent=1).encode(), step="booked"):
            self._is_booked(plan, window, job)  # another process wrote it: of the same job, or it is refused

    def _stored_body(self, plan: SketchPlan, window: tuple[int, int]) -> bytes | None:
        """The body of the window, if one is stored."""
        path = self._path(plan, window, "body")
        with files.reading(path):
            try:
                body = path.read_bytes()
            except FileNotFoundError:
                return None
        entry = describe(body, str(path))
        if (entry.sketch, entry.revision, entry.window) != (plan.name, self.revision, window):
            raise DataLossError(f"{path} holds another sketch than its name says")
        return body

    def _store(self, plan: SketchPlan, window: tuple[int, int], body: bytes) -> bytes:
        """Store a body unless one is there; what is stored."""
        path = self._path(plan, window, "body")
        faults.checkpoint("backfill:sealed")
        while not files.write_new(path, body, step="body"):
            if (stored := self._stored_body(plan, window)) is not None:
                return stored
        return body

    # ------------------------------------------------------------------------------------------ one series

    def _claim(self, plan: SketchPlan, windows: Sequence[tuple[int, int]]) -> None:
        """Claim the windows through the last of these for the history.

        Raises:
            ConfigError: live windows begin earlier.
        """
        through, first = plan.calendar.end(windows[-1][0]), self._series.first_live(plan.name)

        def claim(before: Boundary) -> Boundary:
            boundary = before if first is None else before.with_live(first)
            return boundary.with_history(through, self._ledger(), plan.name)

        self._series.publisher.settle(plan.name, self.revision, claim)
        faults.checkpoint("backfill:claimed")

    def _ledger(self) -> str:
        """Name of the folder in which this job books, whose secret is made with its first claim."""
        path = self._folder / "ledger.secret"
        files.write_new(path, secrets.token_hex(16).encode(), step="ledger")
        return _secret_name(path, b"sketch-ledger", None)

    def _require_uncharged(self, plan: SketchPlan) -> None:
        """Refuse to charge windows again that are booked in an earlier revision, unless a reason is given."""
        newest = max(self._revisions(plan), default=self.revision)
        if newest < self.revision and not self._again:
            raise ConfigError(
                f"windows of sketch {plan.name} are booked in revision {newest}: to publish them in revision "
                f"{self.revision} too, whose loss is added, say --again REASON"
            )

    # ------------------------------------------------------------------------------------------ publication

    def _publish(self, plan: SketchPlan, window: tuple[int, int], body: bytes) -> None:
        """Publish the stored bytes, as often as needed."""
        entry = SealedEntry(plan.name, self.revision, window, HISTORY, describe(body, "the body").seal_id, body)
        self._series.publisher.publish(HISTORY, [entry], [])

    def _frontier(self, plan: SketchPlan) -> Frontier | None:
        return self._series.publisher.frontiers().get((plan.name, self.revision, HISTORY))

    def _require_no_gap(self, plan: SketchPlan, windows: Sequence[tuple[int, int]]) -> None:
        """Refuse a range that would leave windows between, of which readers would think that they had no records."""
        before = self._frontier(plan)
        if before is not None and NO_TIME < before.published_through < windows[0][0]:
            raise ConfigError(
                f"sketch {plan.name} is published through {iso(before.published_through)}: begin with --from "
                f"{iso(before.published_through)}, so that no window is passed over"
            )

    def _publish_frontier(self, plan: SketchPlan, windows: Sequence[tuple[int, int]]) -> None:
        """Say how far the sketch is published."""
        before, through = self._frontier(plan), windows[-1][1]
        if before is not None and before.published_through >= through:
            return
        sequence = 1 if before is None else before.sequence + 1
        partial = UNMARKED if before is None else before.partial
        frontier = Frontier(plan.name, self.revision, HISTORY, through, 1, sequence, partial, evidence=REFUSED_NONE)
        self._series.publisher.publish(HISTORY, [], [frontier])


def _secret_name(secret: Path, use: bytes, content: Any) -> str:
    """A name from which nothing follows without the secret in this file."""
    key = files.read_file(secret)[0]
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=16, key=key, person=use).hexdigest()


def booked_rows(folder: Path) -> list[tuple[dict[str, Any], bool]]:
    """Rows of the ledger of backfills, in the order of sketch, revision and window, and whether each has a body.

    A row without a body was charged and never seen: its run ended before it, or is still counting.

    Args:
        folder: `Config.history_path`.

    Raises:
        DataLossError: a row cannot be read.
    """
    rows = []
    for path in sorted(folder.glob("*/r*/*.booked")):
        try:
            row = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise DataLossError(f"{path} cannot be read: it says what was drawn for its window") from error
        rows.append((row, path.with_suffix(".body").exists()))
    return rows
