"""The envelope around a header and a body: magic, version, lengths, checksum and tag.

In: a header, an array, perhaps the key. Out: bytes, and back. Touches: nothing.

Every length is checked against the given bytes before anything is allocated, and the checksum before anything is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, Protocol

import msgpack
import numpy as np
import numpy.typing as npt

from sketchstream.errors import ChecksumError, FormatError, KeyMismatchError, TruncatedError, VersionError
from sketchstream.items.key import Key
from sketchstream.wire import codec as coding
from sketchstream.wire import header as heading

MAGIC = b"\xc1SKS"
"""The first byte is the one that msgpack never uses, so no msgpack reader takes these bytes for its own."""
FORMAT_VERSION = 3
"""Newest version. What has nothing of it is written in an older one, so that older releases read on."""
_PREFIX = struct.Struct("<4sHBBBBHIQQQ")
PREFIX_BYTES = _PREFIX.size
_ALIGNED = 64
_DIGEST = 32
_TAGGED = 1
_NO_BODY, _BYTES = 0, 4
_DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype("<i2"),
    2: np.dtype("<i4"),
    3: np.dtype("<i8"),
    _BYTES: np.dtype(np.uint8),
}
RAW = 0
"""Codec of open states: little-endian counters, fixed size."""
HUFFMAN = 1
"""Codec of published objects: near the entropy of the values."""
_MAX_NUMBER = 1 << 40
_MAX_BINS = 1 << 22
"""Bins of a published histogram in all levels and groups, at most; they are far fewer than the sketch's slots."""


def pack(
    header: Mapping[str, Any],
    body: npt.NDArray[Any] | None = None,
    codec: int = RAW,
    key: Key | None = None,
    version: int = 1,
) -> bytes:
    """One object as bytes.

    Args:
        header: fields of its kind, see `FIELDS`; with a key, `key_id` is added.
        body: (n,) or (rows, columns) int16, int32 or int64, or (raw only) uint8, or None.
        codec: 0 raw, 1 Huffman. Open states have a fixed size: 0 only.
        key: adds a tag that only holders of the key can compute.
        version: oldest format version to write; a later one is written if a field needs it.

    Raises:
        FormatError: the format does not have this field, type or codec.
        KeyMismatchError: the header names another key.
    """
    pieces = _pieces(header, body, codec, key, version)
    if key is not None:
        pieces.append(_tag(key, pieces))
    pieces.append(_checksum(pieces))
    return b"".join(pieces)


class Unfinished:
    """One object laid out in memory, without its tag and checksum: making it takes no longer than copying its body.

    Args:
        header: header as in `pack`.
        body: body as in `pack`; always stored raw (codec 0).
        key: key as in `pack`.
        room: gives memory of at least that many bytes.
    """

    def __init__(
        self,
        header: Mapping[str, Any],
        body: npt.NDArray[Any],
        key: Key | None,
        room: Callable[[int], bytearray] = bytearray,
    ) -> None:
        pieces = _pieces(header, body, RAW, key)
        self._key = key
        self.body_bytes = body.nbytes
        self._end = sum(map(len, pieces))
        self.size = self._end + (_DIGEST if key is not None else 0) + _DIGEST
        self.buffer = room(self.size)
        whole = np.frombuffer(self.buffer, np.uint8)  # numpy copies without the interpreter's lock
        at = 0
        for piece in pieces:
            whole[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            at += len(piece)

    def finish(self) -> memoryview:
        """The whole object, as `pack` would have written it; read-only, and valid as long as the buffer."""
        view = memoryview(self.buffer)
        end = self._end
        if self._key is not None:
            view[end : end + _DIGEST] = _tag(self._key, [view[:end]])
            end += _DIGEST
        view[end : end + _DIGEST] = _checksum([view[:end]])
        return view[: self.size].toreadonly()


class Body(Protocol):
    """An array that is read piece by piece, once."""

    def pieces(self) -> Iterator[memoryview]:
        """Bytes of the array, in order; each piece is valid until the next one is requested."""

    def close(self) -> None:
        """Say that the remaining pieces are not needed."""


class Streamed:
    """One object as pieces of bytes, for bodies that are too large to be copied.

    Args:
        header: header as in `pack`.
        described: the body's array: its type and shape are read, not its values.
        body: the values; always stored raw (codec 0).
        key: key as in `pack`.
    """

    def __init__(self, header: Mapping[str, Any], described: npt.NDArray[Any], body: Body, key: Key | None) -> None:
        prefix, head, data = _pieces(header, described, RAW, key)
        self._head = bytes(prefix) + bytes(head)
        self._body = body
        self._key = key
        self.body_bytes = len(data)
        self.size = len(self._head) + len(data) + (_DIGEST if key is not None else 0) + _DIGEST

    def pieces(self) -> Iterator[bytes | memoryview]:
        """The whole object, as `pack` would have written it, in pieces; they can be read once."""
        digests = [_new_checksum()] if self._key is None else [_new_tag(self._key), _new_checksum()]
        head: tuple[bytes | memoryview, ...] = (self._head,)
        for piece in chain(head, self._body.pieces()):
            for digest in digests:
                digest.update(piece)
            yield piece
        for number, digest in enumerate(digests):
            end = digest.digest()
            for later in digests[number + 1 :]:
                later.update(end)
            yield end

    def close(self) -> None:
        """Say that the remaining pieces are not needed."""
        self._body.close()


def _pieces(
    header: Mapping[str, Any], body: npt.NDArray[Any] | None, codec: int, key: Key | None, version: int = 1
) -> list[bytes | memoryview]:
    """Prefix, header and body."""
    fields = dict(header)
    if key is not None and fields.setdefault("key_id", key.id) != key.id:
        raise KeyMismatchError(f"the header does not name the key given, {key.id.hex()}")
    head = heading.write(fields)
    code, shape = _NO_BODY, (0, 0)
    data: bytes | memoryview = b""
    ndim = 0
    if body is not None:
        code, ndim, shape, flat = _read_description(body)
        _check_codec(fields["kind"], codec, code)
        data = flat.view(np.uint8).data if codec == RAW else coding.encode(flat)
    elif codec != RAW:
        raise FormatError("an object without a body has codec 0")
    flags = 0 if key is None else _TAGGED
    number = max(version, heading.version(fields))
    prefix = _PREFIX.pack(MAGIC, number, codec, flags, code, ndim, 0, len(head), *shape, len(data))
    return [prefix, head, data]


def aligned_memory(size: int, first: bytes) -> memoryview:
    """Writable memory for one object, placed so that `unpack` can return its array without a copy (`take_over`).

    Args:
        size: bytes of the object.
        first: its first `PREFIX_BYTES` bytes, or fewer. They need not be those of a sketch.
    """
    start = 0
    if len(first) >= _PREFIX.size:
        _, _, _, _, _, _, _, head, _, _, _ = _PREFIX.unpack(first[: _PREFIX.size])
        start = _PREFIX.size + head
    room = np.empty(size + _ALIGNED, np.uint8)
    at = -(room.ctypes.data + start) % _ALIGNED
    return room[at : at + size].data


def unpack(
    data: bytes | bytearray | memoryview, key: Key | None = None, *, take_over: bool = False
) -> tuple[dict[str, Any], npt.NDArray[Any] | None]:
    """The header and the array (a copy, writable) of one object.

    Args:
        data: the bytes that `pack` made.
        key: checked against the header's key id, and used to verify the tag if there is one. Without a key the tag
            is not verified; the checksum always is.
        take_over: the array may take over the memory of `data`, if that is writable and `aligned_memory`.

    Raises:
        TruncatedError: the bytes end too early or too late.
        ChecksumError: they were altered.
        VersionError: a newer version wrote them.
        KeyMismatchError: they were made with another key.
        FormatError: they are not a sketch, or break its rules.
    """
    fields, stored = _verify_header(data, key)
    _require_size(fields, stored)
    return fields, _array(fields["kind"], *stored, take_over=take_over)


def unpack_header(data: bytes | bytearray | memoryview) -> dict[str, Any]:
    """The header of one object; its array is verified by the checksum, but not decoded.

    Args:
        data: the bytes that `pack` made.

    Raises:
        TruncatedError, ChecksumError, VersionError, FormatError: as `unpack`.
    """
    return _verify_header(data, None)[0]


_Stored = tuple[memoryview, int, int, int, int, int]
"""The bytes of an array, and the codec, type and shape that the prefix gives for it: arguments of `_array`."""


def _verify_header(data: bytes | bytearray | memoryview, key: Key | None) -> tuple[dict[str, Any], _Stored]:
    """The header and the array as it is stored, of bytes whose length, checksum and header are right."""
    view = _flat_view(data)
    if len(view) < _PREFIX.size:
        if view != MAGIC[: len(view)] and view[:4] != MAGIC:
            raise FormatError("these bytes are not a sketch (they do not start with its mark)")
        raise TruncatedError(f"the bytes end after {len(view)}, inside the first {_PREFIX.size}")
    magic, version, codec, flags, code, ndim, zero, head, rows, columns, length = _PREFIX.unpack(view[: _PREFIX.size])
    if magic != MAGIC:
        raise FormatError("these bytes are not a sketch (they do not start with its mark)")
    if not 1 <= version <= FORMAT_VERSION:
        raise (VersionError if version > FORMAT_VERSION else FormatError)(
            f"the bytes are of format version {version}, this release reads versions 1 to {FORMAT_VERSION}"
        )
    heading.require_length(head)
    if flags & ~_TAGGED or zero or codec not in (RAW, HUFFMAN):
        raise FormatError("the prefix holds flags or a codec that this format version does not have")
    tag = _DIGEST if flags & _TAGGED else 0
    declared = _PREFIX.size + head + length + tag + _DIGEST
    if declared != len(view):
        raise TruncatedError(f"expected {declared} bytes, found {len(view)}")
    if not hmac.compare_digest(_checksum([view[:-_DIGEST]]), view[-_DIGEST:]):
        raise ChecksumError("the bytes were altered: their checksum does not fit")
    start = _PREFIX.size + head
    fields = heading.read(bytes(view[_PREFIX.size : start]))
    needed = heading.version(fields)
    if needed > version or (needed < version and fields["kind"] != "stack"):  # a stack has the version of its parts
        raise FormatError(f"the header's fields are those of format version {needed}, the bytes say {version}")
    _check_key(fields, key, view, tag)
    return fields, (view[start : start + length], codec, code, ndim, rows, columns)


def kind_of(data: bytes | bytearray | memoryview) -> str | None:
    """The kind that the bytes claim to have, without any verification; None if it cannot be read."""
    view = _flat_view(data)
    if len(view) < _PREFIX.size:
        return None
    magic, version, *_, head, _rows, _columns, _length = _PREFIX.unpack(view[: _PREFIX.size])
    if magic != MAGIC or version > FORMAT_VERSION or head > heading.MAX_HEADER_BYTES:
        return None
    kind: str = heading.read(bytes(view[_PREFIX.size : _PREFIX.size + head]))["kind"]
    return kind


def claimed_header(data: bytes) -> dict[str, Any]:
    """The header that bytes claim to have; nothing of it is verified.

    Raises:
        FormatError: it cannot be read.
    """
    view = _flat_view(data)
    try:
        head = _PREFIX.unpack(view[: _PREFIX.size])[-4]
        heading.require_length(head)
        written = view[_PREFIX.size : _PREFIX.size + head]
        heading.require_few_objects(written)
        header = msgpack.unpackb(written, raw=False)
    except FormatError:
        raise
    except Exception as error:  # msgpack's errors share no base class below this one
        raise FormatError("the header is not readable") from error
    if not isinstance(header, dict):
        raise FormatError("the header is not a map")
    return header


def noise_names(header: Mapping[str, Any]) -> set[bytes]:
    """Names of the noise that a header says is shown, and of the publication.

    Raises:
        FormatError: the header is not that of a release or a sealed state.
    """
    with contextlib.suppress(KeyError, TypeError):
        names = {header["seal_id"], *(layer["lineage"] for layer in header["layers"])}
        if all(isinstance(name, bytes) for name in names):
            return names
    raise FormatError("the header is not that of a release or a sealed state")


def _flat_view(data: object) -> memoryview:
    """A flat view of any bytes."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise FormatError(f"expected bytes, found {type(data).__name__}")
    view = memoryview(data)
    if not view.c_contiguous:
        raise FormatError("expected contiguous bytes")
    return view.cast("B")


def _read_description(body: npt.NDArray[Any]) -> tuple[int, int, tuple[int, int], npt.NDArray[Any]]:
    """Type code, number of dimensions, shape as two numbers, and the values, flat and little-endian."""
    wanted = body.dtype.newbyteorder("<")
    code = next((code for code, dtype in _DTYPES.items() if dtype == wanted), _NO_BODY)
    if code == _NO_BODY or body.ndim not in (1, 2):
        raise FormatError(
            "a body is an array of one or two dimensions of int16, int32, int64 or uint8, "
            f"found {body.ndim} of {body.dtype}"
        )
    shape = (1, len(body)) if body.ndim == 1 else (body.shape[0], body.shape[1])
    return code, body.ndim, shape, np.ascontiguousarray(body, wanted).reshape(-1)


def _check_codec(kind: str, codec: int, code: int) -> None:
    """Refuse codecs whose size depends on the counters of an open state, and integer codecs for bytes."""
    if codec not in (RAW, HUFFMAN) or (codec != RAW and (kind == "sketch" or code == _BYTES)):
        raise FormatError(
            f"codec must be 0 (raw) or 1 (Huffman), for an open sketch and for bytes 0, found {codec!r:.20}"
        )


def _check_key(fields: dict[str, Any], key: Key | None, view: memoryview, tag: int) -> None:
    """The key id, and the tag if there is one."""
    named = fields.get("key_id")
    if (tag and named is None) or (fields["kind"] == "sketch" and named is not None and not tag):
        raise FormatError("the bytes must have both a key id and a tag, they have one of them")
    if key is None or named is None:
        return
    if named != key.id:
        raise KeyMismatchError(f"made with the key {named.hex()}, the key given is {key.id.hex()}")
    end = len(view) - _DIGEST - tag
    if tag and not hmac.compare_digest(_tag(key, [view[:end]]), view[end : end + tag]):
        raise ChecksumError("the bytes were altered by someone without the key: their tag does not fit")


def _require_size(fields: Mapping[str, Any], stored: _Stored) -> None:
    """Refuse a body of another size than its header declares, before it is decoded: that may take far more memory."""
    _, _, code, _, rows, columns = stored
    n, kind = rows * columns, fields["kind"]
    declared = sum(fields.get("lengths", ())) if kind == "stack" else fields.get("slots")
    if code == _NO_BODY:
        return
    if kind == "release":
        if n > _MAX_BINS:
            raise FormatError(f"a histogram has at most {_MAX_BINS:,} bins, the bytes say {n:,}")
    elif declared is not None and n != declared:
        raise FormatError(f"the header declares a body of {declared:,} numbers, the bytes say {n:,}")


def _array(
    kind: str, body: memoryview, codec: int, code: int, ndim: int, rows: int, columns: int, *, take_over: bool = False
) -> npt.NDArray[Any] | None:
    """The body as an array."""
    if code == _NO_BODY:
        if ndim or rows or columns or codec or len(body):
            raise FormatError("an object without a type has no body")
        return None
    if code not in _DTYPES or ndim not in (1, 2) or (ndim == 1 and rows != 1) or max(rows, columns) > _MAX_NUMBER:
        raise FormatError("the body has a type or a shape that this format version does not have")
    _check_codec(kind, codec, code)
    dtype, n = _DTYPES[code], math.prod((rows, columns))
    if codec == RAW:
        if n * dtype.itemsize != len(body):
            raise FormatError(f"a raw body of {n} counters has {n * dtype.itemsize} bytes, found {len(body)}")
        values = np.frombuffer(body, dtype)
        native = dtype.newbyteorder("=")
        if not take_over or body.readonly or values.dtype != native or not values.flags.aligned:
            values = values.astype(native)
    else:
        values = coding.decode(body, n, dtype.newbyteorder("="))
    return values if ndim == 1 else values.reshape(rows, columns)


def _checksum(pieces: list[bytes | memoryview]) -> bytes:
    """Unkeyed BLAKE2b of everything before it."""
    return _digest_of(_new_checksum(), pieces)


def _new_checksum() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=_DIGEST, person=b"sketchstream-sum")


def _tag(key: Key, pieces: list[bytes | memoryview]) -> bytes:
    """BLAKE2b of everything before it under a key derived from the hash key."""
    return _digest_of(_new_tag(key), pieces)


def _new_tag(key: Key) -> hashlib.blake2b:
    return hashlib.blake2b(key=key.tag_key(), digest_size=_DIGEST, person=b"sketchstream-tag")


def _digest_of(digest: hashlib.blake2b, pieces: list[bytes | memoryview]) -> bytes:
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


def version_of(data: bytes) -> int:
    """Format version of bytes written by `pack`."""
    return int(_PREFIX.unpack_from(data)[1])
