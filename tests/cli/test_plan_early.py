"""`plan` for early answers: they cost what a worker charges, and are as accurate as what it publishes.

In: options. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

import sketchstream as ss
from helpers.commands import Run
from sketchstream.config.loader import Config
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.spec import OpenDomain

ONE = ("plan", "--epsilon", "1", "--open", "--slots", "8192", "--levels", "2", "--items", "3000")
TOPIC = (
    '[kafka]\n"bootstrap.servers" = "localhost:1"\n"group.id" = "reach"\n[input]\ntopic = "events"\nformat = "json"\n'
    'item = "user"\ntime = "ts"\npartitioned_by = "item"\npartitioner = "murmur2"\n[key]\nfile = "key"\n'
)
EARLY = ("--window", "1h", "--emit-every", "15m", "--epsilon-early", "1/2")


@pytest.mark.parametrize("unit", ["event", "item"])
def test_costs_are_those_of_the_configuration(run: Run, unit: str) -> None:
    found = json.loads(run(*ONE, *EARLY, "--unit", unit, "--format", "json").out)
    plain = json.loads(run(*ONE, "--unit", unit, "--window", "1h", "--format", "json").out)
    block = f'[[sketch]]\nname = "a"\nunit = "{unit}"\nepsilon = 1\ndomain = {{ slots = 8192, levels = 2 }}\n'
    text = f'{TOPIC}{block}window = "1h"\nemit_every = "15m"\nepsilon_early = "1/2"\n'
    (plan,) = Config.parse(text, "/etc/c.toml", {}).sketches
    assert plan.early is not None
    assert (found["early"]["most"], Fraction(found["early"]["epsilon"])) == (plan.early.most, plan.early.epsilon)
    assert (
        float(Fraction(found["loss"])) == pytest.approx(plan.loss) == float(Fraction(found["guarantee"]["published"]))
    )
    assert Fraction(found["loss"]) > Fraction(plain["loss"])
    assert any("preliminary answers are included: up to 4" in one for one in found["guarantee"]["seen"])
    for name in ("distinct", "at_least.2", "total", "mean"):
        assert found["early"]["numbers"][name]["sd"] > found["numbers"][name]["sd"]
    assert "early" not in plain


def test_errors_are_those_of_releases(run: Run) -> None:
    """The spread of early answers over forty sketches, against what was planned."""
    found = json.loads(run(*ONE, *EARLY, "--unit", "event", "--mean", "1.5", "--format", "json").out)
    spec = ProfileSpec("1", domain=OpenDomain(8192, 2), unit="event")
    draw = np.random.default_rng(3)
    counts = draw.geometric(1 / 1.5, 3000)
    items = np.repeat(np.arange(3000), counts)
    errors = []
    for number in range(40):
        sketch = ss.Sketch.create(spec, ss.Key(bytes([number]) * 16))
        sketch.update(items)
        errors.append(sketch.release(Fraction(1, 8)).profile().number("distinct").value - 3000)
    planned = found["early"]["numbers"]["distinct"]["sd"]
    assert 0.6 < np.sqrt(np.mean(np.square(errors))) / planned < 1.4
    assert planned > 1.05 * found["numbers"]["distinct"]["sd"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--window", "1h", "--emit-every", "15m"), "belong together"),
        (("--epsilon-early", "1"), "--emit-every and --epsilon-early belong to --window"),
        (("--window", "7d", "--every", "1d", "--emit-every", "1d", "--epsilon-early", "1"), "windows that hop"),
        (("--window", "1h", "--emit-every", "1h", "--epsilon-early", "1"), "shorter than the window"),
    ],
)
def test_what_cannot_be_is_refused(run: Run, more: tuple[str, ...], says: str) -> None:
    refused = run(*ONE, "--unit", "event", *more)
    assert refused.code == 2
    assert says in refused.complaint


def test_the_table_says_both_errors(run: Run) -> None:
    said = run(*ONE, *EARLY, "--unit", "event").out
    assert "Early answers: up to 4 of each window, at a cost of 1/8 each" in said
    assert "loses at most 1 to readers" not in said, "that is the loss without early answers"
