"""The guarantee of a sketch of kind `gaussian`, in (epsilon, delta) and in mu^2.

In: a spec, the ledger of its sketch, facts about its deployment. Out: a `GaussianGuarantee`, which
prints as text and turns into plain data. Touches: nothing.
Source: docs/theory/gaussian.md and docs/theory/gaussian_ledger.md prove each line; docs/guarantee.md explains them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sketchstream.privacy.guarantee import (
    Context,
    PrintedStatement,
    assumptions,
    copies_of_item,
    duration,
    intruder_of,
    not_protected,
    overlap_said,
    reader_of,
    summary,
    windows_a_day,
    windows_of,
    windows_said,
)
from sketchstream.privacy.sketch_history import show
from sketchstream.spec import NO_PRIVACY

if TYPE_CHECKING:
    from sketchstream.kinds.gaussian.spec import GaussianSpec
    from sketchstream.privacy.gaussian import GaussianLoss
    from sketchstream.privacy.gaussian_ledger import GaussianLedger


@dataclass(frozen=True)
class GaussianGuarantee(PrintedStatement):
    """The guarantee of one sketch. Losses are `GaussianLoss`; texts give them at the spec's delta.

    Args:
        unit: "event" or "item".
        delta: delta at which epsilons are given.
        published: largest loss of an event or item to all publications.
        looked: the same with one unannounced copy of the open state.
        total: over the windows of a day and the partitions in which an item can lie; one window for unit "event".
        kept: over all windows whose publications are kept; None if they are kept for ever.
        no_privacy: whether an epsilon is too large for meaningful privacy.
        protects: sentences on what is protected.
        seen: sentences on what an observer may see.
        lost: sentences on what is not protected.
        assumes: sentences on the assumptions of the guarantee.
    """

    unit: str
    delta: Fraction
    published: GaussianLoss
    looked: GaussianLoss
    total: GaussianLoss
    kept: GaussianLoss | None
    no_privacy: bool
    protects: tuple[str, ...]
    seen: tuple[str, ...]
    lost: tuple[str, ...]
    assumes: tuple[str, ...]

    @classmethod
    def of(cls, spec: GaussianSpec, ledger: GaussianLedger, context: Context | None = None) -> GaussianGuarantee:
        """The guarantee of a sketch with this ledger, in this deployment."""
        around = context or Context()
        published, looked = ledger.loss(), ledger.loss(intrusion=True)
        copies = copies_of_item(around) if spec.unit == "item" else 1
        windows = windows_a_day(around) if spec.unit == "item" else around.overlap
        total = published.times(copies * windows)
        kept: GaussianLoss | None = published.times(around.overlap)
        if spec.unit == "item" and around.window_ms is not None:
            span = around.published_ms
            kept = (
                None if span is None else published.times(windows_of(around.window_ms, span, around.overlap) * copies)
            )
        elif spec.unit == "item":
            kept = published.times(copies)
        bare = not spec.intrusion
        return cls(
            unit=spec.unit,
            delta=spec.delta,
            published=published,
            looked=looked,
            total=total,
            kept=kept,
            no_privacy=spec.no_privacy or published.epsilon(spec.delta) > NO_PRIVACY,
            protects=_protects(spec, ledger),
            seen=_seen(spec, published, looked, total, kept, around),
            lost=tuple(not_protected(spec, ledger, around, states=True, bare=bare)),
            assumes=(*assumptions(spec, around, "and (epsilon, delta)"), *_bounds(spec)),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data: losses as texts, and in full."""
        return {
            "unit": self.unit,
            "relation": "zero-out",
            "swap_factor": 2,
            "delta": str(self.delta),
            "measure": "mu2",
            "published": _at(self.published, self.delta),
            "published_and_one_copy": _at(self.looked, self.delta),
            "total": _at(self.total, self.delta),
            "total_kept": _at(self.kept, self.delta),
            "losses": {
                name: None if loss is None else loss.to_dict(self.delta)
                for name, loss in (
                    ("published", self.published),
                    ("published_and_one_copy", self.looked),
                    ("total", self.total),
                    ("total_kept", self.kept),
                )
            },
            **self.sentences(),
        }

    @property
    def summary(self) -> str:
        """The statement in one sentence."""
        texts = _at(self.published, self.delta), _at(self.looked, self.delta)
        return summary(self.unit, *texts, no_privacy=self.no_privacy).replace("(epsilon) ", "", 1)


def _at(loss: GaussianLoss | None, delta: Fraction) -> str:
    """Format a loss for a sentence."""
    if loss is None or loss.mu2 == math.inf:
        return "unlimited"
    return f"{loss.at(delta)}, mu^2 {float(loss.mu2):.4g}"


def _protects(spec: GaussianSpec, ledger: GaussianLedger) -> tuple[str, ...]:
    """Sentences on the unit."""
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


def _seen(
    spec: GaussianSpec,
    published: GaussianLoss,
    looked: GaussianLoss,
    day: GaussianLoss,
    kept: GaussianLoss | None,
    around: Context,
) -> tuple[str, ...]:
    """Sentences with the losses."""
    unit = "an event" if spec.unit == "event" else "an item"
    delta = spec.delta
    lines = [f"{reader_of(around)}: {unit} loses at most {_at(published, delta)}"]
    reader = intruder_of(around)
    if looked.mu2 == math.inf:
        lines.append(f"{reader}: no bound; the guarantee is void for {spec.unit}s after any copy of the open state")
    else:
        lines.append(f"{reader}: {unit} loses at most {_at(looked, delta)}")
    if spec.unit == "event" and around.overlap > 1:
        lines.append(f"over {overlap_said(around)[0]}: {unit} loses at most {_at(day, delta)}")
    if spec.unit == "item" and day is not published:
        copies = copies_of_item(around)
        what = windows_said(around)
        what += [f"{copies} partitions"] if copies > 1 else []
        lines.append(f"over {', '.join(what) or 'a day'}: {unit} loses at most {_at(day, delta)}")
    if spec.unit == "item" and around.window_ms is not None:
        span = "kept without limit" if around.published_ms is None else f"kept for {duration(around.published_ms)}"
        bound = "no bound, every window adds its mu^2" if kept is None else f"at most {_at(kept, delta)}"
        lines.append(f"over all windows, publications being {span}: {bound}")
    if around.beside:
        names = ", ".join(one.name for one in around.beside)
        lines.append(f"the other sketches on the topic ({names}) add to this: `sketchstream ledger -c` has the sum")
    if around.partitions is not None and around.keyed:
        lines.append(
            "partitioner found by `validate`, or compared with a sample of the topic before the first count: "
            f"{unit} loses epsilon 1/10 more, once for each such sample"
        )
    return tuple(lines)


def _bounds(spec: GaussianSpec) -> tuple[str, ...]:
    """Sentences on the assumptions of the calibration."""
    route = spec.calibration.route
    how = "summed exactly for every shift" if route == "exact" else "bounded by a rounded Gaussian nearby"
    lines = [f"delta of the discrete noise: {how}; sigma2 {show(spec.sigma2)} in squared units of {show(spec.step)}"]
    if spec.total_share:
        lines.append(f"counters beside the slots have {show(spec.total_share)} of every mu^2; they are in it")
    return tuple(lines)
