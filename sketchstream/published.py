"""Published objects: releases, sealed states, and stacks of them.

In: results of `Sketch.release` and `Sketch.seal`. Out: objects that can be written, read, stacked, merged and
reconstructed. Everything computed here is post-processing and costs no privacy. Touches: the files that
`save` writes.
Source: Wu & Pagh, ICML 2024 (post-processing, merging); docs/theory/privacy.md (why histograms may be published).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from sketchstream import kinds, wire
from sketchstream.components import Counter, read_counters, sum_counters
from sketchstream.errors import EstimateError, FormatError, MergeError
from sketchstream.files import PUBLIC, write_durably
from sketchstream.kinds import closing_kind, groups_of
from sketchstream.kinds.capabilities import Grouping, Reconstructing
from sketchstream.kinds.options import Method
from sketchstream.privacy.deployments.copies import CopiedPositions
from sketchstream.privacy.deployments.surroundings import Context
from sketchstream.privacy.ledgers.loss_texts import cost_text
from sketchstream.privacy.ledgers.sketch_history import SketchHistory, worst_of
from sketchstream.privacy.losses.history import View
from sketchstream.provenance import (
    Layer,
    Origin,
    checked_identifier,
    header_of,
    pack_published,
    partition_counts,
    require_accounted,
    require_distinct,
    require_same,
    spec_of,
    well_formed,
)
from sketchstream.spec import checked_int, read_rational

if TYPE_CHECKING:
    from sketchstream.kinds.answers import Answers
    from sketchstream.kinds.groups.overlap import Overlap
    from sketchstream.kinds.interface import Kind
    from sketchstream.kinds.profile_answers import Profile
    from sketchstream.privacy.deployments.guarantee import Guarantee

Norm = Literal[1, 2] | float


class _Published:
    """Common base of releases, sealed states and stacks.

    `spec` is a `kinds.interface.Spec`. It is typed `Any`, as code about one kind reads fields that only its specs have.
    """

    spec: Any

    @property
    def kind(self) -> Kind[Any]:
        """The kind of sketch."""
        return kinds.kind_of(self.spec)

    def _whole(self) -> Published:
        """The object itself, typed as one of the published classes."""
        assert isinstance(self, (Release, SealedState, Stack))
        return self

    def _grouped(self, answer: str) -> Grouping:
        """The kind, whose sketches may have groups.

        Raises:
            EstimateError: sketches of this kind have no groups.
        """
        if not isinstance(self.kind, Grouping):
            raise self._lacks(answer)
        return self.kind

    def _lacks(self, answer: str) -> EstimateError:
        """Make the error for an answer that this kind does not have; it says what to ask for instead."""
        return EstimateError(f"a sketch of kind {self.kind.name!r} has no {answer}: ask it for .{self.kind.answer}()")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the published bytes to a new file, durably.

        Args:
            path: path of the file; an existing file is refused.

        Raises:
            StoreError: the file exists, or cannot be written.
        """
        write_durably(path, self._whole().to_bytes(), mode=PUBLIC)

    def profile(
        self,
        method: Method = "likelihood",
        max_count: int | None = None,
        *,
        norm: Norm | None = None,
        beta: float = 0.05,
        **options: object,
    ) -> Profile:
        """Reconstruct the profile: how many items occurred exactly t times.

        Args:
            method: "likelihood" (default), "circulant" (the algorithm of Wu & Pagh), "inverse" or "monotone".
            max_count: largest count to resolve, at most that of the spec; larger counts are pooled into `above`.
            norm: norm of "circulant": 1, 2 or inf.
            beta: failure probability of "circulant".
            options: kinds have no further ones; a name that is given all the same is refused with the right names.

        Raises:
            SpecError: max_count is larger than that of the spec.
            EstimateError: the kind has no profiles, the method does not apply to the published object, or an option is
                not one of these.
        """
        if not isinstance(self.kind, Reconstructing):
            raise self._lacks("profile")
        return self.kind.profile(self._whole(), method, max_count, norm, beta, **options)

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups, each with its own answers; empty without groups."""
        return groups_of(self.spec)

    def estimate(self, method: str = "auto", **options: Any) -> Answers:
        """Estimates with standard errors and intervals, for the kinds that provide them.

        Args:
            method: a method of the kind; "auto" selects the most accurate one.
            options: further options of the kind.

        Raises:
            EstimateError: the kind provides no estimates, or the method does not apply to the published object.
        """
        return self.kind.estimate(self._whole(), method=method, **options)

    def overlap(self, groups: Sequence[str] | None = None) -> Overlap:
        """What groups have in common: unions, intersections, differences and increments, with intervals.

        Args:
            groups: groups to combine, at most 8; None: all whose patterns were published.

        Raises:
            EstimateError: the publication has no patterns of groups (`overlap` in the spec), or of too many.
            SpecError: there are no patterns of a group.
        """
        overlap: Overlap = self._grouped("overlap").overlap(self._whole(), groups)
        return overlap


@dataclass(frozen=True, eq=False, kw_only=True)
class _Part(_Published):
    """Common base of releases and sealed states: each is one sketch."""

    spec: Any
    layers: tuple[Layer, ...]
    seal_id: bytes
    origin: Origin
    key_id: bytes | None
    ledger: SketchHistory = field(repr=False)
    counters: tuple[Counter, ...] = ()

    @property
    def parts(self) -> tuple[Self, ...]:
        """The sketch alone, as `Stack.parts` are several."""
        return (self,)

    @property
    def layers_law(self) -> tuple[tuple[str, Fraction], ...]:
        """The laws of the layers, in an order that does not depend on how parts were combined."""
        return tuple(sorted((layer.law, layer.parameter) for layer in self.layers))

    @property
    def repartitioned(self) -> bool:
        """Whether partitions were added or removed during the window."""
        return self.origin.repartitioned

    def group(self, name: str) -> Self:
        """The published part of one group, for sketches with groups.

        Args:
            name: name of the group.

        Raises:
            EstimateError: there are no groups, or none of that name.
        """
        whole = self._whole()
        assert not isinstance(whole, Stack)
        of_group = self._grouped("groups").group(whole, name)
        assert isinstance(of_group, type(self))
        return of_group

    def guarantee(self) -> Guarantee:
        """The privacy guarantee, in words and numbers."""
        return self.kind.guarantee(self.spec, self.ledger, Context(table=self.origin.table))


@dataclass(frozen=True, eq=False, kw_only=True)
class Release(_Part):
    """A noisy view of a sketch's counters, published by `release`, and by `seal` if the spec says so.

    Args:
        spec: specification of the sketch.
        layers: noise layers in its state.
        seal_id: 16 random bytes that identify this publication.
        origin: place of the sketch in a deployment.
        key_id: id of the hash key, None if no key was used.
        ledger: the sketch's history of layers and views at that moment.
        counters: the noisy counters kept besides the slots.
        slots: number of slots in all levels, d.
        noised: the published values as drawn: noise included, neither clipped nor sorted. Kind "profile": (levels, B)
            int64, a histogram of the counters at `spec.edges`; at the seal of a spec with `overlap` flat, with the
            histogram of patterns after those of the groups.
        cost: cost of this publication, in the measure of the ledger.
        final: True for the publication at seal.
    """

    slots: int
    noised: npt.NDArray[np.int64] = field(repr=False)
    cost: Fraction
    final: bool

    @property
    def form(self) -> str:
        """Form of the histogram, `cumulative` or `bins`; releases of kind "profile" alone have it."""
        form: str = self.spec.form
        return form

    @property
    def edges(self) -> npt.NDArray[np.int64]:
        """(B,) int64, edges of the histogram, see `ProfileSpec.edges`; releases of kind "profile" alone have them."""
        edges: npt.NDArray[np.int64] = self.spec.edges
        return edges

    @property
    def values(self) -> npt.NDArray[np.int64]:
        """`noised`, without the axis of levels if there is only one level."""
        return self.noised[0] if self.noised.ndim > 1 and len(self.noised) == 1 else self.noised

    @property
    def loss(self) -> str:
        """Loss to this publication alone, with the name of its measure."""
        return cost_text(self.ledger, self.cost, getattr(self.spec, "delta", 0))

    @cached_property
    def digest(self) -> bytes:
        """Digest of the published numbers; seeds deterministic post-processing."""
        return hashlib.blake2b(self.noised.tobytes() + self.seal_id, digest_size=16).digest()

    def _repr_html_(self) -> str:
        """HTML for notebooks: the published counters, which contain noise."""
        from sketchstream.pictures import cards

        return cards.release(self, histogram=isinstance(self.kind, Reconstructing))

    def to_bytes(self) -> bytes:
        """The published bytes."""
        return pack_published(self._header(), self.noised)

    def _header(self) -> dict[str, Any]:
        return {
            **_common_fields("release", self),
            **kinds.view_header(self.spec),
            "cost": str(self.cost),
            "seal_id": self.seal_id,
            "final": self.final,
        }

    @classmethod
    def from_header(cls, header: Mapping[str, Any], body: npt.NDArray[Any]) -> Self:
        """The release that a verified header and body describe."""
        spec, kind = spec_of(header)
        kind.require_view(spec, header, body)
        final, cost = bool(header["final"]), read_rational(header["cost"])
        common = _read_common(header, spec, View("publication" if final else "release", cost))
        return cls(
            slots=checked_int(header["slots"], "slots", 1, 1 << 40), noised=body, cost=cost, final=final, **common
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class SealedState(_Part):
    """The state of a sketch, published for merging.

    Args:
        spec: specification of the sketch.
        layers: noise layers in its state.
        seal_id: 16 random bytes that identify this publication.
        origin: place of the sketch in a deployment.
        key_id: id of the hash key, None if no key was used.
        ledger: the sketch's history of layers and views at that moment.
        counters: the noisy counters kept besides the slots.
        state: (slots,) integers of `spec.dtype`.
    """

    state: npt.NDArray[Any] = field(repr=False)

    @property
    def cost(self) -> None:
        """A state has no cost of its own: its noise is that of its layers."""
        return None

    @property
    def slots(self) -> int:
        """Counters in all levels, d."""
        return int(self.state.size)

    @property
    def positions(self) -> CopiedPositions | None:
        """The words that instalments of this sketch have shown before; None for specs that publish none."""
        kind = closing_kind(self.spec)
        if kind is None:
            return None
        return CopiedPositions(
            0,
            self.spec.domain.size,
            lambda first, stop: kind.closed(self.spec, self.state, first, stop).tobytes(),
            sealed=True,
        )

    def error_growth(self, part: SealedState) -> float | None:
        """Factor by which the error of this merged state can exceed that of a part; None: its kind has no profiles."""
        kind = self.kind
        if not isinstance(kind, Reconstructing):
            return None
        after, before = (
            kind.gain(self.spec, [float(layer.parameter) for layer in state.layers]) for state in (self, part)
        )
        return after / before

    @cached_property
    def digest(self) -> bytes:
        """Digest of the published numbers; seeds deterministic post-processing."""
        return hashlib.blake2b(self.state.data, digest_size=16).digest()

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        from sketchstream.pictures import cards

        return cards.sketch("Sealed state", self)

    def to_bytes(self) -> bytes:
        """The published bytes."""
        return pack_published({**_common_fields("sealed-state", self), "seal_id": self.seal_id}, self.state)

    @classmethod
    def from_header(cls, header: Mapping[str, Any], body: npt.NDArray[Any]) -> Self:
        """The state that a verified header and body describe."""
        spec, kind = spec_of(header)
        kind.require_state(spec, header["slots"], body)
        return cls(state=body, **_read_common(header, spec, View("publication", None)))


@dataclass(frozen=True, eq=False)
class Stack(_Published):
    """Sketches of disjoint populations side by side, usually the partitions of one window.

    Noise layers do not combine, and the numbers of slots add up, which is far more accurate than merging. Correct only
    if all events of an item lie in one part.
    """

    parts: tuple[Release | SealedState, ...]

    @property
    def spec(self) -> Any:
        """Spec of the first part; the parts agree in everything that results depend on."""
        return self.parts[0].spec

    @property
    def publish(self) -> Literal["histogram", "state"]:
        """Whether the parts are histograms or states."""
        return "histogram" if isinstance(self.parts[0], Release) else "state"

    @property
    def repartitioned(self) -> bool:
        """Whether partitions were added or removed during the window."""
        return partition_counts(part.origin for part in self.parts) > 1

    @property
    def slots(self) -> int:
        """Counters of all parts."""
        return sum(part.slots for part in self.parts)

    @property
    def counters(self) -> tuple[Counter, ...]:
        """Sums of the counters that all parts have; their noise adds up too."""
        return sum_counters([part.counters for part in self.parts])

    def guarantee(self) -> Guarantee:
        """The privacy guarantee, in words and numbers: each loss is that of the part that loses most.

        If partitions were added during the window, an item may be in several parts, and its losses add up.
        """
        worst, with_copy = worst_of([part.ledger for part in self.parts])
        spec = next(part.spec for part in self.parts if part.ledger is worst)
        table = next((p.origin.table for p in self.parts if p.origin.table is not None), None)
        counts = partition_counts(p.origin for p in self.parts)
        return self.kind.guarantee(spec, worst, Context(counts=counts, table=table, with_copy=with_copy))

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        from sketchstream.pictures import cards

        return cards.stack(self)

    def group(self, name: str) -> Self:
        """The parts of one group; see `Release.group`."""
        return type(self)(tuple(part.group(name) for part in self.parts))

    def to_bytes(self) -> bytes:
        """The parts' bytes in one envelope."""
        parts = [part.to_bytes() for part in self.parts]
        header = {"kind": "stack", "spec": self.spec.to_dict(), "lengths": [len(part) for part in parts]}
        newest = max(wire.version_of(part) for part in parts)
        return wire.pack(header, np.frombuffer(b"".join(parts), np.uint8), codec=wire.RAW, version=newest)

    @classmethod
    def from_header(cls, header: Mapping[str, Any], body: npt.NDArray[Any]) -> Stack:
        """The stack that a verified header and body describe."""
        lengths = header["lengths"]
        if (
            body.dtype != np.uint8
            or not isinstance(lengths, list)
            or not lengths
            or not all(isinstance(length, int) and length > 0 for length in lengths)
            or sum(lengths) != body.size
        ):
            raise FormatError("the parts of this stack do not have the lengths that its header says")
        ends = np.cumsum(lengths)
        pieces = [body[end - length : end].tobytes() for length, end in zip(lengths, ends, strict=True)]
        parts = [read_published(piece, within=True) for piece in pieces]
        return stack(parts)


Published = Release | SealedState | Stack


def _common_fields(content: str, part: Release | SealedState) -> dict[str, Any]:
    """Header fields that releases and sealed states share."""
    fields = header_of(content, part.spec, part.layers, part.slots, part.ledger, part.origin, part.counters)
    return fields if part.key_id is None else {**fields, "key_id": part.key_id}


def _read_common(header: Mapping[str, Any], spec: Any, view: View) -> dict[str, Any]:
    """What `_common_fields` wrote, and the seal id, as arguments; required to account for the noise of this view."""
    accounting = kinds.kind_of(spec).accounting
    layers = tuple(Layer.from_dict(layer) for layer in header["layers"])
    ledger = accounting.read_ledger(spec, header["ledger"])
    final = view.kind == "publication"
    counters = read_counters(accounting.components(spec)[1:], header.get("counters", ()), final=final)
    require_accounted(spec, layers, ledger, counters, view)
    return {
        "spec": spec,
        "layers": layers,
        "seal_id": checked_identifier(header["seal_id"]),
        "origin": Origin.from_dict(header),
        "key_id": header.get("key_id"),
        "ledger": ledger,
        "counters": counters,
    }


def read_published(data: bytes, *, within: bool = False) -> Published:
    """Read a published object: a Release, a SealedState, or a Stack (not `within` another one). Needs no key.

    Raises:
        FormatError: the bytes have another format, are truncated, altered, of a newer version, or an open sketch.
    """
    header, body = wire.unpack(data)
    makers: dict[str, Callable[[Mapping[str, Any], npt.NDArray[Any]], Published]] = {
        "release": Release.from_header,
        "sealed-state": SealedState.from_header,
        "stack": Stack.from_header,
    }
    kind = header["kind"]
    if kind == "sketch":
        raise FormatError("this is an open sketch; only what it publishes may be read: release or seal it first")
    if kind == "instalment":
        raise FormatError(
            "these are positions of a series, published before its window was sealed; the seal publishes them again: "
            "read them with `sketchstream estimate -c FILE --closed` or Instalment.from_bytes"
        )
    if kind == "stack" and within:
        raise FormatError("a stack holds releases or sealed states, found a stack in a stack")
    if body is None:
        raise FormatError("these bytes have a header and nothing behind it")
    with well_formed():
        return makers[kind](header, body)


def stack(parts: Sequence[object]) -> Stack:
    """Put sketches of disjoint populations side by side, such as the partitions of one window.

    Args:
        parts: Releases, SealedStates, or stacks of either, with equal specs (epsilon and costs may differ) and keys.

    Raises:
        MergeError: nothing to stack, releases mixed with states, different specs or keys, or the same sketch twice.
    """
    if isinstance(parts, _Published) or not isinstance(parts, Iterable):  # for callers without a type checker
        raise MergeError(f"stack takes a list of parts, found {type(parts).__name__} alone")
    flat: list[Release | SealedState] = []
    for part in parts:
        if isinstance(part, Stack):
            flat.extend(part.parts)
        elif isinstance(part, (Release, SealedState)):
            flat.append(part)
        else:  # for callers without a type checker
            raise MergeError(
                f"stack takes Releases or SealedStates, found {type(part).__name__}; seal an open sketch first"
            )
    if not flat:
        raise MergeError("nothing to stack: give at least one Release or SealedState")
    if len({type(part) for part in flat}) > 1:
        raise MergeError("a stack holds either Releases or SealedStates, not both", ["publish"])
    require_same([part.spec.comparable() for part in flat], [part.key_id for part in flat], what="stacked")
    require_distinct([part.layers for part in flat], [part.seal_id for part in flat], what="stacked")
    return Stack(tuple(flat))
