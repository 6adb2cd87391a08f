"""The guarantee of a stack covers each of its parts, in every loss and in every order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from itertools import permutations
from pathlib import Path

import pytest

import sketchstream as ss
from helpers.commands import Run
from sketchstream.privacy.deployments.guarantee import Guarantee
from sketchstream.privacy.losses.gaussian import GaussianLoss

KEY = ss.Key.generate()
OPEN = ss.OpenDomain(slots=64, levels=1)
DELTA = Fraction(1, 10**6)


def profile_part(epsilon: str, publish: str) -> ss.Release | ss.SealedState:
    sketch = ss.Sketch.create(ss.ProfileSpec(epsilon, "item", OPEN, epsilon_publish=publish), KEY)
    return sketch.seal()


def gaussian_part(epsilon: str, publish: str) -> ss.Release | ss.SealedState:
    spec = ss.GaussianSpec(epsilon, DELTA, domain=ss.ClosedDomain(size=4), epsilon_publish=publish)
    return ss.Sketch.create(spec, None).seal()


def size(loss: object) -> float:
    return loss.epsilon(DELTA) if isinstance(loss, GaussianLoss) else float(loss)  # type: ignore[arg-type]


def losses(guarantee: Guarantee) -> Iterator[float]:
    yield size(guarantee.published)
    yield size(guarantee.published_and_one_copy)


@pytest.mark.parametrize("make", [profile_part, gaussian_part])
def test_each_loss_of_a_stack_is_the_largest_of_its_parts(make) -> None:
    with pytest.warns(ss.NoPrivacyWarning):
        parts = [
            make("1", "1"),
            make("4", "1"),
            make("1/2", "2"),
            make("30", "1"),
        ]
    alone = [tuple(losses(part.guarantee())) for part in parts]
    for order in permutations(range(4), 2):
        guarantee = ss.stack([parts[i] for i in order]).guarantee()
        for found, *wanted in zip(losses(guarantee), *(alone[i] for i in order), strict=True):
            assert found == max(wanted)
        flags = [parts[i].guarantee().to_dict()["no_privacy_with_copy"] for i in order]
        assert guarantee.to_dict()["no_privacy_with_copy"] is any(flags)


def test_the_ledger_of_a_stacked_file_tells_the_loss_of_its_weakest_state(run: Run, tmp_path: Path) -> None:
    with pytest.warns(ss.NoPrivacyWarning):
        parts = [profile_part("1", "1"), profile_part("30", "1")]
    path = tmp_path / "all.stack"
    ss.stack(parts).save(path)
    found = json.loads(run("ledger", path, "--format", "json").out)
    assert (found["loss"], found["loss_with_intrusion"]) == ("1", "31")
