"""Batches of items of one type, as arrays that kernels can read.

In: int arrays, lists of int, str or bytes, packed strings with offsets, Arrow arrays. Out: `Items`, weights as arrays.
Touches: nothing.

An item is an int (64 bits, signed), a str (its UTF-8 bytes) or bytes; 5, "5" and b"5" are three different items. A
batch holds one type. Arrays are read in place. Lists are packed in chunks that fit the second-level cache, which is 2.7
times faster than packing the whole list.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import msgpack
import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Ints
from sketchstream.errors import ItemError, WeightError
from sketchstream.items.key import TypeName

Offsets: TypeAlias = npt.NDArray[np.int32] | npt.NDArray[np.int64]
Weights: TypeAlias = npt.NDArray[np.int32] | npt.NDArray[np.int64]
Arrays: TypeAlias = tuple[npt.NDArray[Any], ...]

BLOCK = 4096
"""Number of objects of a list that are packed at a time."""

_WANTED = "items must be integers, strings or bytes"
_MISSING = "drop missing values first"
_FLOAT = "make floats integers or text first: equal items must be equal bit by bit"
_COLUMN = "; choose one column"
_CODES: dict[TypeName, int] = {"int": 0, "str": 1, "bytes": 2}


class ObjectArray(Protocol):
    """A list of objects, or an array of them: has a length, can be sliced."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: slice, /) -> Any: ...


class Items:
    """A batch of items of one type; `Items.of` makes one from any supported source.

    A list is checked only when it is used, so it must not change in between; arrays are checked at once.

    Args:
        type_name: the type of the items.
        arrays: what kernels take, where the items lie in one piece: (n,) int64 values; or a buffer, (n,) starts and
            (n,) ends, item i being the bytes buffer[starts[i]:ends[i]]. Empty where there are parts instead.
        parts: batches of one piece, and lists of objects, which are packed piece by piece when they are used.

    Examples:
        >>> batch = Items.of(["a", "b", "c"])
        >>> len(batch), batch.type_name
        (3, 'str')
    """

    __slots__ = ("_parts", "arrays", "type_name")

    def __init__(self, type_name: TypeName, arrays: Arrays = (), parts: Sequence[Items | ObjectArray] = ()) -> None:
        self.type_name: TypeName = type_name
        self.arrays = arrays
        self._parts = parts

    @classmethod
    def of(cls, source: object, type_name: TypeName | None = None) -> Items:
        """A batch from any supported source.

        Args:
            source: int ndarray; list or tuple of int, str or bytes; ndarray of 'S', 'U' or objects; (buffer, offsets)
                with item i = buffer[offsets[i]:offsets[i + 1]]; pyarrow array of integers, strings or binary;
                anything that numpy reads as one of those arrays; Items.
            type_name: "str" or "bytes" for (buffer, offsets), default "bytes"; for other sources the expected type.

        Raises:
            ItemError: floats, bools, None, several types in one batch, or ints beyond 64 bits. The message gives the
                position, never the item.
        """
        made = cls._of(source, type_name)
        if type_name is not None and made.type_name != type_name:
            if len(made):
                raise ItemError(f"items must be of type {type_name}, found {made.type_name}")
            made = cls(type_name)
        return made

    @classmethod
    def _of(cls, source: object, type_name: TypeName | None) -> Items:
        if isinstance(source, Items):
            return source
        if isinstance(source, np.ndarray):
            return _from_array(source)
        if isinstance(source, tuple) and len(source) == 2 and isinstance(source[1], np.ndarray):
            return cls.packed(source[0], source[1], type_name or "bytes")
        if isinstance(source, (list, tuple)):
            return cls(_type_of(source[0], 0), parts=(source,)) if source else cls("int")
        module = type(source).__module__
        if module.partition(".")[0] == "pyarrow" and "pyarrow" in sys.modules:
            return _from_arrow(source)
        if isinstance(source, (str, bytes, bytearray, memoryview)) or not hasattr(source, "__array__"):
            msg = f"{_WANTED}, in a list, an array or (buffer, offsets); found one {type(source).__name__}"
            if isinstance(source, Iterable) and not isinstance(source, (str, bytes, bytearray, memoryview, Mapping)):
                msg += ": make it a list, list(...)"
            raise ItemError(msg)
        return _from_array(np.asarray(source))

    @classmethod
    def packed(cls, buffer: object, offsets: npt.NDArray[Any], type_name: TypeName = "bytes") -> Items:
        """Strings that lie end to end: item i = buffer[offsets[i]:offsets[i + 1]]."""
        if offsets.ndim != 1 or len(offsets) < 1 or offsets.dtype.kind not in "iu":
            raise ItemError(
                f"offsets must be a one-dimensional integer array of length items + 1, found {_shape(offsets)}"
            )
        return cls.spans(buffer, offsets[:-1], offsets[1:], type_name)

    @classmethod
    def spans(
        cls, buffer: object, starts: npt.NDArray[Any], ends: npt.NDArray[Any], type_name: TypeName = "bytes"
    ) -> Items:
        """Strings inside one buffer: item i = buffer[starts[i]:ends[i]]. The buffer is not copied."""
        from sketchstream import kernels

        if type_name == "int":
            raise ItemError("a buffer holds items of type 'str' or 'bytes', not 'int'")
        view = _bytes_of(buffer)
        if starts.ndim != 1 or starts.shape != ends.shape or starts.dtype.kind not in "iu":
            raise ItemError(
                f"starts and ends must be integer arrays of one length, found {_shape(starts)} and {_shape(ends)}"
            )
        if starts.dtype not in (np.int32, np.int64) or ends.dtype != starts.dtype:
            starts, ends = starts.astype(np.int64), ends.astype(np.int64)
        arguments = (starts, ends, len(view))
        few = kernels.use_numpy_twin(
            kernels.check_spans, lambda: len(starts) // kernels.plain.SPANS, starts.dtype, arguments
        )
        bad = (kernels.plain if few else kernels).check_spans(*arguments)
        if bad >= 0:
            raise ItemError(
                f"offsets must ascend inside the buffer of {len(view)} bytes, they do not at position {bad}"
            )
        return cls(type_name, (view, starts, ends))

    @staticmethod
    def concat(batches: Sequence[Items]) -> Items:
        """Concatenate batches of one type; empty batches may have any type."""
        full = [batch for batch in batches if len(batch)]
        type_names = {batch.type_name for batch in full}
        if len(type_names) > 1:
            raise ItemError(f"a batch holds items of one type, found {' and '.join(sorted(type_names))}")
        if not full:
            return Items(batches[0].type_name if batches else "int")
        if len(full) == 1:
            return full[0]
        return Items(full[0].type_name, parts=[part for batch in full for part in batch._parts or (batch,)])

    def take(self, chosen: npt.NDArray[Any]) -> Items:
        """Select items by a (n,) bool mask or an array of positions."""
        if chosen.dtype == np.bool_ and len(chosen) != len(self):
            raise ItemError(f"a mask must have one entry for each of the {len(self)} items, found {len(chosen)}")
        return self._at(chosen)

    def cut(self, first: int, last: int) -> Items:
        """View of the items from `first` to `last`, which is excluded."""
        return self._at(slice(first, last))

    def _at(self, places: Any) -> Items:
        """The items at these places; strings share the buffer."""
        if self.type_name == "int":
            return Items("int", (self.whole().arrays[0][places],))
        buffer, starts, ends = self.whole().arrays
        return Items(self.type_name, (buffer, starts[places], ends[places]))

    def work(self) -> int:
        """Size of a batch in one piece, for `kernels.use_numpy_twin`."""
        from sketchstream.kernels import plain

        if self.type_name == "int":
            return plain.work_of(len(self), self.arrays[0].itemsize)
        _, starts, ends = self.arrays
        return plain.work_of(len(self), int((ends - starts).max(initial=0)))

    def whole(self) -> Items:
        """The batch in one piece; copies only if it has parts."""
        if self.arrays:
            return self
        pieces = [tuple(array.copy() for array in piece.arrays) for _, piece in self.pieces()]
        if self.type_name == "int":
            return Items("int", (np.concatenate([values for (values,) in pieces] or [_NO_INTS]),))
        before = np.cumsum([0, *(len(buffer) for buffer, _, _ in pieces)])
        return Items(
            self.type_name,
            (
                np.concatenate([buffer for buffer, _, _ in pieces] or [np.empty(0, np.uint8)]),
                np.concatenate([starts + at for (_, starts, _), at in zip(pieces, before, strict=False)] or [_NO_INTS]),
                np.concatenate([ends + at for (_, _, ends), at in zip(pieces, before, strict=False)] or [_NO_INTS]),
            ),
        )

    def pieces(self) -> Generator[tuple[int, Items], None, None]:
        """Iterate over (position of the first item, piece). A piece of a list is valid until the next one is requested.

        Raises:
            ItemError: a list holds something that is not an item, or items of two types.
        """
        if self.arrays:
            yield 0, self
            return
        position = 0
        for part in self._parts:
            if isinstance(part, Items):
                yield position, part
            else:
                yield from _packed_chunks(part, self.type_name, position)
            position += len(part)

    def __len__(self) -> int:
        return len(self.arrays[-1]) if self.arrays else sum(map(len, self._parts))

    def __repr__(self) -> str:
        return f"Items({len(self)} of type {self.type_name})"


_NO_INTS: Ints = np.empty(0, np.int64)


class Pairs:
    """A batch of (row, item) pairs in two columns, for the kinds whose events have a row, or a group, and an item.

    Args:
        rows: n rows, in any form that `Items.of` takes.
        items: n items, likewise.

    Raises:
        ItemError: a column is not a batch of items, or the columns differ in length.

    Examples:
        >>> pairs = Pairs(["alice", "alice", "bob"], [3, 5, 3])
        >>> len(pairs), pairs.rows.type_name, pairs.items.type_name
        (3, 'str', 'int')
    """

    __slots__ = ("items", "rows")

    def __init__(self, rows: object, items: object) -> None:
        self.rows = Items.of(rows)
        self.items = Items.of(items)
        if len(self.rows) != len(self.items):
            raise ItemError(
                f"pairs need one row for each item, found {len(self.rows)} rows and {len(self.items)} items"
            )

    @classmethod
    def of(cls, source: object) -> Pairs:
        """Pairs from `Pairs`, a list of (row, item), or an (n, 2) array of ids.

        Args:
            source: the batch.

        Raises:
            ItemError: the source is something else; the message gives the position, never the pair.
        """
        if isinstance(source, Pairs):
            return source
        if isinstance(source, np.ndarray) and source.ndim == 2 and source.shape[1] == 2:
            return cls(np.ascontiguousarray(source[:, 0]), np.ascontiguousarray(source[:, 1]))
        if not isinstance(source, list):
            raise ItemError(
                f"expected a list of (row, item), Pairs(rows, items) or an (n, 2) array, found {type(source).__name__}"
            )
        for position, pair in enumerate(source):
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise ItemError(f"expected a (row, item) pair at position {position}, found {type(pair).__name__}")
        return cls([row for row, _ in source], [item for _, item in source])

    def take(self, chosen: npt.NDArray[Any]) -> Pairs:
        """Select pairs by a mask or an array of positions."""
        return Pairs(self.rows.take(chosen), self.items.take(chosen))

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"Pairs({len(self)} of types {self.rows.type_name}, {self.items.type_name})"


def arguments_of(items: object, columns: tuple[object, ...], weights: object, *, pairs: bool) -> tuple[object, object]:
    """The batch and its weights, of what was given in order.

    Args:
        items: first column: items; with `pairs` rows, or whole pairs.
        columns: all further ones.
        weights: weights that were given by name, or None.
        pairs: whether events are pairs of a row and an item.

    Raises:
        ItemError: more columns than there are, or weights twice.
    """
    batch, rest = items, list(columns)
    if pairs and not _are_pairs(items):
        batch = Pairs(items, rest.pop(0))
    if len(rest) > (weights is None):
        expected = "rows, items and weights" if pairs else "items and weights"
        raise ItemError(f"update takes {expected}, found {len(rest) - (weights is None)} more")
    return batch, rest[0] if rest else weights


def _are_pairs(batch: object) -> bool:
    """Whether a batch has both columns."""
    if isinstance(batch, list):
        return not batch or isinstance(batch[0], (tuple, list))
    return isinstance(batch, Pairs) or (isinstance(batch, np.ndarray) and batch.ndim == 2)


def as_weights(weights: object, n: int, *, alone: bool = False) -> Weights:
    """(n,) int32 or int64 weights, or an empty array for None, which stands for ones.

    Args:
        weights: integers in a list or an array, or None.
        n: expected number of weights.
        alone: validate each weight by itself. A weight that is not a whole number of at most 64 bits becomes 0, which
            means no event.

    Raises:
        WeightError: not integers, not one for each item, or beyond 64 bits; the message gives the position.
    """
    if weights is None:
        return np.empty(0, np.int32)
    if getattr(weights, "shape", None) == () or not hasattr(weights, "__len__"):  # a number, or an array of one
        raise WeightError(f"weights must hold one integer for each item, found one {type(weights).__name__}")
    require_no_mask(weights)
    if isinstance(weights, np.ndarray) and weights.dtype in (np.int32, np.int64) and weights.ndim == 1:
        out: Weights = weights
    elif len(weights) == 0:
        out = _NO_INTS
    elif alone:
        out = _whole_weights(weights)
    else:
        try:
            (out,) = Items.of(weights, type_name="int").whole().arrays
        except ItemError as error:
            raise WeightError(
                f"weights must be integers of at most 64 bits: {str(error).replace('items', 'weights')}"
            ) from None
    if len(out) != n:
        raise WeightError(f"weights must hold one integer for each item, found {len(out)} weights for {n} items")
    return out


def require_no_mask(weights: object) -> None:
    """Require that no weight is hidden: a masked array has numbers also where it shows none."""
    if isinstance(weights, np.ma.MaskedArray):
        raise WeightError("weights must not be a masked array; drop the masked entries first, and their items")


def _whole_weights(weights: Any) -> Ints:
    """Each weight as int64; 0 if it is not a valid weight."""
    array = weights.to_pylist() if hasattr(weights, "to_pylist") else weights
    if not isinstance(array, (list, tuple)):
        array = np.asarray(array)
        if array.ndim != 1:
            raise WeightError(f"weights must hold one integer for each item, found {_shape(array)}")
        if array.dtype.kind in "iuf":
            return whole_numbers(array)[0]
    return np.fromiter((_whole_weight(one) for one in array), np.int64, len(array))


def _whole_weight(weight: object) -> int:
    """One weight as int64; 0 if it is not a valid weight."""
    if isinstance(weight, (float, np.floating)) and float(weight).is_integer():
        weight = int(weight)
    if not isinstance(weight, (int, np.integer)) or isinstance(weight, (bool, np.bool_)):
        return 0
    return int(weight) if -(1 << 63) <= int(weight) < 1 << 63 else 0


def whole_numbers(numbers: npt.NDArray[Any]) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """(n,) int64 values of integers or floats, and (n,) bool: which of them are whole; the others become 0."""
    good = np.ones(numbers.shape, np.bool_)
    if numbers.dtype.kind == "f":
        numbers = numbers.astype(np.float64)
        good = (np.floor(numbers) == numbers) & (numbers >= -(2.0**63)) & (numbers < 2.0**63)
    elif numbers.dtype == np.uint64:
        good = numbers < np.uint64(1 << 63)
    return np.where(good, numbers, numbers.dtype.type(0)).astype(np.int64), good


def _type_of(item: object, position: int) -> TypeName:
    """Type of one item."""
    if isinstance(item, str):
        return "str"
    if isinstance(item, (bytes, bytearray, memoryview)):
        return "bytes"
    if isinstance(item, (int, np.integer)) and not isinstance(item, (bool, np.bool_)):
        return "int"
    hint = ""
    if item is None or isinstance(item, (float, np.floating)):
        hint = f"; {_MISSING if item is None or np.isnan(item) else _FLOAT}"
    raise ItemError(f"{_WANTED}, found {type(item).__name__} at position {position}{hint}")


def _plain_value(item: object, type_name: TypeName, position: int) -> int | str | bytes:
    """One item as a plain int, str or bytes."""
    found = _type_of(item, position)
    if found != type_name:
        raise ItemError(
            f"a batch holds items of one type, found {found} at position {position} in a batch of {type_name}"
        )
    if isinstance(item, str):
        try:
            item.encode()
        except UnicodeEncodeError:
            raise ItemError(f"text at position {position} has surrogates, which UTF-8 cannot hold") from None
        return str(item)
    if isinstance(item, (int, np.integer)):
        if not -(1 << 63) <= int(item) < 1 << 63:
            raise ItemError(
                f"an int item must fit in 64 bits, found a larger one at position {position}; pass it as str"
            )
        return int(item)
    assert isinstance(item, (bytes, bytearray, memoryview))
    return bytes(item)


def _packed_chunks(objects: ObjectArray, type_name: TypeName, position: int) -> Iterator[tuple[int, Items]]:
    """Pack BLOCK objects at a time; msgpack's tags check the types on the way, in one pass over the objects."""
    packer = msgpack.Packer(autoreset=False)
    scratch = np.empty(1 << 17, np.uint8)
    starts = np.empty(BLOCK, np.int64)
    ends = np.empty(BLOCK, np.int64)
    try:
        for first in range(0, len(objects), BLOCK):
            chunk = objects[first : first + BLOCK]
            if isinstance(chunk, np.ndarray):
                chunk = chunk.tolist()
            n = len(chunk)
            size = _pack(packer, chunk)
            scratch = _fill_scratch(scratch, packer, size)
            if size == 0 or n != _read(scratch[:size], type_name, starts[:n], ends[:n]):
                chunk = [_plain_value(item, type_name, position + first + i) for i, item in enumerate(chunk)]
                size = _pack(packer, chunk)
                scratch = _fill_scratch(scratch, packer, size)
                if n != _read(scratch[:size], type_name, starts[:n], ends[:n]):
                    raise ItemError(
                        f"cannot read the {n} items of type {type_name} from position {position + first} on"
                    )
            yield (
                position + first,
                Items(type_name, (starts[:n],) if type_name == "int" else (scratch, starts[:n], ends[:n])),
            )
    finally:
        starts[:] = 0
        ends[:] = 0
        scratch[:] = 0
        packer.reset()
        packer.pack(bytes(len(scratch)))


def _read(packed: npt.NDArray[np.uint8], type_name: TypeName, starts: Ints, ends: Ints) -> int:
    """Positions of packed strings, or packed ints (in `starts`); returns how many items are of that type."""
    from sketchstream import kernels

    arguments = (packed, _CODES[type_name], starts, ends, starts)
    twin = kernels.use_numpy_twin(kernels.read_packed, lambda: len(starts), None, arguments)
    return int((kernels.plain.read_packed if twin else kernels.read_packed)(*arguments))


def _pack(packer: Any, chunk: Any) -> int:
    """Fill the packer with a chunk; returns the number of bytes, 0 if msgpack does not support an object in it."""
    packer.reset()
    try:
        packer.pack(chunk)
    except (TypeError, ValueError, OverflowError):
        return 0
    with packer.getbuffer() as view:
        return len(view)


def _fill_scratch(scratch: npt.NDArray[np.uint8], packer: Any, size: int) -> npt.NDArray[np.uint8]:
    """The packer's bytes in the scratch array, or in a larger one."""
    if size > len(scratch):
        scratch[:] = 0
        scratch = np.empty(2 * size, np.uint8)
    with packer.getbuffer() as view:
        scratch[:size] = memoryview(view)[:size]
    return scratch


def _shape(array: npt.NDArray[Any]) -> str:
    """Shape and type of an array, for messages."""
    return f"shape {array.shape} of {array.dtype}"


def _bytes_of(buffer: object) -> npt.NDArray[np.uint8]:
    """A buffer as (n,) uint8, not copied."""
    if isinstance(buffer, np.ndarray):
        if buffer.dtype != np.uint8 or buffer.ndim != 1 or not buffer.flags.c_contiguous:
            raise ItemError(f"the buffer of packed items must be a contiguous (n,) uint8 array, found {_shape(buffer)}")
        return buffer
    if not isinstance(buffer, (bytes, bytearray, memoryview)):
        raise ItemError(f"the buffer of packed items must be bytes or a uint8 array, found {type(buffer).__name__}")
    return np.frombuffer(buffer, np.uint8)


def _from_array(array: npt.NDArray[Any]) -> Items:
    """A batch from a numpy array."""
    if array.ndim != 1:
        raise ItemError(
            f"items must be a one-dimensional array, found {_shape(array)}{_COLUMN if array.ndim > 1 else ''}"
        )
    if isinstance(array, np.ma.MaskedArray):
        raise ItemError("items must not be a masked array; drop the masked entries first (array.compressed())")
    kind = array.dtype.kind
    if kind in "iu":
        if array.dtype == np.uint64 and len(array) and int(array.max()) >= 1 << 63:
            position = int(np.argmax(array >= np.uint64(1 << 63)))
            raise ItemError(f"an int item must fit in 64 bits with its sign, found a larger one at position {position}")
        return Items("int", (np.ascontiguousarray(array, dtype=np.int64),))
    if kind in "SUTO":
        if len(array) == 0:
            return Items("str" if kind in "UT" else "bytes" if kind == "S" else "int")
        return Items(_type_of(array[:1].tolist()[0], 0), parts=(array,))
    if len(array) == 0:  # numpy makes a float array of an empty list
        return Items("int")
    hint = f"; {_FLOAT}" if kind == "f" else ""
    raise ItemError(f"{_WANTED}, found an array of {array.dtype}{hint}")


def _from_arrow(source: Any) -> Items:
    """A batch from a pyarrow Array or ChunkedArray, without copying unless its type must be converted."""
    import pyarrow as pa

    if isinstance(source, pa.ChunkedArray):
        if source.num_chunks == 0:
            return _from_arrow(pa.array([], type=source.type))
        before, batches = 0, []
        for chunk in source.chunks:
            batches.append(_from_arrow_array(chunk, before))
            before += len(chunk)
        return Items.concat(batches)
    if not isinstance(source, pa.Array):
        raise ItemError(f"{_WANTED}, in an Arrow array; found {type(source).__name__}{_COLUMN}")
    return _from_arrow_array(source, 0)


def without_references(array: Any) -> Any:
    """An Arrow array that holds its values itself, where a dictionary held them, or they were views of others."""
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if str(array.type) in ("string_view", "binary_view"):  # pyarrow 15 has no other way to request them
        array = array.cast(pa.large_string() if str(array.type) == "string_view" else pa.large_binary())
    return array


def _from_arrow_array(array: Any, before: int) -> Items:
    """A batch from one pyarrow Array whose first item has position `before`."""
    import pyarrow as pa

    array = without_references(array)
    if array.null_count:
        position = before + int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        raise ItemError(f"{_WANTED}, found null at position {position}; {_MISSING}")
    n, offset, arrow_type = len(array), array.offset, array.type
    if pa.types.is_integer(arrow_type):
        if arrow_type != pa.int64():
            try:
                array, offset = array.cast(pa.int64()), 0
            except pa.ArrowInvalid:
                raise ItemError(
                    "an int item must fit in 64 bits with its sign, found larger ones in an Arrow array of uint64"
                ) from None
            offset = array.offset
        data = array.buffers()[1]
        values = np.frombuffer(data, np.int64, n, 8 * offset) if n else _NO_INTS
        return Items("int", (values,))
    text = pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type)
    if text or pa.types.is_binary(arrow_type) or pa.types.is_large_binary(arrow_type):
        type_name: TypeName = "str" if text else "bytes"
        if n == 0:
            return Items(type_name)
        large = pa.types.is_large_string(arrow_type) or pa.types.is_large_binary(arrow_type)
        _, offsets, data = array.buffers()
        bounds: Offsets
        if large:
            bounds = np.frombuffer(offsets, np.int64, n + 1, 8 * offset)
        else:
            bounds = np.frombuffer(offsets, np.int32, n + 1, 4 * offset)
        buffer = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
        return Items.packed(buffer, bounds, type_name)
    if pa.types.is_fixed_size_binary(arrow_type):
        data = array.buffers()[1]
        buffer = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
        return Items.packed(buffer, (offset + np.arange(n + 1, dtype=np.int64)) * arrow_type.byte_width, "bytes")
    raise ItemError(f"{_WANTED}, found an Arrow array of {arrow_type}")
