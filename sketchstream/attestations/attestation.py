"""Signed statements about publications: an in-toto Statement in a DSSE envelope, with an ed25519 signature.

In: published files, a signing key. Out: JSON that `verify_attestation.py` checks without this package, key files.
Touches: the files it is given.
Source: in-toto Statement v1; DSSE v1 (pre-authentication encoding).
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sketchstream import published
from sketchstream.attestations.verify_attestation import (
    PAYLOAD,
    PREDICATE,
    STATEMENT,
    Refused,
    facts,
    headers,
    require_noise,
    require_one_publication,
)
from sketchstream.errors import FormatError, StoreError
from sketchstream.files import PUBLIC, SECRET, naming_errors, require_private, write_durably
from sketchstream.stream.windows.calendar import iso

if TYPE_CHECKING:
    from sketchstream.privacy.deployments.deployment import Deployment
    from sketchstream.stream.interfaces import Frontier, SealedEntry

Span = tuple[int | None, int | None]


def make_key(path: Path) -> Path:
    """Write a new signing key, mode 0600, and its public key next to it.

    Args:
        path: path of the private key, PEM; the public one has ".pub" behind it.

    Returns:
        The path of the public key.

    Raises:
        StoreError: one of the files exists, or cannot be written.
    """
    public = path.with_name(path.name + ".pub")
    if public.exists():
        raise StoreError(f"{public} exists and is not overwritten: choose another path")
    key = Ed25519PrivateKey.generate()
    encoding, nothing = serialization.Encoding.PEM, serialization.NoEncryption()
    write_durably(path, key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, nothing), mode=SECRET)
    pem = key.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)
    write_durably(public, pem, mode=PUBLIC)
    return public


def load_key(path: Path) -> Ed25519PrivateKey:
    """Read a signing key.

    Raises:
        StoreError: the file is missing, open to other users, or holds no ed25519 key in PEM.
    """
    try:
        mode, data = path.stat().st_mode & 0o777, path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path}: {(error.strerror or type(error).__name__).lower()}") from None
    require_private(mode, f"the signing key {path}", f"run `chmod 600 {path}`")
    try:
        key = serialization.load_pem_private_key(data, None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise StoreError(
            f"{path} holds no ed25519 private key in PEM without a password; `sketchstream keygen --signing` makes one"
        )
    return key


def statement_of(bodies: Mapping[str, bytes], deployment: Mapping[str, object] | None = None) -> dict[str, object]:
    """The statement of these published files: digests, specs, ledgers, places, losses, version of the software.

    Args:
        bodies: bytes by name of the file.
        deployment: further statements about the whole deployment, see `of_deployment`.

    Raises:
        FormatError: bytes that are not published, or that the small verifier would refuse.
    """
    sketch_headers = []
    for name, data in sorted(bodies.items()):
        with naming_errors(name):
            published.read_published(data)
            try:
                in_bytes = list(headers(data))
                for header in in_bytes:
                    require_noise(header)
            except Refused as error:
                raise FormatError(str(error)) from None
            sketch_headers += in_bytes
    try:
        require_one_publication(sketch_headers)
    except Refused as error:
        raise FormatError(f"these files cannot be attested together: {error}") from None
    return {
        "_type": STATEMENT,
        "subject": [
            {"name": name, "digest": {"sha256": hashlib.sha256(data).hexdigest()}}
            for name, data in sorted(bodies.items())
        ],
        "predicateType": PREDICATE,
        "predicate": {
            "software": {"name": "sketchstream", "version": version("sketchstream")},
            "sketches": [facts(header) for header in sketch_headers],
            **({} if deployment is None else {"deployment": dict(deployment)}),
        },
    }


def of_deployment(ledger: Deployment, frontiers: Sequence[Frontier], stretch: Span) -> dict[str, object]:
    """What is stated of a deployment besides its bodies: how far it is published, and all losses together.

    The small verifier does not compute these totals, which need more of the rules than it has.

    Args:
        ledger: ledger of everything that was published, instalments included.
        frontiers: the newest one of each sketch, revision and partition.
        stretch: from and to which time windows are stated, ms; None: all.
    """
    return {
        "from": stretch[0],
        "to": stretch[1],
        "positions": [
            {
                "sketch": frontier.sketch,
                "revision": frontier.revision,
                "partition": frontier.partition,
                "published_through": frontier.published_through,
            }
            for frontier in sorted(
                frontiers, key=lambda frontier: (frontier.sketch, frontier.revision, frontier.partition)
            )
        ],
        "ledger": ledger.summary(),
    }


def body_names(entries: Iterable[SealedEntry]) -> dict[str, bytes]:
    """Bodies of a deployment by the names of their files, which say where they belong.

    Args:
        entries: sealed sketches of a topic or a folder; equal ones may repeat.
    """
    out: dict[str, bytes] = {}
    for entry in entries:
        begins = iso(entry.window[0]).replace(":", "")
        name = f"{entry.sketch}.r{entry.revision}.{begins}.p{entry.partition}.{entry.seal_id.hex()[:8]}.sealed"
        out[name] = entry.body
    return out


def sign(statement: Mapping[str, object], key: Ed25519PrivateKey) -> bytes:
    """The statement in a signed DSSE envelope, as JSON.

    Args:
        statement: see `statement_of`.
        key: the signer's private key.
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
