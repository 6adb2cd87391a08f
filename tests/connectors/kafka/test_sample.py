"""Brokers that are busy or have just started are asked again, for a sample of the input and for rights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from sketchstream.errors import BrokerError
from sketchstream_connectors.kafka import preflight
from sketchstream_connectors.kafka.input import sample


@pytest.mark.parametrize("failures", [0, 1, sample.MAX_ATTEMPTS - 1, sample.MAX_ATTEMPTS])
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
    assert given is (None if failures == sample.MAX_ATTEMPTS else found)
    assert asked == [7] * min(failures + 1, sample.MAX_ATTEMPTS)


class Cluster:
    """Answers about rights as a broker that has just started gives them; each question takes the next answer."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.patience_ms = 60_000 if answers[-1].get("last", True) else 0
        self.admin = self
        self._answers = list(answers)

    def ask_group(self, name: str) -> dict[str, Any]:
        del name
        return self._answers.pop(0)

    @contextlib.contextmanager
    def client(self, what: str) -> Iterator[Any]:
        del what
        yield SimpleNamespace(describe_topics=lambda names: [self._answers.pop(0)] if names else [])


LOADING = {"error": "[Error 14] CoordinatorLoadInProgressError", "authorized_operations": None, "error_code": 5}
ALLOWED = {"error": None, "authorized_operations": ["READ", "DESCRIBE"], "error_code": 0}
HIDDEN = {"error": "[Error 30] GroupAuthorizationFailedError", "authorized_operations": None, "error_code": 29}


@pytest.mark.parametrize("kind", ["group", "topic"])
def test_a_broker_that_is_not_ready_says_nothing_about_rights(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "ASK_AGAIN_S", 0.0)
    ready: Any = Cluster(LOADING, LOADING, ALLOWED)
    assert preflight._allowed_operations(ready, kind, "g") == {"read", "describe"}
    hidden: Any = Cluster(LOADING, HIDDEN)
    assert preflight._allowed_operations(hidden, kind, "g") is None
    never: Any = Cluster({**LOADING, "last": False})
    with pytest.raises(BrokerError, match=f"asking what is allowed with {kind} 'g': "):
        preflight._allowed_operations(never, kind, "g")
