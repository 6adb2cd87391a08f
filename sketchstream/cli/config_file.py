"""One key put into a configuration file, everything else left as it is, comments included.

In: a path, a name and a value. Out: the file, replaced in one step. Touches: that file.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from sketchstream.errors import ConfigError
from sketchstream.files import reading, write_durably


def set_partitioner(path: Path, name: str) -> None:
    """Write `partitioner = "name"` into [input], below `partitioned_by` where that is in the file.

    Raises:
        ConfigError: the line cannot be inserted without another change; the file is as it was.
        StoreError: the file cannot be read or written.
    """
    with reading(path):
        text = path.read_bytes().decode("utf-8")
        mode = path.stat().st_mode & 0o777
    edited = insert(text, "input", "partitioner", name, after="partitioned_by")
    if edited is None:
        raise ConfigError(f'{path}: add this line to [input] by hand: partitioner = "{name}"')
    write_durably(path, edited.encode(), mode=mode, replace=True)


def insert(text: str, table: str, key: str, value: str, after: str) -> str | None:
    r"""TOML text with `key = "value"` in a table, on the line below another key or below the table's header.

    None if there is no such position, or if anything else would change.

    Examples:
        >>> print(insert("[a]\nx = 1  # one\ny = 2\n", "a", "z", "w", after="x"))
        [a]
        x = 1  # one
        z = "w"
        y = 2
        <BLANKLINE>
    """
    expected: dict[str, Any] = tomllib.loads(text)
    place = expected.setdefault(table, {})
    if not isinstance(place, dict) or key in place:
        return None
    place[key] = value
    lines = text.splitlines(keepends=True)
    name = re.escape(after)
    patterns = (
        (rf'[ \t]*(?:{name}|"{name}")[ \t]*=', key),
        (rf"[ \t]*{table}[ \t]*\.[ \t]*{name}[ \t]*=", f"{table}.{key}"),
        (rf"[ \t]*\[[ \t]*{table}[ \t]*\]", key),
    )
    for pattern, written in patterns:
        for number, line in enumerate(lines):
            if not re.match(pattern, line):
                continue
            indent = re.match(r"[ \t]*", line)
            end = "\r\n" if line.endswith("\r\n") else "\n"
            before = line if line.endswith("\n") else line + end
            new = f'{indent[0] if indent else ""}{written} = "{value}"{end}'
            edited = "".join([*lines[:number], before, new, *lines[number + 1 :]])
            try:
                if tomllib.loads(edited) == expected:
                    return edited
            except tomllib.TOMLDecodeError:
                continue
    return None
