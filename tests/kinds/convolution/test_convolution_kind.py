"""The kind in the engine: promises kept by ledgers, noise as asked, answers of all that can be published."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import sketchstream as ss
from helpers.commands import Run
from helpers.convolution_losses import coordinates_of, verified_delta
from helpers.paths import GOLDEN
from sketchstream import kinds, wire
from sketchstream.instalment import Instalment
from sketchstream.kinds.convolution.fourier.group import Coordinates
from sketchstream.kinds.convolution.reading.answers import answers
from sketchstream.kinds.convolution.spec import ConvolutionSpec
from sketchstream.noise.laws import DiscreteGaussian, DiscreteLaplace, battery
from sketchstream.provenance import Origin
from sketchstream.stream.state.window_sketch import WindowSketch

GIVEN: dict[str, Any] = {"epsilon": 1, "delta": "1e-6", "noise": "gaussian"}
KIND = kinds.by_name("convolution")
BARE = {"intrusion": False}


@pytest.mark.parametrize(
    "spec",
    [
        ConvolutionSpec("window:24", 168, **GIVEN, **BARE),
        ConvolutionSpec("sum", 256, **GIVEN, **BARE, max_weight=7),
        ConvolutionSpec("sum", 256, **GIVEN, **BARE, layout="time"),
        ConvolutionSpec(np.ones(64), 64, mode="circular", layout="time", **GIVEN, **BARE),
        ConvolutionSpec(["marginal:a", "marginal:b"], columns={"a": (0, 1), "b": (0, 1)}, **GIVEN, **BARE),
        ConvolutionSpec("decay:0.9", 50, unit="item", max_total=9, **GIVEN, **BARE),
    ],
    ids=str,
)
def test_the_ledger_finds_the_promise_again(spec: ConvolutionSpec) -> None:
    """Lattice corrections included, a bare state costs what was asked for: not more, and hardly less."""
    sealed = ss.Sketch.create(spec).seal()
    found = sealed.ledger.loss().epsilon(spec.delta)
    assert found <= 1
    assert found > 1 - 1e-6
    assert verified_delta(spec) <= float(spec.delta)
    said = sealed.guarantee()
    assert said.unit == spec.unit
    assert str(spec.bound) in " ".join(said.protects)
    assert "unlimited" in said.to_dict()["published_and_one_copy"]
    assert (spec.layout == "time") == ("128 bits" in str(said))


def test_pure_noise_is_counted_in_epsilon() -> None:
    for noise in ("laplace_pure", "counts"):
        spec = ConvolutionSpec("window:4", 40, epsilon="1/2", epsilon_publish="1/4", noise=noise)
        sketch = ss.Sketch.create(spec, max_epsilon="3/8")
        with pytest.raises(ss.BudgetError):
            sketch.release("1/4")
        released = sketch.release("1/8")
        assert released.cost == Fraction(1, 8)
        said = sketch.seal().guarantee()
        assert said.published == Fraction(3, 8)
        assert "at most epsilon 3/8 " in said.summary
        assert "delta" not in said.summary
        with pytest.raises(ss.SpecError, match="delta"):
            ss.Sketch.create(spec).release("1", "1e-6")


def test_budgets_of_gaussian_noise() -> None:
    spec = ConvolutionSpec("window:4", 40, **GIVEN)
    sketch = ss.Sketch.create(spec, max_epsilon="0.8", max_delta="1e-6")
    with pytest.raises(ss.BudgetError):
        sketch.release("1.5", "1e-6")
    sketch.release("1/10", "1e-6")
    with pytest.raises(ss.BudgetError):
        ss.Sketch.create(spec, max_epsilon="1/10")
    with pytest.raises(ss.SpecError, match="max_epsilon"):
        ss.Sketch.create(spec, max_delta="1e-6")


@pytest.mark.parametrize("options", [{"noise": "counts"}, {"noise": "gaussian"}, {"noise": "laplace"}])
def test_parts_that_differ_in_privacy_alone_are_stacked(options: dict) -> None:
    first = ConvolutionSpec("window:8", 64, epsilon="1", delta="1e-6", counted_share="1/20", **options)
    second = ConvolutionSpec("window:8", 64, epsilon="2", delta="1e-7", epsilon_publish="3", **options)
    sketches = [ss.Sketch.create(one) for one in (first, second)]
    released = [one.release("1/2") for one in sketches]
    sealed = [one.seal() for one in sketches]
    for parts in (sealed, released):
        alone = [part.estimate()["window:8"] for part in parts]
        both = ss.stack(parts).estimate()["window:8"]
        assert both.values == pytest.approx(alone[0].values + alone[1].values)
        assert both.stderr**2 == pytest.approx(alone[0].stderr ** 2 + alone[1].stderr ** 2)
    longer = ss.Sketch.create(ConvolutionSpec("window:9", 64, epsilon="1", delta="1e-6", **options)).seal()
    with pytest.raises(ss.MergeError, match="kernel"):
        ss.stack([sealed[0], longer])


def test_a_selection_of_positions_is_refused() -> None:
    with pytest.raises(ss.SpecError, match="all positions"):
        ss.Sketch.create(ConvolutionSpec("sum", 32, **GIVEN), keep=np.ones(32, np.bool_))


@pytest.mark.parametrize(
    "spec",
    [
        ConvolutionSpec("window:16", 64, **GIVEN),
        ConvolutionSpec("window:16", 64, layout="time", **GIVEN),
        ConvolutionSpec("sum", 60, epsilon=1, noise="laplace_pure"),
        ConvolutionSpec("window:16", 64, epsilon=1, delta="1e-6", noise="laplace"),
        ConvolutionSpec("window:16", 64, epsilon=1, delta="1e-6", noise="laplace", layout="time"),
    ],
    ids=["fourier", "time", "pure", "laplace", "laplace, time"],
)
@pytest.mark.parametrize("times", [1, 4])
def test_noise_has_the_variance_that_its_cost_says(spec: ConvolutionSpec, times: int) -> None:
    """In every direction of the spectrum: standardised coordinates have the law, and no other scale has it."""
    cost = KIND.accounting.creation_cost(spec) * times
    scales = np.sqrt(spec.scheme.scales2(spec.layer_of(cost)))
    held = Coordinates.of(spec.group, spec.scheme.shape.kept)
    drawn = []
    for _ in range(60):
        state = np.zeros(spec.size, np.int64)
        KIND.draw(spec, state, cost)
        words = state / spec.scheme.grid_scale
        drawn.append(coordinates_of(held, spec.group.analyze(words)) if spec.layout == "time" else words)
    standard = (np.array(drawn) / held.spread(scales)).reshape(-1)
    law = "norm" if spec.noise == "gaussian" else "laplace"
    assert stats.kstest(standard, law).pvalue > 1e-6
    assert stats.kstest(standard * 2, law).pvalue < 1e-6


@pytest.mark.parametrize(
    "given",
    [{}, {"layout": "time"}, {"noise": "counts"}, {"noise": "laplace_pure", "delta": 0}, {"noise": "laplace"}],
)
def test_answers_of_everything_that_can_be_published(given: dict[str, Any]) -> None:
    spec = ConvolutionSpec(["window:8", "sum"], 96, **{**GIVEN, **given})
    asked = ("1/2", "1e-6") if spec.noise in ("gaussian", "laplace") else ("1/2",)
    positions = np.random.default_rng(3).integers(0, 96, 5000)
    sketches = [ss.Sketch.create(spec) for _ in range(3)]
    for number, sketch in enumerate(sketches):
        sketch.update(positions[number::3])
    released = ss.stack([one.release(*asked) for one in sketches])
    sealed = [one.seal() for one in sketches]
    whole = {"released": released, "stacked": ss.stack(sealed), "merged": ss.merge(sealed)}
    counts = np.bincount(positions, minlength=96)
    truth = {"window:8": np.convolve(counts, np.ones(8))[:96], "sum": np.cumsum(counts)}
    found = {name: ss.load(one.to_bytes()).estimate() for name, one in whole.items()}
    for series in found.values():
        assert series.names == ("window:8", "sum")
        for name in series.names:
            one = series[name]
            assert np.max(np.abs(one.values - truth[name]) / one.stderr) < 6
            assert len(one.layers) == 6
    for name in truth:
        assert np.array_equal(found["stacked"][name].values, found["merged"][name].values)
        fresh = spec.layer_of(KIND.accounting.asked_cost(spec, *(*asked, None)[:2]))
        (alone, *_) = (one for one in answers(spec, [spec.layer(), fresh], sealed[0].state) if one.filter.name == name)
        assert found["released"][name].stderr == pytest.approx(alone.stderr * math.sqrt(3))
        assert found["released"][name].mse > found["stacked"][name].mse


def test_answers_as_rows_data_and_text() -> None:
    spec = ConvolutionSpec(["marginal:late", "marginal:day"], columns={"late": (0, 1), "day": ["mo", "tu"]}, **GIVEN)
    sketch = ss.Sketch.create(spec)
    sketch.update([spec.columns.cell({"late": 1, "day": "tu"})] * 50)  # type: ignore[union-attr]
    found = sketch.seal().estimate(level=0.5)
    rows = list(found.rows())
    assert [row["day"] if row["late"] is None else row["late"] for row in rows] == [0, 1, "mo", "tu"]
    assert tuple(rows[0]) == KIND.rows(spec).header
    data = json.loads(json.dumps(found.to_dict()))
    assert data["kind"] == "convolution"
    assert [one["name"] for one in data["filters"]] == list(found.names)
    assert data["level"] == found["marginal:day"].to_dict(0.5)["level"] == 0.5
    assert data["guarantee"]["unit"] == "event"
    assert str(found).count("standard error") == 2
    assert ss.Sketch.create(spec).seal().estimate(name="marginal:day").names == ("marginal:day",)
    for wrong in ({"method": "best"}, {"name": "sum"}, {"level": 1}):
        with pytest.raises(ss.EstimateError):
            ss.Sketch.create(spec).seal().estimate(**wrong)


@pytest.mark.parametrize("layout", ["fourier", "time"])
@pytest.mark.parametrize("size", [3, 500])
def test_skips_and_no_ops_of_any_batch(layout: Any, size: int) -> None:
    """Small batches go event by event, large ones by position: they do the same to state and counters."""
    spec = ConvolutionSpec("window:4", 90, layout=layout, max_weight=3, **GIVEN)
    index = KIND.index(spec, None, None)
    random = np.random.default_rng(8)
    positions, weights = random.integers(0, 100, size), random.integers(-4, 5, size)
    positions[0], weights[0] = 95, 1
    inside, light = positions < 90, np.abs(weights) <= 3
    for invalid, kept in (("noop", inside & light), ("skip", inside)):
        state, expected = np.zeros(spec.size, np.int64), np.zeros(spec.size, np.int64)
        counters = np.zeros(1, np.int64)
        given = weights if invalid == "noop" else np.clip(weights, -3, 3)
        index.apply(state, positions, given, invalid=invalid, counters=counters)
        for place, weight in zip(positions[kept].tolist(), given[kept].tolist(), strict=True):
            index.apply(expected, [place], [weight])
        assert np.array_equal(state, expected)
        assert counters.tolist() == [kept.sum()]
    for wrong in ({"items": [5, 90]}, {"items": [5, 6], "weights": [1, 4]}):
        before = state.copy()
        with pytest.raises((ss.DomainError, ss.WeightError), match="position 1"):
            index.apply(state, **wrong)
        assert np.array_equal(state, before)


def test_states_of_another_shape_are_refused() -> None:
    spec = ConvolutionSpec("sum", 32, **GIVEN)
    sealed = ss.Sketch.create(spec).seal()
    with pytest.raises(ss.FormatError):
        KIND.require_state(spec, spec.size + 1, np.zeros(spec.size + 1, np.int64))
    with pytest.raises(ss.FormatError):
        KIND.require_view(spec, {"slots": spec.size}, np.zeros(spec.size, np.int32))
    with pytest.raises(ss.SpecError, match="int64 array of 33"):
        KIND.index(spec, None, None).apply(sealed.state[:-1], [1])


def test_what_an_error_says_names_no_position() -> None:
    sketch = ss.Sketch.create(ConvolutionSpec("sum", 32, **GIVEN))
    for invalid in ({"items": [7_654_321]}, {"items": [3], "weights": [7_654_321]}):
        with pytest.raises((ss.DomainError, ss.WeightError)) as caught:
            sketch.update(**invalid)
        assert "7654321" not in str(caught.value).replace("_", "").replace(",", "")
    assert "7654321" not in repr(sketch) + str(sketch.guarantee())


EXPECTED = json.loads((GOLDEN / "v3" / "convolution.json").read_text())


@pytest.mark.parametrize("name", EXPECTED)
def test_files_of_format_3_are_read_and_written_alike(name: str) -> None:
    data = (GOLDEN / "v3" / f"convolution-{name}.bin").read_bytes()
    assert hashlib.blake2b(data, digest_size=16).hexdigest() == EXPECTED[name]["blake2b"], "a golden file was changed"
    assert wire.version_of(data) == 3
    if name == "open":
        sketch = ss.Sketch.from_bytes(data)
        sketch.update([39], [-3])
        assert str(sketch.ledger.budget) == "(epsilon 5, delta 1e-06)"
        return
    published = ss.load(data)
    assert published.to_bytes() == data
    sums = [one.values.sum() for one in published.estimate().answers]
    assert sums == pytest.approx(EXPECTED[name]["sums"], rel=1e-9)


LAPLACE = json.loads((GOLDEN / "v3" / "convolution-laplace.json").read_text())


@pytest.mark.parametrize("name", LAPLACE)
def test_files_with_laplace_noise_are_read_and_written_alike(name: str) -> None:
    data = (GOLDEN / "v3" / f"convolution-laplace-{name}.bin").read_bytes()
    assert hashlib.blake2b(data, digest_size=16).hexdigest() == LAPLACE[name]["blake2b"], "a golden file was changed"
    if name == "open":
        sketch = ss.Sketch.from_bytes(data)
        sketch.update([39], [-3])
        rho = sketch.ledger.loss(intrusion=True).rho
    else:
        published = ss.load(data)
        assert published.to_bytes() == data
        sums = [one.values.sum() for one in published.estimate().answers]
        assert sums == pytest.approx(LAPLACE[name]["sums"], rel=1e-9)
        rho = published.ledger.loss(intrusion=True).rho
    assert str(rho) == LAPLACE[name]["rho"]


HOUR = 3_600_000


def test_positions_that_are_times_end_with_their_window(tmp_path: Path) -> None:
    """A day of 23 hours has 23 answers, and its first ones can be completed with the day before."""
    spec = ConvolutionSpec(["window:6", "sum"], 25, step_ms=HOUR, **GIVEN)
    assert spec == ConvolutionSpec.from_dict(spec.to_dict())
    days = [(0, 24 * HOUR), (24 * HOUR, 47 * HOUR), (47 * HOUR, 72 * HOUR)]
    counts = [np.arange(hours) * 20 for hours in (24, 23, 25)]
    sealed = []
    for number, (window, truth) in enumerate(zip(days, counts, strict=True)):
        origin = Origin(name="d", revision=0, window=window, partition=0, partitions=(1,))
        parts = [ss.Sketch.create(spec, origin=replace(origin, partition=part, partitions=(2,))) for part in (0, 1)]
        for part, sketch in enumerate(parts):
            sketch.update(np.repeat(np.arange(len(truth)), truth)[part::2])
        sealed.append(ss.merge([one.seal() for one in parts]) if number else ss.stack([one.seal() for one in parts]))
    alone = [one.estimate() for one in sealed]
    assert [len(one["sum"].values) for one in alone] == [24, 23, 25]
    assert alone[1]["sum"].times is not None
    assert alone[1]["sum"].times[0] == "1970-01-02T00:00:00Z"
    assert list(alone[1].rows())[-1]["time"] == "1970-01-02T22:00:00Z"
    series = np.concatenate(counts)
    at = 0
    for number in (1, 2):
        whole = sealed[number].estimate(before=sealed[number - 1])
        at += len(counts[number - 1])
        moving = whole["window:6"]
        truth = np.convolve(series, np.ones(6))[at : at + len(counts[number])]
        assert np.abs(moving.values - truth).max() < 6 * moving.stderr.max()
        assert not moving.partial.any()
        assert moving.stderr[0] == pytest.approx(moving.stderr[-1] * math.sqrt(2))
        assert moving.to_dict()["labels"]["time"] == moving.times
    with pytest.raises(ss.EstimateError, match="ends where"):
        sealed[2].estimate(before=sealed[0])
    figure = alone[1].plot(tmp_path / "day.png")
    labels = [one.get_text() for one in figure.axes[0].get_xticklabels()]
    assert 4 <= len(labels) <= 12
    assert "12:00" in labels
    assert (tmp_path / "day.png").read_bytes().startswith(b"\x89PNG")
    assert "Standard error of an answer" in alone[1]._repr_html_()
    for wrong in ({"mode": "circular", "kernel": np.ones(25)}, {"step_ms": 0}):
        with pytest.raises(ss.SpecError, match="step_ms"):
            ConvolutionSpec(**{"kernel": "sum", "length": 25, "step_ms": HOUR, **GIVEN, **wrong})


def test_estimate_on_the_command_line(run: Run, tmp_path: Path) -> None:
    sketch = ss.Sketch.create(ConvolutionSpec("sum", 30, **GIVEN))
    sketch.update([3] * 400)
    sketch.seal().save(tmp_path / "s.sealed")
    table = run("estimate", tmp_path / "s.sealed")
    assert table.code == 0, table.err
    assert "sum: 30 answers" in table.out
    rows = run("estimate", tmp_path / "s.sealed", "--format", "csv").out.splitlines()
    assert rows[0] == "filter,position,value,stderr,low,high,partial"
    assert len(rows) == 31
    data = json.loads(run("estimate", tmp_path / "s.sealed", "--format", "json").out)
    assert data["labels"]["position"] == list(range(30))
    assert data["guarantee"]["measure"] == "mu2"
    drawn = run("estimate", tmp_path / "s.sealed", "--plot", tmp_path / "s.svg")
    assert drawn.code == 0, drawn.err
    assert "<svg" in (tmp_path / "s.svg").read_text()
    refused = run("estimate", tmp_path / "s.sealed", "--top", "3")
    assert refused.code != 0
    assert "convolution" in refused.err
    assert run("inspect", tmp_path / "s.sealed").code == 0


@pytest.mark.parametrize("noise", ["gaussian", "counts", "laplace_pure", "time"])
@pytest.mark.parametrize(("epsilon", "delta"), [("1", "1e-6"), ("1/10", "1e-9"), ("4", "1e-3")])
def test_a_counter_of_events_takes_its_share_of_every_cost(noise: str, epsilon: str, delta: str) -> None:
    given: dict[str, Any] = {"epsilon": epsilon, "delta": "0" if noise == "laplace_pure" else delta, "max_weight": 3}
    given |= {"noise": "gaussian", "layout": "time"} if noise == "time" else {"noise": noise}
    alone = ConvolutionSpec("window:30", 100, **given)
    beside = ConvolutionSpec("window:30", 100, counted_share="1/20", epsilon_records="1/10", **given)
    assert ConvolutionSpec.from_dict(beside.to_dict()).fingerprint == beside.fingerprint != alone.fingerprint
    loss: Any = ss.Sketch.create(beside).ledger.loss(intrusion=True)
    lost = loss.epsilon(beside.delta) if beside.noise == "gaussian" else loss
    promised = Fraction(epsilon)
    assert 0.98 * promised < lost <= promised
    assert verified_delta(beside) <= beside.delta
    ratio = float(beside.mse()[0] / alone.mse()[0])
    if beside.noise == "gaussian":  # a little more, for the integers of a counter with small noise
        assert 20 / 19 * 0.999 <= ratio <= 20 / 19 * (1.004 if epsilon != "4" else 1.12)
    else:
        assert ratio == pytest.approx((20 / 19) ** 2, rel=0.05)
    assert KIND.accounting.cost(beside, KIND.accounting.parameter(beside, Fraction(1, 7))) == Fraction(1, 7)


@pytest.mark.statistics
@pytest.mark.parametrize("noise", ["gaussian", "counts"])
def test_events_are_counted_under_the_noise_that_the_header_names(noise: Any) -> None:
    spec = ConvolutionSpec(
        "sum", 8, noise=noise, intrusion=False, counted_share="1/4", epsilon_records="1/10", epsilon=1, delta="1e-6"
    )
    found = []
    for _ in range(300):
        sketch = ss.Sketch.create(spec)
        sketch.update([0, 7, 8, 3, -1], invalid="noop")
        sketch.update([2, 99], invalid="skip")
        (one,) = [each for each in sketch.seal().counters if each.name == "counted"]
        found.append(one.value - 4)
    (drawn,) = one.noise
    cost = KIND.accounting.creation_cost(spec) / 4
    law: Any = DiscreteGaussian if noise == "gaussian" else DiscreteLaplace
    assert drawn.parameter == (1 / cost if noise == "gaussian" else cost)
    samples = np.array(found)
    assert min(check.p_value for check in battery(samples, law(drawn.parameter))) > 1e-7
    assert min(check.p_value for check in battery(samples, law(drawn.parameter * 4))) < 1e-7


@pytest.mark.parametrize("share", [{"counted_share": "1/4"}, {"epsilon_records": "1"}])
def test_numbers_of_events_are_not_kept_where_an_item_would_show(share: dict[str, str]) -> None:
    with pytest.raises(ss.SpecError, match="belongs to unit = 'event'"):
        ConvolutionSpec("sum", 8, unit="item", max_total=3, **GIVEN, **share)  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", ["fourier", "time"])
def test_bytes_of_an_open_sketch_hold_noisy_words_and_counters_and_nothing_else_of_the_data(layout: Any) -> None:
    """No exact counter, extreme, list of touched words or offset: streams differ in noisy numbers alone."""
    spec = ConvolutionSpec("sum", 90, layout=layout, counted_share="1/20", epsilon_records="1/5", **GIVEN)
    empty = ss.Sketch.create(spec).to_bytes()
    headers, sizes = [], set()
    for positions in ([], [0] * 700, list(range(90)) * 9, [95, -1]):
        sketch = ss.Sketch.from_bytes(empty)
        sketch.update(positions, invalid="noop")
        sketch.admit(len(positions))
        data = sketch.to_bytes()
        header = wire.unpack_header(data)
        counters = header.pop("counters")
        assert all(set(one) == {"name", "value", "noise"} for one in counters)
        headers.append(header)
        sizes.add(len(data))
    assert all(header == headers[0] for header in headers)
    assert len(sizes) == 1


def test_answers_reach_back_where_their_filter_is_longer_than_the_window_so_far() -> None:
    """The answers at 0 and 1 of a filter of three positions use the window before, that at 2 does not."""
    spec = ConvolutionSpec(["window:3", "sum"], 10, epsilon=1, delta="1e-6", noise="gaussian", step_ms=60_000)
    kind, window = kinds.kind_of(spec), (0, 600_000)
    assert [kind.reaches_back(spec, f"answer.0.{place}", window) for place in range(4)] == [True, True, False, False]
    assert not any(kind.reaches_back(spec, f"answer.1.{place}", window) for place in range(4))
    assert [kind.reaches_back(spec, "last.0", (0, minutes * 60_000)) for minutes in (1, 2, 3, 10)] == [
        True, True, False, False
    ]  # fmt: skip


def test_positions_that_are_published_when_they_close_come_back_from_their_bytes() -> None:
    spec = ConvolutionSpec(
        "sum", 12, epsilon="1", delta="1e-6", noise="gaussian", layout="time", publish="closed", intrusion=False,
        step_ms=60_000
    )  # fmt: skip
    origin = Origin(name="a", revision=0, window=(0, 720_000), partition=0, partitions=(1,))
    sketch = WindowSketch.create(spec, origin=origin)
    one = sketch.close_positions(0, 5)
    again = Instalment.from_bytes(one.to_bytes())
    assert (again.first, again.stop, again.seal_id) == (0, 5, one.seal_id)
    assert np.array_equal(again.words, one.words)
    assert sketch.close_positions(5, 9).seal_id != one.seal_id


@pytest.mark.parametrize(
    ("length", "given", "layout"),
    [
        (8_192, {}, "fourier"),
        (8_193, {}, "time"),
        (8_193, {"delta": 0, "noise": "laplace_pure"}, "fourier"),
        (8_193, {"layout": "fourier"}, "fourier"),
        (16_384, {"group": "bool"}, "fourier"),
    ],
)
def test_an_event_changes_few_words_of_a_long_series(length: int, given: dict[str, Any], layout: str) -> None:
    """In layout "fourier" each event changes every word: 100,000 events of 100,000 positions took half a minute."""
    kernel = np.ones(length) if "group" in given else "sum"
    spec = ConvolutionSpec(kernel, length, **{"epsilon": "1", "delta": "1e-6", "noise": "gaussian"} | given)
    assert spec.layout == layout
    assert ConvolutionSpec.from_dict(spec.to_dict()).layout == layout
