"""Files that commands write beside what they print: pages, Arrow files, pictures.

In: paths, and what goes there. Out: files; one that cannot be written is an error of files. Touches: those files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sketchstream.cli.sketches import unreadable

if TYPE_CHECKING:
    import pyarrow as pa


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn every failure of the system into a StoreError that names the file, while it is written."""
    try:
        yield
    except OSError as error:
        raise unreadable(path, error) from None


def write_page(path: Path, page: str) -> None:
    """Write a page of HTML."""
    with writing(path):
        path.write_text(page, encoding="utf-8")


def write_arrow(path: Path, table: pa.Table) -> None:
    """Write an Arrow file, which other programs map into memory."""
    from pyarrow import feather

    with writing(path):
        feather.write_feather(table, str(path), compression="uncompressed")
