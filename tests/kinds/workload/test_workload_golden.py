"""Golden files of kind `workload`: what an earlier version wrote is read, means the same, and is written the same."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

import sketchstream as ss
from helpers.paths import GOLDEN
from sketchstream.privacy.losses.loss_numbers import rounded_up

FOLDER = GOLDEN / "v3"
EXPECTED = json.loads((FOLDER / "workloads.json").read_text())


@pytest.mark.parametrize("name", EXPECTED)
def test_golden_files_are_read_and_written_again(name: str) -> None:
    data = (FOLDER / f"workload-{name}.bin").read_bytes()
    wanted = EXPECTED[name]
    assert hashlib.blake2b(data, digest_size=16).hexdigest() == wanted["blake2b"]
    if name == "open":
        sketch = ss.Sketch.from_bytes(data)
        sketch.update(["JFK\t5"])
        assert len(sketch.seal().estimate().layers) == 2
        return
    read = ss.load(data)
    assert read.to_bytes() == data
    np.testing.assert_allclose(read.estimate("unbiased").values, wanted["values"], rtol=1e-9, atol=1e-9)
    loss = read.guarantee().to_dict()["losses"]["published"]
    text = loss["pure"] if "pure" in loss else f"{rounded_up(loss['epsilon'])} at delta {loss['delta']:g}"
    assert text == wanted["loss"]
