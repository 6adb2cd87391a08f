"""The windows that a configuration's workers have published, as commands ask for them.

In: a configuration, a sketch's name, a range of time. Out: windows, and published objects made of them. Touches: the
sealed topic or folder, reading.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sketchstream.cli import clusters
from sketchstream.errors import ConfigError, MergeError, SketchstreamError, StoreError
from sketchstream.stream.windows import iso

if TYPE_CHECKING:
    from sketchstream.config.loader import Config
    from sketchstream.kinds.profile.estimate.result import Profile
    from sketchstream.privacy.deployment import Deployment, Record
    from sketchstream.privacy.guarantee import Beside
    from sketchstream.published import Published, SealedState
    from sketchstream.query.sealed import SealedReader, SealedWindow
    from sketchstream.stream.interfaces import SealedSource
    from sketchstream.stream.plans import SketchPlan


SHOWN: Final = 5
"""Open windows that are named."""


AHEAD: Final = 100
"""Windows after the one that is asked for, of which the ledger's records are read at once."""


@dataclass
class _Stretch:
    """Records of the deployment's ledger, and the stretch of time of which all are there."""

    start: float = math.inf
    end: float = -math.inf
    records: Sequence[Record] = ()


@dataclass(frozen=True)
class Windows:
    """What was published under one configuration."""

    config: Config
    reader: SealedReader
    source: SealedSource
    _stretch: _Stretch = field(default_factory=_Stretch, repr=False, compare=False)

    def plan(self, name: str | None) -> SketchPlan:
        """The sketch of this name; without a name, the only one."""
        if name is not None:
            return self.config.plan(name)
        if len(self.config.sketches) > 1:
            names = ", ".join(plan.name for plan in self.config.sketches)
            msg = f"{self.config.path} has several sketches: choose one of them with --sketch ({names})"
            raise ConfigError(msg)
        return self.config.sketches[0]

    def every(self, name: str, since: int | None, until: int | None) -> Iterator[SealedWindow]:
        """Windows in a range of time, ascending, each as soon as it is read."""
        return self.reader.windows(name, since, until)

    def one(self, name: str, since: int | None, until: int | None) -> SealedWindow:
        """The only window in a range of time."""
        found = list(islice(self.every(name, since, until), 2))
        if not found:
            where = "" if since is None and until is None else " in that range"
            still = self.open(name)
            msg = "; ".join([f"no window of sketch {name} is published{where}", *([] if still is None else [still])])
            raise StoreError(msg)
        if len(found) > 1:
            starts = " and ".join(iso(window.window[0]) for window in found)
            msg = (
                f"the range holds more than one window of sketch {name} (the first begin at {starts}): narrow it, or "
                "say --all or --merge"
            )
            raise ConfigError(msg)
        return found[0]

    def open(self, name: str) -> str | None:
        """A sentence about the windows that workers hold open, as of their last snapshots; None without any."""
        found: dict[str, list[tuple[int, int]]] = {}
        if self.config.from_kafka:
            from sketchstream_connectors.kafka.worker import open_windows

            found = open_windows(self.config)
        else:
            from sketchstream_connectors.files import store

            with contextlib.suppress(SketchstreamError, OSError):
                found = store.open_windows(self.config.store_path)
        bounds = found.get(name, [])
        if not bounds:
            return None
        shown = ", ".join(f"{iso(start)} to {iso(end)}" for start, end in bounds[:SHOWN])
        more = f" and {len(bounds) - SHOWN} more" if len(bounds) > SHOWN else ""
        return f"windows still open: {shown}{more}; each is published when it is sealed"

    @cached_property
    def retention_ms(self) -> float | None:
        """How long the input topic keeps records, for the guarantee; None where the broker does not say."""
        if not self.config.from_kafka:
            return None
        from sketchstream_connectors.kafka.worker import retention_ms

        return retention_ms(self.config)

    def result(self, window: SealedWindow) -> Published:
        """A window as one published object: partitions of a keyed input stacked, others merged."""
        return window.result(partitioned=self.config.input.partitioned_by != "none")

    def profile(self, window: SealedWindow, reconstruct: Callable[[Published], Profile]) -> Profile:
        """A window's profile, whose guarantee knows the deployment: other sketches, windows, partitions."""
        from sketchstream.kinds.profile.estimate.intervals.known_zeros import with_zeros

        profile = reconstruct(self.result(window))
        if window.whole and window.known_zeros and self.config.input.partitioned_by != "none":
            profile = with_zeros(profile, window.known_zeros)
        worst = max((part.ledger for part in window.parts), key=lambda ledger: ledger.loss())
        plan = self.config.plan(window.sketch)
        around = clusters.context(
            self.config, plan, partitions=window.of, retention_ms=self.retention_ms, counts=window.counts
        )
        published = self._beside(window)
        known = {one.name for one in published}
        planned = (one for one in around.beside if one.name not in known)
        around = replace(around, beside=(*published, *planned))
        profile.guarantee = window.parts[0].kind.guarantee(window.parts[0].spec, worst, around).to_dict()
        return profile

    def _records(self, window: SealedWindow) -> Sequence[Record]:
        """Of the deployment's ledger: all that can have a part in the time of a window, and more.

        Only that stretch of time is read, with some windows more for those that are asked for next.
        """
        known, (start, end) = self._stretch, window.window
        if known.start <= start and end <= known.end:
            return known.records
        lengths = {plan.name: 2 * plan.calendar.shortest_ms for plan in self.config.sketches}
        if {one.sketch for one in self.source.frontiers()} <= lengths.keys():
            known.start, known.end = start, end + AHEAD * (end - start)
            longest = max(lengths.values())
            found = self.deployment(start - longest, round(known.end) + longest)
        else:  # a sketch that left the configuration may have had windows of any length
            known.start, known.end = -math.inf, math.inf
            found = self.deployment()
        known.records = found.records
        return known.records

    def _beside(self, window: SealedWindow) -> tuple[Beside, ...]:
        """What else was published of the time of a window: other sketches, in the configuration or not, and revisions.

        Each is what its most expensive record is. States that were published under one place add up, each a sketch of
        its own.
        """
        from sketchstream.privacy.guarantee import Beside

        groups: dict[tuple[str, int, int], list[Record]] = {}
        places: Counter[object] = Counter()
        for record in self._records(window):
            number = places[record.place]
            places[record.place] += 1
            own = (record.name, record.revision, number) == (window.sketch, window.revision, 0)
            start, end = window.window if record.window is None else record.window
            if not own and start < window.window[1] and window.window[0] < end:
                groups.setdefault((record.name, record.revision, number), []).append(record)
        return tuple(
            Beside(
                name,
                max(one.event() for one in records),
                max(one.item() for one in records),
                min((one.window[1] - one.window[0] for one in records if one.window is not None), default=None),
            )
            for (name, _, _), records in sorted(groups.items())
        )

    def merged(self, windows: Sequence[SealedWindow]) -> tuple[Published, float]:
        """All these windows as one published object, and how far its error can grow against one window's.

        Raises:
            MergeError: histograms were published, or nothing.
        """
        from sketchstream.published import SealedState, stack
        from sketchstream.sketch import merge

        groups: dict[int, list[SealedState]] = {}
        for window in windows:
            for number, part in enumerate(window.parts):
                if not isinstance(part, SealedState):
                    msg = (
                        "--merge adds up states; these are histograms: give a longer window a sketch of its own, or "
                        "publish = 'state'"
                    )
                    raise MergeError(msg)
                at = part.origin.partition if part.origin.partition is not None else number
                groups.setdefault(at if self.config.input.partitioned_by != "none" else 0, []).append(part)
        if not groups:
            msg = "no window is published in that range"
            raise StoreError(msg)
        sums = [merge(parts) for _, parts in sorted(groups.items())]
        factor = max(
            gain(total) / gain(parts[0]) for total, (_, parts) in zip(sums, sorted(groups.items()), strict=True)
        )
        return (sums[0] if len(sums) == 1 else stack(sums)), factor

    def deployment(self, since: int | None = None, until: int | None = None) -> Deployment:
        """Everything that was published, of every revision, for the ledger."""
        from sketchstream.privacy.deployment import Deployment
        from sketchstream.published import Release, SealedState, read
        from sketchstream.stream.interfaces import SealedEntry

        limit = self.config.privacy.max_epsilon
        parts = [
            part
            for entry in self.source.read(None, since, until)
            if isinstance(entry, SealedEntry) and isinstance(part := read(entry.body), (Release, SealedState))
        ]
        keyed = self.config.checked or not self.config.from_kafka
        most = None if limit is None else Fraction(limit)
        return Deployment.of(parts, keyed=keyed, limit=most, budget=self.config.budget)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Windows]:
    """The published windows of a configuration file: of its topic if there is one, else of its folder."""
    from sketchstream.query.sealed import SealedReader
    from sketchstream_connectors.files.sealed import DirectorySealed

    config = clusters.load(path)
    directory = config.sealed_directory
    source: SealedSource
    if config.sealed_topic is not None:
        from sketchstream_connectors.kafka.worker import open_sealed

        source = open_sealed(config)
    else:
        assert directory is not None
        source = DirectorySealed(directory)
    reader = SealedReader(source, config.quality_rule)
    try:
        yield Windows(config, reader, source)
    finally:
        reader.close()


def gain(state: SealedState) -> float:
    """How far the inversion of this state's noise can stretch an error: at the worst frequency, over all layers."""
    from sketchstream.kinds.profile.estimate import laws

    epsilons = [float(layer.parameter) for layer in state.layers]
    if state.spec.modulus is not None:
        return 1 / laws.response_eigenvalue(epsilons, state.spec.modulus)
    return laws.gain(epsilons)


def moment(text: str | None, option: str) -> int | None:
    """Milliseconds since 1970 of an RFC 3339 time; None for None."""
    if text is None:
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        when = None
    if when is None or when.tzinfo is None:
        msg = f"{option} must be a time with its offset, such as 2013-01-01T00:00Z, found {text!r:.40}"
        raise ConfigError(msg)
    return round(when.timestamp() * 1000)
