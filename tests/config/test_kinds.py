"""Blocks of every kind of sketch in a configuration: each is checked by the table of its kind."""

from __future__ import annotations

from fractions import Fraction
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import sketchstream as ss
from helpers.configurations import EVENTS_TOPIC
from sketchstream import kinds
from sketchstream.config.loader import Config
from sketchstream.stream.input.partitioner import items_kept
from sketchstream.testing.driver import Driver

GAUSSIAN = """[[sketch]]
name = "flights"
kind = "gaussian"
window = "1h"
epsilon = 1
delta = "1e-6"
domain = { size = 40 }
"""
LITTLE = GAUSSIAN.replace("epsilon = 1", "epsilon = 50").replace("1e-6", "1e-3")


TOY_KIND = """from helpers.tally import TallyKind


class Configured(TallyKind):
    '''The toy kind as a configuration may name it.'''
"""
TOY_TABLE = """from fractions import Fraction
from typing import Any, Literal

import sketchstream as ss
from helpers.tally import TallySpec
from sketchstream.kinds.config_tables import SketchTable


class TABLE(SketchTable):
    kind: Literal["tally"] = "tally"

    def to_spec(self, domain: Any, around: Any) -> TallySpec:
        return TallySpec(Fraction(self.epsilon), domain or ss.ClosedDomain(size=1))
"""


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A package of the toy kind with a table, for one test."""
    package = tmp_path / "toy_kind"
    package.mkdir()
    for name, text in {"__init__": "", "kind": TOY_KIND, "table": TOY_TABLE}.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(kinds, "_LOADED", dict(kinds._LOADED))
    kinds.register(import_module("toy_kind.kind").Configured())


def mistakes(block: str, topic: str = EVENTS_TOPIC) -> tuple[str, ...]:
    with pytest.raises(ss.ConfigError) as caught:
        Config.parse(topic + block)
    return caught.value.mistakes


def test_a_block_of_kind_gaussian_is_read_with_its_defaults() -> None:
    more = 'max_weight = 2.5\nfraction_bits = 1\nepsilon_publish = "1/2"\n'
    (plan,) = Config.parse(EVENTS_TOPIC + GAUSSIAN + more).sketches
    spec = plan.spec
    assert isinstance(spec, ss.GaussianSpec)
    assert (spec.epsilon, spec.delta, spec.max_weight) == (1, Fraction(1, 10**6), Fraction(5, 2))
    assert (spec.total_share, spec.counted, spec.epsilon_records) == (Fraction(1, 40), True, Fraction(1, 10))
    assert plan.epsilon_records == Fraction(1, 10)
    assert 0 < plan.loss < 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            'delta = "1e-6"',
            'dleta = "1e-6"',
            'unknown key sketch "flights".dleta; did you mean sketch "flights".delta?',
        ),
        ('delta = "1e-6"\n', "", 'sketch "flights".delta is missing'),
        ('"gaussian"', '"gausian"', "sketch \"flights\".kind must be 'profile'"),
        ("domain", "modulus = 3\ndomain", 'unknown key sketch "flights".modulus'),
        ("size = 40", "slots = 1024", "needs a closed domain"),
        ("domain", 'unit = "item"\ndomain', "max_total"),
        ("domain", "fraction_bits = 'x'\ndomain", "fraction_bits"),
        ("epsilon = 1\n", "epsilon = 1\nintrusion = 7\n", 'sketch "flights".intrusion must be true or false'),
    ],
)
def test_one_mistake_in_a_block_is_told_once(old: str, new: str, said: str) -> None:
    found = mistakes(GAUSSIAN.replace(old, new))
    assert len(found) == 1, found
    assert said in found[0]


def test_blocks_of_several_kinds_stand_side_by_side() -> None:
    profile = '[[sketch]]\nname = "reach"\nunit = "event"\nwindow = "1h"\nepsilon = 1\ndomain = { size = 40 }\n'
    config = Config.parse(EVENTS_TOPIC + GAUSSIAN + profile)
    assert [plan.spec.kind for plan in config.sketches] == ["gaussian", "profile"]
    budget = '[privacy]\nbudget = { epsilon = 3, delta = "1e-6", per = "1d" }\n'
    assert "event" in str(Config.parse(EVENTS_TOPIC + budget + GAUSSIAN + profile).check_budget())
    low = budget.replace("epsilon = 3", 'epsilon = "1/2"')
    assert any("budget" in one for one in mistakes(GAUSSIAN, EVENTS_TOPIC + low))


@pytest.mark.filterwarnings("ignore::sketchstream.NoPrivacyWarning")
def test_a_worker_counts_weights_of_kind_gaussian_whatever_is_killed() -> None:
    text = EVENTS_TOPIC.replace('item_type = "int"', 'item_type = "int"\nweight = "w"\nlateness = "5m"') + LITTLE
    driver = Driver(text + "max_weight = 3\n", partitions=3, now="2024-01-01T02:00:00Z")
    truth = np.zeros(40, np.int64)
    random = np.random.default_rng(4)
    for hour in (0, 1):
        for number in range(1200):
            user, weight = int(random.integers(0, 40)), int(random.integers(-3, 5))
            at = f"2024-01-01T{hour:02}:{number // 20:02}:{number % 20:02}Z"
            driver.send({"user": user, "w": weight, "ts": at}, timestamp=at)
            truth[user] += weight * (abs(weight) <= 3 and hour == 0)
            if number % 500 == 499:
                driver.run()
                driver.snapshot()
            if number % 700 == 699:
                driver.kill()
    driver.run()
    window = driver.windows("flights")[0]
    parts = window.parts
    assert [part.origin.partitioner for part in parts] == ["murmur2"] * 3
    domain = ss.ClosedDomain(size=40)
    masks = [items_kept(domain, "murmur2", part.origin.partition_counts, part.origin.partition or 0) for part in parts]
    answers = ss.stack(parts).estimate(kept=masks, method="raw")
    error = answers.values - truth
    assert np.abs(error).max() < 6 * answers.stderr.max() + 1  # the noise that the header names
    share = window.quality.share
    assert share is not None
    assert share.value == pytest.approx(7 / 8, abs=0.2)  # one weight in eight is above max_weight


def test_the_noise_of_a_worker_has_the_variance_that_is_published() -> None:
    text = EVENTS_TOPIC.replace('item_type = "int"', 'item_type = "int"\nlateness = "5m"')
    driver = Driver(text + GAUSSIAN.replace("size = 40", "size = 20000"), partitions=2, now="2024-01-01T02:00:00Z")
    for hour in (0, 1):
        for minute in range(60):
            for user in range(4):
                at = f"2024-01-01T{hour:02}:{minute:02}:00Z"
                driver.send({"user": user, "ts": at}, timestamp=at)
        driver.run()
        driver.snapshot()
        driver.kill()
    driver.run()
    parts = driver.windows("flights")[0].parts
    masks = [
        items_kept(ss.ClosedDomain(size=20000), "murmur2", part.origin.partition_counts, part.origin.partition or 0)
        for part in parts
    ]
    answers = ss.stack(parts).estimate(kept=masks, method="raw")
    noise = answers.values[4:]
    assert abs(np.mean(noise**2) / float(answers.variance) - 1) < 6 * (2 / len(noise)) ** 0.5
    assert np.mean(answers.values[:4]) == pytest.approx(60, abs=6 * answers.stderr[0])


def test_a_kind_that_the_package_does_not_know_runs_from_a_configuration(toy: None) -> None:
    block = (
        GAUSSIAN.replace('"gaussian"', '"tally"').replace('delta = "1e-6"\n', "").replace("epsilon = 1", "epsilon = 9")
    )
    text = EVENTS_TOPIC.replace('item_type = "int"', 'item_type = "int"\nlateness = "5m"') + block
    driver = Driver(text, partitions=1, now="2024-01-01T02:00:00Z")
    for hour in (0, 1):
        for minute in range(60):
            at = f"2024-01-01T{hour:02}:{minute:02}:00Z"
            driver.send({"user": minute % 50, "ts": at}, timestamp=at)
        driver.run()
        driver.snapshot()
        driver.kill()
    driver.run()
    window = driver.windows("flights")[0]
    answer = window.parts[0].estimate()
    assert abs(answer.value - 50) < 8  # ten of sixty are outside the domain
    assert driver.windows("flights")[0].parts[0].ledger.sealed
    assert any("did you mean" in one for one in mistakes(block + "unti = 'event'\n"))
