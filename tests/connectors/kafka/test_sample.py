"""A sample of the input topic is asked for again where a broker was busy."""

from __future__ import annotations

from typing import Any

import pytest

from sketchstream.errors import BrokerError
from sketchstream_connectors.kafka import sample


@pytest.mark.parametrize("failures", [0, 1, sample.TRIES - 1, sample.TRIES])
def test_a_busy_broker_is_asked_again(failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    found = object()

    def read(connection: Any, config: Any, records: int) -> Any:
        del connection, config
        asked.append(records)
        if len(asked) <= failures:
            msg = "busy"
            raise BrokerError(msg)
        return found

    monkeypatch.setattr(sample, "read", read)
    connection: Any = None
    config: Any = None
    given = sample.try_to_read(connection, config, 7)
    assert given is (None if failures == sample.TRIES else found)
    assert asked == [7] * min(failures + 1, sample.TRIES)
