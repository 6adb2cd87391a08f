"""Audit of linear kinds under independent Gaussian noise, from the matrix that their oracle computes for itself.

In: an oracle: the module `oracle` of a kind's package. Out: cases and checks for `sketchstream.audit.cases`. Touches:
entropy, by creating sketches.
Source: Balle & Wang 2018 (the divergence of two normal laws); docs/theory/privacy.md section 6.

An oracle has `specs()`, the specs to try by name; `matrix(spec)`, (counters, cells) what one event of weight 1 adds;
`questions(spec)`, (answers, cells) what is asked of the cells; and `WORKERS`, blocks of a configuration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from sketchstream.audit.cases import Case, Check, Number
from sketchstream.audit.observed import (
    Ints,
    Outcome,
    created,
    judge,
    repeated,
    sealed,
    shift_seen,
    state_of,
    untouched,
    variance_of_unit,
)
from sketchstream.noise import laws
from sketchstream.sketch import Sketch

Judge = Callable[[Fraction, Fraction, Ints], Outcome]
"""Judges the noise of n layers against the law for an epsilon and a delta."""
LOOK: Final = (Fraction(1, 3), Fraction(1, 10**7))
ERRORS: Final = 6.5
"""Standard errors by which a measured number may miss its claim."""


class Oracle(Protocol):
    """What the package of a kind says for its audit, computed apart from its own code."""

    WORKERS: Mapping[str, str]

    def specs(self) -> Mapping[str, Any]:
        """Specs by name."""

    def matrix(self, spec: Any) -> Ints:
        """(counters, cells) what one event adds."""

    def questions(self, spec: Any) -> Ints:
        """(answers, cells) what is asked."""


def creation(spec: Any, judged: Judge, rounds: int) -> Outcome:
    """Check the content of created sketches."""
    return judged(spec.epsilon, spec.delta, created(lambda: Sketch.create(spec), rounds))


def publication(spec: Any, judged: Judge, rounds: int) -> Outcome:
    """Check the noise that a seal adds to the state."""
    moved = sealed(lambda: Sketch.create(spec), rounds if spec.intrusion else 1)
    return judged(spec.epsilon_publish, spec.delta_publish, moved) if spec.intrusion else untouched(moved)


def releases(spec: Any, judged: Judge, rounds: int) -> Outcome:
    """Check that releases of one sketch have fresh noise of their law."""
    sketch = Sketch.create(spec)
    exact = state_of(sketch)
    return judged(*LOOK, np.stack([sketch.release(*LOOK).noised - exact for _ in range(rounds + 1)]))


@dataclass(frozen=True)
class LinearAudit:
    """The audit of one kind.

    Args:
        oracle: oracle of the kind.
    """

    oracle: Oracle

    @property
    def WORKERS(self) -> Mapping[str, str]:  # noqa: N802 - as the modules of other audits call it
        """Fields of a `[[sketch]]` for the audit of a worker's windows."""
        return self.oracle.WORKERS

    def cases(self, slots: int = 0) -> tuple[Case, ...]:
        """What all kinds have in common is checked for these."""
        del slots
        return tuple(self._case(name, spec) for name, spec in self.oracle.specs().items())

    def case_of(self, spec: Any) -> Case:
        """The promises of a spec from elsewhere, such as a worker's."""
        return self._case("worker", spec)

    def windows(self, case: Case, parts: Sequence[Any]) -> Outcome:
        """Judge what was published of sketches without events."""
        spec = case.spec
        return self._judge(spec)(spec.epsilon, spec.delta, np.stack([part.state for part in parts]))

    def checks(self, quick: bool) -> Iterator[Check]:
        """Names and checks of all tests of these sketches alone."""
        samples, trials = (6_000, 1_000) if quick else (200_000, 20_000)
        for name, spec in self.oracle.specs().items():
            rounds, judged = -(-samples // len(self.oracle.matrix(spec))), self._judge(spec)
            for step, check in (("create", creation), ("seal", publication), ("release", releases)):
                yield f"{step}, {name}", lambda c=check, s=spec, j=judged, n=rounds: c(s, j, n)  # type: ignore[misc]
            yield f"events, {name}", lambda spec=spec: self._events(spec)  # type: ignore[misc]
            yield f"answers, {name}", lambda spec=spec: self._answers(spec)  # type: ignore[misc]
            yield f"plainest unit, {name}", lambda spec=spec: self._plainest(spec, trials)  # type: ignore[misc]

    def _case(self, name: str, spec: Any) -> Case:
        """The promises of one spec: mu^2 of a unit at each epsilon and delta."""
        costs: dict[Any, Number] = {
            "create": 1 / variance_of_unit(spec.epsilon, spec.delta),
            **dict.fromkeys(("release", "refresh"), 1 / variance_of_unit(*LOOK)),
        }
        if spec.intrusion:
            costs["seal"] = 1 / variance_of_unit(spec.epsilon_publish, spec.delta_publish)
        share, most = float(spec.counted_share), spec.max_weight

        def counters(cost: Number) -> dict[str, laws.Law]:
            return {"counted": laws.DiscreteGaussian(Fraction(1 / (share * float(cost))))} if share else {}

        cells = self.oracle.matrix(spec).shape[1]
        moves: list[tuple[list[int], list[int], dict[str, int]]] = [
            ([0, 0, cells - 1], [most, -most, 1], {"counted": 3}),
            ([0, cells, -1], [1, 1, 1], {"counted": 1}),
            ([0], [most + 1], {"counted": 0}),
        ]
        records = laws.DiscreteLaplace(spec.epsilon_records) if spec.epsilon_records else None
        return Case(name, spec, costs, "mu^2", LOOK, counters, records, moves, 2e-2 if share else 5e-3)

    def _reach(self, spec: Any) -> int:
        """Squared length of the longest shift: all of the unit's weight in the longest column."""
        weight = spec.max_weight if spec.max_total is None else spec.max_total
        return int((self.oracle.matrix(spec) ** 2).sum(axis=0).max()) * int(weight) ** 2

    def _sigma2(self, spec: Any, epsilon: Fraction, delta: Fraction) -> float:
        """Variance of the noise of a counter, beside the events counted, which have a share of mu^2 and integers."""
        alone, share = variance_of_unit(epsilon, delta), float(spec.counted_share)
        return alone * (1 + share / alone) * self._reach(spec) / (1 - share)

    def _judge(self, spec: Any) -> Judge:
        """See `Judge`."""

        def judged(epsilon: Fraction, delta: Fraction, drawn: Ints) -> Outcome:
            law = laws.DiscreteGaussian(Fraction(self._sigma2(spec, epsilon, delta)))
            return repeated(drawn) or judge(drawn.ravel(), law)

        return judged

    def _events(self, spec: Any) -> Outcome:
        """Check that an event moves the state by its weight times its column of the oracle's matrix."""
        rng, matrix, most = np.random.default_rng(6), self.oracle.matrix(spec), spec.max_weight
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

    def _answers(self, spec: Any) -> Outcome:
        """Check the unbiased answers, and their errors, against dense least squares."""
        sketch = Sketch.create(spec)
        matrix, questions = self.oracle.matrix(spec), self.oracle.questions(spec)
        sketch.update(np.arange(matrix.shape[1]).repeat(3))
        published: Any = sketch.seal()
        found = published.estimate(method="unbiased")
        best: npt.NDArray[np.float64] = questions @ np.linalg.pinv(matrix.astype(np.float64))
        layers = [(spec.epsilon, spec.delta), (spec.epsilon_publish, spec.delta_publish)][: 1 + spec.intrusion]
        errors = np.sqrt(sum(self._sigma2(spec, *one) for one in layers) * (best**2).sum(axis=1))
        off = float(np.abs(found.values - best @ published.state).max() / errors.min())
        wide = float(np.abs(found.stderr / errors - 1).max())
        passed = off < 1e-6 and wide < 0.01
        return (
            passed,
            "the best of the state, and its errors",
            f"off by {off:.1g}, errors by {wide:.2%}",
            "errors by 1%",
        )

    def _plainest(self, spec: Any, trials: int) -> Outcome:
        """Check mu for the unit that moves the state farthest, as an observer of the open state measures it."""
        matrix = self.oracle.matrix(spec).astype(np.float64)
        cell = int((matrix**2).sum(axis=0).argmax())
        direction = matrix[:, cell] / np.linalg.norm(matrix[:, cell])
        total = spec.max_weight if spec.max_total is None else spec.max_total
        weights = [min(spec.max_weight, total - done) for done in range(0, total, spec.max_weight)]
        seen: list[list[float]] = [[], []]
        for trial in range(trials):
            sketch = Sketch.create(spec)
            sketch.update([cell] * len(weights) * (trial % 2), weights * (trial % 2))
            seen[trial % 2].append(float(direction @ state_of(sketch)))
        mu, error = shift_seen(np.array(seen[0]), np.array(seen[1]))
        claim = math.sqrt(self._reach(spec) / self._sigma2(spec, spec.epsilon, spec.delta))
        passed = abs(mu - claim) <= ERRORS * error
        return (
            passed,
            f"mu {claim:.3f}",
            f"{mu:.3f} +- {error:.3f}, {trials} trials",
            f"mu wrong by {ERRORS * error:.2f}",
        )
