"""Environment variables laid over a configuration file, and its first mistake explained in one line.

In: plain data of a TOML file, variables, a validation error. Out: the data changed in place; messages. Touches:
nothing.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sketchstream.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

PREFIX = "SKETCHSTREAM__"


def override(data: dict[str, Any], environ: Mapping[str, str]) -> None:
    """Lay SKETCHSTREAM__TABLE__KEY variables over the file's data."""
    for variable in sorted(environ):
        if not variable.startswith(PREFIX):
            continue
        parts = variable[len(PREFIX) :].split("__")
        if len(parts) < 2 or not all(parts):
            msg = f"{variable}: expected SKETCHSTREAM__TABLE__KEY, for example SKETCHSTREAM__KAFKA__GROUP_ID"
            raise ConfigError(msg)
        value = _value(environ[variable], variable)
        if parts[0] == "KAFKA":
            table = data.setdefault("kafka", {})
            if isinstance(table, dict):
                flat = dict(flatten(table))
                flat[".".join(parts[1:]).lower().replace("_", ".")] = value
                data["kafka"] = flat
            continue
        if parts[0] == "SKETCH":
            _override_sketch(data, parts[1:], value, variable)
            continue
        _put(data, [part.lower() for part in parts], value, variable)


def _override_sketch(data: dict[str, Any], parts: list[str], value: object, variable: str) -> None:
    """One key of one [[sketch]], named by its name or its index."""
    blocks = data.get("sketch")
    if not isinstance(blocks, list) or len(parts) < 2:
        msg = f"{variable}: expected SKETCHSTREAM__SKETCH__NAME__KEY, with NAME one of the file's sketches"
        raise ConfigError(msg)
    named = [
        block
        for index, block in enumerate(blocks)
        if isinstance(block, dict)
        and (re.sub(r"[.-]", "_", str(block.get("name", ""))).upper() == parts[0].upper() or str(index) == parts[0])
    ]
    if len(named) != 1:
        msg = f"{variable}: no [[sketch]] is named {parts[0].lower()!r:.60}"
        raise ConfigError(msg)
    _put(named[0], [part.lower() for part in parts[1:]], value, variable)


def _put(table: dict[str, Any], parts: list[str], value: object, variable: str) -> None:
    for part in parts[:-1]:
        inner = table.setdefault(part, {})
        if not isinstance(inner, dict):
            msg = f"{variable}: {part} is not a table"
            raise ConfigError(msg)
        table = inner
    table[parts[-1]] = value


def _value(text: str, variable: str) -> object:
    """A variable's value: tables and lists are read as TOML, true and false too, all else is text."""
    if text[:1] in ("{", "[") or text in ("true", "false"):
        try:
            return tomllib.loads(f"x = {text}")["x"]
        except tomllib.TOMLDecodeError:
            msg = f"{variable}: not a valid TOML value"
            raise ConfigError(msg) from None
    return text


def flatten(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Kafka's names, whether they were written "group.id" or group.id."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def explain(error: ValidationError, data: Mapping[str, Any]) -> str:
    """The first mistake in one line; unknown keys come first, because they often explain the others."""
    found = sorted(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    one = found[0]
    path = _path(one["loc"], data)
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    if one["type"] == "extra_forbidden":
        known = _fields(one["loc"][:-1])
        near = difflib.get_close_matches(str(one["loc"][-1]), known, n=1, cutoff=0.6)
        parent = path.rpartition(".")[0]
        hint = f"; did you mean {parent + '.' if parent else ''}{near[0]}?" if near else ""
        return f"unknown key {path}{hint}{more}"
    if one["type"] == "missing":
        return f"{path} is missing{more}"
    if one["type"] == "literal_error":
        return f"{path} must be {one['ctx']['expected']}, found {one['input']!r:.40}{more}"
    message = str(one["msg"]).removeprefix("Value error, ").removeprefix("a duration ").removeprefix("a size ")
    if one["type"] == "value_error":
        return f"{path} {message}{more}"
    shown = f", found {one['input']!r:.40}" if isinstance(one["input"], (str, int, float, bool)) else ""
    return f"{path}: {message[:1].lower()}{message[1:]}{shown}{more}"


def _path(loc: tuple[int | str, ...], data: Mapping[str, Any]) -> str:
    """`input.topic`, or `sketch "hourly".epsilon` for a block."""
    parts = [str(part) for part in loc]
    if len(loc) > 1 and loc[0] == "sketch" and isinstance(loc[1], int):
        blocks = data.get("sketch")
        block = blocks[loc[1]] if isinstance(blocks, list) and loc[1] < len(blocks) else {}
        name = block.get("name") if isinstance(block, dict) else None
        parts[:2] = [f'sketch "{name}"' if isinstance(name, str) else f"sketch {loc[1] + 1}"]
    return ".".join(parts)


def _fields(loc: tuple[int | str, ...]) -> list[str]:
    """Names that are known at this place of the file."""
    from sketchstream.stream import schema

    model: type[BaseModel] = schema.FileTable
    for part in loc:
        if isinstance(part, str) and part in schema.TABLES:
            model = schema.TABLES[part]
    return list(model.model_fields)
