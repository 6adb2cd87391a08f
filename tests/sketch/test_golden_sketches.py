"""Files that earlier releases wrote are read by this one, for ever, and written again to the same bytes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

import sketchstream as ss

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"
EXPECTED = json.loads((GOLDEN / "sketches.json").read_text())
KEY = ss.Key(bytes(range(16)))


def golden(name: str) -> bytes:
    data = (GOLDEN / f"sketch-{name}.bin").read_bytes()
    assert hashlib.blake2b(data, digest_size=16).hexdigest() == EXPECTED[name]["blake2b"], "a golden file was changed"
    return data


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - {"open"}))
def test_published_files_of_version_1_are_read_and_written_alike(name: str) -> None:
    data = golden(name)
    published = ss.load(data)
    assert published.to_bytes() == data
    assert str(published.guarantee().published) == EXPECTED[name]["loss"]
    assert published.profile(method="monotone").facts.d == EXPECTED[name]["d"]


def test_what_the_files_hold_is_what_was_put_in() -> None:
    release, histogram = ss.load(golden("release")), ss.load(golden("histogram"))
    assert (release.final, histogram.final) == (False, True)
    assert release.layers == histogram.layers
    assert release.values.shape == (2, release.edges.size)
    assert release.origin == ss.Origin("hourly", 2, (0, 3_600_000), 3, 4)
    assert histogram.origin == ss.Origin("hourly", 2, (0, 3_600_000), 3, 4, 4)
    assert release.key_id == KEY.id
    assert len(ss.load(golden("state")).layers) == 2
    assert len(ss.load(golden("merged")).layers) == 4
    assert [part.spec.modulus for part in ss.load(golden("stack")).parts] == [16, 16]


def test_an_open_sketch_of_version_1_goes_on() -> None:
    sketch = ss.Sketch.from_bytes(golden("open"), KEY)
    assert sketch.spec.domain.items == ("a", "b", b"c", -5, 1 << 60)
    assert sketch.ledger.budget == 5
    sketch.update(["a", "b"], invalid="skip")
    assert sketch.to_bytes()[:4] == golden("open")[:4]
    with pytest.raises(ss.KeyMismatchError):
        ss.Sketch.from_bytes(golden("open"), ss.Key.generate())
