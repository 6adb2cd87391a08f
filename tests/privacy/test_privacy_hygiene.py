"""Secrets in memory and snapshots: wiped, bound to their process, encrypted at fixed sizes.

In: buffers and child processes. Out: verdicts. Touches: child processes.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchstream.errors import ChecksumError, SealedError
from sketchstream.privacy import hygiene
from sketchstream.privacy.hygiene import harden, open_blob, process, require_home, seal_blob, sealed_size, wipe, wiped

SIZES = st.integers(0, 200)


@given(st.binary(max_size=200), st.binary(max_size=20))
def test_blobs_open_again_and_their_size_depends_on_the_size_alone(data: bytes, aad: bytes) -> None:
    blob, key = seal_blob(data, aad)
    assert open_blob(blob, key, aad) == data
    assert len(blob) == sealed_size(len(data))
    padded, key = seal_blob(data, aad, size=200)
    assert open_blob(padded, key, aad) == data
    assert len(padded) == sealed_size(200)


def test_large_blobs_are_sealed_in_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hygiene, "SEGMENT", 64)
    for size in (0, 1, 55, 56, 57, 120, 121, 1000):
        data = os.urandom(size)
        blob, key = seal_blob(data, b"a")
        assert len(blob) == sealed_size(size)
        assert open_blob(blob, key, b"a") == data
    step = 64 + hygiene.TAG
    blob, key = seal_blob(bytes(500), b"a")
    pieces = [blob[at : at + step] for at in range(0, len(blob), step)]
    for wrong in (
        b"".join(pieces[:-1]),
        b"".join(pieces[:1]),
        b"".join([pieces[1], pieces[0], *pieces[2:]]),
        b"".join([*pieces, pieces[-1]]),
        b"".join([pieces[0], *pieces]),
    ):
        with pytest.raises(ChecksumError):
            open_blob(wrong, key, b"a")


def test_every_flipped_byte_and_every_truncation_of_a_blob_is_refused() -> None:
    blob, key = seal_blob(b"secret state", b"place")
    for at in range(len(blob)):
        flipped = bytearray(blob)
        flipped[at] ^= 1
        for wrong in (bytes(flipped), blob[:at]):
            with pytest.raises(ChecksumError):
                open_blob(wrong, key, b"place")
    with pytest.raises(ChecksumError):
        open_blob(blob, key, b"elsewhere")
    with pytest.raises(ChecksumError):
        open_blob(blob, bytes(32), b"place")
    with pytest.raises(ChecksumError):
        open_blob(blob, b"short", b"place")


def test_keys_are_fresh_and_the_plaintext_is_not_in_the_blob() -> None:
    data = b"a marked item" * 50
    blobs = [seal_blob(data, b"") for _ in range(50)]
    assert len({bytes(key) for _, key in blobs}) == len({blob for blob, _ in blobs}) == 50
    assert not any(data[:16] in blob for blob, _ in blobs)
    with pytest.raises(ValueError, match="do not fit"):
        seal_blob(data, b"", size=10)


@pytest.mark.parametrize(
    "buffer",
    [
        bytearray(b"secret"),
        np.arange(9, dtype=np.int32),
        np.arange(12, dtype=np.int16).reshape(3, 4)[:, ::2],
        np.array([b"abc"]),
        bytearray(),
        np.zeros(0),
    ],
)
def test_wiping_leaves_zeros(buffer: bytearray | np.ndarray[tuple[int, ...], np.dtype[np.int32]]) -> None:
    wipe(buffer)
    left = buffer.tobytes() if isinstance(buffer, np.ndarray) else bytes(buffer)
    assert left == bytes(len(left))


def test_wiping_through_a_view_and_after_an_error() -> None:
    owner = bytearray(b"secret")
    with pytest.raises(RuntimeError), wiped(memoryview(owner)[2:4]):
        raise RuntimeError
    assert owner == b"se\0\0et"
    owner += b"resizable again"  # no view is left open


def test_read_only_buffers_are_refused() -> None:
    fixed = np.arange(3)
    fixed.flags.writeable = False
    for wrong in (fixed, memoryview(b"abc")):
        with pytest.raises(ValueError, match="read-only"):
            wipe(wrong)


def test_a_hardened_process_leaves_no_core() -> None:
    script = (
        "import resource; from sketchstream.privacy.hygiene import harden; print(harden()); "
        "print(resource.getrlimit(resource.RLIMIT_CORE))"
    )
    out = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert "Hardened(undumpable=True, no_core=True)" in out
    assert "(0, 0)" in out


def test_hardening_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError

    monkeypatch.setattr(hygiene.resource, "setrlimit", refuse)
    monkeypatch.setattr(hygiene.ctypes, "CDLL", refuse)
    assert harden() == hygiene.Hardened(undumpable=False, no_core=False)


def test_a_forked_child_is_another_process() -> None:
    home = process()
    require_home(home, "update")
    script = (
        "import os; from sketchstream.privacy.hygiene import process, require_home\n"
        "from sketchstream.errors import SealedError\n"
        "home = process(); child = os.fork()\n"
        "if child == 0:\n"
        "    try: require_home(home, 'update')\n"
        "    except SealedError: os._exit(7)\n"
        "    os._exit(0)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    out = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert out.strip() == "7"
    with pytest.raises(SealedError, match="forked"):
        require_home((home[0], home[1] + 1), "update")
