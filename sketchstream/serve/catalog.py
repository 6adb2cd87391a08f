"""The sketches of a service: their names, plans, groups, and which questions each of them can answer.

In: names from a request. Out: facts about sketches; errors that name what there is. Touches: the store, reading.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from sketchstream import kinds
from sketchstream.errors import ConfigError
from sketchstream.kinds import groups_of, presentation
from sketchstream.kinds.exports import AnswerRows
from sketchstream.kinds.groups.expression import member, regions_of
from sketchstream.privacy.deployments.guarantee import overlapping
from sketchstream.query.differences import no_number
from sketchstream.serve.clients.access import may_see
from sketchstream.serve.reconstruction.questions import FAMILIES, SINGLE_NUMBERS, Question
from sketchstream.serve.reconstruction.reconstruct import published_in
from sketchstream.serve.store.store import Store
from sketchstream.stream.windows.calendar import iso

if TYPE_CHECKING:
    from sketchstream.config.loader import Config
    from sketchstream.kinds.interface import Kind
    from sketchstream.query.sealed import Span
    from sketchstream.stream.windows.plans import SketchPlan

CACHE_S: Final = 0.5
"""Seconds for which counts of windows and settled frontiers serve for lists after they were read."""


class NotFoundError(LookupError):
    """The requested object does not exist; the text lists the existing ones."""


class Catalog:
    """The sketches that are configured or stored.

    Args:
        store: the store of the service.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._known: dict[str, tuple[float, Any]] = {}

    @property
    def config(self) -> Config:
        """Configuration of the deployment."""
        return self.store.config

    def names(self) -> list[str]:
        """Names of the sketches that are configured or stored, and that the client may see."""
        return [name for name in self.every_name() if may_see(name)]

    def every_name(self) -> Iterable[str]:
        """Names of all sketches, whatever the client may see."""
        return dict.fromkeys([plan.name for plan in self.config.sketches] + self.store.sketches())

    def require(self, name: str) -> str:
        """The name, if there is such a sketch and it may be seen.

        Raises:
            NotFoundError: there is none, or it may not be seen; the error does not reveal which.
        """
        names = self.names()
        if name not in names:
            raise NotFoundError(f"there is no such sketch; there are: {', '.join(names) or 'none'}")
        return name

    def sketches(self) -> dict[str, Any]:
        """All sketches, each as `sketch` describes it."""
        return {"sketches": [self.sketch(name) for name in self.names()]}

    def sketch(self, name: str) -> dict[str, Any]:
        """One sketch: its spec, guarantee, number of stored windows, and newest publication."""
        counts = self._read_recent("counts", self.store.counts)
        plan, configured = self.plan(name), self.config.find(name)
        described: dict[str, Any] = {"name": name, "configured": configured is not None}
        if plan is not None:
            described |= {"kind": plan.spec.kind, "answer": self.answers(name), "unit": plan.spec.unit}
        if configured is not None:
            described |= {"window": configured.window, "timezone": configured.calendar.timezone}
            described["summary"] = self._summaries[name]
        if self.groups(name):
            described["groups"] = list(self.groups(name))
        first, last = map(iso, ends) if (ends := self.ends(name)) is not None else (None, None)
        settled = self.settled(name)
        none = {"windows": 0, "settled": 0, "pending": 0, "incidents": 0}
        return described | {
            "counts": dict(counts.get(name, none)),
            "first": first,
            "last": last,
            "published_through": None if settled is None else iso(settled[1]),
        }

    @cached_property
    def _summaries(self) -> dict[str, str]:
        """The guarantee of each sketch of the configuration, in one sentence."""
        return {
            plan.name: kinds.kind_of(plan.spec).guarantee(plan.spec, plan.ledger).summary
            + overlapping(plan.spec.unit, plan.overlap)
            for plan in self.config.sketches
        }

    def plan(self, name: str) -> SketchPlan | None:
        """The sketch in the configuration, else as its newest windows have it; None: it has none either."""

        def published() -> SketchPlan | None:
            newest = self.store.windows(name, limit=2, newest=True)
            with self.store.reading() as connection:
                return published_in(connection, self.config).former(name, newest[-1].window[0]) if newest else None

        plan: SketchPlan | None = self.config.find(name) or self._read_recent(f"plan {name}", published)
        return plan

    def groups(self, name: str) -> tuple[str, ...]:
        """Names of the groups of a sketch, each with its own answers; empty without groups."""
        plan = self.plan(name)
        return () if plan is None else groups_of(plan.spec)

    def kind(self, name: str) -> Kind[Any]:
        """The kind of a sketch; "profile" if nothing says so."""
        plan = self.plan(name)
        return kinds.by_name("profile") if plan is None else kinds.kind_of(plan.spec)

    def answers(self, name: str) -> str:
        """What a sketch answers with: "profile" or "estimate"."""
        return self.kind(name).answer

    def timezone(self, name: str) -> str:
        """The timezone of a sketch; "UTC" if nothing says so."""
        plan = self.plan(name)
        return "UTC" if plan is None else plan.calendar.timezone

    def titles(self, metrics: Sequence[str]) -> dict[str, str]:
        """Numbers of profiles in words, by name."""
        return {
            metric: presentation.presentation_of_kind("profile").title_of(None, metric, self.config.names)
            for metric in metrics
        }

    def patterns_alone(self, name: str) -> bool:
        """Whether a sketch publishes only what its groups have in common: then it has no profiles."""
        return not getattr(self._overlap_rule(name), "histograms", True)

    def rows(self, name: str) -> AnswerRows:
        """How the answers of a sketch lie in rows, and their usual number; without columns if nothing shows them."""
        plan = self.plan(name)
        return AnswerRows((), "distinct", {}) if plan is None else kinds.kind_of(plan.spec).rows(plan.spec)

    def require_group(self, name: str, group: str | None) -> None:
        """Refuse a question without a group to a sketch with groups, and with one to others.

        Raises:
            ConfigError: says what to do.
        """
        groups = self.groups(name)
        if group is None and groups:
            raise ConfigError(
                f"sketch {name} has {len(groups):,} groups: choose one with group=; /v1/sketches/{name} lists them"
            )
        if group is not None and group not in groups:
            raise ConfigError(
                f"sketch {name} has no such group: " + ("its groups are in /v1/sketches" if groups else "it has none")
            )

    def require_number(self, name: str, metric: str) -> None:
        """Refuse a name that no number of a sketch has, as far as that is known without its answers.

        Raises:
            ConfigError: it cannot be the name of a number.
            EstimateError: profiles have no such number.
        """
        if len(metric) > 64 or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(\.[0-9]+){0,2}", metric, re.ASCII) is None:
            raise ConfigError(
                "metric must be a number of an answer, such as distinct, at_least.10, exactly.1 or quantile.0.9 of "
                f"profiles, or sum, count.7, answer.7, last.0 or norm.7 of the other kinds, found {metric!r:.40}"
            )
        family, dot, _ = metric.partition(".")
        if self.answers(name) == "profile" and family not in (FAMILIES if dot else SINGLE_NUMBERS):
            raise no_number(metric, list(presentation.presentation_of_kind("profile").numbers({})))

    def combined(self, name: str) -> tuple[str, ...]:
        """The groups of a sketch that are combined by sets; empty if it publishes no patterns of groups."""
        groups: tuple[str, ...] = getattr(self._overlap_rule(name), "groups", ())
        return groups

    def _overlap_rule(self, name: str) -> Any:
        """Which groups of a sketch are combined; None if it publishes no patterns of groups."""
        plan = self.plan(name)
        return None if plan is None else getattr(plan.spec, "overlap", None)

    def require_sets(self, name: str, question: Question) -> None:
        """Refuse sets of groups of which nothing was published, and texts that are not sets, before anything is read.

        Raises:
            ConfigError: the sketch has no `overlap`.
            SpecError: a text is not a set of its groups.
        """
        groups = self.combined(name)
        if not groups:
            able = [name for name in self.names() if self.combined(name)]
            raise ConfigError(
                f"sketch {name} publishes nothing of what its groups have in common: that needs overlap = true; "
                + (f"sketches that have it: {', '.join(able)}" if able else "no sketch here has it")
            )
        for group in question.among:
            member(groups, group)
        for expression in question.sets:
            regions_of(expression, question.among or groups)

    def settled(self, name: str) -> tuple[int, int] | None:
        """Newest revision, and until when all of its partitions have published, as far as they are stored."""

        def read() -> tuple[int, int] | None:
            with self.store.reading() as connection:
                return published_in(connection, self.config).reader.settled(name)

        settled: tuple[int, int] | None = self._read_recent(f"settled {name}", read)
        return settled

    def _read_recent(self, name: str, read: Callable[[], Any]) -> Any:
        """A value that was read from the store at most `CACHE_S` ago."""
        now = time.monotonic()
        read_before = self._known.get(name)
        if read_before is None or now - read_before[0] > CACHE_S:
            read_before = (now, read())
            self._known[name] = read_before
        return read_before[1]

    def ends(self, name: str) -> Span | None:
        """Start of the first window and end of the last one."""
        first = self.store.windows(name, limit=1)
        last = self.store.windows(name, limit=1, newest=True)
        return (first[0].window[0], last[0].window[1]) if first else None
