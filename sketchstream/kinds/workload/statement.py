"""The guarantee of a sketch of kind `workload` and its limits, in plain words with numbers.

In: a spec, the ledger of its sketch, facts about the deployment. Out: a `WorkloadGuarantee`, which prints as text
and turns into plain data. Touches: nothing.
Source: docs/theory/workload.md, sections 1 and 7; docs/theory/gaussian_ledger.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sketchstream.kinds.workload.spec import WorkloadSpec
from sketchstream.privacy.gaussian import GaussianLoss
from sketchstream.privacy.gaussian_ledger import GaussianLedger
from sketchstream.privacy.guarantee import (
    Context,
    PrintedStatement,
    duration,
    intruder_of,
    overlap_said,
    reader_of,
    readers_of_the_topic,
    summary,
    windows_a_day,
    windows_of,
)
from sketchstream.privacy.history import Loss
from sketchstream.privacy.ledger import Ledger
from sketchstream.privacy.sketch_history import rounded_up, show

AnyLoss = GaussianLoss | Loss


@dataclass(frozen=True)
class WorkloadGuarantee(PrintedStatement):
    """What one sketch guarantees.

    Args:
        unit: "event" or "item".
        delta: at which losses to Gaussian noise are stated; 0 for pure noise.
        published: most that the unit loses to everything that is published.
        looked: `published` together with one unannounced copy of the open state.
        total: over the windows of a day.
        kept: over all windows whose publications are kept.
        no_privacy: whether an epsilon is too large for meaningful privacy.
        protects: sentences on what is protected.
        seen: sentences on what an observer may see.
        lost: sentences on what is not protected.
        assumes: sentences on the assumptions of the guarantee.
    """

    unit: str
    delta: Fraction
    published: AnyLoss
    looked: AnyLoss
    total: AnyLoss
    kept: AnyLoss
    no_privacy: bool
    protects: tuple[str, ...]
    seen: tuple[str, ...]
    lost: tuple[str, ...]
    assumes: tuple[str, ...]

    @classmethod
    def of(
        cls, spec: WorkloadSpec, ledger: Ledger | GaussianLedger, context: Context | None = None
    ) -> WorkloadGuarantee:
        """The guarantee of a sketch with this ledger, in this deployment."""
        around = context or Context()
        published: AnyLoss = ledger.loss()
        looked: AnyLoss = ledger.loss(intrusion=True)
        total = kept = published if around.overlap == 1 else _times(published, around.overlap)
        if spec.unit == "item" and around.window_ms is not None:
            total = _times(published, windows_a_day(around))
            kept = math.inf
            if around.published_ms is not None:
                kept = _times(published, windows_of(around.window_ms, around.published_ms, around.overlap))
        delta = Fraction(0) if spec.pure else max(spec.delta, spec.delta_publish)
        return cls(
            unit=spec.unit,
            delta=delta,
            published=published,
            looked=looked,
            total=total,
            kept=kept,
            no_privacy=spec.no_privacy,
            protects=_protects(spec, ledger),
            seen=_seen(spec, delta, published, looked, total, kept, around),
            lost=_lost(spec, delta, looked, around),
            assumes=_assumes(spec),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data: losses as text, also the exact mu^2 of Gaussian noise."""
        out: dict[str, Any] = {
            "unit": self.unit,
            "relation": "zero-out",
            "swap_factor": 2,
            "delta": float(self.delta),
            "published": said(self.published, self.delta),
            "published_and_one_copy": said(self.looked, self.delta),
            "total": said(self.total, self.delta),
            "total_kept": said(self.kept, self.delta),
            **self.sentences(),
        }
        if isinstance(self.published, GaussianLoss) and isinstance(self.looked, GaussianLoss):
            out |= {"mu2": show(self.published.mu2), "mu2_and_one_copy": show(self.looked.mu2)}
        return out

    @property
    def summary(self) -> str:
        """The statement in one sentence."""
        published, looked = said(self.published, self.delta), said(self.looked, self.delta)
        return summary(self.unit, published, looked, no_privacy=self.no_privacy)


def said(loss: AnyLoss, delta: Fraction) -> str:
    """Format a loss: '1', 'unlimited', '1.05 at delta 1e-06'.

    Args:
        loss: an epsilon, or that of Gaussian noise.
        delta: at which the latter is stated.
    """
    if not isinstance(loss, GaussianLoss):
        return show(loss)
    epsilon = loss.epsilon(delta)
    return "unlimited" if math.isinf(epsilon) else f"{rounded_up(epsilon)} at delta {float(delta):g}"


def _times(loss: AnyLoss, number: int) -> AnyLoss:
    """The total loss to this number of equal sketches."""
    return loss.times(number) if isinstance(loss, GaussianLoss) else loss * number


def _protects(spec: WorkloadSpec, ledger: Ledger | GaussianLedger) -> tuple[str, ...]:
    """Sentences on the unit."""
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


def _seen(
    spec: WorkloadSpec,
    delta: Fraction,
    published: AnyLoss,
    looked: AnyLoss,
    total: AnyLoss,
    kept: AnyLoss,
    around: Context,
) -> tuple[str, ...]:
    """Sentences with the losses."""
    unit = "an event" if spec.unit == "event" else "an item"
    lines = [f"{reader_of(around)}: {unit} loses at most {said(published, delta)}"]
    reader = intruder_of(around)
    text = said(looked, delta)
    if text == "unlimited":
        lines.append(f"{reader}: no bound; the guarantee is void for {spec.unit}s after any copy of the open state")
    else:
        lines.append(f"{reader}: {unit} loses at most {text}")
    if isinstance(published, GaussianLoss):
        lines.append(f"exactly, in Gaussian differential privacy: mu^2 = {show(published.mu2)}")
    if spec.unit == "event" and around.overlap > 1:
        lines.append(f"over {overlap_said(around)[0]}: {unit} loses at most {said(total, delta)}")
    elif total is not published:
        lines.append(f"over the windows of a day: {unit} loses at most {said(total, delta)}")
        span = "without limit" if around.published_ms is None else f"for {duration(around.published_ms)}"
        bound = said(kept, delta)
        bound = "no bound, every window adds its loss" if bound == "unlimited" else f"at most {bound}"
        lines.append(f"over all windows, publications being kept {span}: {bound}")
    return tuple(lines)


def _lost(spec: WorkloadSpec, delta: Fraction, looked: AnyLoss, around: Context) -> tuple[str, ...]:
    """Sentences on what is not protected."""
    lines = ["envelopes: that a record existed, when, in which partition, how long it was"]
    if spec.unit == "event":
        lines.append("a person with m events in this sketch loses more: these events are a unit of m times the weight")
    lines.append("several windows, and other sketches on the same records: the losses add")
    if said(looked, delta) == "unlimited":
        lines.append("the open state: it is published bare at seal, so a copy of it is never hidden by fresh noise")
    lines.append("two or more unannounced looks at one open state: the records between two looks lie open")
    lines.append(readers_of_the_topic(around))
    return tuple(lines)


def _assumes(spec: WorkloadSpec) -> tuple[str, ...]:
    """Sentences on the assumptions of the proof."""
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
