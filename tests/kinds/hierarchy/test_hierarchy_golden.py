"""Golden files of kind `hierarchy`: what an earlier version wrote is read, means the same, and is written the same."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

import sketchstream as ss
from helpers.paths import GOLDEN

FOLDER = GOLDEN / "v3"
EXPECTED = json.loads((FOLDER / "hierarchy.json").read_text())


@pytest.mark.parametrize("name", EXPECTED)
def test_golden_files_are_read_and_written_again(name: str) -> None:
    data = (FOLDER / f"hierarchy-{name}.bin").read_bytes()
    wanted = EXPECTED[name]
    assert hashlib.blake2b(data, digest_size=16).hexdigest() == wanted["blake2b"]
    if name == "open":
        sketch = ss.Sketch.from_bytes(data)
        sketch.update([("fr", "lyon")])
        assert len(sketch.seal().layers) == 2
        return
    read = ss.load(data)
    assert read.to_bytes() == data
    found = read.estimate()
    np.testing.assert_allclose(found.values, wanted["values"], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.unbiased, wanted["unbiased"], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.stderr, wanted["stderr"], rtol=1e-9)
    assert read.guarantee().to_dict()["published"] == wanted["loss"]
