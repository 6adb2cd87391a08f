"""Puts this folder's helpers on the path.

In: nothing. Out: `workload_sources` importable. Touches: sys.path of the test process.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
