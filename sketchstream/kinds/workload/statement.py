"""The guarantee of a sketch of kind `workload`: what is its own in it.

In: a spec, the ledger of its sketch. Out: sentences of its `Guarantee`. Touches: nothing.
Source: docs/theory/workload.md, sections 1 and 7; docs/theory/gaussian_ledger.md.
"""

from __future__ import annotations

from sketchstream.kinds.interface import AnyLedger
from sketchstream.kinds.workload.spec import WorkloadSpec


def protects(spec: WorkloadSpec, ledger: AnyLedger) -> tuple[str, ...]:
    """Sentences on the unit.

    Args:
        spec: of the sketch.
        ledger: its history.
    """
    if spec.unit == "event":
        weight = "" if spec.max_weight == 1 else f", of any weight up to {spec.max_weight} in absolute value"
        unit = f"one event: whether it counted, and in which cell{weight}; an event and its later deletion are two"
    else:
        unit = (
            f"everything that one item did in this sketch, in any cells, as long as the absolute weights of its events "
            f"add up to at most {spec.max_total}"
        )
    lines = [
        unit,
        "relation: as if those payloads had been no-ops while everything else stayed; to move an event to another cell "
        "is two changes: twice the epsilon of pure noise, four times the mu^2 of Gaussian noise",
    ]
    parts = len(ledger.history.parts)
    if parts:
        lines.append(f"the sketch was merged from {parts} parts: the numbers below count them all")
    return tuple(lines)


def assumes(spec: WorkloadSpec) -> tuple[str, ...]:
    """Sentences on the assumptions of the proof.

    Args:
        spec: of the sketch.
    """
    how = "delta = 0 up to the cipher" if spec.pure else "delta is stated above, and the cipher's is not counted"
    lines = [
        f"AES-256: this is computational differential privacy, {how}; the samplers are exact",
        "the queries, the table's columns and all parameters were not chosen from the data",
        "the sensitivities are those of the integer strategy in the spec, computed from its integers",
    ]
    if spec.max_total is not None:
        lines.append(
            f"the absolute weights of one item's events add up to at most {spec.max_total} over all partitions of a "
            "window, as its source promises (max_total)"
        )
    return tuple(lines)
