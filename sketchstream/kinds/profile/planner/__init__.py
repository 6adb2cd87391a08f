"""What accuracy a sketch will have, before there is one; and which slots or epsilon an accuracy needs.

In: a `ProfileSpec` and what is publicly expected of the stream (how many items, how often they occur). Out: `Plan`:
the expected error of every number, the privacy loss, the price of merging, and what the same epsilon would give a
curator who keeps raw counts. Touches: nothing; never data, never an open sketch.
Source: docs/theory/profile.md 5 and 6 (variances); docs/theory/privacy.md 3 (losses).

No error law is written down twice: the expected published histogram is computed from the law of counts (collisions as
a compound Poisson law, noise as a convolution), and the very code that gives a published histogram its intervals is
asked for them. Variance estimates there are unbiased, so at the expected histogram they are the variances.
"""

from __future__ import annotations

from sketchstream.kinds.profile.planner.forecast import Expected, Plan
from sketchstream.kinds.profile.planner.planning import Vary, plan, required
from sketchstream.kinds.profile.planner.sizing import Machine, Sizing, size

__all__ = ["Expected", "Machine", "Plan", "Sizing", "Vary", "plan", "required", "size"]
