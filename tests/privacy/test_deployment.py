"""The deployment's ledger: what adds over sketches, windows and partitions, and what does not.

In: records of made-up deployments. Out: verdicts. Touches: nothing.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from fractions import Fraction

import pytest

import sketchstream as ss
from sketchstream.errors import BudgetError
from sketchstream.kinds import initial_ledger
from sketchstream.privacy.deployments.deployment import Deployment, Record
from sketchstream.privacy.ledgers.ledger import Ledger
from sketchstream.privacy.ledgers.sketch_history import Promise
from sketchstream.privacy.losses.history import LayerEntry

F = Fraction
HOUR = 3_600_000
DAY = 24 * HOUR


def ledger(unit: str, epsilon: str, lineage: int = 0, releases: tuple[str, ...] = (), sealed: bool = True) -> Ledger:
    law = "discrete-laplace" if unit == "event" else "randomized-response"
    layer = LayerEntry(lineage.to_bytes(16, "big"), law, F(epsilon))
    made = Ledger.create(unit, 1, layer, Promise("histogram", F(epsilon)))
    for cost in releases:
        made = made.charge_release(F(cost))
    return made.charge_publication() if sealed else made


def record(
    name: str,
    start: int,
    length: int,
    partition: int,
    held: Ledger,
    *,
    revision: int = 0,
    counts: tuple[int, ...] = (),
    seal_id: bytes = b"",
) -> Record:
    return Record(name, revision, (start, start + length), partition, counts, held, seal_id)


def hourly(unit: str, hours: int, partitions: int, epsilon: str = "1/10") -> list[Record]:
    count = 0
    made = []
    for hour in range(hours):
        for partition in range(partitions):
            count += 1
            made.append(record("hourly", hour * HOUR, HOUR, partition, ledger(unit, epsilon, count)))
    return made


def test_an_event_pays_once_however_many_windows_and_partitions_there_are() -> None:
    assert Deployment.from_records(hourly("event", 48, 4)).total().event == F(1, 10)


def test_an_item_pays_in_every_window_and_in_one_partition_if_the_topic_is_keyed() -> None:
    records = hourly("item", 48, 4)
    total = Deployment.from_records(records).total()
    assert total.item == F(48, 10)
    assert total.item_zcdp == F(48, 200)
    assert Deployment.from_records(records, keyed=False).total().item == 4 * F(48, 10)
    days = Deployment.from_records(records).by_day()
    assert list(days) == ["1970-01-01", "1970-01-02"]
    assert all(day.item == F(24, 10) for day in days.values())


def test_an_item_pays_once_for_every_number_of_partitions_that_was_valid() -> None:
    def items(*counts: tuple[int, ...], **rest: bool) -> object:
        made = [ledger("item", f"{1 + p}/10", p) for p in range(len(counts))]
        records = [record("hourly", 0, HOUR, p, made[p], counts=one) for p, one in enumerate(counts)]
        return Deployment.from_records(records, **rest).total().item

    assert items((2,), (2,)) == F(2, 10)
    assert items((2, 4), (2, 4), (4,)) == F(3 + 2, 10)
    assert items((2, 4, 8), (2, 4, 8), (4, 8), (8,), (8,)) == F(5 + 4 + 3, 10)
    # sealed in the old partitions before new ones were added, which opened the same window: no header knows of both
    assert items((2,), (2,), (4,), (4,)) == F(4 + 3, 10)
    assert items((2,), (4,), keyed=False) == F(3, 10)
    assert items((2, 4)) == F(1, 10), "never more than there are parts"
    windows = [record("hourly", h * HOUR, HOUR, 0, ledger("item", "1", h), counts=(2 + h,)) for h in range(3)]
    assert Deployment.from_records(windows).total().item == 3, "another window is no repartitioning"


def test_sketches_on_one_topic_and_revisions_add_for_events() -> None:
    records = [
        record("hourly", 0, HOUR, 0, ledger("event", "1", 1)),
        record("hourly", HOUR, HOUR, 0, ledger("event", "2", 2)),
        record("day", 0, DAY, 0, ledger("event", "1/2", 3)),
        record("day", 0, DAY, 1, ledger("event", "5", 4)),
        record("hourly", 0, HOUR, 0, ledger("event", "1", 5), revision=1),
    ]
    # partition 0: hour 0: 1 + 1 + 1/2, hour 1: 2 + 1/2; partition 1: the day alone
    assert Deployment.from_records(records[:3]).total().event == F(5, 2)
    assert Deployment.from_records(records).total().event == F(5)
    assert Deployment.from_records([r for r in records if r.partition == 0]).total().event == F(5, 2)


def test_totals_of_events_equal_trying_every_instant() -> None:
    rng = random.Random(1)
    for _ in range(20):
        records = []
        for index in range(12):
            start = rng.randrange(10)
            length, partition = rng.randrange(1, 5), rng.randrange(2)
            held = ledger("event", f"{rng.randrange(1, 9)}/4", index)
            records.append(record(f"s{index}", start, length, partition, held))
        slow = max(
            sum((r.event() for r in records if r.window[0] <= t < r.window[1] and r.partition == p), F(0))  # type: ignore[index]
            for t in range(15)
            for p in range(2)
        )
        assert Deployment.from_records(records).total().event == slow


def test_releases_and_seal_of_one_sketch_are_one_growing_ledger() -> None:
    states = [
        ledger("event", "1", 7, ("1/10",), sealed=False),
        ledger("event", "1", 7, ("1/10", "1/5"), sealed=False),
        ledger("event", "1", 7, ("1/10", "1/5")),
    ]
    records = [record("hourly", 0, HOUR, 0, state) for state in states]
    for order in (records, records[::-1], [records[1], records[2], records[0], records[2]]):
        found = Deployment.from_records(order)
        assert len(found.records) == 1
        assert found.records[0].ledger == states[2]
        assert not found.conflicts()


def test_two_states_under_one_name_are_an_incident_and_add_up() -> None:
    one, two = ledger("item", "1", 1), ledger("item", "1", 2)
    found = Deployment.from_records([record("hourly", 0, HOUR, 0, one), record("hourly", 0, HOUR, 0, two)])
    assert len(found.conflicts()) == 1
    assert found.total().item == 2
    assert "INCIDENT" in str(found)


def test_files_without_a_name_are_different_sketches() -> None:
    records = [Record("", 0, None, None, (), ledger("event", "1", n)) for n in range(3)]
    found = Deployment.from_records(records)
    assert not found.conflicts()
    assert found.total().event == 3
    assert list(found.by_day()) == ["always"]


def test_items_have_no_bound_in_sketches_of_events_and_the_table_says_so() -> None:
    records = [*hourly("item", 2, 1), record("day", 0, DAY, 0, ledger("event", "1", 99))]
    found = Deployment.from_records(records, limit=F(3))
    assert found.unbounded_for_items() == ["day"]
    text = str(found)
    assert "one event loses at most 11/10" in text
    assert (
        'one item loses at most 1/5 by what it does in one UTC day and 1/5 over everything published of unit "item"\n'
        in text
    )
    assert "no bound on what one item loses to day: somebody with m events loses up to m times an event's loss" in text
    assert text.splitlines()[3:] == found.sentences()
    assert "the limit privacy.max_epsilon is 3" in found.sentences()
    assert "over everything published\n" in str(Deployment.from_records(hourly("item", 2, 1)))
    assert "not counted: other deployments" in text
    assert "privacy.max_epsilon is 3" in text


def test_events_are_not_counted_again_beyond_the_limit() -> None:
    event = ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=4))
    item = ss.ProfileSpec(epsilon="1/2", unit="item", modulus=8, domain=ss.ClosedDomain(size=4))
    found = Deployment.from_records(hourly("event", 2, 2, "2"), limit=F(3))
    with pytest.raises(BudgetError) as caught:
        found.require_room([initial_ledger(event), initial_ledger(item)])
    assert (caught.value.spent, caught.value.asked, caught.value.limit) == (F(2), F(3, 2), F(3))
    assert "events have lost up to 2 by what was published, and would lose 3/2 more" in str(caught.value)
    found.require_room([initial_ledger(event)])
    Deployment.from_records([], limit=F(1)).require_room([initial_ledger(event), initial_ledger(item)])
    Deployment.from_records(hourly("event", 2, 2, "2")).require_room([initial_ledger(event), initial_ledger(item)])


def test_plain_data_hold_every_ledger() -> None:
    found = Deployment.from_records(hourly("item", 2, 2)).to_dict()
    assert json.loads(json.dumps(found)) == found
    assert len(found["sketches"]) == 4
    assert found["total"] == {"event": "1/10", "event_zcdp": "1/200", "item": "1/5", "item_zcdp": "1/100"}


def test_an_empty_deployment_is_fine() -> None:
    found = Deployment.from_records([])
    assert found.total().event == 0
    assert "one event loses at most 0" in str(found)


def test_published_objects_carry_all_that_is_needed() -> None:
    spec = ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=16), publish="state", intrusion=False)
    sketch = ss.Sketch.create(spec)
    look = sketch.release("1/10")
    found = Deployment.of([look, sketch.seal()])
    assert len(found.records) == 1
    assert found.total().event == F(11, 10)


DAY = 86_400_000


@pytest.mark.parametrize(
    ("windows", "a_day"),
    [
        pytest.param([(start, start + 7) for start in range(10)], 7, id="a week, every day"),
        pytest.param([(0, 28), (7, 14), (14, 21)], 2, id="28 days and weeks that begin on other days"),
        pytest.param([(0, 365)], 1, id="a year"),
        pytest.param([(0.5, 1.5), (1.5, 2.5)], 2, id="days of another time zone"),
        pytest.param([None, (3, 4)], 2, id="a sketch without windows"),
        pytest.param([None], 1, id="nothing but a sketch without windows"),
    ],
)
@pytest.mark.parametrize("unit", ["event", "item"])
def test_a_day_counts_every_window_that_has_a_part_in_it(unit: str, windows: list[object], a_day: int) -> None:
    spans = [None if one is None else (int(one[0] * DAY), int(one[1] * DAY)) for one in windows]  # type: ignore[index]
    found = Deployment.from_records(
        Record(str(at), 0, span, 0, (1,), ledger(unit, "1/2", at)) for at, span in enumerate(spans)
    )
    days = found.by_day()
    if unit == "item":
        assert max(one.item for one in days.values()) == F(a_day, 2)
        assert f"loses at most {F(a_day, 2)} by what it does in one UTC day" in str(found)
    for day, total in days.items():
        begins = 0 if day == "always" else (dt.date.fromisoformat(day) - dt.date(1970, 1, 1)).days * DAY
        touching = [one for one in spans if one is None or (one[0] < begins + DAY and begins < one[1])]
        if unit == "item":
            assert total.item == F(len(touching), 2)
        else:
            instants = [begins, *(one[0] for one in touching if one is not None and one[0] >= begins)]
            most = max(sum(one is None or one[0] <= at < one[1] for one in touching) for at in instants)
            assert total.event == F(most, 2)
