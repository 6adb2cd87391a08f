"""The byte format: golden bytes, round trips, and hostile input, which is always an error of our tree."""

from __future__ import annotations

import hashlib
import resource
import struct
import subprocess
import sys
import time
import tracemalloc
import zlib
from pathlib import Path

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.wire_samples import GOLDEN, KEY, SAMPLES, packed
from sketchstream import wire
from sketchstream.errors import ChecksumError, FormatError, KeyMismatchError, TruncatedError, VersionError
from sketchstream.items.key import Key
from sketchstream.wire import codec, envelope

CORPUS = Path(__file__).parent / "corpus"
OTHER = Key(bytes(16))
PLAIN = {"kind": "release", "spec": {}}
PREFIX = 40


def checksum(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=32, person=b"sketchstream-sum").digest()


def resealed(data: bytes) -> bytes:
    """Altered bytes with a right checksum, as someone without the key could make them."""
    return data[:-32] + checksum(data[:-32])


def enveloped(
    head: bytes, body: bytes = b"", *, codec_id: int = 0, code: int = 0, ndim: int = 0, rows: int = 0, columns: int = 0
) -> bytes:
    """Any header and body in an envelope that is right in itself."""
    prefix = struct.pack(
        "<4sHBBBBHIQQQ", b"\xc1SKS", 1, codec_id, 0, code, ndim, 0, len(head), rows, columns, len(body)
    )
    return prefix + head + body + checksum(prefix + head + body)


def refused(data: bytes, key: Key | None = None) -> FormatError | KeyMismatchError:
    with pytest.raises((FormatError, KeyMismatchError)) as caught:
        wire.unpack(data, key)
    return caught.value


@pytest.mark.parametrize("name", SAMPLES)
def test_golden_bytes_are_read_as_what_they_were(name):
    header, body, codec_id, tagged = SAMPLES[name]
    data = (GOLDEN / f"wire-{name}.bin").read_bytes()
    for key in (None, KEY):
        found, values = wire.unpack(data, key)
        assert found == ({**header, "key_id": KEY.id} if tagged else header)
        if body is None:
            assert values is None
        else:
            assert values.dtype == body.dtype
            assert values.shape == body.shape
            assert np.array_equal(values, body)
            assert values.flags.writeable
    if codec_id == wire.RAW:
        assert packed(name) == data, "raw bodies have one way to be written"


def test_every_kind_of_this_version_has_golden_bytes():
    kinds = {wire.unpack(path.read_bytes())[0]["kind"] for path in GOLDEN.parent.glob("v*/*.bin")}
    assert kinds >= set(wire.KINDS)
    assert {path.stem for path in GOLDEN.glob("wire-*.bin")} == {f"wire-{name}" for name in SAMPLES}


def test_a_second_process_reads_what_this_one_wrote(tmp_path):
    path = tmp_path / "s"
    path.write_bytes(packed("release-levels-huffman"))
    code = (
        "import sys\nfrom sketchstream import wire\nfrom sketchstream.items.key import Key\n"
        f"header, body = wire.unpack(open({str(path)!r}, 'rb').read(), Key(bytes(range(16))))\n"
        "assert 'numba' not in sys.modules\n"
        "print(header['kind'], body.shape, int(body.sum()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["release", "(4,", "50)", str(SAMPLES["release-levels-huffman"][1].sum())]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_truncation_and_every_extension_is_refused(name):
    data = packed(name)
    step = 1 if len(data) < 1000 else 61
    for length in range(0, len(data), step):
        error = refused(data[:length])
        assert isinstance(error, TruncatedError)
    for extra in (b"\0", b"x" * 40, data):
        assert isinstance(refused(data + extra), TruncatedError)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_flipped_bit_is_refused_without_a_key(name):
    data = packed(name)
    step = 1 if len(data) < 1000 else 61
    for at in range(0, len(data), step):
        for bit in range(8):
            altered = bytearray(data)
            altered[at] ^= 1 << bit
            refused(bytes(altered))


@pytest.mark.statistics
@pytest.mark.parametrize("name", SAMPLES)
def test_every_altered_byte_under_a_right_checksum_is_our_error_or_a_valid_object(name):
    data = packed(name)
    step = 1 if len(data) < 1000 else 61
    for at in range(0, len(data) - 32, step):
        for value in (0, data[at] ^ 1, data[at] ^ 0x80, 0xFF):
            altered = bytearray(data)
            altered[at] = value
            made = resealed(bytes(altered))
            try:
                header, body = wire.unpack(made)
            except (FormatError, KeyMismatchError):
                continue
            again = wire.pack(header, body, made[6])
            if made[6] == wire.RAW and not made[7]:
                assert again == made


@pytest.mark.parametrize("name", [name for name, sample in SAMPLES.items() if sample[3]])
def test_with_the_key_nobody_else_can_alter_a_byte(name):
    data = packed(name)
    for at in range(PREFIX, len(data) - 32):
        altered = bytearray(data)
        altered[at] ^= 1
        refused(resealed(bytes(altered)), KEY)


def test_bytes_of_another_key_are_refused_by_name():
    error = refused(packed("sketch-open-int32"), OTHER)
    assert isinstance(error, KeyMismatchError)
    assert KEY.id.hex() in str(error)
    assert OTHER.id.hex() in str(error)
    with pytest.raises(KeyMismatchError):
        wire.pack({**PLAIN, "key_id": KEY.id}, None, 0, OTHER)


def test_an_open_sketch_that_names_a_key_must_have_its_tag():
    header, body, _, _ = SAMPLES["sketch-open-int32"]
    stripped = wire.pack({**header, "key_id": KEY.id}, body)
    assert "tag" in str(refused(stripped, KEY))
    assert "tag" in str(refused(stripped))


def test_a_newer_version_is_told_from_an_altered_one():
    data = bytearray(packed("release-raw"))
    data[4] = wire.FORMAT_VERSION + 1
    error = refused(resealed(bytes(data)))
    assert isinstance(error, VersionError)
    assert f"version {wire.FORMAT_VERSION + 1}" in str(error)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\xc1SK", b"PK\x03\x04", bytes(1000), b"{}" * 100, b"\x80" * 100])
def test_other_files_are_not_sketches(data):
    refused(data)


@pytest.mark.parametrize("data", ["text", None, 5, [1], np.zeros((4, 4))[::2, ::2]])
def test_what_is_not_bytes_is_refused(data):
    with pytest.raises(FormatError, match="bytes"):
        wire.unpack(data)


def test_views_of_bytes_are_read():
    data = packed("release-raw")
    for form in (bytearray(data), memoryview(data), memoryview(b"x" + data)[1:]):
        assert wire.unpack(form)[0] == wire.unpack(data)[0]


def test_the_first_byte_is_no_msgpack():
    with pytest.raises(msgpack.exceptions.UnpackException):
        msgpack.unpackb(packed("release-raw")[:1])


def test_an_open_state_has_one_size_whatever_its_counters():
    header, body, _, _ = SAMPLES["sketch-open-int32"]
    sizes = {len(wire.pack(header, np.full_like(body, value), wire.RAW, KEY)) for value in (0, -1, 1 << 30)}
    assert len(sizes) == 1
    with pytest.raises(FormatError, match="codec"):
        wire.pack(header, body, wire.HUFFMAN)
    compressed = bytearray(wire.pack({**header, "kind": "sealed-state"}, body, wire.HUFFMAN))
    made = compressed.replace(b"\xacsealed-state", b"\xa6sketch" + b"\x00" * 6)
    refused(resealed(bytes(made)))


HUGE = (1 << 64) - 1


@pytest.mark.parametrize("field", ["head", "rows", "columns", "length", "both"])
@pytest.mark.parametrize("value", [1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1, HUGE])
def test_absurd_sizes_are_refused_before_anything_is_allocated(field, value):
    for name in ("release-raw", "sealed-state-huffman", "stack-empty"):
        data = bytearray(packed(name))
        at = {"head": (12, "<I"), "rows": (16, "<Q"), "columns": (24, "<Q"), "length": (32, "<Q"), "both": (16, "<Q")}[
            field
        ]
        struct.pack_into(at[1], data, at[0], min(value, (1 << 32) - 1) if field == "head" else value)
        if field == "both":
            data[9] = 2
            struct.pack_into("<Q", data, 24, value)
        tracemalloc.start()
        refused(resealed(bytes(data)))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1 << 20


def test_a_small_body_cannot_unfold_into_a_large_array():
    """A deflate bomb: 100 MB of zero tokens in 100 kB; our coding never takes less than a bit for a token."""
    squeezed = zlib.compressobj(9, zlib.DEFLATED, -15)
    n = 100 << 20
    main = squeezed.compress(bytes(n)) + squeezed.flush()
    body = struct.pack("<B7xQQQ", 0, len(main), 0, 2) + main + b"\x03\x00"
    head = wire.pack(PLAIN)[PREFIX:-32]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused(enveloped(head, body, codec_id=1, code=3, ndim=1, rows=1, columns=n))
    inside = struct.pack("<B7xQQQ", 0, len(main), 0, 2) + main + b"\x03\x00"
    refused(enveloped(head, inside, codec_id=1, code=3, ndim=1, rows=1, columns=1000))
    escapes = struct.pack("<B7xQQQ", 0, 2, 1, len(main)) + b"\x03\x00" + main
    refused(enveloped(head, escapes, codec_id=1, code=3, ndim=1, rows=1, columns=1))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def _nested(depth: int, opening: bytes, inner: bytes = b"\x01") -> bytes:
    return b"\x82\xa4kind\xa7release\xa4spec\x81\xa1x" + opening * depth + inner


HOSTILE_HEADERS = {
    "empty": b"",
    "no map": b"\x01",
    "array": b"\x91\x01",
    "deep arrays": _nested(100_000, b"\x91"),
    "deep maps": _nested(100_000, b"\x81\xa1x"),
    "just too deep": _nested(1000, b"\x91"),
    "a map that promises 2^32 entries": b"\xdf\xff\xff\xff\xff",
    "an array that promises 2^32 entries": _nested(1, b"\xdd\xff\xff\xff\xff"),
    "text that promises 2^32 bytes": _nested(0, b"", b"\xdb\xff\xff\xff\xff"),
    "an extension type": _nested(0, b"", b"\xd4\x01\x00"),
    "a timestamp": _nested(0, b"", b"\xd6\xff\x00\x00\x00\x00"),
    "a float": _nested(0, b"", b"\xcb" + struct.pack(">d", 1.0)),
    "a broken text": _nested(0, b"", b"\xa1\xff"),
    "a name twice": b"\x83\xa4kind\xa7release\xa4spec\x80\xa4spec\x80",
    "names out of order": b"\x82\xa4spec\x80\xa4kind\xa7release",
    "a long integer": _nested(0, b"", b"\xcf" + bytes(7) + b"\x01"),
    "a number as a name": b"\x82\xa4kind\xa7release\x01\x80",
    "an unknown kind": b"\x82\xa4kind\xa5other\xa4spec\x80",
    "no kind": b"\x81\xa4spec\x80",
    "no spec": b"\x81\xa4kind\xa7release",
    "trailing bytes": b"\x82\xa4kind\xa7release\xa4spec\x80\x00",
    "cut off": b"\x82\xa4kind\xa7release\xa4spec",
}


@pytest.mark.parametrize("name", HOSTILE_HEADERS)
def test_hostile_headers_are_refused_quickly(name):
    start = time.process_time()
    refused(enveloped(HOSTILE_HEADERS[name]))
    assert time.process_time() - start < 5, "not a measurement: a hang"


BAD_FIELDS = [
    ("secret", b"x"),
    ("seed", 5),
    ("items", [1]),
    ("key_id", b"short"),
    ("key_id", "01234567"),
    ("cost", 0.5),
    ("cost", "0.5"),
    ("cost", "2/4"),
    ("cost", "-1"),
    ("cost", "1e999999999"),
    ("cost", "1" * 5000),
    ("cost", "\u0661"),
    ("cost", "1/0"),
    ("window", [5, 5]),
    ("window", [5]),
    ("window", [0, 1 << 60]),
    ("window", [0.0, 1.0]),
    ("partition", -1),
    ("partition", True),
    ("partitions_open", 0),
    ("revision", "1"),
    ("slots", 0),
    ("slots", 1 << 50),
    ("name", "x" * 5000),
    ("name", 5),
    ("seal_id", bytes(15)),
    ("layers", [{"law": "x"}]),
    ("layers", [{"law": "x", "lineage": bytes(15)}]),
    ("layers", [{"law": "x", "lineage": bytes(16), "noise": 5}]),
    ("layers", {"law": "x"}),
    ("spec", [1]),
    ("spec", {"epsilon": 1.0}),
    ("spec", {5: 5}),
    ("spec", {"x": 1 << 70}),
    ("spec", {"x": object()}),
    ("spec", {"x": {"y": {1, 2}}}),
]


@pytest.mark.parametrize(
    ("field", "value"), BAD_FIELDS, ids=[f"{n}-{field}" for n, (field, _) in enumerate(BAD_FIELDS)]
)
def test_fields_that_are_not_ours_or_not_as_they_should_be_are_never_written(field, value):
    with pytest.raises(FormatError):
        wire.pack({**PLAIN, field: value})


@pytest.mark.parametrize(
    "body", [np.zeros(3), np.zeros(3, np.uint32), np.zeros((1, 1, 1), np.int32), np.array(5), np.zeros(3, bool)]
)
def test_bodies_of_other_types_are_never_written(body):
    with pytest.raises(FormatError):
        wire.pack(PLAIN, body)


def test_other_codecs_are_never_written():
    for codec_id in (2, -1, 255):
        with pytest.raises(FormatError):
            wire.pack(PLAIN, np.zeros(3, np.int32), codec_id)
    with pytest.raises(FormatError):
        wire.pack(PLAIN, None, wire.HUFFMAN)
    with pytest.raises(FormatError):
        wire.pack({"kind": "stack", "spec": {}}, np.zeros(3, np.uint8), wire.HUFFMAN)


DTYPES = st.sampled_from([np.int16, np.int32, np.int64])


@st.composite
def arrays(draw):
    dtype = np.dtype(draw(DTYPES))
    limits = np.iinfo(dtype)
    value = st.one_of(st.integers(-3, 3), st.integers(-300, 300), st.integers(int(limits.min), int(limits.max)))
    return np.array(draw(st.lists(value, max_size=200)), dtype)


@given(arrays(), st.sampled_from([wire.RAW, wire.HUFFMAN]), st.booleans())
@settings(max_examples=200)
def test_arrays_come_back_as_they_went_in(values, codec_id, big_endian):
    given_values = values.astype(values.dtype.newbyteorder(">")) if big_endian else values
    header, back = wire.unpack(wire.pack(PLAIN, given_values, codec_id))
    assert header == PLAIN
    assert back.dtype == values.dtype
    assert np.array_equal(back, values)


@pytest.mark.parametrize(
    "n", [0, 1, 8191, 8192, 8193, codec._BLOCK - 1, codec._BLOCK, codec._BLOCK + 1, 3 * codec._BLOCK + 5]
)
@pytest.mark.parametrize("spread", [0, 1, 30, 4000, 10**6])
def test_arrays_of_every_length_and_spread_come_back(n, spread):
    values = np.random.default_rng([n, spread]).integers(-spread, spread, n, endpoint=True).astype(np.int32)
    assert np.array_equal(wire.unpack(wire.pack(PLAIN, values, wire.HUFFMAN))[1], values)


def test_two_dimensions_and_views_come_back():
    values = np.arange(24, dtype=np.int64).reshape(4, 6)
    for form in (values, values.T, values[::2], values[:, ::3], values[:0]):
        for codec_id in (wire.RAW, wire.HUFFMAN):
            back = wire.unpack(wire.pack(PLAIN, form, codec_id))[1]
            assert back.shape == form.shape
            assert np.array_equal(back, form)


@given(st.binary(max_size=200), st.integers(0, 300), DTYPES)
@settings(max_examples=300)
def test_any_body_is_an_array_or_our_error(body, n, dtype):
    try:
        out = codec.decode(memoryview(body), n, np.dtype(dtype))
    except FormatError:
        return
    assert out.shape == (n,)


@given(st.lists(st.integers(0, (1 << 64) - 1), max_size=50))
def test_varints_come_back_and_have_one_form(values):
    data = codec._varints(np.array(values, np.uint64))
    assert codec._read_varints(data, len(values)).tolist() == values
    with pytest.raises(FormatError):
        codec._read_varints(data + b"\x80", len(values))
    with pytest.raises(FormatError):
        codec._read_varints(data, len(values) + 1)


@pytest.mark.parametrize("data", [b"\x80\x00", b"\xff" * 9 + b"\x02", b"\xff" * 10 + b"\x01", b"\x80" * 9 + b"\x00"])
def test_varints_too_long_or_too_large_are_refused(data):
    with pytest.raises(FormatError):
        codec._read_varints(data, 1)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_bytes_of_noisy_counters_stay_within_a_twentieth_of_their_entropy(epsilon):
    rng = np.random.default_rng(11)
    n = 1 << 18
    share = 1 - np.exp(-epsilon)
    state = (rng.geometric(share, n) - rng.geometric(share, n)).astype(np.int32)
    counts = np.arange(1, 65)
    weight = counts**-2.0
    np.add.at(state, rng.integers(0, n, n // 2), rng.choice(counts, n // 2, p=weight / weight.sum()))
    seen = np.unique(state, return_counts=True)[1] / n
    entropy = -(seen * np.log2(seen)).sum()
    assert 8 * len(wire.pack({"kind": "sealed-state", "spec": {}}, state, wire.HUFFMAN)) / n < 1.05 * entropy


def test_the_corpus_of_the_fuzzer_holds():
    """Inputs that reached new code under a coverage-guided fuzzer (bench/fuzz_wire.py), each as it is and resealed."""
    files = sorted(CORPUS.iterdir())
    assert len(files) > 20
    for path in files:
        data = path.read_bytes()
        tagged = data[7:8] == b"\x01" and len(data) > 104
        body = data[:-64] if tagged else data[:-32]
        body += envelope._tag(KEY, [body]) if tagged else b""
        for form, key in ((data, None), (body + checksum(body), None), (body + checksum(body), KEY)):
            try:
                header, values = wire.unpack(form, key)
            except (FormatError, KeyMismatchError):
                continue
            assert header["kind"] in wire.KINDS
            assert values is None or values.ndim in (1, 2)


def test_a_checksum_error_says_so():
    data = bytearray(packed("release-raw"))
    data[60] ^= 1
    assert isinstance(refused(bytes(data)), ChecksumError)
