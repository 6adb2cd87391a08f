"""Write the golden files of sketches, releases, states and stacks for the newest format version; run once a version.

In: a folder. Out: one file for each kind of object, and what must be read from it. Touches: that folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from writing import write

import sketchstream as ss

KEY = ss.Key(bytes(range(16)))
OPENED = ss.Origin(
    name="hourly", revision=2, window=(0, 3_600_000), partition=3, partitions=(4,), partitioner="murmur2"
)
ORIGIN = ss.Origin(
    name="hourly", revision=2, window=(0, 3_600_000), partition=3, partitions=(4, 8), partitioner="murmur2"
)


def objects() -> dict[str, object]:
    """One object of every kind of version 3, with every optional field somewhere."""
    listed = ss.GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(items=["a", "b", b"c", -5, 1 << 60]))
    weighed = ss.GaussianSpec(
        "1",
        "1e-6",
        domain=ss.ClosedDomain(size=50),
        max_weight="2.5",
        fraction_bits=2,
        total_share="1/40",
        epsilon_records="1/10",
    )
    item = ss.GaussianSpec(
        "1/2", "1e-7", "item", ss.ClosedDomain(size=50), max_total=9, max_per_slot=3, epsilon_publish="0.7"
    )

    def filled(spec: ss.GaussianSpec, items: list[object], weights: list[object] | None = None) -> ss.Sketch:
        key = KEY if spec.needs_key else None
        sketch = ss.Sketch.create(spec, key, origin=OPENED, max_epsilon="5", max_delta="1e-5")
        sketch.update(items, weights)
        sketch.admit(len(items))
        return sketch

    def sealed(sketch: ss.Sketch) -> ss.Release | ss.SealedState:
        sketch.origin = ORIGIN
        return sketch.seal()

    early = filled(weighed, [1, 2, 2], [1, "2.25", -0.5])
    out: dict[str, object] = {"release": early.release("1/10", "1e-6"), "state": sealed(early)}
    out["item"] = sealed(filled(item, [1, 1, 2]))
    out["merged"] = ss.merge([sealed(filled(weighed, [1])), sealed(filled(weighed, [2]))])
    out["stack"] = ss.stack([sealed(filled(item, [5])), sealed(filled(item, [6]))])
    out["open"] = filled(listed, ["a", "b"])
    return out


def contents(one: ss.Sketch | ss.Published) -> dict[str, object]:
    """What must be read from an object."""
    if isinstance(one, ss.Sketch):
        return {}
    return {
        "counters": {counter.name: counter.value for counter in one.counters},
        "loss": one.guarantee().to_dict()["published"],
        "sum": one.estimate().sum().value,
    }


def main() -> None:
    """Overwrite nothing: a golden file never changes."""
    write(Path(sys.argv[1]), "sketch", "sketches.json", objects(), contents)


if __name__ == "__main__":
    main()
