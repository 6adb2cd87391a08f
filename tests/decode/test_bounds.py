"""No compiled loop reads or writes outside its arrays: the tests of this folder again, with numba's bounds checks.

In: the other test files of this folder. Out: nothing. Touches: a numba cache of its own, so that nothing compiled
without the checks is taken.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KERNELS = ("scan_json", "read_times", "read_records", "read_heads", "count_batches", "scan_packed", "unpack")
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
        [sys.executable, *command], env=settings, capture_output=True, text=True, check=False, timeout=500
    )


@pytest.mark.statistics
def test_kernels_stay_inside_their_arrays_under_bounds_checks(tmp_path: Path) -> None:
    assert "IndexError" in checked(["-c", OUTSIDE], tmp_path).stderr  # the checks are on
    files = sorted(str(path) for path in HERE.glob("test_*.py") if path.name != Path(__file__).name)
    done = checked(
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not kafka", "--timeout=450", *files], tmp_path
    )
    assert done.returncode == 0, done.stdout[-3000:]
    compiled = "".join(path.name for path in tmp_path.rglob("*.nbi"))
    assert [name for name in KERNELS if name not in compiled] == []
