"""Reads FetchResponse, versions 4 to 12, without copying: the records of each partition are views of the frame.

In: one response frame. Out: the client's own response object. Touches: nothing.
Source: Apache Kafka protocol guide, "Fetch API (Key: 1)"; response headers v0 (before version 12) and v1; tagged fields
by KIP-482, diverging epochs by KIP-595, leaders by KIP-951. The client's generated decoder copies the records twice.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeVar

from sketchstream_connectors.decode.varints import read_varint

FETCH = 1
"""The API key of a fetch request."""
VERSIONS = range(4, 13)
"""Versions of the request whose responses are read here: 4 is the first with batches of format 2, and 13 names topics
by their ids."""
FLEXIBLE = 12
"""The first version whose lengths are of variable size, and which has tagged fields."""

_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_PARTITION = struct.Struct(">ihqq")
_ABORTED = struct.Struct(">qq")
_TAGS = {
    0: ("diverging_epoch", "EpochEndOffset", ("epoch", "end_offset"), struct.Struct(">iq")),
    1: ("current_leader", "LeaderIdAndEpoch", ("leader_id", "leader_epoch"), struct.Struct(">ii")),
    2: ("snapshot_id", "SnapshotId", ("end_offset", "epoch"), struct.Struct(">qi")),
}
"""Tagged fields of a partition: name, the client's class, its fields, how they are packed."""

_Entry = TypeVar("_Entry")


def read_response(frame: memoryview, version: int) -> tuple[int, Any]:
    """The correlation id and the response of one frame.

    Args:
        frame: the whole frame without its length. What follows the response is ignored, as by the client.
        version: version of the request, one of `VERSIONS`.

    Raises:
        ValueError: the frame is cut off, or a length in it cannot be.
        struct.error: the frame is cut off.
    """
    return _FrameReader(frame, version).response()


class _FrameReader:
    """One pass over a frame."""

    def __init__(self, frame: memoryview, version: int) -> None:
        self.frame = frame
        self.version = version
        self.flexible = version >= FLEXIBLE
        self.at = 0

    def response(self) -> tuple[int, Any]:
        """Read the whole response."""
        from kafka.protocol.consumer import FetchResponse

        correlation = self._number(_INT32)
        if self.flexible:
            self._skip_tags()
        response = _make_object(FetchResponse, self.version)
        response.throttle_time_ms = self._number(_INT32)
        if self.version >= 7:
            response.error_code = self._number(_INT16)
            response.session_id = self._number(_INT32)
        response.responses = self._array(lambda: self._topic(FetchResponse.FetchableTopicResponse))
        if self.flexible:
            self._skip_tags()
        return correlation, response

    def _topic(self, kind: Any) -> Any:
        topic = _make_object(kind, self.version)
        name = self._bytes(_INT16)
        if name is None:
            raise ValueError("a topic without a name")
        topic.topic = str(name, "utf-8")
        topic.partitions = self._array(lambda: self._partition(kind.PartitionData))
        if self.flexible:
            self._skip_tags()
        return topic

    def _partition(self, kind: Any) -> Any:
        part = _make_object(kind, self.version)
        part.partition_index, part.error_code, part.high_watermark, part.last_stable_offset = self._numbers(_PARTITION)
        if self.version >= 5:
            part.log_start_offset = self._number(_INT64)
        part.aborted_transactions = self._array(lambda: self._aborted(kind.AbortedTransaction))
        if self.version >= 11:
            part.preferred_read_replica = self._number(_INT32)
        part.records = self._bytes(_INT32)
        if self.flexible:
            part.diverging_epoch = part.current_leader = part.snapshot_id = None
            self._tags(part)
        return part

    def _aborted(self, kind: Any) -> Any:
        transaction = _make_object(kind, self.version)
        transaction.producer_id, transaction.first_offset = self._numbers(_ABORTED)
        if self.flexible:
            self._skip_tags()
        return transaction

    def _tags(self, response: Any) -> None:
        """Tagged fields of a partition; unknown ones are passed over."""
        for _ in range(self._varint()):
            tag, size = self._varint(), self._varint()
            end = self.at + size
            if size > len(self.frame) - self.at:
                raise ValueError("a tagged field that ends behind its frame")
            if tag in _TAGS:
                name, kind, fields, packed = _TAGS[tag]
                part = _make_object(getattr(response, kind), self.version)
                for field, value in zip(fields, self._numbers(packed), strict=True):
                    setattr(part, field, value)
                setattr(response, name, part)
            self.at = end

    def _skip_tags(self) -> None:
        for _ in range(self._varint()):
            self._varint()
            size = self._varint()
            if size > len(self.frame) - self.at:
                raise ValueError("a tagged field that ends behind its frame")
            self.at += size

    def _number(self, kind: struct.Struct) -> int:
        (number,) = self._numbers(kind)
        return int(number)

    def _numbers(self, kind: struct.Struct) -> tuple[Any, ...]:
        numbers = kind.unpack_from(self.frame, self.at)
        self.at += kind.size
        return numbers

    def _varint(self) -> int:
        """An unsigned varint of up to five bytes."""
        try:
            number, self.at = read_varint(self.frame, self.at, 5)
        except IndexError:
            raise ValueError("a number that is cut off, or has more than five bytes") from None
        return number

    def _array(self, entry: Callable[[], _Entry]) -> list[_Entry] | None:
        """Read the declared number of entries; each takes bytes, so that a hostile number ends with the frame."""
        count = self._varint() - 1 if self.flexible else self._number(_INT32)
        return None if count < 0 else [entry() for _ in range(count)]

    def _bytes(self, length: struct.Struct) -> memoryview | None:
        """A view; `length` is how long lengths are where they are not varints."""
        size = self._varint() - 1 if self.flexible else self._number(length)
        if size < 0:
            return None
        if size > len(self.frame) - self.at:
            raise ValueError("bytes that end behind their frame")
        self.at += size
        return self.frame[self.at - size : self.at]


def _make_object(kind: Any, version: int) -> Any:
    """One of the client's objects, filled by its reader."""
    instance = kind.__new__(kind)
    instance._version = version
    instance.tags = instance.unknown_tags = None
    if hasattr(kind, "_header"):
        instance._header = instance._min_version = instance._max_version = None
    return instance
