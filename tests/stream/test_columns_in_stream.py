"""Further fields and decimal weights on their way through a worker: exact sums, whatever the format and the cuts.

Noise is left out here, so that sums can be compared; that it is there is tested with the kinds.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest

import sketchstream as ss
from helpers.commands import Run
from helpers.configurations import EVENTS_TOPIC
from sketchstream import kinds
from sketchstream.config.loader import Config
from sketchstream.errors import ConfigError
from sketchstream.items.columns import Choices
from sketchstream.items.events import Events
from sketchstream.kinds.gaussian.kind import GaussianKind
from sketchstream.kinds.gaussian.table import GaussianTable
from sketchstream.kinds.intake import Intake
from sketchstream.stream.input.sampling import Sample
from sketchstream.testing.driver import Driver
from sketchstream_connectors.factory import decoder_of, file_layout, wanted_fields
from sketchstream_connectors.files.source import batches

HOUR = 3_600_000
START = 1_700_000_040_000 // HOUR * HOUR
SKETCHES = "".join(
    f"""
[[sketch]]
name = "{name}"
kind = "gaussian"
window = "1h"
epsilon = 1
delta = "1e-6"
total_share = 0
epsilon_records = 0
max_weight = "{most}"
fraction_bits = {bits}
domain = {{ size = 8 }}
"""
    for name, bits, most in (("quarters", 2, "10.3"), ("fine", 20, "1000"), ("whole", 0, "10"))
)
WEIGHTS = [
    "0.25", "1", "-0.75", "0.3", "10.3", "10.30000000000000000001", "-10.4", "1e1", "2.50", "1e-3", "999.999",
    "0.1000000000000000055511151231257827", "12345678901234567890.5", "1e400", "-0", "0.1", "7.0",
]  # fmt: skip
OF = {"quarters": (2, Fraction("10.3")), "fine": (20, Fraction(1000)), "whole": (None, Fraction(10))}


@pytest.fixture(autouse=True)
def _no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers of nothing."""
    monkeypatch.setattr(GaussianKind, "draw", lambda kind, spec, state, cost, progress=None: None)


def counted(name: str, text: str | None, *, floats: bool = False) -> Fraction:
    """What one weight adds to a sketch."""
    bits, most = OF[name]
    if text is None:
        return Fraction(1)
    value = Fraction(float(text)) if floats and math.isfinite(float(text)) else Fraction(text)
    if abs(value) > most or text == "1e400":
        return Fraction(0)
    if bits is None:
        whole = value.denominator == 1 if floats else text.lstrip("-").isdecimal()
        return value if whole else Fraction(0)
    return Fraction(math.trunc(value * 2**bits), 2**bits)


def events() -> list[tuple[int, str | None]]:
    """(user, weight), many of them in an order that mixes all weights and users."""
    texts = [*WEIGHTS, None]
    return [(number * 5 % 8, texts[number * 7 % len(texts)]) for number in range(400)]


def truth(name: str, *, floats: bool = False) -> dict[int, Fraction]:
    """Sums by user."""
    sums: dict[int, Fraction] = defaultdict(Fraction)
    for user, text in events():
        sums[user] += counted(name, text, floats=floats)
    return sums


def shown(published: Any) -> list[Fraction]:
    """The published values, as fractions."""
    return [Fraction(value) for value in published.estimate(method="raw").values.tolist()]


def test_sketches_of_different_lattices_take_the_same_decimal_weights() -> None:
    text = EVENTS_TOPIC.replace('item_type = "int"', 'item_type = "int"\nweight = "w"\nlateness = "5m"') + SKETCHES
    driver = Driver(text, partitions=1, now=START + HOUR)
    for number, (user, weight) in enumerate(events()):
        field = "" if weight is None else f',"w":{weight}'
        driver.send(f'{{"user":{user},"ts":{START + number}{field}}}'.encode(), timestamp=START + number, partition=0)
        if number in (100, 101, 250):
            driver.run()
        if number == 150:
            driver.snapshot()
            driver.kill()
    driver.advance(hours=3)
    for name in OF:
        (window,) = driver.windows(name)
        assert shown(window.parts[0]) == [truth(name)[user] for user in range(8)], name
    refused = [reason for _, reason, _, _ in driver.sink.sent]
    assert set(refused) == {"undecodable"}
    assert len(refused) == sum(weight in ("1e400", "12345678901234567890.5") for _, weight in events())


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "avro"])
def test_files_of_every_format_hold_decimal_weights(run: Run, tmp_path: Path, form: str) -> None:
    rows = events()
    path = tmp_path / f"e.{form}"
    if form == "jsonl":
        path.write_text("".join(f'{{"u":{u},"t":{START}' + ("" if w is None else f',"w":{w}') + "}\n" for u, w in rows))
    elif form == "csv":
        path.write_text("t,u,w\n" + "".join(f"{START},{u},{'' if w is None else w}\n" for u, w in rows))
    elif form == "avro":
        types = {"t": "long", "u": "int", "w": ["null", "double"]}
        fields = [{"name": name, "type": one} for name, one in types.items()]
        records = [{"t": START, "u": u, "w": None if w is None else float(w)} for u, w in rows]
        with path.open("wb") as file:
            fastavro.writer(file, {"type": "record", "name": "E", "fields": fields}, records, sync_interval=500)
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        weights = [None if w is None else float(w) for _, w in rows]
        pq.write_table(pa.table({"u": [u for u, _ in rows], "w": weights, "t": [START] * len(rows)}), path)
    (tmp_path / "c.toml").write_text(
        f'[input]\nfile = "e.{form}"\nitem = "u"\nitem_type = "int"\nweight = "w"\ntime = "t"\nclose_at_end = true\n'
        f'[store]\npath = "state"\n[output]\ndirectory = "sealed"\n{SKETCHES}'
    )
    result = run("worker", "-c", "c.toml")
    assert result.code == 0, result.err
    for name in OF:
        found = run("estimate", "-c", "c.toml", "--sketch", name, "--method", "raw", "--format", "json")
        assert found.code == 0, found.err
        values = [Fraction(value) for value in json.loads(found.out)["values"]]
        assert values == [truth(name, floats=form in ("parquet", "avro"))[user] for user in range(8)], name


def test_the_command_line_adds_decimal_weights_of_a_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text(
        "".join(f'{{"u":{u}' + ("" if w is None else f',"w":{w}') + "}\n" for u, w in events())
    )
    made = run(
        "create", "-o", "s.sketch", "--kind", "gaussian", "--epsilon", "1", "--delta", "1e-6", "--size", "8",
        "--max-weight", "10.3", "--fraction-bits", "2", "--total-share", "0",
    )  # fmt: skip
    assert made.code == 0, made.err
    options = ("--item", "u", "--item-type", "int", "--weight", "w", "--diagnostics", "exact")
    done = run("update", "s.sketch", "e.jsonl", *options)
    assert done.code == 0, done.err
    assert "22 events could not be read" not in done.err
    assert run("seal", "s.sketch", "-o", "s.sealed").code == 0
    assert shown(ss.load(tmp_path / "s.sealed")) == [truth("quarters")[user] for user in range(8)]
    assert run("update", "s.sketch", "e.jsonl", "--item", "u", "--field", "row=x").code != 0


# --------------------------------------------------------------------------------------------------- further fields


class CarrierIntake(Intake[Any]):
    """Events need a carrier, and only those of two of them count."""

    choices = Choices(["AA", "UA"])

    def roles(self, spec: Any) -> tuple[str, ...]:
        return ("carrier",) if spec.domain.size == 8 else ()

    def events(self, spec: Any, given: Events) -> Events:
        found = super().events(spec, given)
        if not self.roles(spec):
            return found
        good = given.columns["carrier"].codes(self.choices) >= 0
        return found.counted(found.items, good)


class Carried(GaussianKind):
    """A kind whose events need a carrier."""

    intake = CarrierIntake()


CARRIED = EVENTS_TOPIC.replace('item_type = "int"', 'item_type = "int"\nlateness = "5m"') + "".join(
    f"""
[[sketch]]
name = "{name}"
kind = "gaussian"
window = "1h"
epsilon = 1
delta = "1e-6"
total_share = 0
epsilon_records = 0
domain = {{ size = {size} }}
"""
    for name, size in (("carried", 8), ("all", 9))
)
CARRIERS: list[Any] = ["AA", "UA", "DL", None, 5, True, {"x": "AA"}, "aa"]


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a domain of 8 items name a field of carriers."""
    monkeypatch.setitem(kinds._LOADED, "gaussian", Carried())
    monkeypatch.setattr(
        GaussianTable, "fields", lambda block: {"carrier": "flight.carrier"} if block.domain.size == 8 else {}
    )


def record(number: int, at: int) -> dict[str, Any]:
    """A flight."""
    carrier = CARRIERS[number * 3 % len(CARRIERS)]
    return {"user": number * 5 % 8, "ts": at, "flight": {"carrier": carrier}} if number % 11 else {"user": 1, "ts": at}


@pytest.mark.usefixtures("carried")
def test_a_sketch_counts_by_a_further_field_and_its_neighbour_by_none() -> None:
    config = Config.parse(CARRIED)
    assert config.columns == ("flight.carrier",)
    assert [dict(plan.fields) for plan in config.sketches] == [{"carrier": "flight.carrier"}, {}]
    driver = Driver(config, partitions=1, now=START + 4 * HOUR)
    some, every = np.zeros(8), np.zeros(9)
    for number in range(300):
        at = START + number * 40_000  # several hours: some chunks lie in several windows
        one = record(number, at)
        driver.send(one, timestamp=at, partition=0)
        every[one["user"]] += 1
        some[one["user"]] += one.get("flight", {}).get("carrier") in ("AA", "UA")
        if number % 70 == 69:
            driver.run()
            driver.snapshot()
        if number % 140 == 139:
            driver.kill()
    driver.advance(hours=6)
    windows = driver.windows("carried")
    assert len(windows) == 4
    assert sum(window.parts[0].estimate(method="raw").values for window in windows).tolist() == some.tolist()
    others = driver.windows("all")
    assert sum(window.parts[0].estimate(method="raw").values for window in others).tolist() == every.tolist()
    assert driver.sink.sent == []


@pytest.mark.usefixtures("carried")
def test_windows_of_a_sketch_that_left_the_configuration_say_that_they_lack_records() -> None:
    driver = Driver(Config.parse(CARRIED), partitions=1, now=START + HOUR)
    for number in range(20):
        driver.send(record(number, START + number), timestamp=START + number, partition=0)
    driver.snapshot()
    left = CARRIED.replace('name = "carried"', 'name = "other"')
    later = Driver(Config.parse(left), partitions=1, now=START + HOUR)
    later.log, later.snapshots, later.publisher = driver.log, driver.snapshots, driver.publisher
    for number in range(20, 40):
        later.send(record(number, START + number), timestamp=START + number, partition=0)
    later.advance(hours=3)
    (window,) = driver.windows("carried")
    assert window.partial
    assert not driver.windows("all")[0].partial


@pytest.mark.usefixtures("carried")
def test_formats_without_fields_and_bad_fields_are_refused() -> None:
    def said(text: str) -> str:
        with pytest.raises(ConfigError) as caught:
            Config.parse(text)
        return "\n".join(caught.value.mistakes)

    packed = CARRIED.replace('item = "user"\n', 'format = "packed"\n').replace('time = "ts"\n', "")
    assert "names a field, and format = 'packed' has none" in said(packed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GaussianTable, "fields", lambda block: {"carrier": "flight..carrier"})
        assert "must be a dotted field" in said(CARRIED)
        patch.setattr(GaussianTable, "fields", lambda block: {f"carrier{n}": f"f{n}" for n in range(33)})
        assert "at most 32 fields" in said(CARRIED)


@pytest.mark.usefixtures("carried")
def test_a_sample_without_the_field_is_a_mistake_that_names_it() -> None:
    config = Config.parse(CARRIED)
    sample = Sample(wanted_fields(config))
    texts = [json.dumps({"user": 1, "ts": START, "flight": {"carier": "AA"}}).encode() for _ in range(120)]
    from helpers.records import records_of

    sample.add(decoder_of(config).decode(records_of(texts)), texts.__getitem__)
    (mistake,), _ = sample.lacking()
    assert "has the field 'flight.carrier' (carrier of sketch \"carried\")" in mistake
    assert "did you mean 'flight.carier'?" in mistake


@pytest.mark.usefixtures("carried")
@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_files_of_every_format_have_the_same_columns(tmp_path: Path, form: str) -> None:
    rows = [("AA", 5), ("UA", -7), (None, None), ("d,\"'\u00e9", 0), ("", 2**40)]
    name = "flight.carrier"
    path = tmp_path / f"e.{form}"
    if form == "jsonl":
        path.write_text(
            "".join(json.dumps({"user": 1, "ts": 5, "flight": {"carrier": c}, "n": n}) + "\n" for c, n in rows)
        )
    elif form == "csv":
        import csv

        with path.open("w", newline="") as file:
            csv.writer(file).writerows([("user", name, "n", "ts"), *((1, c, n, 5) for c, n in rows)])
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        carriers = pa.array([c for c, _ in rows]).dictionary_encode()
        pq.write_table(pa.table({"user": [1] * 5, name: carriers, "n": [n for _, n in rows], "ts": [5] * 5}), path)
    text = CARRIED.split("[[sketch]]", 1)[1]
    config = Config.parse(
        f'[input]\nfile = "{path}"\nitem = "user"\nitem_type = "int"\ntime = "ts"\n[[sketch]]{text}',
        tmp_path / "c.toml",
    )
    layout = file_layout(config)
    assert layout.columns == (name,)
    ((given, left_out),) = batches(path, layout)
    assert left_out == 0
    column = given.columns[name]
    assert column.codes(Choices(["AA", "UA", "d,\"'\u00e9"])).tolist() == [0, 1, -1, 2, -1]
    assert column.absent.tolist() == [False, False, True, False, form == "csv"]
    from dataclasses import replace

    ((given, _),) = batches(path, replace(layout, columns=("n",)))
    values, valid = given.columns["n"].integers()
    assert [int(v) if good else None for v, good in zip(values, valid, strict=True)] == [5, -7, None, 0, 2**40]
    units, valid = given.columns["n"].decimals(1, Fraction(5))
    assert [int(v) if good else None for v, good in zip(units, valid, strict=True)] == [10, None, None, 0, None]
    assert given.items.type_name == "int"
