"""The deployment around one sketch according to a configuration, for its guarantee.

In: a configuration, a sketch's plan, facts about the input topic. Out: a `Context`. Touches: nothing.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from sketchstream import kinds

if TYPE_CHECKING:
    from sketchstream.config.loader import Config
    from sketchstream.privacy.deployments.surroundings import Context, OtherSketch
    from sketchstream.stream.windows.plans import SketchPlan


def context(
    config: Config,
    plan: SketchPlan,
    *,
    partitions: int | None = None,
    retention_ms: float | None = None,
    counts: int = 1,
) -> Context:
    """The deployment around a sketch: windows, partitions, the other sketches on the same input.

    Args:
        config: configuration of the deployment.
        plan: plan of the sketch.
        partitions: number of the input's partitions; None: unknown.
        retention_ms: retention of the input topic; `math.inf`: records are never deleted, None: unknown.
        counts: distinct numbers of partitions that were valid while the window was open.
    """
    from sketchstream.stream.published.evidence import EvidenceNoise

    evidence = EvidenceNoise.for_plan(plan, checked=config.partitioner is not None)
    letters: Literal["payload", "envelope"] = "payload" if config.input.dead_letter_payload else "envelope"
    return of_windows(
        plan,
        retention_ms=retention_ms,
        partitions=partitions if config.from_kafka else None,
        keyed=config.checks_partitions,
        counts=counts,
        diagnostics=config.privacy.diagnostics,
        store="kafka" if config.from_kafka else "dir",
        dead_letters=letters if config.input.dead_letter_topic else "none",
        late_records=bool(config.input.late_topic),
        refused=evidence.refused,
        misplaced=evidence.misplaced,
        others=tuple(_other_series(other, plan) for other in config.sketches if other.name != plan.name),
    )


def of_windows(plan: SketchPlan, **fields: Any) -> Context:
    """A deployment of which the windows are known.

    Args:
        plan: plan of the sketch.
        fields: further fields of the `Context`.
    """
    from sketchstream.privacy.deployments.surroundings import Context

    early, epsilon = (0, Fraction(0)) if plan.early is None else (plan.early.most, plan.early.epsilon)
    return Context(
        window_ms=plan.shortest_ms,
        a_day=_in_a_day(plan, plan.calendar.timezone),
        overlap=plan.overlap,
        every_ms=plan.starts.shortest_ms,
        early=early,
        epsilon_early=epsilon,
        **fields,
    )


def _in_a_day(plan: SketchPlan, timezone: str) -> int:
    """Most windows of a series that have a part in one day of a time zone."""
    from sketchstream.config.budget import most_windows
    from sketchstream.stream.windows.calendar import Calendar, Width

    return most_windows(plan.starts, Calendar(Width(1, "day"), timezone), plan.overlap)


def _other_series(other: SketchPlan, plan: SketchPlan) -> OtherSketch:
    """Another series of windows of the configuration, for the guarantee of one."""
    from sketchstream.privacy.deployments.publications import cost_of_record
    from sketchstream.privacy.deployments.surroundings import OtherSketch

    return OtherSketch.of(
        other.name,
        other.ledger,
        other.shortest_ms,
        _in_a_day(other, plan.calendar.timezone),
        other.overlap,
        every_ms=other.starts.shortest_ms,
        groups=kinds.kind_of(other.spec).accounting.groups_of_item(other.spec),
        records=cost_of_record(other.spec),
    )
