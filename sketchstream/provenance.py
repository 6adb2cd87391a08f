"""Provenance of a sketch: its noise, its place in a deployment, the header that states both, and checks of headers.

In: fields of headers, ledgers, counters. Out: layers, origins, headers; `FormatError` where a ledger does not
account for the noise, `MergeError` where sketches do not belong together. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgpack
import numpy.typing as npt

from sketchstream import kinds, wire
from sketchstream.components import Counter
from sketchstream.errors import FormatError, KeyMismatchError, MergeError
from sketchstream.privacy.deployments import publications
from sketchstream.privacy.ledgers.sketch_history import Promise, SketchHistory
from sketchstream.privacy.losses.history import History, LayerEntry, View
from sketchstream.privacy.losses.law_names import LAWS, parameter_name
from sketchstream.spec import read_rational
from sketchstream.topics import TOPIC_STRIDE, require_partitions

if TYPE_CHECKING:
    from sketchstream.kinds.interface import Kind, Spec


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


def pack_published(header: dict[str, Any], body: npt.NDArray[Any]) -> bytes:
    """Published bytes, of fields and counters that are all on the list of what is published."""
    publications.require_listed([*header, *(counter["name"] for counter in header.get("counters", ()))])
    return wire.pack(header, body, codec=wire.HUFFMAN)


def header_of(
    content: str,
    spec: Spec,
    layers: Sequence[Layer],
    slots: int,
    ledger: SketchHistory,
    origin: Origin,
    counters: Sequence[Counter] = (),
) -> dict[str, Any]:
    """Header fields that open sketches and all that they publish share; `content` is "sketch", "release" or another."""
    return {
        "kind": content,
        "spec": spec.to_dict(),
        "layers": [layer.to_dict() for layer in layers],
        "slots": slots,
        "ledger": ledger.to_dict(),
        **origin.to_dict(),
        **({"counters": [counter.to_dict() for counter in counters]} if counters else {}),
    }


def spec_of(header: Mapping[str, Any]) -> tuple[Any, Kind[Any]]:
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


def checked_identifier(value: object) -> bytes:
    """Return `value` if it is a 16-byte identifier."""
    if not isinstance(value, bytes) or len(value) != 16:
        raise FormatError("expected a 16-byte identifier")
    return value


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
