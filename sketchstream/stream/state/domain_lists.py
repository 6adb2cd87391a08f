"""The lists of items that a snapshot carries: windows finish under their own list after a change of configuration.

In: the specs of a partition's open and future windows; the blobs of a restored snapshot. Out: names of blobs, their
bytes; lists of items. Touches: nothing.

A window's blob and a spec in a manifest hold only the digest of a listed domain. Without the list, a removed sketch
could not count what still belongs to its open windows. Each list is one blob, written once and kept by later snapshots.
It is encrypted under the hash key, which every listed domain has: not every store encrypts its blobs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from sketchstream.errors import DataLossError
from sketchstream.items.item_lists import pack_items, unpack_items
from sketchstream.items.key import Key
from sketchstream.kinds.interface import Spec
from sketchstream.spec import ClosedDomain, Item
from sketchstream.stream.interfaces import BytesOrView
from sketchstream.stream.state.outbox import new_name

NONCE_BYTES = 12
"""The length that NIST SP 800-38D, section 8.2, recommends for nonces of AES-GCM."""


class DomainLists:
    """Which lists the snapshots of a partition hold, by digest, and in which blobs.

    Args:
        key: hash key of the sketches; None: they have no lists.
        blobs: digest -> name of the blob.
    """

    def __init__(self, key: Key | None, blobs: Mapping[str, str] | None = None) -> None:
        self._key = key
        self._blobs = dict(blobs or {})

    def capture(self, specs: Iterable[Spec]) -> tuple[dict[str, str], dict[str, bytes]]:
        """Note that a snapshot holds the lists of these specs.

        Returns:
            Digest -> blob of every list, for the manifest; and the blobs that no earlier snapshot holds, by name.
        """
        names: dict[str, str] = {}
        fresh: dict[str, bytes] = {}
        for spec in specs:
            domain = spec.domain
            if self._key is None or not isinstance(domain, ClosedDomain) or domain.items is None:
                continue
            digest = domain.items_digest.hex()
            if digest in names:
                continue
            saved = self._blobs.get(digest)
            names[digest] = saved or new_name()
            if saved is None:
                fresh[names[digest]] = _encrypt_list(pack_items(domain.items), digest, self._key)
        self._blobs = names
        return names, fresh

    def forget(self) -> None:
        """Forget that snapshots hold lists: the next one contains all of them."""
        self._blobs.clear()


class SavedLists:
    """The lists of a restored snapshot, each read when it is asked for.

    Args:
        key: hash key of the sketches.
        names: digest -> blob; empty for snapshots of older releases.
        blobs: blobs of the snapshot.
    """

    def __init__(self, key: Key | None, names: Mapping[str, str], blobs: Mapping[str, BytesOrView]) -> None:
        self._key, self._names, self._blobs = key, names, blobs
        self._known: dict[str, list[Item]] = {}

    def __iter__(self) -> Iterator[list[Item]]:
        for digest, name in self._names.items():
            if digest not in self._known:
                self._known[digest] = unpack_items(_decrypt_list(bytes(self._blobs[name]), digest, self._key))
            yield self._known[digest]


def _encrypt_list(data: bytes, digest: str, key: Key) -> bytes:
    """A nonce, and the list encrypted with AES-256-GCM, bound to its digest."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(key.list_key()).encrypt(nonce, data, digest.encode())


def _decrypt_list(data: bytes, digest: str, key: Key | None) -> bytes:
    """The list that `_encrypt_list` wrote.

    Raises:
        DataLossError: it was altered, or encrypted under another key.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        if key is not None:
            return AESGCM(key.list_key()).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], digest.encode())
    except InvalidTag:
        pass
    raise DataLossError(
        "a list of items in a snapshot does not open with the present hash key; put the former key back"
    )
