"""The evidence about windows: noise from the start, laws of what is published, and the worker's own alarm.

In: made-up windows, items, counters. Out: published numbers. Touches: entropy.
"""

from __future__ import annotations

import json
from fractions import Fraction as F

import numpy as np
import pytest

from helpers.streams import EPOCH, HOUR, MINUTE, open_spec, plan, spec
from sketchstream.items.arrays import Items
from sketchstream.noise.laws import DiscreteLaplace
from sketchstream.privacy.deployments.publications import FrontierNoise
from sketchstream.query.evidence import PartitionEvidence, partition_evidence
from sketchstream.stream.interfaces import Frontier
from sketchstream.stream.monitoring.metrics import Metrics
from sketchstream.stream.published.evidence import (
    EvidenceNoise,
    PublishedEvidence,
    WindowNumbers,
    misplaced_law,
    misplaced_noise,
    noise_of_frontiers,
    refused_noise,
)
from sketchstream.stream.state.evidence import (
    MAX_FORMER_SETTINGS,
    MAX_WINDOWS_AHEAD,
    WINDOWS_KEPT,
    Evidence,
    due,
    windows_passed,
)
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream.stream.worker.log_lines import Recent, main_reason, published_reason

pytestmark = pytest.mark.filterwarnings("ignore:epsilon above 10", "ignore:.*NO PRIVACY")

WINDOW = (EPOCH, EPOCH + MINUTE)
EXACT = EvidenceNoise(F(50), F(50))


def times(*minutes: float) -> np.ndarray:
    return np.array([EPOCH + round(one * MINUTE) for one in minutes], np.int64)


def test_refused_records_count_for_the_window_of_their_time_and_are_published_again() -> None:
    found = Evidence(EXACT)
    found.open(*WINDOW)
    found.refuse(times(0.1, 0.2, 1.5), [WINDOW, (EPOCH + MINUTE, EPOCH + 2 * MINUTE)], NO_TIME)
    found.seal(plan(), EPOCH, EPOCH + MINUTE)
    said = found.report()
    assert said.windows == {WINDOW: WindowNumbers(2, 1, misplaced=0)}, "the second window is not sealed"
    found.refuse(times(0.3), [WINDOW], EPOCH + MINUTE)
    assert found.report().windows[WINDOW] == WindowNumbers(3, 2, misplaced=0)
    assert PublishedEvidence.read(json.loads(json.dumps(found.reported().fields()))) == found.reported()


def test_a_number_is_published_ever_more_rarely() -> None:
    assert [age for age in range(70) if due(age)] == [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]


def test_old_windows_keep_numbers_that_show_and_others_are_counted_together() -> None:
    found, made = Evidence(EXACT), plan()
    for minute in range(3 * WINDOWS_KEPT):
        end = EPOCH + (minute + 1) * MINUTE
        found.seal(made, end - MINUTE, end)
        if minute == 1:
            found.refuse(times(*[0.5] * 20), [WINDOW], end)
        found.report()
    said = found.reported()
    assert said.windows[WINDOW].refused == 20
    assert len(said.windows) == WINDOWS_KEPT + 1
    found.refuse(times(*[2.5] * 30), [(EPOCH + 2 * MINUTE, EPOCH + 3 * MINUTE)], EPOCH + 3 * WINDOWS_KEPT * MINUTE)
    for _ in range(20):
        said = found.report()
    assert said.older == 30


def test_one_wrong_clock_cannot_fill_the_state() -> None:
    found = Evidence(EXACT)
    found.open(*WINDOW)
    for minute in range(1, 500):
        span = (EPOCH + minute * MINUTE, EPOCH + (minute + 1) * MINUTE)
        found.refuse(times(minute + 0.5), [span], EPOCH)
    assert len(found.windows) == MAX_WINDOWS_AHEAD + 1
    assert WINDOW in found.windows


def test_windows_that_idleness_closed_are_contradicted_by_timestamps_alone() -> None:
    found = Evidence(EXACT)
    found.seal(plan(), EPOCH - 2 * MINUTE, EPOCH + MINUTE)
    assert not found.contradict(times(0.5), [(EPOCH, EPOCH + MINUTE)], 2 * MINUTE), "votes closed it later"
    assert not found.contradict(times(1.5), [(EPOCH, EPOCH + HOUR)], 2 * MINUTE), "written after it"
    assert found.contradict(times(0.5), [(EPOCH, EPOCH + HOUR)], 2 * MINUTE)
    found.report()
    assert [span for span, one in found.reported().windows.items() if one.contradicted] == [WINDOW]


def test_snapshots_continue_and_their_size_does_not_depend_on_numbers() -> None:
    sizes = set()
    for items in (0, 5000):
        for given in (EvidenceNoise(F(1, 10), F(1, 10)), EvidenceNoise(F(1, 10), F(1), 1024)):
            found = Evidence(given)
            found.open(*WINDOW)
            found.misplace(*WINDOW, Items.of(np.arange(items, dtype=np.int64)), 0, 2)
            found.refuse(times(*[0.5] * items), [WINDOW], NO_TIME)
            text = json.dumps(found.fields())
            again = Evidence(given)
            again.restore(json.loads(text), NO_TIME)
            assert again.fields() == found.fields()
            sizes.add((given.cells, len(text)))
    assert len(sizes) == 2


def changed(before: Evidence, given: EvidenceNoise, known: int) -> Evidence:
    """The evidence after a restart with another noise."""
    found = Evidence(given)
    found.restore(json.loads(json.dumps(before.fields())), known)
    return found


def told(found: Evidence, window: tuple[int, int]) -> PartitionEvidence:
    said = PublishedEvidence.read(json.loads(json.dumps(found.reported().fields())))
    assert said == found.reported() == PublishedEvidence.read(said.stored())
    return partition_evidence(Frontier("m", 0, 0, EPOCH + HOUR, 1, 1, evidence=said), window)


def test_windows_keep_the_noise_with_which_they_began() -> None:
    """One that is sealed, one that is open when the noise changes, one that opens later; each hears of late records."""
    spans = [(EPOCH + minute * MINUTE, EPOCH + (minute + 1) * MINUTE) for minute in range(3)]
    first = Evidence(EXACT)
    for span in spans[:2]:
        first.open(*span)
    first.seal(plan(), EPOCH, spans[0][1])
    first.report()
    later = EvidenceNoise(F(40), F(40), 1024)
    found = changed(first, later, spans[1][1])
    for span in spans[1:]:
        found.open(*span)
        found.misplace(*span, Items.of(np.arange(9, dtype=np.int64)), 0, 1)
    found.refuse(times(0.5, 1.5, 1.6, 2.5), spans, spans[0][1])
    found.seal(plan(), spans[0][1], spans[2][1])
    found = changed(changed(found, later, spans[2][1]), EvidenceNoise(), spans[2][1])
    found.report()
    shown = [told(found, span) for span in spans]
    assert [one.noise for one in shown] == [EXACT, EXACT, later]
    assert [one.shown and one.shown.refused for one in shown] == [1, 2, 1]
    assert [one.shown and one.shown.misplaced for one in shown] == [0, 9, 9]
    assert noise_of_frontiers([("m", found.reported())]) == {"m": FrontierNoise(F(50), F(50))}
    assert found.known >= {*spans}
    assert Evidence(EXACT).young_ms is None
    assert found.young_ms == MINUTE
    assert told(changed(Evidence(EXACT), EvidenceNoise(), EPOCH), (EPOCH + MINUTE, EPOCH + HOUR)).reason


def test_numbers_of_windows_before_a_change_are_kept_as_long_as_others() -> None:
    found = Evidence(EXACT)
    for minute in range(WINDOWS_KEPT):
        found.seal(plan(), EPOCH + minute * MINUTE, EPOCH + (minute + 1) * MINUTE)
        found.report()
    for number in range(9):
        before = len(found.former)
        found = changed(found, EvidenceNoise(F(40 + number), F(40)), EPOCH + WINDOWS_KEPT * MINUTE)
        assert len(found.former) == min(before + 1, MAX_FORMER_SETTINGS)
    assert told(found, WINDOW).reason, "too many changes ago"
    found = changed(Evidence(EXACT), EvidenceNoise(F(40)), EPOCH)
    found.former[0].seal(plan(), EPOCH - 2 * MINUTE, EPOCH)
    for minute in range(2 * WINDOWS_KEPT):
        found.seal(plan(), EPOCH + minute * MINUTE, EPOCH + (minute + 1) * MINUTE)
        found.report()
    assert not found.former[0].windows
    assert told(found, (EPOCH - MINUTE, EPOCH)) == PartitionEvidence("", EXACT)
    found.refuse(times(*[-0.5] * 30), [(EPOCH - MINUTE, EPOCH)], EPOCH + HOUR)
    for _ in range(20):
        found.report()
    assert "which is not known" in told(found, (EPOCH - MINUTE, EPOCH)).reason


def test_a_record_at_the_end_of_a_window_is_refused_by_the_next_one_alone() -> None:
    found, following = Evidence(EXACT), (EPOCH + MINUTE, EPOCH + 2 * MINUTE)
    for window in (WINDOW, following):
        found.open(*window)
    found.refuse(times(0, 1), [WINDOW, following], NO_TIME)
    assert [found.windows[window].refused for window in (WINDOW, following)] == [1, 1]


def test_the_law_of_misplaced_events_is_that_of_the_two_draws_of_each_window() -> None:
    """One from the beginning, one at seal; compared with what windows without misplaced events publish."""
    given, runs = EvidenceNoise(F(0), F(1, 5)), 3000
    published = []
    for _ in range(runs):
        found = Evidence(given)
        found.open(*WINDOW)
        found.seal(plan(), EPOCH, EPOCH + MINUTE)
        published.append(found.report().windows[WINDOW].misplaced)
    mean, variance = misplaced_law(given, 1)
    one = DiscreteLaplace(F(1, 5)).variance
    assert (mean, variance) == (0, pytest.approx(2 * one, rel=1e-9))
    assert misplaced_law(given, 7) == (0, pytest.approx(14 * one, rel=1e-9))
    spread = 5 * (3.5 / runs) ** 0.5  # a sum of two Laplace variables has kurtosis 9/2
    assert abs(np.var(published) / variance - 1) < spread
    assert abs(np.var(published) / one - 1) > spread
    assert abs(np.mean(published)) < 5 * (variance / runs) ** 0.5


def test_the_last_windows_of_a_plan_are_as_many_as_are_kept() -> None:
    through = EPOCH + 3 * WINDOWS_KEPT * MINUTE
    found = windows_passed(plan(), EPOCH, through)
    assert found == [(through - i * MINUTE, through - (i - 1) * MINUTE) for i in range(WINDOWS_KEPT, 0, -1)]
    assert windows_passed(plan(), through - 2 * MINUTE, through) == found[-2:]


@pytest.mark.statistics
@pytest.mark.parametrize(("items", "seen"), [(0, 0.0), (200, 1.0)])
def test_cells_follow_their_law_with_and_without_misplaced_items(items: int, seen: float) -> None:
    """Every window of 1,024 cells: mean and variance of the published number, to five standard errors."""
    given, runs = EvidenceNoise(F(1, 10), F(1), 1024), 400
    batch = Items.of(np.arange(items, dtype=np.int64))
    published = []
    for _ in range(runs):
        found = Evidence(given)
        found.open(*WINDOW)
        for _ in range(3):
            found.misplace(*WINDOW, batch, 0, 1)
        found.seal(plan(), EPOCH, EPOCH + MINUTE)
        published.append(found.report().windows[WINDOW].misplaced)
    mean, variance = misplaced_law(given, 1)
    from sketchstream.stream.input.partitioner import public_hashes

    cells = len(np.unique(public_hashes(batch) % np.uint64(1024)))
    expected = mean + cells * (1.0 - 2.0 / (1.0 + np.e))
    error = 5.0 * (variance / runs) ** 0.5
    assert abs(np.mean(published) - expected) < error
    assert abs(np.var(published) / variance - 1.0) < 5.0 * (2.0 / runs) ** 0.5 + 0.05
    assert (abs(np.mean(published) - mean) > error) == bool(seen), "the other law is refused"


def test_an_item_is_noted_in_one_partition_and_in_one_cell_however_many_records_it_has() -> None:
    noted = []
    for partition in range(4):
        found = Evidence(EvidenceNoise(F(50), F(50), 1024))
        found.open(*WINDOW)
        found.misplace(*WINDOW, Items.of(np.full(1000, 77, np.int64)), partition, 4)
        cells = found.windows[WINDOW].cells
        assert cells is not None
        noted.append(int(cells.sum()))
    assert sorted(noted) == [0, 0, 0, 1]


def test_noise_follows_from_the_sketch() -> None:
    assert (refused_noise(spec(epsilon="1/2")), refused_noise(spec(epsilon="4"))) == (F(1, 10), F(2, 5))
    assert misplaced_noise(spec(epsilon="2")) == 1, "two draws cost an event no more than being counted"
    item = open_spec(unit="item", modulus=16, max_count=12, epsilon="4")
    assert misplaced_noise(item) == F(2, 5)
    assert EvidenceNoise.for_plan(plan(made=item), checked=True).cells == 4096
    assert EvidenceNoise.for_plan(plan(made=item), checked=False).misplaced == 0
    assert EvidenceNoise.for_plan(None, checked=True) == EvidenceNoise()


def test_the_alarm_judges_the_last_minutes_not_a_life() -> None:
    metrics, recent = Metrics(), Recent()
    metrics.counters |= {"records": 10_000_000, "updates": 10_000_000}
    for _ in range(20):
        recent.note(metrics)
    assert main_reason(recent.counted(metrics)) is None
    metrics.counters |= {"records": 10_007_200, "updates": 10_004_503, "misplaced": 2697}
    found = main_reason(recent.counted(metrics))
    assert found is not None
    assert "37% of all records are misplaced" in found
    assert main_reason(metrics.exact()) is None, "over its life it is nothing"
    for _ in range(12):
        recent.note(metrics)
    assert main_reason(recent.counted(metrics)) is None


@pytest.mark.parametrize("given", [EXACT, EvidenceNoise(F(1), F(1), 1024)])
def test_published_numbers_raise_the_alarm_without_diagnostics(given: EvidenceNoise) -> None:
    mean, variance = misplaced_law(given, 1)

    def frontier(misplaced: float) -> Frontier:
        said = PublishedEvidence(given, windows={WINDOW: WindowNumbers(0, 1, misplaced=round(misplaced))})
        return Frontier("hourly", 0, 0, EPOCH + MINUTE, 1, 1, evidence=said)

    assert published_reason([frontier(mean)]) is None
    found = published_reason([frontier(mean), frontier(mean + 10 * variance**0.5 + 5)])
    assert found is not None
    assert "hourly" in found
    assert published_reason([Frontier("hourly", 0, 0, EPOCH, 1, 1)]) is None


def test_evidence_of_a_former_noise_holds_none_of_its_own() -> None:
    said: dict[str, object] = PublishedEvidence(EXACT).fields()
    for _ in range(5000):
        said = {**said, "former": [said]}
    assert PublishedEvidence.read(said) == PublishedEvidence(EXACT, former=(PublishedEvidence(EXACT),))
