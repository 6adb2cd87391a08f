"""What all tests share: one hypothesis profile, the same examples in every run; one broker for those that need one.

In: nothing. Out: the fixture `kafka`. Touches: hypothesis's settings; numba's cache, where several processes test.
"""

from __future__ import annotations

import fcntl
import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

hypothesis.settings.register_profile("commit", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("commit")


def one_at_a_time(method: Callable[..., Any]) -> Callable[..., Any]:
    """A reader or writer of one function's cached code that no other process of the tests meets half-way.

    numba names a file of code after those that its index lists: of two processes that compile one function for
    different types at the same moment, one would find the other's code.
    """

    @functools.wraps(method)
    def locked(cached: Any, *arguments: Any) -> Any:
        index = Path(cached._index_path)
        index.parent.mkdir(parents=True, exist_ok=True)
        with index.with_suffix(".lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            return method(cached, *arguments)

    return locked


if "PYTEST_XDIST_WORKER" in os.environ:
    from numba.core.caching import IndexDataCacheFile

    IndexDataCacheFile.load = one_at_a_time(IndexDataCacheFile.load)
    IndexDataCacheFile.save = one_at_a_time(IndexDataCacheFile.save)


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """`bootstrap.servers` of the cluster that the environment names, or of one node of ours; no test stops it."""
    given = os.environ.get("SKETCHSTREAM_TEST_KAFKA")
    if given:
        yield given
        return
    from sketchstream_connectors.devbroker import DevCluster

    with DevCluster(1) as cluster:
        yield cluster.bootstrap
