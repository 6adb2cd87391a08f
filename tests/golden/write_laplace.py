"""Write the golden files of kind `convolution` with noise "laplace" for format version 3; run once.

In: a folder. Out: an open sketch, a release and a sealed state, and what must be read from them. Touches: that folder.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import sketchstream as ss


def main() -> None:
    """Refuse to overwrite: a golden file never changes."""
    folder = Path(sys.argv[1])
    spec = ss.ConvolutionSpec(
        ["window:8", "sum"], 40, epsilon="1", delta="1e-6", noise="laplace", max_weight=3, counted_share="1/20"
    )
    sketch = ss.Sketch.create(spec, max_epsilon="5")
    sketch.update([0, 5, 5, 39])
    found = {"open": sketch, "release": sketch.release("1/10", "1e-7")}
    found["state"] = ss.Sketch.from_bytes(sketch.to_bytes()).seal()
    expected = {}
    for name, one in found.items():
        data = one.to_bytes()
        with (folder / f"convolution-laplace-{name}.bin").open("xb") as file:
            file.write(data)
        read = one if isinstance(one, ss.Sketch) else ss.load(data)
        digest = hashlib.blake2b(data, digest_size=16).hexdigest()
        expected[name] = {"blake2b": digest, "rho": str(read.ledger.loss(intrusion=True).rho)}
        if not isinstance(one, ss.Sketch):
            expected[name] |= {"sums": [float(answer.values.sum()) for answer in one.estimate().answers]}
    (folder / "convolution-laplace.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
