"""A folder of Parquet files is one input: its files follow each other by name, and a restart goes on in the middle.

In: folders of small files. Out: nothing. Touches: temporary folders.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sketchstream.errors import ConfigError, DataLossError, FormatError
from sketchstream_connectors.files.layout import Layout
from sketchstream_connectors.files.source import batches, chunks, end_of

LAYOUT = Layout("parquet", item="u", item_type="int", time="t")


def write(folder: Path, name: str, first: int, rows: int) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = np.arange(first, first + rows)
    pq.write_table(pa.table({"u": numbers, "t": numbers * 1000}), path, row_group_size=7)


def found(folder: Path, position: int = 0) -> list[int]:
    out: list[int] = []
    for chunk in chunks(folder, LAYOUT, position):
        assert chunk is not None
        assert chunk.offsets.tolist() == list(range(position + len(out), position + len(out) + chunk.offsets.size))
        out += (chunk.events.times // 1000).tolist()
    return out


def test_files_follow_each_other_by_name_and_any_row_can_be_resumed_at(tmp_path: Path) -> None:
    folder = tmp_path / "events.parquet"
    write(folder, "day=2/part-0.parquet", 30, 20)
    write(folder, "day=1/part-1.parquet", 20, 10)
    write(folder, "day=1/part-0.parquet", 0, 20)
    write(folder, "_temporary/part-9.parquet", 900, 5)
    (folder / "_SUCCESS").touch()
    assert found(folder) == list(range(50))
    assert end_of(folder, LAYOUT) == 50
    for position in (1, 6, 7, 19, 20, 21, 30, 49, 50):
        assert found(folder, position) == list(range(position, 50))
    write(folder, "day=3/part-0.parquet", 50, 3)
    assert found(folder, 50) == [50, 51, 52]
    assert sum(len(given.items) for given, _ in batches(folder, LAYOUT)) == 53


def test_a_folder_that_lost_rows_is_refused_and_so_is_one_without_files(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    write(folder, "a.parquet", 0, 5)
    with pytest.raises(DataLossError, match="5 rows"):
        found(folder, 6)
    (folder / "a.parquet").unlink()
    with pytest.raises(FormatError, match=r"no file that ends in \.parquet"):
        found(folder)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_need_a_time_zone(tmp_path: Path, unit: str) -> None:
    moments = pa.array([1_764_000_000, 1_764_003_600])
    for zone in ("UTC", "America/New_York"):
        times = moments.cast(pa.timestamp("s")).cast(pa.timestamp(unit, zone))
        pq.write_table(pa.table({"u": [1, 2], "t": times}), tmp_path / "zoned.parquet")
        (chunk,) = chunks(tmp_path / "zoned.parquet", LAYOUT, 0)
        assert chunk is not None
        assert chunk.events.times.tolist() == [1_764_000_000_000, 1_764_003_600_000]
    pq.write_table(pa.table({"u": [1, 2], "t": moments.cast(pa.timestamp(unit))}), tmp_path / "naive.parquet")
    with pytest.raises(ConfigError, match="'t' has timestamps without a time zone"):
        list(chunks(tmp_path / "naive.parquet", LAYOUT, 0))
