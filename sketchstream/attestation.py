"""Signed statements of what was published: an in-toto Statement in a DSSE envelope, with an ed25519 signature.

In: published files, a signing key. Out: JSON that `verify_attestation.py` checks without this package, key files.
Touches: the files it is given.
Source: in-toto Statement v1; DSSE v1 (pre-authentication encoding).
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sketchstream import published
from sketchstream.errors import FormatError, StoreError
from sketchstream.files import PUBLIC, SECRET, named, require_private, write_durably
from sketchstream.verify_attestation import (
    PAYLOAD,
    PREDICATE,
    STATEMENT,
    Refused,
    facts,
    headers,
    require_noise,
    require_one_publication,
)


def make_key(path: Path) -> Path:
    """Write a new signing key, mode 0600, and its public key beside it.

    Args:
        path: of the private key, PEM; the public one has ".pub" behind it.

    Returns:
        The path of the public key.

    Raises:
        StoreError: one of the files exists, or cannot be written.
    """
    public = path.with_name(path.name + ".pub")
    if public.exists():
        msg = f"{public} exists and is not overwritten: choose another path"
        raise StoreError(msg)
    key = Ed25519PrivateKey.generate()
    encoding, nothing = serialization.Encoding.PEM, serialization.NoEncryption()
    write_durably(path, key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, nothing), mode=SECRET)
    shown = key.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)
    write_durably(public, shown, mode=PUBLIC)
    return public


def load_key(path: Path) -> Ed25519PrivateKey:
    """Read a signing key.

    Raises:
        StoreError: the file is missing, open to other users, or holds no ed25519 key in PEM.
    """
    try:
        mode, data = path.stat().st_mode & 0o777, path.read_bytes()
    except OSError as error:
        msg = f"{path}: {(error.strerror or type(error).__name__).lower()}"
        raise StoreError(msg) from None
    require_private(mode, f"the signing key {path}", f"run `chmod 600 {path}`")
    try:
        key = serialization.load_pem_private_key(data, None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        msg = (
            f"{path} holds no ed25519 private key in PEM without a password; `sketchstream keygen --signing` makes one"
        )
        raise StoreError(msg)
    return key


def state(bodies: Mapping[str, bytes]) -> dict[str, object]:
    """The statement of these published files: digests, specs, ledgers, places, losses, version of the software.

    Args:
        bodies: bytes by name of the file.

    Raises:
        FormatError: bytes that are not published, or that the small verifier would refuse.
    """
    found = []
    for name, data in sorted(bodies.items()):
        with named(name):
            published.read(data)
            try:
                held = list(headers(data))
                for header in held:
                    require_noise(header)
            except Refused as error:
                raise FormatError(str(error)) from None
            found += held
    try:
        require_one_publication(found)
    except Refused as error:
        msg = f"these files cannot be attested together: {error}"
        raise FormatError(msg) from None
    return {
        "_type": STATEMENT,
        "subject": [
            {"name": name, "digest": {"sha256": hashlib.sha256(data).hexdigest()}}
            for name, data in sorted(bodies.items())
        ],
        "predicateType": PREDICATE,
        "predicate": {
            "software": {"name": "sketchstream", "version": version("sketchstream")},
            "sketches": [facts(header) for header in found],
        },
    }


def sign(statement: Mapping[str, object], key: Ed25519PrivateKey) -> bytes:
    """The statement in a signed DSSE envelope, as JSON.

    Args:
        statement: see `state`.
        key: of the signer.
    """
    payload, kind = json.dumps(statement, sort_keys=True).encode(), PAYLOAD.encode()
    message = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    envelope = {
        "payloadType": PAYLOAD,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": hashlib.sha256(raw).hexdigest(), "sig": base64.b64encode(key.sign(message)).decode()}],
    }
    return json.dumps(envelope, indent=1).encode() + os.linesep.encode()
