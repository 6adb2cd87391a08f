"""No compiled loop reads or writes outside its arrays: the decoders' tests again, with numba's bounds checks.

In: the test files of the decoders. Out: nothing. Touches: a numba cache of its own, so that nothing compiled
without the checks is taken.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.paths import TESTS

TESTED = (
    "decode/test_avro.py",
    "decode/test_fields.py",
    "decode/test_json.py",
    "decode/test_layouts.py",
    "decode/test_protobuf.py",
    "files/test_avro_files.py",
    "files/test_compression.py",
    "kafka/test_fetch_patch.py",
    "kafka/test_frames.py",
    "kafka/test_read_ahead.py",
    "kafka/test_record_batch.py",
    "kafka/test_record_kernels.py",
)
"""The tests of compiled decoders, in `tests/connectors`."""
KERNELS = (
    "scan_json",
    "learn",
    "follow_all",
    "read_times",
    "read_records",
    "read_heads",
    "count_batches",
    "scan_packed",
    "unpack",
    "scan_avro",
    "scan_protobuf",
)
OUTSIDE = """
import numba
import numpy as np

def beyond(array):
    return array[array.size]

numba.njit(beyond)(np.zeros(3))
"""


def checked(command: list[str], cache: Path) -> subprocess.CompletedProcess[str]:
    """Run Python with bounds checks."""
    settings = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(cache)}
    return subprocess.run(
        [sys.executable, *command], env=settings, capture_output=True, text=True, check=False, timeout=580
    )


@pytest.mark.slow
def test_kernels_stay_inside_their_arrays_under_bounds_checks(tmp_path: Path) -> None:
    assert "IndexError" in checked(["-c", OUTSIDE], tmp_path).stderr  # the checks are on
    files = [str(TESTS / "connectors" / name) for name in TESTED]
    done = checked(
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not kafka and not slow", "--timeout=450", *files],
        tmp_path,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    compiled = "".join(path.name for path in tmp_path.rglob("*.nbi"))
    assert [name for name in KERNELS if name not in compiled] == []
