"""Ledgers of Gaussian noise: mu^2 against the covariance of the views, epsilon and delta against enumeration.

In: random and hand-made histories. Out: verdicts. Touches: nothing.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

import sketchstream as ss
from sketchstream.errors import BudgetError, FormatError, MergeError, SealedError
from sketchstream.privacy.calibration.discrete import discrete_delta_of
from sketchstream.privacy.calibration.divergence import log_divergence
from sketchstream.privacy.ledgers.gaussian_ledger import ApproximateBudget, GaussianLedger
from sketchstream.privacy.ledgers.loss_texts import cost_text
from sketchstream.privacy.ledgers.sketch_history import Promise
from sketchstream.privacy.losses.gaussian import (
    MAX_KEPT_HISTORY,
    ComponentShift,
    Exact,
    GaussianLoss,
    Smoothed,
    UnitShift,
    loss_of,
)
from sketchstream.privacy.losses.history import Gap, History, LayerEntry, Loss, View
from sketchstream.privacy.losses.looks import event_losses, with_one_more_look, worst_loss, worst_loss_with_look
from sketchstream.privacy.losses.measures import MU_SQUARED, MuSquared, PureEpsilon
from sketchstream.privacy.losses.zcdp import zcdp_epsilon
from sketchstream.published import Release

F = Fraction
ONE = UnitShift.of(1, 1, [(1,)])
Rule = Callable[[History], list[Gap]]


def layer(cost: Fraction | int) -> LayerEntry:
    return LayerEntry(bytes(16), "discrete-gaussian", F(cost))


def release(cost: Fraction | int) -> View:
    return View("release", F(cost))


LOOK, BARE = View("look", None), View("publication", None)


def mu_squared(history: History) -> list[Gap]:
    return event_losses(history, MU_SQUARED)


# The covariance of the views.


Seen = tuple[tuple[int, ...], int, set[int]]
"""A gap (part, entries before it), and the views that see an event in it."""


@dataclass
class Views:
    """The noises of a history, which view holds which, and which view sees an event at which gap."""

    variances: list[Fraction] = field(default_factory=list)
    holds: list[set[int]] = field(default_factory=list)
    gaps: list[Seen] = field(default_factory=list)

    def walk(self, history: History, path: tuple[int, ...]) -> tuple[set[int], list[Seen]]:
        layers: set[int] = set()
        seen: list[Seen] = []
        for index, part in enumerate(history.parts):
            held, gaps = self.walk(part, (*path, index))
            layers |= held
            seen += gaps
        own: list[Seen] = []
        for at in range(len(history.entries) + 1):
            if at in history.moments:
                own.append((path, at, set()))
            if at == len(history.entries):
                break
            entry = history.entries[at]
            if isinstance(entry, LayerEntry):
                layers = layers | {self.noise(entry.cost)}
            else:
                fresh = set() if entry.cost is None else {self.noise(entry.cost)}
                self.holds.append(layers | fresh)
                for gap in (*seen, *own):
                    gap[2].add(len(self.holds) - 1)
        self.gaps += own
        return layers, [*seen, *own]

    def noise(self, cost: Fraction) -> int:
        self.variances.append(1 / cost)
        return len(self.variances) - 1


def by_covariance(history: History) -> dict[tuple[tuple[int, ...], int], Loss]:
    """i' C^-1 i for every gap, by elimination; infinite where i is not in the range of C."""
    views = Views()
    views.walk(history, ())
    n = len(views.holds)
    rows = [
        [sum((views.variances[k] for k in one & two), F(0)) for two in views.holds]
        + [F(int(v in seen)) for _, _, seen in views.gaps]
        for v, one in enumerate(views.holds)
    ]
    pivots = []
    at = 0
    for column in range(n):
        chosen = next((r for r in range(at, n) if rows[r][column]), None)
        if chosen is None:
            continue
        rows[at], rows[chosen] = rows[chosen], rows[at]
        scale = rows[at][column]
        rows[at] = [value / scale for value in rows[at]]
        for r in range(n):
            if r != at and rows[r][column]:
                factor = rows[r][column]
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[at], strict=True)]
        pivots.append(column)
        at += 1
    found: dict[tuple[tuple[int, ...], int], Loss] = {}
    for index, (path, after, seen) in enumerate(views.gaps):
        column = n + index
        if any(rows[r][column] for r in range(at, n)):
            found[path, after] = math.inf
        else:
            found[path, after] = sum((rows[r][column] for r, v in enumerate(pivots) if v in seen), F(0))
    return found


def random_line(rng: random.Random, depth: int = 1) -> History:
    parts = tuple(random_line(rng, depth - 1) for _ in range(rng.choice((0, 0, 2, 3)))) if depth else ()
    entries: list[LayerEntry | View] = [] if parts else [layer(F(rng.randint(1, 6), rng.randint(1, 4)))]
    for _ in range(rng.randint(0, 3 if parts else 4)):
        kind = rng.random()
        cost = F(rng.randint(1, 6), rng.randint(1, 4))
        entries.append(layer(cost) if kind < 0.3 else LOOK if kind < 0.5 else release(cost))
    history = History(tuple(entries), parts)
    if depth == 1:
        cost = F(rng.randint(1, 6), 3)
        seal = rng.choice([(release(cost),), (layer(cost), BARE), (BARE,), ()])
        history = history.sealed_by(*seal) if seal else history
    return history


def disagreements(rule: Rule, lines: int) -> int:
    """Lines on which a rule says something else than the covariance."""
    rng = random.Random(20)
    wrong = 0
    for _ in range(lines):
        history = random_line(rng)
        wrong += {(gap.part, gap.after): gap.loss for gap in rule(history)} != by_covariance(history)
    return wrong


@pytest.mark.statistics
@pytest.mark.parametrize("lines", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_the_ladder_equals_the_quadratic_form_of_the_covariance(lines: int) -> None:
    assert disagreements(mu_squared, lines) == 0


class LargestView(MuSquared):
    """Mutant: the largest view counts, not the sum."""

    def view(self, cost: Loss, view: View) -> Loss:
        return math.inf if view.cost is None else max(cost, view.cost)


class CheapestLayer(MuSquared):
    """Mutant: one layer takes the whole shift, as where costs are pure."""

    def join(self, one: Loss, other: Loss) -> Loss:
        return min(one, other)


def charged_to_earlier_events(history: History) -> list[Gap]:
    """Mutant: a release costs the events before it, never those after it."""
    gaps = mu_squared(history)
    kept = tuple(entry for entry in history.entries if isinstance(entry, LayerEntry) or entry.cost is None)
    last = {gap.part: gap.loss for gap in mu_squared(History(kept, history.parts, history.seal))}
    return [Gap(gap.part, gap.after, min(gap.loss, last.get(gap.part, gap.loss))) for gap in gaps]


def publication_forgotten(history: History) -> list[Gap]:
    """Mutant: what the seal publishes is not counted."""
    open_part = history.entries[: len(history.entries) - (history.seal or 0)]
    return mu_squared(History(open_part, history.parts))


@pytest.mark.parametrize(
    "mutant",
    [
        lambda history: event_losses(history, LargestView()),
        lambda history: event_losses(history, CheapestLayer()),
        charged_to_earlier_events,
        publication_forgotten,
    ],
    ids=["max for sum", "integer shares", "releases charged to earlier events", "publication forgotten"],
)
def test_wrong_ladders_are_refused(mutant: Rule) -> None:
    assert disagreements(mutant, 200) > 20
    assert disagreements(mu_squared, 200) == 0


def test_kept_losses_are_those_of_the_history_whatever_its_draws_are_called() -> None:
    rng, shift = random.Random(3), UnitShift.of(1, 1, [(1,)])

    def named(history: History) -> History:
        entries = tuple(
            replace(one, lineage=rng.randbytes(16)) if isinstance(one, LayerEntry) else one for one in history.entries
        )
        return replace(history, entries=entries, parts=tuple(map(named, history.parts)))

    for _ in range(100):
        history = random_line(rng)
        for look in (False, True):
            plain = loss_of.__wrapped__(named(history), shift, "event", look, 0)
            assert plain == GaussianLoss.of(named(history), shift, look=look)
            kept = [GaussianLoss.of(named(history), shift, look=look) for _ in range(2)]
            assert kept[0] is kept[1]
    dearer = History((layer(F(1, 3)),))
    assert GaussianLoss.of(History((layer(F(1, 4)), BARE)), shift).mu2 < (
        GaussianLoss.of(dearer.then(BARE), shift).mu2
    ), "another cost is another loss"


def test_losses_of_long_histories_are_not_kept() -> None:
    before = loss_of.cache_info().currsize
    long = History((layer(1), *(release(F(1, 100)) for _ in range(MAX_KEPT_HISTORY))))
    assert GaussianLoss.of(long, UnitShift.of(1, 1)) == GaussianLoss.of(long, UnitShift.of(1, 1))
    assert loss_of.cache_info().currsize == before


def test_one_unannounced_look_costs_the_larger_side() -> None:
    rng = random.Random(21)
    for _ in range(300):
        history = random_line(rng)
        slow = max(
            [worst_loss(looked, unit="event", measure=MU_SQUARED) for looked in with_one_more_look(history)]
            + [worst_loss(history, unit="event", measure=MU_SQUARED)]
        )
        assert worst_loss_with_look(history, unit="event", measure=MU_SQUARED) == slow
        for since in range(1, len(history.entries) + 1):
            slow = max(
                [worst_loss(looked, unit="event", measure=MU_SQUARED) for looked in with_one_more_look(history, since)]
                + [worst_loss(history, unit="event", measure=MU_SQUARED)]
            )
            assert worst_loss_with_look(history, unit="event", measure=MU_SQUARED, since=since) == slow


def test_an_item_loses_no_more_than_one_event_of_its_size() -> None:
    """The quadratic form of any division of an item's contributions over gaps is at most its largest gap."""
    rng = random.Random(22)
    for _ in range(300):
        history = random_line(rng, depth=0)
        views = Views()
        views.walk(history, ())
        held = np.array([[float(k in one) for k in range(len(views.variances))] for one in views.holds])
        if not len(held):
            continue
        covariance = held @ np.diag([float(v) for v in views.variances]) @ held.T
        if np.linalg.matrix_rank(covariance) < len(covariance):
            continue
        shares = np.array([rng.random() for _ in views.gaps])
        shares /= shares.sum()
        shift = sum(
            share * rng.choice((-1, 1)) * np.array([float(v in seen) for v in range(len(held))])
            for share, (_, _, seen) in zip(shares, views.gaps, strict=True)
        )
        form = float(shift @ np.linalg.solve(covariance, shift))
        assert form <= float(worst_loss(history, unit="item", measure=MU_SQUARED)) * (1 + 1e-9)


def literal_pure_losses(history: History, path: tuple[int, ...] = ()) -> list[tuple[tuple[int, ...], int, Loss]]:
    """Theorem 3 as it is written: all views that see the event, or one layer and the views that see one of the two."""
    layers: list[tuple[tuple[int, ...], int, Fraction]] = []
    views: list[tuple[tuple[int, ...], int, Loss]] = []
    gaps: list[tuple[tuple[int, ...], int]] = []

    def walk(one: History, path: tuple[int, ...]) -> None:
        for at, entry in enumerate(one.entries):
            if isinstance(entry, LayerEntry):
                layers.append((path, at + 1, entry.cost))
            else:
                views.append((path, at, math.inf if entry.cost is None else entry.cost))
        gaps.extend((path, at) for at in one.moments)
        for index, part in enumerate(one.parts):
            walk(part, (*path, index))

    def sees(view: tuple[tuple[int, ...], int, Loss], place: tuple[int, ...], after: int) -> bool:
        where, at, _ = view
        return at >= after if where == place else place[: len(where)] == where

    walk(history, path)
    found = []
    for place, after in gaps:
        choices: list[Loss] = [sum((v[2] for v in views if sees(v, place, after)), F(0))]
        for where, at, cost in layers:
            choices.append(cost + sum((v[2] for v in views if sees(v, place, after) != sees(v, where, at)), F(0)))
        found.append((place, after, min(choices)))
    return found


def test_the_same_algorithm_gives_the_pure_losses() -> None:
    rng = random.Random(23)
    for _ in range(400):
        history = random_line(rng, depth=2)
        found = [(gap.part, gap.after, gap.loss) for gap in event_losses(history, PureEpsilon())]
        assert sorted(found) == sorted(literal_pure_losses(history))


# Epsilon and delta.


def epsilon_in_units_of_one(mu2: Fraction) -> float:
    """At delta 1e-6, where mu^2 = 1 is (1, 1e-6)."""
    return ss.epsilon_of("1e-6", ss.calibrate(1, "1e-6"), math.sqrt(mu2))


def test_mu_squared_and_epsilon_of_short_lives() -> None:
    life = History((layer(1), release(F(1, 4)), layer(1), BARE), (), 2)
    plain = History((layer(1), layer(1), BARE), (), 2)
    assert worst_loss(life, unit="event", measure=MU_SQUARED) == F(5, 9)
    assert worst_loss_with_look(life, unit="event", measure=MU_SQUARED) == F(5, 4)
    assert worst_loss(life, unit="event", measure=CheapestLayer()) == 1
    assert worst_loss(plain, unit="event", measure=MU_SQUARED) == F(1, 2)
    expected = {F(5, 9): 0.7290, F(5, 4): 1.1279, F(1, 2): 0.6889, F(2): 1.4547, F(3): 1.8138, F(4): 2.1229}
    for mu2, epsilon in expected.items():
        assert epsilon_in_units_of_one(mu2) == pytest.approx(epsilon, abs=6e-5)


def transcript_laws(
    history: History, weight: int, *, reach: int = 24
) -> dict[tuple[tuple[int, ...], int], tuple[np.ndarray, np.ndarray]]:
    """For every gap the laws of all views without and with an event of this weight, noise cut off at `reach`."""
    views = Views()
    views.walk(history, ())
    laws = []
    z = np.arange(-reach, reach + 1)
    for variance in views.variances:
        law = np.exp(-(z**2) / (2 * float(variance)))
        laws.append(law / law.sum())
    width = 2 * (3 * reach + weight) + 1
    counts = np.zeros((width,) * len(views.holds))
    shape = tuple(len(z) for _ in laws)
    grid = np.indices(shape).reshape(len(laws), -1) - reach
    mass = np.ones(grid.shape[1])
    for law, draw in zip(laws, grid, strict=True):
        mass = mass * law[draw + reach]
    keep = mass > 1e-18
    seen = [grid[sorted(one)][:, keep].sum(axis=0) for one in views.holds]
    centre = width // 2
    out = {}
    for path, after, visible in views.gaps:
        pair = []
        for shift in (0, weight):
            flat = np.ravel_multi_index(
                [one + centre + shift * (v in visible) for v, one in enumerate(seen)], counts.shape
            )
            pair.append(np.bincount(flat, mass[keep], counts.size))
        out[path, after] = (pair[0], pair[1])
    return out


LINES = {
    "bare": History((layer(1), BARE), (), 1),
    "release": History((layer(F(1, 3)), release(F(1, 2)))),
    "release and bare": History((layer(F(1, 2)), release(F(1, 2)), BARE), (), 1),
    "fresh": History((layer(F(1, 2)), layer(F(1, 3)), BARE), (), 2),
    "look and fresh": History((layer(F(1, 2)), LOOK, layer(F(1, 3)), BARE), (), 2),
    "merge": History((BARE,), (History((layer(F(1, 2)),)), History((layer(F(1, 3)),))), 1),
    "merge with a release": History((BARE,), (History((layer(F(1, 4)), release(F(1, 4)))), History((layer(1),))), 1),
}


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("shapes", [[(1,)], []], ids=["summed", "smoothed"])
def test_the_delta_of_a_ledger_is_never_below_that_of_its_discrete_views(
    name: str, shapes: list[tuple[int, ...]]
) -> None:
    loss = GaussianLoss.of(LINES[name], UnitShift.of(1, 1, shapes))
    laws = transcript_laws(LINES[name], 1, reach=14)
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        exact = max(
            max(float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in ((p, q), (q, p)))
            for p, q in laws.values()
        )
        assert exact <= loss.delta(epsilon) * (1 + 1e-9) + 1e-12
        assert loss.delta(epsilon) < 1


def test_the_laws_of_real_noise_are_not_enough_on_the_integers() -> None:
    """What the lattice correction is for: without it these lines would be refused."""
    above = 0
    for history in LINES.values():
        mu2 = worst_loss(history, unit="event", measure=MU_SQUARED)
        for epsilon in (0.3, 1.0, 2.0):
            exact = max(
                float(np.maximum(p - math.exp(epsilon) * q, 0).sum())
                for p, q in transcript_laws(history, 1, reach=14).values()
            )
            continuous = math.exp(log_divergence(np.array([epsilon]), np.array([math.sqrt(mu2)]))[0])
            above += exact > continuous * (1 + 1e-6)
    assert above >= 3


def test_a_calibrated_layer_keeps_its_epsilon_in_the_ledger() -> None:
    for epsilon, delta, shape in (
        ("1", "1e-6", (1,)),
        ("2", "1e-6", (1,)),
        ("1/2", "1e-6", (1,)),
        ("5", "1e-6", (1, 1)),
    ):
        sigma2 = ss.calibrate_discrete(epsilon, delta, [shape]).sigma2
        shift = UnitShift.of(sum(v * v for v in shape), len(shape), [shape])
        cost = shift.cost(sigma2)
        assert shift.sigma2(cost) == sigma2
        ledger = GaussianLedger.create("event", layer(cost), Promise("fresh", cost), shift)
        found = ledger.loss(intrusion=True).at(delta)
        assert found.route == "exact"
        assert F(epsilon) * F(99, 100) <= found.epsilon <= F(epsilon)
        assert ledger.loss().mu2 == cost / 2
        assert ledger.loss().epsilon(delta) < found.epsilon
        items = GaussianLedger.create("item", layer(cost), Promise("fresh", cost), shift)
        route = items.loss(intrusion=True).at(delta).route
        assert route == ("exact" if shape == (1,) else "smoothing"), "an item of one step is one event"


@pytest.mark.parametrize("delta", ["1e-3", "1e-9", "1e-200", "1e-300"])
def test_epsilon_and_delta_of_a_loss_invert_each_other(delta: str) -> None:
    for history in LINES.values():
        for shapes in ([(1,)], []):
            loss = GaussianLoss.of(history, UnitShift.of(1, 1, shapes))
            found = loss.at(delta)
            assert loss.delta(found.epsilon) <= F(delta)
            assert loss.delta(found.epsilon * 0.999) > F(delta)
            assert found.epsilon == loss.epsilon(delta)


def test_a_negligible_lattice_correction_is_said_and_others_are_not_hidden() -> None:
    wide = GaussianLoss.of(History((layer(F(1, 10**14)), BARE), (), 1), UnitShift.of(1, 1)).at("1e-6")
    assert wide.negligible
    assert "lattice correction below 1e-12" in str(wide)
    narrow = GaussianLoss.of(LINES["fresh"], UnitShift.of(1, 1)).at("1e-6")
    assert narrow.correction > 0.01
    assert not narrow.negligible
    assert f"lattice correction +{narrow.correction:.3g}, smoothing" in str(narrow)
    assert narrow.to_dict()["lattice_correction"] == narrow.epsilon - narrow.continuous
    assert float(str(narrow).split()[1].rstrip(",")) >= narrow.epsilon


def test_kappa_counts_every_coordinate_noise_and_hidden_sum() -> None:
    one = GaussianLoss.of(LINES["merge"], UnitShift.of(1, 1)).smoothed
    many = GaussianLoss.of(LINES["merge"], UnitShift.of(1, 7)).smoothed
    for single, sevenfold in zip(one, many, strict=True):
        if math.isfinite(single.kappa):
            assert sevenfold.kappa == pytest.approx(7 * single.kappa)
    # Layers of variances 2 and 3, rounding 1: two normalisers, a hidden sum of variance 6/5, a view rounded by 2.
    from sketchstream.privacy.calibration.discrete import closeness

    third = next(bound for bound in one if bound.rounding == 1)
    expected = closeness(F(2)) + closeness(F(3)) + closeness(F(6, 5)) + closeness(F(2))
    assert third.kappa == pytest.approx(expected, rel=1e-6)
    assert third.mu2 == F(1, 3)  # 1 / (2 + 3 - 2)
    # A release, then the bare state: the second view is rounded given the first, with half the variance.
    twice = GaussianLoss.of(LINES["release and bare"], UnitShift.of(1, 1)).smoothed
    found = next(bound for bound in twice if bound.rounding == 1)
    expected = 2 * closeness(F(2)) + closeness(F(2)) + closeness(F(1, 2))
    assert found.kappa == pytest.approx(expected, rel=1e-6)


def test_losses_of_independent_sketches_add() -> None:
    loss = GaussianLoss.of(LINES["bare"], ONE)
    both = loss + loss
    assert both.mu2 == 2 * loss.mu2
    for one, two in zip(loss.smoothed, both.smoothed, strict=True):
        assert two.mu2 == 2 * one.mu2
        assert two.kappa >= 2 * one.kappa
    # Two such sketches are one with two coordinates: the smoothed bound holds for the exact delta of the pair.
    assert both.delta(2) >= discrete_delta_of(2, 1, (1, 1))
    assert GaussianLoss.none() + loss == loss == loss + GaussianLoss.none()
    assert GaussianLoss.none().epsilon("1e-6") == 0 == GaussianLoss.none().delta(0)
    worst = GaussianLoss.worst([loss, both])
    assert worst.mu2 == both.mu2
    assert worst.delta(1) == both.delta(1)


def test_a_bare_state_that_was_seen_twice_has_no_bound() -> None:
    loss = GaussianLoss.of(History((layer(1), LOOK, BARE), (), 1), ONE)
    assert loss.mu2 == math.inf
    assert loss.epsilon("1e-6") == math.inf
    assert loss.delta(5) == 1
    assert str(loss.at("1e-6")) == "unlimited"


# The ledger.


def fresh(
    budget: ApproximateBudget | None = None, promise: Promise | None = None, unit: str = "event"
) -> GaussianLedger:
    return GaussianLedger.create(unit, layer(F(1, 20)), promise or Promise("fresh", F(1, 20)), ONE, budget)


def test_a_release_beyond_the_budget_is_refused_and_what_is_affordable_is_allowed() -> None:
    budget = ApproximateBudget(F(9, 10), F(1, 10**6))
    ledger = fresh(budget)
    room = ledger.affordable()
    assert isinstance(room, Fraction)
    assert 0 < room < 1
    after = ledger.charge_release(room)
    assert budget.allows(after.loss())
    with pytest.raises(BudgetError, match="noise of sigma at least") as caught:
        ledger.propose(room * F(101, 100))
    assert caught.value.limit == F(9, 10)
    assert caught.value.asked == room * F(101, 100)
    assert ledger.sentences()[-1].startswith(f"budget {budget}, noise of sigma at least"), "as a refusal says it"
    assert "noise of sigma at least" in ledger._repr_html_()
    with pytest.raises(BudgetError, match="would bring the loss of an event from epsilon"):
        after.charge_release(F(1, 100))
    with pytest.raises(BudgetError, match="would cost an event"):
        fresh(ApproximateBudget(F(1, 10), F(1, 10**6)))
    with pytest.raises(BudgetError, match="have used it up, and an open sketch keeps its budget: drop the sketch"):
        fresh(ApproximateBudget(F(7, 10), F(1, 10**6))).record_look().charge_publication()
    assert fresh().affordable() == math.inf


def test_the_promised_publication_counts_from_the_first_moment() -> None:
    for promise in (Promise("fresh", F(1, 20)), Promise("bare"), Promise("fresh", F(1, 7))):
        ledger = fresh(promise=promise).charge_release(F(1, 30))
        sealed = ledger.charge_publication(b"s" * 16)
        assert sealed.loss().mu2 == ledger.loss().mu2 > 0
        assert sealed.loss(intrusion=True).mu2 == ledger.loss(intrusion=True).mu2
        with pytest.raises(SealedError):
            sealed.charge_release(F(1))
    assert fresh(promise=Promise("bare")).loss(intrusion=True).mu2 == math.inf
    assert fresh(promise=Promise("nothing")).loss().mu2 == 0


def test_a_refreshed_state_hides_again_what_comes_from_now_on() -> None:
    ledger = fresh(promise=Promise("fresh", F(1, 10))).record_look()
    assert ledger.loss(intrusion=True).mu2 == math.inf
    refreshed = ledger.add_layer(layer(F(1, 20)))
    assert refreshed.loss(intrusion=True, from_now=True).mu2 == F(1, 10)
    copied = refreshed.record_copy()
    assert copied.loss(intrusion=True, from_now=True).mu2 == F(1, 10)
    assert copied.loss(copies=True, intrusion=True, from_now=True).mu2 == math.inf, "between the copy and the look"


def test_merged_ledgers_hold_the_union_of_their_parts() -> None:
    left, right = fresh(promise=Promise("bare")).charge_release(F(1, 30)), fresh(promise=Promise("bare"))
    merged = GaussianLedger.merge([left, right])
    assert merged.loss().mu2 < left.loss().mu2
    assert len(merged.layers) == 2
    tight, wide = ApproximateBudget(F(2), F(1, 10**6)), ApproximateBudget(F(3), F(1, 10**9))
    assert GaussianLedger.merge([fresh(tight), fresh(wide)]).budget == ApproximateBudget(F(2), F(1, 10**9))
    other = GaussianLedger.create("event", layer(F(1, 20)), Promise("bare"), UnitShift.of(4, 2))
    with pytest.raises(MergeError, match="shift"):
        GaussianLedger.merge([left, other])


def test_plain_data_comes_back_and_damaged_data_is_refused() -> None:
    ledger = fresh(ApproximateBudget(F(2), F(1, 10**6)), unit="item").charge_release(F(1, 30)).record_copy()
    data = ledger.to_dict()
    assert data["measure"] == "mu2"
    assert GaussianLedger.from_dict(data, ONE) == ledger
    sealed = GaussianLedger.merge([fresh().charge_publication(b"1" * 16), fresh().charge_publication(b"2" * 16)])
    assert GaussianLedger.from_dict(sealed.published().to_dict(), ONE) == sealed
    with pytest.raises(FormatError):
        ss.Ledger.from_dict(data)
    for name in data:
        with pytest.raises(FormatError):
            GaussianLedger.from_dict(
                {key: value for key, value in data.items() if key not in {name, "budget"}}
                | ({"budget": {"epsilon": "-1", "delta": "0"}} if name == "budget" else {}),
                ONE,
            )
    laplace = ss.Ledger.create("event", 1, LayerEntry(bytes(16), "discrete-laplace", F(1)), Promise("bare"))
    with pytest.raises(FormatError):
        GaussianLedger.from_dict(laplace.to_dict() | {"measure": "mu2"}, ONE)


def test_the_table_says_laws_and_an_epsilon_at_a_delta() -> None:
    text = str(fresh(ApproximateBudget(F(9, 10), F(1, 10**6))).charge_release(F(1, 100)))
    assert "layer discrete-gaussian" in text
    assert "delta 1e-06" in text
    assert "budget (epsilon 9/10, delta 1e-06)" in text


# Components.


def test_shares_of_mu_squared_cost_what_the_whole_costs() -> None:
    """Each component has its own ladder of share * c; the sum is the ladder of c, whatever the history."""
    rng = random.Random(24)
    for _ in range(200):
        history = random_line(rng)
        whole = {(gap.part, gap.after): gap.loss for gap in mu_squared(history)}
        shares = (F(7, 8), F(1, 16), F(1, 16))
        summed: dict[tuple[tuple[int, ...], int], Loss] = dict.fromkeys(whole, F(0))
        for share in shares:
            for gap in mu_squared(scaled(history, share)):
                summed[gap.part, gap.after] += gap.loss
        assert summed == whole


def scaled(history: History, share: Fraction) -> History:
    """The same history with every cost multiplied."""
    entries = tuple(
        layer(entry.cost * share)
        if isinstance(entry, LayerEntry)
        else View(entry.kind, None if entry.cost is None else entry.cost * share)
        for entry in history.entries
    )
    return History(entries, tuple(scaled(part, share) for part in history.parts), history.seal)


def test_the_smoothed_bound_holds_for_a_slot_and_a_counter_together() -> None:
    slots, counter = ComponentShift(F(1), 1, F(3, 4)), ComponentShift(F(4), 1, F(1, 4))
    shift = UnitShift((slots, counter))
    cost = F(1, 3)
    assert (slots.sigma2(cost), counter.sigma2(cost)) == (4, 48)
    loss = GaussianLoss.of(History((layer(cost), BARE), (), 1), shift)
    z = np.arange(-60, 61)
    one, two = (np.exp(-(z**2) / (2 * float(part.sigma2(cost)))) for part in (slots, counter))
    quiet = np.multiply.outer(one / one.sum(), two / two.sum())
    moved = np.roll(np.roll(quiet, 1, axis=0), 2, axis=1)
    for epsilon, (p, q) in itertools.product((0.0, 0.5, 1.0), ((quiet, moved), (moved, quiet))):
        exact = float(np.maximum(p - math.exp(epsilon) * q, 0).sum())
        assert exact <= loss.delta(epsilon)
    with pytest.raises(ValueError, match="add up to 1"):
        UnitShift((slots, slots))


def test_losses_are_stated_at_the_delta_of_the_budget_or_of_the_spec() -> None:
    made = GaussianLedger.create("event", layer(F(1, 9)), Promise("bare"), ONE, usual=F(1, 10**7))
    limited = GaussianLedger.create(
        "event", layer(F(1, 9)), Promise("bare"), ONE, ApproximateBudget(F(9), F(1, 10**5)), usual=F(1, 10**7)
    )
    assert (made.delta, limited.delta) == (F(1, 10**7), F(1, 10**5))
    assert made.epsilon() == made.epsilon(F(1, 10**7)) > limited.epsilon() == limited.epsilon("1e-5")


def test_noise_of_which_a_rho_is_known_says_what_the_same_rho_is_on_the_real_numbers() -> None:
    loss = GaussianLoss(F(1, 2), GaussianLoss.none().smoothed, normal=False)
    assert loss.at("1e-6").continuous == zcdp_epsilon(F(1, 4), math.log(1e-6))
    assert zcdp_epsilon(F(1, 6), math.log(1e-6)) < zcdp_epsilon(F(1, 4), math.log(1e-6))


def test_a_release_of_a_spec_without_a_delta_says_its_loss_at_the_usual_one() -> None:
    held = GaussianLedger.create("event", layer(F(1, 9)), Promise("bare"), ONE)
    part = SimpleNamespace(ledger=held, cost=F(1, 9), spec=object())
    assert Release.loss.fget(part) == cost_text(held, F(1, 9), F(1, 10**6))  # type: ignore[attr-defined]


def test_several_noises_that_are_shifted_at_once_count_each_time() -> None:
    bounds = (Smoothed(F(1, 4), math.inf, math.inf),)  # none: the sum alone tells
    loss = GaussianLoss(F(1, 2), bounds, frozenset({Exact(F(4), (1,), 2), Exact(F(8), (1,))}))
    assert loss.delta(1) == discrete_delta_of(1, 4, (1, 1)) > 1.5 * discrete_delta_of(1, 4)
    assert discrete_delta_of(loss.epsilon("1e-6"), 4, (1, 1)) <= 1e-6
