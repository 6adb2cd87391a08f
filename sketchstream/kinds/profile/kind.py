"""The kind `profile` as the engine sees it.

In: what the engine asks of a kind. Out: answers from the mechanism (noise, histograms) and the estimators. Touches: the
states it is given, and entropy through `mechanism`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from sketchstream import kinds
from sketchstream.array_types import Flags, State
from sketchstream.components import Component
from sketchstream.errors import EstimateError, FormatError, SpecError
from sketchstream.items.arrays import Items, Pairs
from sketchstream.items.domains import Index
from sketchstream.items.events import Events
from sketchstream.kinds.accounting import Accounting
from sketchstream.kinds.capabilities import Adding, Deferring, Grouping, Reconstructing, Sizable, Summarising
from sketchstream.kinds.exports import AnswerRows
from sketchstream.kinds.intake import Intake
from sketchstream.kinds.interface import Kind, Progress
from sketchstream.kinds.options import require_options
from sketchstream.kinds.profile import export, mechanism
from sketchstream.kinds.profile.estimate import laws
from sketchstream.kinds.profile.groups import Grouped, GroupIndex, add_deferred, one_group
from sketchstream.kinds.profile.observations import facts_of_publication, observed_counts
from sketchstream.kinds.profile.patterns import noised_patterns
from sketchstream.kinds.profile.ranking import Ranking
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.kinds.profile.statement import statement
from sketchstream.privacy.deployments.guarantee import Guarantee
from sketchstream.privacy.deployments.surroundings import Context
from sketchstream.privacy.ledgers.ledger import Ledger, pure_budget, require_no_delta
from sketchstream.privacy.ledgers.sketch_history import Promise, SketchHistory
from sketchstream.spec import Item, Rational, Unit, checked_int, exact_epsilon

if TYPE_CHECKING:
    from sketchstream.items.columns import Choices
    from sketchstream.items.key import Key
    from sketchstream.kinds.groups.group_list import Groups
    from sketchstream.kinds.groups.overlap import Overlap
    from sketchstream.kinds.profile.planner import Sizing
    from sketchstream.kinds.profile_answers import Profile
    from sketchstream.provenance import Origin
    from sketchstream.published import Published, Release, SealedState

OPTIONS = ("max_count", "norm", "beta")
"""Options that `profile` takes besides the method."""
EDGES_VERSION = 1
"""Rule by which the edges of a published histogram follow from the spec."""


class ProfileAccounting(Accounting[ProfileSpec]):
    """Costs are pure epsilons."""

    def law(self, spec: ProfileSpec) -> str:
        """Discrete Laplace noise of an event, randomized response of an item."""
        return mechanism.law(spec)

    def creation_cost(self, spec: ProfileSpec) -> Fraction:
        """Epsilon of the creation layer, once for each group that the unit may be in."""
        return spec.epsilon * spec.layer_losses

    def asked_cost(self, spec: ProfileSpec, epsilon: Rational, delta: Rational | None) -> Fraction:
        """Cost of a release or a layer: the requested epsilon."""
        require_no_delta(delta)
        return exact_epsilon(epsilon, "epsilon of a release")

    def parameter(self, spec: ProfileSpec, cost: Fraction) -> Fraction:
        """The slots' share of epsilon, over max_weight."""
        return mechanism.effective_epsilon(spec, cost)

    def cost(self, spec: ProfileSpec, parameter: Fraction) -> Fraction:
        """The epsilon of the whole sketch."""
        return mechanism.promised_epsilon(spec, parameter)

    def unit_weight(self, spec: ProfileSpec) -> int:
        """Costs are those of an event of full weight."""
        return spec.max_weight

    def groups_of_item(self, spec: ProfileSpec) -> int:
        """Groups in which an item may count; 1 with patterns, whose cost no group divides: a bound for an event."""
        return 1 if spec.pattern_cost else spec.group_losses

    def shared_cost(self, spec: ProfileSpec, cost: Fraction, *, final: bool) -> Fraction:
        """Cost that the groups share: at seal the cost without that of the patterns, else all of it."""
        return cost - spec.pattern_cost if final else cost

    def components(self, spec: ProfileSpec) -> tuple[Component, ...]:
        """The slots, then the total, the events counted, the records admitted."""
        return mechanism.components(spec)

    def promise(self, spec: ProfileSpec) -> Promise:
        """Promise to publish a histogram, or the state."""
        return Promise.of(spec.publish, spec.seal_cost, spec.intrusion)

    def ledger(
        self, spec: ProfileSpec, lineage: bytes, epsilon: Rational | None = None, delta: Rational | None = None
    ) -> Ledger:
        """A ledger of pure epsilon."""
        budget = pure_budget(epsilon, delta)
        first = kinds.layer_entry(spec, lineage, self.creation_cost(spec))
        return Ledger.create(spec.unit, spec.max_weight, first, self.promise(spec), budget)

    def read_ledger(self, spec: ProfileSpec, data: Mapping[str, Any]) -> Ledger:
        """A ledger of pure epsilon."""
        return Ledger.from_dict(data)


class ProfileIntake(Intake[ProfileSpec]):
    """Items, in their groups; records that `where` excludes are no events."""

    def roles(self, spec: ProfileSpec) -> tuple[str, ...]:
        """The group, unless it is a period of the window, and the fields that decide whether a record counts."""
        named = spec.groups is not None and spec.groups.period_ms is None
        return (*(("group",) if named else ()), *(f"where.{name}" for name, _ in spec.where))

    def stretch_ms(self, spec: ProfileSpec) -> int | None:
        """A period, if groups are periods of the window."""
        return None if spec.groups is None else spec.groups.period_ms

    def most_weight(self, spec: ProfileSpec) -> int | None:
        """`max_weight` for events, 1 for marks of presence; residues take any weight."""
        if spec.overlap is not None and spec.overlap.presence:
            return 1
        return spec.max_weight if spec.modulus is None else None

    def events(self, spec: ProfileSpec, given: Events) -> Events:
        """Items and their groups; records that `where` excludes are not events."""
        events = super().events(spec, given)
        if spec.groups is None and not spec.where:
            return events
        good = np.ones(len(given), np.bool_)
        for name, choices in _filters(spec.where):
            good &= given.columns[f"where.{name}"].codes(choices) >= 0
        items = events.items
        if spec.groups is not None:
            if spec.groups.period_ms is None:
                codes = spec.groups.codes(given.columns["group"])
            else:
                codes = spec.groups.codes_in(given.event_times, given.window)
            good &= codes >= 0
            items = Grouped(codes, items)
        return events.counted(items, good)


class ProfileKind(Kind[ProfileSpec], Grouping, Deferring, Adding, Summarising, Reconstructing, Sizable):
    """Noisy counters, one for each slot; answers are profiles: how many items occurred exactly t times."""

    name = "profile"
    spec_type = ProfileSpec
    accounting = ProfileAccounting()
    intake = ProfileIntake()

    def read_spec(self, data: Mapping[str, Any], items: Sequence[Item] | None = None) -> ProfileSpec:
        """See `ProfileSpec.from_dict`."""
        return ProfileSpec.from_dict(data, items)

    # Descriptions.

    def facts(self, spec: ProfileSpec, slots: int) -> list[tuple[str, str]]:
        """Public parameters in words."""
        levels = f" in {spec.levels} levels" if spec.levels > 1 else ""
        rows = [
            ("protected unit", f"one {spec.unit}"),
            ("epsilon of the state", str(spec.epsilon)),
            ("epsilon of the publication at seal", str(spec.epsilon_publish)),
            ("published at seal", spec.publish),
            ("domain", f"{spec.domain.to_dict()['kind']}, {slots:,} slots{levels}"),
            ("largest count that is resolved", f"{spec.max_count:,}"),
        ]
        if spec.modulus is not None:
            rows.append(("modulus", str(spec.modulus)))
        if spec.groups is not None:
            rows.append(("groups", f"{spec.group_count:,}, {slots // spec.group_count:,} slots each"))
            if spec.groups.ranked:
                rows.append(("groups in which an item counts", f"{spec.group_losses:,}, chosen by the key"))
        if spec.overlap is not None:
            rows.append(("groups whose patterns are published", ", ".join(spec.overlap.groups)))
            rows.append(("epsilon of the patterns, once for all groups", str(spec.overlap.epsilon)))
            rows += [("counters tell", "presence alone")] if spec.overlap.presence else []
            rows += [("noise of the groups", "drawn together")] if spec.overlap.joint else []
        if (sample := spec.sample) is not None:
            chosen = f"{sample.most:,} of {sample.groups:,}, chosen by the key; answers are scaled"
            rows.append(("items that count", chosen))
        rows += [(f"only where {name} is", ", ".join(values)) for name, values in spec.where]
        return rows

    def statement(self, spec: ProfileSpec, ledger: SketchHistory, context: Context | None = None) -> Guarantee:
        """The guarantee, with losses in pure epsilons."""
        assert isinstance(ledger, Ledger)
        return statement(spec, ledger, context)

    # What it does.

    def index(
        self, spec: ProfileSpec, key: Key | None, keep: Flags | None, origin: Origin | None = None
    ) -> Index | GroupIndex:
        """The slots of items, in each group; weights are added wrapping, or modulo p."""
        if spec.sample is not None or spec.one_of is not None:
            raise SpecError(
                "sample and one_of belong to what was published of one group: create the sketch with all its groups"
            )
        inner = Index.build(spec.domain, key if spec.needs_key else None, keep)
        if spec.groups is None:
            return replace(inner, max_weight=spec.max_weight, modulus=spec.modulus)
        return GroupIndex(spec, inner, Ranking.of(spec.groups, key) if spec.groups.ranked else None)

    def blocks(self, spec: ProfileSpec) -> int:
        """One for each group."""
        return spec.group_count

    def groups(self, spec: ProfileSpec) -> tuple[str, ...]:
        """Names of the groups."""
        return () if spec.groups is None else spec.groups.all

    def group(self, part: Release | SealedState, name: str) -> Release | SealedState:
        """The sketch of one group."""
        return one_group(part, name)

    def items(self, source: object) -> Items | Pairs | Grouped:
        """Items; with groups pairs of (group, item)."""
        if isinstance(source, list) and source and isinstance(source[0], tuple):
            return Pairs.of(source)
        return source if isinstance(source, (Grouped, Pairs)) else Items.of(source)

    def draw(self, spec: ProfileSpec, state: State, cost: Fraction, progress: Progress | None = None) -> None:
        """Discrete Laplace noise, or randomized response."""
        mechanism.add_noise(spec, state, cost, progress)

    def defers(
        self, spec: ProfileSpec
    ) -> Callable[[State, npt.NDArray[np.uint32], npt.NDArray[np.int32]], None] | None:
        """Sketches with groups do, whose states are large: wrapping, or modulo p."""
        return None if spec.groups is None else partial(add_deferred, spec)

    def add(self, spec: ProfileSpec, states: Sequence[State]) -> State:
        """Add states, wrapping; modulo p for unit "item"."""
        total: State = states[0].copy()
        for state in states[1:]:
            if spec.modulus is None:
                np.add(total, state, out=total)
            else:
                # the sum of two residues below 2^15 may exceed int16: subtract p first where it would
                room = np.int16(spec.modulus - 1) - state
                over = total > room
                np.add(total, state, out=total, where=~over)
                np.subtract(total, room, out=total, where=over)
                np.subtract(total, np.int16(1), out=total, where=over)
        return total

    # What it publishes.

    def view(self, spec: ProfileSpec, state: State, cost: Fraction, *, final: bool) -> npt.NDArray[Any]:
        """(groups x levels, B) noisy histogram of the counters; at seal with the patterns of `overlap` after it."""
        if final:
            return mechanism.sealed_counts(spec, state, cost)
        if spec.overlap is not None and not spec.overlap.histograms:
            return noised_patterns(spec, state, cost).ravel()
        return mechanism.noised_counts(spec, state, cost)

    def view_header(self, spec: ProfileSpec) -> dict[str, Any]:
        """Form and edges of the histogram."""
        return {"form": spec.form, "edges_version": EDGES_VERSION}

    def require_view(self, spec: ProfileSpec, header: Mapping[str, Any], body: npt.NDArray[Any]) -> None:
        """Require edges of a known rule, and one count for each edge and level."""
        if header["form"] != spec.form or header["edges_version"] != EDGES_VERSION:
            raise FormatError("the histogram's edges follow a rule that this version does not know")
        _require_slots(spec, header["slots"])
        shape = mechanism.published_shape(spec, final=bool(header["final"]))
        if body.dtype != np.int64 or body.shape != shape:
            raise FormatError(f"expected {' x '.join(map(str, shape))} counts, found another shape")

    def require_state(self, spec: ProfileSpec, slots: int, body: npt.NDArray[Any]) -> None:
        """Require the same number of slots in each level of each group."""
        super().require_state(spec, slots, body)
        _require_slots(spec, slots)

    # What it answers.

    def rows(self, spec: ProfileSpec) -> AnswerRows:
        """Rows as `sketchstream.kinds.profile.export.to_csv` writes them: counts modulo p say what is a bound."""
        return AnswerRows(export.header(wraps=spec.modulus is not None), "distinct", export.COLUMNS)

    def expected_error(self, spec: ProfileSpec) -> tuple[str, float]:
        """The error of the number of distinct items, where a quarter of the slots is used."""
        from sketchstream.kinds.profile.planner import plan

        return "distinct items", plan(spec, items=max(spec.domain.size // 4, 1))["distinct"].sd

    def overlap(self, published: Published, groups: Sequence[str] | None = None) -> Overlap:
        """See `sketchstream.kinds.groups.overlap`."""
        from sketchstream.kinds.profile.overlap.observations import overlap_of

        return overlap_of(published, groups)

    def profile(
        self, published: Published, method: str, max_count: int | None, norm: float | None, beta: float, **extra: object
    ) -> Profile:
        """See `sketchstream.published.Release.profile`."""
        if published.spec.groups is not None:
            number = published.spec.group_count
            raise EstimateError(
                f"this sketch has {number:,} groups, each with a profile of its own: choose one with .group(NAME)"
            )
        require_options(self.name, extra, OPTIONS, "profile")
        from sketchstream.kinds.profile import reconstruction

        limit = published.spec.max_count
        return reconstruction.reconstruct(
            observed_counts(published),
            method=method,
            max_count=limit if max_count is None else checked_int(max_count, "max_count", 1, limit),
            norm=norm,
            beta=beta,
            guarantee=published.guarantee().to_dict(),
            about=facts_of_publication(published),
        )

    def gain(self, spec: ProfileSpec, epsilons: Sequence[float]) -> float:
        """The gain of randomized response, or of discrete Laplace noise."""
        return laws.gain(epsilons) if spec.modulus is None else 1 / laws.response_eigenvalue(epsilons, spec.modulus)

    def fewest_items(
        self, *, numbers: Sequence[str], target: float, unit: Unit, parts: int, groups: Groups | None
    ) -> Sizing:
        """See `sketchstream.kinds.profile.planner.fewest_items`."""
        from sketchstream.kinds.profile.planner import fewest_items

        return fewest_items(numbers=numbers, target=target, unit=unit, parts=parts, groups=groups)

    def wrapped(self, spec: ProfileSpec, means: Sequence[float]) -> tuple[list[float], str] | None:
        """Shares of counts that wrap modulo p, and a sentence; marks of presence do not wrap."""
        if spec.modulus is None or spec.sums_refused:
            return None
        from sketchstream.kinds.profile.planner.heavy import share_beyond, tail_note

        return [share_beyond(spec.modulus, mean) for mean in means], tail_note(spec, means[0])


@lru_cache(maxsize=64)
def _filters(where: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[tuple[str, Choices], ...]:
    """The lists of a filter, prepared once."""
    from sketchstream.items.columns import Choices

    return tuple((name, Choices(values)) for name, values in where)


def _require_slots(spec: ProfileSpec, slots: int) -> None:
    """Require as many slots as a sketch of this spec can have: in a part of a closed domain fewer, but never more."""
    if slots > spec.slots or slots % (spec.group_count * spec.levels):
        raise FormatError(f"a sketch of this spec has at most {spec.slots:,} slots, in equal parts; found {slots:,}")


KIND: Final = ProfileKind()
