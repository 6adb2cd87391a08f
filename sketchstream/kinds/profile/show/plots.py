"""Pictures of a profile, in the style of the report's charts.

In: a `Profile`. Out: a figure, and a file if a path is given. Touches: that file. Needs matplotlib, imported on
use.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sketchstream.kinds.profile import pictures as pages
from sketchstream.kinds.profile.estimate.observed import Floats
from sketchstream.kinds.profile.show.export import heading
from sketchstream.pictures import charts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sketchstream.kinds.profile.estimate.profile_numbers import ProfileNumbers


def draw(profile: ProfileNumbers, truth: Floats | None = None) -> Figure:
    """Items counted exactly (left) and at least (right) k times, with 95% intervals, and the truth if known."""
    figure = charts.notebook_figure(11.0, 4.5)
    charts.draw_panels(figure, heading(profile), *curves(profile, truth))
    return figure


def curves(profile: ProfileNumbers, truth: Floats | None = None) -> tuple[charts.CountsCurve, charts.CountsCurve]:
    """The k+ curve and the numbers of small counts, with their true values."""
    reach, exact = pages.curves(profile.to_dict())
    if truth is None:
        return reach, exact
    real = np.append(truth, np.zeros(profile.max_count))
    at_least = np.cumsum(real[::-1])[::-1]
    return replace(reach, truth=at_least[reach.k]), replace(exact, truth=real[exact.k])
