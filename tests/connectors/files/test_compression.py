"""Compressed files: the same events as from plain ones, from any position, and never a part of a broken one."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from sketchstream.errors import DataLossError, FormatError, MissingExtraError, StoreError
from sketchstream.items.domains import hashes
from sketchstream.items.key import Key
from sketchstream_connectors.files import blocks, compression, source
from sketchstream_connectors.files.layout import Layout


def gz(data: bytes) -> bytes:
    """Two members."""
    half = len(data) // 2
    return gzip.compress(data[:half]) + gzip.compress(data[half:])


def zst(data: bytes) -> bytes:
    """Two frames, one of which does not say how long it is."""
    half = len(data) // 2
    streamed = zstandard.ZstdCompressor().compressobj()
    return zstandard.ZstdCompressor().compress(data[:half]) + streamed.compress(data[half:]) + streamed.flush()


KEY = Key(bytes(16))
PACKERS: dict[str, Callable[[bytes], bytes]] = {".gz": gz, ".zst": zst}
TEXTS = {
    "jsonl": b"".join(b'{"user":"u%d","n":%d}\n' % (i % 977, i % 3) for i in range(5000)),
    "csv": b"user,n\n" + b"".join(b"u%d,%d\n" % (i % 977, i % 3) for i in range(5000)),
    "lines": b"".join(b"u%d\n" % (i % 977) for i in range(5000)),
}


def events(path: Path, form: Any) -> tuple[list[int], list[int]]:
    """Hashes of the items, in order, and the weights."""
    named = form != "lines"
    layout = Layout(form, "user" if named else None, weight="n" if named else None)
    items: list[int] = []
    weights: list[int] = []
    for given, left_out in source.batches(path, layout):
        assert left_out == 0
        items += hashes(given.items, KEY).tolist()
        weights += [] if given.weights is None else given.weights.tolist()
    return items, weights


@pytest.mark.parametrize("ending", PACKERS)
@pytest.mark.parametrize("form", TEXTS)
def test_a_compressed_file_holds_the_events_of_the_plain_one(
    tmp_path: Path, form: str, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1 << 12)
    plain, packed = tmp_path / f"e.{form}", tmp_path / f"e.{form}{ending}"
    plain.write_bytes(TEXTS[form])
    packed.write_bytes(PACKERS[ending](TEXTS[form]))
    found = events(packed, form)
    assert len(set(found[0])) == 977
    assert len(found[0]) == 5000
    assert found == events(plain, form)


@pytest.mark.parametrize("ending", PACKERS)
def test_a_compressed_file_that_is_not_called_so_is_named(tmp_path: Path, ending: str) -> None:
    """It was taken for a JSON array, with advice that did not work."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(PACKERS[ending](TEXTS["jsonl"]))
    with pytest.raises(FormatError, match=rf"name it events\.jsonl\{ending}"):
        next(source.chunks(path, Layout("jsonl", "user")))
    for plain in (b"", b"\x1f\x8b", b"{}\n"):
        path.write_bytes(plain)
        assert not compression.is_compressed(path)


@pytest.mark.parametrize("ending", PACKERS)
def test_reading_on_from_a_position_counts_decompressed_bytes(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1 << 12)
    path = tmp_path / f"e.jsonl{ending}"
    path.write_bytes(PACKERS[ending](TEXTS["jsonl"]))
    layout = Layout("jsonl", "user")
    size = len(TEXTS["jsonl"])
    assert source.end_of(path, layout) == size
    for begin in (0, TEXTS["jsonl"].index(b"\n") + 1, TEXTS["jsonl"].rindex(b"\n", 0, size - 1) + 1, size):
        found = [chunk for chunk in source.chunks(path, layout, begin) if chunk is not None]
        offsets = np.concatenate([chunk.offsets for chunk in found]) if found else np.empty(0)
        assert offsets.size == TEXTS["jsonl"].count(b"\n", begin)
        assert begin == size or offsets[0] == begin
    with pytest.raises(DataLossError, match="was cut or replaced"):
        list(source.chunks(path, layout, size + 1))


@pytest.mark.parametrize("ending", PACKERS)
def test_a_file_that_is_cut_altered_or_something_else_is_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"e.jsonl{ending}"
    data = PACKERS[ending](TEXTS["jsonl"])
    layout = Layout("jsonl", "user")
    for wrong, words in (
        (data[:-9], "is not whole"),
        (data[: len(data) // 3], "is not whole"),
        (TEXTS["jsonl"], "is not"),
        (data[:40] + bytes(40) + data[80:], "is not"),
    ):
        path.write_bytes(wrong)
        with pytest.raises(FormatError, match=words):
            list(source.chunks(path, layout))
    path.unlink()
    with pytest.raises(StoreError, match="cannot read"):
        list(source.chunks(path, layout))


def test_blocks_are_about_as_large_as_asked_whatever_they_were_packed_from(tmp_path: Path) -> None:
    for ending, pack in PACKERS.items():
        path = tmp_path / f"zeros{ending}"
        path.write_bytes(pack(bytes(50_000_000)))
        sizes = [len(block) for block in compression.blocks(path, 1 << 20)]
        assert sum(sizes) == 50_000_000
        assert min(sizes) > 0
        assert max(sizes) <= 160 << 20


def test_zstd_without_its_package_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    path = tmp_path / "e.jsonl.zst"
    path.write_bytes(zst(b"{}\n"))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtraError, match="pip install zstandard"):
        list(source.chunks(path, Layout("jsonl", "user")))


def test_update_and_a_worker_read_compressed_files(tmp_path: Path) -> None:
    from sketchstream.cli import main

    rows = [{"ts": f"2024-05-01T0{hour}:00:0{i}Z", "user": i} for hour in range(3) for i in range(5)]
    (tmp_path / "e.jsonl.gz").write_bytes(gz("".join(json.dumps(row) + "\n" for row in rows).encode()))
    (tmp_path / "c.toml").write_text(
        '[input]\nfile = "e.jsonl.gz"\nitem = "user"\nitem_type = "int"\ntime = "ts"\nquorum = 1\nquorum_time = "1ms"\n'
        'close_at_end = true\n[output]\ndirectory = "sealed"\n[[sketch]]\nname = "s"\nunit = "event"\nwindow = "1h"\n'
        'epsilon = "1"\ndomain = { size = 10 }\n'
    )
    assert main(["worker", "-c", str(tmp_path / "c.toml"), "--log-level", "error"]) == 0
    assert len(list((tmp_path / "sealed").rglob("*.sealed"))) == 3
    sketch = str(tmp_path / "s")
    assert main(["create", "-o", sketch, "--unit", "event", "--epsilon", "1", "--size", "10"]) == 0
    assert main(["update", sketch, str(tmp_path / "e.jsonl.gz"), "--item", "user"]) == 0
