"""Counters beside the slots: the ledger covers slot and counter together, and each draw has the law that it claims.

In: histories enumerated on small rings; sketches made many times. Out: verdicts. Touches: entropy.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
from scipy import stats

import sketchstream as ss
from sketchstream.audit import oracle
from sketchstream.components import Counters, find_counter
from sketchstream.kinds.profile import mechanism as kind
from sketchstream.privacy.ledgers.ledger import View
from sketchstream.privacy.losses.history import History, LayerEntry
from sketchstream.privacy.losses.looks import event_losses, item_loss
from sketchstream.sketch import Sketch

COUNTER_RING = oracle.Ring(8, oracle.wrapped_laplace, lambda m, c: circulant(oracle.wrapped_laplace(m, c)), (1,))
"""A counter: its view adds noise to the number itself."""


def circulant(law: np.ndarray) -> np.ndarray:
    """(m, m) law of a number after noise on Z_m."""
    return np.stack([np.roll(law, shift) for shift in range(law.size)])


def scaled(history: History, share: F) -> History:
    """The history of one component: its share of every layer and view."""
    entries = []
    for entry in history.entries:
        if isinstance(entry, LayerEntry):
            entries.append(replace(entry, cost=entry.cost * share))
        else:
            entries.append(entry if entry.cost is None else View(entry.kind, entry.cost * share))
    return History(tuple(entries), tuple(scaled(part, share) for part in history.parts), history.seal)


def together(first: list[np.ndarray], second: list[np.ndarray]) -> float:
    """Largest |log ratio| of two worlds over all pairs of outcomes of independent views."""
    ratios = []
    for one in (first, second):
        possible = (one[0] > 0) | (one[1] > 0)
        with np.errstate(divide="ignore"):
            ratios.append(np.log(one[0][possible]) - np.log(one[1][possible]))
    if any(np.isinf(one).any() for one in ratios):
        return math.inf
    a, b = ratios
    return float(np.abs(a[:, None] + b[None, :]).max())


@pytest.mark.parametrize("share", [F(1, 40), F(1, 3), F(3, 4)])
def test_the_ledger_covers_a_slot_and_a_counter_seen_together(share: F) -> None:
    rng = random.Random(int(share * 120))
    tight = 0.0
    for _ in range(14):
        history = oracle.random_history(rng, "discrete-laplace", views=2, layers=2)
        slot, counter = (oracle.Transcript.of(scaled(history, one)) for one in (1 - share, share))
        claims = {(gap.part, gap.after): gap.loss for gap in event_losses(history)}
        for place in slot.places:
            after = [int(slot.sees(view, place)) for view in slot.views]
            worlds = []
            for transcript, ring in ((slot, oracle.WRAPPED_RING), (counter, COUNTER_RING)):
                zero = [0] * len(after)
                worlds.append([transcript.law(ring, path) for path in (zero, after)])
            exact, claim = together(*worlds), claims[place]
            assert exact <= float(claim) + 1e-9
            if 0 < claim < math.inf:
                tight = max(tight, exact / float(claim))
    assert tight > 0.8, "histories of which none comes near its claim would pass any claim"


def test_shares_that_add_up_to_more_break_the_claim() -> None:
    history = History((LayerEntry(bytes(16), "discrete-laplace", F(1)),)).sealed_by(View("publication", None))
    slot, counter = oracle.Transcript.of(history), oracle.Transcript.of(scaled(history, F(1, 2)))
    worlds = [
        [transcript.law(ring, [moved]) for moved in (0, 1)]
        for transcript, ring in ((slot, oracle.WRAPPED_RING), (counter, COUNTER_RING))
    ]
    assert together(*worlds) > 1.2 * float(event_losses(history)[0].loss)


def test_an_event_never_loses_more_than_an_item_so_that_an_items_ledger_covers_its_total() -> None:
    rng = random.Random(8)
    for _ in range(400):
        history = oracle.random_history(rng, "randomized-response", views=4, layers=3)
        assert max(gap.loss for gap in event_losses(history)) <= item_loss(history)


SPECS = {
    "event": {"domain": ss.OpenDomain(slots=64, levels=2)},
    "weights": {"domain": ss.ClosedDomain(size=8), "max_weight": 3, "total_share": "1/4"},
    "deletions": {"domain": ss.ClosedDomain(size=8), "counted": True},
    "item": {"domain": ss.ClosedDomain(size=8), "unit": "item", "modulus": 16, "max_total": 20},
    "records": {"domain": ss.ClosedDomain(size=8), "epsilon_records": "1/10"},
    "none": {"domain": ss.ClosedDomain(size=8), "total_share": 0},
    "state": {"domain": ss.ClosedDomain(size=8), "publish": "state", "intrusion": True, "total_share": "1/8"},
}


@pytest.mark.parametrize("name", SPECS)
def test_the_shares_of_every_spec_add_up_to_one(name: str) -> None:
    spec = ss.ProfileSpec(epsilon="3/2", **SPECS[name])
    assert sum(part.share for part in kind.components(spec)) == 1
    for part in kind.components(spec)[1:]:
        assert part.own_cost is not None or part.sensitivity == {"weights": {"total": 3}, "item": {"total": 40}}.get(
            name, {}
        ).get(part.name, 1)


RUNS = 500
ALARM = 1e-9


def laplace_sum(epsilons: list[F], reach: int) -> np.ndarray:
    """Law of the sum of discrete Laplace draws on -reach..reach, by convolution."""
    law = np.zeros(2 * reach + 1)
    law[reach] = 1.0
    t = np.arange(-reach, reach + 1)
    for epsilon in epsilons:
        a = math.exp(-float(epsilon))
        law = np.convolve(law, (1 - a) / (1 + a) * a ** np.abs(t), "same")
    return law


def fits(values: list[int], epsilons: list[F]) -> float:
    """p-value of a chi-square test of the values against the law of that sum."""
    reach = int(sum(12 / float(epsilon) for epsilon in epsilons)) * 2
    law = laplace_sum(epsilons, reach)
    upper = np.cumsum(law)
    edges = np.unique(np.searchsorted(upper, np.arange(1, 16) / 16))
    cells = np.searchsorted(edges, np.array(values) + reach)
    seen = np.bincount(cells, minlength=edges.size + 1)
    wanted = np.diff(np.concatenate([[0.0], upper[edges], [1.0]])) * len(values)
    return float(stats.chisquare(seen, wanted / wanted.sum() * len(values)).pvalue)


def seal(spec: ss.ProfileSpec) -> Any:
    sketch = Sketch.create(spec)
    sketch.update([1, 2, 3])
    sketch.admit(3)
    return sketch.seal()


def refreshed(spec: ss.ProfileSpec) -> Any:
    sketch = Sketch.create(spec)
    sketch.refresh("3/2")
    sketch.update([1, 2, 3])
    return sketch.seal()


def merged(spec: ss.ProfileSpec) -> Any:
    state = replace_publish(spec)
    return ss.merge([seal(state), refreshed(state)])


def replace_publish(spec: ss.ProfileSpec) -> ss.ProfileSpec:
    fields = {**spec.to_dict(), "publish": "state", "intrusion": False}
    return ss.ProfileSpec.from_dict(fields)


def cheap_publication(spec: ss.ProfileSpec) -> ss.ProfileSpec:
    """With a publication whose noise outweighs that of the creation."""
    return ss.ProfileSpec.from_dict({**spec.to_dict(), "epsilon_publish": "1/2"})


LAW_SPEC = ss.ProfileSpec(
    epsilon="2", epsilon_publish="3", domain=ss.ClosedDomain(size=8), max_weight=2, total_share="1/2", epsilon_records=1
)
LAWS: dict[str, tuple[Callable[[ss.ProfileSpec], Any], str, list[F], int]] = {
    "sealed total": (seal, "total", [F(1, 4), F(3, 8)], 3),
    "total sealed for little": (lambda spec: seal(cheap_publication(spec)), "total", [F(1, 4), F(1, 16)], 3),
    "sealed counted": (seal, "counted", [F(1, 2), F(3, 4)], 3),
    "sealed records": (seal, "admitted", [F(1)], 3),
    "refreshed total": (refreshed, "total", [F(1, 4), F(3, 16), F(3, 8)], 3),
    "refreshed counted": (refreshed, "counted", [F(1, 2), F(3, 8), F(3, 4)], 3),
    "merged total": (merged, "total", [F(1, 4), F(1, 4), F(3, 16)], 6),
    "released total": (lambda spec: Sketch.create(spec).release("1"), "total", [F(1, 4), F(1, 8)], 0),
}


@pytest.mark.statistics
@pytest.mark.parametrize("name", LAWS)
def test_a_published_counter_has_the_noise_that_it_says(name: str) -> None:
    make, counter, epsilons, truth = LAWS[name]
    found = [find_counter(make(LAW_SPEC).counters, counter) for _ in range(RUNS)]
    assert [draw.parameter for draw in found[0].noise] == epsilons
    assert fits([one.value - truth for one in found], epsilons) > ALARM


def quiet_creation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counters of a new sketch begin at 0."""
    honest = Counters.refreshed

    def create(components: Any, epsilon: F) -> Counters:
        drawn = honest(Counters(components, np.zeros(len(components), np.int64), ((),) * len(components)), epsilon)
        return Counters(components, np.zeros(len(components), np.int64), drawn.noise)

    monkeypatch.setattr(Counters, "create", staticmethod(create))


def wrong_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counters are drawn as if each had the whole epsilon."""
    honest = Counters._drawn

    def drawn(component: Any, epsilon: F) -> Any:
        return honest(component, epsilon)[0], honest(component, epsilon * 2)[1]

    monkeypatch.setattr(Counters, "_drawn", staticmethod(drawn))


def stale_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refresh claims noise on the counters that it does not draw."""
    honest = Counters.refreshed

    def refreshed(self: Counters, epsilon: F) -> Counters:
        fresh = honest(self, epsilon)
        return fresh if not self.noise[0] else Counters(fresh.components, self.values.copy(), fresh.noise)

    monkeypatch.setattr(Counters, "refreshed", refreshed)


def bare_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """A publication adds no noise of its own to the counters."""
    honest = Counters.publish

    def publish(self: Counters, cost: Any, *, final: bool) -> Any:
        fresh = honest(self, cost, final=final)
        bare = honest(self, None, final=final)
        return tuple(replace(one, value=other.value) for one, other in zip(fresh, bare, strict=True))

    monkeypatch.setattr(Counters, "publish", publish)


@pytest.mark.statistics
@pytest.mark.parametrize(
    ("mutant", "name"),
    [
        (quiet_creation, "sealed total"),
        (quiet_creation, "sealed records"),
        (wrong_share, "sealed counted"),
        (stale_refresh, "refreshed total"),
        (bare_view, "released total"),
        (bare_view, "total sealed for little"),
    ],
)
def test_a_counter_with_other_noise_than_it_says_is_refused(
    mutant: Callable[[pytest.MonkeyPatch], None], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    make, counter, epsilons, truth = LAWS[name]
    found = [find_counter(make(LAW_SPEC).counters, counter) for _ in range(RUNS)]
    assert [draw.parameter for draw in found[0].noise] == epsilons, "the mutant lies about its noise"
    assert fits([one.value - truth for one in found], epsilons) < ALARM


def test_bytes_whose_counters_claim_other_noise_are_refused() -> None:
    from sketchstream import wire

    sealed = seal(LAW_SPEC)
    header, body = wire.unpack(sealed.to_bytes())
    assert ss.load(wire.pack(header, body, codec=wire.HUFFMAN)).counters == sealed.counters
    for at, change in itertools.product(range(3), ("epsilon", "name", "gone", "more")):
        forged = {**header, "counters": [dict(one) for one in header["counters"]]}
        one = forged["counters"][at]
        if change == "epsilon":
            one["noise"] = [{**one["noise"][0], "epsilon": "7/3"}, *one["noise"][1:]]
        elif change == "name":
            one["name"] = "other"
        elif change == "gone":
            del forged["counters"][at]
        else:
            one["noise"] = [*one["noise"], {"law": "discrete-laplace", "epsilon": "1/7"}]
        with pytest.raises(ss.FormatError):
            ss.load(wire.pack(forged, body, codec=wire.HUFFMAN))
