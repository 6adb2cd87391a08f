"""Sends records that no window accepts to a sink.

In: chunks and their outcomes. Out: records, handed to the sink. Touches: the sink.
"""

from __future__ import annotations

from sketchstream.array_types import Ints
from sketchstream.stream.interfaces import Chunk, RawRecord, Refusal, Sink
from sketchstream.stream.monitoring.metrics import Metrics
from sketchstream.stream.state.outcome import Outcome

LETTER_BYTES = 1000
"""Approximate bytes of memory that a refused record takes in addition to its own bytes."""


def send(sink: Sink, chunk: Chunk, outcome: Outcome, metrics: Metrics, *, payload: bool) -> tuple[int, int]:
    """Send the refused records of a chunk to a sink; return how many it accepted, and their approximate bytes.

    Args:
        sink: accepts them if it has a topic for them.
        chunk: the records.
        outcome: what became of them: which were refused, and why.
        metrics: count them.
        payload: whether to send key, value and headers, which are raw data.
    """
    refused: tuple[tuple[Refusal, Ints, str], ...] = (
        ("late", outcome.late_records, ",".join(sorted(outcome.late))),
        ("future", outcome.future_records, ""),
        ("undecodable", outcome.undecodable_records, ""),
        ("time", outcome.time_records, ""),
    )
    sent = size = 0
    for reason, records, detail in refused:
        if chunk.raw is None or not records.size or not sink.takes(reason):
            continue
        for index in records.tolist():
            record = chunk.raw(index)
            if not payload:
                record = RawRecord(record.offset, record.timestamp_ms, None, None)
            sink.send(chunk.partition, reason, record, detail)
            size += LETTER_BYTES + len(record.key or b"") + len(record.value or b"")
            size += sum(len(name) + len(value) for name, value in record.headers)
        metrics.add("late_sent" if reason in ("late", "future") else "dead_letters", records.size)
        sent += records.size
    return sent, size
