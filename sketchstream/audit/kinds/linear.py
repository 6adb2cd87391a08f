"""What audits of linear kinds share.

In: specs, and what they promise, from the audit of each kind. Out: cases and checks for `sketchstream.audit.cases`.
Touches: entropy, by creating sketches.
Source: Balle & Wang 2018 (the divergence of two normal laws); docs/theory/privacy.md section 6.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Floats, Ints
from sketchstream.audit.cases import Case, Check, Number
from sketchstream.audit.observed import (
    Make,
    Outcome,
    check_untouched,
    find_repeated_noise,
    judge,
    shift_seen,
    state_of,
    variance_of_unit,
)
from sketchstream.kinds.pseudo_inverse import pseudo_inverse
from sketchstream.noise import laws
from sketchstream.sketch import Sketch

LOOK: Final = (Fraction(1, 3), Fraction(1, 10**7))
ERRORS: Final = 6.5
"""Standard errors by which a measured number may miss its claim."""
RELEASES: Final = 8
"""Releases of one sketch; its ledger has all of them."""
EXCESS: Final = 4
"""Variance by which some kinds raise discrete noise above the continuous one's."""


def looks(spec: Any) -> tuple[Fraction, ...]:
    """Arguments of a release: a delta only where the noise is not pure."""
    return LOOK[:1] if spec.pure else LOOK


def case(
    name: str,
    spec: Any,
    cost: Callable[[Fraction, Fraction], Number],
    moves: Sequence[tuple[Sequence[Any], Sequence[Any], Mapping[str, int]]],
    **more: Any,
) -> Case:
    """A case of a linear kind.

    Args:
        cost: cost of a layer from its epsilon and delta.
        more: further fields of `Case`; `released=False` where the kind refuses releases.
    """
    costs: dict[Any, Number] = {"create": cost(spec.epsilon, spec.delta)}
    if more.pop("released", True):
        costs |= dict.fromkeys(("release", "refresh"), cost(*LOOK))
    if spec.intrusion:
        costs["seal"] = cost(spec.epsilon_publish, spec.delta_publish)
    share = Fraction(getattr(spec, "counted_share", 0))

    def counters(cost: Number) -> dict[str, laws.Law]:
        if not share:
            return {}
        part = share * Fraction(cost)
        return {"counted": laws.DiscreteGaussian(1 / part) if spec.measure == "mu2" else laws.DiscreteLaplace(part)}

    usual = {
        "measure": "mu^2" if spec.measure == "mu2" else "epsilon",
        "asked": looks(spec),
        "counters": counters,
        "admitted": laws.DiscreteLaplace(spec.epsilon_records) if spec.epsilon_records else None,
    }
    return Case(name, spec, costs, moves=moves, **usual | more)


def moves_of(places: int, most: int) -> list[tuple[list[int], list[int], dict[str, int]]]:
    """Batches at the first places, outside of all, and beyond the largest weight, with the events that count."""
    return [
        ([0, 1, 0], [most, -most, 1], {"counted": 3}),
        ([0, places, -1], [1, 1, 1], {"counted": 1}),
        ([0], [most + 1], {"counted": 0}),
    ]


def reach_of(spec: Any, matrix: Ints, power: int = 2) -> int:
    """Sensitivity to one unit, in Python integers: the square of the L2 norm, or with power 1 the L1 norm."""
    columns = [sum(abs(entry) ** power for entry in column) for column in matrix.T.tolist()]
    weight = spec.max_weight if spec.max_total is None else spec.max_total
    return int(max(columns) * weight**power)


def law_beside_counter(sigma2: float, mu2: float, spec: Any) -> laws.DiscreteGaussian:
    """Noise besides the events counted, which have a share of mu^2 and integers; without them it has this sigma2."""
    share = float(spec.counted_share)
    return laws.DiscreteGaussian(Fraction(sigma2 * (1 + mu2 * share) / (1 - share)))


def mu_seen(quiet: Floats, active: Floats, claim: float) -> Outcome:
    """Compare a claimed mu with what was seen in trials without a unit and with it."""
    mu, error = shift_seen(quiet, active)
    found = f"{mu:.4f} +- {error:.4f}, {quiet.size + active.size} trials"
    return abs(mu - claim) <= ERRORS * error, f"mu {claim:.4f}", found, f"mu wrong by {ERRORS * error:.3f}"


@dataclass(frozen=True)
class LinearAudit(ABC):
    """The audit of one linear kind; what it expects is computed from plain data, apart from the kind's own code.

    Args:
        specs: function with a cache that gives the specs to try, by name.
        WORKERS: fields of a `[[sketch]]` for each audit of a worker's windows, by name.
    """

    specs: Any
    WORKERS: Mapping[str, str]

    @abstractmethod
    def law(self, spec: Any, epsilon: Fraction, delta: Fraction) -> laws.Law:
        """The law of one layer in every counter, by its epsilon and delta."""

    @abstractmethod
    def promises(self, name: str, spec: Any) -> Case:
        """The promises of one spec."""

    @abstractmethod
    def checks(self, quick: bool) -> Iterator[Check]:
        """Names and checks of all tests of these sketches alone; fewer samples are drawn if they must be quick."""

    def judge(self, spec: Any, epsilon: Fraction, delta: Fraction, drawn: Ints) -> Outcome:
        """Judge the noise of n layers against the law for an epsilon and a delta."""
        return find_repeated_noise(drawn) or judge(drawn.ravel(), self.law(spec, epsilon, delta))

    def cases(self, slots: int = 0) -> tuple[Case, ...]:
        """What all kinds have in common is checked for these."""
        return tuple(self.promises(name, spec) for name, spec in self.specs().items())

    def windows(self, case: Case, parts: Sequence[Any]) -> Outcome:
        """Judge what was published of sketches without events."""
        spec = case.spec
        return self.judge(spec, spec.epsilon, spec.delta, np.stack([part.state for part in parts]))

    def layers(
        self, name: str, spec: Any, rounds: int, make: Make | None = None, *, creations: int | None = None
    ) -> Iterator[Check]:
        """Checks of the noise of new sketches, of seals and of releases.

        Args:
            rounds: layers of noise to judge.
            make: makes a sketch; default: without a key.
            creations: new sketches to judge; default as many.
        """
        sketch = make or partial(Sketch.create, spec)
        yield f"create, {name}", partial(self.creation, spec, creations or rounds, sketch)
        yield f"seal, {name}", partial(self.publication, spec, rounds, sketch)
        if getattr(spec, "matrix_seed", "") != "secret":  # a secret matrix has no releases
            yield f"release, {name}", partial(self.releases, spec, rounds, sketch)

    def creation(self, spec: Any, rounds: int, make: Make) -> Outcome:
        """Check the content of created sketches."""
        return self.judge(spec, spec.epsilon, spec.delta, np.stack([state_of(make()) for _ in range(rounds)]))

    def publication(self, spec: Any, rounds: int, make: Make) -> Outcome:
        """Check the noise that a seal adds to the state."""
        noise = []
        for _ in range(rounds if spec.intrusion else 1):
            sketch = make()
            before = state_of(sketch)
            noise.append(sketch.seal().state - before)
        if not spec.intrusion:
            return check_untouched(noise[0])
        return self.judge(spec, spec.epsilon_publish, spec.delta_publish, np.stack(noise))

    def releases(self, spec: Any, rounds: int, make: Make) -> Outcome:
        """Check that releases of one sketch have fresh noise of their law; of several sketches, where they are many."""
        drawn: list[Ints] = []
        while len(drawn) <= rounds:
            sketch = make()
            exact = state_of(sketch)
            few = min(RELEASES, rounds + 1 - len(drawn))
            drawn += [sketch.release(*looks(spec)).noised - exact for _ in range(few)]
        return self.judge(spec, *LOOK, np.stack(drawn))


class MatrixAudit(LinearAudit):
    """The audit of a kind whose counters are whole numbers times the cells' counts."""

    @abstractmethod
    def matrix(self, spec: Any) -> Ints:
        """(counters, cells) what one event of weight 1 adds."""

    @abstractmethod
    def questions(self, name: str, spec: Any) -> npt.NDArray[Any]:
        """(answers, cells) what is asked of the cells."""

    def answers_slack(self, spec: Any) -> tuple[float, float] | None:
        """Errors that answers may have, in least standard errors, and standard errors, relative; None: no check.

        Answers that are whole numbers may be off by half a unit.
        """
        return 1e-6, 0.01

    def variance(self, spec: Any, epsilon: Fraction, delta: Fraction) -> float:
        """Variance of the noise of a counter."""
        return self.law(spec, epsilon, delta).variance

    def checks(self, quick: bool) -> Iterator[Check]:
        """The noise, what events add, and the answers."""
        samples, most = (6_000, 200) if quick else (200_000, 4_000)
        for name, spec in self.specs().items():
            yield from self.layers(name, spec, min(-(-samples // len(self.matrix(spec))), most))
            yield f"events, {name}", partial(self.events, spec)
            if self.answers_slack(spec) is not None:
                yield f"answers, {name}", partial(self.answers, name, spec)

    def events(self, spec: Any) -> Outcome:
        """Check that an event moves the state by its weight times its column of the matrix."""
        rng, most, matrix = np.random.default_rng(6), spec.max_weight, self.matrix(spec)
        sketch, cells, wrong = Sketch.create(spec), matrix.shape[1], 0
        for count in (1, 1, cells // 2 + 1, 3 * cells):
            places, weights = rng.integers(-1, cells + 1, count), rng.integers(-most - 1, most + 2, count)
            before = state_of(sketch)
            sketch.update(places, weights, invalid="noop")
            good = (places >= 0) & (places < cells) & (np.abs(weights) <= most)
            wanted = matrix[:, places[good]] @ weights[good]
            wrong += not np.array_equal(state_of(sketch) - before, wanted)
        found = "so it was" if not wrong else f"WRONG in {wrong} of 4 batches"
        return not wrong, "weight times column; no-ops outside", found, "one counter, in any of 4 batches"

    def answers(self, name: str, spec: Any) -> Outcome:
        """Check the unbiased answers, and their errors, against dense least squares."""
        sketch, matrix, slack = Sketch.create(spec), self.matrix(spec), self.answers_slack(spec)
        assert slack is not None
        sketch.update(np.arange(matrix.shape[1]).repeat(3))
        published: Any = sketch.seal()
        found = published.estimate(method="unbiased")
        best: Floats = self.questions(name, spec) @ pseudo_inverse(matrix.astype(np.float64))
        layers = [(spec.epsilon, spec.delta), (spec.epsilon_publish, spec.delta_publish)][: 1 + spec.intrusion]
        errors = np.sqrt(sum(self.variance(spec, *layer) for layer in layers) * (best**2).sum(axis=1))
        off = float(np.abs(found.values - best @ published.state).max() / errors.min())
        wide = float(np.abs(found.stderr / errors - 1).max())
        claim, seen = "the best of the state, and its errors", f"off by {off:.1g} and {wide:.1g} of an error"
        most = 0.51 / float(errors.min()) if getattr(spec, "integral", False) else slack[0]  # integers: half a unit
        return off < most and wide < slack[1], claim, seen, f"errors by {slack[1]:.2g}"

    def plainest(self, spec: Any, quick: bool) -> Outcome:
        """Check mu for the unit that moves the state farthest, as an observer of the open state measures it.

        Each sketch is a trial; half of them get the unit, and the observer projects the state onto its column.
        """
        columns = self.matrix(spec).astype(np.float64)
        cell = int((columns**2).sum(axis=0).argmax())
        direction = columns[:, cell] / np.linalg.norm(columns[:, cell])
        total = spec.max_weight if spec.max_total is None else spec.max_total
        weights = [min(spec.max_weight, total - done) for done in range(0, total, spec.max_weight)]
        seen: list[list[float]] = [[], []]
        for trial in range(1_000 if quick else 20_000):
            sketch = Sketch.create(spec)
            sketch.update([cell] * len(weights) * (trial % 2), weights * (trial % 2))
            seen[trial % 2].append(float(direction @ state_of(sketch)))
        sigma2 = self.variance(spec, spec.epsilon, spec.delta)
        return mu_seen(np.array(seen[0]), np.array(seen[1]), math.sqrt(reach_of(spec, self.matrix(spec)) / sigma2))


@dataclass(frozen=True)
class OracleAudit(MatrixAudit):
    """The audit of a kind with Gaussian noise, by the module `oracle` of its package."""

    oracle: Any

    def matrix(self, spec: Any) -> Ints:
        """Return the matrix of the oracle."""
        matrix: Ints = self.oracle.matrix(spec)
        return matrix

    def questions(self, name: str, spec: Any) -> Ints:
        """Return the questions of the oracle."""
        questions: Ints = self.oracle.questions(spec)
        return questions

    def promises(self, name: str, spec: Any) -> Case:
        """mu^2 of a unit at each epsilon and delta."""
        moves = moves_of(self.matrix(spec).shape[1], spec.max_weight)
        slack = 2e-2 if spec.counted_share else 5e-3
        return case(name, spec, lambda *look: 1 / variance_of_unit(*look), moves, slack=slack)

    def law(self, spec: Any, epsilon: Fraction, delta: Fraction) -> laws.DiscreteGaussian:
        """Gaussian noise in every counter of the state."""
        alone = variance_of_unit(epsilon, delta)
        return law_beside_counter(alone * reach_of(spec, self.matrix(spec)), 1 / alone, spec)

    def checks(self, quick: bool) -> Iterator[Check]:
        """Check what every matrix audit checks, and the plainest unit of every spec."""
        yield from super().checks(quick)
        for name, spec in self.specs().items():
            yield f"plainest unit, {name}", partial(self.plainest, spec, quick)
