"""What is handed to a producer before it is acknowledged, and how long is waited: futures of a stand-in's own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchstream_connectors.kafka.cluster import acknowledgements
from sketchstream_connectors.kafka.cluster.acknowledgements import UNACKNOWLEDGED_BYTES, Acknowledgements


class Future:
    """A record that is acknowledged some seconds after somebody begins to wait for it."""

    def __init__(self, offset: int, clock: list[float], takes_s: float = 0.0) -> None:
        self.offset, self.takes_s, self.clock, self.done = offset, takes_s, clock, False

    def get(self, timeout: float) -> SimpleNamespace:
        if timeout < self.takes_s:
            raise TimeoutError
        self.clock[0] += self.takes_s
        self.done = True
        return SimpleNamespace(offset=self.offset)


@given(st.lists(st.integers(0, UNACKNOWLEDGED_BYTES + 10) | st.integers(0, 4096), max_size=60))
def test_little_waits_in_the_producer_and_all_is_acknowledged_in_order(sizes: list[int]) -> None:
    step, clock = Acknowledgements(), [0.0]
    sent: list[tuple[Future, int]] = []
    for number, size in enumerate(sizes):
        step.make_room(size)
        assert sum(n for one, n in sent if not one.done) + size <= max(UNACKNOWLEDGED_BYTES, size)
        sent.append((Future(number, clock), size))
        step.add(*sent[-1])
    step.wait_for_all()
    assert all(one.done for one, _ in sent)


def test_the_deadline_moves_with_each_acknowledgement(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(acknowledgements, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    step = Acknowledgements()
    for number in range(10):  # ten times as long as the deadline of one
        step.add(Future(number, clock, acknowledgements.STALLED_S - 1.0), 1)
    step.wait_for_all()
    assert clock[0] > 100.0 + 5 * acknowledgements.STALLED_S
    step.add(Future(10, clock, acknowledgements.STALLED_S + 1.0), 1)
    with pytest.raises(TimeoutError):
        step.wait_for_all()
