"""Deployments and budgets with sketches of pure and of Gaussian noise: each in its measure, and both together.

In: records and plans of made-up deployments. Out: verdicts. Touches: nothing.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest

from sketchstream.config import budget
from sketchstream.config.budget import Budget, PlannedLoss
from sketchstream.config.loader import Config
from sketchstream.errors import BudgetError, ConfigError
from sketchstream.privacy.deployments.deployment import Deployment, Record
from sketchstream.privacy.ledgers.gaussian_ledger import GaussianLedger
from sketchstream.privacy.ledgers.ledger import Ledger
from sketchstream.privacy.ledgers.sketch_history import Promise
from sketchstream.privacy.losses.composition import Losses, compose
from sketchstream.privacy.losses.gaussian import GaussianLoss, UnitShift
from sketchstream.privacy.losses.history import LayerEntry
from sketchstream.privacy.losses.zcdp import to_approximate
from sketchstream.stream.windows.calendar import Calendar, Width

F = Fraction
HOUR = 3_600_000
DELTA = "1e-6"
COST = F(512, 9165)
"""mu^2 of (1, 1e-6)."""


def gaussian(lineage: int, unit: str = "event", *, sealed: bool = True, cost: Fraction = COST) -> GaussianLedger:
    layer = LayerEntry(lineage.to_bytes(16, "big"), "discrete-gaussian", cost)
    made = GaussianLedger.create(unit, layer, Promise("bare"), UnitShift.of(1, 1, [(1,)]))
    return made.charge_publication() if sealed else made


def pure(lineage: int, unit: str = "event", epsilon: str = "1/10") -> Ledger:
    law = "discrete-laplace" if unit == "event" else "randomized-response"
    made = Ledger.create(unit, 1, LayerEntry(lineage.to_bytes(16, "big"), law, F(epsilon)), Promise("bare"))
    return made.charge_publication()


def record(name: str, hour: int, held: Ledger | GaussianLedger) -> Record:
    return Record(name, 0, (hour * HOUR, (hour + 1) * HOUR), 0, (1,), held, name.encode() + hour.to_bytes(2, "big"))


def mixed(unit: str, hours: int = 24) -> Deployment:
    return Deployment.from_records(
        [record("orders", hour, gaussian(hour + 1, unit)) for hour in range(hours)]
        + [record("users", hour, pure(1000 + hour, unit)) for hour in range(hours)]
    )


def test_events_pay_one_window_of_each_sketch_in_each_measure() -> None:
    total = mixed("event").total()
    assert total.event == F(1, 10)
    assert total.event_gaussian.mu2 == COST
    together = total.event_at(DELTA)
    one = gaussian(1).loss()
    assert together.by == "basic composition"
    assert together.epsilon >= 0.1 + total.event_gaussian.epsilon(DELTA)
    assert 1.0 < total.event_gaussian.epsilon(DELTA) < 1.02, "the lattice's price; exactly (1, 1e-6) for one sketch"
    assert one.epsilon(DELTA) <= 1


def test_items_pay_every_window_in_each_measure_and_mu_squared_adds() -> None:
    total = mixed("item").total()
    assert total.item == F(24, 10)
    assert total.item_gaussian.mu2 == 24 * COST
    assert total.item_gaussian.epsilon(DELTA) < 24 * gaussian(1, "item").loss().epsilon(DELTA)
    days = mixed("item", 30).by_day()
    assert [day.item_gaussian.mu2 / COST for day in days.values()] == [24, 6]


def test_the_tighter_composition_is_said() -> None:
    many = compose(F(30), F(300, 200), GaussianLoss.none(), DELTA)
    assert many.by == "zCDP"
    assert many.epsilon == pytest.approx(to_approximate(F(3, 2), 1e-6))
    few = compose(F(1, 10), F(1, 200), GaussianLoss.none(), DELTA)
    assert (few.by, few.epsilon) == ("basic composition", pytest.approx(0.1))
    total = mixed("item", 200).total()
    both = total.item_at(DELTA)
    assert both.by == "zCDP"
    smoothed = total.item_gaussian.smoothed
    expected = min(
        to_approximate(total.item_zcdp + bound.mu2 / 2, 1e-6 * math.exp(-bound.kappa)) + 2 * bound.kappa
        for bound in smoothed
    )
    assert both.epsilon == pytest.approx(expected)
    assert both.epsilon < float(total.item) + total.item_gaussian.epsilon(DELTA)
    assert "by zCDP" in str(both)


def test_the_ledger_prints_and_writes_both_measures() -> None:
    found = mixed("item")
    text = str(found)
    assert "one item loses at most mu^2 4096/3055, (epsilon " in text
    assert "in all sketches counted in mu^2 together" in text
    assert "in all sketches of both measures" in text
    assert "one event loses at most 1/10 in all sketches of pure epsilon together" in text
    data = json.loads(json.dumps(found.to_dict()))
    assert data["total"]["item_gaussian"]["mu2"] == "4096/3055"
    assert data["total"]["item_together"]["by"] in ("basic composition", "zCDP")
    held = [one for one in data["sketches"] if one["sketch"] == "orders"]
    assert held[0]["gaussian"]["mu2"] == str(COST)
    assert held[0]["event"] == "unlimited"
    rows = {row["sketch"]: row for row in found.rows()}
    assert rows["orders"]["one window"].startswith("(epsilon 1, delta 1e-06; lattice correction +")
    alone = Deployment.from_records([record("users", 0, pure(1, "item"))])
    assert set(alone.total().to_dict()) == {"event", "event_zcdp", "item", "item_zcdp"}
    assert "Gaussian" not in str(alone)


def test_copies_of_a_gaussian_state_are_an_incident_without_an_epsilon() -> None:
    layer = LayerEntry(b"n" * 16, "discrete-gaussian", COST)
    made = GaussianLedger.create("event", layer, Promise("fresh", COST), UnitShift.of(1, 1))
    records = [
        Record("orders", 0, (0, HOUR), 0, (1,), made.charge_publication(bytes([n]) * 16), bytes([n])) for n in range(2)
    ]
    found = Deployment.from_records(records)
    assert len(found.copied()) == 1
    assert found.total().event_gaussian.mu2 == 2 * COST
    assert found.total().event_gaussian.epsilon(DELTA) == math.inf
    assert "together they cost an event mu^2 1024/9165" in str(found)


# Budgets.


def plan(name: str, unit: str, ledger: Ledger | GaussianLedger) -> PlannedLoss:
    assert ledger.unit == unit
    return PlannedLoss(name, Calendar(Width(60, "minute"), "UTC"), ledger)


def limit(epsilon: str, delta: str | None) -> Budget:
    return Budget(F(epsilon), Calendar(Width(1, "day"), "UTC"), None if delta is None else F(delta))


def test_a_budget_with_a_delta_counts_gaussian_windows_by_mu_squared() -> None:
    plans = [plan("orders", "item", gaussian(1, "item", sealed=False))]
    day = GaussianLoss.none()
    for _ in range(24):
        day = day + plans[0].ledger.loss()
    used = float(budget.item_losses(plans, limit("9", DELTA).period).epsilon(F(DELTA)))
    assert used == pytest.approx(day.epsilon(DELTA), rel=1e-9)
    assert 5 < used < 9
    assert budget.require(limit("9", DELTA), plans).startswith("an item loses at most 5.885 of")
    with pytest.raises(ConfigError, match=r"an item could lose 5\.885 .*orders 24 times 1.*\(epsilon 5, delta 1e-06\)"):
        budget.require(limit("5", DELTA), plans)
    with pytest.raises(ConfigError, match="Gaussian noise needs a delta"):
        budget.require(limit("9", None), plans)


def test_a_budget_with_a_delta_counts_pure_windows_by_zcdp_where_that_is_less() -> None:
    head = '[input]\nfile = "e.jsonl"\nitem = "u"\ntime = "t"\n[key]\nfile = "k"\n[privacy]\n'
    sketch = (
        '[[sketch]]\nname = "h"\nwindow = "1h"\nepsilon = "1/3"\nunit = "item"\ndomain = { slots = 1024, levels = 4 }\n'
    )

    def check(table: str) -> str | None:
        return Config.parse(f"{head}budget = {table}\n{sketch}", "/etc/c.toml", {}).check_budget()

    assert check('{ epsilon = "8", per = "1d" }') == "an item loses at most 8 of 8 per 1d"
    said = check('{ epsilon = "8", delta = "1e-3", per = "1d" }')
    rho = F(24, 18)
    expected = to_approximate(rho, 1e-3)
    assert said is not None
    assert float(said.split()[5]) == pytest.approx(expected, rel=1e-3)
    assert said.endswith("of (epsilon 8, delta 0.001) per 1d")
    with pytest.raises(ConfigError, match=r"above privacy\.budget"):
        check('{ epsilon = "6", delta = "1e-3", per = "1d" }')
    with pytest.raises(ConfigError, match=r"privacy.budget.delta must be in \[1e-300, 0.5\]"):
        check('{ epsilon = "8", delta = "0.6", per = "1d" }')


def test_what_was_published_and_what_would_be_counted_again_are_composed_together() -> None:
    records = [record("orders", hour, gaussian(hour + 1, "item")) for hour in range(24)]
    again = Losses.of_sketch(gaussian(1, "item").loss()).times(24)
    once, twice = again.epsilon(F(DELTA)), (again + again).epsilon(F(DELTA))
    assert once < twice < 2 * once
    room = Deployment.from_records(records, budget=limit(str(math.ceil(twice)), DELTA))
    assert room.period()[1] == pytest.approx(once)
    room.require_room([], again)
    with pytest.raises(BudgetError, match=r"above privacy\.budget"):
        Deployment.from_records(records, budget=limit(str(math.floor(twice)), DELTA)).require_room([], again)
    assert "ABOVE" not in str(room)
    assert Deployment.from_records(records, budget=limit("50", None)).period()[1] == math.inf


def test_sketches_that_lose_nothing_have_epsilon_0() -> None:
    assert Losses(F(0), F(0)).epsilon(F(1, 10**6)) == 0
    assert Losses(F(0), F(0)).epsilon(None) == 0
