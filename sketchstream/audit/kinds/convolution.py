"""Audit of kind `convolution`: laws of the results of `create`, `release` and `seal`, and sensitivities.

In: specs with every noise and layout. Out: findings for `sketchstream.audit.report`. Touches: entropy, through the
sketches it creates.
Source: docs/theory/convolution.md, sections 2, 4, 6 and 7.

Nothing here calls internals of sketches. Eigenvalues come from a transform of the filter's coefficients, scales from
epsilon and delta by the formula, losses from the bytes of two sketches of neighbouring streams.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, Final

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.audit import histories
from sketchstream.audit.cases import Case, Check, Number
from sketchstream.audit.kinds.linear import LinearAudit, case, moves_of
from sketchstream.audit.observed import Outcome, counters_of, find_repeated_noise, state_of, variance_of_unit
from sketchstream.kinds.convolution.fourier.group import Coordinates
from sketchstream.kinds.convolution.spec import ConvolutionSpec
from sketchstream.noise import laws
from sketchstream.sketch import Sketch

FLOOR: Final = 1 / 64
MAX_DEVIATION: Final = 6.1
"""Standard errors, which luck exceeds less than once in 10^9 checks."""
ROUNDING: Final = 0.002
"""Relative error of a variance that rounded spectra may have."""
LOSS_SLACK: Final = 1e-6
"""Relative error of a loss: columns and variances are rounded."""
LATTICE: Final = ("counts", "tree")
"""Noises of equal words on the integers."""


def _l1_sensitivity(spec: ConvolutionSpec) -> int:
    """Largest L1 change of the words by one unit, from the fields of a spec."""
    return spec.bound * (sum(weight for _, weight in spec.levels) if spec.noise == "tree" else 1)


def _spreads_noise(spec: ConvolutionSpec) -> bool:
    """Whether noise is spread over the counts of a long series."""
    return spec.noise == "toeplitz" and not spec.scheme.by_columns


@lru_cache(maxsize=1)
def specs() -> dict[str, ConvolutionSpec]:
    """Specs with every noise and layout, both units, and a table."""
    gaussian: dict[str, Any] = {"epsilon": "1", "delta": "1e-6", "epsilon_publish": "3/4", "noise": "gaussian"}
    pure: dict[str, Any] = {"epsilon": "1", "epsilon_publish": "3/4"}
    closed: dict[str, Any] = {"step_ms": 60_000, "publish": "closed", "intrusion": False, "epsilon_publish": None}
    two = ["window:10", "sum"]
    counted: dict[str, Any] = {"counted_share": "1/4", "epsilon_records": "1/5", "max_weight": 3}
    table = {"late": (0, 1), "day": tuple(range(31)), "hour": tuple(range(24))}
    return {
        "gaussian, fourier": ConvolutionSpec("window:24", 744, **gaussian),
        "gaussian, time": ConvolutionSpec("sum", 500, layout="time", **gaussian),
        "gaussian, weights to 5": ConvolutionSpec("sum", 500, max_weight=5, **gaussian),
        "gaussian, item": ConvolutionSpec("window:24", 744, layout="time", unit="item", max_total=9, **gaussian),
        "gaussian, marginals": ConvolutionSpec(["marginal:day,hour", "marginal:late"], columns=table, **gaussian),
        "laplace, fourier": ConvolutionSpec("window:24", 744, **gaussian | {"noise": "laplace"}),
        "pure, fourier": ConvolutionSpec("window:24", 744, noise="laplace_pure", **pure),
        "counts": ConvolutionSpec("window:24", 744, noise="counts", max_weight=2, **pure),
        "tree": ConvolutionSpec("sum", 500, noise="tree", max_weight=2, **pure),
        "tree, counted": ConvolutionSpec("sum", 500, noise="tree", **pure | counted),
        "toeplitz": ConvolutionSpec("sum", 200, max_weight=2, **gaussian | {"noise": "toeplitz"}),
        "toeplitz, long": ConvolutionSpec("sum", 4200, **gaussian | {"noise": "toeplitz"}),
        "gaussian, counted": ConvolutionSpec("window:24", 744, **gaussian | counted),
        "laplace, counted": ConvolutionSpec("window:24", 744, **gaussian | counted | {"noise": "laplace"}),
        "counts, counted": ConvolutionSpec("window:24", 744, noise="counts", **pure | counted),
        "gaussian, closed": ConvolutionSpec(two, 60, layout="time", **gaussian | closed),
        "toeplitz, closed": ConvolutionSpec(two, 60, **gaussian | closed | {"noise": "toeplitz"}),
        "counts, closed": ConvolutionSpec(two, 60, noise="counts", **pure | closed),
    }


WORKERS: Final = {
    noise: f"""
kind = "convolution"
kernel = ["window:10", "sum"]
step = "1m"
epsilon = 1
{"" if noise == "counts" else 'delta = "1e-6"'}
noise = "{noise}"
intrusion = false
{'counted_share = "1/4"' if noise == "counts" else ""}
epsilon_records = "1/5"
"""
    for noise in ("gaussian", "counts")
}


class ConvolutionAudit(LinearAudit):
    """See `LinearAudit`."""

    def cases(self, slots: int = 0) -> tuple[Case, ...]:
        """See `LinearAudit`; noise that takes long to draw has the checks of this kind."""
        return tuple(case for case in super().cases(slots) if not _spreads_noise(case.spec))

    def promises(self, name: str, spec: ConvolutionSpec) -> Case:
        """mu^2, sqrt(2 rho) or epsilon of a unit."""

        def cost(epsilon: Fraction, delta: Fraction) -> Number:
            if spec.measure == "epsilon":
                return epsilon
            claim = _claimed_loss(spec, float(epsilon), float(delta))
            return claim**2 if spec.measure == "mu2" else claim

        def coordinates(drawn: Ints) -> Floats:
            return _standard(spec, drawn, np.sqrt(_scales2(spec, float(spec.epsilon), float(spec.delta))))

        return case(
            name,
            spec,
            cost,
            moves_of(spec.length, spec.bound),
            released=spec.publish == "state",
            coordinates=None if spec.noise in LATTICE else coordinates,
            small=_shorter(spec) if spec.counted else None,
            **({"measure": "norm"} if spec.measure == "rho" else {}),
        )

    def law(self, spec: ConvolutionSpec, epsilon: Fraction, delta: Fraction) -> laws.DiscreteLaplace:
        """Laplace noise in every word; other noises are judged by their coordinates."""
        return laws.DiscreteLaplace(epsilon * (1 - spec.counted_share) / _l1_sensitivity(spec))

    def judge(self, spec: ConvolutionSpec, epsilon: Fraction, delta: Fraction, drawn: Ints) -> Outcome:
        if spec.noise in LATTICE:
            return super().judge(spec, epsilon, delta, drawn)
        scale = np.sqrt(_scales2(spec, float(epsilon), float(delta)))
        values = np.concatenate([_standard(spec, draw, scale) for draw in drawn])
        return find_repeated_noise(drawn) or _judge_standard(values, gaussian=spec.measure == "mu2")

    def checks(self, quick: bool) -> Iterator[Check]:
        """The noise, what neighbours differ by, and positions that close."""
        most = 20 if quick else 300
        for name, spec in self.specs().items():
            states = most // 10 if _spreads_noise(spec) else most  # its many words are as good as more states
            if spec.publish == "closed":
                yield f"create, {name}", partial(self.creation, spec, states, partial(Sketch.create, spec))
                yield f"closed, {name}", lambda name=name, spec=spec: _check_closed_positions(self.promises(name, spec))  # type: ignore[misc]
            else:
                yield from self.layers(name, spec, states)
            yield f"neighbours, {name}", partial(_neighbours, spec)


# Expected values, from the fields of a spec.


def _concentrated_loss(epsilon: float, delta: float) -> float:
    """sqrt(2 rho): the l2 norm of the losses of independent coordinates that are (epsilon, delta)-private by zCDP."""
    orders = 1 + np.exp(np.linspace(-12, 16, 200_001))
    logs = np.log(delta) + np.log(orders - 1) - orders * np.log1p(-1 / orders)
    return math.sqrt(2 * float(np.max((epsilon + logs / (orders - 1)) / orders)))


def _claimed_loss(spec: ConvolutionSpec, epsilon: float, delta: float) -> float:
    """The loss of a unit: mu, sqrt(2 rho) or epsilon.

    A Gaussian counter besides the words leaves a variance of 1 for the integers: its noise is sized for less loss.
    """
    if spec.measure == "epsilon":
        return epsilon
    if spec.noise == "laplace":
        return _concentrated_loss(epsilon, delta)
    mu = 1 / math.sqrt(variance_of_unit(Fraction(epsilon), Fraction(delta)))
    return mu / math.sqrt(1 + mu**2 * float(spec.counted_share))


def _words(spec: ConvolutionSpec) -> float:
    """The part of the loss that the words have; the counter of the events counted has the rest."""
    left = 1 - float(spec.counted_share)
    return math.sqrt(left) if spec.measure == "mu2" else left


def _magnitudes(spec: ConvolutionSpec) -> Floats:
    """(M,) |eigenvalue| by character; of several filters the root of the sum of squares."""
    total = np.zeros(spec.group.shape)
    for kernel in spec.filters:
        padded = np.zeros(spec.transform_length)
        padded[: len(kernel)] = kernel.coefficients
        total = total + np.abs(np.fft.fftn(padded.reshape(spec.group.shape))) ** 2
    root: Floats = np.sqrt(total).reshape(-1)
    return np.where(root > 1e-9 * root.max(), root, 0.0)


def _scales2(spec: ConvolutionSpec, epsilon: float, delta: float) -> Floats:
    """(M,) variance (Gaussian) or squared scale (Laplace) of each real Fourier coordinate, in counts; of each word."""
    if spec.noise == "toeplitz":
        return np.full(spec.length, (spec.bound / (_claimed_loss(spec, epsilon, delta) * _words(spec))) ** 2)
    magnitude, size = _magnitudes(spec), spec.transform_length
    if spec.noise == "laplace_pure":
        weight = np.where(magnitude > 0, magnitude, 1.0) ** (-2 / 3)
        phase = 2 * np.pi * np.outer(np.arange(spec.length), np.arange(1, (size + 1) // 2)) / size
        every = magnitude ** (2 / 3)
        worst = (np.abs(np.cos(phase)) + np.abs(np.sin(phase))) @ every[1 : (size + 1) // 2] * math.sqrt(2 / size)
        worst = worst + (every[0] + (every[size // 2] if size % 2 == 0 else 0.0)) / math.sqrt(size)
        return (weight * float(worst.max()) * spec.bound / (epsilon * _words(spec))) ** 2
    stored = np.ones(size, np.bool_) if spec.layout == "time" else magnitude > 0
    share = (1 - FLOOR) * magnitude / magnitude.sum() + FLOOR / int(stored.sum())
    claim = _claimed_loss(spec, epsilon, delta) * _words(spec)
    return np.asarray(np.where(stored, spec.bound**2 / (size * claim**2 * share), np.inf))


def _standard(spec: ConvolutionSpec, drawn: Ints, scale: Floats) -> Floats:
    """Noise divided by its expected scale, (M,) by character."""
    words = drawn / spec.scheme.grid_scale
    if spec.noise == "toeplitz":
        return np.asarray((words if spec.scheme.by_columns else _independent(words)) / scale)
    if spec.layout == "time":
        transform = np.fft.fftn(words.reshape(spec.group.shape), norm="ortho").reshape(-1)
        half = np.arange(1, (len(transform) + 1) // 2)
        pair = math.sqrt(2) * transform[half] / scale[half]
        return np.concatenate([[transform[0].real / scale[0]], pair.real, pair.imag])
    return np.asarray(words / Coordinates.of(spec.group, _magnitudes(spec) > 0).spread(scale))


def _independent(words: Floats) -> Floats:
    """(N,) what noise on the causal factor of running sums was made of: R D^-1 of the noise on the counts."""
    n = np.arange(1, len(words))
    root = np.concatenate([[1.0], np.cumprod((2 * n - 1) / (2 * n))])
    norms, long = np.sqrt(np.cumsum(root**2)[::-1]), 2 * len(words)
    return np.asarray(np.fft.irfft(np.fft.rfft(words / norms, long) * np.fft.rfft(root, long), long)[: len(words)])


def _judge_standard(values: Floats, *, gaussian: bool) -> Outcome:
    """Standardised samples against the unit normal or unit Laplace law: mean, variance, and tails."""
    n = values.size
    variance, fourth = (1.0, 3.0) if gaussian else (2.0, 24.0)
    spread = float(np.mean(values**2)) / variance
    errors = {
        "mean": abs(float(values.mean())) / math.sqrt(variance / n),
        "variance": max(0.0, abs(spread - 1) - ROUNDING) / math.sqrt((fourth / variance**2 - 1) / n),
    }
    for far in (1.0, 2.0, 3.0):
        share = math.erfc(far / math.sqrt(2)) if gaussian else math.exp(-far)
        beyond = float(np.mean(np.abs(values) > far))
        errors[f"beyond {far:g}"] = max(0.0, abs(beyond - share) - ROUNDING * share * far) / math.sqrt(share / n)
    worst = max(errors, key=errors.__getitem__)
    power = f"scales wrong by {(ROUNDING + 2 * MAX_DEVIATION * math.sqrt((fourth / variance**2 - 1) / n)) / 2:.1%}"
    found_text = f"variance {spread:.4f} of the claimed one; {worst} off by {errors[worst]:.1f} errors, n = {n:,}"
    return errors[worst] < MAX_DEVIATION, "the law of every coordinate", found_text, power


# Checks.


def _neighbours(spec: ConvolutionSpec) -> Outcome:
    """Check the loss from the change of bytes by one unit; the worst of several units."""
    items = np.arange(3000) ** 2 % spec.length
    empty = Sketch.create(spec).to_bytes()
    worst = 0.0
    units = [[(0, spec.bound)], [(spec.length // 2, -spec.bound)], [(spec.length - 1, spec.bound)]]
    if spec.unit == "item":
        units.append([(0, spec.bound - spec.bound // 2), (spec.length - 1, -(spec.bound // 2))])
    for unit in units:
        with_unit, without = Sketch.from_bytes(empty), Sketch.from_bytes(empty)
        for sketch in (with_unit, without):
            sketch.update(items)
        with_unit.update([position for position, _ in unit], [weight for _, weight in unit])
        without.update([spec.length, 0], [1, spec.bound + 1], invalid="noop")  # no events
        events = counters_of(with_unit).get("counted", 0) - counters_of(without).get("counted", 0)
        worst = max(worst, _loss(spec, state_of(with_unit) - state_of(without), events))
    power_of = 2 if spec.measure != "epsilon" else 1
    claim = _claimed_loss(spec, float(spec.epsilon), float(spec.delta)) ** power_of
    measure = {"mu2": "mu^2", "rho": "2 rho"}.get(spec.measure, "epsilon")
    most = claim * (1 + (LOSS_SLACK if spec.noise in LATTICE else ROUNDING))
    power = f"{measure} above the claim by {most / claim - 1:.2g} of it, of one of these units"
    return worst <= most, f"{measure} {claim:.6g}", f"{worst:.6g}, of {len(units)} units", power


def _loss(spec: ConvolutionSpec, moved: Ints, events: int) -> float:
    """Privacy loss, by mu^2, 2 rho or epsilon, of sketches that differ by `moved` words and `events` counted."""
    claim, share = _claimed_loss(spec, float(spec.epsilon), float(spec.delta)), float(spec.counted_share)
    if spec.noise in LATTICE:
        return float(np.abs(moved).sum()) * claim * (1 - share) / _l1_sensitivity(spec) + abs(events) * claim * share
    scale = np.sqrt(_scales2(spec, float(spec.epsilon), float(spec.delta)))
    distances = _standard(spec, moved, scale)
    # `_standard` omits one coordinate of an even number.
    if spec.noise == "gaussian" and spec.layout == "time" and spec.transform_length % 2 == 0:
        signs = np.where(np.arange(spec.transform_length) % 2, -1.0, 1.0)
        last = float(moved @ signs) / math.sqrt(spec.transform_length) / spec.scheme.grid_scale
        distances = np.append(distances, last / scale[spec.transform_length // 2])
    if spec.measure == "mu2":
        return float((distances**2).sum()) + events**2 * share * claim**2
    if spec.noise == "laplace_pure":
        return float(np.abs(distances).sum()) + abs(events) * claim * share
    return (math.sqrt(float((distances**2).sum())) + abs(events) * claim * share) ** 2


def _shorter(spec: ConvolutionSpec) -> ConvolutionSpec:
    """A spec of few positions with the same noise, promise and counters."""
    data = spec.to_dict()
    same = ["epsilon", "delta", "noise", "counted_share", "epsilon_records"]
    if spec.intrusion:
        same += ["epsilon_publish", "delta_publish"]
    return ConvolutionSpec("sum", 4, max_weight=spec.max_weight, **{name: data[name] for name in same})


def _check_closed_positions(case: Case) -> Outcome:
    """Check what is published of positions as they close: words that the seal shows, charged as one view with it."""
    claim, power = "the words of the sealed state, each once, charged as one bare view", "one word, or one entry"
    wrong: list[str] = []
    expected: Any = [("layer", case.costs["create"]), ("publication", None)]
    for cuts in ((0, 60), (0, 1, 30, 31, 59)):
        sketch = case.sketch()
        instalments = []
        for first, stop in pairwise(cuts):
            sketch.update([first], [1])
            instalments.append(sketch.close_positions(first, stop))
            if not np.array_equal(instalments[-1].words, sketch.kind.closed(case.spec, state_of(sketch), first, stop)):
                wrong.append("words that are not of the state")
        sealed = sketch.seal()
        for instalment in instalments:
            if not np.array_equal(
                sealed.kind.closed(case.spec, sealed.state, instalment.first, instalment.stop), instalment.words
            ):
                wrong.append("words that the seal does not show")
        for published in (*instalments, sealed):
            text = histories.differs(case, published.ledger, expected)
            text = text or histories.losses(case, published.ledger, expected)
            wrong += [text] if text else []
    result = "so it was, in 2 divisions" if not wrong else f"WRONG: {wrong[0]}"
    return not wrong, claim, result, power


AUDIT: Final = ConvolutionAudit(specs, WORKERS)
