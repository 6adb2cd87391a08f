"""The ledger by kinds of windows says what the ledger of every record says.

In: random deployments. Out: verdicts. Touches: nothing.
"""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from sketchstream.config.budget import Budget
from sketchstream.privacy.deployments.census import Census
from sketchstream.privacy.deployments.deployment import Deployment, Record
from sketchstream.privacy.deployments.publications import FrontierNoise
from sketchstream.privacy.ledgers.gaussian_ledger import GaussianLedger
from sketchstream.privacy.ledgers.ledger import Ledger
from sketchstream.privacy.ledgers.sketch_history import Promise
from sketchstream.privacy.losses.gaussian import UnitShift
from sketchstream.privacy.losses.history import LayerEntry
from sketchstream.stream.windows.calendar import Calendar, Width

F = Fraction
HOUR = 3_600_000
BUDGET = Budget(F(3), Calendar(Width(1, "day"), "America/New_York"), F(1, 10**6))
PURE = replace(BUDGET, delta=None)
COST = UnitShift.of(1, 1).cost(F(9165, 512))
# Name, unit, length in hours, step in hours, whether noise is Gaussian.
SKETCHES = (
    ("users", "item", 1, 1, False),
    ("visits", "event", 1, 1, False),
    ("sliding", "item", 6, 1, False),
    ("days", "item", 24, 24, False),
    ("orders", "item", 2, 2, True),
    ("sums", "event", 3, 3, True),
)


def ledger(unit: str, gaussian: bool, number: int, epsilon: Fraction) -> Any:
    name = number.to_bytes(16, "big")
    if gaussian:
        made = GaussianLedger.create(
            unit, LayerEntry(name, "discrete-gaussian", COST), Promise("fresh", COST), UnitShift.of(1, 1)
        )
        return made.charge_publication((1 << 64 | number).to_bytes(16, "big"))
    law = "discrete-laplace" if unit == "event" else "randomized-response"
    return Ledger.create(unit, 1, LayerEntry(name, law, epsilon), Promise("histogram", epsilon)).charge_publication()


def deployment(seed: int) -> list[Record]:
    """Some days: partitions are missing or added here and there, an epsilon changes, a sketch begins anew."""
    random_ = random.Random(seed)
    records = []
    for name, unit, length, step, gaussian in SKETCHES:
        hours = random_.choice((0, 5, 30, 50))
        for start in range(0, hours, step):
            partitions = 4 if start > 40 else 3
            counts = (3, 4) if start in (39, 40) else (partitions,)
            for partition in range(partitions):
                if random_.random() < 0.1:
                    continue
                epsilon = F(1, 10) if start < 45 else F(1, 7)
                revision = int(start > 20 and random_.random() < 0.05)
                held = ledger(unit, gaussian, len(records) + 1, epsilon)
                window = (start * HOUR, (start + length) * HOUR)
                records.append(Record(name, revision, window, partition, counts, held, b"%d" % len(records)))
    return records


def counted(records: list[Record], **said: Any) -> Census:
    """The same by kinds; records that share their noise or their place are kinds of their own."""
    kept = Deployment.from_records(records).records
    places: dict[Any, list[Record]] = {}
    for one in kept:
        places.setdefault((one.name, one.revision, one.window), []).append(one)
    windows, kinds = [], {}
    for (name, revision, window), found in places.items():
        alike = tuple((one.partition, one.counts, one.event(), one.item(), one.mu.mu2) for one in found)
        apart = any(one.copies or one.conflicts for one in found)
        kind = (name, revision, window if apart else alike)
        windows.append((kind, window))
        kinds.setdefault(kind, found)
    return Census.count(windows, kinds, **said)


@pytest.mark.parametrize(("seed", "keyed"), [(0, True), (1, False), (2, True)])
def test_kinds_say_what_all_records_say(seed: int, keyed: bool) -> None:
    records = deployment(seed)
    said: dict[str, Any] = {"keyed": keyed, "limit": F(5), "budget": BUDGET}
    every, some = Deployment.from_records(records, **said), counted(records, **said)
    assert some.summary() == every.summary()
    assert some.rows() == every.rows()
    assert str(some) == str(every)
    assert len(some.records) < max(2, len(every.records))


def test_incidents_are_said_with_the_places_of_their_own() -> None:
    records = [one for one in deployment(3) if one.name != "days"]
    twin = records[5]
    copy = replace(twin, window=(500 * HOUR, 501 * HOUR), seal_id=b"copy")
    held = ledger(records[9].ledger.unit, records[9].gaussian, 10**6, F(1, 3))
    other = replace(records[9], ledger=held, seal_id=b"other")
    every, some = (make([*records, copy, other]) for make in (Deployment.from_records, counted))
    assert every.copied()
    assert every.conflicts()
    assert some.summary() == every.summary()
    assert str(some) == str(every)
    assert sorted(one.place for one in some.copied()) == sorted(one.place for one in every.copied())


def test_a_long_time_is_counted_by_few_records() -> None:
    held = ledger("item", False, 0, F(1, 100))
    kind = ("users", 0, "all")
    windows = [(kind, (hour * HOUR, (hour + 1) * HOUR)) for hour in range(20_000)]
    some = Census.count(windows, {kind: [Record("users", 0, (0, HOUR), 0, (1,), held)]}, budget=PURE)
    assert some.total().item == 200
    assert some.total().event == F(1, 100)
    assert some.period() == (F(1, 100), F(1, 4))  # the day in autumn has 25 hours
    assert some.rows()[0]["windows"] == "20000"


def test_without_windows_nothing_is_lost() -> None:
    every, none = Deployment.from_records([]), Census.count([], {})
    assert none.total() == every.total()
    assert none.total().event == 0
    assert none.rows() == every.rows()


def test_windows_of_one_sketch_whose_ledgers_differ_are_windows_of_one_sketch() -> None:
    """A record that is late for windows of two ledgers, and of two sketches, is refused by one window of each."""
    noise = {"a": FrontierNoise(refused=F(1, 10)), "b": FrontierNoise(refused=F(1, 7))}
    held = [ledger("event", False, number, epsilon) for number, epsilon in enumerate((F(1), F(1, 2), F(1)))]
    records = [
        Record(name, 0, (hour * HOUR, (hour + 1) * HOUR), 0, (1,), one, b"%d" % hour)
        for (name, hour), one in zip((("a", 0), ("a", 1), ("b", 0)), held, strict=True)
    ]
    every = Deployment.from_records(records, evidence=noise)
    some = counted(records, evidence=noise)
    assert len(some.kinds) == 3
    assert some.total().record == every.total().record == F(1, 10) + F(1, 7)
