"""The items of a listed closed domain: files with one a line, and their bytes within open sketches and snapshots.

In: a path, or a list of items. Out: a list of items, or its bytes. Touches: that file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgpack

from sketchstream.errors import ConfigError
from sketchstream.files import reading
from sketchstream.spec import Item

_INT = 0


def read_items(path: Path, item_type: str = "text", what: str = "domain.items_file") -> list[Item]:
    """The items of a closed domain, rows or groups: text, one a line, duplicates and empty lines refused.

    Args:
        path: UTF-8 text (any bytes without line breaks for item_type "bytes").
        item_type: "text", "int" or "bytes": what items of the stream are.
        what: configuration key of the file, for errors.

    Raises:
        ConfigError: the file cannot be read, or a line is not an item; names the line's number, never its contents.
    """
    with reading(f"{what} {path}", ConfigError):
        data = path.read_bytes()
    lines = data.replace(b"\r\n", b"\n").split(b"\n")
    if lines and lines[-1] == b"":
        lines.pop()
    if not lines:
        raise ConfigError(f"{what} {path} is empty")
    seen: dict[bytes, int] = {}
    items: list[Item] = []
    for number, line in enumerate(lines, 1):
        if not line:
            raise ConfigError(f"line {number} of {what} {path} is empty")
        try:
            item: Item = line if item_type == "bytes" else line.decode("utf-8")
            if item_type == "int":
                if not re.fullmatch(rb"-?\d{1,19}", line):
                    raise ValueError
                item = int(line)
        except ValueError:
            expected = "a whole number" if item_type == "int" else "UTF-8 text"
            raise ConfigError(f"line {number} of {what} {path} is not {expected}") from None
        same = str(item).encode() if item_type == "int" else line
        if same in seen:
            raise ConfigError(f"line {number} of {what} {path} repeats line {seen[same]}")
        seen[same] = number
        items.append(item)
    return items


def pack_items(items: Sequence[Item]) -> bytes:
    """Serialise a listed domain's items; ints as decimal text, so that any size fits."""
    plain = [(_INT, str(item)) if isinstance(item, int) else item for item in items]
    data: bytes = msgpack.packb(plain)
    return data


def unpack_items(data: bytes) -> list[Item]:
    """The items that `pack_items` wrote."""
    plain = msgpack.unpackb(data, strict_map_key=True)
    return [int(item[1]) if isinstance(item, list) and item[0] == _INT else item for item in plain]
