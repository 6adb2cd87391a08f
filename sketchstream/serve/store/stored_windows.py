"""Windows and answers as the store has them.

In: rows of the database, results of reconstructions. Out: values for all that read the store. Touches: nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from sketchstream.query.sealed import Span
from sketchstream.stream.windows.calendar import iso

# States of a window: its row has to be put together again; some partition is missing; nothing more is expected; an
# incident: nothing of it is shown.
NEW, MISSING, SETTLED, INCIDENT = "new", "missing", "settled", "incident"
# Remaining computations.
NOTHING, GUARANTEE, NUMBERS = 0, 1, 2


@dataclass(frozen=True)
class StoredWindow:
    """One window as the store knows it.

    Args:
        sketch: name of the sketch.
        window: [start, end), ms since 1970.
        version: number that grows with every change of what the window's answers are made from.
        state: "missing" (some partition has not passed it), "settled", "incident" or "new" (being put together).
        input: digest of the inputs of its usual answer; None until it is assembled.
        facts: facts of the window as JSON text, those that `sketchstream profile -c` prints first.
        status: completeness in words, or the incident.
        guarantee: JSON text; None: not computed yet, or out of date.
        guarantee_alone: that of the sketch alone, for those who may not see the others; out of date where the other is.
        failure: reason why it has no answer; None if it has one, or none was tried.
        todo: remaining computations.
    """

    sketch: str
    window: Span
    version: int
    state: str
    input: bytes | None
    facts: str | None
    status: str
    guarantee: str | None
    guarantee_alone: str | None
    failure: str | None
    todo: int

    @property
    def fields(self) -> dict[str, Any]:
        """The facts as plain data."""
        data: dict[str, Any] = orjson.loads(self.facts or "{}")
        return data

    @property
    def front(self) -> dict[str, Any]:
        """The fields that identify the window of a row or a number, and its completeness."""
        start, end = map(iso, self.window)
        return {"window_start": start, "window_end": end, "complete": self.complete}

    @property
    def complete(self) -> bool | None:
        """Whether the window lacks nothing; None: nothing published can tell."""
        complete: bool | None = self.fields.get("complete", False)
        return complete


@dataclass(frozen=True)
class Computed:
    """The answer of one window to one question, without the facts of the window.

    Args:
        json: JSON object, without the guarantee.
        csv: the answer as CSV with a header line.
        guarantee: JSON object.
        guarantee_alone: that of the sketch alone; see `StoredWindow`.
        points: numbers with their intervals by name, for series; and what they are bounds of, see `Estimate`.
    """

    json: bytes = field(repr=False)
    csv: bytes = field(repr=False)
    guarantee: str = field(repr=False)
    guarantee_alone: str = field(default="null", repr=False)
    points: Mapping[str, tuple[float | None, float | None, float | None, str | None]] = field(
        default_factory=dict, repr=False
    )


def answer_key(digest: bytes, question: str) -> bytes:
    """The digest under which an answer is stored.

    Args:
        digest: digest of the window's input.
        question: canonical text of the question; empty for the usual one.
    """
    return hashlib.blake2b(digest + question.encode(), digest_size=16, person=b"sketch-answer").digest()
