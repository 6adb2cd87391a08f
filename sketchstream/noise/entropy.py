"""The source of random words: an AES-256-CTR keystream under a key that is used once and erased.

In: 32 bytes from the operating system. Out: uniform 32-bit words, written into the caller's buffer.
Touches: /dev/urandom.
Source: NIST SP 800-38A (CTR mode); Bernstein, "Fast-key-erasure random-number generators", 2017.

The key lives in one bytearray, which is overwritten as soon as the cipher has expanded it; the expanded key lives in
the cipher library's context, which that library cleanses when the context is freed. This is best effort: copies in
processor registers, in swap or in a core dump are out of this module's reach.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Protocol, Self

import numpy as np
import numpy.typing as npt

from sketchstream.forks import process

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import AEADEncryptionContext, CipherContext

Words = npt.NDArray[np.uint32]

REKEY_BYTES = 1 << 30
"""Most bytes drawn under one key. At this length the keystream and true randomness differ by less than 2^-76 for any
test (PRP/PRF switching lemma: q(q-1)/2^129 with q = 2^26 blocks)."""

_KEY_BYTES = 32
_COUNTER = bytes(16)
_ZEROS = bytes(1 << 18)
"""What is encrypted: the keystream itself comes out. Encrypting zeros piece by piece beats clearing the buffer."""


class WordSource(Protocol):
    """Anything that fills a buffer with independent uniform 32-bit words."""

    def fill(self, words: Words) -> None:
        """Overwrite every element of `words`, a C-contiguous uint32 array of any length."""


class Keystream:
    """Uniform words from AES-256-CTR, under keys that are used for nothing else.

    A new key is drawn at the start, after every `REKEY_BYTES` and in a forked child: parent and child never share a
    word. Cannot be pickled or copied. Not for use by two threads at once. Use as a context manager, or call
    `erase()`, to drop the key as soon as the words are drawn.
    """

    __slots__ = ("_context", "_home", "_left")

    def __init__(self) -> None:
        self._context: CipherContext | AEADEncryptionContext | None = None
        self._home = process()
        self._left = 0

    def fill(self, words: Words) -> None:
        """Overwrite `words` (C-contiguous uint32) with fresh uniform words."""
        octets = words.reshape(-1).view(np.uint8).data
        while len(octets):
            if self._context is None or self._left <= 0 or self._home != process():
                self._rekey()
            assert self._context is not None
            size = min(len(octets), len(_ZEROS), self._left)
            self._context.update_into(_ZEROS[:size], octets)
            self._left -= size
            octets = octets[size:]

    def erase(self) -> None:
        """Forget the key. The next `fill`, if there is one, starts under a new one."""
        self._context = None
        self._left = 0

    def _rekey(self) -> None:
        """Start under a fresh key, and overwrite our copy of it."""
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self.erase()
        secret = fresh_key()
        try:
            self._context = Cipher(algorithms.AES256(secret), modes.CTR(_COUNTER)).encryptor()
        finally:
            secret[:] = bytes(_KEY_BYTES)
        self._left = REKEY_BYTES
        self._home = process()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.erase()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Keystream cannot be pickled or copied: its words must never be drawn twice")

    def __repr__(self) -> str:
        return "Keystream(AES-256-CTR)"


@contextmanager
def words_of(entropy: WordSource | None) -> Iterator[WordSource]:
    """The given source, as tests have it, or a keystream under a key that is erased at the end."""
    if entropy is not None:
        yield entropy
        return
    with Keystream() as source:
        yield source


def word_by_word(source: WordSource) -> Callable[[], int]:
    """A function that gives one more word of a source."""
    word: Words = np.empty(1, np.uint32)

    def draw() -> int:
        source.fill(word)
        return int(word[0])

    return draw


def fresh_key() -> bytearray:
    """32 bytes from the operating system in a buffer that the caller can overwrite."""
    os.urandom(1)  # waits until the operating system's generator is seeded, which reading the device does not
    secret = bytearray(_KEY_BYTES)
    try:
        with open("/dev/urandom", "rb", buffering=0) as device:  # noqa: PTH123 - unbuffered, no copy is left behind
            got = device.readinto(secret)
    except OSError:
        got = 0
    if got != _KEY_BYTES:  # no device (a bare chroot) or a short read: a copy stays on the heap until it is reused
        secret[:] = os.urandom(_KEY_BYTES)
    return secret
