"""The guarantee of a sketch of kind `gaussian`: what is its own in it.

In: a spec, the ledger of its sketch, facts about its deployment. Out: sentences of its `Guarantee`. Touches: nothing.
Source: docs/theory/gaussian.md and docs/theory/gaussian_ledger.md prove each line; docs/guarantee.md explains them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sketchstream.privacy.guarantee import Context, assumptions
from sketchstream.privacy.sketch_history import show

if TYPE_CHECKING:
    from sketchstream.kinds.gaussian.spec import GaussianSpec
    from sketchstream.kinds.interface import AnyLedger


def protects(spec: GaussianSpec, ledger: AnyLedger) -> tuple[str, ...]:
    """Sentences on the unit.

    Args:
        spec: of the sketch.
        ledger: its history.
    """
    if spec.unit == "event":
        unit = (
            f"one event: whether it counted, for which item, and with which weight up to {spec.max_weight} in absolute "
            "value; an event and its later deletion are two"
        )
    else:
        unit = (
            f"everything that one item's source did in this sketch: events of absolute weights that add up to at most "
            f"{spec.max_total}"
        )
        if spec.max_per_slot is not None:
            unit += f", and to at most {spec.max_per_slot} in each slot"
    parts = len(ledger.history.parts)
    merged = (f"the sketch was merged from {parts} parts: the numbers below count them all",) if parts else ()
    return (
        unit,
        "packed records hold many events: each item of one, with its weight, is an event by itself, and how many there "
        "are belongs to the record's envelope",
        "relation: as if those payloads had been no-ops while everything else stayed; to swap someone for someone "
        "else, or to flip the sign of a weight: the shift doubles, so every mu^2 below becomes four times as large",
        *merged,
    )


def assumes(spec: GaussianSpec, around: Context) -> tuple[str, ...]:
    """Sentences on the assumptions of the proof and of the calibration.

    Args:
        spec: of the sketch.
        around: its deployment.
    """
    route = spec.calibration.route
    how = "summed exactly for every shift" if route == "exact" else "bounded by a rounded Gaussian nearby"
    lines = [f"delta of the discrete noise: {how}; sigma2 {show(spec.sigma2)} in squared units of {show(spec.step)}"]
    if spec.total_share:
        lines.append(f"counters beside the slots have {show(spec.total_share)} of every mu^2; they are in it")
    return (*assumptions(spec, around, "and (epsilon, delta)"), *lines)
