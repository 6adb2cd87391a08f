"""Values of stored plain data, each of the type that is expected there.

In: what a snapshot or a publication holds. Out: these values, checked, or an error. Touches: nothing.
"""

from __future__ import annotations

from typing import Any, Final

BEYOND: Final = 1 << 63
"""Every stored number lies in [-BEYOND, BEYOND): snapshots and databases store 64 bits."""


def integer(value: object) -> int:
    """A whole number of 64 bits; a TypeError otherwise, like all functions here."""
    if isinstance(value, bool) or not isinstance(value, int) or not -BEYOND <= value < BEYOND:
        raise TypeError("expected a whole number of 64 bits")
    return value


def require_list(value: object) -> list[Any]:
    """A list."""
    if not isinstance(value, list):
        raise TypeError("expected a list")
    return value


def table(value: object) -> dict[str, Any]:
    """A table."""
    if not isinstance(value, dict):
        raise TypeError("expected a table")
    return value


def tables(value: object) -> list[dict[str, Any]]:
    """A list of tables."""
    return [table(entry) for entry in require_list(value)]


def digits(value: int) -> str:
    """A number in 16 digits, whatever its size."""
    return f"{value % (1 << 64):016x}"


def read_signed(text: str) -> int:
    """The signed 64-bit number of `digits`."""
    return int.from_bytes(bytes.fromhex(text), "big", signed=True)
