"""Golden files of kind `projection`: what an earlier version wrote is read, means the same, and is written the same."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

import sketchstream as ss
from helpers.paths import GOLDEN
from sketchstream import wire

FOLDER = GOLDEN / "v3"
EXPECTED = json.loads((FOLDER / "projections.json").read_text())
KEY = ss.Key(bytes(range(16)))
USERS = ["ATL", "BOS", "ORD", "SFO"]
PAIRS = {"open": ("BOS", "WN"), "secret-open": (2, 29)}


@pytest.mark.parametrize("name", EXPECTED)
def test_golden_files_are_read_and_written_again(name: str) -> None:
    data = (FOLDER / f"projection-{name}.bin").read_bytes()
    wanted = EXPECTED[name]
    assert hashlib.blake2b(data, digest_size=16).hexdigest() == wanted["blake2b"], "a golden file was changed"
    assert wire.version_of(data) == 3
    if name in PAIRS:
        sketch = ss.Sketch.from_bytes(data, KEY)
        sketch.update([PAIRS[name]])
        assert sketch.seal().estimate().cells.shape == (4, 8)
        return
    read = ss.load(data)
    assert read.to_bytes() == data
    rows = read.estimate(users=USERS if name == "release" else None)
    assert rows.cells.tolist() == wanted["values"]
    names = USERS if name == "release" else [*range(4)]
    found = rows.distance(names[:3], names[1:]).to_dict()
    for column in ("value", "low", "high"):  # standard errors are estimates, and have become better ones
        np.testing.assert_allclose(found[column], wanted["distances"][column], rtol=1e-9)
    assert read.guarantee().to_dict()["published"].startswith(f"(epsilon {wanted['loss']}, delta ")


def test_a_secret_matrix_is_the_same_in_every_version() -> None:
    """The seed comes from the key, the spec, the name and the window: features are read with it years later."""
    rows = ss.load((FOLDER / "projection-secret.bin").read_bytes()).estimate(key=KEY)
    assert rows.matrix is not None
    assert rows.matrix.rows([29])[0].tolist() == SECRET_ROW


SECRET_ROW = [-78, -78, 12, -41, -159, 13, -50, -8]
