"""The guarantee of a sketch of kind `convolution`, in (epsilon, delta) and mu^2 or in pure epsilons.

In: a spec, the ledger of its sketch, facts about its deployment. Out: a `GaussianGuarantee` or a
`Guarantee`, which print as text and turn into plain data. Touches: nothing.
Source: docs/theory/convolution.md, sections 3, 6, 7 and 10; docs/theory/gaussian_ledger.md; docs/guarantee.md.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sketchstream.kinds.gaussian.guarantee import GaussianGuarantee
from sketchstream.privacy.gaussian_ledger import GaussianLedger
from sketchstream.privacy.guarantee import (
    Context,
    Guarantee,
    assumptions,
    copies_of_item,
    duration,
    intruder_of,
    not_protected,
    overlap_said,
    reader_of,
    windows_a_day,
    windows_of,
)
from sketchstream.privacy.sketch_history import show
from sketchstream.spec import NO_PRIVACY

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sketchstream.kinds.convolution.spec import ConvolutionSpec
    from sketchstream.privacy.ledger import Ledger


def statement(
    spec: ConvolutionSpec, ledger: GaussianLedger | Ledger, context: Context | None = None
) -> GaussianGuarantee | Guarantee:
    """The guarantee of a sketch with this ledger, in this deployment.

    Args:
        spec: spec of the sketch.
        ledger: its history.
        context: the deployment, as far as it is known.
    """
    around = context or Context()
    item = spec.unit == "item"
    copies = copies_of_item(around) if item else 1
    windows = windows_a_day(around) if item else around.overlap
    endless = item and around.window_ms is not None and around.published_ms is None
    kept = windows_of(around.window_ms, around.published_ms or 0, around.overlap) * copies if item else windows
    sentences = {
        "protects": _protects(spec, ledger),
        "lost": tuple(
            not_protected(spec, ledger, around, states=True, bare=not spec.intrusion),
        ),
        "assumes": _assumes(spec, ledger, around),
    }
    if isinstance(ledger, GaussianLedger):
        seen, looked = ledger.loss(), ledger.loss(intrusion=True)

        def text(loss: Any) -> str:
            if loss.mu2 == math.inf:
                return "unlimited"
            measure = f"mu^2 {float(loss.mu2):.4g}" if spec.measure == "mu2" else f"rho {float(loss.rho):.4g}"
            return f"{loss.at(spec.delta)}, {measure}"

        return GaussianGuarantee(
            unit=spec.unit,
            delta=spec.delta,
            published=seen,
            looked=looked,
            total=seen.times(copies * windows),
            kept=None if endless else seen.times(kept),
            no_privacy=spec.no_privacy or seen.epsilon(spec.delta) > NO_PRIVACY,
            seen=_seen(spec, text, seen, looked, seen.times(copies * windows), around),
            **sentences,
        )
    loss, copied = ledger.loss(), ledger.loss(intrusion=True)
    total = loss * copies * windows
    worst = max(loss, *(entry.cost for entry in ledger.layers))
    return Guarantee(
        unit=spec.unit,
        published=loss,
        looked=copied,
        total=total,
        kept=math.inf if endless else loss * kept,
        total_zcdp=ledger.zcdp() * copies * windows,
        no_privacy=spec.no_privacy or worst > NO_PRIVACY,
        seen=_seen(spec, show, loss, copied, total, around),
        **sentences,
    )


def _protects(spec: ConvolutionSpec, ledger: GaussianLedger | Ledger) -> tuple[str, ...]:
    """Sentences on the unit."""
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
    if isinstance(ledger, GaussianLedger):
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


def _seen(
    spec: ConvolutionSpec, text: Callable[[Any], str], published: Any, looked: Any, day: Any, around: Context
) -> tuple[str, ...]:
    """Sentences with the losses."""
    unit = "an event" if spec.unit == "event" else "an item"
    lines = [f"{reader_of(around)}: {unit} loses at most {text(published)}"]
    reader = intruder_of(around)
    if text(looked) == "unlimited":
        lines.append(f"{reader}: no bound; the guarantee is void for {spec.unit}s after any copy of the open state")
    else:
        lines.append(f"{reader}: {unit} loses at most {text(looked)}")
    if spec.unit == "event" and around.overlap > 1:
        lines.append(f"over {overlap_said(around)[0]}: {unit} loses at most {text(day)}")
    if spec.unit == "item" and day != published:
        lines.append(f"over the windows of a day and the partitions it can lie in: {unit} loses at most {text(day)}")
    if spec.unit == "item" and around.window_ms is not None:
        span = "without limit" if around.published_ms is None else f"for {duration(around.published_ms)}"
        lines.append(f"publications are kept {span}: an item pays once more for each window that is kept")
    if around.beside:
        names = ", ".join(one.name for one in around.beside)
        lines.append(f"the other sketches on the topic ({names}) add to this: `sketchstream ledger -c` has the sum")
    return tuple(lines)


def _assumes(spec: ConvolutionSpec, ledger: GaussianLedger | Ledger, around: Context) -> tuple[str, ...]:
    """Sentences on the assumptions of the proof."""
    gaussian = isinstance(ledger, GaussianLedger)
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
