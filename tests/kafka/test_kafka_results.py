"""Results in a topic: what holds up the others, and what does not. No broker is needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sketchstream.errors import EstimateError
from sketchstream_connectors import kafka_results
from sketchstream_connectors.kafka_results import KafkaResults


class Outlet:
    """Keeps what is sent."""

    def __init__(self, *_: object) -> None:
        self.sent: list[bytes] = []

    def send(self, topic: str, partition: int, records: Any, what: str) -> None:
        del topic, partition, what
        self.sent += [key for key, _, _ in records]

    def close(self) -> None:
        """Nothing."""


def test_a_window_without_a_result_does_not_hold_up_those_after_it_broker_free(monkeypatch: pytest.MonkeyPatch) -> None:
    def value(window: Any, *, partitioned: bool) -> bytes:
        del partitioned
        if window.window[0] == 0:
            msg = "every level is crowded"
            raise EstimateError(msg)
        return b"{}"

    monkeypatch.setattr(kafka_results, "result_value", value)
    monkeypatch.setattr(kafka_results, "Outlet", Outlet)
    windows = [SimpleNamespace(sketch="s", revision=0, window=(at, at + 1), complete=True) for at in (0, 1, 2)]
    asked: list[int] = []

    class Reader:
        def windows(self, name: str) -> list[SimpleNamespace]:
            asked.append(len(name))
            return windows

    config = SimpleNamespace(
        sketches=[SimpleNamespace(name="s")],
        input=SimpleNamespace(partitioned_by="item"),
        output=SimpleNamespace(results_topic="results"),
    )
    results = KafkaResults(None, config, lambda: False, every_s=1000)  # type: ignore[arg-type]
    try:
        results._done = set()
        assert results.look(Reader()) == 2  # type: ignore[arg-type]
        assert results._outlet.sent == [b"s/0/1", b"s/0/2"]  # type: ignore[attr-defined]
        assert results.look(Reader()) == 0, "nor is it tried for ever"  # type: ignore[arg-type]
        assert asked == [1, 1]
    finally:
        results.close()
