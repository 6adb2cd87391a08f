"""Write the golden files of kind `projection` for format version 3; run once.

In: a folder. Out: open sketches, a release, sealed states and a stack, and what must be read from them. Touches: that
folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from writing import write

import sketchstream as ss

KEY = ss.Key(bytes(range(16)))
USERS = ["ATL", "BOS", "ORD", "SFO"]
FEATURES = ["DL", "UA", "WN"]


def objects() -> dict[str, ss.Sketch | ss.Published]:
    """One object of every sort, of every matrix and promise."""
    listed = ss.ProjectionSpec(
        ss.ClosedDomain(items=USERS), ss.ClosedDomain(items=FEATURES), 8, "1", "1e-6", max_weight=3,
        epsilon_publish="0.7", matrix="rademacher",
    )  # fmt: skip
    hidden = ss.ProjectionSpec(4, 30, 8, "1/2", "1e-7", "item", max_norm=2, matrix_seed="secret", fraction_bits=2)
    sparse = ss.ProjectionSpec(
        4, 30, 8, "2", "1e-6", "item", max_norm=100, max_features=3, intrusion=False, seed="5a" * 32
    )
    totals = ss.ProjectionSpec(4, 30, 8, "1", "1e-6", "item", max_total="7.5", fraction_bits=1, matrix="srht")
    early = ss.Sketch.create(listed, KEY, max_epsilon="9", max_delta="1e-4")
    early.update([("ATL", "DL"), ("BOS", "UA"), ("BOS", "WN")], [3, 1, -2])
    secret = ss.Sketch.create(hidden, KEY, origin=ss.Origin(name="rows", window=(0, 1000)))
    secret.update([(0, 1), (3, 29)], ["0.25", "1.5"])
    bare = ss.Sketch.create(sparse)
    bare.update([(0, 1), (3, 29)], [60, 80])
    out: dict[str, ss.Sketch | ss.Published] = {"release": early.release("1/10", "1e-7"), "open": early}
    out["secret-open"] = ss.Sketch.from_bytes(secret.to_bytes(), KEY)
    out["secret"] = secret.seal()
    out["bare"] = bare.seal()
    out["stack"] = ss.stack([ss.Sketch.create(totals).seal(), ss.Sketch.create(totals).seal()])
    return out


def contents(one: ss.Sketch | ss.Published) -> dict[str, object]:
    """What must be read from an object."""
    if isinstance(one, ss.Sketch):
        return {}
    rows = one.estimate()
    names = USERS if one.spec.users.listed else [*range(4)]
    return {
        "values": rows.cells.tolist(),
        "distances": rows.distance(names[:3], names[1:]).to_dict(),
        "loss": one.guarantee().to_dict()["published"],
    }


def main() -> None:
    """Overwrite nothing: a golden file never changes."""
    write(Path(sys.argv[1]), "projection", "projections.json", objects(), contents)


if __name__ == "__main__":
    main()
