"""Write the golden files of sketches with groups and filters for the newest format version, those that are not there.

In: a folder. Out: one file for each kind of object, and what must be read from it. Touches: that folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from writing import write

import sketchstream as ss

KEY = ss.Key(bytes(range(16)))
ORIGIN = ss.Origin(name="reach", revision=1, window=(0, 3_600_000), partition=0, partitions=(1,), partitioner="murmur2")


def objects() -> dict[str, object]:
    """One object of every kind, with every field of groups and filters somewhere."""
    where = {"country": ["AT", "DE"], "age": [18]}
    events = ss.ProfileSpec(
        "1",
        domain=ss.OpenDomain(slots=1024, levels=1),
        max_weight=3,
        groups=ss.Groups(["spring", 7], other=True),
        where=where,
    )
    names = ["a", "b", "c"]
    promised = ss.ProfileSpec(
        "1/2",
        "item",
        ss.ClosedDomain(size=30),
        modulus=8,
        max_total=20,
        groups=ss.Groups(names, max_groups=2),
    )
    of_item = ss.ProfileSpec(
        "1", "item", ss.ClosedDomain(size=30), publish="state", intrusion=True, groups=ss.Groups(names, of_item=True)
    )

    def filled(spec: ss.ProfileSpec, rows: list[str], items: list[object]) -> ss.Sketch:
        sketch = ss.Sketch.create(spec, KEY if spec.needs_key else None, origin=ORIGIN, max_epsilon="9")
        sketch.update(ss.Pairs(rows, items))
        return sketch

    early = filled(events, ["spring", "7", "summer"], ["x", "x", "y"])
    out: dict[str, object] = {"release": early.release("1/10"), "open": early}
    out["promised"] = filled(promised, ["a", "b", "a"], [1, 1, 2]).seal()
    out["state"] = filled(of_item, ["a", "c"], [1, 2]).seal()
    out["stack"] = ss.stack([filled(events, ["spring"], ["x"]).seal() for _ in range(2)])
    out["group"] = filled(events, ["7"], ["x"]).seal().group("7")
    ranked = ss.ProfileSpec(
        "4", "item", ss.ClosedDomain(size=30), modulus=8, groups=ss.Groups(names, max_groups=2, limit="ranked")
    )
    everywhere = ([name for name in names for _ in range(20)], list(range(20)) * 3)
    out["ranked"] = filled(ranked, *everywhere).seal()
    out["sample"] = filled(ranked, *everywhere).seal().group("b")
    return out


def contents(one: ss.Sketch | ss.Published) -> dict[str, object]:
    """What must be read from an object."""
    if isinstance(one, ss.Sketch):
        return {}
    answered = one.group(one.groups[0]) if one.groups else one
    return {
        "groups": list(one.groups),
        "loss": one.guarantee().to_dict()["published"],
        "distinct": answered.profile(method="inverse").distinct.value,
    }


def main() -> None:
    """Overwrite nothing: a golden file never changes."""
    write(Path(sys.argv[1]), "groups", "groups.json", objects(), contents)


if __name__ == "__main__":
    main()
