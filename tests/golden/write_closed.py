"""Write the golden file of closed positions for format version 3; run once.

In: a folder. Out: an instalment, and what must be read from it. Touches: that folder.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from writing import described

import sketchstream as ss
from sketchstream.provenance import Origin
from sketchstream.stream.state.window_sketch import WindowSketch


def main() -> None:
    """Overwrite nothing: a golden file never changes."""
    folder = Path(sys.argv[1])
    spec = ss.ConvolutionSpec(
        ["window:8", "sum"], 40, epsilon="1", delta="1e-6", noise="gaussian", layout="time", publish="closed",
        intrusion=False, step_ms=60_000
    )  # fmt: skip
    origin = Origin(name="closed", revision=0, window=(0, 2_400_000), partition=0, partitions=(1,))
    sketch = WindowSketch.create(spec, origin=origin)
    sketch.update([0, 5, 5, 39])
    data = sketch.close_positions(0, 12).to_bytes()
    expected = {**described(folder / "convolution-closed.bin", data), "first": 0, "stop": 12}
    (folder / "closed.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
