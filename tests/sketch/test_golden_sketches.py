"""Files that earlier releases wrote are read by this one, for ever, and written again to the same bytes."""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction

import pytest

import sketchstream as ss
from helpers.paths import GOLDEN
from sketchstream import wire
from sketchstream.kinds.groups.group_list import GroupSample

VERSIONS = ("v1", "v2")
NEWEST = "v3"
EXPECTED = {version: json.loads((GOLDEN / version / "sketches.json").read_text()) for version in (*VERSIONS, NEWEST)}
KEY = ss.Key(bytes(range(16)))


def golden(name: str, version: str = "v1") -> bytes:
    data = (GOLDEN / version / f"sketch-{name}.bin").read_bytes()
    found = hashlib.blake2b(data, digest_size=16).hexdigest()
    assert found == EXPECTED[version][name]["blake2b"], "a golden file was changed"
    return data


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", sorted(set(EXPECTED["v1"]) - {"open"}))
def test_published_files_of_every_version_are_read_and_written_alike(name: str, version: str) -> None:
    data, expected = golden(name, version), EXPECTED[version][name]
    assert wire.version_of(data) == int(version[1:])
    published = ss.load(data)
    assert published.to_bytes() == data
    assert str(published.guarantee().published) == expected["loss"]
    assert published.profile(method="monotone").facts.d == expected["d"]
    assert {one.name: one.value for one in published.counters} == expected.get("counters", {})


@pytest.mark.parametrize("name", sorted(set(EXPECTED[NEWEST]) - {"open"}))
def test_published_files_of_kind_gaussian_are_read_and_written_alike(name: str) -> None:
    data, expected = golden(name, NEWEST), EXPECTED[NEWEST][name]
    assert wire.version_of(data) == 3
    published = ss.load(data)
    assert published.to_bytes() == data
    assert published.guarantee().to_dict()["published"] == expected["loss"]
    assert published.estimate().sum().value == expected["sum"]
    assert {one.name: one.value for one in published.counters} == expected["counters"]


def test_files_of_version_3_hold_variances() -> None:
    release, state = ss.load(golden("release", NEWEST)), ss.load(golden("state", NEWEST))
    assert release.origin.partitioner == state.origin.partitioner == "murmur2"
    assert {layer.law for layer in state.layers} == {"discrete-gaussian"}
    assert [layer.parameter for layer in state.layers] == [state.spec.sigma2, state.spec.publish_sigma2]
    assert [one.name for one in state.counters] == ["total", "counted", "admitted"]
    assert len(ss.load(golden("merged", NEWEST)).layers) == 4
    sketch = ss.Sketch.from_bytes(golden("open", NEWEST), KEY)
    sketch.update([-5, 1 << 60])
    assert sketch.to_bytes()[:6] == golden("open", NEWEST)[:6]
    with pytest.raises(ss.KeyMismatchError):
        ss.Sketch.from_bytes(golden("open", NEWEST), ss.Key.generate())


def test_files_of_version_2_hold_counters_and_partition_counts() -> None:
    release, histogram = ss.load(golden("release", "v2")), ss.load(golden("histogram", "v2"))
    assert [one.name for one in release.counters] == ["total"]
    assert [one.name for one in histogram.counters] == ["total", "admitted"]
    assert [draw.parameter for draw in histogram.counters[0].noise] == [Fraction(1, 40)] * 2
    assert histogram.origin == ss.Origin("hourly", 2, (0, 3_600_000), 3, partitions=(4, 8))
    assert [one.name for one in ss.load(golden("state", "v2")).counters] == ["total", "counted"]
    assert ss.load(golden("item", "v2")).spec.max_total == 30
    sketch = ss.Sketch.from_bytes(golden("open", "v2"), KEY)
    sketch.update(["a", "b"], invalid="skip")
    assert wire.version_of(sketch.to_bytes()) == 2
    assert [one.name for one in sketch.seal().counters] == ["total", "counted"]


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
        ss.Sketch.from_bytes(golden("open"), ss.Key(bytes(16)))


GROUPS = json.loads((GOLDEN / NEWEST / "groups.json").read_text())


@pytest.mark.parametrize("name", sorted(GROUPS))
def test_files_with_groups_and_filters_are_read_and_written_alike(name: str) -> None:
    data, expected = (GOLDEN / NEWEST / f"groups-{name}.bin").read_bytes(), GROUPS[name]
    assert hashlib.blake2b(data, digest_size=16).hexdigest() == expected["blake2b"], "a golden file was changed"
    if name == "open":
        sketch = ss.Sketch.from_bytes(data, KEY)
        assert sketch.spec.groups.all == ("spring", "7", "other")
        assert sketch.spec.where == (("age", ("18",)), ("country", ("AT", "DE")))
        sketch.update(ss.Pairs(["summer"], ["z"]))
        return
    published = ss.load(data)
    assert published.to_bytes() == data
    assert list(published.groups) == expected["groups"]
    assert published.guarantee().to_dict()["published"] == expected["loss"]
    answered = published.group(published.groups[0]) if published.groups else published
    assert answered.profile(method="inverse").distinct.value == pytest.approx(expected["distinct"], rel=1e-12)
    promises = {"promised": (2, False), "state": (None, True), "ranked": (2, False)}
    if name in promises:
        assert (published.spec.groups.max_groups, published.spec.groups.of_item) == promises[name]
        assert published.spec.groups.ranked == (name == "ranked")
    if name == "sample":
        assert published.spec.sample == GroupSample(1, 3, 2)
        assert published.key_id == KEY.id
