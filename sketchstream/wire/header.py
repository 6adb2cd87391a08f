"""Validation of headers: the fields of each kind of object, their types and bounds.

In: a mapping, or the bytes of one. Out: the canonical bytes, or the mapping. Touches: nothing.

A header holds these fields and nothing else: never keys, seeds, exact counts that depend on items, offsets, times of
last update or host names. A header has one canonical form (sorted names, shortest integers); all other bytes are
refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgpack

from sketchstream.errors import FormatError
from sketchstream.spec import read_rational
from sketchstream.wire.objects import MAX_OBJECTS, UNCOUNTED_BYTES, objects

MAX_HEADER_BYTES = 1 << 26
"""Bytes of a header, at most (an open sketch of a listed domain carries its list)."""
_MAX_TEXT = 1024
_MAX_LIST = 1 << 16
_DEEPEST = 72
"""Levels of nesting: a ledger of merged sketches nests twice for each of at most 32 generations."""
_FAR_MS = 1 << 53
REMEMBERED_SPECS: Final = 256
"""Most specs that are remembered once they were read: nearly every header repeats one."""
REMEMBERED_BYTES: Final = 1 << 14
"""Most bytes of each of them."""
Check = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_TEXT


def _fraction(value: Any) -> bool:
    """A non-negative rational in lowest terms, such as "1" or "1/2"."""
    try:
        return isinstance(value, str) and str(read_rational(value)) == value
    except ValueError:
        return False


def _check_whole(low: int, high: int) -> Check:
    return lambda value: type(value) is int and low <= value <= high


def _blob(size: int) -> Check:
    return lambda value: isinstance(value, bytes) and len(value) == size


def _list_of(check: Check, least: int = 0, most: int = _MAX_LIST) -> Check:
    return lambda value: isinstance(value, list) and least <= len(value) <= most and all(map(check, value))


def _map_of(fields: Mapping[str, Check], required: frozenset[str] = frozenset()) -> Check:
    return lambda value: (
        isinstance(value, dict)
        and required <= value.keys() <= fields.keys()
        and all(fields[name](item) for name, item in value.items())
    )


def _tree(value: Any, depth: int = 0) -> bool:
    """Plain data without floats, such as a spec.

    Its texts may be names, also such as "7e2024", so they are not checked as numbers here. Code that reads one as a
    number refuses huge exponents: `exact_rational` and `read_rational` of `sketchstream.spec`, and the ledgers.
    """
    if depth > _DEEPEST:
        return False
    if isinstance(value, str):
        return len(value) <= _MAX_TEXT
    if isinstance(value, dict):
        return len(value) <= 256 and all(map(_text, value)) and _trees(value.values(), depth + 1)
    if isinstance(value, list):
        return len(value) <= _MAX_LIST and _trees(value, depth + 1)
    return value is None or isinstance(value, (bool, int, bytes))


def _trees(values: Iterable[Any], depth: int) -> bool:
    return all(_tree(value, depth) for value in values)


def _is_plain(value: Any) -> bool:
    """A map of plain data, the same in header after header: what was looked at once is not looked at again."""
    if not isinstance(value, dict):
        return False
    try:
        text = _pack_plain(value)
    except FormatError:
        return False
    return _tree(value) if len(text) > REMEMBERED_BYTES else _is_tree(text)


@lru_cache(REMEMBERED_SPECS)
def _is_tree(text: bytes) -> bool:
    """Whether packed data are plain, see `_tree`."""
    return _tree(msgpack.unpackb(text, strict_map_key=False))


def _window(value: Any) -> bool:
    """[start, end) in milliseconds."""
    return _list_of(_check_whole(-_FAR_MS, _FAR_MS), 2, 2)(value) and bool(value[0] < value[1])


_LAYER = _map_of(
    {"law": _text, "epsilon": _fraction, "sigma2": _fraction, "lineage": _blob(16)}, frozenset({"law", "lineage"})
)


_DRAW = _map_of({"law": _text, "epsilon": _fraction, "sigma2": _fraction}, frozenset({"law"}))
_COUNTER = _map_of(
    {"name": _text, "value": _blob(8), "noise": _list_of(_DRAW, 1)},
    frozenset({"name", "value", "noise"}),
)


def _counts(value: Any) -> bool:
    """Numbers of partitions, ascending."""
    return _list_of(_check_whole(1, 1 << 32), 1, 64)(value) and all(a < b for a, b in itertools.pairwise(value))


def _ledger(value: Any) -> bool:
    """Plain data, read and checked by `sketchstream.privacy.ledgers.ledger`."""
    return isinstance(value, dict) and _tree(value)


def _instance(kind: type) -> Check:
    return lambda value: isinstance(value, kind)


_OPEN: dict[str, Check] = {
    "slots": _check_whole(1, 1 << 40),
    "layers": _list_of(_LAYER),
    "ledger": _ledger,
    "name": _text,
    "revision": _check_whole(0, 1 << 32),
    "window": _window,
    "partition": _check_whole(0, 1 << 32),
    "partitions_open": _check_whole(1, 1 << 32),
    "partitions": _counts,
    "partitioner": _text,
    "table": _list_of(_text, 2, 2),
    "counters": _list_of(_COUNTER, 1),
}
_SEALED: dict[str, Check] = {
    **_OPEN,
    "partitions_seal": _check_whole(1, 1 << 32),
    "cost": _fraction,
    "seal_id": _blob(16),
}
_HISTOGRAM: dict[str, Check] = {"form": _text, "edges_version": _check_whole(1, 1 << 16), "final": _instance(bool)}
_ALWAYS: dict[str, Check] = {"kind": _text, "spec": _is_plain}
_KEYED: dict[str, Check] = {"key_id": _blob(8)}

FIELDS: dict[str, dict[str, Check]] = {
    "sketch": {**_ALWAYS, **_KEYED, **_OPEN, "items": _instance(bytes)},
    "sealed-state": {**_ALWAYS, **_KEYED, **_SEALED},
    "release": {**_ALWAYS, **_KEYED, **_SEALED, **_HISTOGRAM},
    "instalment": {**_ALWAYS, **_KEYED, **_SEALED, "first": _check_whole(0, 1 << 40), "stop": _check_whole(1, 1 << 40)},
    "stack": {**_ALWAYS, **_KEYED, "lengths": _list_of(_check_whole(1, 1 << 40), 1)},
}
"""For each kind: the fields it may have, and what each must look like.

slots: counters of the object. layers: noise vectors in the order of their application. ledger: layers and views with
their costs, in order. window: [start, end) in milliseconds. cost: what this publication cost. final: whether it was the
publication at seal. partitions: every number of input partitions that was valid while the window was open.
partitioner: the rule by which an item of a closed domain has its slot in one of them. table: name and snapshot of the
table that was counted. counters: those in addition to the slots.
items: a listed domain's items, for the open sketch only. lengths: bytes of each part of a stack.
"""
KINDS = tuple(FIELDS)
FIELDS_OF_2 = frozenset({"partitions", "counters"})
SPEC_FIELDS_OF_2 = frozenset({"total_share", "counted", "max_total", "epsilon_records"})
"""Names that version 1 of the format does not have, in a header and in its spec."""
FIELDS_OF_3 = frozenset({"partitioner", "table"})
SPEC_FIELDS_OF_3 = frozenset({"groups", "where", "sample", "one_of"})
"""Names that versions 1 and 2 do not have."""
KIND_OF_1_AND_2 = "profile"
"""The only kind of sketch that versions 1 and 2 know."""
_REQUIRED = frozenset({"kind", "spec"})


def version(header: Mapping[str, Any]) -> int:
    """The oldest format version that has all fields of a header, so that older releases can read what they know."""
    spec = header.get("spec")
    other = isinstance(spec, Mapping) and spec.get("kind", KIND_OF_1_AND_2) != KIND_OF_1_AND_2
    grouped = isinstance(spec, Mapping) and not SPEC_FIELDS_OF_3.isdisjoint(spec)
    if other or grouped or not FIELDS_OF_3.isdisjoint(header):
        return 3
    newer = isinstance(spec, Mapping) and not SPEC_FIELDS_OF_2.isdisjoint(spec)
    return 2 if newer or not FIELDS_OF_2.isdisjoint(header) else 1


def check(header: Mapping[str, Any]) -> None:
    """Raise FormatError, naming the field, unless the header is one of ours."""
    kind = header.get("kind")
    if not isinstance(kind, str) or kind not in FIELDS:
        raise FormatError(f"kind must be one of {', '.join(KINDS)}, found {kind!r:.40}")
    fields = FIELDS[kind]
    missing = _REQUIRED - header.keys()
    if missing:
        raise FormatError(f"a header of kind {kind} needs the field {sorted(missing)[0]}")
    for name, value in header.items():
        if not isinstance(name, str) or name not in fields:
            raise FormatError(f"a header of kind {kind} has no field {name!r:.40}")
        if not fields[name](value):
            raise FormatError(f"the header's field {name} is not what it should be")


def write(header: Mapping[str, Any]) -> bytes:
    """The canonical bytes of a header."""
    plain = _canonical(header)
    check(plain)
    data = _pack_plain(plain)
    require_length(len(data))
    return data


def read(data: bytes) -> dict[str, Any]:
    """The header that was written as these bytes, and no others."""
    ordered = True

    def in_order(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        nonlocal ordered
        names = [name for name, _ in pairs]
        ordered = ordered and all(a < b for a, b in itertools.pairwise(names))
        return dict(pairs)

    require_few_objects(data)
    try:
        header = _unpack_plain(data, in_order)
    except Exception as error:  # msgpack's errors share no base class below this one
        raise FormatError("the header is not readable") from error
    if not isinstance(header, dict):
        raise FormatError("the header is not a map")
    check(header)
    if not ordered or _pack_plain(header) != data:
        raise FormatError("the header is not written in its one canonical form")
    return header


def require_length(size: int) -> None:
    """Refuse a header that is longer than any.

    Raises:
        FormatError: this header is.
    """
    if size > MAX_HEADER_BYTES:
        raise FormatError(f"a header has at most {MAX_HEADER_BYTES} bytes, found {size}")


def require_few_objects(data: bytes | memoryview) -> None:
    """Refuse a header that would take far more memory than it has bytes.

    Raises:
        FormatError: this header would.
    """
    if len(data) > UNCOUNTED_BYTES and objects(data) > MAX_OBJECTS:
        raise FormatError(f"a header has at most {MAX_OBJECTS:,} values and names, found more")


def _unpack_plain(data: bytes, pairs: Callable[[list[tuple[Any, Any]]], Any] | None = None) -> Any:
    """Plain data from untrusted bytes of a checked size."""
    limit = len(data)
    return msgpack.unpackb(
        data,
        raw=False,
        strict_map_key=True,
        object_pairs_hook=pairs,
        max_str_len=limit,
        max_bin_len=limit,
        max_array_len=min(limit, _MAX_LIST),
        max_map_len=256,
        max_ext_len=0,
    )


def _pack_plain(plain: Any) -> bytes:
    try:
        data: bytes = msgpack.packb(plain, use_bin_type=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise FormatError("the header holds something that cannot be written") from error
    return data


_LEAVES: Final = frozenset((str, int, bytes, bool, type(None)))
"""Types of what has no order, which most values of a header are."""


def _canonical(value: Any, depth: int = 0) -> Any:
    """Plain lists, and dictionaries in the order of their names."""
    if type(value) in _LEAVES:
        return value
    if depth > _DEEPEST + 4:
        raise FormatError("the header is nested too deeply")
    if isinstance(value, Mapping):
        return {name: _canonical(value[name], depth + 1) for name in sorted(value, key=str)}
    if isinstance(value, (list, tuple)):
        return [_canonical(item, depth + 1) for item in value]
    return value
