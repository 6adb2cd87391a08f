"""Decodes the items, weights and event times in the payloads of records. Each event is validated separately.

In: `Records`. Out: `Events`. Touches: nothing. Errors never contain a payload.

Formats: "key" and "value" take the raw bytes; "json", "avro" and "protobuf" take dotted fields of the value; "packed"
takes a msgpack map {"i": bin of little-endian uint64, "w": bin of int32, "t": int milliseconds}, w and t optional, one
update per item.

What an item may be, by `item_type`:
    text    strings and UTF-8 bytes as they are, integers as their decimal digits: 5 and "5" are one item
    int     64-bit integers; decimal text of an integer (as JSON writes them) is that integer; 2^63 to 2^64 - 1 are the
            int64 of the same 64 bits, so 2^64 - 1 and -1 are one item
    bytes   strings and bytes as they are; integers are invalid
Packed items are unsigned: as text, their digits are those of a uint64. Floats, booleans, arrays and objects are invalid
items. A null item, a missing field, a null key or value is a no-op, not an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sketchstream.errors import ConfigError
from sketchstream.items.events import Events
from sketchstream.stream import formats
from sketchstream.stream.formats import Fields, Reader
from sketchstream.stream.interfaces import MAX_COLUMNS
from sketchstream_connectors.decode.records import Records


@dataclass(frozen=True)
class Decoder(Fields):
    """How payloads are read; the `[input]` section of a configuration.

    Args:
        payload: the `[payload]` table of formats that take keys of it.
        folder: folder of relative paths in `payload`.

    Raises:
        ConfigError: a combination that means nothing.
    """

    payload: Any = None
    folder: Path = field(default_factory=Path)
    reader: Reader = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        record_format = formats.by_name(self.format)
        if self.item_type not in {"text", "int", "bytes"}:
            raise ConfigError(f"item_type must be text, int or bytes, found {self.item_type!r:.40}")
        if len(self.columns) > MAX_COLUMNS:
            raise ConfigError(
                f"at most {MAX_COLUMNS} fields besides item, weight and time can be read, found {len(self.columns)}"
            )
        mistakes = list(record_format.check(self))
        if mistakes:
            raise ConfigError(*mistakes)
        object.__setattr__(self, "reader", record_format.reader(self, self.payload, self.folder.joinpath))

    def decode(self, records: Records) -> Events:
        """Decode items, weights and times of all records; invalid content raises no error."""
        return self.reader.decode(records)
