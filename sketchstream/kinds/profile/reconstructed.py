"""The profile: the numbers of items that occurred so often, as data, tables, text and pictures.

In: see `profile_numbers`. Out: `ReconstructedProfile`. Touches: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sketchstream.kinds.profile import export, pictures
from sketchstream.kinds.profile.estimate.profile_numbers import ProfileNumbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from sketchstream.array_types import Floats


class ReconstructedProfile(ProfileNumbers):
    """A profile whose intervals come from the noise of its sketch."""

    def sketch_facts(self) -> dict[str, Any]:
        """Facts about the sketch for plain data, from its facts and its guarantee; losses are pure."""
        privacy = {"epsilon": self.facts.epsilon, "delta": "0"}
        warned = self._guarantee is not None and bool(self._guarantee.get("no_privacy"))
        return {"kind": "profile", "unit": self.facts.unit, **privacy, "no_privacy": warned}

    def more(self, level: float) -> dict[str, Any]:
        """See `export.more`."""
        return export.more(self, level)

    def heading(self) -> str:
        """See `export.heading`."""
        return export.heading(self)

    def summary_rows(self) -> list[tuple[str, str, str, str]]:
        """See `export.rows`."""
        return export.rows(self)

    def counts_csv(self) -> str:
        """See `export.to_csv`."""
        return export.to_csv(self)

    def _draw(self, truth: Floats | None = None) -> Figure:
        """The profile and the k+ curve with their bands; `truth` holds true numbers of items at counts 0, 1, .."""
        return pictures.figure(self, truth)

    def _repr_html_(self) -> str:
        """HTML for notebooks: the most important numbers, the k+ curve, one line of guarantee."""
        return pictures.card(self)

    def __rich__(self) -> Table:
        return export.table(self)

    def __str__(self) -> str:
        return export.text(self)

    def __repr__(self) -> str:
        facts = self.facts
        return f"Profile(method={facts.method!r}, unit={facts.unit!r}, d={facts.d}, max_count={self.max_count})"
