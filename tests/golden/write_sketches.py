"""Write the golden files of sketches, releases, states and stacks for the newest format version; run once a version.

In: a folder. Out: one file for each kind of object, and what must be read from it. Touches: that folder.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import sketchstream as ss

KEY = ss.Key(bytes(range(16)))
OPENED = ss.Origin(name="hourly", revision=2, window=(0, 3_600_000), partition=3, partitions=(4,))
ORIGIN = ss.Origin(name="hourly", revision=2, window=(0, 3_600_000), partition=3, partitions=(4, 8))


def objects() -> dict[str, object]:
    """One object of every kind, with every optional field somewhere."""
    open_domain = ss.OpenDomain(slots=2048, levels=2)
    histogram = ss.ProfileSpec(epsilon="1", domain=open_domain, max_count=10, epsilon_records="1/10")
    item = ss.ProfileSpec(
        epsilon="1/2", unit="item", modulus=16, domain=ss.ClosedDomain(size=50), epsilon_publish="0.7", max_total=30
    )
    state = ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=50), publish="state", intrusion=True, max_weight=3)
    listed = ss.ProfileSpec(
        epsilon="2", domain=ss.ClosedDomain(items=["a", "b", b"c", -5, 1 << 60], sample_rate="9/10")
    )

    def filled(spec: ss.ProfileSpec, items: list[object]) -> ss.Sketch:
        sketch = ss.Sketch.create(spec, KEY if spec.needs_key else None, origin=OPENED, max_epsilon="5")
        sketch.update(items, invalid="skip")
        sketch.admit(len(items))
        return sketch

    def sealed(sketch: ss.Sketch) -> ss.Release | ss.SealedState:
        sketch.origin = ORIGIN
        return sketch.seal()

    early = filled(histogram, ["x", "y", "y"])
    out: dict[str, object] = {"release": early.release("1/10"), "histogram": sealed(early)}
    out["item"] = sealed(filled(item, [1, 1, 2]))
    out["state"] = sealed(filled(state, [1, 2, 3]))
    out["merged"] = ss.merge([sealed(filled(state, [1])), sealed(filled(state, [2]))])
    out["stack"] = ss.stack([sealed(filled(item, [5])), sealed(filled(item, [6]))])
    out["open"] = filled(listed, ["a", "b"])
    return out


def main() -> None:
    """Refuse to overwrite: a golden file never changes."""
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    expected = {}
    for name, one in objects().items():
        data = one.to_bytes()
        path = folder / f"sketch-{name}.bin"
        with path.open("xb") as file:
            file.write(data)
        expected[name] = {"bytes": len(data), "blake2b": hashlib.blake2b(data, digest_size=16).hexdigest()}
        if not isinstance(one, ss.Sketch):
            profile = one.profile(method="monotone")
            expected[name]["counters"] = {counter.name: counter.value for counter in one.counters}
            expected[name] |= {"loss": str(one.guarantee().published), "d": profile.facts.d}
    (folder / "sketches.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
