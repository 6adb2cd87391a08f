"""Laplace noise in the spectrum, counted in zCDP: theorems against every outcome of tiny states, and the engine.

In: histories of two words modulo a small number, specs. Out: exact divergences and deltas against what ledgers claim.
Touches: nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import sketchstream as ss
from helpers.convolution_losses import exact_loss, extreme_neighbours, verified_delta
from sketchstream import kinds
from sketchstream.errors import FormatError
from sketchstream.kinds.convolution.spec import ConvolutionSpec
from sketchstream.privacy.deployments.deployment import Deployment, Record
from sketchstream.privacy.ledgers.euclidean_ledger import EuclideanLedger
from sketchstream.privacy.ledgers.sketch_history import Promise
from sketchstream.privacy.losses.dp_events import dp_event
from sketchstream.privacy.losses.gaussian import GaussianLoss, UnitShift
from sketchstream.privacy.losses.history import LayerEntry
from sketchstream.privacy.losses.zcdp import zcdp_epsilon, zcdp_log_delta

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

GIVEN: dict[str, Any] = {"epsilon": 1, "delta": "1e-6", "noise": "laplace"}
KIND = kinds.by_name("convolution")
P = 22
"""Words are numbers modulo this."""
COLUMNS = np.array([[1, 1], [1, -1]])
"""What an event at position 0, or 1, adds to the two words: the transform of a group of two elements."""
LAYER, VIEW = Fraction(1, 3), Fraction(1, 4)
"""Epsilon of one word in the layer, and in the release."""


def laplace(epsilon: float) -> Floats:
    """(P,) discrete Laplace noise modulo P."""
    steps = np.arange(P)
    weights = np.exp(-epsilon * np.minimum(steps, P - steps))
    return np.asarray(weights / weights.sum())


def norm(epsilon: Fraction) -> Fraction:
    """The l2 norm of this epsilon in both words, rounded up."""
    return Fraction(math.sqrt(2) * float(epsilon) * (1 + 1e-12))


def released_then_bare(before: Callable[..., Any], after: Callable[..., Any], noise: float = 1.0) -> Floats:
    """(P, P, P, P) probabilities of a release (o0, o1) and then the bare state (x0, x1).

    Args:
        before: (o0, o1) -> the data in both words at the release; may not depend on them.
        after: (o0, o1) -> the data in both words at the end.
        noise: scale of all noise, 1 as claimed.
    """
    layer, fresh = laplace(float(LAYER) / noise), laplace(float(VIEW) / noise)
    o0, o1, x0, x1 = np.ogrid[:P, :P, :P, :P]
    first, last = before(o0, o1), after(o0, o1)
    out: Floats = np.ones((P, P, P, P))
    for o, x, held, end in ((o0, x0, first[0], last[0]), (o1, x1, first[1], last[1])):
        z = x - end
        out = out * layer[z % P] * fresh[(o - held - z) % P]
    return out


def nothing(*_: Ints) -> tuple[int, int]:
    """No data."""
    return 0, 0


def first(*_: Ints) -> tuple[int, int]:
    """One event at position 0."""
    return 1, 1


def chosen(o0: Ints, o1: Ints) -> tuple[Any, Any]:
    """One event, at the position that the release suggests."""
    place = ((o0 + 2 * o1) % P < P // 2).astype(np.int64)
    return COLUMNS[0, 0] + 0 * place, np.where(place, COLUMNS[1, 1], COLUMNS[0, 1])


def twice(o0: Ints, o1: Ints) -> tuple[Any, Any]:
    """An event at position 0, then one at the position that the release suggests."""
    more = chosen(o0, o1)
    return 1 + more[0], 1 + more[1]


def holds(one: Floats, other: Floats, rho: float) -> bool:
    """Whether two laws are within rho-zCDP of each other, and within the (epsilon, delta) that is said of it."""
    loss = GaussianLoss.of_rho(Fraction(rho))
    for p, q in ((one, other), (other, one)):
        ratio = np.log(p) - np.log(q)
        if np.sum(p * ratio) > rho:
            return False
        for alpha in (1.5, 2.0, 4.0, 16.0):
            if math.log(float(np.sum(p * np.exp((alpha - 1) * ratio)))) / (alpha - 1) > alpha * rho:
                return False
        for epsilon in (0.0, 0.1, 0.5, 1.0):
            if float(np.sum(np.maximum(p - math.exp(epsilon) * q, 0))) > loss.delta(epsilon):
                return False
    return True


def ledger(unit: str = "event", weight: int = 1) -> EuclideanLedger:
    """A layer, a release and a bare publication."""
    layer = LayerEntry(bytes(16), "spectral-laplace", weight * norm(LAYER))
    made = EuclideanLedger.create(unit, layer, Promise("bare"), UnitShift.of(1, 1))
    return made.charge_release(weight * norm(VIEW))


def test_events_lose_at_most_what_the_ledger_says() -> None:
    """An event before the release pays for the layer alone, one after it for both; each is close enough to see that."""
    early, late = (float(gap.loss) ** 2 / 2 for gap in ledger().loss_by_gap() if math.isfinite(gap.loss) and gap.loss)
    assert late == pytest.approx(float(ledger().loss().rho))
    quiet = released_then_bare(nothing, nothing)
    assert quiet.sum() == pytest.approx(1)
    assert holds(quiet, released_then_bare(first, first), early)
    assert holds(quiet, released_then_bare(nothing, chosen), late)
    assert not holds(quiet, released_then_bare(nothing, chosen), early)  # a release that nobody paid for
    weak = [released_then_bare(*shown, noise=0.5) for shown in ((nothing, nothing), (first, first), (nothing, chosen))]
    assert not holds(weak[0], weak[1], early)
    assert not holds(weak[0], weak[2], late)


def test_items_lose_at_most_what_one_event_of_their_size_does() -> None:
    """Half of the item is placed by what was seen of the other half."""
    claim = float(ledger("item", 2).loss().rho)
    assert claim == pytest.approx(4 * float(ledger().loss().rho))
    assert holds(released_then_bare(nothing, nothing), released_then_bare(first, twice), claim)
    weak = released_then_bare(nothing, nothing, 0.4), released_then_bare(first, twice, 0.4)
    assert not holds(*weak, claim)


def test_looks_and_fresh_layers() -> None:
    cost = norm(LAYER)
    layer = LayerEntry(bytes(16), "spectral-laplace", cost)
    fresh = EuclideanLedger.create("event", layer, Promise("fresh", 2 * cost), UnitShift.of(1, 1))
    assert fresh.loss().rho == cost**2 / 2
    assert fresh.loss(intrusion=True).rho == (2 * cost) ** 2 / 2
    bare = EuclideanLedger.create("event", layer, Promise("bare"), UnitShift.of(1, 1))
    assert bare.loss().rho == cost**2 / 2
    assert bare.loss(intrusion=True).mu2 == math.inf
    assert str(bare.loss(intrusion=True).at("1e-6")) == "unlimited"
    assert bare.record_look().loss().delta(3) == 1


def test_rho_says_the_smallest_epsilon_that_its_delta_does() -> None:
    for rho in (1e-6, 0.02, 0.5, 8.0):
        for delta in (1e-12, 1e-6, 1e-2):
            epsilon = zcdp_epsilon(rho, math.log(delta))
            said = zcdp_log_delta(rho, epsilon)
            assert said <= math.log(delta) + 1e-9
            assert not epsilon or said == pytest.approx(math.log(delta), abs=1e-6)
            assert epsilon < rho + 2 * math.sqrt(rho * math.log(1 / delta))
    loss = GaussianLoss.of_rho(Fraction(1, 50))
    assert loss.delta(loss.epsilon("1e-300")) <= 1.01e-300
    deltas = [loss.delta(epsilon) for epsilon in (0, 0.01, 0.1, 1, 3)]
    assert all(one >= other for one, other in pairwise(deltas))
    assert loss.times(3).rho == (loss + loss + loss).rho == Fraction(3, 50)
    assert not (loss + GaussianLoss.none()).normal
    assert GaussianLoss.worst([loss, loss.times(2)]).epsilon("1e-6") == pytest.approx(loss.times(2).epsilon("1e-6"))


@pytest.mark.parametrize("given", [{}, {"layout": "time"}, {"max_weight": 3}, {"unit": "item", "max_total": 5}])
@pytest.mark.parametrize("counted", ["0", "1/20"])
def test_the_engine_keeps_the_promise(given: dict[str, Any], counted: str) -> None:
    beside = {} if given.get("unit") == "item" else {"counted_share": counted}
    spec = ConvolutionSpec("window:8", 64, **GIVEN, **given, **beside)
    sketch = ss.Sketch.create(spec)
    sketch.update([1, 2, 63])
    sealed = ss.Sketch.from_bytes(sketch.to_bytes()).seal()
    again = ss.load(sealed.to_bytes())
    assert again.ledger == sealed.ledger
    for intrusion in (False, True):
        found = sealed.ledger.loss(intrusion=intrusion).epsilon(spec.delta)
        assert 1 - 1e-6 < found <= 1
    assert verified_delta(spec) <= spec.delta
    said = sealed.guarantee()
    assert "by zCDP" in str(said)
    assert "rho 0.0243" in str(said)
    assert "rho adds up" in " ".join(said.assumes)
    if spec.layout == "time":
        with pytest.raises(ss.SpecError, match="published once"):
            sketch.release("1/2", "1e-6")


def test_noise_that_is_drawn_has_the_loss_that_is_charged() -> None:
    """In exact sums over the words, for the cost in the ledger; half of that noise has four times the loss."""
    spec = ConvolutionSpec("sum", 4, max_weight=3, **GIVEN)
    for cost in (KIND.accounting.creation_cost(spec), KIND.accounting.asked_cost(spec, "1/3", "1e-7")):
        layer = spec.layer_of(cost)
        assert layer.cost == cost
        for one in extreme_neighbours(spec):
            assert exact_loss(spec, one, layer) <= cost**2 / 2
            assert exact_loss(spec, one, layer, spec.scheme.lattice_scales(layer) // 2) > cost**2 / 2


def test_releases_merges_and_budgets() -> None:
    spec = ConvolutionSpec("window:8", 64, **GIVEN)
    sketch = ss.Sketch.create(spec, max_epsilon="3/2", max_delta="1e-6")
    before = sketch.ledger.loss(intrusion=True).rho
    released = sketch.release("1/4", "1e-6")
    after = sketch.ledger.loss(intrusion=True).rho
    assert after == (KIND.accounting.creation_cost(spec) + released.cost) ** 2 / 2 > before
    bare = ss.Sketch.create(ConvolutionSpec("window:8", 64, intrusion=False, **GIVEN), max_epsilon="3/2")
    bare.release("1/4", "1e-6")
    with pytest.raises(ss.BudgetError, match="norm of at most"):
        bare.release("1", "1e-6")
    assert "norm" in str(bare.ledger)
    parts = [ss.Sketch.create(spec) for _ in range(3)]
    merged = ss.merge([one.seal() for one in parts])
    assert merged.ledger.loss().rho == before
    assert len(merged.estimate().answers[0].layers) == 6
    data = sketch.ledger.to_dict()
    with pytest.raises(FormatError):
        KIND.accounting.read_ledger(spec, data | {"measure": "mu2"})
    with pytest.raises(FormatError):
        KIND.accounting.read_ledger(ConvolutionSpec("window:8", 64, epsilon=1, noise="laplace_pure"), data)


def test_deployments_add_rho() -> None:
    hidden = ss.Sketch.create(ConvolutionSpec("window:8", 64, **GIVEN)).seal()
    normal = ss.Sketch.create(ConvolutionSpec("window:8", 64, **{**GIVEN, "noise": "gaussian"})).seal()
    pure = ss.Sketch.create(ConvolutionSpec("window:8", 64, epsilon="1/4", noise="laplace_pure")).seal()
    records = [
        Record(name, 0, None, None, (), one.ledger) for name, one in zip("abc", (hidden, normal, pure), strict=True)
    ]
    two = Deployment.from_records(records[:2]).total()
    rho = hidden.ledger.loss().rho
    assert two.event_gaussian.rho == rho + normal.ledger.loss().rho
    assert not two.event_gaussian.normal
    smallest = min(bound.mu2 for bound in two.event_gaussian.smoothed)
    assert two.event_at("1e-6").epsilon == pytest.approx(zcdp_epsilon(smallest / 2, math.log(1e-6)), rel=1e-3)
    whole = Deployment.from_records(records)
    assert whole.total().event_at("1e-6").epsilon > two.event_at("1e-6").epsilon
    assert "all sketches of both measures" in str(whole)
    copied = Record("a", 0, None, None, (), hidden.ledger, copies=(hidden.ledger,))
    assert copied.mu.rho == (2 * KIND.accounting.creation_cost(ConvolutionSpec("window:8", 64, **GIVEN))) ** 2 / 2
    with pytest.raises(ss.SpecError, match="rho alone"):
        dp_event([hidden.ledger.loss()])
