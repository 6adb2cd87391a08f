"""The quality of a window: what is admitted is counted as such, losses show, and false alarms are as rare as said.

In: made-up streams; published counters with known noise. Out: verdicts. Touches: entropy.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction as F

import numpy as np
import pytest

import sketchstream as ss
from helpers.configurations import EVENTS_TOPIC
from helpers.streams import MINUTE, Oracle, plan, published, rules, spec, stream
from sketchstream.components import ADMITTED, TOTAL, Counter, Noise, find_counter
from sketchstream.config.loader import Config
from sketchstream.errors import ConfigError, DataLossError
from sketchstream.quality import Rule, Tolerance, judge, threshold
from sketchstream.query.evidence import partition_evidence, weigh
from sketchstream.stream.interfaces import Frontier, Restored
from sketchstream.stream.published.evidence import EvidenceNoise, PublishedEvidence, WindowNumbers
from sketchstream.stream.state.checkpoint import capture, restore
from sketchstream.stream.state.partition import PartitionState
from sketchstream.testing.driver import Driver
from sketchstream_connectors.files.publisher import decode_frontier, encode_frontier

pytestmark = pytest.mark.filterwarnings("ignore:epsilon above 10", "ignore:.*NO PRIVACY")

CONFIG = f"""{EVENTS_TOPIC}lateness = "5m"
idle = "1h"
{{input}}
[[sketch]]
name = "hourly"
window = "1h"
epsilon = 2
domain = {{{{ size = 5000 }}}}
{{unit}}
{{sketch}}
[quality]
{{quality}}
"""


def config(sketch: str = "", given: str = "", quality: str = "") -> str:
    unit = "" if "unit =" in sketch else 'unit = "event"'
    return CONFIG.format(sketch=sketch, unit=unit, input=given, quality=quality)


def packed_config(sketch: str = "") -> str:
    text = config(sketch, 'format = "packed"')
    return text.replace('item = "user"\n', "").replace('time = "ts"\n', "")


def noise(epsilons: dict[F, int]) -> tuple[Noise, ...]:
    return tuple(Noise("discrete-laplace", epsilon) for epsilon, times in epsilons.items() for _ in range(times))


def tails(draws: tuple[Noise, ...], reach: int) -> np.ndarray:
    """Pr[sum of the draws > q] for q = 0, 1, ..., by convolution."""
    t = np.arange(-reach, reach + 1)
    law = np.ones(1)
    for draw in draws:
        a = math.exp(-float(draw.parameter))
        law = np.convolve(law, (1 - a) / (1 + a) * a ** np.abs(t))
    middle = law.size // 2
    return law[middle + 1 :][::-1].cumsum()[::-1]


@pytest.mark.parametrize(
    ("epsilon", "parts", "alarm"), [(F(1), 1, 1e-3), (F(1), 1, 1e-5), (F(1), 4, 1e-3), (F(1, 4), 2, 1e-5)]
)
def test_the_threshold_is_the_exact_quantile_of_the_noise(epsilon: F, parts: int, alarm: float) -> None:
    counted = Counter(TOTAL, 0, noise({epsilon / 20: 2 * parts}))
    admitted = Counter(ADMITTED, 0, noise({F(1, 10): parts}))
    upper = tails(counted.noise + admitted.noise, int(60 / (epsilon / 20)))
    assert threshold(admitted, counted, alarm) == int(np.argmax(upper <= alarm))


def part(admitted: int, counted: int, parts: int = 1) -> ss.Release:
    """A release whose counters have these values."""
    made = ss.Sketch.create(spec(epsilon="1", epsilon_records="1/10", total_share="1/20")).seal()
    counters = (
        Counter(TOTAL, counted, noise({F(1, 20): 2 * parts})),
        Counter(ADMITTED, admitted, noise({F(1, 10): parts})),
    )
    return replace(made, counters=counters)


def test_losses_beyond_the_tolerances_show_and_smaller_ones_do_not() -> None:
    verdicts = {
        (100_000, 100_000): "good",
        (100_000, 99_400): "good",
        (100_000, 99_000): "warning",
        (100_000, 97_800): "warning",
        (100_000, 97_000): "incomplete",
        (100_000, 0): "incomplete",
        (100, 90): "too few",
        (100, -100): "warning",
        (-30, 10): "too few",
    }
    for (admitted, counted), verdict in verdicts.items():
        found = judge([part(admitted, counted)])
        assert found.verdict == verdict, (admitted, counted)
        shares = {(100_000, 99_400): 0.994, (100_000, 97_800): 0.978, (100_000, 0): 0.0, (100, 90): 0.9}
        if (admitted, counted) in shares:
            assert found.share.low <= shares[admitted, counted] <= found.share.high
            assert found.share.value == pytest.approx(shares[admitted, counted], abs=1e-3)
    found = judge([part(100_000, 97_000)])
    assert "97.0%" in found.reason
    assert found.share.low > 0.965
    assert found.share.high < 0.975
    strict = Rule(Tolerance(1e-4, 1e-3), Tolerance(2e-3, 1e-5))
    assert judge([part(100_000, 99_000)], strict).verdict == "incomplete"


def test_parts_add_up() -> None:
    assert judge([part(50_000, 48_500), part(50_000, 50_000)]).verdict == "warning"
    assert judge([part(50_000, 48_500), part(50_000, 48_500)]).verdict == "incomplete"


@pytest.mark.statistics
def test_false_alarms_are_as_rare_as_they_say() -> None:
    rng = np.random.default_rng(5)
    rule = Rule(Tolerance(0.01, 0.05), Tolerance(0.02, 1e-5))
    q = threshold(*(part(0, 0).counters[at] for at in (1, 0)), 0.05)
    n, a, b = 200_000, math.exp(-1 / 10), math.exp(-1 / 20)
    draws = [rng.geometric(1 - x, n) - rng.geometric(1 - x, n) for x in (a, b, b)]
    alarms = np.count_nonzero(0.99 * (10_000 + draws[0]) - (9900 + draws[1] + draws[2]) > q)
    assert 0.045 * n < alarms < 0.0515 * n  # the bound is nearly attained, and kept (5 standard deviations are .0024)
    assert rule.warn.alarm == 0.05


@pytest.mark.parametrize("misplaced", [True, False])
def test_what_is_tolerated_of_few_records_is_reported_as_rarely_as_it_says(misplaced: bool) -> None:
    """Half of 4 records may be lost, and 2 are: whatever noise the number of the 4 has, a report is a false alarm."""
    rule, window = Rule(refused=0.5), (0, MINUTE)

    def reported(admitted: int, lost: int) -> bool:
        shown = WindowNumbers(0 if misplaced else lost, 1, misplaced=lost if misplaced else 0)
        said = PublishedEvidence(EvidenceNoise(F(50), F(50)), windows={window: shown})
        found = {0: partition_evidence(Frontier("hourly", 0, 0, MINUTE, 1, 1, evidence=said), window)}
        judged = weigh(judge([part(admitted, 4)], rule), found, rule, keyed=True, counts=frozenset([0]))
        return judged.verdict == "incomplete"

    law = -np.diff(tails(noise({F(1, 10): 1}), 400))  # of noise by which the number is too small by 1, 2, ...
    assert sum(law[z] for z in range(300) if reported(4 - (z + 1), 2)) <= rule.incomplete.alarm
    assert reported(4, 4 + 150)
    assert reported(-300, 2), "a number that noise cannot explain tolerates nothing"


def test_misplaced_events_show_where_partitions_have_different_noise() -> None:
    """A configuration changes epsilon while the second partition has not opened the window yet."""
    window, shown = (0, MINUTE), {}
    for partition, lost in ((0, 0), (1, 400)):
        said = PublishedEvidence(
            EvidenceNoise(F(1), F(2 + partition)), windows={window: WindowNumbers(0, 1, misplaced=lost)}
        )
        shown[partition] = partition_evidence(Frontier("hourly", 0, partition, MINUTE, 2, 1, evidence=said), window)
    judged = weigh(judge([part(10_000, 10_000)]), shown, Rule(), keyed=True, counts=frozenset([0, 1]))
    assert judged.verdict == "incomplete"
    assert "do not belong" in judged.reason


def test_every_admitted_record_is_noted_in_its_window_however_chunks_are_cut() -> None:
    made = spec(epsilon_records="50", total_share="9/10")
    given = stream(7, 900)
    counts, _, _, _ = Oracle(MINUTE, MINUTE, 16).run(replace(given, valid=np.ones(900, bool), items=given.items * 0))
    wanted = {start: counter[0] for start, counter in counts.items()}
    kept, _, _, _ = Oracle(MINUTE, MINUTE, 16).run(given)
    for step in (1, 7, 900):
        state = PartitionState.fresh(rules(plan(made=made)), 0, 0, 1)
        for at in range(0, 900, step):
            state.apply(given.chunk(at, min(at + step, 900)))
        state.seal(everything=True)
        capture(state)
        found = published(state)
        assert {start: find_counter(one.counters, ADMITTED).value for (_, start), one in found.items()} == wanted
        for (_, start), one in found.items():
            assert find_counter(one.counters, TOTAL).value == sum(kept[start].values())


def test_counts_of_late_records_are_in_frontiers_and_survive_snapshots() -> None:
    made = spec(epsilon_records="50")
    given = stream(3, 600)
    _, late, _, _ = Oracle(MINUTE, MINUTE, 16).run(given)
    assert len(late) > 10
    common = rules(plan(made=made))
    state, blobs = PartitionState.fresh(common, 0, 0, 1), {}
    for at in range(0, 600, 100):
        state.apply(given.chunk(at, at + 100))
        snapshot = capture(state)
        blobs |= snapshot.blobs
        state = restore(common, 0, Restored(at + 100, snapshot.manifest, blobs), 1)
    state.touch()
    state.seal(everything=True)
    capture(state)
    ((_, frontiers),) = [state.outbox.captured()]
    assert [one.late for one in frontiers] == [len(late)]
    assert frontiers[0].late_draws > 1
    assert decode_frontier(encode_frontier(frontiers[0])) == frontiers[0]


@pytest.mark.parametrize(("after", "kept"), [("1/1000", True), ("50", False), ("0", False)])
def test_late_records_count_anew_when_their_noise_changes(after: str, kept: bool) -> None:
    """Readers know one epsilon for all draws: one of 1/1000 read as one of 50 would be a thousand late records."""
    state = PartitionState.fresh(rules(plan(made=spec(epsilon_records="1/1000"))), 0, 0, 1)
    state.sketch_states["minutes"].late.value = 10**6
    snapshot = capture(state)
    changed = rules(plan(made=spec(epsilon_records=after)))
    again = restore(changed, 0, Restored(0, snapshot.manifest, snapshot.blobs), 1)
    late = again.sketch_states["minutes"].late
    assert (late.value == 10**6) == kept
    assert late.draws == (1 if late.epsilon else 0)


def test_no_exact_number_of_late_records_is_kept() -> None:
    from sketchstream.stream.state.sketch_state import LateCount

    seen = {LateCount.for_plan(plan(made=spec(epsilon_records="1/10"))).value for _ in range(50)}
    assert len(seen) > 10
    count = LateCount.for_plan(plan(made=spec(epsilon_records="1/10")))
    before = [count.value, count.draw(), count.value][::2]
    assert count.draws == 2
    assert any(LateCount.for_plan(plan(made=spec(epsilon_records="1/10"))).value != before[0] for _ in range(50))
    silent = LateCount.for_plan(plan(made=spec()))
    silent.add(5)
    assert (silent.value, silent.draws) == (0, 0)


@pytest.mark.parametrize(("value", "complete"), [(None, True), ({"user": 1}, False)])
def test_tombstones_are_meant_for_no_window(value: object, complete: bool) -> None:
    """Without a value there is no event time in it; a value without one may be an event of any window."""
    driver = Driver(config(), partitions=2, now="2024-01-01T03:00:00Z")
    for number in range(2000):
        at = 1_704_067_200_000 + number * 1800
        driver.send({"user": number % 5000, "ts": at}, timestamp=at)
        if number % 3 == 0:
            driver.send(value, key=str(number % 5000).encode(), timestamp=at)
    driver.advance(hours=3)
    (window,) = driver.windows("hourly")
    assert window.whole
    assert window.complete is complete


def lossy(text: str, *, lost: float, events: int = 6000) -> Driver:
    """A driver that was sent an hour of events, some of them to a partition where their item does not belong."""
    driver = Driver(text, partitions=2, now="2024-01-01T03:00:00Z")
    for number in range(events):
        at = 1_704_067_200_000 + number * 3_600_000 // events
        user, wrong = number * 7 % 5000, number < lost * events
        home = driver._partition({"user": user, "ts": at}, None, str(user).encode())
        driver.send({"user": user, "ts": at}, partition=1 - home if wrong else home, timestamp=at)
    driver.advance(hours=3)
    return driver


def test_a_window_that_lost_records_is_not_complete_and_says_why() -> None:
    (good,) = lossy(config(), lost=0.0).windows("hourly")
    assert good.complete
    assert good.quality.verdict == "good"
    (bad,) = lossy(config(), lost=0.5).windows("hourly")
    assert bad.whole
    assert not bad.complete
    assert bad.quality.verdict == "incomplete"
    assert bad.fields()["quality"]["share_counted"]["value"] == pytest.approx(0.5, abs=0.1)
    assert "records were counted: more than 2% lost" in bad.describe()
    assert bad.quality.misplaced is not None
    assert bad.quality.misplaced.low <= 3000 <= bad.quality.misplaced.high
    json.dumps(bad.fields(), allow_nan=False)
    (mild,) = lossy(config(quality="incomplete = 0.9\nwarn = 0.8\nrefused = 0.9"), lost=0.5).windows("hourly")
    assert mild.complete


def test_a_sketch_has_tolerances_of_its_own() -> None:
    text = config(quality="warn_alarm = 0.01\nincomplete = 0.03")
    text += '[[sketch]]\nname = "few"\nunit = "event"\nwindow = "1h"\nepsilon = "1"\ndomain = { size = 100 }\n'
    text += "quality = { incomplete = 0.9, warn = 0.8 }\n"
    found = Config.parse(text)
    assert found.quality_rule("hourly") == Rule(Tolerance(0.005, 0.01), Tolerance(0.03, 1e-5))
    assert found.quality_rule("few") == Rule(Tolerance(0.8, 0.01), Tolerance(0.9, 1e-5))
    assert found.quality_rule("gone") == Rule()
    with pytest.raises(ConfigError, match="incomplete must be below 1"):
        Config.parse(text.replace("0.9", "1.5"))
    (bad,) = lossy(config("quality = { warn = 0.3 }"), lost=0.5).windows("hourly")
    assert not bad.complete
    (mild,) = lossy(config("quality = { incomplete = 0.9, warn = 0.8, refused = 0.9 }"), lost=0.5).windows("hourly")
    assert mild.complete


def test_an_item_unit_has_no_share_but_a_number_of_misplaced_items() -> None:
    text = config('unit = "item"\nmodulus = 16\nepsilon_misplaced = 2')
    (bad,) = lossy(text, lost=0.5, events=3000).windows("hourly")
    assert bad.complete is False
    assert "do not belong" in bad.quality.reason
    assert all(find_counter(part.counters, ADMITTED) is None for part in bad.parts)
    (good,) = lossy(text, lost=0.0, events=600).windows("hourly")
    assert good.complete is True
    assert (good.quality.verdict, good.quality.share) == ("good", None)
    assert judge(good.parts).unavailable
    (silent,) = lossy(text.replace("epsilon_misplaced = 2", "epsilon_misplaced = 0"), lost=0.5).windows("hourly")
    assert silent.complete is None
    assert silent.fields()["quality"]["verdict"] == "unknown"


def test_configurations_say_what_is_kept() -> None:
    (made,) = Config.parse(config()).sketches
    assert (made.spec.epsilon_records, made.spec.total_share, made.spec.counted) == (F(1, 10), F(1, 40), False)
    (weighted,) = Config.parse(config(given='weight = "n"')).sketches
    assert weighted.spec.counted
    (packed,) = Config.parse(packed_config()).sketches
    assert packed.spec.epsilon_records == 0
    with pytest.raises(ConfigError, match="packed"):
        Config.parse(packed_config('epsilon_records = "1/5"'))
    (chosen,) = Config.parse(config('total_share = "1/20"\nepsilon_records = "1/5"')).sketches
    assert (chosen.spec.total_share, chosen.spec.epsilon_records) == (F(1, 20), F(1, 5))
    (none,) = Config.parse(config("total_share = 0\nepsilon_records = 0", 'weight = "n"')).sketches
    assert (none.spec.total_share, none.spec.counted, none.spec.epsilon_records) == (0, False, 0)


def test_windows_that_were_opened_in_format_1_stay_in_it_until_they_are_sealed() -> None:
    from sketchstream import wire

    given = stream(5, 400)
    old = rules(plan(made=spec(total_share=0)))
    state = PartitionState.fresh(old, 0, 0, 2)
    state.apply(given.chunk(0, 60))
    for sketch_state in state.sketch_states.values():
        for window in sketch_state.windows.values():
            window.sketch.origin = replace(window.sketch.origin, partitions=(), partitions_open=2)
    snapshot = capture(state)
    names = [window.blob for sketch_state in state.sketch_states.values() for window in sketch_state.windows.values()]
    assert {wire.version_of(snapshot.blobs[name]) for name in names} == {1}
    opened = {start for sketch_state in state.sketch_states.values() for start in sketch_state.windows}
    manifest = {**snapshot.manifest, "format": 1}
    for fields in manifest["sketches"].values():
        del fields["late"], fields["late_draws"]
    again = restore(rules(plan(made=spec(epsilon_records="1"))), 0, Restored(60, manifest, snapshot.blobs), 2)
    for at in range(60, 400, 20):
        again.apply(given.chunk(at, at + 20))
        capture(again)
    found = {(start, wire.version_of(one.to_bytes())) for (_, start), one in published(again).items()}
    assert opened
    assert {version for start, version in found if start in opened} == {1}
    assert {version for start, version in found if start not in opened} == {2}


def test_a_snapshot_of_a_newer_version_halts_its_partition() -> None:
    state = PartitionState.fresh(rules(), 0, 0, 1)
    state.apply(stream(1, 50).chunk(0, 50))
    snapshot = capture(state)
    with pytest.raises(DataLossError, match="format 5"):
        restore(rules(), 0, Restored(50, {**snapshot.manifest, "format": 5}, snapshot.blobs), 1)
    newer = {name: bytes([*blob[:4], 4, *blob[5:]]) for name, blob in snapshot.blobs.items()}
    with pytest.raises(DataLossError, match="version 4"):
        restore(rules(), 0, Restored(50, snapshot.manifest, newer), 1)
