"""Audit of ledgers: entry by entry and cost by cost after each step of a sketch's life, and the losses they add up to.

In: cases of every kind. Out: outcomes. Touches: entropy, through the sketches it creates.
Source: docs/theory/privacy.md section 3; docs/theory/gaussian_ledger.md section 2.

The expected history is written down here step by step, with costs from the fields of the spec. Its loss is found
without the lemma of looks: by enumeration for pure noise (`sketchstream.audit.oracle`), and from the
covariance of everything that is seen for Gaussian noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

import numpy as np

from sketchstream import published
from sketchstream.audit import oracle
from sketchstream.audit.cases import Case, Number
from sketchstream.audit.observed import Outcome, costs, counters_of, noise_added, state_of
from sketchstream.privacy.losses.history import Entry, History, LayerEntry, View
from sketchstream.sketch import Sketch, merge

Wanted = list[tuple[str, Number | None]]
TIGHT: Final = 1e-6
"""Relative error of a loss in mu^2, which is exact."""
MAX_VIEWS: Final = 3
"""Views of a history whose losses are enumerated; with more of them enumeration takes minutes."""


# Entries.


def ledger(case: Case) -> Outcome:
    """Check entries, costs and losses after each step: create, release, refresh, copy, release, seal."""
    claim, power = (
        "every layer and view, at its cost, and the loss of them",
        f"one entry; a cost wrong by {case.slack:g}",
    )
    sketch = case.few()
    expected: Wanted = [("layer", case.costs["create"])]
    seen: list[Any] = []

    def wrong() -> str | None:
        return differs(case, sketch.ledger, expected) or losses(case, sketch.ledger, expected)

    text = wrong()
    for step in ("release", "refresh", "copy", "release"):
        if step == "copy":
            again = Sketch.from_bytes(sketch.to_bytes(), case.key if case.spec.needs_key else None)
            if sketch.ledger.copies == 0 or again.ledger.copies == 0:
                text = text or "a copy of the open state is not noted"
        elif step in case.costs:
            if step == "release":
                seen.append(sketch.release(*case.asked))
                expected.append(("release", case.costs["release"]))
                text = text or differs(case, seen[-1].ledger, expected) or compare_cost(case, seen[-1], "release")
            else:
                sketch.refresh(*case.asked)
                expected += [("look", None), ("layer", case.costs["refresh"])]
        text = text or wrong()
    sealed = sketch.seal()
    expected += publication(case)
    seen.append(sealed)
    text = text or wrong() or differs(case, sealed.ledger, expected) or losses(case, sealed.ledger, expected)
    text = text or compare_cost(case, sealed, "seal")
    for release in seen:
        text = text or _survives(release)
    return text is None, claim, text or f"{len(expected)} entries as they happened", power


def publication(case: Case) -> Wanted:
    """The entries that the seal appends."""
    if case.publishes == "histogram":
        return [("publication", case.costs["seal"])]
    return [*([("layer", case.costs["seal"])] if case.publishes == "fresh" else []), ("publication", None)]


def differs(case: Case, ledger: Any, wanted: Wanted) -> str | None:
    """Text on the first difference of a ledger and the expected one; None if there is none."""
    entries = costs(ledger)
    if [kind for kind, _ in entries] != [kind for kind, _ in wanted]:
        return f"{', '.join(kind for kind, _ in entries)}; wanted {', '.join(kind for kind, _ in wanted)}"
    for (kind, cost), (_, expected) in zip(entries, wanted, strict=True):
        if not _close(cost, expected, case.slack):
            return f"{kind} of cost {_text(cost)}; wanted {_text(expected)}"
    if ledger.unit != case.spec.unit:
        return f"the unit is {ledger.unit}; wanted {case.spec.unit}"
    return None


def compare_cost(case: Case, published: Any, step: str) -> str | None:
    """Text on a publication whose own fields say another cost than its ledger; None if they agree."""
    cost = getattr(published, "cost", None)
    if cost is not None and not _close(cost, case.costs[step], case.slack):  # type: ignore[index]
        return f"published at cost {_text(cost)}; wanted {_text(case.costs[step])}"  # type: ignore[index]
    layers = sum(kind == "layer" for kind, _ in costs(published.ledger))
    if len(published.layers) != layers:
        return f"{len(published.layers)} layers in the header, {layers} in the ledger"
    if len({layer.lineage for layer in published.layers}) != layers:
        return "two layers of one name"
    names = [entry.lineage for entry in published.ledger.layers]
    return None if names == [layer.lineage for layer in published.layers] else "header and ledger name different layers"


def _survives(sketch: Any) -> str | None:
    """Text on a publication that changes when it is written and read; None if it stays as it is."""
    data = sketch.to_bytes()
    return None if published.read_published(data).to_bytes() == data else "the bytes change when they are read"


def _close(value: Number | None, expected: Number | None, slack: float) -> bool:
    """Whether two costs agree; exact fractions exactly."""
    if value is None or expected is None:
        return value is expected
    return value == expected if isinstance(expected, Fraction) else abs(float(value) / expected - 1) <= slack


def _text(cost: Number | None) -> str:
    return "none" if cost is None else f"{float(cost):.6g}"


# Losses.


def losses(case: Case, ledger: Any, expected: Wanted) -> str | None:
    """Text on a claimed loss that is not that of the expected history; None if all are right.

    Costs are those of the ledger itself, which have been compared; the promised publication is added.
    """
    entries = [_entry(kind, cost) for kind, cost in costs(ledger)]
    if expected[-1][0] != "publication":
        entries += _promised_entries(case, ledger)
    history = History(tuple(entries), (), len(publication(case)))
    if case.measure in ("mu^2", "mean"):
        exact = of_gaussians(history)
        looked = max(map(of_gaussians, _histories_with_a_look(history)), default=exact)
        field = "mu2" if case.measure == "mu^2" else "mean"
        claims = (getattr(ledger.loss(), field), getattr(ledger.loss(intrusion=True), field))
        for claim, true in zip(claims, (exact, looked), strict=True):
            if not same_loss(float(claim), true):
                return f"a loss of mu^2 {float(claim):.9g}; wanted {true:.9g}"
        return None
    if sum(isinstance(entry, View) for entry in entries) > MAX_VIEWS:
        return None
    return _pure_losses(case, ledger, history)


def _pure_losses(case: Case, ledger: Any, history: History) -> str | None:
    """The check of `losses`, for epsilons and norms: never below the enumerated loss, and finite where that is."""
    item = case.spec.unit == "item" and case.measure == "epsilon" and case.modulus is not None
    looks = [history, *_histories_with_a_look(history)]

    def exact(one: History) -> float:
        if item:
            return oracle.exact_item_loss(one)
        return max(oracle.exact_event_losses(one, oracle.EVENT_RING).values())

    true = [exact(history), max(exact(look) for look in looks) if len(looks) < 5 or not item else 0.0]
    for claim, loss in zip((_size(ledger.loss()), _size(ledger.loss(intrusion=True))), true, strict=True):
        if claim < loss - 1e-9 or (math.isinf(claim) and not math.isinf(loss) and loss > 0):
            return f"a loss of {claim:.6g}; wanted at least {loss:.6g}"
    return None


def _size(loss: Any) -> float:
    """Epsilon, or the norm sqrt(2 rho)."""
    return math.sqrt(2 * float(loss.rho)) if hasattr(loss, "rho") else float(loss)


def _promised_entries(case: Case, ledger: Any) -> list[Entry]:
    """The entries of the publication, with the exact costs of the promise where they are those of the case."""
    exact = ledger.promised.cost
    out: list[Entry] = []
    for kind, cost in publication(case):
        right = exact is not None and _close(exact, cost, case.slack)
        out.append(_entry(kind, None if cost is None else exact if right else Fraction(cost)))
    return out


def _entry(kind: str, cost: Fraction | None) -> Entry:
    if kind == "layer":
        assert cost is not None
        return LayerEntry(oracle.LINEAGE, "randomized-response", cost)
    return View(kind, cost)  # type: ignore[arg-type]


def _histories_with_a_look(history: History) -> Iterator[History]:
    """The history with one look at the open state at each moment between two entries."""
    last = len(history.entries) - (history.seal or 0)
    for at in range(1, last + 1):
        entries = (*history.entries[:at], View("look", None), *history.entries[at:])
        yield History(entries, history.parts, history.seal)


def of_gaussians(history: History) -> float:
    """Largest mu^2 of an event, from the covariance of everything that is seen; infinite if it shows.

    Args:
        history: layers and views whose costs are 1 / variance.
    """
    seen = oracle.Transcript.of(history)
    variances = [float(1 / layer.cost) for layer in seen.layers]
    shared = np.array(
        [
            [sum(variances[layer] for layer in first.layers & second.layers) for second in seen.views]
            for first in seen.views
        ]
    ).reshape(len(seen.views), len(seen.views))
    fresh = [0.0 if view.cost is None else float(1 / view.cost) for view in seen.views]
    covariance = shared + np.diag(fresh)
    worst = 0.0
    for place in seen.places:
        shift = np.array([float(seen.sees(view, place)) for view in seen.views])
        worst = max(worst, distance2(covariance, shift))
    return worst


def distance2(covariance: Any, shift: Any) -> float:
    """Squared Mahalanobis length of a shift; infinite if it has a part without noise."""
    if not len(shift):
        return 0.0
    solution, *_ = np.linalg.lstsq(covariance, shift, rcond=1e-11)
    if np.abs(covariance @ solution - shift).max() > 1e-6:
        return math.inf
    return float(shift @ solution)


def same_loss(claim: float, true: float) -> bool:
    """Whether a claim is the true loss."""
    if math.isinf(claim) or math.isinf(true):
        return claim == true
    return abs(claim - true) <= TIGHT * max(true, 1e-12)


# Merges.


def check_merges(case: Case) -> Outcome:
    """Check that merged sketches, open and sealed, are the sum of their parts, with all their layers and counters."""
    wrong: list[str] = []
    open_parts = [] if getattr(case.spec, "publish", "state") == "closed" else [False]  # refused, with closed positions
    for seal in [*open_parts, *([True] if case.publishes != "histogram" else [])]:
        parts = [case.few() for _ in range(3)]
        published = [part.seal() for part in parts] if seal else parts
        states = [state_of(part) for part in published]
        counters = [counters_of(part) for part in published]
        names = [layer.lineage for part in published for layer in part.layers]
        total: Any = merge(published)
        if noise_added(state_of(total), np.sum(states, axis=0), case.modulus).any():
            wrong.append("state")
        sums = {name: sum(counter[name] for counter in counters) for name in counters[0]}
        if counters_of(total) != sums:
            wrong.append("counters")
        if [layer.lineage for layer in total.layers] != names:
            wrong.append("layers")
        if [layer.lineage for layer in total.ledger.layers] != names or len(total.ledger.history.parts) != 3:
            wrong.append("ledger")
        for part in total.ledger.history.parts:
            layers = part.without_copies().entries
            if not _close(layers[0].cost, case.costs["create"], case.slack):
                wrong.append("costs")
        wrong += _merged_loss(case, total)
    found = "the sum" if not wrong else f"WRONG: {', '.join(dict.fromkeys(wrong))}"
    return not wrong, "the sum, with all layers and counters", found, "one counter, one layer, one cost"


def _merged_loss(case: Case, total: Any) -> Iterator[str]:
    if case.measure != "mu^2":
        return
    history = total.ledger.history.without_copies()
    if history.seal is None:
        history = history.sealed_by(*_promised_entries(case, total.ledger))
    if not same_loss(float(total.ledger.loss().mu2), of_gaussians(history)):
        yield "loss"
