"""Write the golden files of kind `workload` for the newest format version; run once a version.

In: a folder. Out: an open sketch, a release, a sealed state and a stack, and what must be read from them. Touches: that
folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from writing import write

import sketchstream as ss
from sketchstream.kinds.workload.queries.universe import Column

TABLE = ss.Universe([Column("origin", ["EWR", "JFK", "LGA"], other=True), Column.buckets("hour", 0, 6, 4)])
MATRIX = np.array([[0.5, -1.25, 3.0], [1e-3, 0.0, 7.0]])


def objects() -> dict[str, object]:
    """One object of every sort, of every mechanism that is not for comparison."""
    tables = ss.WorkloadSpec(
        TABLE.marginals((1, 2)), "1", "1e-6", "gaussian", unit="item", max_total=5, n_bound=99, universe=TABLE
    )
    real = ss.WorkloadSpec(MATRIX, "1/2", "1e-7", "gaussian", row_weights=[1, 2.5], max_weight=3)
    tree = ss.WorkloadSpec("prefix:64", "1", 0, "laplace", intrusion=False)
    ball = ss.WorkloadSpec("marginals:4:1", "2", 0, "l2ball", epsilon_publish="1/3")
    early = ss.Sketch.create(tables, max_epsilon="5", max_delta="1e-5")
    early.update(["EWR\t3", "JFK\t23", "BOS\t0"])
    out: dict[str, object] = {"release": early.release("1/10", "1e-6"), "open": early}
    out["state"] = ss.Sketch.create(real).seal()
    out["tree"] = ss.Sketch.create(tree).seal()
    out["stack"] = ss.stack([ss.Sketch.create(ball).seal(), ss.Sketch.create(ball).seal()])
    return out


def contents(one: ss.Sketch | ss.Published) -> dict[str, object]:
    """What must be read from an object."""
    if isinstance(one, ss.Sketch):
        return {}
    return {"values": one.estimate().values.tolist(), "loss": one.guarantee().to_dict()["published"]}


def main() -> None:
    """Overwrite nothing: a golden file never changes."""
    write(Path(sys.argv[1]), "workload", "workloads.json", objects(), contents)


if __name__ == "__main__":
    main()
