"""Writes golden files: what all scripts of this folder share.

In: a folder, objects, what must be read from each. Out: one file for each object, and one JSON file that describes
them. Touches: that folder. A golden file never changes: existing ones stay, new objects are added.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def write(
    folder: Path, prefix: str, listing: str, objects: Mapping[str, Any], read: Callable[[Any], dict[str, Any]]
) -> None:
    """Write each object that has no file yet, and the size, the digest and the contents of each.

    Args:
        folder: where to write; created if it does not exist.
        prefix: first part of the names of the files.
        listing: name of the JSON file.
        objects: sketches or published objects, by the last part of the name of their file.
        read: what must be read from an object.
    """
    folder.mkdir(exist_ok=True)
    path = folder / listing
    expected = json.loads(path.read_text()) if path.exists() else {}
    for name, one in objects.items():
        file = folder / f"{prefix}-{name}.bin"
        if not file.exists():
            expected[name] = {**described(file, one.to_bytes()), **read(one)}
    path.write_text(json.dumps(expected, indent=1) + "\n")


def described(path: Path, data: bytes) -> dict[str, Any]:
    """Write one new file; returns its size and digest."""
    with path.open("xb") as file:
        file.write(data)
    return {"bytes": len(data), "blake2b": hashlib.blake2b(data, digest_size=16).hexdigest()}
