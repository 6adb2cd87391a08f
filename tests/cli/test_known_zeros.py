"""Items without a slot in what was published: a partition without records, and slots that are there several times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sketchstream import ClosedDomain, EstimateError, OpenDomain, Origin, ProfileSpec, Sketch
from sketchstream.config.loader import Config
from sketchstream.items.key import Key
from sketchstream.query.sealed import SealedReader
from sketchstream.query.windows import PublishedWindows
from sketchstream.stream.interfaces import Frontier, SealedEntry
from sketchstream_connectors.files.publisher import DirectoryPublisher
from sketchstream_connectors.files.sealed import DirectorySealed

pytestmark = pytest.mark.filterwarnings("ignore:.*NO PRIVACY")
SPEC_TEXT = 'unit = "event"\nepsilon = "30"\nmax_count = 10\ndomain = { size = 12 }'
CONFIG = """
[kafka]
"bootstrap.servers" = "127.0.0.1:1"
"group.id" = "g"
[input]
topic = "events"
format = "value"
item_type = "int"
partitioned_by = "item"
partitioner = "{partitioner}"
[output]
topic = ""
directory = "sealed"
[[sketch]]
name = "s"
window = "1h"
{spec}
"""
HOUR = 3_600_000


def publish(folder: Path, parts: dict[int, tuple[np.ndarray, list[int]]], of: int) -> None:
    """Sealed sketches of some partitions (which items they have, which occurred), frontiers of all."""
    publisher = DirectoryPublisher(folder / "sealed")
    spec = ProfileSpec(epsilon="30", max_count=10, domain=ClosedDomain(size=12))
    for partition in range(of):
        entries = []
        if partition in parts:
            keep, items = parts[partition]
            origin = Origin("s", 0, (0, HOUR), partition, of, of)
            sketch = Sketch.create(spec, origin=origin, keep=keep)
            sketch.update(items)
            sealed = sketch.seal()
            entries.append(SealedEntry("s", 0, (0, HOUR), partition, sealed.seal_id, sealed.to_bytes()))
        publisher.publish(partition, entries, [Frontier("s", 0, partition, HOUR, of, 1)])


def ask(folder: Path, partitioner: str) -> list[float]:
    """Counts of the only window."""
    path = folder / "c.toml"
    config = Config.parse(CONFIG.format(partitioner=partitioner, spec=SPEC_TEXT), path)
    source = DirectorySealed(folder / "sealed")
    published = PublishedWindows(config, SealedReader(source), source)
    (window,) = published.every("s", None, None)
    profile = published.answer(window, lambda one: one.profile(method="inverse")).profile
    assert window.whole
    assert window.complete is None, "these frontiers carry no evidence"
    assert profile.facts.d == 12
    assert profile.fractions.sum() + profile.above.value == pytest.approx(1)
    assert profile.distinct.value == pytest.approx(3, abs=1e-6)
    assert profile.interval("counts")[0, 0] <= profile.counts[0] <= profile.interval("counts")[0, 1]
    return [round(value, 6) for value in profile.counts[:4]]


def test_items_of_a_partition_without_records_are_zeros(tmp_path: Path) -> None:
    first = np.arange(12) < 5
    publish(tmp_path, {0: (first, [0, 1, 1, 4])}, of=2)
    assert ask(tmp_path, "murmur2") == [9, 2, 1, 0]


def test_slots_that_every_partition_has_are_counted_once(tmp_path: Path) -> None:
    whole = np.ones(12, np.bool_)
    publish(tmp_path, {0: (whole, [0, 1, 1]), 1: (whole, [7])}, of=2)
    assert ask(tmp_path, "unchecked") == [9, 2, 1, 0]


def test_no_items_can_join_an_open_domain_or_leave_an_empty_one() -> None:
    open_one = Sketch.create(ProfileSpec(epsilon="1", domain=OpenDomain(slots=64, levels=1)), Key(bytes(16)))
    with pytest.raises(EstimateError):
        open_one.seal().profile(method="inverse").with_zeros(1)
    closed = Sketch.create(ProfileSpec(epsilon="1", domain=ClosedDomain(size=8))).seal().profile(method="inverse")
    with pytest.raises(EstimateError):
        closed.with_zeros(-8)
    assert closed.with_zeros(0) is closed
