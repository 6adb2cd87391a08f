"""Validation of the tables of a configuration file, with all mistakes explained in plain words.

In: plain data of a TOML file. Out: a `FileTable`, mistakes, keys that were removed. Touches: nothing.

To report all mistakes at once, a wrong key is removed, or replaced by a valid value, and the rest is read
again. A misspelled key is read under the most similar name.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from sketchstream.config.env import flatten
from sketchstream.errors import nearest
from sketchstream.spec import units_in_words

if TYPE_CHECKING:
    from pydantic import BaseModel

    from sketchstream.config.schema import FileTable

KeyPath = tuple[int | str, ...]
MAX_READINGS: Final = 8
"""Most times that a file is read: first for names, then for types, then for what these left open."""
STAND_IN: Final[Mapping[str, Any]] = {
    "name": "stand-in",
    "window": "1d",
    "unit": "event",
    "epsilon": "1",
    "delta": "1e-6",
    "domain": {"slots": 1024},
    "file": "stand-in",
    "input": {},
    "sketch": [{"name": "stand-in", "window": "1d", "unit": "event", "epsilon": "1", "domain": {"slots": 1024}}],
}
"""Right values in place of those that are missing or wrong, while the rest is read."""
GROUP_KEYS: Final = frozenset(
    {"group_by", "groups", "other_group", "max_groups", "group_of_item", "group_limit", "where"}
)
INSTEAD_OF_GROUPS: Final = (
    "In other kinds the group is part of what is counted: a column of kind 'workload' or 'convolution', the item of "
    "kind 'gaussian', the row of kind 'projection' (docs/streams.md, Groups in other kinds)"
)
EXPECTED: Final[Mapping[str, str]] = {
    "string_type": "a text",
    "path_type": "a path",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of at most 64 bits",
    "int_from_float": "a whole number",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "dict_type": "a table",
    "tuple_type": "a list",
    "list_type": "a list",
    "float_type": "a number",
    "float_parsing": "a number",
}
"""For each kind of error, what was expected."""


def read_tables(written: Mapping[str, Any], *, named: bool = True) -> tuple[FileTable | None, list[str], set[str]]:
    """Read the valid parts of the file's tables.

    Args:
        written: plain data of the file.
        named: whether mistakes name the sketch that has them, and not only its keys.

    Returns:
        The tables, None if they cannot be used; mistakes; the keys ("input.topic", "sketch.0") that were
        removed or replaced.
    """
    from pydantic import ValidationError

    from sketchstream.config.schema import FileTable

    data: dict[str, Any] = copy.deepcopy(dict(written))
    mistakes: list[str] = []
    unclear: set[str] = set()
    if isinstance(data.get("kafka"), dict):
        data["kafka"] = dict(flatten(data["kafka"]))
    for _ in range(MAX_READINGS):
        try:
            return FileTable.model_validate(data), mistakes, unclear
        except ValidationError as refusal:
            errors = _in_the_file(refusal.errors(), data)
        unknown_keys = [error for error in errors if error["type"] == "extra_forbidden"]
        before = copy.deepcopy(data)
        for error in unknown_keys or errors:
            text = _explain(error, written, before, named=named)
            if text is not None and text not in mistakes:
                mistakes.append(text)
            _mend(data, error["type"], error["loc"], unclear)
        if data == before:
            break
    return None, mistakes, unclear


def _in_the_file(errors: Iterable[Any], data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The errors with their places in the file: of a key with alternatives, pydantic has an error for each of them."""
    placed: list[dict[str, Any]] = []
    alternatives: dict[KeyPath, list[dict[str, Any]]] = {}
    for error in errors:
        place: Any = data
        loc: KeyPath = ()
        key: KeyPath | None = None
        for part in error["loc"]:
            present = part in place if isinstance(place, dict) else isinstance(place, list) and isinstance(part, int)
            if present or (error["type"] == "missing" and part == error["loc"][-1]):
                loc, place = (*loc, part), place[part] if present else None
            else:  # the name of an alternative
                key = loc if key is None else key
        (placed if key is None else alternatives.setdefault(key, [])).append({**error, "loc": loc})
    for key, several in alternatives.items():
        inside = [error for error in several if len(error["loc"]) > len(key)]  # this alternative was meant
        names = dict.fromkeys(EXPECTED.get(error["type"], "something else") for error in several)
        placed += inside or [{**several[0], "type": "alternatives", "expected": ", or ".join(names)}]
    return placed


def _explain(error: Any, written: Mapping[str, Any], data: Mapping[str, Any], *, named: bool) -> str | None:
    """Describe a mistake in one line; None if it is a consequence of others."""
    kind, loc, value = error["type"], tuple(error["loc"]), error["input"]
    path = _spell_place(loc if named else loc[2:], data)
    if kind == "extra_forbidden":
        if len(loc) == 3 and loc[0] == "sketch" and loc[2] in GROUP_KEYS:
            return f"{path} belongs to kind = 'profile'. {INSTEAD_OF_GROUPS}"
        near = _nearest_key(loc, data)
        parent = path.rpartition(".")[0]
        hint = f"; did you mean {parent + '.' if parent else ''}{near}?" if near else ""
        return f"unknown key {path}{hint}"
    if loc == ("sketch",):
        if kind == "too_short" and written.get("sketch"):
            return None  # its blocks are wrong, and reported
        if kind in ("missing", "too_short"):
            return "sketch is missing: the file needs at least one [[sketch]] block"
        if kind == "too_long":
            return "sketch: at most 64 [[sketch]] blocks"
        return "sketch must be blocks with two brackets on each side: [[sketch]]"
    if kind == "missing":
        return f"{path} is missing" + (f": {units_in_words('unit = ')}" if loc[-1] == "unit" else "")
    value_text = f", found {value!r:.40}" if isinstance(value, (str, int, float)) else ""
    if kind == "literal_error":
        return f"{path} must be {error['ctx']['expected']}{value_text}"
    if kind == "value_error":
        return f"{path} {error['ctx']['error']}"
    for limit, words in (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below")):
        if limit in error.get("ctx", {}):
            return f"{path} must be {words} {error['ctx'][limit]}{value_text}"
    if len(loc) == 1 and EXPECTED.get(kind) == "a table":
        return f"{path} must be a table: [{path}]"
    return f"{path} must be {error.get('expected') or EXPECTED.get(kind, 'something else')}{value_text}"


def _mend(data: dict[str, Any], kind: str, loc: KeyPath, unclear: set[str]) -> None:
    """Remove a wrong key from the data, rename a misspelled one, or insert a value for a required one."""
    place: Any = data
    for part in loc[:-1]:
        try:
            place = place[part]
        except (KeyError, IndexError, TypeError):
            return
    last = loc[-1]
    if not isinstance(place, (dict, list)):
        return
    if kind == "extra_forbidden" and isinstance(place, dict):
        value = place.pop(str(last), None)
        near = _nearest_key(loc, data)
        if near is not None and near not in place:
            place[near] = value
        else:
            unclear.add(_key(loc))
        return
    if loc == ("sketch",) and isinstance(data.get("sketch"), dict):
        data["sketch"] = [data["sketch"]]
        return
    unclear.add(_key(loc))
    if loc[0] == "sketch" and last == "kind" and isinstance(place, dict):
        _mend_kind(place)
        return
    if isinstance(place, dict):
        place.pop(str(last), None)
        field = _model(loc[:-1], data).model_fields.get(str(last))
        if str(last) in STAND_IN and (kind == "missing" or (field is not None and field.is_required())):
            place[str(last)] = copy.deepcopy(STAND_IN[str(last)])
    elif loc[:-1] == ("sketch",) and isinstance(last, int):
        place[last] = copy.deepcopy(STAND_IN["sketch"][0])
    else:
        _mend(data, kind, loc[:-1], unclear)


def _mend_kind(block: dict[str, Any]) -> None:
    """Read a block of an unknown kind as the kind with the nearest name, or else the nearest keys."""
    from sketchstream.kinds.config_tables import configurable, table_of

    near = nearest(str(block.get("kind")), configurable())
    fits = {name: len(block.keys() & set(table.model_fields)) for name in configurable() if (table := table_of(name))}
    block["kind"] = near or max(fits, key=lambda name: fits[name])


def _key(loc: KeyPath) -> str:
    """The uncertain key; of a sketch, the whole block."""
    return ".".join(str(part) for part in (loc[:2] if loc[0] == "sketch" else loc))


def _nearest_key(loc: KeyPath, data: Mapping[str, Any]) -> str | None:
    """The known key that an unknown one probably stands for."""
    return nearest(str(loc[-1]), _model(loc[:-1], data).model_fields)


def _spell_place(loc: KeyPath, data: Mapping[str, Any]) -> str:
    """`input.topic`, or `sketch "hourly".epsilon` for a block."""
    parts = [str(part) for part in loc]
    if len(loc) > 1 and loc[0] == "sketch" and isinstance(loc[1], int):
        blocks = data.get("sketch")
        block = blocks[loc[1]] if isinstance(blocks, list) and loc[1] < len(blocks) else {}
        name = block.get("name") if isinstance(block, dict) else None
        parts[:2] = [f'sketch "{name}"' if isinstance(name, str) else f"sketch {loc[1] + 1}"]
    return ".".join(parts)


def _model(loc: KeyPath, data: Mapping[str, Any]) -> type[BaseModel]:
    """The table at this place of the file; of a sketch, that of its kind."""
    from sketchstream.config import schema
    from sketchstream.kinds.config_tables import table_of

    model: type[BaseModel] = schema.FileTable
    for part in loc:
        if isinstance(part, str):
            model = schema.TABLES.get(part, model)
    if len(loc) == 2 and loc[0] == "sketch":  # the mistake concerns the block itself
        blocks, number = data.get("sketch"), loc[1]
        block = blocks[number] if isinstance(blocks, list) and isinstance(number, int) else None
        kind = block.get("kind", "profile") if isinstance(block, dict) else "profile"
        model = table_of(kind) or model
    return model
