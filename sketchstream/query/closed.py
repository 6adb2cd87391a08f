"""Positions of a series that were published when they closed: joined over instalments and partitions, with answers.

In: a `SealedSource`. Out: `ClosedWindow`s, ascending, with the same answers as the later sealed window.
Touches: what the source reads. Readers need no key.
Source: docs/theory/convolution.md, section 8 (closed positions).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from sketchstream import kinds
from sketchstream.errors import DataLossError, FormatError
from sketchstream.instalment import Instalment
from sketchstream.published import Published
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream.topics import partition_numbers

if TYPE_CHECKING:
    from sketchstream.kinds.answers import Answers
    from sketchstream.stream.interfaces import Frontier, SealedEntry, SealedSource


@dataclass(frozen=True)
class ClosedWindow:
    """The positions of one window that have closed in all partitions.

    Args:
        sketch: name of the sketch.
        revision: revision of the sketches.
        window: [start, end), ms since 1970.
        positions: number of positions that have closed in all partitions.
        parts: instalments of each partition with any, ascending and without gaps.
    """

    sketch: str
    revision: int
    window: tuple[int, int]
    positions: int
    parts: tuple[tuple[Instalment, ...], ...] = field(repr=False)

    def estimate(self, before: Published | None = None) -> Answers:
        """All filters' answers at the closed positions: bit for bit those of the final state.

        Args:
            before: publication of the window before, of an equal spec: the first answers of filters that reach back
                into it are completed with it, and hold the noise of both; default: they are partial.
        """
        kind = kinds.closing_kind(self.parts[0][0].spec)
        assert kind is not None  # only sketches of such kinds have instalments
        answers: Answers = kind.closed_answers(self.parts, self.positions, before)
        return answers

    @property
    def products(self) -> int:
        """Number of products of coefficients and words that the answers need."""
        widths = [1 if filter_.level else len(filter_) for filter_ in self.parts[0][0].spec.filters]
        return sum(min(self.positions, width) * self.positions for width in widths)


def closed_windows(
    source: SealedSource, sketch: str, since: int | None = None, until: int | None = None, topics: int = 1
) -> Iterator[ClosedWindow]:
    """Find the windows with closed positions, ascending, of the newest revision.

    Args:
        source: source of publications.
        sketch: name of the sketch.
        since: start of the range of windows, ms since 1970; None: from the first.
        until: end of the range of windows, ms since 1970; None: to the last.
        topics: topics of the configuration.

    Raises:
        DataLossError: an incident: different publications of one position.
        FormatError: a publication cannot be read.
    """
    published = list(source.closed(sketch, since, until))
    revision = max((entry.revision for entry in published), default=0)
    frontiers = {frontier.partition: frontier for frontier in source.frontiers(sketch) if frontier.revision == revision}
    newest = [entry for entry in published if entry.revision == revision]
    for window, entries in groupby(sorted(newest, key=lambda entry: entry.window), key=lambda entry: entry.window):
        by_partition: dict[int, list[SealedEntry]] = {}
        for entry in entries:
            by_partition.setdefault(entry.partition, []).append(entry)
        parts = tuple(_run(by_partition[partition]) for partition in sorted(by_partition))
        yield ClosedWindow(sketch, revision, window, _positions(parts, window, frontiers, topics), parts)


def _run(entries: Sequence[SealedEntry]) -> tuple[Instalment, ...]:
    """Instalments of one partition in order, without repetitions.

    Raises:
        DataLossError: two of them contain the same position.
        FormatError: one is missing between others, or one does not match its key.
    """
    distinct = sorted({entry.body: entry for entry in entries}.values(), key=lambda entry: entry.positions or (0, 0))
    run = [Instalment.from_bytes(entry.body) for entry in distinct]
    stop = 0
    for instalment, entry in zip(run, distinct, strict=True):
        if (instalment.first, instalment.stop) != entry.positions or instalment.origin.partition != entry.partition:
            raise FormatError(f"what was published as {entry.key} says that it is something else")
        if instalment.first < stop:
            raise DataLossError(
                f"position {instalment.first} of {entry.key} was published twice, in different words: nothing of it is "
                "shown; find out where the second publication came from"
            )
        if instalment.first > stop:
            break  # a gap: later positions cannot be answered yet
        stop = instalment.stop
    return tuple(instalment for instalment in run if instalment.stop <= stop)


def _positions(
    parts: Sequence[Sequence[Instalment]], window: tuple[int, int], frontiers: dict[int, Frontier], topics: int
) -> int:
    """Number of positions that have closed in all partitions: those without instalments had no record."""
    spec = parts[0][0].spec
    stops = {run[0].origin.partition: run[-1].stop for run in parts if run}
    least = spec.positions_of(window)
    for partition in partition_numbers(
        ((frontier.partition, frontier.partitions) for frontier in frontiers.values()), topics
    ):
        if partition in stops:
            least = min(least, stops[partition])
            continue
        through = frontiers[partition].closed_through if partition in frontiers else NO_TIME
        passed = through if through == NO_TIME else min(through, window[1]) - window[0]
        least = min(least, max(0, passed) // spec.step_ms if passed != window[1] - window[0] else least)
    return int(least)
