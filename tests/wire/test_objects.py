"""Objects of a header are counted as they would be read, before they are."""

from __future__ import annotations

import resource
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.wire_samples import packed
from sketchstream import wire
from sketchstream.errors import FormatError
from sketchstream.wire import header, objects

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(max_size=300),
    st.binary(max_size=300),
    st.sampled_from(["x" * 70_000, b"y" * 70_000]),
    st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=40)),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=20), st.dictionaries(st.text(max_size=40), inner)),
    max_leaves=60,
)  # fmt: skip


def count(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(count, value.values()))
    return 1 + sum(map(count, value)) if isinstance(value, list) else 1


def with_header(body: bytes) -> bytes:
    """Bytes that say they begin with this header."""
    sample = packed("release-raw")
    return sample[:12] + len(body).to_bytes(4, "little") + sample[16:40] + body


@given(TREES)
def test_as_many_objects_are_counted_as_there_are(tree: Any) -> None:
    assert objects.objects(msgpack.packb(tree)) == count(tree)


@given(st.binary(max_size=400), st.integers(0, 50))
def test_any_bytes_can_be_counted(data: bytes, most: int) -> None:
    assert objects.objects(memoryview(data), most) <= min(len(data), most + 1)


@pytest.mark.parametrize("inner", [[], {}, {"": {}}, "", 0])
def test_a_header_of_small_objects_is_refused_before_it_is_read(inner: Any) -> None:
    body = msgpack.packb({"kind": "release", "spec": {"x": [[inner] * 60_000] * 30}})
    assert len(body) > objects.UNCOUNTED_BYTES
    data = with_header(body)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FormatError, match="values and names"):
        header.read(body)
    with pytest.raises(FormatError, match="values and names"):
        wire.claimed_header(data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000


def test_a_long_list_of_long_names_is_read() -> None:
    """What long headers are for: an open sketch of a listed domain."""
    body = msgpack.packb([f"{number:0200d}" for number in range(65_536)])
    assert len(body) > objects.UNCOUNTED_BYTES
    header.require_few_objects(body)


def test_a_header_longer_than_any_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of one text, which is few objects: whoever only asks what bytes claim to be gets the same refusal."""
    body = msgpack.packb({"kind": "release", "spec": "x" * header.MAX_HEADER_BYTES})
    data = with_header(body)
    for name in ("unpackb", "packb"):
        monkeypatch.setattr(msgpack, name, None)
    for read in (wire.claimed_header, wire.unpack_header):
        with pytest.raises(FormatError, match="a header has at most 67108864 bytes, found 67108"):
            read(data)
