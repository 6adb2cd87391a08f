"""Write the golden files of sketches that publish patterns of groups, those that are not there.

In: a folder. Out: one file for each kind of object, and what must be read from it. Touches: that folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from writing import write

import sketchstream as ss

KEY = ss.Key(bytes(range(16)))
ORIGIN = ss.Origin(name="reach", revision=1, window=(0, 3_600_000), partition=0, partitions=(1,), partitioner="murmur2")
NAMES = ["a", "b", "c"]


def filled(spec: ss.ProfileSpec) -> ss.Sketch:
    """A sketch in which 200 items are in a, 100 of them in b too, and none in c."""
    sketch = ss.Sketch.create(spec, KEY if spec.needs_key else None, origin=ORIGIN)
    sketch.update(ss.Pairs(["a"] * 200 + ["b"] * 100, [*range(200), *range(100)]))
    return sketch


def objects() -> dict[str, object]:
    """One object of every kind."""
    opened = ss.ProfileSpec(
        "3", "item", ss.OpenDomain(2048, 3), modulus=8, max_total=20, epsilon_publish="3/4",
        groups=ss.Groups(NAMES, other=True), overlap=["c", "a", "b"], epsilon_overlap="1/2",
    )  # fmt: skip
    alone = ss.ProfileSpec(
        "3", "item", ss.ClosedDomain(size=600), modulus=8, groups=ss.Groups(NAMES, max_groups=2), overlap=True,
        epsilon_overlap="1/2", histograms=False,
    )  # fmt: skip
    out: dict[str, object] = {"open": filled(opened), "sealed": filled(opened).seal(), "alone": filled(alone).seal()}
    out["early"] = filled(alone).release("1/3")
    out["group"] = filled(opened).seal().group("b")
    out["stack"] = ss.stack([filled(opened).seal() for _ in range(2)])
    return out


def contents(one: ss.Sketch | ss.Published) -> dict[str, object]:
    """What must be read from an object."""
    if isinstance(one, ss.Sketch):
        return {}
    read: dict[str, object] = {"loss": one.guarantee().to_dict()["published"]}
    if one.groups:
        read["people"] = one.overlap().people.value
    return read


def main() -> None:
    """Overwrite nothing: a golden file never changes."""
    write(Path(sys.argv[1]), "overlap", "overlap.json", objects(), contents)


if __name__ == "__main__":
    main()
