"""Write the golden files of kind `convolution` for format version 3; run once.

In: a folder. Out: an open sketch, a release and a sealed state, and what must be read from them. Touches: that folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from writing import write

import sketchstream as ss


def contents(one: ss.Sketch | ss.Published) -> dict[str, object]:
    """What must be read from an object."""
    if isinstance(one, ss.Sketch):
        return {}
    return {"sums": [float(answer.values.sum()) for answer in one.estimate().answers]}


def main() -> None:
    """Overwrite nothing: a golden file never changes."""
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
    write(folder, "convolution", "convolution.json", found, contents)


if __name__ == "__main__":
    main()
