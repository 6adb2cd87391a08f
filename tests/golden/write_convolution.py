"""Write the golden files of kind `convolution` for format version 3; run once.

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
        ["window:8", "sum"], 40, epsilon="1", delta="1e-6", noise="gaussian", max_weight=3, epsilon_publish="0.7"
    )
    coefficients = ss.ConvolutionSpec([1, 0.5, 0.25], 40, epsilon="1/2", noise="counts", intrusion=False)
    sketch, plain = ss.Sketch.create(spec, max_epsilon="5"), ss.Sketch.create(coefficients)
    for one in (sketch, plain):
        one.update([0, 5, 5, 39])
    found = {"open": sketch, "release": sketch.release("1/10", "1e-7")}
    copied = ss.Sketch.from_bytes(sketch.to_bytes())
    found |= {"state": copied.seal(), "counts": plain.seal()}
    expected = {}
    for name, one in found.items():
        data = one.to_bytes()
        with (folder / f"convolution-{name}.bin").open("xb") as file:
            file.write(data)
        expected[name] = {"blake2b": hashlib.blake2b(data, digest_size=16).hexdigest()}
        if not isinstance(one, ss.Sketch):
            expected[name] |= {"sums": [float(answer.values.sum()) for answer in one.estimate().answers]}
    (folder / "convolution.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
