"""The spec of each window, while a changed configuration takes effect at one time in all partitions.

In: the time from which windows have the sketches that are configured now, specs of the former configuration. Out: the
spec of a window. Touches: nothing.
Source: docs/streams.md, "Changing the configuration while windows are open".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sketchstream.kinds.interface import Spec
from sketchstream.stream.windows.plans import SketchPlan
from sketchstream.stream.windows.windows import NO_TIME


@dataclass
class WindowSpecs:
    """Which windows still have the spec of a former configuration.

    Args:
        begins: windows that start then (ms) or later have the sketches that are configured now; NO_TIME: all have.
        former: specs of earlier windows, by the name of the sketch, where they differ.
    """

    begins: int = NO_TIME
    former: dict[str, Spec] = field(default_factory=dict)

    def at(self, plan: SketchPlan, start: int) -> Spec:
        """The spec of a window of this plan that starts then."""
        former = self.former.get(plan.name)
        return plan.spec if former is None or start >= self.begins else former
