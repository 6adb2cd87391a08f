"""Records of given payloads, as a consumer would deliver them.

In: values, a key, timestamps. Out: `Records`. Touches: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from sketchstream_connectors.decode.records import Records, from_client_records


@dataclass(frozen=True)
class PlainRecord:
    """A record of the stock client."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def records_of(values: list[bytes | None], key: bytes | None = b"k", times: list[int] | None = None) -> Records:
    """Records with these values."""
    stamps = times or [1000] * len(values)
    return from_client_records(
        [PlainRecord(i, stamp, key, value) for i, (value, stamp) in enumerate(zip(values, stamps, strict=True))],
        next_position=len(values),
    )
