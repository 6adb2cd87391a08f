"""The guarantee of a sketch of kind `convolution`: what is its own in it.

In: a spec, the ledger of its sketch, facts about its deployment. Out: sentences of its `Guarantee`. Touches: nothing.
Source: docs/theory/convolution.md, sections 3, 6, 7 and 10; docs/theory/gaussian_ledger.md; docs/guarantee.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sketchstream.privacy.guarantee import Context, assumptions

if TYPE_CHECKING:
    from sketchstream.kinds.convolution.spec import ConvolutionSpec
    from sketchstream.kinds.interface import AnyLedger


def protects(spec: ConvolutionSpec, ledger: AnyLedger) -> tuple[str, ...]:
    """Sentences on the unit.

    Args:
        spec: of the sketch.
        ledger: its history.
    """
    if spec.unit == "event":
        unit = (
            f"one event: whether it counted, at which position, and with which weight up to {spec.bound} in absolute "
            "value; an event and its later deletion are two"
        )
    else:
        unit = (
            "everything that one item's source did in this sketch, at any positions: events of absolute weights that "
            f"add up to at most {spec.bound}"
        )
    parts = len(ledger.history.parts)
    merged = (f"the sketch was merged from {parts} parts: the numbers below count them all",) if parts else ()
    swapped = "every epsilon below doubles"
    if not spec.pure:
        measure = "mu^2" if spec.measure == "mu2" else "rho"
        swapped = f"the shift doubles, so every {measure} below becomes four times as large"
    return (
        unit,
        "packed records hold many events: each event of one, with its weight, is an event by itself, and how many "
        "there are belongs to the record's envelope",
        "relation: as if those payloads had been no-ops while everything else stayed; to move an event to another "
        f"position, or to flip the sign of a weight: {swapped}",
        *merged,
    )


def assumes(spec: ConvolutionSpec, ledger: AnyLedger, around: Context) -> tuple[str, ...]:
    """Sentences on the assumptions of the proof.

    Args:
        spec: of the sketch.
        ledger: its history.
        around: its deployment.
    """
    gaussian = not spec.pure
    lines = list(assumptions(spec, around, "and (epsilon, delta)") if gaussian else assumptions(spec, around))
    lines.append("filters, positions and the length of the series were fixed before the first event")
    if spec.unit == "item":
        lines.append(f"an item's weights add up to at most {spec.bound}, as its source promises: nothing checks that")
    if gaussian:
        if spec.measure == "mu2":
            lines.append("delta of the integer noise is bounded by a Gaussian nearby, with less variance by a rounding")
        else:
            lines.append("delta follows from zCDP: rho adds up over the coordinates of the noise, for each neighbour")
        spent = float(spec.sampling_delta(spec.epsilon, spec.delta)) * len(ledger.layers)
        if spent:
            lines.append(
                f"correlated noise is made with 128 bits: that adds at most {spent:.3g} to delta at epsilon "
                f"{spec.epsilon}, for the layers so far"
            )
    return tuple(lines)
