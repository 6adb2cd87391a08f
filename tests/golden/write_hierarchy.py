"""Write the golden files of kind `hierarchy` for format version 3; run once.

In: a folder. Out: an open sketch, a release, sealed states and a stack, and what must be read from them. Touches: that
folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from writing import write

import sketchstream as ss

PATHS = [("de", "bonn"), ("fr", "lyon"), ("fr", "paris")]


def objects() -> dict[str, ss.Sketch | ss.Published]:
    """One object of every sort, of both units."""
    events = ss.HierarchySpec(["country", "city"], PATHS, "1", "1e-6", max_weight=3, multipliers=[1, 2, 1])
    items = ss.HierarchySpec(
        ["country", "city"], PATHS, "2", "1e-7", unit="item", max_total=5, signed=True, intrusion=False
    )
    early = ss.Sketch.create(events, max_epsilon="9", max_delta="1e-4")
    early.update(PATHS, [3, 1, -2])
    bare = ss.Sketch.create(items, origin=ss.Origin(name="places", window=(0, 1000)))
    bare.update([PATHS[0], PATHS[2]] * 2)
    out: dict[str, ss.Sketch | ss.Published] = {"release": early.release("1/10", "1e-7"), "open": early}
    out["bare"] = bare.seal()
    out["stack"] = ss.stack([ss.Sketch.create(events).seal(), ss.Sketch.create(events).seal()])
    return out


def contents(one: ss.Sketch | ss.Published) -> dict[str, object]:
    """What must be read from an object."""
    if isinstance(one, ss.Sketch):
        return {}
    found = one.estimate()
    return {
        "values": found.values.tolist(),
        "unbiased": found.unbiased.tolist(),
        "stderr": found.stderr.tolist(),
        "loss": one.guarantee().to_dict()["published"],
    }


def main() -> None:
    """Overwrite nothing: a golden file never changes; only what is read from it by an estimator that became better."""
    write(Path(sys.argv[1]), "hierarchy", "hierarchy.json", objects(), contents)


if __name__ == "__main__":
    main()
