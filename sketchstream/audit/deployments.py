"""Audit of deployments: what all published windows of all sketches cost together, and copies of one state.

In: cases of every kind. Out: outcomes. Touches: entropy, through the sketches it creates.
Source: docs/theory/privacy.md section 5 (what adds and what does not).

Totals are added up again window by window, at every instant. Losses to copies are found from everything that is seen:
by enumeration for pure noise, from its covariance for Gaussian noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np

from sketchstream.audit import oracle
from sketchstream.audit.cases import Case
from sketchstream.audit.histories import TIGHT, distance2, same_loss
from sketchstream.audit.observed import Outcome
from sketchstream.privacy.deployments.deployment import Deployment
from sketchstream.privacy.losses.history import History, LayerEntry, View
from sketchstream.provenance import Origin
from sketchstream.sketch import Sketch
from sketchstream.stream.state.window_sketch import WindowSketch

WINDOWS: Final = ((0, 1000), (1000, 2000), (500, 1500), (500, 2500))
"""Windows that follow each other and that overlap, ms."""
Totals = dict[str, float]
"""Loss of an event and of an item, in pure epsilon, rho and mu^2."""


def deployment(case: Case) -> Outcome:
    """Check totals over windows, partitions, names and revisions against sums at every instant."""
    parts = []
    for name, revision in (("hits", 0), ("hits", 1), ("visits", 0)):
        for window in WINDOWS:
            for partition in (0, 1):
                origin = Origin(name=name, revision=revision, window=window, partition=partition, partitions=(2,))
                sketch = case.sketch(case.small, origin=origin)
                if partition and name == "visits" and "release" in case.costs:
                    parts.append(sketch.release(*case.asked))
                parts.append(sketch.seal())
    for keyed in (True, False):
        wrong = compare_totals(Deployment.of(reversed(parts), keyed=keyed).total(), brute_force(parts, keyed=keyed))
        if wrong:
            return False, "the sum over all windows that hold the unit", f"WRONG: {wrong}", "one window"
    found = f"{len(parts)} publications add up"
    return True, "the sum over all windows that hold the unit", found, "one window, or one partition"


def brute_force(parts: Sequence[Any], *, keyed: bool) -> Totals:
    """Totals of a deployment, added up at every instant.

    Args:
        parts: what was published; of several publications of one sketch the last one counts.
        keyed: whether an item lies in one partition.
    """
    last: dict[Any, Any] = {}
    for part in parts:
        place = (part.origin.name, part.origin.revision, part.origin.window, part.origin.partition)
        if place not in last or len(part.ledger.history.entries) > len(last[place].ledger.history.entries):
            last[place] = part
    starts = {window[0] for _, _, window, _ in last}
    out: Totals = {"event": 0.0, "item": 0.0, "event_gaussian": 0.0, "item_gaussian": 0.0}
    for at in starts:
        for partition in {place[3] for place in last}:
            holding = [
                value for place, value in last.items() if place[2][0] <= at < place[2][1] and place[3] == partition
            ]
            for field, gaussian in (("event", False), ("event_gaussian", True)):
                total = sum(_event(record) for record in holding if _gaussian(record) == gaussian)
                out[field] = max(out[field], total)
    windows: dict[Any, list[Any]] = {}
    for place, one in last.items():
        if one.ledger.unit == "item":
            windows.setdefault(place[:3], []).append(one)
    for records in windows.values():
        for field, gaussian in (("item", False), ("item_gaussian", True)):
            each = [float(_loss(record)) for record in records if _gaussian(record) == gaussian]
            out[field] += (max(each) if keyed else sum(each)) if each else 0.0
    return out


def compare_totals(total: Any, expected: Totals) -> str | None:
    """Text on the first total that differs; None if all agree."""
    for field, value in expected.items():
        stated = getattr(total, field)
        stated = float(stated.mu2 if field.endswith("gaussian") else stated)
        if not same_loss(stated, value):
            return f"{field.replace('_', ', ')} {stated:.9g}, wanted {value:.9g}"
    rho = float(total.event) ** 2 / 2
    if float(total.event_zcdp) > rho * (1 + TIGHT) or (total.event and not total.event_zcdp):
        return f"event, rho {float(total.event_zcdp):.9g}, at most {rho:.9g}"
    return None


def _gaussian(record: Any) -> bool:
    return hasattr(record.ledger.loss(), "mu2")


def _loss(record: Any) -> Any:
    """mu^2 or epsilon of one sketch."""
    loss = record.ledger.loss()
    return loss.mu2 if hasattr(loss, "mu2") else loss


def _event(record: Any) -> float:
    """Loss of one event to one sketch: for unit "item" that of an event, which may be smaller."""
    return float(_loss(record) if _gaussian(record) else record.ledger.most_of_event)


# Copies.


def copies(case: Case) -> Outcome:
    """Check the loss to two copies of one open state, each of which is sealed: an incident, and never too small."""
    claim = "an incident, no less than what both show together, and no more than both publications cost"
    power = "a copy that costs nothing, or twice"
    sketch = case.few()
    data = sketch.to_bytes()
    other = Sketch.from_bytes(data, case.key if case.spec.needs_key else None)
    seals = [sketch.seal(), other.seal()]
    layer, views = case.costs["create"], [case.costs.get("seal")] * 2
    wrong: list[str] = []
    for published in (seals, seals[::-1]):
        deployment = Deployment.of(published)
        total = deployment.total()
        value = total.event_gaussian.mu2 if _gaussian(seals[0]) else total.event
        loss = float(value)
        least = _of_two(case, float(layer), [None if view is None else float(view) for view in views])
        most = sum(float(view) for view in views if view is not None) if None not in views else math.inf
        most = most**2 if case.measure == "norm" else most
        if case.measure != "mean" and loss > most * (1 + case.slack):
            wrong.append(f"a loss of {loss:.6g}, wanted at most {most:.6g}")
        if not deployment.copied():
            wrong.append("no incident")
        if loss < least * (1 - case.slack) and not (math.isinf(loss) and math.isinf(least)):
            wrong.append(f"a loss of {loss:.6g}, wanted at least {least:.6g}")
        if case.spec.unit == "item":
            item = float(total.item_gaussian.mu2 if _gaussian(seals[0]) else total.item)
            if item < least * (1 - case.slack):
                wrong.append(f"an item's loss of {item:.6g}, wanted at least {least:.6g}")
    found_text = "an incident" if not wrong else f"WRONG: {wrong[0]}"
    return not wrong, claim, found_text, power


def _of_two(case: Case, layer: float, views: list[float | None]) -> float:
    """Loss of an event that one copy counted, or both, to what both copies publish."""
    if case.measure == "mean":
        return math.inf  # nothing is proved of copies of a state with a secret matrix
    if case.measure == "mu^2":
        fresh = [0.0 if view is None else 1 / view for view in views]
        covariance = np.full((2, 2), 1 / layer) + np.diag(fresh)
        return max(distance2(covariance, np.array(shift, float)) for shift in ((1, 0), (1, 1)))
    if views[0] is None:
        return math.inf
    costs = [Fraction(view).limit_denominator(1 << 20) for view in views if view is not None]
    first = LayerEntry(oracle.LINEAGE, "randomized-response", Fraction(layer).limit_denominator(1 << 20))
    # an event that both counted, before two views of the one state
    history = History((first, *(View("release", cost) for cost in costs)))
    exact = max(oracle.exact_event_losses(history, oracle.EVENT_RING).values())
    return exact**2 if case.measure == "norm" else exact


def copied_series(case: Case) -> Outcome:
    """Check that two copies of a series whose positions are published have no bound, and that one series is no copy."""
    claim = "copies: no bound, whatever each has published; one series, in any order: no incident"
    wrong: list[str] = []
    for what in ("early, early", "early, cut elsewhere", "early, seal", "seal, early", "seal, seal"):
        first, second = _two_series(case, what)
        for published in ([*first, *second], [*second, *first]):
            deployment = Deployment.of(published)
            total = deployment.total()
            loss = total.event_gaussian.mu2 if _gaussian(published[0]) else total.event
            if len(deployment.copied()) != 1 or loss != math.inf:
                wrong.append(f"{what}: a loss of {float(loss):.6g}, {len(deployment.copied())} incidents")
    once = _regular(case)
    alone = Deployment.of(once[:1]).total()
    for published in (once, once[::-1], once[1:] + once):
        deployment = Deployment.of(published)
        if deployment.copied() or deployment.total().to_dict() != alone.to_dict():
            wrong.append("one series is taken for copies, or costs more than its first positions")
    text = "no bound, one incident each" if not wrong else f"WRONG: {wrong[0]}"
    return not wrong, claim, text, "two copies that count as one, or positions that count again"


def _two_series(case: Case, what: str) -> tuple[list[Any], list[Any]]:
    """What two copies of one series have published."""
    one = case.sketch()
    two = WindowSketch.from_bytes(one.to_bytes(), case.key if case.spec.needs_key else None)
    two.update([0, 1, 1])
    first, _, second = what.partition(", ")
    out: list[list[Any]] = []
    for sketch, done in ((one, first), (two, second)):
        cuts = ((0, 2), (2, 5)) if done == "cut elsewhere" else ((0, 3),)
        out.append([sketch.seal()] if done == "seal" else [sketch.close_positions(*cut) for cut in cuts])
    return out[0], out[1]


def _regular(case: Case) -> list[Any]:
    """What one series publishes, which a snapshot interrupts."""
    sketch = case.sketch()
    published: list[Any] = [sketch.close_positions(0, 3)]
    sketch = WindowSketch.from_bytes(sketch.to_bytes(), case.key if case.spec.needs_key else None)
    sketch.update([4, 4])
    return [*published, sketch.close_positions(3, 7), sketch.seal()]
