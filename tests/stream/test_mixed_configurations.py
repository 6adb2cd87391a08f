"""Two configurations in one group are named within a minute; a rolling change and dead partitions are not.

In: a worker over ports in memory, what peers say. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import pytest

from helpers.streams import EPOCH
from helpers.workers import driver, send
from sketchstream.stream.interfaces import Peer
from sketchstream.stream.monitoring.endpoint import readiness
from sketchstream.stream.worker.mixed_configurations import ASK_EVERY_S, LASTS_S, MixedConfigurations

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")


def watched(looks: list[list[Peer]]) -> list[bool]:
    """Whether trouble is named after each look, one every `ASK_EVERY_S`."""
    mixed = MixedConfigurations(b"ours")
    said = []
    for number, peers in enumerate(looks):
        now = number * ASK_EVERY_S
        assert mixed.due(now)
        assert not mixed.due(now + ASK_EVERY_S / 2)
        mixed.observe(peers, now)
        said.append(bool(mixed.warning(now)))
    return said


def test_another_configuration_that_goes_on_committing_is_named_within_a_minute() -> None:
    looks = [[Peer(b"ours", newest=i), Peer(b"theirs", newest=i)] for i in range(6)]
    said = watched(looks)
    assert said.index(True) * ASK_EVERY_S <= 60
    assert not any(said[:2])


@pytest.mark.parametrize("theirs", [(), (Peer(b"theirs", newest=5),)], ids=["nobody else", "a partition nobody runs"])
def test_snapshots_that_stay_behind_are_no_evidence(theirs: tuple[Peer, ...]) -> None:
    assert not any(watched([[Peer(b"ours", newest=i), *theirs] for i in range(30)]))


def test_a_change_that_ends_is_forgotten() -> None:
    both = [[Peer(b"theirs", newest=i)] for i in range(8)]
    after = [[Peer(b"ours", newest=i)] for i in range(int(2 * LASTS_S / ASK_EVERY_S) + 2)]
    said = watched(both + after)
    assert said[7]
    assert not said[-1]


def test_a_worker_says_it_once_in_its_log_and_as_long_as_it_lasts_on_readyz(caplog: pytest.LogCaptureFixture) -> None:
    d = driver(partitions=1)
    send(d, 1, EPOCH, 0)
    d.run()
    moving = iter(range(1000))
    d.worker._store.peers = lambda: [Peer(b"another", newest=next(moving))]  # type: ignore[method-assign]
    for _ in range(70):
        d.clock.advance(1.0)
        d.worker.step(0.0)
    assert caplog.text.count("event=mixed_configurations") == 1
    gauges = d.worker.gauges()
    assert "two deployments need two group ids" in readiness(gauges)
    assert gauges.ready, "a rolling change must be able to go on"
