"""Sketches of kind `gaussian` on a real broker: decimal weights, workers killed, and the noise that is left over."""

from __future__ import annotations

import math
import random
import time
from fractions import Fraction
from pathlib import Path

from helpers.kafka.app import AT_ONCE, MINUTE, App
from sketchstream.kinds.gaussian.spec import GaussianSpec
from sketchstream.noise import laws

BASE = 1_700_000_040_000 - 1_700_000_040_000 % MINUTE
ITEMS = 4000
BITS = 4
SKETCH = f"""kind = "gaussian"
epsilon = 1
delta = "1e-6"
intrusion = false
max_weight = "2.6"
fraction_bits = {BITS}
domain = {{ size = {ITEMS} }}"""
INPUT = f'item_type = "int"\nitem = "u"\nweight = "w"\ntime = "ts"\n{AT_ONCE}\nidle = "off"'
MARKED = "1.61803398874989484820458683436563811772"
WEIGHTS = ["0.25", "-1.5", "2.6", "2.600000000000000000001", "1e-1", "0.1", "-2.05", "7", "2", "1E+0", '"1"', MARKED]
"""Some of them beyond the largest weight, one no number."""


def units(text: str) -> int:
    """What a weight adds, in lattice units."""
    if not text:
        return 1 << BITS
    if text.startswith('"'):
        return 0
    value = Fraction(text)
    return math.trunc(value * (1 << BITS)) if abs(value) <= Fraction("2.6") else 0


def test_states_minus_truth_follow_one_noise_whatever_is_killed(kafka: str, tmp_path: Path) -> None:
    app = App(kafka, tmp_path / "app", partitions=2, sketch=SKETCH, input=INPUT)
    try:
        workers = [app.start("a"), app.start("b")]
        rng, load = random.Random(16), app.load()
        for minute in range(3):
            for number in range(3000):
                text = rng.choice([*WEIGHTS, ""])
                at = BASE + minute * MINUTE + number * MINUTE // 3000
                load.send(int(ITEMS * rng.random() ** 3), at, weight=text, count=units(text))
                if number % 1000 == 999:
                    load.flush()
                    time.sleep(0.3)  # snapshots come meanwhile
            if minute < 2:
                workers[minute].kill()
                workers.append(app.start("ab"[minute]))
        end = BASE + 3 * MINUTE
        load.close_windows(end + 2 * MINUTE)
        app.wait_published(end)
        rest = app.residuals(ITEMS, [BASE + minute * MINUTE for minute in range(3)])
        said = app.said()
    finally:
        app.close()
    spec = app.config.plan("seen").spec
    assert isinstance(spec, GaussianSpec)
    assert rest.size == 3 * ITEMS
    checks = laws.battery(rest, laws.DiscreteGaussian(spec.sigma2))
    assert min(one.p_value for one in checks) > 1e-9, checks
    error = math.sqrt(float(spec.sigma2) / rest.size)
    assert abs(rest.mean()) < 6 * error
    for mark in (MARKED, MARKED[:12], '"u"', '"w"'):
        assert mark not in said
