"""Audit of whole sketches: laws of the results of `create`, `release`, `refresh`, `seal`, `merge` and a worker.

In: specs of every kind. Out: findings for `sketchstream.audit.report`. Touches: entropy, through the sketches it
creates.
Source: docs/theory/privacy.md sections 2 and 6.

Nothing here calls internals of sketches. Expected results are computed again: laws from the fields of a
spec, histograms by counting, ledgers entry by entry. So a build with correct parts that are combined wrongly
fails.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from sketchstream.audit.observed import Outcome, costs, instead, state_of, untouched
from sketchstream.hashing import Key
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.noise import laws
from sketchstream.sketch import Sketch, merge
from sketchstream.spec import ClosedDomain, NoPrivacyWarning, OpenDomain

Ints = npt.NDArray[np.int64]
LOOK = Fraction(1, 3)
FRESH = Fraction(2, 3)
UNLIKELY = 1e-9
SURE = 12.0
"""Standard errors of epsilon at which a law is surely refused: some six for the p-value, the rest for its spread."""


def specs(slots: int) -> dict[str, ProfileSpec]:
    """Specs of every kind: units, domains, forms, weights, publications."""
    closed, opened = ClosedDomain(size=slots), OpenDomain(slots=slots, levels=4)
    state: dict[str, Any] = {"publish": "state"}
    more: dict[str, dict[str, Any]] = {
        "event, closed": {"epsilon": "1", "domain": closed},
        "event, open": {"epsilon": "1/2", "domain": opened},
        "event, weights to 5": {"epsilon": "2", "domain": closed, "max_weight": 5},
        "event, open, weights to 3": {"epsilon": "1", "domain": opened, "max_weight": 3},
        "event, no total": {"epsilon": "1", "domain": opened, "total_share": 0},
        "event, fresh state": {"epsilon": "1", "domain": opened, "intrusion": True, **state},
        "event, bare state": {"epsilon": "1", "domain": closed, "intrusion": False, **state},
        "event, fresh state, weights to 5": {
            "epsilon": "2", "domain": closed, "max_weight": 5, "intrusion": True, **state
        },
        "item, closed": {"epsilon": "1", "unit": "item", "modulus": 16, "domain": closed},
        "item, open": {"epsilon": "2", "unit": "item", "modulus": 8, "domain": opened},
        "item, fresh state": {
            "epsilon": "1", "unit": "item", "modulus": 16, "domain": opened, "intrusion": True, **state
        },
        "item, bare state": {
            "epsilon": "1", "unit": "item", "modulus": 16, "domain": closed, "intrusion": False, **state
        },
    }  # fmt: skip
    return {name: ProfileSpec(**{"epsilon_publish": "3/4", "max_count": 7, **given}) for name, given in more.items()}


def checks(slots: int) -> Iterator[tuple[str, Callable[[], Outcome]]]:
    """Names and checks of all tests, for each spec.

    Args:
        slots: number of counters of a sketch, and so of samples of a layer.
    """
    for name, spec in specs(slots).items():
        for verb, check in (
            ("create", _create),
            ("release", _release),
            ("refresh", _refresh),
            ("seal", _seal),
            ("ledger", _ledger),
        ):
            yield f"{verb}, {name}", lambda spec=spec, check=check: check(spec)  # type: ignore[misc]
        if spec.publish == "state":
            yield f"merge, {name}", lambda spec=spec: _merge(spec)  # type: ignore[misc]
    for name in ("event, closed", "event, open, weights to 3"):
        yield f"total, {name}", lambda name=name: _total(specs(64)[name], slots // 250)  # type: ignore[misc]
    for unit in ("event", "item"):
        for publish in ("histogram", "state"):
            yield f"worker, {unit}, {publish}", lambda u=unit, p=publish: _worker(u, p, slots)  # type: ignore[misc]


# Expected values, from the fields of a spec.


def _share(spec: ProfileSpec) -> Fraction:
    """Share of the slots in every layer and view."""
    return 1 - Fraction(spec.total_share)


def _layer(spec: ProfileSpec, epsilon: Fraction) -> laws.Law:
    """The law of one layer in every slot."""
    if spec.modulus is not None:
        return laws.RandomizedResponse(spec.modulus, epsilon * _share(spec))
    return laws.DiscreteLaplace(epsilon * _share(spec) / spec.max_weight)


def _view(spec: ProfileSpec, cost: Fraction) -> laws.Law:
    """The law of the noise on every entry of a histogram: one entry moves by one in cumulative form, two in bins."""
    cumulative = spec.unit == "event" and spec.max_weight == 1
    return laws.DiscreteLaplace(cost * _share(spec) / (1 if cumulative else 2))


def _histogram(spec: ProfileSpec, state: Ints) -> Ints:
    """(levels, B) histogram of the counters, counted one edge at a time."""
    levels = state.reshape(spec.levels, -1)
    if spec.unit == "event" and spec.max_weight == 1:
        half, whole = 1 << (8 * spec.dtype.itemsize - 1), 1 << (8 * spec.dtype.itemsize)
        columns = [((levels - edge) % whole < half).sum(axis=1) for edge in spec.edges.tolist()]
        return np.stack(columns, axis=1)
    columns = []
    for low, high in zip(spec.edges.tolist(), [*spec.edges.tolist()[1:], None], strict=True):
        inside = levels >= low if high is None else (levels >= low) & (levels < high)
        columns.append(inside.sum(axis=1))
    found: Ints = np.stack(columns, axis=1)
    found[:, 0] += (levels < spec.edges[0]).sum(axis=1)
    return found


def _moved(spec: ProfileSpec, after: Ints, before: Ints) -> Ints:
    """Difference that was added to a state."""
    return after - before if spec.modulus is None else (after - before) % spec.modulus


def _sketch(spec: ProfileSpec) -> Any:
    """Create a sketch."""
    return Sketch.create(spec, Key.generate() if spec.needs_key else None)


def judge(values: Ints, law: laws.Law) -> Outcome:
    """Test samples against a law: smallest p-value, and the error of epsilon that the tests would detect."""
    checked = laws.battery(values, law)
    worst = min(checked, key=lambda check: check.p_value)
    passed = worst.p_value > UNLIKELY
    found = f"p = {worst.p_value:.2g} ({worst.name}), n = {values.size}"
    parameter = "sigma" if isinstance(law, laws.DiscreteGaussian) else "epsilon"
    power = f"{parameter} wrong by {resolution(law, values.size):.1%}"
    return passed, f"p above {UNLIKELY:g}", found, power


def resolution(law: Any, n: int) -> float:
    """Relative error of a law's epsilon that n samples reveal: SURE standard errors, by Fisher information.

    For a Gaussian, that of its sigma.
    """
    if isinstance(law, laws.DiscreteGaussian):
        return SURE / math.sqrt(2 * n)
    epsilon = float(law.epsilon)
    step = Fraction(law.epsilon) / 1000
    here = np.arange(-2000, 2001) if isinstance(law, laws.DiscreteLaplace) else np.arange(law.modulus)
    if isinstance(law, laws.DiscreteLaplace):
        low, high = laws.DiscreteLaplace(law.epsilon - step), laws.DiscreteLaplace(law.epsilon + step)
        masses = [one.pmf(here) for one in (low, law, high)]
    else:
        around = (law.epsilon - step, law.epsilon, law.epsilon + step)
        masses = [laws.RandomizedResponse(law.modulus, e).pmf(here) for e in around]
    held = masses[1] > 1e-300
    slope = (masses[2][held] - masses[0][held]) / (2 * float(step))
    information = float((slope**2 / masses[1][held]).sum())
    return SURE / math.sqrt(n * information) / epsilon


# Checks.


def _create(spec: ProfileSpec) -> Outcome:
    """Check the content of created sketches."""
    return judge(state_of(_sketch(spec)), _layer(spec, spec.epsilon))


def _release(spec: ProfileSpec) -> Outcome:
    """Check that releases of one sketch have fresh noise of their law in every entry."""
    sketch = _sketch(spec)
    exact = _histogram(spec, state_of(sketch))
    drawn = np.stack([sketch.release(LOOK).noised - exact for _ in range(max(2, 20_000 // exact.size))])
    if bool((drawn[1:] == drawn[:-1]).all(axis=(1, 2)).any()):
        return False, "drawn afresh each time", "two releases with one noise", "one repetition"
    return judge(drawn.ravel(), _view(spec, LOOK))


def _refresh(spec: ProfileSpec) -> Outcome:
    """Check the noise that a refresh adds."""
    sketch = _sketch(spec)
    before = state_of(sketch)
    sketch.refresh(FRESH)
    return judge(_moved(spec, state_of(sketch), before), _layer(spec, FRESH))


def _seal(spec: ProfileSpec) -> Outcome:
    """Check the publication of a seal against the state before it."""
    if spec.publish == "histogram":
        small = _smaller(spec)
        noise = []
        for _ in range(max(20, 10_000 // (spec.levels * spec.edges.size))):
            sketch = _sketch(small)
            exact = _histogram(small, state_of(sketch))
            noise.append((sketch.seal().noised - exact).ravel())
        return judge(np.concatenate(noise), _view(spec, spec.epsilon_publish))
    sketch = _sketch(spec)
    before = state_of(sketch)
    moved = _moved(spec, sketch.seal().state.astype(np.int64), before)
    if spec.intrusion:
        return judge(moved, _layer(spec, spec.epsilon_publish))
    return untouched(moved)


def _smaller(spec: ProfileSpec) -> ProfileSpec:
    """The same spec with few slots, for sketches that are created quickly."""
    import copy

    twin = copy.copy(spec)
    domain = ClosedDomain(size=64) if isinstance(spec.domain, ClosedDomain) else OpenDomain(slots=64, levels=4)
    object.__setattr__(twin, "domain", domain)
    return twin


def _ledger(spec: ProfileSpec) -> Outcome:
    """Check the ledgers of a sketch and its publications after every step, entry by entry."""
    sketch = _sketch(_smaller(spec))
    wanted: list[tuple[str, Fraction | None]] = [("layer", spec.epsilon)]
    wrong = _differs(sketch.ledger, wanted)
    looked = sketch.release(LOOK)
    wanted = [*wanted, ("release", LOOK)]
    wrong = wrong or _differs(sketch.ledger, wanted) or _differs(looked.ledger, wanted)
    sketch.refresh(FRESH)
    wanted = [*wanted, ("look", None), ("layer", FRESH)]
    wrong = wrong or _differs(sketch.ledger, wanted)
    sealed = sketch.seal()
    if spec.publish == "histogram":
        wanted = [*wanted, ("publication", spec.epsilon_publish)]
    else:
        wanted = [*wanted, *([("layer", spec.epsilon_publish)] if spec.intrusion else []), ("publication", None)]
    wrong = wrong or _differs(sketch.ledger, wanted) or _differs(sealed.ledger, wanted)
    found = f"{len(wanted)} entries as they happened" if wrong is None else wrong
    return wrong is None, "every layer and view, at its cost", found, "one entry, or one cost"


def _differs(ledger: Any, wanted: Sequence[tuple[str, Fraction | None]]) -> str | None:
    """Text on the difference between a ledger and the expected one; None if they are equal."""
    found = costs(ledger)
    if found == list(wanted):
        return None
    return f"after {wanted[-1][0]}: {instead((kind for kind, _ in found), (kind for kind, _ in wanted))}"


def _merge(spec: ProfileSpec) -> Outcome:
    """Check that merged states, open and sealed, are the parts' sum and have all of their layers."""
    key = Key.generate() if spec.needs_key else None
    wrong = []
    for seal in (False, True):
        parts = [Sketch.create(spec, key) for _ in range(2)]
        given: list[Any] = [part.seal() for part in parts] if seal else list(parts)
        states = [part.state.astype(np.int64) if seal else state_of(part) for part in given]
        layers = sum(len(part.layers) for part in given)
        merged: Any = merge(given)
        total = merged.state.astype(np.int64) if seal else state_of(merged)
        if _moved(spec, total, states[0] + states[1]).any() or len(merged.layers) != layers:
            wrong.append("sealed" if seal else "open")
        if len(list(merged.ledger.history.layers())) != layers:
            wrong.append("ledger")
    found = "the sum" if not wrong else f"WRONG: {', '.join(wrong)}"
    return not wrong, "the sum, with all layers", found, "one counter, one layer"


def _total(spec: ProfileSpec, number: int) -> Outcome:
    """Check the noisy totals in releases of many empty sketches: a layer and a view, each at the total's share."""
    share = Fraction(spec.total_share) / (2 if spec.counted else 1) / spec.max_weight
    seen = [
        next(one.value for one in _sketch(spec).release(LOOK).counters if one.name == "total") for _ in range(number)
    ]
    scales = (spec.epsilon * share, LOOK * share)
    a = [math.exp(-float(scale)) for scale in scales]
    variance = sum(2 * one / (1 - one) ** 2 for one in a)
    sd = math.sqrt(variance)
    values = np.array(seen, np.float64) / sd
    spread = float((values**2).mean())
    error = 6.5 * math.sqrt(8.0 / number)  # excess kurtosis of one Laplace value is 3, of a sum less
    passed = abs(spread - 1) < error and abs(float(values.mean())) < 6.5 / math.sqrt(number)
    found = f"mean {values.mean():.3f}, variance {spread:.3f} of the claimed one, n = {number}"
    return passed, "mean 0, variance 1", found, f"epsilon wrong by {error / 2:.0%}"


CONFIGURATION = """
[kafka]
bootstrap.servers = "unused:9092"
group.id = "audit"
[input]
topic = "events"
item = "user"
item_type = "int"
time = "ts"
partitioned_by = "item"
partitioner = "murmur2"
lateness = "5m"
[[sketch]]
name = "audit"
window = "1h"
epsilon = "{epsilon}"
epsilon_publish = "3/4"
max_count = {max_count}
{more}
domain = {{ size = {slots} }}
"""
HOURS = 30
OUTSIDE = 1 << 40
"""An item outside of every domain here: a payload that counts nothing."""


def _worker(unit: str, publish: str, slots: int) -> Outcome:
    """Check that a worker's windows of records with empty payloads are noise of the promised law."""
    from sketchstream.testing.driver import Driver

    bare = publish == "state"
    more = [f'unit = "{unit}"', f'publish = "{publish}"', *(["intrusion = false"] if bare else [])]
    more += [f"modulus = {16 if bare else 1000}"] if unit == "item" else []
    # histograms: the state has negligible noise, so that published numbers are the noise of the publication
    # and many entries in each, as each is a sample
    text = CONFIGURATION.format(
        epsilon="1" if bare else "40",
        max_count=7 if bare else 500,
        more="\n".join(more),
        slots=slots if bare else 64,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoPrivacyWarning)
        driver = Driver(text, now="2024-01-01T00:00:00Z")
        for minute in range(0, 60 * (2 if bare else HOURS), 10):
            at = f"2024-01-{1 + minute // 1440:02}T{minute // 60 % 24:02}:{minute % 60:02}:00Z"
            driver.advance(minutes=10)
            driver.send({"user": OUTSIDE, "ts": at}, timestamp=at)
            driver.run()
        driver.advance(hours=6)
        parts: list[Any] = [part for window in driver.windows("audit") for part in window.parts]
    spec = parts[0].spec
    if bare:
        return judge(np.concatenate([part.state.astype(np.int64) for part in parts]), _layer(spec, spec.epsilon))
    exact = _histogram(spec, np.zeros(parts[0].slots, np.int64))
    noise = np.concatenate([(part.noised - exact).ravel() for part in parts])
    wrong = [one for part in parts if (one := _differs(part.ledger, PUBLISHED)) is not None]
    if wrong or len(parts) < HOURS - 1:
        return False, "one publication of each window, charged", wrong[0] if wrong else f"{len(parts)} windows", "one"
    return judge(noise, _view(spec, spec.epsilon_publish))


PUBLISHED = (("layer", Fraction(40)), ("publication", Fraction(3, 4)))
