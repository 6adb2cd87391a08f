"""Audit of kind `projection`: noise, matrices, ledgers, and the rows with the largest privacy loss.

In: specs with every promise and matrix. Out: findings for `sketchstream.audit.report`. Touches: entropy, through the
sketches it creates.
Source: docs/theory/projection.md sections 1 to 4.

Nothing here calls internals of sketches. The matrix is computed again with the standard library's BLAKE2b, its
singular values with numpy, sigma from the divergence of two normal laws. So a build that uses the norm of a row where
a promise needs the largest singular value fails.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.audit.cases import Case, Check
from sketchstream.audit.kinds.linear import ERRORS, EXCESS, LinearAudit, case, law_beside_counter
from sketchstream.audit.observed import Outcome, log_divergence, shift_seen, state_of, variance_of_unit
from sketchstream.items.key import Key
from sketchstream.kinds.projection.spec import IdentityRowsWarning, ProjectionSpec
from sketchstream.noise import laws
from sketchstream.provenance import Origin
from sketchstream.sketch import Sketch

USERS: Final = 512
FEATURES: Final = 64
COLUMNS: Final = 32
OUTSIDE: Final = 1 << 40
"""A user outside of the domain."""
KEY: Final = Key(bytes(range(16)))


@lru_cache(maxsize=8)
def specs(users: int = USERS, epsilon: str = "1", published: str = "3/4") -> dict[str, ProjectionSpec]:
    """Specs with every promise and matrix, both secret and public."""
    norm: dict[str, Any] = {"unit": "item", "max_norm": 10_000}
    fields: dict[str, dict[str, Any]] = {
        "event, gaussian": {"max_weight": 7},
        "event, rademacher": {"matrix": "rademacher", "fraction_bits": 8},
        "total, srht": {"unit": "item", "max_total": "12.5", "fraction_bits": 6, "matrix": "srht"},
        "norm, gaussian": norm,
        "norm, rademacher": {**norm, "matrix": "rademacher", "intrusion": False, "epsilon_publish": None},
        "norm, srht": {**norm, "matrix": "srht"},
        "norm of few features, gaussian": {**norm, "max_features": 3},
        "secret, gaussian": {**norm, "matrix_seed": "secret"},
        "secret, rademacher": {**norm, "matrix_seed": "secret", "matrix": "rademacher"},
        "event, counted": {"max_weight": 7, "counted_share": "1/4", "epsilon_records": "1/5"},
    }
    with warnings.catch_warnings(action="ignore", category=IdentityRowsWarning):
        return {
            name: ProjectionSpec(users, FEATURES, COLUMNS, epsilon, "1e-6", **{"epsilon_publish": published, **more})
            for name, more in fields.items()
        }


WORKERS: Final = {
    "event": """
kind = "projection"
epsilon = 1
delta = "1e-6"
row = "shop"
rows = { size = 64 }
domain = { size = 64 }
k = 32
intrusion = false
"""
}


class ProjectionAudit(LinearAudit):
    """See `LinearAudit`."""

    def cases(self, slots: int = 0) -> tuple[Case, ...]:
        small = specs(16)
        return tuple(self.promises(name, spec, small[name]) for name, spec in specs(128).items())

    def promises(self, name: str, spec: ProjectionSpec, small: ProjectionSpec | None = None) -> Case:
        """mu^2 of a unit; for secret matrices its mean over matrices."""
        public = spec.matrix_seed == "public"

        def cost(epsilon: Fraction, delta: Fraction) -> float:
            sigma2 = _sigma(spec, epsilon, delta) ** 2 + EXCESS
            if public:
                mu2 = _sensitivity(spec) ** 2 / sigma2
                return mu2 / (1 + mu2 * float(spec.counted_share))  # the integers of the counter need noise too
            assert spec.max_norm is not None
            return spec.k * (float(spec.max_norm) * 2.0**spec.fraction_bits * _size(spec)) ** 2 / sigma2

        most = math.floor(spec.max_weight or spec.max_total or 1)
        moves: list[tuple[list[tuple[int, int]], list[int], dict[str, int]]] = [
            ([(3, 1), (3, 1), (5, 2)], [most, -most, 1], {"counted": 3}),
            ([(3, 1), (3, FEATURES), (OUTSIDE, 1)], [1, 1, 1], {"counted": 1}),
            ([(3, 1)], [most + 1 if spec.unit == "event" else 1], {"counted": 0}),
        ]
        slack = 2e-2 if spec.counted_share else 1e-3  # integers of the counter need more noise than real numbers
        measure = "mu^2" if public else "mean"
        return case(name, spec, cost, moves, released=public, measure=measure, small=small, slack=slack)

    def law(self, spec: ProjectionSpec, epsilon: Fraction, delta: Fraction) -> laws.DiscreteGaussian:
        """Gaussian noise in every cell: the events counted have their share."""
        sigma2, square = _sigma(spec, epsilon, delta) ** 2 + EXCESS, _sensitivity(spec) ** 2 if spec.counted else 0.0
        return law_beside_counter(sigma2, square / sigma2, spec)

    def checks(self, quick: bool) -> Iterator[Check]:
        """The noise, matrices, and the hardest rows of three specs."""
        cells, trials = (100_000, 30_000) if quick else (1_000_000, 300_000)
        for name, spec in specs(cells // COLUMNS).items():
            yield from self.layers(name, spec, 1, partial(_sketch, spec))
        for name, spec in specs().items():
            yield f"matrix, {name}", partial(_matrix, spec)
        for name in ("event, gaussian", "norm, gaussian", "norm, srht"):
            yield f"hardest row, {name}", lambda name=name: _hardest(specs(2 * trials, "4", "4")[name])  # type: ignore[misc]


# Expected values, from the fields of a spec.


def rows_of_the_matrix(spec: ProjectionSpec, seed: bytes) -> Floats:
    """(features, k) the matrix, computed with the standard library."""
    words = np.array([_words(seed, feature, spec.k) for feature in range(spec.features.size)], np.uint64)
    minus = words >> np.uint64(63) == 1
    if spec.matrix == "rademacher":
        return np.where(minus, -1.0, 1.0)
    if spec.matrix == "srht":
        order = 1 << (spec.features.size - 1).bit_length()
        drawn = _words(seed, 2**64 - 1, 64 * spec.k)
        columns = list(dict.fromkeys(word % order for word in drawn))[: spec.k]
        bits = np.arange(spec.features.size)[:, None] & np.array(columns)
        odd = np.array([[int(common).bit_count() & 1 for common in row] for row in bits], bool)
        return np.where(odd != minus[:, :1], -1.0, 1.0)
    sizes = np.arange(600)
    mass = np.exp(-(sizes**2) / (2 * 64.0**2)) * np.where(sizes == 0, 1, 2)
    below = np.cumsum(mass / mass.sum())
    size = np.searchsorted(below, (words & np.uint64(2**63 - 1)).astype(np.float64) / 2.0**63, side="right")
    return np.where(minus, -1.0, 1.0) * size


def _words(seed: bytes, feature: int, number: int) -> list[int]:
    """The first 64-bit words of a feature."""
    out: list[int] = []
    for block in range(-(-number // 8)):
        data = feature.to_bytes(8, "little") + block.to_bytes(4, "little")
        digest = hashlib.blake2b(data, digest_size=64, key=seed, person=b"sketchstream-P1").digest()
        out += [int.from_bytes(digest[at : at + 8], "little") for at in range(0, 64, 8)]
    return out[:number]


def _sensitivity(spec: ProjectionSpec) -> float:
    """Sensitivity of the state to one unit, in lattice units; public matrices."""
    assert spec.seed is not None
    rows, unit = rows_of_the_matrix(spec, spec.seed), 2.0**spec.fraction_bits
    longest = float(np.linalg.norm(rows, axis=1).max())
    if spec.max_norm is None:
        return float(spec.max_weight or spec.max_total or 0) * unit * longest
    largest = float(np.linalg.svd(rows, compute_uv=False)[0])
    if spec.max_features is not None:
        gram = np.abs(rows @ rows.T)
        np.fill_diagonal(gram, 0)
        largest = min(largest, math.sqrt(longest**2 + (spec.max_features - 1) * float(gram.max())))
    return float(spec.max_norm) * unit * largest


def _size(spec: ProjectionSpec) -> int:
    """Root mean square of an entry of the matrix."""
    return 64 if spec.matrix == "gaussian" else 1


@lru_cache(maxsize=64)
def _sigma(spec: ProjectionSpec, epsilon: Fraction, delta: Fraction) -> float:
    """Standard deviation of one layer, lattice units."""
    if spec.matrix_seed == "public":
        return _sensitivity(spec) * math.sqrt(variance_of_unit(epsilon, delta))
    assert spec.max_norm is not None
    log_delta, norm = math.log(delta), float(spec.max_norm) * 2.0**spec.fraction_bits * _size(spec)
    squared, tilts = np.geomspace(spec.k / 20, spec.k * 50, 2000), np.linspace(0.005, 0.495, 99)

    def found(sigma: float) -> float:
        divergence = log_divergence(float(epsilon), np.sqrt(squared) * norm / sigma)
        return min(float((divergence - tilt * squared).max()) - spec.k / 2 * math.log1p(-2 * tilt) for tilt in tilts)

    low, high = 0.0, 60.0
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (middle, high) if found(math.exp(middle)) > log_delta else (low, middle)
    return math.exp(high)


# Checks.


def _sketch(spec: ProjectionSpec, window: tuple[int, int] | None = None) -> Any:
    return Sketch.create(spec, KEY if spec.needs_key else None, origin=Origin(name="audit", window=window))


def _cells(sketch: Any) -> Ints:
    """(users, k) the counters in an open sketch's bytes."""
    return state_of(sketch).reshape(-1, sketch.spec.k)


def _matrix(spec: ProjectionSpec) -> Outcome:
    """Check that one event moves its user's row by the weight times a row of the matrix, and no other row."""
    from msgpack import packb

    wrong = []
    seen = []
    unit = 1 << spec.fraction_bits
    beyond = math.floor(min(most for most in (spec.max_weight, spec.max_total, spec.max_norm) if most is not None)) + 1
    for window in ((0, 1000), (1000, 2000)):
        seed = spec.seed
        if seed is None:
            text = packb([spec.fingerprint, "0:audit", f"{window[0]}..{window[1]}"])
            made = hashlib.blake2b(text, digest_size=32, key=KEY.secret(), person=b"sketchstream-P2")
            seed = made.digest()
        seen.append(seed)
        rows = rows_of_the_matrix(spec, seed).astype(np.int64)
        sketch = _sketch(spec, window)
        for feature in range(FEATURES):
            before = _cells(sketch)
            pairs = [(5, feature), (5, FEATURES), (USERS, feature), (5, feature)]
            sketch.update(pairs, [-1, 1, 1, beyond], invalid="noop")
            moved = _cells(sketch) - before
            moved[5] += unit * rows[feature]
            if moved.any():
                wrong.append(feature)
    shared = len(set(seen)) == 1
    if shared == (spec.matrix_seed == "secret"):
        return False, "a matrix for each window, where it is secret", "not so", "one seed"
    result = f"{2 * FEATURES} events, one of each feature" if not wrong else f"WRONG at {len(wrong)} events"
    return not wrong, "one row, by the weight times the feature's row", result, "one entry"


def _hardest(spec: ProjectionSpec) -> Outcome:
    """Check mu for the row that moves the state farthest, as an observer measures it, in open and sealed states.

    Each user is a trial. Half of them add the row; the observer projects each user's cells onto its direction.
    """
    assert spec.seed is not None
    rows = rows_of_the_matrix(spec, spec.seed)
    if spec.max_norm is None:
        farthest = int(np.linalg.norm(rows, axis=1).argmax())
        row = np.zeros(FEATURES, np.int64)
        row[farthest] = math.floor(spec.max_weight or 0)
    else:
        row = np.trunc(np.linalg.svd(rows)[0][:, 0] * float(spec.max_norm)).astype(np.int64)
    features = np.flatnonzero(row)
    half = spec.users.size // 2
    sketch = _sketch(spec)
    for start in range(0, half, 1 << 14):
        users = np.arange(start, min(half, start + (1 << 14)))
        pairs = np.stack([np.repeat(users, len(features)), np.tile(features, len(users))], axis=1)
        sketch.update(pairs, np.tile(row[features], len(users)))
    direction = row @ rows
    length = float(np.linalg.norm(direction))
    shifts, passed, claims = [], True, []
    observed = [(_cells(sketch), sketch.ledger.loss(intrusion=True))]
    sealed = sketch.seal()
    observed.append((sealed.state.reshape(-1, spec.k), sealed.ledger.loss()))
    for cells, loss in observed:
        seen = cells.astype(np.float64) @ (direction / length)
        mu, error = shift_seen(seen[half:], seen[:half])
        # the row is rounded to integers, so it may be slightly below the farthest
        claim = math.sqrt(loss.mu2)
        passed &= claim * 0.9 - ERRORS * error <= mu <= claim + ERRORS * error
        shifts.append(f"{mu:.3f} +- {error:.3f}")
        claims.append(f"{claim:.3f}")
    power = f"mu wrong by {ERRORS * error / claim:.0%}"
    return passed, f"mu {' open, '.join(claims)} sealed", f"{' and '.join(shifts)}, {half} trials each", power


AUDIT: Final = ProjectionAudit(specs, WORKERS)
