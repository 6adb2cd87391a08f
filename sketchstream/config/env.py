"""Environment variables that override a configuration file.

In: plain data of a TOML file, variables. Out: the data changed in place; mistakes, one line each. Touches: nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from sketchstream.config.bounded_toml import read_toml
from sketchstream.errors import ConfigError

PREFIX = "SKETCHSTREAM__"


def override(data: dict[str, Any], environ: Mapping[str, str]) -> list[str]:
    """Override the file's data by SKETCHSTREAM__TABLE__KEY variables; returns mistakes."""
    mistakes: list[str] = []
    for variable in sorted(environ):
        if variable.startswith(PREFIX):
            try:
                _lay(data, variable, environ[variable])
            except ConfigError as error:
                mistakes += error.mistakes
    return mistakes


def _lay(data: dict[str, Any], variable: str, text: str) -> None:
    """Override the data by one variable."""
    parts = variable[len(PREFIX) :].split("__")
    if len(parts) < 2 or not all(parts):
        raise ConfigError(f"{variable}: expected SKETCHSTREAM__TABLE__KEY, for example SKETCHSTREAM__KAFKA__GROUP_ID")
    value = _value(text, variable)
    if parts[0] == "KAFKA":
        table = data.setdefault("kafka", {})
        if isinstance(table, dict):
            flat = dict(flatten(table))
            flat[".".join(parts[1:]).lower().replace("_", ".")] = value
            data["kafka"] = flat
    elif parts[0] == "SKETCH":
        _override_sketch(data, parts[1:], value, variable)
    else:
        _put(data, [part.lower() for part in parts], value, variable)


def _override_sketch(data: dict[str, Any], parts: list[str], value: object, variable: str) -> None:
    """Override one key of one [[sketch]], given by its name or its index."""
    blocks = data.get("sketch")
    if not isinstance(blocks, list) or len(parts) < 2:
        raise ConfigError(f"{variable}: expected SKETCHSTREAM__SKETCH__NAME__KEY, with NAME one of the file's sketches")
    named = [
        block
        for index, block in enumerate(blocks)
        if isinstance(block, dict)
        and (re.sub(r"[.-]", "_", str(block.get("name", ""))).upper() == parts[0].upper() or str(index) == parts[0])
    ]
    if len(named) != 1:
        raise ConfigError(f"{variable}: no [[sketch]] is named {parts[0].lower()!r:.60}")
    _put(named[0], [part.lower() for part in parts[1:]], value, variable)


def _put(table: dict[str, Any], parts: list[str], value: object, variable: str) -> None:
    for part in parts[:-1]:
        inner = table.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{variable}: {part} is not a table")
        table = inner
    table[parts[-1]] = value


def _value(text: str, variable: str) -> object:
    """Parse a variable's value: tables, lists, true and false are read as TOML, all else is text."""
    if text[:1] in ("{", "[") or text in ("true", "false"):
        try:
            return read_toml(f"x = {text}")["x"]
        except ValueError:
            raise ConfigError(f"{variable}: not a valid TOML value") from None
    return text


def flatten(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten Kafka's names, written "group.id" or group.id."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value
