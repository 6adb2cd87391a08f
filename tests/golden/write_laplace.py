"""Write the golden files of kind `convolution` with noise "laplace" for format version 3; run once.

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
        return {"rho": str(one.ledger.loss(intrusion=True).rho)}
    rho = str(ss.load(one.to_bytes()).ledger.loss(intrusion=True).rho)
    return {"rho": rho, "sums": [float(answer.values.sum()) for answer in one.estimate().answers]}


def main() -> None:
    """Overwrite nothing: a golden file never changes."""
    folder = Path(sys.argv[1])
    spec = ss.ConvolutionSpec(
        ["window:8", "sum"], 40, epsilon="1", delta="1e-6", noise="laplace", max_weight=3, counted_share="1/20"
    )
    sketch = ss.Sketch.create(spec, max_epsilon="5")
    sketch.update([0, 5, 5, 39])
    found = {"open": sketch, "release": sketch.release("1/10", "1e-7")}
    found["state"] = ss.Sketch.from_bytes(sketch.to_bytes()).seal()
    write(folder, "convolution-laplace", "convolution-laplace.json", found, contents)


if __name__ == "__main__":
    main()
