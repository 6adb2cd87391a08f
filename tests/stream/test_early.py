"""Early answers: what is published of a window before it is sealed, and that it depends on the record sequence alone.

In: streams, configurations, a worker over ports in memory. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.streams import EPOCH, HOUR, MINUTE, Stream, at_least, exact, plan, rules, stream
from helpers.watermark_reference import Reference
from helpers.workers import TEXT, close_windows, config, driver, send
from sketchstream.errors import ConfigError
from sketchstream.privacy.ledgers.ledger import Ledger
from sketchstream.published import Release, read_published
from sketchstream.query.sealed import SealedReader
from sketchstream.query.windows import PublishedWindows
from sketchstream.stream.interfaces import Restored, SealedEntry
from sketchstream.stream.kernels import ADMITTED
from sketchstream.stream.state import work_pace
from sketchstream.stream.state.checkpoint import EARLY_FORMAT, MANIFEST_FORMAT, capture, restore
from sketchstream.stream.state.early_answers import EarlyReleases
from sketchstream.stream.state.partition import PartitionState
from sketchstream.stream.state.record_counter import RecordCounter
from sketchstream.stream.windows.calendar import LATEST_MS, NO_TIME
from sketchstream.stream.windows.plans import EarlyAnswers, SketchPlan
from sketchstream.stream.windows.quorum import MAXIMUM, Quorum
from sketchstream.testing.memory import MemorySealed

pytestmark = pytest.mark.filterwarnings(
    "ignore:epsilon above 10", "ignore::sketchstream.spec.NoPrivacyWarning", "ignore:.*NO PRIVACY"
)

WIDTH, SIZE = 10 * MINUTE, 16
EARLY = EarlyAnswers(2 * MINUTE, Fraction(30), 5)
EMITTED = TEXT.replace(
    'window = "1h"\nepsilon = 30', 'window = "1h"\nepsilon = 30\nemit_every = "30m"\nepsilon_early = 50'
)


def with_early(early: EarlyAnswers = EARLY) -> SketchPlan:
    made = plan("windows", "10m")
    return SketchPlan(made.name, made.spec, made.calendar, early=early)


def answers(state: PartitionState) -> list[SealedEntry]:
    return [one.entry for one in state.outbox.entries if one.entry.early is not None]


def shown(entry: SealedEntry) -> Release:
    found = read_published(entry.body)
    assert isinstance(found, Release)
    assert not found.final
    return found


def expected(s: Stream, lateness_ms: int, quorum: Quorum) -> dict[tuple[int, int], Counter[int]]:
    """Counts by window start and time of the early answer, record by record in Python."""
    mark, through = Reference(quorum, lateness_ms), NO_TIME
    windows: dict[int, Counter[int]] = {}
    found: dict[tuple[int, int], Counter[int]] = {}

    def emit(before: int) -> None:
        nonlocal through
        for start, counts in windows.items():
            due = [t for t in EARLY.times((start, start + WIDTH)) if through < t <= before]
            if due and start + WIDTH + lateness_ms > before:
                found[start, due[-1]] = counts.copy()
        through = max(through, before)

    for i in range(len(s)):
        t = int(s.times[i])
        before, verdict = mark.admit(t, int(s.stamps[i]), LATEST_MS)
        emit(before)
        start = t // WIDTH * WIDTH
        if verdict != ADMITTED or start + WIDTH + lateness_ms <= before:
            continue
        window = windows.setdefault(start, Counter())
        if s.valid[i] and s.items[i] < SIZE:
            window[int(s.items[i])] += 1
    emit(mark.value)
    return found


@pytest.mark.statistics
@given(
    seed=st.integers(0, 10**6),
    cuts=st.lists(st.integers(1, 399), max_size=12),
    lateness=st.integers(0, 4),
    quorum=st.sampled_from((MAXIMUM, Quorum(3, 15_000))),
    large=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_early_answers_are_a_function_of_the_record_sequence(
    seed: int, cuts: list[int], lateness: int, quorum: Quorum, large: bool
) -> None:
    s = stream(seed, 400, size=SIZE, step_ms=9000)
    truth = expected(s, lateness * MINUTE, quorum)
    before = work_pace.LARGE_SLOTS
    work_pace.LARGE_SLOTS = 1 if large else before
    try:
        state = PartitionState.fresh(rules(with_early(), lateness_ms=lateness * MINUTE, quorum=quorum), 0, 0, 1)
        for begin, end in pairwise([0, *sorted(set(cuts)), len(s)]):
            state.apply(s.chunk(begin, end))
    finally:
        work_pace.LARGE_SLOTS = before
    found = {(one.window[0], one.early): shown(one) for one in answers(state)}
    assert found.keys() == truth.keys()
    for place, part in found.items():
        for k in (1, 2, 3):
            assert exact(part, k) == at_least(truth[place], k), (place, k)


def test_a_restored_state_goes_on_with_its_early_answers() -> None:
    s = stream(5, 400, size=SIZE, step_ms=9000)
    made = rules(with_early(), lateness_ms=2 * MINUTE)
    state, all_at_once = PartitionState.fresh(made, 0, 0, 1), PartitionState.fresh(made, 0, 0, 1)
    all_at_once.apply(s.chunk(0, 400))
    seen: list[SealedEntry] = []
    held: dict[str, bytes] = {}
    formats = set()
    for begin in range(0, 400, 25):
        state.apply(s.chunk(begin, begin + 25))
        snapshot = capture(state)
        formats.add((snapshot.manifest["format"], bool(answers(state))))
        entries, frontiers = state.outbox.captured()
        blobs = {name: bytes(snapshot.blobs[name]) for name in snapshot.blobs}
        kept = {name: data for name, data in held.items() if name in snapshot.keep}
        held = kept | blobs
        state = restore(made, 0, Restored(snapshot.position, snapshot.manifest, dict(held)), 1)
        assert [one.body for one in answers(state)] == [one.body for one in entries if one.early is not None]
        seen += [one for one in entries if one.early is not None]
        state.published(entries, frontiers)
    assert formats == {(EARLY_FORMAT, True), (MANIFEST_FORMAT, False)}, "older releases would take them for sealed"
    assert [(one.key, exact(shown(one), 1)) for one in seen] == [
        (one.key, exact(shown(one), 1)) for one in answers(all_at_once)
    ]
    assert len({one.key for one in seen}) == len(seen) > 10


def test_the_ledger_of_a_window_has_every_early_answer_and_the_plan_says_it_before() -> None:
    made = with_early(EarlyAnswers(2 * MINUTE, Fraction(1, 10), 5))
    state = PartitionState.fresh(rules(made, lateness_ms=MINUTE), 0, 0, 1)
    s = stream(1, 300, size=SIZE, jitter_ms=1, step_ms=9000)
    state.apply(s.chunk(0, 300))
    state.seal(everything=True)
    planned = made.ledger
    assert isinstance(planned, Ledger)
    losses = Counter(len(read_published(one.entry.body).ledger.history.entries) for one in state.outbox.entries)  # type: ignore[union-attr]
    assert max(losses) == 5 + 2, "a layer, five releases and the seal"
    for one in state.outbox.entries:
        part = read_published(one.entry.body)
        assert isinstance(part, Release)
        assert part.ledger.loss() <= planned.loss()
    assert planned.loss() > with_early(EarlyAnswers(2 * MINUTE, Fraction(1, 1000), 5)).ledger.loss()


def test_early_answers_are_published_once_whatever_is_killed_and_the_final_one_replaces_them() -> None:
    d = driver(EMITTED)
    sent: list[tuple[int, int]] = []
    for minute in range(58):
        for item in range(5):
            at = EPOCH // HOUR * HOUR + HOUR + minute * MINUTE + item
            send(d, (minute + 7 * item) % 40, at)
            sent.append(((minute + 7 * item) % 40, at))
        d.clock.advance(1.1)
        d.worker.step(0.0)
        if minute % 5 == 2:
            d.kill()
        if minute % 7 == 3:
            d.run()
    d.run()
    bodies: dict[str, set[bytes]] = {}
    for one in d.publisher.log:
        bodies.setdefault(one.key, set()).add(one.body)
    assert all(len(found) == 1 for found in bodies.values())
    early = [one for one in d.publisher.log if one.early is not None]
    start = EPOCH // HOUR * HOUR + HOUR
    assert {one.early for one in early} == {start + 30 * MINUTE}
    reader = SealedReader(MemorySealed(d.publisher))
    assert list(reader.windows("hours")) == []
    (window,) = reader.windows("hours", early=True)
    assert (window.preliminary, window.complete, window.as_of) == (True, False, start + 30 * MINUTE)
    counted = Counter(item for item, at in sent if at < start + 30 * MINUTE)
    parts = sum(exact(part, 1) for part in window.parts)  # type: ignore[arg-type]
    assert at_least(counted, 1) <= parts <= 40
    fields = window.fields()
    assert (fields["preliminary"], fields["as_of"], fields["complete"]) == (True, "2023-11-14T23:30:00Z", False)
    assert window.describe() == "preliminary, as of 2023-11-14T23:30:00Z: 3 of 3 partitions"
    close_windows(d, start + 3 * HOUR)
    d.run()
    (window,) = reader.windows("hours", early=True)
    assert not window.preliminary
    assert "preliminary" not in window.fields()
    assert sum(exact(part, 2) for part in window.parts) == at_least(Counter(item for item, _ in sent), 2)  # type: ignore[arg-type]


def test_notebooks_and_the_ledger_see_early_answers() -> None:
    d = driver(EMITTED, partitions=1)
    start = EPOCH // HOUR * HOUR + HOUR
    for minute in range(40):
        send(d, minute, start + minute * MINUTE)
    d.run()
    source = MemorySealed(d.publisher)
    published = PublishedWindows(d.config, SealedReader(source), source)
    (window,) = published.every("hours", None, None)
    answer = json.loads(published.answer(window).to_json())
    assert answer["preliminary"] is True
    assert answer["as_of"] == "2023-11-14T23:30:00Z"
    assert answer["complete"] is False
    assert any("preliminary answers" in sentence for sentence in answer["guarantee"]["seen"])
    (record,) = [one for one in published.deployment().records if one.name == "hours"]
    assert len(record.ledger.history.entries) == 2, "the layer, and one release"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ('emit_every = "15m"', "belong together"),
        ("epsilon_early = 1", "belong together"),
        ('emit_every = "1h"\nepsilon_early = 1', "emit_every must be above 0 and shorter than the window"),
        ('emit_every = "10s"\nepsilon_early = 1', "at most 100 early answers of a window, found 360"),
        ('emit_every = "15m"\nepsilon_early = 1\npublish = "state"\nintrusion = false', "exactly what came in between"),
        ('emit_every = "15m"\nepsilon_early = 1\nevery = "15m"', "windows that hop"),
        ('emit_every = "15m"\nepsilon_early = 1\nkind = "gaussian"\ndelta = "1e-6"', "belongs to kind 'profile'"),
    ],
)
def test_what_cannot_be_published_early_is_refused_with_the_reason(more: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        config(TEXT.replace('window = "1h"\nepsilon = 30', f'window = "1h"\nepsilon = 1\n{more}'))


def test_budgets_and_limits_count_early_answers() -> None:
    small = TEXT.replace("epsilon = 30", "epsilon = 1")
    emitted = small.replace('window = "1h"', 'window = "1h"\nemit_every = "15m"\nepsilon_early = 2')
    limit = "[privacy]\nmax_epsilon = 3\n"
    assert config(small.replace("[store]", limit + "[store]")).sketches[1].early is None
    with pytest.raises(ConfigError, match=r"privacy\.max_epsilon = 3"):
        config(emitted.replace("[store]", limit + "[store]"))
    (_, plan_) = config(emitted).sketches
    assert plan_.early == EarlyAnswers(15 * MINUTE, Fraction(1, 2), 4)
    assert config(emitted.replace('lateness = "1m"', 'lateness = "0s"')).sketches[1].early == EarlyAnswers(
        15 * MINUTE, Fraction(2, 3), 3
    )


def test_a_chunk_boundary_that_decides_an_answer_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant: answers that are due inside a chunk wait for its end."""
    honest: Any = RecordCounter._count_with_early

    def whole(self: Any, *chunk: Any) -> Any:
        monkeypatch.setattr(EarlyReleases, "due", lambda *_: [])
        yield from honest(self, *chunk)

    monkeypatch.setattr(RecordCounter, "_count_with_early", whole)
    s = stream(5, 400, size=SIZE, step_ms=9000)
    state = PartitionState.fresh(rules(with_early(), lateness_ms=MINUTE), 0, 0, 1)
    state.apply(s.chunk(0, 400))
    assert len(answers(state)) < len(expected(s, MINUTE, MAXIMUM))
