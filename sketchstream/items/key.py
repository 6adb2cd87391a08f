"""The secret hash key, its file and its id.

In: 16 random bytes, or a key file. Out: `Key`. Touches: key files, when asked to save or load one.
Source: Aumasson & Bernstein 2012 (SipHash); RFC 7693 (BLAKE2b with key and personalisation).

A key determines the slot of each item. Its owner can test whether an item's slot moved between two copies of a
state, so it is a secret; only its id is ever written into sketches.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import re
import secrets
from typing import Literal, NoReturn, final, get_args

import numpy as np

from sketchstream.errors import KeyMismatchError, StoreError
from sketchstream.files import read_file, require_private, write_durably

TypeName = Literal["int", "str", "bytes"]
"""Name of the Python type of an item: 5, "5" and b"5" are three items."""
TYPE_NAMES: tuple[TypeName, ...] = get_args(TypeName)

KEY_BYTES = 16
ID_BYTES = 8
"""Bytes of a key of SipHash, and of the key's id, by which keys are told apart."""
_LINE = re.compile(rb"sketchstream-key-1 ([0-9a-f]{32}) ([0-9a-f]{16})\n?")
_MAX_KEY_FILE_BYTES = 200
"""Largest size of a key file in bytes; its line has 68."""


@final
class Key:
    """A 128-bit secret key: keys SipHash-2-4 for items, and BLAKE2b for the tag of sketches.

    Examples:
        >>> key = Key.generate()
        >>> len(key.id), key == Key(key.secret())
        (8, True)
    """

    __slots__ = ("_id", "_secret")

    def __init__(self, secret: bytes) -> None:
        if not isinstance(secret, bytes) or len(secret) != KEY_BYTES:
            raise KeyMismatchError(f"a hash key is {KEY_BYTES} bytes; generate one with Key.generate()")
        self._secret = secret
        self._id = hashlib.blake2b(key=secret, digest_size=ID_BYTES, person=b"sketchstream-id").digest()

    @classmethod
    def generate(cls) -> Key:
        """Generate a key from the operating system's entropy."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @property
    def id(self) -> bytes:
        """8 bytes that identify the key without revealing it."""
        return self._id

    def secret(self) -> bytes:
        """The 16 secret bytes; never log or print them, or store them with the data that they protect."""
        return self._secret

    def item_key(self, type_name: TypeName) -> tuple[np.uint64, np.uint64]:
        """The two words of the SipHash key for items of one type."""
        return self._words(b"sketch-" + type_name.encode())

    def _words(self, person: bytes) -> tuple[np.uint64, np.uint64]:
        """The two words of a key derived for one purpose."""
        sub = hashlib.blake2b(key=self._secret, digest_size=16, person=person).digest()
        return np.uint64(int.from_bytes(sub[:8], "little")), np.uint64(int.from_bytes(sub[8:], "little"))

    def ranking_key(self, type_name: TypeName) -> tuple[np.uint64, np.uint64]:
        """The two words of the SipHash key by which groups are ranked for items of one type.

        Independent of `item_key`: where an item is counted says nothing about its slot.
        """
        return self._words(b"sk-groups-" + type_name.encode())

    def tag_key(self) -> bytes:
        """The 32-byte key of the tag that proves who wrote a sketch's bytes."""
        return hashlib.blake2b(key=self._secret, digest_size=32, person=b"sketchstream-tag").digest()

    def list_key(self) -> bytes:
        """32 bytes that encrypt lists of items in snapshots, which nobody can read without the key."""
        return hashlib.blake2b(key=self._secret, digest_size=32, person=b"sketchstream-lst").digest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the key to a new file that only its owner can read.

        Raises:
            StoreError: the file exists already, or cannot be written.
        """
        line = f"sketchstream-key-1 {self._secret.hex()} {self._id.hex()}\n".encode()
        try:
            write_durably(path, line, step="key")
        except StoreError as error:
            if error.errno != errno.EEXIST:
                raise
            raise StoreError(f"{os.fspath(path)} exists; a key is never overwritten, choose another path") from None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Key:
        """Read a key file.

        Raises:
            StoreError: the file is missing, unreadable, or open to other users.
            KeyMismatchError: it is not a key file, or was altered.
            FormatError: this is not a path.
        """
        data, mode = read_file(path, _MAX_KEY_FILE_BYTES)
        name = os.fspath(path)
        require_private(mode, f"the key file {name}", "chmod 600 it")
        match = _LINE.fullmatch(data)
        if match is None:
            raise KeyMismatchError(f"{name} is not a key file; make one with Key.generate().save(path)")
        key = cls(bytes.fromhex(match[1].decode()))
        if key.id.hex().encode() != match[2]:
            raise KeyMismatchError(f"the key file {name} was altered: its key and its id do not fit together")
        return key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and hmac.compare_digest(self._secret, other._secret)

    def __hash__(self) -> int:
        return hash(self._id)

    def __repr__(self) -> str:
        return f"Key(id={self._id.hex()})"

    def __copy__(self) -> Key:
        return self

    def __deepcopy__(self, memo: object) -> Key:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a Key is never pickled; save it to a file and load it where it is needed")
