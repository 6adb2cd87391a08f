"""The pointer in the metadata of a committed offset: where its snapshot is, and how to decrypt it.

In: plain values. Out: a line of text of less than 1 KiB, and back. Touches: nothing.

The pointer holds the random key of one manifest. Whoever may read both the group's offsets and the state topic can
therefore read the state; docs/kafka.md says what that means.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field

from sketchstream.errors import DataLossError
from sketchstream.stream.windows.calendar import NO_TIME

MARK = "sketchstream"
FORMAT = 2
"""The format that is written. A release that knows only 1 refuses it: it cannot read snapshots of byte format 2."""
NAMING = 2
"""The rule of the transactional ids that are written now."""
MAX_POINTER_BYTES = 1024
"""Most bytes of a pointer: brokers accept 4,096 with an offset by default (`offset.metadata.max.bytes`)."""


@dataclass(frozen=True)
class Pointer:
    """Says where the committed state of one partition is.

    Args:
        cluster_id: id of the cluster that it was written in.
        topic_id: id of the input topic.
        state_id: id of the state topic.
        revision: revision of the sketches; `reset` counts it up.
        fingerprint: fingerprint of the sketches configured when it was written.
        manifest: offset of the manifest's first record in the state topic; -1: no snapshot yet, start at the
            committed position with nothing.
        chunks: records of the manifest.
        snapshot_id: 16 random bytes, part of what the manifest is bound to.
        key: encryption key of the manifest, 32 bytes.
        partial: without a snapshot: records of an earlier topic are lost, so the first windows lack some.
        begins: see `sketchstream.stream.interfaces.Snapshot`.
        newest: see `sketchstream.stream.interfaces.Snapshot`.
        naming: rule of the transactional id it was written under; 1: two applications could have the same one.
    """

    cluster_id: str
    topic_id: str
    state_id: str
    revision: int = 0
    fingerprint: bytes = field(default=b"", repr=False)
    manifest: int = -1
    chunks: int = 0
    snapshot_id: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    partial: bool = False
    naming: int = NAMING
    begins: int = NO_TIME
    newest: int = NO_TIME

    def to_text(self) -> str:
        """The offset's metadata."""
        text = json.dumps(
            {
                "app": MARK,
                "v": FORMAT,
                "cluster": self.cluster_id,
                "topic": self.topic_id,
                "state": self.state_id,
                "rev": self.revision,
                "spec": _encode(self.fingerprint),
                "at": self.manifest,
                "n": self.chunks,
                "id": _encode(self.snapshot_id),
                "key": _encode(self.key),
                "names": self.naming,
                **({"partial": True} if self.partial else {}),
                **{name: at for name, at in (("begins", self.begins), ("newest", self.newest)) if at != NO_TIME},
            },
            separators=(",", ":"),
        )
        assert len(text) < MAX_POINTER_BYTES
        return text

    @classmethod
    def from_text(cls, text: str) -> Pointer | None:
        """Parse a metadata text; None if it is not a pointer.

        Raises:
            DataLossError: a newer release wrote it.
        """
        if not text.startswith('{"app":"' + MARK + '"'):
            return None
        try:
            fields = json.loads(text)
            if fields["v"] not in (1, FORMAT):
                raise DataLossError(
                    f"the committed offset was written by another release (pointer format {int(fields['v'])}, this one "
                    f"knows 1 to {FORMAT}): run that release, or `sketchstream reset`"
                )
            return cls(
                cluster_id=str(fields["cluster"]),
                topic_id=str(fields["topic"]),
                state_id=str(fields["state"]),
                revision=int(fields["rev"]),
                fingerprint=_decode(fields["spec"]),
                manifest=int(fields["at"]),
                chunks=int(fields["n"]),
                snapshot_id=_decode(fields["id"]),
                key=_decode(fields["key"]),
                partial=bool(fields.get("partial", False)),
                naming=int(fields.get("names", 1)),
                begins=int(fields.get("begins", NO_TIME)),
                newest=int(fields.get("newest", NO_TIME)),
            )
        except (ValueError, KeyError, TypeError):
            return None


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, TypeError) as error:
        raise ValueError from error
