"""zCDP totals against exact Renyi divergences, the data chosen by an adversary who sees everything before.

In: small random histories, enumerated. Out: verdicts. Touches: nothing.

The adversary is exact: at every view he takes the shift of the data that makes the divergence of all that follows
largest, for every outcome so far. What is compared is the supremum over all adaptive streams.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np
import pytest

from sketchstream.audit import oracle
from sketchstream.privacy.deployments import deployment
from sketchstream.privacy.ledgers.ledger import Ledger, View
from sketchstream.privacy.ledgers.sketch_history import Promise
from sketchstream.privacy.losses.history import Entry, History, LayerEntry, Loss
from sketchstream.privacy.losses.looks import item_loss, worst_loss
from sketchstream.privacy.losses.measures import rho_of_pure
from sketchstream.privacy.losses.zcdp import item_rho, to_approximate, worst_rho

F = Fraction
RESPONSE = "randomized-response"
ALPHAS = (1.01, 2.0, 8.0, 64.0)
Choices = Callable[[bool], Iterator[tuple[int, bool]]]
"""From whether the event was applied: shifts of the data that a view may be shown, and whether it is applied then."""


RINGS = (oracle.ITEM_RING, oracle.Ring(2, oracle.randomized_response, oracle.bins_release))
"""Z_3, and Z_2, where randomized response has nearly all the divergence that its epsilon allows."""


def any_shift(_: bool) -> Iterator[tuple[int, bool]]:
    """An item of which everything may differ."""
    yield from ((shift, False) for shift in range(3))  # the data are residues: on Z_2 a shift of 2 is one of 0


def once(applied: bool) -> Iterator[tuple[int, bool]]:
    """An event, applied before some view: that moment is the adversary's choice too."""
    yield 1, True
    if not applied:
        yield 0, False


def sharpest(
    transcript: oracle.Transcript, choices: Choices, alpha: float, ring: oracle.Ring = oracle.ITEM_RING
) -> float:
    """Largest Renyi divergence of order alpha between the worlds, over all adaptive streams; (order inf: pure loss)."""
    m = ring.size
    noise = np.array(list(np.ndindex(*(m,) * len(transcript.layers))))
    weight = np.ones(len(noise))
    for index, layer in enumerate(transcript.layers):
        weight = weight * ring.law(m, float(layer.cost))[noise[:, index]]

    def value(at: int, one: oracle.Floats, two: oracle.Floats, applied: bool) -> oracle.Floats:
        """(n,) for n pairs of unnormalised laws of the noise (n, configurations): the moment, or the ratio."""
        if at == len(transcript.views):
            p, q = one.sum(axis=1), two.sum(axis=1)
            with np.errstate(divide="ignore", invalid="ignore"):
                if alpha == math.inf:
                    return np.where(p > 0, p / q, 0.0)
                return np.where(p > 0, p**alpha * q ** (1 - alpha), 0.0)
        view = transcript.views[at]
        state = noise[:, sorted(view.layers)].sum(axis=1) % m
        kernel = np.eye(m) if view.cost is None else ring.release(m, float(view.cost))
        best = np.zeros(len(one))
        for shift, now in choices(applied):
            quiet, moved = kernel[state], kernel[(state + shift) % m]
            left = (one[:, None, :] * quiet.T[None]).reshape(-1, len(noise))
            right = (two[:, None, :] * moved.T[None]).reshape(-1, len(noise))
            after = value(at + 1, left, right, now).reshape(len(one), -1)
            best = np.maximum(best, after.max(axis=1) if alpha == math.inf else after.sum(axis=1))
        return best

    found = float(value(0, weight[None], weight[None], False)[0])
    return math.log(found) if alpha == math.inf else math.log(found) / (alpha - 1)


def lives(seed: int, number: int, views: int = 3) -> Iterator[History]:
    """Random histories that have anything to see."""
    rng = random.Random(seed)
    while number:
        history = oracle.random_history(rng, RESPONSE, views=views)
        if any(isinstance(entry, View) for entry in history.entries):
            number -= 1
            yield history


def worst_share(rho: Callable[[History], Loss], choices: Choices, number: int, seed: int) -> list[float]:
    """Exact divergence over the claim, for each history whose claim is finite."""
    shares = []
    for history in lives(seed, number):
        claim = rho(history)
        if claim != math.inf:
            transcript = oracle.Transcript.of(history)
            found = [sharpest(transcript, choices, a, ring) / (a * float(claim)) for a in ALPHAS for ring in RINGS]
            shares.append(max(found))
    return shares


def test_rho_of_items_covers_every_adaptive_stream() -> None:
    shares = worst_share(lambda life: worst_rho(life, unit="item"), any_shift, 300, 30)
    assert len(shares) > 100
    assert max(shares) <= 1 + 1e-9
    assert max(shares) > 0.9  # and is near the truth somewhere


def test_rho_of_events_covers_every_adaptive_stream_and_moment() -> None:
    shares = worst_share(lambda life: worst_rho(life, unit="event"), once, 300, 31)
    assert len(shares) > 100
    assert max(shares) <= 1 + 1e-9
    assert max(shares) > 0.9


@pytest.mark.parametrize("choices", [any_shift, once])
def test_pure_losses_cover_every_adaptive_stream(choices: Choices) -> None:
    unit = "item" if choices is any_shift else "event"
    for history in lives(32, 40):
        claim = worst_loss(history, unit=unit)
        if claim != math.inf:
            assert sharpest(oracle.Transcript.of(history), choices, math.inf) <= float(claim) + 1e-9


def test_a_rho_that_forgets_the_views_outside_of_blocks_is_refused() -> None:
    def blocks_alone(life: History) -> Loss:
        layers = [entry for entry in life.entries if isinstance(entry, LayerEntry)]
        return sum((rho_of_pure(layer.cost) for layer in layers), F(0))

    assert max(worst_share(blocks_alone, any_shift, 40, 33)) > 1


# Two sketches that influence each other's streams.


def interleaved(rng: random.Random) -> tuple[oracle.Transcript, list[History]]:
    """Two small sketches and the order in which their views were seen."""
    pair = [History((LayerEntry(bytes(16), RESPONSE, rng.choice(oracle.COSTS)),)) for _ in range(2)]
    for at in range(2):
        if rng.random() < 0.5:
            pair[at] = pair[at].then(View("release", rng.choice(oracle.COSTS)))
        pair[at] = pair[at].then(View("publication", rng.choice((None, rng.choice(oracle.COSTS)))))
    joint = oracle.Transcript()
    for number, history in enumerate(pair):
        joint.layers.append(history.entries[0])  # type: ignore[arg-type]
        for at, entry in enumerate(history.entries):
            if isinstance(entry, View):
                joint.views.append(oracle._Seen(((number,), at), entry.cost, frozenset({number})))
    rng.shuffle(joint.views)
    return joint, pair


def test_sketches_that_steer_each_other_add_the_squares_of_their_losses() -> None:
    rng = random.Random(34)
    shares = []
    for _ in range(100):
        joint, pair = interleaved(rng)
        claim = sum((rho_of_pure(item_loss(history)) for history in pair), F(0))
        shares += [sharpest(joint, any_shift, a, ring) / (a * float(claim)) for a in ALPHAS for ring in RINGS]
        losses = sum((item_loss(history) for history in pair), F(0))
        assert sharpest(joint, any_shift, math.inf) <= float(losses) + 1e-9
    assert 0.9 < max(shares) <= 1 + 1e-9


# The rule itself.


def every_block(entries: Sequence[Entry]) -> Loss:
    """The cheapest set of disjoint blocks, by trying all."""
    if not entries:
        return F(0)
    first, *rest = entries
    if isinstance(first, View):
        return (math.inf if first.cost is None else first.cost**2 / 2) + every_block(rest)
    best = every_block(rest)
    between: Loss = first.cost
    for at, entry in enumerate(rest):
        if isinstance(entry, View):
            best = min(best, between * between / 2 + every_block(rest[at + 1 :]))
            between = math.inf if entry.cost is None else between + entry.cost
    return best


def test_items_pay_for_the_cheapest_blocks_or_for_all_as_one() -> None:
    for history in lives(35, 300, views=6):
        assert item_rho(history.entries) == min(every_block(history.entries), rho_of_pure(item_loss(history)))


def ledger(unit: str, promise: Promise, epsilon: str = "1") -> Ledger:
    law = "discrete-laplace" if unit == "event" else RESPONSE
    return Ledger.create(unit, 1, LayerEntry(bytes(16), law, F(epsilon)), promise)


@pytest.mark.parametrize("unit", ["event", "item"])
def test_numbers_of_the_common_lives(unit: str) -> None:
    histogram = ledger(unit, Promise("histogram", F(1, 2)))
    assert histogram.zcdp() == F(1, 8)
    assert ledger(unit, Promise("bare")).zcdp() == F(1, 2)
    fresh = ledger(unit, Promise("fresh", F(1, 2))).record_look()
    # a look and a fresh publication: an event lies on one side of the look, an item on both
    assert fresh.zcdp() == (F(1, 2) if unit == "event" else F(1, 2) + F(1, 8))
    many = ledger(unit, Promise("bare"))
    for _ in range(24):
        many = many.charge_release(F(1, 10))
    # releases lie between the creation layer and the state that it hides: one block
    assert many.zcdp() == rho_of_pure(F(34, 10)) == rho_of_pure(many.loss())
    beside = ledger(unit, Promise("histogram", F(1, 10)), "30")
    for _ in range(24):
        beside = beside.charge_release(F(1, 10))
    assert beside.zcdp() == 25 * F(1, 200)


def test_rho_is_never_above_the_squared_loss_and_merges_and_looks_have_that() -> None:
    for unit in ("event", "item"):
        for history in lives(36, 200, views=5):
            assert worst_rho(history, unit=unit) <= rho_of_pure(worst_loss(history, unit=unit))
    parts = [ledger("item", Promise("histogram", F(1))).charge_release(F(1, 4)) for _ in range(2)]
    merged = Ledger.merge(parts)
    assert merged.zcdp() == rho_of_pure(merged.loss())
    one = parts[0]
    assert one.zcdp(intrusion=True) == rho_of_pure(one.loss(intrusion=True)) == rho_of_pure(F(9, 4))


def test_events_pay_by_their_gap() -> None:
    held = (
        ledger("event", Promise("bare"))
        .charge_release(F(1, 2))
        .record_look()
        .add_layer(LayerEntry(bytes(range(16)), "discrete-laplace", F(1, 4)))
    )
    # before the release 1/2; between release and look (1 + 1/2)^2/2; after the look the layer that came then
    assert held.zcdp() == rho_of_pure(F(3, 2))
    refreshed = History(held.history.entries[2:], (), None).then(View("publication", None))
    assert worst_rho(refreshed, unit="event") == rho_of_pure(F(1, 4))


def test_deployments_add_the_squares_of_their_sketches_losses() -> None:
    records = []
    for hour in range(24):
        layer = LayerEntry(hour.to_bytes(16, "big"), RESPONSE, F(1, 10))
        made = Ledger.create("item", 1, layer, Promise("bare")).charge_release(F(1, 10)).charge_publication()
        span = (hour * 3_600_000, (hour + 1) * 3_600_000)
        records.append(deployment.Record("hourly", 0, span, 0, (), made))
    assert deployment.Deployment.from_records(records).total().item_zcdp == 24 * rho_of_pure(F(2, 10))


def test_zcdp_as_epsilon_and_delta() -> None:
    assert to_approximate(F(36, 10)) == pytest.approx(17.7, abs=0.05)
    assert to_approximate(math.inf) == math.inf
    assert rho_of_pure(math.inf) == math.inf
