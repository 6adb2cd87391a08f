"""Projections from a configuration: blocks, mistakes, workers over ports in memory and over a file, what logs hold."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sketchstream as ss
from helpers.commands import Run
from helpers.configurations import EVENTS_FILE, EVENTS_TOPIC, SEALED_DIRECTORY
from sketchstream.config.loader import Config
from sketchstream.errors import ConfigError
from sketchstream.kinds.presentation import rows_of
from sketchstream.testing.driver import Driver

BLOCK = """[[sketch]]
name = "rows"
kind = "projection"
window = "1h"
epsilon = 1
delta = "1e-6"
row = "shop.id"
rows = { size = 30 }
domain = { size = 40 }
k = 32
"""
TOPIC = EVENTS_TOPIC.replace('item_type = "int"', 'item_type = "int"\nweight = "w"\nlateness = "5m"')


def mistakes(block: str, source: str = EVENTS_TOPIC) -> tuple[str, ...]:
    """What is wrong with a configuration, a line each."""
    with pytest.raises(ConfigError) as caught:
        Config.parse(source + block)
    return caught.value.mistakes


def counting(epsilon: str, delta: str, **options: Any) -> ss.ProjectionSpec:
    """The spec of the block, which counts events and records unless it says otherwise."""
    return ss.ProjectionSpec(30, 40, 32, epsilon, delta, counted_share="1/40", epsilon_records="1/10", **options)


def test_a_block_is_the_spec_that_python_makes() -> None:
    (plan,) = Config.parse(EVENTS_TOPIC + BLOCK).sketches
    assert plan.spec.fingerprint == counting("1", "1e-6").fingerprint
    assert plan.fields == {"row": "shop.id"}
    (plan,) = Config.parse(EVENTS_TOPIC + BLOCK + 'counted_share = "1/8"\nepsilon_records = 0\n').sketches
    assert plan.spec == ss.ProjectionSpec(30, 40, 32, "1", "1e-6", counted_share="1/8")
    more = """unit = "item"
max_norm = 20
max_features = 4
epsilon_publish = "1/2"
delta_publish = "1e-7"
matrix = "rademacher"
fraction_bits = 3
capacity = 1000000
seed = "%s"
""" % ("ab" * 32)
    for table in (EVENTS_TOPIC, EVENTS_TOPIC.replace('"item"\n', '"none"\n').replace('partitioner = "murmur2"\n', "")):
        (plan,) = Config.parse(table + BLOCK + more).sketches
        wanted = ss.ProjectionSpec(
            30, 40, 32, "1", "1e-6", "item", max_norm=20, max_features=4, epsilon_publish="1/2", delta_publish="1e-7",
            matrix="rademacher", fraction_bits=3, capacity=1_000_000, seed="ab" * 32,
        )  # fmt: skip
        assert plan.spec.to_dict() == wanted.to_dict()
    (plan,) = Config.parse(
        EVENTS_TOPIC + BLOCK + "intrusion = false\ncounted_share = 0\nepsilon_records = 0\n"
    ).sketches
    assert plan.spec == ss.ProjectionSpec(30, 40, 32, "1", "1e-6", intrusion=False)


def test_lists_of_rows_and_features_are_read(tmp_path: Path) -> None:
    (tmp_path / "shops.txt").write_text("north\nsouth\n")
    (tmp_path / "goods.txt").write_text("3\n5\n8\n")
    ss.Key.generate().save(tmp_path / "key")
    block = BLOCK.replace("{ size = 30 }", '{ items_file = "shops.txt" }')
    block = block.replace("{ size = 40 }", '{ items_file = "goods.txt" }')
    (tmp_path / "c.toml").write_text(EVENTS_TOPIC + '[key]\nfile = "key"\n' + block)
    spec: Any = Config.load(tmp_path / "c.toml").sketches[0].spec
    assert (spec.users.items, spec.features.items) == (("north", "south"), (3, 5, 8))
    assert spec.needs_key
    (tmp_path / "shops.txt").write_text("north\nnorth\n")
    with pytest.raises(ConfigError, match=r"line 2 of rows\.items_file .* repeats line 1"):
        Config.load(tmp_path / "c.toml")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('row = "shop.id"\n', "", 'sketch "rows".row is missing'),
        ('"shop.id"', '""', "row must name the field"),
        ('"shop.id"', '"shop..id"', "row must be a dotted field"),
        ("rows = { size = 30 }\n", "", 'sketch "rows".rows is missing'),
        ("{ size = 30 }", "{ }", "rows takes exactly one of size"),
        ("{ size = 30 }", '{ size = 3, items_file = "x" }', "rows takes exactly one of size"),
        ("{ size = 30 }", '{ items_file = "nowhere.txt" }', "cannot read rows.items_file"),
        ("{ size = 30 }", "{ sice = 30 }", 'unknown key sketch "rows".rows.sice'),
        ("{ size = 40 }", "{ slots = 1024 }", "closed domain of features"),
        ("domain = { size = 40 }\n", "", 'sketch "rows".domain is missing'),
        ("k = 32", "k = 0", "k must be"),
        ("k = 32", 'k = "many"', 'sketch "rows".k'),
        ('delta = "1e-6"\n', "", 'sketch "rows".delta is missing'),
        ("k = 32", 'k = 32\nunit = "item"', "max_total or max_norm"),
        ("k = 32", "k = 32\nmax_norm = 3", "belong to unit = 'item'"),
        ("k = 32", 'k = 32\nmatrix = "normal"', 'sketch "rows".matrix'),
        ("k = 32", 'k = 32\nmatrix_seed = "secret"', "gains only for unit = 'item'"),
        ("k = 32", 'k = 32\nseed = "12"', "seed must be 32 bytes"),
        ("k = 32", "k = 32\nmodulus = 3", 'unknown key sketch "rows".modulus'),
    ],
)
def test_one_mistake_in_a_block_is_told_once(old: str, new: str, said: str) -> None:
    assert old in BLOCK
    found = mistakes(BLOCK.replace(old, new))
    assert len(found) == 1, found
    assert said in found[0]


def test_formats_without_fields_are_refused() -> None:
    found = mistakes(BLOCK, EVENTS_TOPIC.replace('item = "user"\n', 'format = "key"\n'))
    assert any("names a field, and format = 'key' has none" in one for one in found)
    packed = mistakes(BLOCK, EVENTS_TOPIC.replace('item = "user"\n', 'format = "packed"\n'))
    assert any("records of one event each" in one for one in packed)


def events(seed: int, count: int) -> Iterator[tuple[dict[str, Any], tuple[int, int, Fraction] | None]]:
    """Records, and the event that each is, if it is one."""
    random = np.random.default_rng(seed)
    for number in range(count):
        row, other, eighths = (int(random.integers(low, high)) for low, high in ((-1, 4), (-1, 41), (8, 31)))
        row = 30 if number % 17 == 0 else row
        feature = other if number % 13 == 0 else 7  # so that weights add up to more than the noise
        record: dict[str, Any] = {"user": feature, "shop": {"id": row}, "w": eighths / 8}
        good = 0 <= row < 30 and 0 <= feature < 40 and abs(eighths) <= 24
        match number % 12:
            case 0:
                del record["shop"]["id"]
                good = False
            case 1:
                record["shop"] = None
                good = False
            case 2:
                record["shop"]["id"] = str(row)  # ids may be spelled as texts
            case 3:
                del record["w"]
                eighths, good = 8, 0 <= row < 30 and 0 <= feature < 40
            case 4:
                record["w"] = "much"
                good = False
        yield record, (row, feature, Fraction(eighths, 8)) if good else None


@pytest.mark.parametrize("keyed", [True, False])
def test_partitions_add_up_whatever_is_killed(keyed: bool) -> None:
    """States minus the exact rows follow the noise that the header names, for valid and invalid records."""
    source = TOPIC if keyed else TOPIC.replace('"item"\n', '"none"\n').replace('partitioner = "murmur2"\n', "")
    more = 'unit = "item"\nmax_total = 3\nfraction_bits = 3\nmatrix = "rademacher"\n'
    driver = Driver(
        source + BLOCK.replace("epsilon = 1", "epsilon = 9") + more, partitions=3, now="2024-01-01T02:00:00Z"
    )
    spec: Any = driver.config.sketches[0].spec
    truth = np.zeros((30, 40), np.int64)
    for hour in (0, 1):
        for number, (record, event) in enumerate(events(hour, 1200)):
            at = f"2024-01-01T{hour:02}:{number // 20:02}:{number % 20:02}Z"
            driver.send({**record, "ts": at}, timestamp=at)
            if event is not None and hour == 0:
                truth[event[0], event[1]] += int(event[2] * 8)
            if number % 500 == 499:
                driver.run()
                driver.snapshot()
            if number % 700 == 699:
                driver.kill()
    driver.run()
    window = driver.windows("rows")[0]
    found: Any = window.result(partitioned=keyed).estimate()
    layers = [layer for part in window.parts for layer in part.layers]
    assert len(layers) == 6
    assert found.variance == sum(layer.parameter for layer in layers)
    rest = found.cells - truth @ spec.projection_matrix().all_rows.astype(np.int64)
    scale = math.sqrt(found.variance)
    assert np.abs(rest).max() < 6 * scale
    assert abs((rest.astype(float) ** 2).mean() / scale**2 - 1) < 6 * (2 / rest.size) ** 0.5
    # the share of the events that is missing, or there twice
    image = (found.cells - rest).astype(float)
    share, error = (rest * image).sum() / (image**2).sum(), scale / math.sqrt((image**2).sum())
    assert error < 0.01
    assert abs(share) < 6 * error


def test_the_share_of_events_that_counted_is_judged() -> None:
    """Records with unknown rows or features, or without a row, are admitted and not counted: the answer says so."""
    for loss, warned in ((0, False), (5, True)):
        driver = Driver(TOPIC + BLOCK.replace("epsilon = 1", "epsilon = 4"), partitions=3, now="2024-01-01T02:00:00Z")
        for number in range(3000):
            at = f"2024-01-01T0{number // 1500}:{number % 1500 // 25:02}:{number % 25:02}Z"
            record: dict[str, Any] = {"user": number % 40, "shop": {"id": number % 30}, "w": 1}
            if loss and number % loss == 0:
                record["shop"] = {} if number % 2 else {"id": 30}
            driver.send({**record, "ts": at}, timestamp=at)
            if number % 700 == 699:
                driver.run()
                driver.snapshot()
                driver.kill()
        driver.run()
        window = driver.windows("rows")[0]
        share = window.quality.share
        assert share is not None
        assert share.value == pytest.approx(1 - (1 / loss if loss else 0), abs=0.08)
        assert window.quality.verdict == ("incomplete" if warned else "good")
        assert window.complete is not warned
    item = 'unit = "item"\nmax_total = 3\n'
    (plan,) = Config.parse(TOPIC + BLOCK + item).sketches
    assert not plan.spec.counted_share
    assert not plan.spec.epsilon_records


MARK = "zebra-7731-marked"


@pytest.mark.statistics
def test_a_worker_over_a_file_answers_for_every_window(run: Run, tmp_path: Path) -> None:
    """Distances, neighbours and drift of two hours; rows and items are in no log and in no bytes."""
    shops, goods = [MARK, "south", "west", "twin"], ["tea", "salt", f"{MARK}-item"]
    (tmp_path / "shops.txt").write_text("\n".join(shops) + "\n")
    (tmp_path / "goods.txt").write_text("\n".join(goods) + "\n")
    ss.Key.generate().save(tmp_path / "key")
    counts = {(MARK, "tea"): (900, 900), ("twin", "tea"): (880, 100), ("south", goods[2]): (700, 700),
              ("west", "salt"): (500, 1100), ("unknown", "tea"): (50, 50)}  # fmt: skip
    records = []
    for (shop, item), hours in counts.items():
        for hour, many in enumerate(hours):
            at = f"2024-01-01T{hour:02}:"
            records += [(f"{at}{n % 60:02}:00Z", shop, item) for n in range(many)]
    records.sort()
    with (tmp_path / "events.jsonl").open("w") as file:
        file.writelines(json.dumps({"ts": at, "shop": {"id": shop}, "user": item}) + "\n" for at, shop, item in records)
    block = BLOCK.replace("{ size = 30 }", '{ items_file = "shops.txt" }')
    block = block.replace("{ size = 40 }", '{ items_file = "goods.txt" }').replace("epsilon = 1", "epsilon = 3")
    source = EVENTS_FILE.replace('item_type = "int"\n', "") + "close_at_end = true\n"
    (tmp_path / "c.toml").write_text(
        source + SEALED_DIRECTORY + '[key]\nfile = "key"\n' + block + 'matrix = "rademacher"\n'
    )
    worked = run("worker", "-c", "c.toml", "--log-level", "debug")
    assert worked.code == 0, worked.err
    said = worked.said
    asked = ("estimate", "-c", "c.toml", "--sketch", "rows")
    first = ("--to", "2024-01-01T01:00Z")
    near = run(*asked, *first, "--nearest", MARK, "-k", "1", "--format", "json")
    assert near.code == 0, near.err
    (row,) = rows_of(json.loads(near.out))
    assert (row["user"], row["neighbour"]) == (MARK, "twin")
    pair = run(*asked, *first, "--distance", "south", "west", "--format", "json")
    (apart,) = rows_of(json.loads(pair.out))
    assert abs(apart["value"] - (700**2 + 500**2)) < 6 * apart["stderr"]
    drift = run(*asked, "--drift", "twin", "--drift", "south", "--format", "json")
    assert drift.code == 0, drift.err
    moved, still = rows_of(json.loads(drift.out))
    assert abs(moved["value"] - 780**2) < 6 * moved["stderr"]
    assert abs(still["value"]) < 6 * still["stderr"]
    plot = run(*asked, *first, "--plot", "map.png")
    assert (tmp_path / "map.png").stat().st_size > 1000
    for question in (near, pair, drift, plot):
        assert MARK not in question.err
        said += question.err
    unknown = run(*asked, *first, "--nearest", f"{MARK}-stranger")
    assert "unknown" in unknown.complaint
    assert MARK not in said + unknown.err
    for path in [*(tmp_path / "sealed").rglob("*"), *(tmp_path / "state").rglob("*")]:
        assert not path.is_file() or MARK.encode() not in path.read_bytes()
    wrong = tmp_path / "c.toml"
    wrong.write_text(wrong.read_text().replace('row = "shop.id"', 'row = "shop.idd"'))
    checked = run("validate", "-c", "c.toml")
    assert "has the field 'shop.idd' (row of sketch" in checked.said
    assert MARK not in checked.said
