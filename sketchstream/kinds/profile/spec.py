"""The specification of a sketch of kind `profile`: parameters that are validated once and frozen, with a fingerprint.

In: parameters from a user (epsilon, unit, domain, ...). Out: a frozen `ProfileSpec`, its plain-data form and
fingerprint, and the edges at which the histogram of its counters is published. Touches: nothing.
Source: Wu & Pagh, ICML 2024 (the noisy histogram); Dwork et al., ICS 2010 (randomized response on Z_p).
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from sketchstream.errors import SpecError
from sketchstream.kinds.groups.group_list import GroupRule, Groups, GroupSample, OneOfGroups
from sketchstream.kinds.profile.overlap_rule import OverlapRule, PatternCounts, PatternNoise
from sketchstream.kinds.profile.presence import best_modulus
from sketchstream.spec import (
    MAX_MODULUS,
    MIN_EPSILON,
    NO_PRIVACY,
    UNITS,
    ClosedDomain,
    Domain,
    Item,
    NoPrivacyWarning,
    OpenDomain,
    Rational,
    SpecFields,
    Unit,
    checked_int,
    exact_epsilon,
    exact_records,
    exact_share,
    keeps_counted,
    require_choice,
    stored_domain,
)

Publish = Literal["histogram", "state"]
Form = Literal["cumulative", "bins"]

MAX_COUNT = 10**9
MODULUS = 32
"""Default modulus of unit "item"."""
LAST_EDGE = 1 << 30
TOTAL_SHARE = Fraction(1, 40)
"""Share of every layer and view that the noisy total gets, by default."""
UNIT_BINS_CUMULATIVE = 1024
UNIT_BINS = 20


def require_spec(spec: object) -> None:
    """Refuse what is not a spec, for callers without a type checker."""
    if not isinstance(spec, ProfileSpec):
        raise SpecError(f"spec must be a ProfileSpec, found {type(spec).__name__}")


@dataclass(frozen=True)
class ProfileSpec(SpecFields):
    """A noisy histogram of item counts, from which the profile is reconstructed.

    Args:
        epsilon: privacy of a layer; exact rational (str, int, Fraction, Decimal, or float by its shortest repr).
        unit: unit of privacy: one "event", or all events of one "item" in this sketch.
        domain: ClosedDomain or OpenDomain.
        max_count: largest count that the profile resolves; larger ones are pooled. Default 300 (event) or
            modulus - 1 (item).
        modulus: modulus of the counters of unit "item"; counts beyond it alias. Default 32, or max_count + 1 where
            that is more; noise grows with it, so choose the smallest that is above nearly all counts.
        max_weight: largest absolute weight of one event (unit "event").
        publish: what `seal` publishes: a noisy "histogram" of the counters, or the "state" for merging.
        epsilon_publish: epsilon of the fresh noise at seal; default epsilon. Of a histogram: the cost of its
            publication.
        intrusion: True: `seal` adds fresh noise, and the guarantee holds with one copy of the open state. False: it
            publishes the bare state, and the guarantee is void for events after any copy. Publish "state" alone: a
            histogram always has fresh noise.
        bits: width of the counters of unit "event", 32 or 64; they wrap.
        total_share: share of every layer and view that a counter of the total weight gets; exact rational below 1,
            0 for no such counter. Default 1/40 for unit "event" and for unit "item" with `max_total`, else 0.
        counted: whether the events are counted apart from their weights; that counter gets half of `total_share`.
            Default: where weights above 1 are possible, or a sample is kept of the domain. Ask for it where events
            may be deletions.
        max_total: unit "item": a promise of the source that the absolute weights of one item's events in one sketch,
            over all parts and partitions, add up to at most this. Without it an item may be all of the stream, and no
            total exists.
        epsilon_records: unit "event": epsilon of the number of records admitted, outside the ledger; 0: none is kept.
        groups: groups, each with a histogram, a total and a number of events of its own; an event names its group.
            `epsilon` and `epsilon_publish` are those of each group: an event pays them once, an item in each group that
            it may be in.
        sample: rule by which items count in one published group of a sketch whose groups are ranked, from
            which answers are scaled up. Set by `group`; no sketch can be created with it.
        one_of: groups in which an item loses at the same time, of one published group. Costs and losses
            are those of all of them. Set by `group`; no sketch can be created with it.
        where: values with which a record counts, by field, for workers; part of what the sketch means.
        overlap: groups, for unit "item", whose unions and intersections will be asked for, at most 12; True: all. The
            seal then publishes how many slots have which pattern of these groups.
        epsilon_overlap: cost of the patterns, once for an item in however many groups; default 1/4 for groups of 2^18
            slots and more, else 1.
        histograms: whether the groups have profiles; False: the patterns are all that is published.
        counts: "modulus": counters hold sums of weights modulo `modulus`; "presence": they tell whether items of the
            group were there, with half the error. Events then have no weights and are not deleted; epsilon chooses
            `modulus`.
        noise: "groups", or with an overlap of up to four groups "joint": the noise of a slot's counters is drawn
            together, and an item pays `epsilon` for it once, in however many groups it is.

    Raises:
        SpecError: a parameter is outside its range, or parameters contradict each other.

    Examples:
        >>> spec = ProfileSpec(epsilon="1", domain=OpenDomain(slots=2**20, levels=8))
        >>> spec.unit, spec.max_count, spec.epsilon
        ('event', 300, Fraction(1, 1))
    """

    epsilon: Fraction
    unit: Unit
    domain: Domain
    max_count: int
    modulus: int | None
    max_weight: int
    publish: Publish
    epsilon_publish: Fraction
    intrusion: bool | None
    bits: int
    total_share: Fraction
    counted: bool
    max_total: int | None
    epsilon_records: Fraction
    groups: Groups | None
    sample: GroupSample | None
    one_of: OneOfGroups | None
    where: tuple[tuple[str, tuple[str, ...]], ...]
    overlap: OverlapRule | None

    kind = "profile"

    def __init__(
        self,
        epsilon: Rational,
        unit: Unit = "event",
        domain: Domain | None = None,
        max_count: int | None = None,
        *,
        modulus: int | None = None,
        max_weight: int = 1,
        publish: Publish = "histogram",
        epsilon_publish: Rational | None = None,
        intrusion: bool | None = None,
        bits: int = 32,
        total_share: Rational | None = None,
        counted: bool | None = None,
        max_total: int | None = None,
        epsilon_records: Rational = 0,
        groups: Groups | None = None,
        sample: GroupSample | None = None,
        one_of: OneOfGroups | None = None,
        where: Mapping[str, Sequence[str | int]] | None = None,
        overlap: bool | Sequence[str | int] | None = None,
        epsilon_overlap: Rational | None = None,
        histograms: bool | None = None,
        counts: PatternCounts = "modulus",
        noise: PatternNoise = "groups",
    ) -> None:
        if not isinstance(domain, (ClosedDomain, OpenDomain)):
            raise SpecError(f"domain must be a ClosedDomain or an OpenDomain, found {type(domain).__name__}")
        self._put(epsilon=exact_epsilon(epsilon), unit=require_choice(unit, "unit", UNITS), domain=domain)
        if unit == "item" and counts == "presence":
            modulus = self._presence(max_count, 1 if noise != "joint" or groups is None else len(groups), modulus)
            max_count = 1
        self._put_slots(max_count, modulus, max_weight, bits)
        self._put_publication(publish, epsilon_publish, intrusion)
        self._put(max_total=None if max_total is None else checked_int(max_total, "max_total", 1, (1 << 30) - 1))
        self._put_groups(groups, sample, one_of, where or {})
        self._put_counters(total_share, counted, epsilon_records)
        self._put_overlap(overlap, epsilon_overlap, histograms, counts, noise, epsilon_publish)
        if self.no_privacy:
            times = f", {self.group_losses} groups of one item each" if self.group_losses > 1 else ""
            text = f"epsilon above {NO_PRIVACY} protects nobody{times}: NO PRIVACY"
            readers = self.epsilon * self.layer_losses
            if self.intrusion is not False:
                readers = min(readers, self.seal_cost)
            if readers <= NO_PRIVACY:
                text += " against somebody who also copies the open state once"
            warnings.warn(text, NoPrivacyWarning, stacklevel=2)

    def _put_slots(self, max_count: int | None, modulus: int | None, max_weight: int, bits: int) -> None:
        """Check and set what the counters of the slots hold."""
        if self.unit == "item":
            if modulus is None:
                largest = 0 if max_count is None else checked_int(max_count, "max_count", 1, MAX_MODULUS - 1)
                modulus = max(MODULUS, largest + 1)
            modulus = checked_int(modulus, "modulus", 2, MAX_MODULUS)
            if max_weight != 1:
                raise SpecError("max_weight belongs to unit = 'event'; with unit = 'item' any weight costs the same")
            if bits != 32:
                raise SpecError("bits belongs to unit = 'event'; with unit = 'item' counters live in Z_modulus")
        elif modulus is not None:
            raise SpecError("modulus belongs to unit = 'item'; counters of unit = 'event' wrap at 2**bits")
        self._put(modulus=modulus, max_weight=checked_int(max_weight, "max_weight", 1, (1 << 30) - 1))
        if self.epsilon / self.max_weight < MIN_EPSILON:
            raise SpecError(f"epsilon / max_weight must be at least 1e-6, found {self.epsilon} / {self.max_weight}")
        if bits not in (32, 64):
            raise SpecError(f"bits must be 32 or 64, found {bits!r:.20}")
        usual, limit = (300, MAX_COUNT) if modulus is None else (modulus - 1, modulus - 1)
        self._put(
            bits=int(bits), max_count=checked_int(usual if max_count is None else max_count, "max_count", 1, limit)
        )

    def _put_publication(self, publish: Publish, epsilon: Rational | None, intrusion: bool | None) -> None:
        """Check and set what is published at seal."""
        self._put(
            publish=require_choice(publish, "publish", get_args(Publish)),
            epsilon_publish=self.epsilon if epsilon is None else exact_epsilon(epsilon, "epsilon_publish"),
            intrusion=intrusion,
        )
        if publish == "histogram" and intrusion is not None:
            raise SpecError("intrusion belongs to publish = 'state'; a published histogram always has noise of its own")
        if publish == "state" and not isinstance(intrusion, bool):
            raise SpecError(
                "publish = 'state' needs intrusion written out: True adds fresh noise at seal, False publishes the "
                "bare state, which voids the guarantee for events after any copy of the open state"
            )

    def _put_groups(
        self, groups: object, sample: object, one_of: object, where: Mapping[str, Sequence[str | int]]
    ) -> None:
        """Check and set which records count, and in which group."""
        if groups is not None and not isinstance(groups, Groups):  # for callers without a type checker
            raise SpecError(f"groups must be Groups([...]), found {type(groups).__name__}")
        if groups is not None and self.unit == "event" and (groups.max_groups is not None or groups.of_item):
            raise SpecError("max_groups and group_of_item belong to unit = 'item'; an event has one group")
        if sample is not None and (self.unit == "event" or groups is not None or not isinstance(sample, GroupSample)):
            raise SpecError(
                "sample belongs to what was published of one group with unit = 'item', and is a GroupSample"
            )
        if one_of is not None and (groups is not None or not isinstance(one_of, OneOfGroups)):
            raise SpecError("one_of belongs to what was published of one group, and is a OneOfGroups")
        filters = []
        for name, values in sorted(where.items()):
            if isinstance(values, str) or not all(isinstance(value, str) or type(value) is int for value in values):
                raise SpecError(f"where.{name:.60} must be a list of texts or whole numbers")
            listed = tuple(map(str, values))
            if not listed or len(set(listed)) < len(listed):
                wrong = "an empty list" if not listed else "a value twice"
                raise SpecError(f"where.{name:.60} must name at least one value, each once; found {wrong}")
            filters.append((name, listed))
        self._put(groups=groups, sample=sample, one_of=one_of, where=tuple(filters))

    def _put_counters(self, total_share: Rational | None, counted: bool | None, epsilon_records: Rational) -> None:
        """Check and set the counters besides the slots."""
        usual = TOTAL_SHARE if self.unit == "event" or self.max_total is not None else Fraction(0)
        share = usual if total_share is None else exact_share(total_share, "total_share")
        if self.unit == "event" and self.max_total is not None:
            raise SpecError(
                "max_total belongs to unit = 'item'; with unit = 'event' max_weight bounds what an event adds"
            )
        if self.unit == "item" and share and self.max_total is None:
            raise SpecError(
                "unit = 'item' has no total unless max_total is promised: one item may be the whole stream; promise "
                "it, or leave total_share out"
            )
        if self.max_total is not None and not share:
            raise SpecError("max_total is for the total, which total_share = 0 leaves out")
        sampled = isinstance(self.domain, ClosedDomain) and self.domain.sample_rate is not None
        apart = keeps_counted(counted, self.max_weight > 1 or sampled, self.unit, share)
        records = exact_records(epsilon_records, self.unit)
        if records and (self.groups is not None or self.where):
            raise SpecError(
                "epsilon_records does not go with groups or where: not all records admitted are meant to count"
            )
        self._put(total_share=share, counted=apart, epsilon_records=records)

    @property
    def sums_refused(self) -> str | None:
        """Why sums over events do not say what such a sketch counts; None: they do."""
        if self.overlap is not None and self.overlap.presence:
            return "with counts = 'presence' each event adds a fresh random residue, and no sum of weights says which"
        return None

    def _presence(self, max_count: int | None, groups: int, modulus: int | None) -> int:
        """The modulus, or the usual one, of counters that tell presence alone, which have no largest count."""
        if max_count is not None and max_count != 1:
            raise SpecError(
                f"counts = 'presence' tells whether an item was there, not how often: leave max_count out ({max_count})"
            )
        usual = best_modulus(self.epsilon, groups)
        return usual if modulus is None else modulus

    def _put_overlap(
        self,
        overlap: bool | Sequence[str | int] | None,
        epsilon: Rational | None,
        histograms: bool | None,
        counts: PatternCounts,
        noise: PatternNoise,
        epsilon_publish: Rational | None,
    ) -> None:
        """Check and set what is published of several groups together."""
        rule = OverlapRule.of(
            overlap,
            epsilon,
            histograms,
            counts=counts,
            noise=noise,
            groups=self.groups,
            unit=self.unit,
            publish=self.publish,
            domain=self.domain,
        )
        self._put(overlap=rule)
        if rule is None or rule.histograms:
            return
        if epsilon_publish is not None and self.epsilon_publish != rule.epsilon:
            raise SpecError(
                f"histograms = False publishes the patterns alone, at epsilon_overlap = {rule.epsilon}: leave "
                f"epsilon_publish out, found {epsilon_publish}"
            )
        if self.total_share:
            raise SpecError("histograms = False publishes the patterns alone: leave max_total and total_share out")
        self._put(epsilon_publish=rule.epsilon)

    @property
    def slots_share(self) -> Fraction:
        """Share of every layer and view that the slots get."""
        return 1 - self.total_share

    @property
    def group_count(self) -> int:
        """Number of groups of a state; 1 without groups."""
        return 1 if self.groups is None else len(self.groups)

    @property
    def slots(self) -> int:
        """Counters of a sketch: those of the domain, for each group."""
        return (self.domain.size or 0) * self.group_count

    @property
    def group_losses(self) -> int:
        """Number of groups in which the protected unit has losses: 1 for an event, perhaps more for an item."""
        rule = self.group_rule
        return 1 if rule is None or self.unit == "event" else rule.of_one_item

    @property
    def pattern_cost(self) -> Fraction:
        """The part of the publication's cost that patterns of groups have: once, not for each group."""
        if self.overlap is not None:
            return self.overlap.epsilon
        return Fraction(0) if self.one_of is None else self.one_of.patterns

    @property
    def seal_cost(self) -> Fraction:
        """Cost of the publication at seal: of the histograms in all groups that the unit may be in, and of patterns."""
        if self.overlap is not None and not self.overlap.histograms:
            return self.overlap.epsilon
        return self.epsilon_publish * self.group_losses + self.pattern_cost

    @property
    def layer_losses(self) -> int:
        """Number of groups whose noise the protected unit pays for: 1 where it is drawn together."""
        return 1 if self.overlap is not None and self.overlap.joint else self.group_losses

    @property
    def group_rule(self) -> GroupRule | None:
        """The rule in how many groups an item can be, for a sketch with groups or one of them; None without groups."""
        return self.one_of if self.groups is None else self.groups

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of one counter in memory: int32 or int64 (event), int16 (item)."""
        if self.unit == "item":
            return np.dtype(np.int16)
        return np.dtype(np.int32 if self.bits == 32 else np.int64)

    @property
    def levels(self) -> int:
        """Levels of the domain (1 for closed domains)."""
        return self.domain.levels

    @property
    def form(self) -> Form:
        """Form of the published histogram: a function of the spec, not an option."""
        return "cumulative" if self.unit == "event" and self.max_weight == 1 else "bins"

    @property
    def needs_key(self) -> bool:
        """Whether a hash key decides where an item goes, or in which groups it counts."""
        if isinstance(self.domain, OpenDomain) or self.domain.listed or self.domain.sample_rate is not None:
            return True
        return self.sample is not None or (self.groups is not None and self.groups.ranked)

    @property
    def no_privacy(self) -> bool:
        """Whether the epsilons are so large that results must say NO PRIVACY."""
        return max(self.epsilon * self.layer_losses, self.seal_cost) > NO_PRIVACY

    @cached_property
    def edges(self) -> npt.NDArray[np.int64]:
        """(B,) ascending edges at which the counters' histogram is published.

        `cumulative`: thresholds; value i counts the slots in the half circle that starts at edges[i].
        `bins`: lower ends; bin i holds edges[i] <= x < edges[i+1], the last bin everything above, and for unit
        "event" the first edge is the smallest counter (everything below -3 is pooled).
        """
        if self.modulus is not None:
            return np.arange(self.modulus, dtype=np.int64)
        unit_bins = min(self.max_count, UNIT_BINS_CUMULATIVE) + 4 if self.form == "cumulative" else UNIT_BINS
        edges = list(range(-3, unit_bins + 1))
        while edges[-1] < LAST_EDGE:
            edges.append(edges[-1] + max(1, edges[-1] // 8))
        if self.form == "bins":
            edges.insert(0, -(1 << (self.bits - 1)))
        return np.array(edges, dtype=np.int64)

    def changed(self, **changes: object) -> Self:
        """The spec with other values of some parameters of the constructor."""
        given: dict[str, Any] = {"total_share": 0, "counted": False, **self._read_fields(self.to_dict())}
        given |= {name: getattr(self, name) for name in ("domain", "groups", "sample", "one_of")}
        return type(self)(**given | changes)

    def comparable(self) -> Self:
        """See `Spec`: epsilons and the counters besides the slots may differ between parts."""
        twin = copy.copy(self)
        one, none = Fraction(1), Fraction(0)
        overlap = None if self.overlap is None else replace(self.overlap, epsilon=one)
        one_of = None if self.one_of is None else replace(self.one_of, patterns=none)
        alike = {"epsilon": one, "epsilon_publish": one, "total_share": none, "counted": False, "epsilon_records": none}
        twin._put(**alike, overlap=overlap, one_of=one_of)
        return twin

    def to_dict(self) -> dict[str, Any]:
        """Plain data, canonical: equal specs give equal dictionaries."""
        out = self._plain("kind", "epsilon", "unit", "domain", "max_count", "publish", "epsilon_publish")
        out |= self._plain("max_weight", "bits") if self.modulus is None else self._plain("modulus")
        if self.intrusion is not None:
            out |= self._plain("intrusion")
        out |= self._given("total_share", "counted", "max_total", "epsilon_records", "groups", "sample", "one_of")
        if self.overlap is not None:
            out |= self.overlap.to_dict()
        if self.where:
            out["where"] = {name: list(values) for name, values in self.where}
        return out

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], items: Sequence[Item] | None = None) -> ProfileSpec:
        """The spec that `to_dict` described.

        The items of a listed domain are not in the dictionary: pass them, or get a spec that can read what was
        published but cannot be updated (`DomainOutline`).
        """
        fields = {"total_share": 0, "counted": False, **cls._read_fields(data)}
        described = fields.pop("domain", None)
        if not isinstance(described, dict):
            raise SpecError("spec has no domain")
        try:
            groups, sample, one_of = (fields.pop(name, None) for name in ("groups", "sample", "one_of"))
            return cls(
                domain=stored_domain(described, items),
                groups=None if groups is None else Groups(**groups),
                sample=None if sample is None else GroupSample(**sample),
                one_of=None if one_of is None else OneOfGroups(**one_of),
                **fields,
            )
        except TypeError:
            raise SpecError("spec has fields that this version does not know") from None
