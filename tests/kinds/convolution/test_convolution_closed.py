"""Continual publication: positions that go out when they close, exactly once, whatever is killed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sketchstream as ss
from helpers.commands import Run
from helpers.configurations import CLOSED_MINUTES
from helpers.paths import GOLDEN
from sketchstream.config.loader import Config
from sketchstream.errors import ConfigError, DataLossError, FormatError
from sketchstream.instalment import Instalment
from sketchstream.kinds.convolution.reading.answers import closed_values
from sketchstream.kinds.convolution.spec import ConvolutionSpec
from sketchstream.published import read_published
from sketchstream.query.closed import closed_windows
from sketchstream.stream.interfaces import Frontier, SealedEntry
from sketchstream.stream.state.window_sketch import WindowSketch
from sketchstream.testing.driver import Driver
from sketchstream.testing.memory import MemoryPublisher, MemorySealed
from sketchstream_connectors.files.publisher import DirectoryPublisher, decode_frontier, encode_frontier
from sketchstream_connectors.files.sealed import DirectorySealed
from sketchstream_connectors.kafka.publishing.sealed import (
    entry_records,
    frontier_record,
    read_frontier,
    read_key,
)

MINUTE = 60_000
START = 1_704_067_200_000
"""2024-01-01T00:00Z."""


def check_once(source: MemorySealed | DirectorySealed, partitions: int) -> dict[tuple[int, int], list[Instalment]]:
    """Instalments by window and partition: distinct bodies hold each position once, without gaps."""
    found: dict[tuple[int, int], dict[bytes, Instalment]] = {}
    for entry in source.closed("minutes"):
        one = Instalment.from_bytes(entry.body)
        assert entry.positions == (one.first, one.stop)
        found.setdefault((entry.window[0], entry.partition), {})[entry.body] = one
    for held in found.values():
        run = sorted(held.values(), key=lambda one: one.first)
        assert [one.first for one in run] == [0, *(one.stop for one in run[:-1])]
    assert {partition for _, partition in found} == set(range(partitions))
    return {name: sorted(held.values(), key=lambda one: one.first) for name, held in found.items()}


@pytest.mark.parametrize("noise", ["gaussian", "counts"])
@pytest.mark.parametrize("partitions", [1, 3])
def test_every_position_is_published_once_whatever_is_killed(noise: str, partitions: int) -> None:
    driver = Driver(CLOSED_MINUTES + f'noise = "{noise}"\n', partitions=partitions, now="2024-01-01T03:00:00Z")
    random = np.random.default_rng(11)
    truth = np.zeros(180, np.int64)
    for minute in range(150):
        for number in range(int(random.integers(0, 5))):
            at = START + minute * MINUTE + number * 10_000
            driver.send({"ts": at}, timestamp=at, partition=int(random.integers(partitions)))
            truth[minute] += 1
        if minute % 4 == 3:
            driver.run()
        if minute % 10 == 5:
            driver.snapshot()
        if minute % 17 == 16:
            driver.kill()
    driver.run()
    driver.snapshot()
    source = MemorySealed(driver.publisher)
    check_once(source, partitions)
    windows = driver.windows("minutes")
    closed = list(closed_windows(source, "minutes"))
    assert [one.window for one in closed[:2]] == [window.window for window in windows[:2]]
    for number, (sealed, early) in enumerate(zip(windows, closed, strict=False)):
        assert early.positions == 60
        spec = sealed.parts[0].spec
        state = np.sum([part.state for part in sealed.parts], axis=0, dtype=np.int64)
        hour = truth[number * 60 : number * 60 + 60]
        found = early.estimate()
        for place, expected in ((0, np.convolve(hour, np.ones(10))[:60]), (1, np.cumsum(hour))):
            one = found.answers[place]
            assert one.values.tolist() == closed_values(spec, state, 0, 60, place).tolist()
            assert np.abs((one.values - expected) / one.stderr).max() < 6
            assert len(one.layers) == len(sealed.parts) == partitions
    open_one = closed[2]
    assert 0 < open_one.positions < 30
    assert len(open_one.estimate()["sum"].values) == open_one.positions


def test_a_position_that_has_closed_takes_nothing_more() -> None:
    """Late for its position is late, whatever the division into chunks; a watermark decides, no payload."""
    states = []
    for every in (1, 7, 1000):
        driver = Driver(CLOSED_MINUTES.replace("epsilon = 1\n", "epsilon = 9\n") + 'noise = "counts"\n', partitions=1,
                        now="2024-01-01T03:00:00Z")  # fmt: skip
        for sent, minute in enumerate((*range(20), *range(10, 30), 3, 80, 75), 1):
            at = START + minute * MINUTE
            driver.send({"ts": at}, timestamp=at)
            if sent % every == 0:
                driver.run()
                driver.snapshot()
        driver.run()
        driver.snapshot()
        (one,) = [
            window for window in closed_windows(MemorySealed(driver.publisher), "minutes") if window.window[0] == START
        ]
        states.append(one.estimate()["sum"].values)
    # Minutes 10 to 13 came again after 14 had moved the watermark, less five minutes of lateness, beyond them.
    truth = np.zeros(60)
    truth[:30] = 1
    truth[14:20] = 2
    for values in states:
        assert np.abs(values - np.cumsum(truth)).max() < 3  # with the four late ones it would be 4


def test_closed_positions_in_folders_and_records(tmp_path: Path) -> None:
    spec = ConvolutionSpec("sum", 60, epsilon=1, delta="1e-6", noise="gaussian", layout="time", publish="closed",
                           intrusion=False, step_ms=MINUTE)  # fmt: skip
    origin = ss.Sketch.create(spec).origin.__class__(
        name="minutes", revision=0, window=(START, START + 60 * MINUTE), partition=0, partitions=(1,)
    )
    sketch = WindowSketch.create(spec, origin=origin)
    entries = []
    for first, stop in ((0, 20), (20, 35)):
        sketch.update(np.arange(first, 60))
        one = sketch.close_positions(first, stop)
        assert Instalment.from_bytes(one.to_bytes()).to_bytes() == one.to_bytes()
        window = (START, START + 60 * MINUTE)
        entries.append(SealedEntry("minutes", 0, window, 0, one.seal_id, one.to_bytes(), (first, stop)))
    frontier = Frontier("minutes", 0, 0, START, 1, 3, closed_through=START + 35 * MINUTE)
    assert decode_frontier(encode_frontier(frontier)) == frontier
    key, value, _ = frontier_record(frontier)
    assert read_frontier(read_key(key), value) == frontier  # type: ignore[arg-type]
    publisher = DirectoryPublisher(tmp_path)
    publisher.publish(0, entries, [frontier])
    publisher.publish(0, entries, [frontier])
    source = DirectorySealed(tmp_path)
    assert list(source.closed("minutes")) == entries
    assert [one for one in source.read("minutes") if isinstance(one, SealedEntry)] == []
    assert list(source.closed("minutes", since=START + 1)) == []
    (window_,) = closed_windows(source, "minutes")
    assert window_.positions == 35
    sealed = sketch.seal()
    assert isinstance(sealed, ss.SealedState)
    assert window_.estimate()["sum"].values.tolist() == closed_values(spec, sealed.state, 0, 35).tolist()
    assert sealed.ledger.loss().mu2 == Instalment.from_bytes(entries[0].body).ledger.loss().mu2
    altered = SealedEntry("minutes", 0, entries[0].window, 0, entries[0].seal_id, entries[1].body, (0, 20))
    with pytest.raises(DataLossError):
        publisher.publish(0, [altered], [])
    for entry in entries:
        bodies = [None if (one := read_key(key)) is None else one.body for key, _, _ in entry_records(entry)]
        assert all(body is not None and body.positions == entry.positions for body in bodies)
    with pytest.raises(ss.SealedError):
        sketch.close_positions(35, 40)
    with pytest.raises(ss.SpecError, match="closed"):
        WindowSketch.create(ConvolutionSpec("sum", 60, epsilon=1)).close_positions(0, 1)


def test_a_file_of_format_3_is_read_and_written_alike() -> None:
    data, expected = (
        (GOLDEN / "v3" / "convolution-closed.bin").read_bytes(),
        json.loads((GOLDEN / "v3" / "closed.json").read_text()),
    )
    assert hashlib.blake2b(data, digest_size=16).hexdigest() == expected["blake2b"], "a golden file was changed"
    one = Instalment.from_bytes(data)
    with pytest.raises(FormatError, match=r"published before its window was sealed.*--closed"):
        read_published(data)
    assert (one.first, one.stop) == (expected["first"], expected["stop"])
    assert one.to_bytes() == data


def test_two_publications_of_one_position_are_an_incident() -> None:
    driver = Driver(CLOSED_MINUTES, partitions=1, now="2024-01-01T03:00:00Z")
    for minute in range(30):
        driver.send({"ts": START + minute * MINUTE}, timestamp=START + minute * MINUTE)
    driver.run()
    driver.snapshot()
    publisher: MemoryPublisher = driver.publisher
    (entry, *_) = [one for one in publisher.log if one.positions is not None]
    twin = Instalment.from_bytes(entry.body)
    spec = twin.spec
    other = WindowSketch.create(spec, origin=twin.origin).close_positions(0, 3)
    publisher.log.append(SealedEntry("minutes", 0, entry.window, 0, other.seal_id, other.to_bytes(), (0, 3)))
    with pytest.raises(DataLossError, match="published twice"):
        list(closed_windows(MemorySealed(publisher), "minutes"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("intrusion = false\n", "", "intrusion true"),
        ('step = "1m"', 'position = "p"\nlength = 60', "needs step"),
        ("intrusion = false", 'intrusion = false\nlayout = "fourier"\nnoise = "gaussian"', "layout 'fourier'"),
    ],
)
def test_closed_publication_that_cannot_be_is_refused(old: str, new: str, said: str) -> None:
    text = CLOSED_MINUTES.replace(old, new)
    with pytest.raises(ConfigError) as caught:
        Config.parse(text)
    assert said in str(caught.value)


def test_nothing_of_an_event_shows_in_logs_or_metrics(caplog: Any) -> None:
    caplog.set_level("DEBUG")
    driver = Driver(CLOSED_MINUTES, partitions=1, now="2024-01-01T03:00:00Z")
    for minute in range(30):
        at = START + minute * MINUTE
        driver.send({"ts": at, "seat": 987_654_321, "w": "marked"}, timestamp=at)
    driver.run()
    driver.snapshot()
    text = caplog.text + str(driver.worker.gauges())
    assert "987654321" not in text
    assert "marked" not in text
    assert "30 events" not in text


def test_closed_positions_on_the_command_line(run: Run, tmp_path: Path) -> None:
    """A worker whose last window stays open: its closed positions are answered, and its ledger counts them."""
    times = [START + minute * MINUTE for minute in range(90)]
    (tmp_path / "events.jsonl").write_text("".join(f'{{"ts":{at}}}\n' for at in times))
    block = CLOSED_MINUTES[CLOSED_MINUTES.index("[[sketch]]") :]
    (tmp_path / "s.toml").write_text(
        '[input]\nfile = "events.jsonl"\ntime = "ts"\nlateness = "5m"\nquorum = 1\nquorum_time = "1ms"\n'
        '[store]\nkind = "dir"\npath = "state"\n[output]\ndirectory = "sealed"\n' + block
    )
    worked = run("worker", "-c", tmp_path / "s.toml")
    assert worked.code == 0, worked.err
    said = run("estimate", "-c", tmp_path / "s.toml", "--closed", "--format", "json")
    assert said.code == 0, said.err
    data = json.loads(said.out)
    assert (data["window_start"], data["closed"], data["complete"]) == ("2024-01-01T01:00:00Z", 24, False)
    assert data["joined"] == "2024-01-01T00:00:00Z"
    first, second = data["filters"]
    assert not any(data["partial"][: first["count"]])
    values, stderr = (np.array(data[name][second["offset"] :]) for name in ("values", "stderr"))
    assert np.abs((values - np.arange(1, 25)) / stderr).max() < 6
    both = run("estimate", "-c", tmp_path / "s.toml", "--closed", "--all", "--format", "csv")
    assert both.code == 0, both.err
    assert len(both.out.splitlines()) == 1 + 2 * 60 + 2 * 24
    ledger = run("ledger", "-c", tmp_path / "s.toml", "--format", "json")
    assert ledger.code == 0, ledger.err
    assert str(START + 60 * MINUTE) in ledger.out


@pytest.mark.parametrize(
    "kernel", ["sum", "window:7", "average:7", "average:31", "window:1", "difference", "decay:0.9"]
)
@pytest.mark.parametrize("noise", ["gaussian", "counts"])
def test_closed_values_are_correctly_rounded_sums_of_products(kernel: str, noise: Any) -> None:
    given: dict[str, Any] = {"layout": "time"} if noise == "gaussian" else {}
    spec = ConvolutionSpec(
        kernel, 40, noise=noise, publish="closed", intrusion=False, epsilon=1, delta="1e-6", step_ms=1000, **given
    )
    coefficients = spec.filters[0].coefficients.tolist()
    random = np.random.default_rng(3)
    for scale in (5, 1 << 40, 1 << 62):
        state = random.integers(-scale, scale, spec.size)
        state[::5] = 0
        before = state[spec.length :].tolist()  # the transform wraps around: padding stands before the first position
        words = [float(one) for one in [0] * 40 + before + state[: spec.length].tolist()]
        at = 40 + len(before)
        expected = [
            math.fsum(one * words[at + k - lag] for lag, one in enumerate(coefficients)) / spec.grid for k in range(40)
        ]
        assert closed_values(spec, state, 0, 40).tolist() == expected
        assert closed_values(spec, state, 11, 13).tolist() == expected[11:13]
        assert closed_values(spec, state, 9, 9).tolist() == []
    assert closed_values(spec, np.zeros(spec.size, np.int64), 0, 40).tolist() == [0.0] * 40


def test_an_instalment_whose_ledger_does_not_charge_the_bare_state_is_refused() -> None:
    spec = ConvolutionSpec("sum", 60, noise="counts", publish="closed", intrusion=False, epsilon=1, step_ms=MINUTE)
    one = WindowSketch.create(spec).close_positions(0, 3)
    assert Instalment.from_bytes(one.to_bytes()).ledger == one.ledger
    entries = one.ledger.history.entries
    cheap = dataclasses.replace(entries[-1], cost=Fraction(1, 100))
    for changed in ((*entries[:-1], cheap), entries[:-1]):
        history = dataclasses.replace(one.ledger.history, entries=changed)
        ledger = dataclasses.replace(one.ledger, history=history)
        with pytest.raises(FormatError, match=r"does not charge the bare state|of another sketch"):
            Instalment.from_bytes(dataclasses.replace(one, ledger=ledger).to_bytes())
