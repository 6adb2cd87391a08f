"""Published objects: releases, sealed states, and stacks of them.

In: results of `Sketch.release` and `Sketch.seal`. Out: objects that can be written, read, stacked, merged and
reconstructed. Everything computed here is post-processing and costs no privacy. Touches: the files that
`save` writes.
Source: Wu & Pagh, ICML 2024 (post-processing, merging); docs/theory/privacy.md (why histograms may be published).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, Self

import msgpack
import numpy as np
import numpy.typing as npt

from sketchstream import kinds, wire
from sketchstream.components import Counter, read_counters, sum_counters
from sketchstream.errors import EstimateError, FormatError, KeyMismatchError, MergeError
from sketchstream.files import PUBLIC, write_durably
from sketchstream.kinds import closing_kind, groups_of
from sketchstream.kinds.capabilities import Grouping, Reconstructing
from sketchstream.kinds.options import Method
from sketchstream.privacy.deployments import publications
from sketchstream.privacy.deployments.copies import CopiedPositions
from sketchstream.privacy.deployments.surroundings import Context
from sketchstream.privacy.ledgers.loss_texts import cost_text
from sketchstream.privacy.ledgers.sketch_history import Promise, SketchHistory, worst_of
from sketchstream.privacy.losses.history import History, LayerEntry, View
from sketchstream.privacy.losses.law_names import LAWS, parameter_name
from sketchstream.spec import checked_int, read_rational
from sketchstream.topics import TOPIC_STRIDE, require_partitions

if TYPE_CHECKING:
    from sketchstream.kinds.answers import Answers
    from sketchstream.kinds.groups.overlap import Overlap
    from sketchstream.kinds.interface import Kind, Spec
    from sketchstream.kinds.profile_answers import Profile
    from sketchstream.privacy.deployments.guarantee import Guarantee

Norm = Literal[1, 2] | float


@dataclass(frozen=True)
class Layer:
    """One independent noise vector that was summed into a state.

    Args:
        law: name of the noise law, such as "discrete-laplace".
        parameter: parameter of the law: epsilon for discrete Laplace noise, randomized response and joint noise in a
            ball; sigma^2 for discrete Gaussian noise; for spectral noise, that of noise on the counts with the same
            cost. If the sketch has several components, that of the slots.
        lineage: 16 random bytes. Two states with the same lineage descend from the same noise.
    """

    law: str
    parameter: Fraction
    lineage: bytes = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The object as plain data for a header."""
        return {"law": self.law, parameter_name(self.law): str(self.parameter), "lineage": self.lineage}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Layer:
        """The layer that `to_dict` described."""
        law, lineage = data["law"], data["lineage"]
        if law not in LAWS or not isinstance(lineage, bytes) or len(lineage) != 16:
            raise FormatError("a noise layer of this file is not one that this version knows")
        return cls(law, read_rational(data[parameter_name(law)]), lineage)


@dataclass(frozen=True)
class Origin:
    """Where in a deployment a sketch belongs. All of it is public.

    Args:
        name: the sketch's name in the configuration.
        revision: raised by `sketchstream reset`; part of the published key and of the ledger.
        window: start and end, milliseconds since 1970 UTC, end excluded.
        partition: partition of the input topic.
        partitions_open: number of input partitions when the window was opened; only in bytes of format 1.
        partitions_seal: number of input partitions when the window was sealed; only in bytes of format 1.
        partitions: every number of input partitions that was valid while the window was open, ascending.
        partitioner: rule that assigns the items of a closed domain to partitions, so that an item has a slot in one
            partition only. Kinds that answer item by item record it, so that readers know which slot belongs to which
            item.
        table: what a history counted: the name of a table, and its pinned snapshot.
    """

    name: str = ""
    revision: int = 0
    window: tuple[int, int] | None = None
    partition: int | None = None
    partitions_open: int | None = None
    partitions_seal: int | None = None
    partitions: tuple[int, ...] = ()
    partitioner: str | None = None
    table: tuple[str, str] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Fields of a header; unknown ones are omitted."""
        return {
            attribute.name: list(value) if isinstance(value, tuple) else value
            for attribute in fields(self)
            if (value := getattr(self, attribute.name)) != attribute.default
        }

    @classmethod
    def from_dict(cls, header: Mapping[str, Any]) -> Origin:
        """The origin that a header's fields describe.

        Raises:
            FormatError: more partitions than an input has.
        """
        names = {attribute.name for attribute in fields(cls)}
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in header.items() if name in names
        }
        origin = cls(**values)
        require_partitions(origin.partition or 0, *origin.partition_counts)
        return origin

    @property
    def partition_counts(self) -> tuple[int, ...]:
        """Numbers of input partitions that are known to have been valid while the window was open, ascending."""
        counts = self.partitions or (self.partitions_open, self.partitions_seal)
        return tuple(sorted({count for count in counts if count is not None}))

    @property
    def repartitioned(self) -> bool:
        """Whether the number of input partitions changed while the window was open."""
        return len(self.partition_counts) > 1


def partition_counts(origins: Iterable[Origin]) -> int:
    """Number of distinct partition counts that were valid while any part of one window was open, at least 1.

    That many parts of the window can hold records of the same item. Parts that were sealed before partitions were added
    are included: parts of the same window that were opened later know other numbers of partitions. Each of several
    topics has a number of its own.
    """
    by_place: dict[Any, set[int]] = {}
    for origin in origins:
        place = origin.name, origin.revision, origin.window, (origin.partition or 0) // TOPIC_STRIDE
        by_place.setdefault(place, set()).update(origin.partition_counts)
    return max((len(counts) for counts in by_place.values()), default=1) or 1


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
        return _pack_published(self._header(), self.noised)

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
        spec, kind = _spec_of(header)
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
        return _pack_published({**_common_fields("sealed-state", self), "seal_id": self.seal_id}, self.state)

    @classmethod
    def from_header(cls, header: Mapping[str, Any], body: npt.NDArray[Any]) -> Self:
        """The state that a verified header and body describe."""
        spec, kind = _spec_of(header)
        kind.require_state(spec, header["slots"], body)
        return cls(state=body, **_read_common(header, spec, View("publication", None)))


@dataclass(frozen=True, eq=False, kw_only=True)
class Instalment:
    """Words of a state at positions that have closed; the seal publishes the same words again.

    Args:
        spec: specification of the sketch.
        layers: noise layers in its state.
        seal_id: 16 random bytes that identify this publication.
        origin: place of the sketch in a deployment.
        ledger: the sketch's history, its publication included.
        words: (n,) integers of `spec.dtype`, as `Closing.closed` gives them.
        first: first position.
        stop: position after the last.
    """

    spec: Any
    layers: tuple[Layer, ...]
    seal_id: bytes
    origin: Origin
    ledger: SketchHistory = field(repr=False)
    words: npt.NDArray[Any] = field(repr=False)
    first: int
    stop: int

    @property
    def positions(self) -> CopiedPositions:
        """The words that it shows."""
        return CopiedPositions(self.first, self.stop, lambda first, stop: self.words.tobytes())

    def to_bytes(self) -> bytes:
        """The published bytes."""
        header = header_of("instalment", self.spec, self.layers, int(self.words.size), self.ledger, self.origin)
        return _pack_published({**header, "first": self.first, "stop": self.stop, "seal_id": self.seal_id}, self.words)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read the instalment in these bytes.

        Raises:
            FormatError: the bytes are not an instalment.
        """
        header, body = wire.unpack(data)
        if header["kind"] != "instalment" or body is None:
            raise FormatError(f"expected the bytes of closed positions, found {header['kind']!r:.40}")
        with well_formed():
            spec, kind = _spec_of(header)
            first, stop = (
                checked_int(header[name], name, least, 1 << 40) for name, least in (("first", 0), ("stop", 1))
            )
            shows = closing_kind(spec)
            if shows is None:
                raise FormatError("specs of these positions publish nothing before the seal")
            blank = shows.closed(spec, np.zeros(kind.index(spec, None, None).slots, spec.dtype), first, stop)
            if first >= stop or (body.dtype, body.shape) != (blank.dtype, blank.shape):
                raise FormatError("the words are not those of the positions that their header says")
            layers = tuple(Layer.from_dict(layer) for layer in header["layers"])
            ledger = kind.accounting.read_ledger(spec, header["ledger"])
            require_accounted(spec, layers, ledger, (), View("publication", None))
            origin = Origin.from_dict(header)
        seal_id = _identifier(header["seal_id"])
        return cls(
            spec=spec, layers=layers, seal_id=seal_id, origin=origin, ledger=ledger, words=body, first=first, stop=stop
        )


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


def _pack_published(header: dict[str, Any], body: npt.NDArray[Any]) -> bytes:
    """Published bytes, of fields and counters that are all on the list of what is published."""
    publications.require_listed([*header, *(counter["name"] for counter in header.get("counters", ()))])
    return wire.pack(header, body, codec=wire.HUFFMAN)


def header_of(
    kind: str,
    spec: Spec,
    layers: Sequence[Layer],
    slots: int,
    ledger: SketchHistory,
    origin: Origin,
    counters: Sequence[Counter] = (),
) -> dict[str, Any]:
    """Header fields that open sketches and all that they publish share."""
    return {
        "kind": kind,
        "spec": spec.to_dict(),
        "layers": [layer.to_dict() for layer in layers],
        "slots": slots,
        "ledger": ledger.to_dict(),
        **origin.to_dict(),
        **({"counters": [counter.to_dict() for counter in counters]} if counters else {}),
    }


def _common_fields(kind: str, part: Release | SealedState) -> dict[str, Any]:
    """Header fields that releases and sealed states share."""
    fields = header_of(kind, part.spec, part.layers, part.slots, part.ledger, part.origin, part.counters)
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
        "seal_id": _identifier(header["seal_id"]),
        "origin": Origin.from_dict(header),
        "key_id": header.get("key_id"),
        "ledger": ledger,
        "counters": counters,
    }


def _spec_of(header: Mapping[str, Any]) -> tuple[Any, Kind[Any]]:
    """The spec of a header, and its kind."""
    kind = kinds.by_name(header["spec"].get("kind"))
    written = msgpack.packb(header["spec"])
    if len(written) > wire.REMEMBERED_BYTES:
        return kinds.read_published_spec(header["spec"]), kind
    spec = _remembered_spec(kind, written)
    if getattr(spec, "no_privacy", False):  # reading would warn each time
        spec = kinds.read_published_spec(header["spec"])
    return spec, kind


@lru_cache(wire.REMEMBERED_SPECS)
def _remembered_spec(kind: Kind[Any], written: bytes) -> Any:
    """Read the spec in these bytes, cached: many sketches have equal specs, and specs are immutable."""
    return kinds.read_published_spec(msgpack.unpackb(written))


def _identifier(value: object) -> bytes:
    """Return `value` if it is a 16-byte identifier."""
    if not isinstance(value, bytes) or len(value) != 16:
        raise FormatError("expected a 16-byte identifier")
    return value


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


@contextmanager
def well_formed() -> Iterator[None]:
    """Turn errors about missing or malformed header fields into FormatError inside the `with` block."""
    try:
        yield
    except (FormatError, KeyMismatchError):
        raise
    except (KeyError, TypeError, AttributeError, ArithmeticError, IndexError, ValueError) as error:
        raise FormatError(f"the header is not one that this version writes ({type(error).__name__})") from None


def require_same(specs: Sequence[Spec], key_ids: Sequence[bytes | None], *, what: str) -> None:
    """Raise an error if specs or hash keys differ; it names every field that differs."""
    first, wrong = specs[0].to_dict(), set()
    for spec in specs[1:]:
        other = spec.to_dict()
        wrong |= {name for name in first.keys() | other.keys() if first.get(name) != other.get(name)}
    if len(set(key_ids)) > 1:
        wrong.add("key")
    if wrong:
        names = sorted(wrong)
        raise MergeError(f"sketches that differ in {', '.join(names)} cannot be {what}", names)


def require_accounted(
    spec: Any, layers: Sequence[Layer], ledger: SketchHistory, counters: Sequence[Counter], view: View | None
) -> None:
    """Reject bytes whose ledger does not describe their noise and their publication: privacy claims rest on both.

    Args:
        spec: spec in the bytes.
        layers: layers in the bytes.
        ledger: ledger in the bytes.
        counters: counters in the bytes.
        view: what the bytes publish, with its cost; None for an open sketch.

    Raises:
        FormatError: the ledger describes other noise, another publication, another unit or weight, or another stage of
            the life cycle.
    """
    accounting = kinds.kind_of(spec).accounting
    written = [(layer.law, accounting.cost(spec, layer.parameter), layer.lineage) for layer in layers]
    accounted = [(entry.law, entry.cost, entry.lineage) for entry in ledger.layers]
    drawn = [entry.cost for entry in ledger.layers]
    if view is not None and view.cost is not None:
        drawn.append(accounting.shared_cost(spec, view.cost, final=view.kind == "publication"))
    wrong = written != accounted or any(law != accounting.law(spec) for law, _, _ in written)
    named = {counter.name: counter for counter in counters}
    for component in accounting.components(spec)[1:]:
        counter = named.get(component.name)
        if counter is not None and component.own_cost is None:
            wrong |= [draw.parameter for draw in counter.noise] != [component.parameter(draw) for draw in drawn]
        elif counter is not None:
            wrong |= {draw.parameter for draw in counter.noise} != {component.parameter(drawn[0])}
    if wrong:
        raise FormatError(
            f"the header names {len(written)} noise layers and its ledger accounts for others: these bytes were not "
            "written by a sketch and are not used; take an undamaged copy"
        )
    sealed = view is not None and view.kind == "publication"
    if (ledger.unit, ledger.max_weight, ledger.sealed) != (spec.unit, accounting.unit_weight(spec), sealed):
        raise FormatError("the ledger in these bytes is that of another sketch; take an undamaged copy")
    if not _is_charged(ledger, accounting.promise(spec), view):
        publication = "what the seal of its spec will publish"
        if view is not None:
            publication = "the bare state" if view.cost is None else f"a {view.kind} of cost {view.cost}"
        raise FormatError(
            f"the ledger in these bytes does not charge {publication}: these bytes were not written by a sketch and "
            "are not used; take an undamaged copy"
        )


def _is_charged(ledger: SketchHistory, promise: Promise, view: View | None) -> bool:
    """Whether a ledger ends with this view, and counts the publication at seal that its spec promises.

    A merge of published states publishes nothing of its own: each of its parts must end with the promised seal.
    """
    if not ledger.sealed:
        return ledger.promised == promise and (view is None or ledger.history.entries[-1:] == (view,))
    if ledger.promised != Promise("nothing") or promise.entries(1)[-1] != view:
        return False
    return all(_ends_with(end, promise, ledger.max_weight) for end in _ends(ledger.history))


def _ends(history: History) -> Iterator[History]:
    """The histories that end with a seal of their own: a sketch, or all parts of a merge of published states."""
    if history.entries or not history.parts:
        yield history
    else:
        for part in history.parts:
            yield from _ends(part)


def _ends_with(history: History, promise: Promise, max_weight: int) -> bool:
    """Whether the last entries of a sealed history are those of the promised seal; a fresh layer may have any name."""
    ends = history.entries[len(history.entries) - (history.seal or 0) :]
    first = ends[0] if ends else None
    lineage, law = (first.lineage, first.law) if isinstance(first, LayerEntry) else (b"", "")
    return ends == promise.entries(max_weight, lineage, law)


def require_distinct(layers: Sequence[Sequence[Layer]], seal_ids: Sequence[bytes], *, what: str) -> None:
    """Raise an error if a sketch is combined with itself, or with another descendant of the same state."""
    if len(set(seal_ids)) != len(seal_ids):
        raise MergeError(
            f"the same published sketch was given twice; a sketch cannot be {what} with itself", ["seal_id"]
        )
    lineages = [layer.lineage for part in layers for layer in part]
    if len(set(lineages)) != len(lineages):
        raise MergeError(
            f"two of these sketches share a noise layer: one state published or copied twice cannot be {what}",
            ["lineage"],
        )


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
