"""Files that commands write in addition to what they print: pages and Arrow files.

In: paths, pages, tables. Out: files; one that cannot be written is an error of files. Touches: those files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sketchstream.cli.sketches import accessing

if TYPE_CHECKING:
    import pyarrow as pa


def write_page(path: Path, page: str) -> None:
    """Write a page of HTML."""
    with accessing(path):
        path.write_text(page, encoding="utf-8")


def write_arrow(path: Path, table: pa.Table) -> None:
    """Write an Arrow file, which other programs map into memory."""
    from pyarrow import feather

    with accessing(path):
        feather.write_feather(table, str(path), compression="uncompressed")
