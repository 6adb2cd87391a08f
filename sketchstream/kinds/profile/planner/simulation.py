"""Errors of a method in simulated runs, to compare with the closed forms.

In: a spec, the law of counts, a seed. Out: root mean squared errors by name. Touches: nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kinds.profile.estimate import simulate
from sketchstream.kinds.profile.estimate.sketch_facts import SketchFacts
from sketchstream.kinds.profile.planner import figures
from sketchstream.kinds.profile.planner.expectation import layers
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.spec import OpenDomain


def simulate_errors(
    spec: ProfileSpec,
    items: float,
    shares: Floats,
    merges: int,
    runs: int,
    method: str,
    seed: int,
    truths: Mapping[str, float],
) -> dict[str, float]:
    """Root mean squared errors over simulated sketches of one part."""
    rng = np.random.default_rng(seed)
    count = round(items)
    errors: dict[str, list[float]] = {name: [] for name in truths}
    effective = layers(spec, merges)
    for _ in range(runs):
        counts = rng.choice(np.arange(1, shares.size + 1), size=count, p=shares)
        true = figures.truths(list(truths), count, np.bincount(counts, minlength=2)[1:] / count)
        if (share := figures.share(spec)) < 1.0:
            counts = counts[rng.random(count) < share]
        if isinstance(spec.domain, OpenDomain):
            counters = simulate.hash_counts(counts, spec.domain.slots, spec.domain.levels, rng)
        else:
            counters = [np.concatenate([counts, np.zeros(max(spec.domain.expected_slots - counts.size, 0), np.int64)])]
        observed = simulate.publish(
            counters,
            epsilon=effective[0] * spec.max_weight,
            rng=rng,
            unit=spec.unit,
            form="state" if spec.publish == "state" else spec.form,
            cost=None if spec.publish == "state" else spec.epsilon_publish * spec.slots_share,
            layers=len(effective),
            max_count=spec.max_count,
            modulus=spec.modulus,
            max_weight=spec.max_weight,
            open_domain=isinstance(spec.domain, OpenDomain),
        )
        profile = figures.read(observed, spec.max_count, method, _simulated_facts(spec, int(counts.sum()), merges, rng))
        for name in truths:
            errors[name].append(profile.number(name).value - true.get(name, 0.0))
    return {name: math.sqrt(float(np.mean(np.square(values)))) for name, values in errors.items()}


def _simulated_facts(spec: ProfileSpec, total: int, merges: int, rng: np.random.Generator) -> SketchFacts:
    """The noisy total of a simulated sketch, if it has one, and the sample of its items, if not all count."""
    draws = figures.total_noise(spec, 1, merges)
    if not draws:
        return figures.facts_of_spec(spec)
    for epsilon in draws:
        first, second = rng.geometric(-math.expm1(-float(epsilon)), 2)
        total += int(first) - int(second)
    return replace(figures.facts_of_spec(spec), total=(total, draws), max_total=spec.max_total)
