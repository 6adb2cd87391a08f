"""Lets the tests of this folder share `state_reference` and `wire_samples`.

In: nothing. Out: nothing. Touches: the module search path of the test process.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)
