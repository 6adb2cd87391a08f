"""Stands in for the producer of results: keeps what is sent.

In: records. Out: their values. Touches: nothing.
"""

from __future__ import annotations

from typing import Any


class Outlet:
    """Keeps the values that are sent."""

    def __init__(self, *_: object) -> None:
        self.sent: list[bytes] = []

    def send(self, topic: str, partition: int, records: Any, what: str) -> None:
        del topic, partition, what
        self.sent += [value for _, value, _ in records]

    def close(self) -> None:
        """Nothing."""
