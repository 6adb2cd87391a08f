"""Checks JSON against a JSON Schema, of which it knows the part that this project uses.

In: values and a schema. Out: where they break it. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "null": lambda value: value is None,
}
KNOWN = {"$ref", "type", "enum", "required", "properties", "additionalProperties", "items", "description", "title"} | {
    "if",
    "then",
    "else",
}


def faults(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], place: str = "") -> list[str]:
    """Where a value breaks a schema, of the part of JSON Schema that ours uses."""
    assert set(schema) <= KNOWN | {"$schema", "$defs"}, f"the test does not know {set(schema) - KNOWN}"
    if "$ref" in schema:
        return faults(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, place)
    found = []
    if "if" in schema:
        found += faults(
            value, schema["else"] if faults(value, schema["if"], root, place) else schema["then"], root, place
        )
    kinds = schema.get("type", [])
    if kinds and not any(TYPES[kind](value) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        return [f"{place}: {value!r:.40} is not {kinds}"]
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{place}: {value!r:.40} is not one of {schema['enum']}")
    if isinstance(value, dict):
        found += [f"{place}.{name} is missing" for name in schema.get("required", []) if name not in value]
        rest = schema.get("additionalProperties", {})
        for name, inner in value.items():
            below = schema.get("properties", {}).get(name, rest)
            found += [f"{place}.{name} is unknown"] if below is False else faults(inner, below, root, f"{place}.{name}")
    if isinstance(value, list):
        for number, inner in enumerate(value):
            found += faults(inner, schema.get("items", {}), root, f"{place}[{number}]")
    return found
