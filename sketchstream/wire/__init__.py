"""The byte format of sketches: `pack` writes one object, `unpack` reads it or says why not.

In: a header (plain data), an array, perhaps the key. Out: bytes, and back. Touches: nothing.
Source: docs/format.md describes every byte.
"""

from sketchstream.wire.envelope import (
    FORMAT_VERSION,
    HUFFMAN,
    PREFIX_BYTES,
    RAW,
    Streamed,
    Unfinished,
    aligned_memory,
    claimed_header,
    kind_of,
    noise_names,
    pack,
    unpack,
    unpack_header,
    version_of,
)
from sketchstream.wire.header import FIELDS, KINDS, REMEMBERED_BYTES, REMEMBERED_SPECS

__all__ = [
    "FIELDS",
    "FORMAT_VERSION",
    "HUFFMAN",
    "KINDS",
    "PREFIX_BYTES",
    "RAW",
    "REMEMBERED_BYTES",
    "REMEMBERED_SPECS",
    "Streamed",
    "Unfinished",
    "aligned_memory",
    "claimed_header",
    "kind_of",
    "noise_names",
    "pack",
    "unpack",
    "unpack_header",
    "version_of",
]
