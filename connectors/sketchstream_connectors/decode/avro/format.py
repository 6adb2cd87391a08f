"""The format "avro": dotted fields of Avro values whose schemas a registry or a file has.

In: `Records`, schemas. Out: `Events`. Touches: the registry and its cache. Errors never contain a payload.

A value is valid if its whole structure reads by its writer's schema and ends exactly at its end; the rules are in
docs/formats.md. Fields are found by name: aliases and defaults of a reader's schema play no part, so a field that a
writer's schema lacks is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import RFC_4122, UUID

from sketchstream.errors import ConfigError, FormatError, SchemaUnavailableError
from sketchstream.stream.formats import Fields
from sketchstream_connectors.decode.avro import tree
from sketchstream_connectors.decode.avro.finder import AvroFinder, Lookup
from sketchstream_connectors.decode.avro.schema import Type, leaf_names, parse
from sketchstream_connectors.decode.named_fields import NamedFormat, nest_fields, wanted_fields
from sketchstream_connectors.decode.schema_reader import SchemaReader
from sketchstream_connectors.decode.slots import binary_times, slots_of
from sketchstream_connectors.decode.varints import write_zigzag
from sketchstream_connectors.schema_registry import sources


class AvroReader(SchemaReader[Type]):
    """Reads Avro values.

    Args:
        fields: what is wanted.
        framing: framing of the values.
        lookup: the schema of an id.
    """

    def __init__(self, fields: Fields, framing: str, lookup: Lookup) -> None:
        slots, time = slots_of(fields)
        finder = AvroFinder(slots, framing, lookup)
        super().__init__(fields, finder, tree.document, lambda found: binary_times(found.column(time)))


class AvroFormat(NamedFormat):
    """See `PayloadFormat`."""

    payload_keys = sources.KEYS

    def check_payload(self, payload: Any) -> Iterator[str]:
        """Mistakes in `[payload]`."""
        yield from sources.mistakes(payload, "avro", "event.avsc")

    def reader(self, fields: Fields, payload: Any, resolve: Callable[[str], Any]) -> AvroReader:
        """A reader.

        Raises:
            ConfigError: `[payload]` is missing, or names a file that holds no Avro schema.
        """
        if payload is None:
            raise ConfigError(
                "format = 'avro' needs [payload]: registry = \"http://...\", or schema_file and framing = 'none'"
            )
        if payload.framing == "glue":
            return AvroReader(fields, "glue", _in_folder(fields, resolve(str(payload.schema_file))))
        if payload.schema_file is not None:
            path = resolve(str(payload.schema_file))
            schema = _from_file(path)
            sources.require_fields(wanted_fields(fields), leaf_names(schema, sources.DEPTH), path)
            return AvroReader(fields, payload.framing, lambda _: schema)
        registry = sources.open_registry(payload, resolve)

        def lookup(number: int) -> Type | None:
            entry = registry.schema(number)
            if entry is None:
                return None
            try:
                references = [text for _, text in entry.references]
                schema = parse(entry.text, references) if entry.schema_type == "AVRO" else None
            except FormatError:
                schema = None
            if schema is None:
                sources.log_unreadable(number, "avro")
            else:
                sources.log_lacking(number, wanted_fields(fields), leaf_names(schema, sources.DEPTH))
            return schema

        return AvroReader(fields, payload.framing, lookup)

    def example(self, fields: Fields, now_ms: int) -> tuple[AvroReader, bytes]:
        """A reader of a schema that has all fields, and a value."""
        schema, value = _example(nest_fields(fields, now_ms))
        return AvroReader(fields, "none", lambda _: schema), value


FORMATS = {"avro": AvroFormat()}


def _in_folder(fields: Fields, folder: Path) -> Lookup:
    """Schemas by the ids of AWS Glue, from files UUID.avsc, which may be added while records wait for them.

    Raises:
        ConfigError: there is none, or none of them has a field that is wanted.
    """
    files = sorted(folder.glob("*.avsc"))
    if not files:
        raise ConfigError(
            f"payload.schema_file {folder} must be a folder with a file UUID.avsc for each version of a schema, as "
            "`aws glue get-schema-version` prints it; it has none"
        )
    names = {name for path in files if path.stat().st_size for name in leaf_names(_from_file(path), sources.DEPTH)}
    sources.require_fields(wanted_fields(fields), sorted(names), folder)

    def lookup(number: int) -> Type | None:
        version = UUID(int=number)
        if version.variant != RFC_4122:  # another record that begins as these do
            return None
        path = folder / f"{version}.avsc"
        if not path.is_file():
            raise SchemaUnavailableError(
                f"payload.schema_file {folder} has no file for a version of a schema: bring those that "
                "`aws glue list-schema-versions` names. Records wait until it has; an empty file makes them malformed"
            )
        try:
            return _from_file(path)
        except ConfigError:
            sources.log_unreadable(number, "avro")
            return None

    return lookup


def _from_file(path: Any) -> Type:
    """The schema of a file."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, FormatError) as error:
        raise ConfigError(
            f"payload.schema_file {path} holds no Avro schema ({type(error).__name__}): a file of JSON is expected"
        ) from None


def _example(value: object) -> tuple[Type, bytes]:
    """A schema of a plain document, and the document in Avro's encoding."""
    if isinstance(value, dict):
        parts = {name: _example(member) for name, member in value.items()}
        fields = [(name, member) for name, (member, _) in parts.items()]
        return Type("record", fields=fields), b"".join(body for _, body in parts.values())
    if isinstance(value, int):
        return Type("long"), write_zigzag(value)
    content = str(value).encode()
    return Type("string"), write_zigzag(len(content)) + content
