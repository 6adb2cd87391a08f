"""What all tests share: one hypothesis profile, the same examples in every run; one broker for those that need one.

In: nothing. Out: the fixture `kafka`. Touches: hypothesis's settings.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import hypothesis
import pytest

hypothesis.settings.register_profile("commit", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("commit")


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
