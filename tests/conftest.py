"""What all tests share: the same examples and the same noise in every run; one broker for those that need one.

In: the list of long tests. Out: the fixture `kafka`, and those of `helpers.commands`; the mark `kafka` on every test
that asks for a broker's fixture, `long` on those of the list; noise and keys that follow from the name of each test
(`helpers.entropy`); an end for a test that its timeout cannot end. Touches: hypothesis's settings, threads of the
linear algebra.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator, Iterator

# Before numpy is imported, which reads it: tests run side by side, and threads that wait for a core spin; and the
# service's processes use one thread, so that their answers are the ones of this process.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hypothesis
import pytest

from helpers.long_tests import long_tests
from sketchstream.privacy.losses import gaussian

os.environ["SKETCHSTREAM_ANSWERS"] = ""  # commands compute what they print: kept answers have tests of their own

hypothesis.settings.register_profile("commit", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("commit")

pytest_plugins = ["helpers.commands", "helpers.entropy"]
STDERR = pytest.StashKey[int]()
GRACE_S = 60.0
"""After the timeout of a test, for its cleaning up."""
BROKERS = {"kafka", "own_broker", "cluster3"}
"""Fixtures that start brokers: a test that asks for one of them, however indirectly, is a `kafka` test."""


def pytest_configure(config: pytest.Config) -> None:
    """Keep the standard error, which is captured later."""
    config.stash[STDERR] = os.dup(2)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End the process, with the stacks of all threads, where the one alarm of the timeout did not end the test.

    Hypothesis runs an example again that the alarm interrupted, and what cleans up may wait for ever: a suite that
    stands still says nothing.
    """
    marker = item.get_closest_marker("timeout")
    seconds = marker.args[0] if marker else item.config.getoption("timeout")
    if seconds:
        faulthandler.dump_traceback_later(seconds + GRACE_S, exit=True, file=item.config.stash[STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a broker, and those that the fast part leaves out."""
    listed = long_tests()
    for item in items:
        if item.nodeid.partition("[")[0] in listed:
            item.add_marker(pytest.mark.long)
        if BROKERS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.kafka)


@pytest.fixture(scope="session", autouse=True)
def limits_of_this_process_stay() -> Iterator[None]:
    """Keep commands that tests run in this process from hardening it.

    A lowered limit cannot be raised again, and children of later tests inherit it. Tests of hardening start processes.
    """
    from sketchstream.privacy import hygiene

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hygiene, "harden", lambda: hygiene.Hardened(undumpable=True, no_core=True))
        yield


@pytest.fixture(scope="session", autouse=True)
def kernels_are_compiled() -> Iterator[None]:
    """Let no twin of a kernel run unless a test asks for it: which one runs must not depend on the cache on disk."""
    from sketchstream.kernels import compilation

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compilation, "MAX_TWIN_ELEMENTS", 0)
        yield


@pytest.fixture(autouse=True)
def losses_are_computed_anew() -> Iterator[None]:
    """Let no test keep losses that another one, or what it broke on purpose, has computed."""
    yield
    gaussian.loss_of.cache_clear()
    gaussian._at.cache_clear()


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """`bootstrap.servers` of the cluster that the environment names, or of one node of ours; no test stops it."""
    given = os.environ.get("SKETCHSTREAM_TEST_KAFKA")
    if given:
        yield given
        return
    from helpers.kafka.devbroker import DevCluster

    # records of tests have fixed times, years ago: a broker that keeps them for a week deletes them at its next check
    with DevCluster(1, properties={"log.retention.ms": -1}) as cluster:
        yield cluster.bootstrap
