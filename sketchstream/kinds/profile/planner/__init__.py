"""Planning: the expected accuracy of a sketch, and the slots or epsilon that an accuracy needs.

In: a `ProfileSpec` and public expectations of the stream (number of items, law of counts). Out: `Plan`:
the expected error of every number, the privacy loss, the cost of merging, and the error of a central curator with the
same epsilon. Touches: nothing; it reads neither data nor open sketches.
Source: docs/theory/profile.md 5 and 6 (variances); docs/theory/privacy.md 3 (losses).

No error formula is written twice: the expected published histogram is computed from the law of counts (collisions as
a compound Poisson law, noise as a convolution), and the code for the intervals of published histograms is
applied to it. Its variance estimates are unbiased, so at the expected histogram they equal the variances.
"""

from __future__ import annotations

from sketchstream.kinds.profile.planner.forecast import Expected, Plan
from sketchstream.kinds.profile.planner.planning import Vary, plan, smallest_plan
from sketchstream.kinds.profile.planner.sizing import Machine, Sizing, fewest_items, size

__all__ = ["Expected", "Machine", "Plan", "Sizing", "Vary", "fewest_items", "plan", "size", "smallest_plan"]
