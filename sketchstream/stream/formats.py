"""The payload formats, a module or a package each, and the registry by which the rest of the program finds them.

In: the name of a format. Out: its `PayloadFormat`. Touches: nothing. A format's package is imported when it is first
used: the core names it here, by its module, and imports none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from sketchstream.errors import ConfigError
from sketchstream.items.events import Events

if TYPE_CHECKING:
    from sketchstream.items.columns import ItemType

_HOMES = {
    "json": "sketchstream_connectors.decode.json_values",
    "key": "sketchstream_connectors.decode.raw_values",
    "value": "sketchstream_connectors.decode.raw_values",
    "packed": "sketchstream_connectors.decode.packed_maps",
    "avro": "sketchstream_connectors.decode.avro.format",
    "protobuf": "sketchstream_connectors.decode.protobuf.format",
}
"""Module of each format; its `FORMATS` holds the format under this name."""

RECORD_TIME: Final = "record"
"""Stands in the configuration where the name of a time field would: the record's own timestamp is taken."""
TimeUnit = Literal["s", "ms", "us", "ns"]
UNITS_PER_S: Final[dict[TimeUnit, int]] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""How many of each unit of time a second has."""


@dataclass(frozen=True)
class Fields:
    """What is wanted of payloads.

    Args:
        format: one of `names`.
        item: dotted field of the item, in formats with named fields; None if events have only columns or times.
        item_type: "text", "int" or "bytes" (not for packed).
        weight: dotted field of an integer weight; missing or null is 1. packed: "w", read anyway.
        time: `RECORD_TIME`, or a dotted field with integer milliseconds or an RFC 3339
            string. packed: t where the map has it, else the record's timestamp; "t" makes it obligatory.
        columns: dotted fields that are wanted as they are.
        decimals: a weight may be any number; `Events.weight_column` has it.
        time_unit: what a number in the field of the time counts since 1970: "s", "ms", "us" or "ns"; texts and types
            of times say it.
    """

    format: str = "json"
    item: str | None = None
    item_type: ItemType = "text"
    weight: str | None = None
    time: str = RECORD_TIME
    columns: tuple[str, ...] = ()
    decimals: bool = False
    time_unit: TimeUnit = "ms"


class Reader(Protocol):
    """Reads the payloads of one stream."""

    def decode(self, records: Any) -> Events:
        """Decode `Records`; each event is judged by its own bytes, and no content raises an error.

        Raises:
            SchemaUnavailableError: a schema is needed that cannot be read now; nothing was decoded.
        """

    def shown(self, payload: bytes | None) -> bytes | None:
        """A payload as JSON text, for a sample that an operator asks for; None if it is unreadable or has no fields."""
        return None


class PayloadFormat(Protocol):
    """What the rest of the program knows of a format. One without a `[payload]` table inherits what is said of it here.

    Laws:
        1. The item, weight, time and columns of a record follow from its own bytes (and the schema that they name)
           alone.
        2. A payload that cannot be read is a no-op which is not valid and not null: never an exception.
        3. No error, log line or metric contains any part of a payload.
    """

    @property
    def named(self) -> bool:
        """Whether payloads have named fields, written as dotted paths."""

    @property
    def payload_keys(self) -> frozenset[str]:
        """Keys of the `[payload]` table that the format takes."""
        return frozenset()

    def check(self, fields: Fields) -> Iterator[str]:
        """Mistakes: fields or types that the format does not have."""

    def check_payload(self, payload: Any) -> Iterator[str]:
        """Mistakes in a `[payload]` table whose keys are all among `payload_keys`."""
        return iter(())

    def reader(self, fields: Fields, payload: Any, resolve: Callable[[str], Any]) -> Reader:
        """A reader.

        Args:
            fields: what is wanted, after `check`.
            payload: the `[payload]` table, after `check_payload`; None: all keys at their defaults.
            resolve: turns a path of the configuration into one of this machine.
        """

    def example(self, fields: Fields, now_ms: int) -> tuple[Reader, bytes]:
        """A reader and a payload with all fields, with which a worker compiles its loops before it starts."""


def names() -> tuple[str, ...]:
    """Names of all formats."""
    return tuple(_HOMES)


def spell_names(quote: str = "") -> str:
    """The names in a sentence.

    Examples:
        >>> spell_names().startswith("json, key, value")
        True
    """
    quoted = [f"{quote}{name}{quote}" for name in _HOMES]
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def by_name(name: object) -> PayloadFormat:
    """The format of that name.

    Raises:
        ConfigError: there is none.
    """
    if not isinstance(name, str) or name not in _HOMES:
        raise ConfigError(f"format must be {spell_names()}, found {name!r:.40}")
    payload_format: PayloadFormat = import_module(_HOMES[name]).FORMATS[name]
    return payload_format
