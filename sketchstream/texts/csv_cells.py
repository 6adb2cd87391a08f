"""Cells of CSV files that spreadsheets show and do not run.

In: values of a table. Out: cells, and values again. Touches: nothing.

A spreadsheet takes a text that begins with `=`, `+`, `-` or `@` for a formula, which can fetch addresses and, in some
programs, start others. Items are written by strangers. An apostrophe in front makes a text of it.
"""

from __future__ import annotations

import re
from typing import Final

FORMULA: Final = re.compile(r"[=+\-@\t\r\n＝＋－＠']")
"""Beginnings of texts that are marked. The apostrophe itself is among them, so that `original_text` is exact."""
NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?", re.ASCII)
"""What a spreadsheet reads as a number, whatever its sign: it is not marked."""


def safe_cell(value: object) -> object:
    """A cell of a value: a text that would be run with an apostrophe in front, everything else as it is."""
    if isinstance(value, str) and FORMULA.match(value) and not NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def original_text(cell: str) -> str:
    """The text that `safe_cell` made a cell of."""
    return cell.removeprefix("'")
