"""Files with patterns of groups are read for ever, written again to the same bytes, and answer what they did."""

from __future__ import annotations

import hashlib
import json

import pytest

import sketchstream as ss
from helpers.paths import GOLDEN

EXPECTED = json.loads((GOLDEN / "v3" / "overlap.json").read_text())
KEY = ss.Key(bytes(range(16)))
pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")


def golden(name: str) -> bytes:
    data = (GOLDEN / "v3" / f"overlap-{name}.bin").read_bytes()
    assert hashlib.blake2b(data, digest_size=16).hexdigest() == EXPECTED[name]["blake2b"], "a golden file was changed"
    return data


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - {"open"}))
def test_published_patterns_are_read_and_written_alike(name: str) -> None:
    published = ss.load(golden(name))
    assert published.to_bytes() == golden(name)
    assert published.guarantee().to_dict()["published"] == EXPECTED[name]["loss"]
    if published.groups:
        assert published.overlap().people.value == pytest.approx(EXPECTED[name]["people"], rel=1e-6)


def test_an_open_sketch_goes_on_from_its_file() -> None:
    sketch = ss.Sketch.from_bytes(golden("open"), KEY)
    sketch.update([("c", 1)])
    assert sketch.seal().overlap().groups == ("c", "a", "b")
