"""Secrets in memory and in snapshots: core dumps off, scratch overwritten, forks noticed, blobs sealed.

In: buffers, bytes. Out: ciphertext and its key; zeros. Touches: this process's dumpable flag and core limit.
Source: NIST SP 800-38D (GCM); Hoang, Reyhanitabar, Rogaway & Vizar, CRYPTO 2015 (STREAM: segments with an index and
a last-segment flag in the nonce); prctl(2), getrlimit(2).

All of it is best effort against somebody who reads this machine's memory: registers, swap, freed heap and a cipher
library's own copies are out of reach. `docs/guarantee.md` says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sketchstream.errors import ChecksumError, SealedError

KEY_BYTES = 32
SEGMENT = 1 << 24
"""Plaintext bytes of one segment; the cipher takes at most 2^31 - 1 at once."""
TAG = 16
_PR_SET_DUMPABLE = 4
_PR_GET_DUMPABLE = 3
_LENGTH = struct.Struct("<Q")
_NONCE = struct.Struct(">QI")

Buffer = bytearray | memoryview | npt.NDArray[Any]


@dataclass(frozen=True)
class Hardened:
    """What the operating system agreed to.

    Args:
        undumpable: no core dumps, and no other process of this user may read our memory.
        no_core: the core file size limit is 0, for children too.
    """

    undumpable: bool
    no_core: bool


def harden() -> Hardened:
    """Switch core dumps of this process off. Never raises: a worker runs on where a sandbox refuses."""
    no_core = undumpable = False
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        no_core = True
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL(None, use_errno=True)
            undumpable = libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 and libc.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) == 0
    return Hardened(undumpable, no_core)


def wipe(*buffers: Buffer) -> None:
    """Overwrite buffers with zeros, in place.

    Raises:
        ValueError: a buffer is read-only.
    """
    for buffer in buffers:
        if isinstance(buffer, np.ndarray):
            if not buffer.flags.writeable:
                msg = "a read-only array cannot be overwritten"
                raise ValueError(msg)
            buffer[...] = np.zeros((), buffer.dtype)
            continue
        view = memoryview(buffer).cast("B")
        if view.readonly:
            msg = "a read-only buffer cannot be overwritten"
            raise ValueError(msg)
        ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(view)), 0, len(view)) if len(view) else None


@contextlib.contextmanager
def wiped(*buffers: Buffer) -> Iterator[None]:
    """Within this block buffers hold secrets; at its end, however it ends, zeros."""
    try:
        yield
    finally:
        wipe(*buffers)


# Forks: a forked child holds a second copy of every open state. Two copies that both go on are two looks.

_forks = 0


def _forked() -> None:
    """One more fork between this process and the one that loaded the module."""
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)


def process() -> tuple[int, int]:
    """Identity of this process: differs in a forked child, also when a process number is used again."""
    return os.getpid(), _forks


def require_home(home: tuple[int, int], what: str) -> None:
    """Refuse to go on with an open state in a child that was forked after it was made.

    Args:
        home: `process()` at the time the state was made.
        what: the step that is refused.

    Raises:
        SealedError: in a forked child.
    """
    if process() != home:
        msg = (
            f"{what} is refused in a forked process: parent and child would both go on with one noise, and two such "
            "states together show exact counts; create the sketch in the process that uses it"
        )
        raise SealedError(msg)


# Blobs.


def sealed_size(size: int) -> int:
    """Bytes of the blob that `seal_blob` makes of `size` bytes: a function of the size alone."""
    total = size + _LENGTH.size
    return total + TAG * max(1, -(-total // SEGMENT))


def seal_blob(data: bytes | bytearray | memoryview, aad: bytes, *, size: int | None = None) -> tuple[bytes, bytearray]:
    """Encrypt one blob under a key of its own.

    Args:
        data: the plaintext.
        aad: public bytes that the blob is bound to (its name and place); `open_blob` needs the same.
        size: pad the plaintext with zeros to this many bytes, so that blobs of one kind have one size.

    Returns:
        The ciphertext, `sealed_size(size or len(data))` bytes, and its 32-byte key, which the caller stores
        elsewhere and then overwrites (`wipe`).

    Raises:
        ValueError: the data are longer than `size`.
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from sketchstream.noise.entropy import fresh_key

    view = memoryview(data).cast("B")
    width = len(view) if size is None else size
    if len(view) > width:
        msg = f"{len(view)} bytes do not fit into a blob of {width}"
        raise ValueError(msg)
    key = fresh_key()
    cipher = AESGCM(key)
    plain = bytearray(_LENGTH.size + width)
    with wiped(plain):
        _LENGTH.pack_into(plain, 0, len(view))
        plain[_LENGTH.size : _LENGTH.size + len(view)] = view
        pieces = [
            cipher.encrypt(
                _nonce(index, start + SEGMENT >= len(plain)), memoryview(plain)[start : start + SEGMENT], aad
            )
            for index, start in enumerate(range(0, len(plain), SEGMENT))
        ]
    return b"".join(pieces), key


def open_blob(blob: bytes | bytearray | memoryview, key: bytes | bytearray, aad: bytes) -> bytearray:
    """The plaintext of a blob that `seal_blob` made, in a buffer that the caller can overwrite.

    Raises:
        ChecksumError: another key, other public bytes, or altered, truncated or reordered ciphertext.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    view = memoryview(blob).cast("B")
    step = SEGMENT + TAG
    plain = bytearray()
    try:
        if len(key) != KEY_BYTES or len(view) < _LENGTH.size + TAG:
            raise InvalidTag
        cipher = AESGCM(bytes(key))
        for index, start in enumerate(range(0, len(view), step)):
            plain += cipher.decrypt(_nonce(index, start + step >= len(view)), bytes(view[start : start + step]), aad)
    except InvalidTag:
        wipe(plain)
        msg = "an encrypted blob does not open: it was altered, or its key or place is another one"
        raise ChecksumError(msg) from None
    (length,) = _LENGTH.unpack_from(plain)
    if length > len(plain) - _LENGTH.size:
        wipe(plain)
        msg = "an encrypted blob holds an impossible length"
        raise ChecksumError(msg)
    out = plain[_LENGTH.size : _LENGTH.size + length]
    wipe(plain)
    return out


def _nonce(index: int, last: bool) -> bytes:
    """12 bytes: the segment's index and whether it is the last. The key is used for one blob only."""
    return _NONCE.pack(index, int(last))
