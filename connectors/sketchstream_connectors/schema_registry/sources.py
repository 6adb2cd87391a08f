"""The keys of `[payload]` by which a format finds its schemas.

In: the table. Out: a registry, mistakes. Touches: nothing yet; the registry is asked when a schema is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from sketchstream.errors import ConfigError, did_you_mean
from sketchstream.log_events import EventLog
from sketchstream_connectors.schema_registry.client import RegistryAccess, SchemaRegistry, urls_of

event_log = EventLog("sketchstream.registry")

OWN_INTERFACE: Final = re.compile(r"/apis/registry/v\d+/?$")
"""The end of the URL of Apicurio's own interface."""
MAX_NAMED_FIELDS: Final = 20
"""Most fields of a schema that a message names."""
DEPTH: Final = 8
"""Most levels of records whose fields are known by name."""
KEYS: Final = frozenset(
    {"framing", "ids", "registry", "schema_file", "username", "password", "token", "ca", "certificate", "key", "cache"}
)


def mistakes(payload: Any, record_format: str, example: str) -> Iterator[str]:
    """Contradictions in a `[payload]` table.

    Args:
        payload: the table.
        record_format: name of the format.
        example: a name for a schema's file.
    """
    urls = urls_of(payload.registry)
    if bool(urls) == (payload.schema_file is not None):
        yield (
            f'format = {record_format!r} takes schemas from payload.registry = "http://..." or from '
            f'payload.schema_file = "{example}": exactly one of them'
        )
    if payload.schema_file is not None and payload.framing not in ("none", "glue"):
        yield "payload.schema_file is one schema for all records: it needs payload.framing = 'none'"
    if urls and payload.framing == "glue":
        yield (
            "payload.framing = 'glue' names schemas of AWS Glue, whose registry has another interface than "
            "payload.registry: give schema_file, a folder with a file UUID.avsc for each version"
        )
    yield from _mistaken_ids(payload, urls, record_format)
    if urls and payload.framing == "none":
        yield "payload.framing = 'none' names no schema id, so payload.registry cannot be asked: give schema_file"
    if payload.token is not None and payload.username is not None:
        yield "payload.token and payload.username are two ways to log in: give one"
    if payload.password is not None and payload.username is None:
        yield "payload.password needs payload.username"
    if payload.key is not None and payload.certificate is None:
        yield "payload.key needs payload.certificate"


def _mistaken_ids(payload: Any, urls: Sequence[str], record_format: str) -> Iterator[str]:
    """Contradictions between ids, frames and interfaces: as an id of the other kind, a number names another schema."""
    if payload.framing != "apicurio8":
        if payload.ids is not None:
            yield "payload.ids belongs to payload.framing = 'apicurio8': in other frames there is one kind of id"
        return
    if payload.ids is None:
        yield (
            "payload.framing = 'apicurio8' needs payload.ids: 'global', which Apicurio's serializers before version 3 "
            "write unless configured otherwise, or 'content'"
        )
    own_interfaces = [OWN_INTERFACE.search(url) is not None for url in urls]
    if payload.ids == "global" and not all(own_interfaces):
        yield (
            "payload.ids = 'global' are known by Apicurio's own interface only: payload.registry ends with "
            "/apis/registry/v2 or /apis/registry/v3"
        )
    if payload.ids == "content" and any(own_interfaces):
        yield (
            "payload.ids = 'content' are asked for by Confluent's interface: payload.registry ends with "
            "/apis/ccompat/v7"
        )
    if payload.ids == "global" and record_format == "protobuf":
        yield (
            "payload.ids = 'global' gives the text of Protobuf's schemas, where descriptors are needed: let producers "
            "write content ids"
        )


def require_fields(names: Sequence[str], existing: Sequence[str], path: Path) -> None:
    """Refuse fields that the one schema of all values does not have.

    Args:
        names: dotted fields.
        existing: fields of the schema.
        path: path of the schema's file.

    Raises:
        ConfigError: one line for each field that is missing.
    """
    mistakes = []
    for name in names:
        if name not in existing:
            available = (
                f"fields there are: {', '.join(sorted(existing)[:MAX_NAMED_FIELDS])}{did_you_mean(name, existing)}"
            )
            mistakes.append(f"the schema in {path} has no field {name!r:.60}; {available}")
    if mistakes:
        raise ConfigError(*mistakes)


def open_registry(payload: Any, resolve: Callable[[str], Any], schema_format: str = "") -> SchemaRegistry:
    """The registry of a `[payload]` table without mistakes.

    Args:
        payload: the table.
        resolve: turns a path of the configuration into one of this machine.
        schema_format: format of schemas to ask for, if not their text.

    Raises:
        ConfigError: see `SchemaRegistry`.
    """

    def path(file: Path | None) -> Path | None:
        return None if file is None else Path(resolve(str(file.expanduser())))

    login = payload.username, payload.password, payload.token
    certificates = path(payload.ca), path(payload.certificate), path(payload.key)
    access = RegistryAccess(urls_of(payload.registry), *login, *certificates)
    return SchemaRegistry(access, path(payload.cache), schema_format=schema_format, global_ids=payload.ids == "global")


def log_unreadable(number: int, record_format: str) -> None:
    """Say that a schema of the registry cannot be used; its records are poison."""
    event_log.warning("schema_unreadable", id=number, format=record_format)


def log_lacking(number: int, names: Sequence[str], existing: Sequence[str]) -> None:
    """Say which fields a schema of the registry lacks: its records are no-ops if one is the item or the time."""
    lacking = [name for name in names if name not in existing]
    if lacking:
        event_log.warning("schema_lacks_fields", id=number, fields=",".join(lacking))
