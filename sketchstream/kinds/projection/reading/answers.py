"""Answers of a published projection: the squared norms of all rows, what shows them, and what else can be asked.

In: see `rows`. Out: `Projection`. Touches: a file of distances, where one is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sketchstream.kinds import presentation
from sketchstream.kinds.linear.answers import LinearAnswers
from sketchstream.kinds.projection.reading import heatmap, questions
from sketchstream.kinds.projection.reading.rows import PublishedRows

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Projection(PublishedRows):
    """A published projection. It is sufficient for all questions, which cost no privacy.

    Its own numbers are the squared norms of all rows; distances and the others have methods. See `PublishedRows`.
    """

    def __str__(self) -> str:
        """Squared norms, a line each."""
        return questions.text(self.rows())

    def _noted(self) -> str:
        """What else can be asked."""
        return "Squared norms and distances; nearest rows, products and drift are asked for by name."

    def further(self) -> LinearAnswers | None:
        """Distances between the first rows; None if there is one row only."""
        numbers = self.numbers()
        return (
            None
            if self.spec.users.size < 2
            else questions.answer_questions(self, presentation.of(numbers).further(numbers))
        )

    def _draw(self) -> Figure:
        """All distances as a heat map, rows that look alike side by side."""
        return heatmap.draw_heatmap(self)

    def write_distances(self, path: str | Path) -> None:
        """All squared distances as an Arrow file, a record a user. See `heatmap.write_arrow`.

        Raises:
            MissingExtraError: pyarrow is not installed.
        """
        heatmap.write_arrow(self, path)
