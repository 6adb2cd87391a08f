"""Layouts of input files, and the errors of files that cannot be read.

In: names of fields and columns. Out: layouts, errors. Touches: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from sketchstream.errors import ConfigError, DataLossError
from sketchstream.items.columns import ItemType
from sketchstream.stream.formats import RECORD_TIME, TimeUnit
from sketchstream.stream.interfaces import MAX_COLUMNS
from sketchstream_connectors.decode.decoder import Decoder

FileFormat = Literal["jsonl", "lines", "csv", "parquet", "avro", "msgpack"]
NAMED_FIELD_FORMATS: Final = ("jsonl", "csv", "parquet", "avro")
"""Formats whose records have named fields."""


@dataclass(frozen=True)
class Layout:
    """How a file is read.

    Args:
        format: format of the file.
        item: field (jsonl, avro and parquet, dotted) or column (csv) of the item.
        item_type: "text", "int" or "bytes".
        weight: field or column of an integer weight.
        time: field or column of the event time; None: not read.
        columns: fields or columns that are wanted as they are (named formats).
        decimals: a weight may be any number (named formats); `Events.weight_column` has it.
        time_unit: what a number in the field of the time counts since 1970: "s", "ms", "us" or "ns".

    Raises:
        ConfigError: fields that the format does not have, or one that it needs is missing.
    """

    format: FileFormat
    item: str | None = None
    item_type: ItemType = "text"
    weight: str | None = None
    time: str | None = None
    columns: tuple[str, ...] = ()
    decimals: bool = False
    time_unit: TimeUnit = "ms"

    def __post_init__(self) -> None:
        if self.format not in get_args(FileFormat):
            raise ConfigError(f"format must be lines, jsonl, csv, parquet, avro or msgpack, found {self.format!r:.40}")
        named = self.format in NAMED_FIELD_FORMATS
        if named and not (self.item or self.columns or self.time):
            raise ConfigError(f"format {self.format} needs the name of the item's field, for example --item user_id")
        if not named and (self.item or self.weight):
            raise ConfigError(f"format {self.format} has no named fields: leave item and weight out")
        if not named and self.columns:
            raise ConfigError(
                f"format {self.format} has no named fields, which these sketches need: use jsonl, csv, parquet or avro"
            )
        if len(self.columns) > MAX_COLUMNS:
            raise ConfigError(
                f"at most {MAX_COLUMNS} fields besides item, weight and time can be read, found {len(self.columns)}"
            )
        if self.format == "lines" and self.time:
            raise ConfigError("a file of lines has no event times")

    @property
    def documents(self) -> bool:
        """Whether `Chunk.raw` has records as JSON documents."""
        return self.format in {"jsonl", "avro"}

    @property
    def decoder(self) -> Decoder:
        """Decoder of the records' values."""
        if self.format == "jsonl":
            named = self.item, self.item_type, self.weight, self.time or RECORD_TIME, self.columns, self.decimals
            return Decoder("json", *named, self.time_unit)
        if self.format == "msgpack":
            return Decoder("packed", None, self.item_type, None, "t" if self.time else RECORD_TIME)
        return Decoder("value", None, self.item_type)


def require_length(path: Path, length: int, position: int, unit: str) -> None:
    """Refuse a file that is shorter than its counted part."""
    if position > length:
        raise DataLossError(
            f"{path} has {length} {unit}, but the state already counted {position}: it was cut or replaced; put "
            "the former file back, or start a new revision with `sketchstream reset`"
        )
