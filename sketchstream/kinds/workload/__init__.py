"""Kind `workload`: private answers to a fixed batch of linear queries, with the smallest possible Gaussian noise.

In: nothing. Out: the queries, the specification, the optimiser and its certificate, noise, updates, answers.
Touches: nothing.
Source: Nikolov, Talwar & Zhang, "The Geometry of Differential Privacy: The Sparse and Approximate Cases", 2013;
docs/theory/workload.md.
"""

from sketchstream.kinds.workload.answers import WorkloadAnswers, break_even, estimate
from sketchstream.kinds.workload.discrepancy import HereditaryDiscrepancy, color, herdisc_bounds
from sketchstream.kinds.workload.factors import Factor
from sketchstream.kinds.workload.mechanism import Candidate, Law, choose
from sketchstream.kinds.workload.noise import add_noise
from sketchstream.kinds.workload.optimise import Shape, optimise
from sketchstream.kinds.workload.planning import Forecast, forecast
from sketchstream.kinds.workload.queries import Workload, marginals, product, union
from sketchstream.kinds.workload.spec import WorkloadSpec, WorkloadWarning
from sketchstream.kinds.workload.strategy import Strategy
from sketchstream.kinds.workload.universe import Column, Universe
from sketchstream.kinds.workload.update import Columns, check_events, drop_events

__all__ = [
    "Candidate",
    "Column",
    "Columns",
    "Factor",
    "Forecast",
    "HereditaryDiscrepancy",
    "Law",
    "Shape",
    "Strategy",
    "Universe",
    "Workload",
    "WorkloadAnswers",
    "WorkloadSpec",
    "WorkloadWarning",
    "add_noise",
    "break_even",
    "check_events",
    "choose",
    "color",
    "drop_events",
    "estimate",
    "forecast",
    "herdisc_bounds",
    "marginals",
    "optimise",
    "product",
    "union",
]
