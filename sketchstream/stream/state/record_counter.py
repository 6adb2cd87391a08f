"""Counts the records of a chunk in the windows of one partition.

In: events, verdicts on their records. Out: numbers of an `Outcome`; evidence about what was not counted. Touches: the
sketches of open windows; windows are opened and sealed through their `WindowLifecycle`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from sketchstream import kinds
from sketchstream.array_types import Flags, Ints
from sketchstream.items.events import Events
from sketchstream.stream import kernels
from sketchstream.stream.input.partition_counts import CountNeeded, Steps
from sketchstream.stream.input.partitioner import belongs
from sketchstream.stream.state.outcome import NO_INTS, Outcome
from sketchstream.stream.state.sketch_state import OpenWindow, SketchState
from sketchstream.stream.state.watermark import Admission
from sketchstream.stream.state.window_cover import covering, overlapping
from sketchstream.stream.state.window_lifecycle import WindowLifecycle
from sketchstream.stream.windows.plans import EarlyAnswers


class RecordCounter:
    """Counts records in the windows of all sketches of one partition.

    Args:
        lifecycle: opens and seals windows, and releases early answers between records.
        ask_partitions: asks for the partition count before a window is sealed.
    """

    def __init__(self, lifecycle: WindowLifecycle, ask_partitions: Callable[[], Steps[None]]) -> None:
        self._lifecycle = lifecycle
        self._ask_partitions = ask_partitions
        self._events_by_spec: dict[tuple[bytes, tuple[tuple[str, str], ...], tuple[int, int] | None], Events] = {}

    def count(
        self, states: Iterable[SketchState], events: Events, admission: Admission, outcome: Outcome
    ) -> Steps[None]:
        """Count the records of a chunk for all sketches."""
        for state in states:
            if state.plan is None or state.plan.early is None:
                yield from self._count(state, events, admission, outcome)
            else:
                yield from self._count_with_early(state, state.plan.early, events, admission, outcome)
        self._events_by_spec.clear()  # nothing of the records stays
        self._lifecycle.early.passed(int(admission.before[-1]))

    def _count(self, state: SketchState, events: Events, admission: Admission, outcome: Outcome) -> Steps[None]:
        """Count the records of a chunk in the windows of one sketch."""
        if state.overlapping:
            yield from self._count_overlapping(state, events, admission, outcome)
            return
        bounds, closing = covering(state, admission), self._lifecycle.closing
        windows, low, high = bounds.pairs, admission.low, admission.high
        yield from self._lifecycle.claim_opened(state, admission, windows)
        steps = [closing.step_ms(state, start) for start, _ in windows]
        if len(windows) == 1:
            start, end = windows[0]
            closes = closing.closes_at((start, end), low, steps[0] or end - start)
            if closes > admission.mark and end > state.progress.through and start <= low and high < end:
                window = yield from self._lifecycle.opening(state, start, end)
                if window is not None:
                    window.sketch.admit(int(np.count_nonzero(admission.admitted)))
                    yield from self._update(state, window, events, _usable(events, admission), outcome)
                return
        times, lateness_ms = admission.times, self._lifecycle.rules.lateness_ms
        places = np.empty(times.size, np.int32)
        used = np.zeros(len(windows), np.bool_)
        n_late = kernels.place(
            times, admission.before, admission.verdict, *bounds, lateness_ms, state.progress.through, places, used
        )
        n_late += closing.refuse(admission, places, used, bounds, steps)
        if n_late:
            late = (places == kernels.LATE) & (times >= state.opening.before_sketch)
            if state.plan is not None or state.windows:
                self._note_late(state, admission, late, outcome)
            state.evidence.refuse(times[places == kernels.LATE], state.holding(times[late]), state.progress.through)
        for index in np.flatnonzero(used).tolist():
            window = yield from self._lifecycle.opening(state, *windows[index])
            if window is not None:
                yield from self._take(state, window, events, admission, places, index, outcome)

    def _count_with_early(
        self, state: SketchState, early: EarlyAnswers, events: Events, admission: Admission, outcome: Outcome
    ) -> Steps[None]:
        """Count the records of a chunk, and release early answers between them, where the watermark passed their time.

        An answer that is due at a watermark holds the records before the one that comes at that watermark: it is a
        function of the sequence of records, however that is divided into chunks.
        """
        first, n = 0, admission.times.size
        for index, due in [*self._lifecycle.early.due(state, early, admission), (n, [])]:
            part = admission.between(first, index)
            if part is not None:
                yield from self._count(state, events, part, outcome)
            first = index
            for start, time_ms in due:
                yield from self._lifecycle.early.release(state, early, start, time_ms, int(admission.before[index]))

    def _count_overlapping(
        self, state: SketchState, events: Events, admission: Admission, outcome: Outcome
    ) -> Steps[None]:
        """Count the records of a chunk in overlapping windows: each record in every window that holds its time.

        A record that is late for any of them is counted as late once.
        """
        times, before, lateness = admission.times, admission.before, self._lifecycle.rules.lateness_ms
        places = np.empty(times.size, np.int32)
        late = np.zeros(times.size, np.bool_)
        windows = overlapping(state, admission)
        yield from self._lifecycle.claim_opened(state, admission, windows)
        former, admitted = state.evidence.known.difference(windows), admission.admitted
        if any(start <= admission.high and admission.low < end for start, end in former):
            state.evidence.refuse(times[admitted], former, state.progress.through)
        for start, end in overlapping(state, admission):
            if end <= state.opening.before_sketch:
                continue
            n = kernels.inside(
                times, before, admission.verdict, start, end, lateness, state.progress.through, places, late
            )
            window = (yield from self._lifecycle.opening(state, start, end)) if n else None
            if window is not None:
                yield from self._take(state, window, events, admission, places, 0, outcome)
            inside = admitted & (times >= start) & (times < end)
            refused = inside & (places == kernels.OUT)
            state.evidence.refuse(times[refused], [(start, end)], state.progress.through)
        self._note_late(state, admission, late, outcome)

    @staticmethod
    def _note_late(state: SketchState, admission: Admission, late: Flags, outcome: Outcome) -> None:
        """Count late records; those of windows from before the sketch are not among them."""
        n_late = int(np.count_nonzero(late))
        if n_late:
            outcome.late[state.name] = outcome.late.get(state.name, 0) + n_late
            admission.late |= late
            state.late.add(n_late)

    def _take(
        self,
        state: SketchState,
        window: OpenWindow,
        events: Events,
        admission: Admission,
        places: npt.NDArray[np.int32],
        index: int,
        outcome: Outcome,
    ) -> Steps[None]:
        """Count the records of a chunk that were placed in one window.

        Windows come in ascending order, and each is sealed at once if the chunk's last watermark closes it: however
        long a chunk is, no more windows are open at a time than the lateness requires.
        """
        window.sketch.admit(int(np.count_nonzero(places == index)))
        record, chosen = events.record, np.empty(len(events), np.bool_)
        n = kernels.choose(
            NO_INTS if record is None else record, record is not None, events.valid, places, index, chosen
        )
        if n:
            yield from self._update(state, window, events, chosen, outcome)
        if window.end + self._lifecycle.rules.lateness_ms <= admission.mark:
            yield from self._ask_partitions()
            yield from self._lifecycle.sealing(state, window)
            outcome.sealed += 1

    def _update(
        self, state: SketchState, window: OpenWindow, events: Events, chosen: Flags | Ints | None, outcome: Outcome
    ) -> Steps[None]:
        """Add valid occurrences to one sketch; misplaced ones, and those that its kind cannot use, do nothing."""
        fields = state.fields(window.sketch.spec)
        if fields is None:
            return  # the window was marked as one that lacks records when the snapshot was read
        counted = self._counted_by(window, fields, events)
        if counted.good is not None:
            chosen = counted.good if chosen is None else chosen & counted.good
        if chosen is not None and not chosen.any():
            return
        if self._lifecycle.rules.partitioner is not None:
            items = events.items if chosen is None else events.items.take(chosen)
            here = belongs(items, self._lifecycle.rules.partitioner, window.counts, self._lifecycle.partition)
            n_away = len(items) - int(np.count_nonzero(here))
            fresh_count = (yield from self._lifecycle.counts.ask(CountNeeded.ITEMS)) if n_away else None
            if fresh_count is not None and fresh_count > window.counts[-1]:
                # for these items only: what is remembered must not depend on a payload
                counts = (*window.counts, fresh_count)
                here = belongs(items, self._lifecycle.rules.partitioner, counts, self._lifecycle.partition)
                if len(items) - int(np.count_nonzero(here)) < n_away:
                    self._lifecycle.slots.fit(window, counts)
                n_away = len(items) - int(np.count_nonzero(here))
            if n_away:
                outcome.misplaced += n_away
                away, at = items.take(~here), (window.start, window.end)
                state.evidence.misplace(*at, away, self._lifecycle.partition, window.counts[-1])
                places = np.flatnonzero(here)
                chosen = places if chosen is None else np.flatnonzero(chosen)[places]
        items_here, weights = counted.items, counted.weights
        if chosen is not None:
            items_here = items_here.take(chosen)
            weights = None if weights is None else weights[chosen]
        if len(items_here):
            window.sketch.update(items_here, weights, invalid="noop")
            outcome.updates += len(items_here)

    def _counted_by(self, window: OpenWindow, fields: Mapping[str, str], events: Events) -> Events:
        """The events as the kind of a sketch counts them; made once for all windows, unless they depend on the window.

        Args:
            window: open window of the sketch.
            fields: role -> field of the record, as `SketchPlan.fields`.
            events: events of the chunk.
        """
        spec, bounds = window.sketch.spec, (window.start, window.end)
        intake = kinds.kind_of(spec).intake
        depends = intake.stretch_ms(spec) is not None
        name = (spec.fingerprint, tuple(fields.items()), bounds if depends else None)
        if name not in self._events_by_spec:
            columns = {role: events.columns[field] for role, field in fields.items()}
            self._events_by_spec[name] = intake.events(spec, replace(events, columns=columns, window=bounds))
        return self._events_by_spec[name]


def _usable(events: Events, admission: Admission) -> Flags | None:
    """(u,) events that are valid, of admitted records; None: all are."""
    admitted = admission.admitted
    usable = events.valid & (admitted if events.record is None else admitted[events.record])
    return None if usable.all() else usable
