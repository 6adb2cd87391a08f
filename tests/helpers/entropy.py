"""Noise and hash keys of the tests follow from the name of the test: what passes once passes in every run.

In: the name of a test or of a fixture that several tests share; `SKETCHSTREAM_TEST_SEED`. Out: for every keystream and
every `Key.generate()` of this process, bytes that follow from them. Touches: the seam `fresh_key` of
sketchstream/noise/entropy.py, and the `secrets` of sketchstream/items/key.py.

A test of a noisy answer refuses right code once in so many runs; a suite with hundreds of them then fails now and then
without a reason. The words remain those of AES under fresh keys, only that the keys are a digest of a name and a
number. Tests of entropy itself carry the mark `entropy`; processes that tests start, and forked children, have keys of
the operating system. `SKETCHSTREAM_TEST_SEED=2` gives other keys, `=system` those of the operating system: a test that
fails with one of them has a limit that is too narrow, or found something.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import secrets
from collections.abc import Generator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from sketchstream.items import key
from sketchstream.noise import entropy

SEED = os.environ.get("SKETCHSTREAM_TEST_SEED", "1")
SYSTEM = "system"


class Named:
    """Bytes that follow from a name and from how many were drawn since it was given."""

    def __init__(self) -> None:
        self._home = os.getpid()
        self._system = entropy.fresh_key
        self.begin(None)

    def begin(self, name: str | None) -> None:
        """Draw from the beginning of the stream of this name; from the operating system without one."""
        self.stream = name, itertools.count(1)

    def fresh_key(self) -> bytearray:
        """32 bytes that no other call gets; the operating system's in forked children."""
        name, numbers = self.stream
        if name is None or os.getpid() != self._home:
            return self._system()
        return bytearray(hashlib.sha256(f"{SEED}\n{next(numbers)}\n{name}".encode()).digest())

    def token_bytes(self, size: int) -> bytes:
        """`size` bytes, at most 32."""
        return bytes(self.fresh_key()[:size])


NAMED = Named()


@pytest.fixture(scope="session", autouse=True)
def keys_follow_from_names() -> Iterator[None]:
    """Put `NAMED` in the place of the operating system, unless the environment asks for that."""
    if SEED == SYSTEM:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entropy, "fresh_key", NAMED.fresh_key)
        patch.setattr(key, "secrets", SimpleNamespace(**{**vars(secrets), "token_bytes": NAMED.token_bytes}))
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Each test draws from the start of its own stream, wherever and after whatever it runs."""
    own = item.get_closest_marker("entropy") is None
    NAMED.begin(item.nodeid if own else None)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """What several tests share must not depend on which of them asks first."""
    if fixturedef.scope == "function":
        return (yield)
    kept = NAMED.stream
    NAMED.begin(f"{fixturedef.baseid}::{fixturedef.argname}::{getattr(request, 'param_index', 0)}")
    try:
        return (yield)
    finally:
        NAMED.stream = kept
