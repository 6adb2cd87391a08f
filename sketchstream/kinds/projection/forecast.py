"""Forecasts for a projection: expected errors, the best k, and whether to project at all.

In: a `ProjectionSpec`, sizes of the rows that are expected. Out: standard errors, user units. Touches: nothing.
Source: docs/theory/projection.md, section 8.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from typing import Any, Final

from sketchstream.errors import SpecError
from sketchstream.kinds.projection.matrices.matrix import MAX_COLUMNS, Family
from sketchstream.kinds.projection.matrices.variance import MatrixLaw
from sketchstream.kinds.projection.mechanism import creation_sigma2, noise_fourth, publication_sigma2
from sketchstream.kinds.projection.spec import ProjectionSpec
from sketchstream.noise.laws import gaussian_variance
from sketchstream.spec import checked_int

CANDIDATES: Final = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Numbers of columns that are tried."""


@dataclass(frozen=True)
class ExpectedErrors:
    """Errors that the answers will have.

    Args:
        sigma: noise of one layer at creation, JL units.
        tau: noise variance of a published cell, signal units.
        distance: standard error of a squared distance.
        sq_norm: error of a squared norm.
        inner: error of an inner product.
        feature: error of a single entry that is small.
        identity: standard error of a squared distance if rows were kept without a projection, under the same promise.
    """

    k: int
    sigma: float
    tau: float
    distance: float
    sq_norm: float
    inner: float
    feature: float
    identity: float

    @property
    def identity_better(self) -> bool:
        """Whether rows without a projection (matrix "identity") would be more accurate."""
        return self.identity < self.distance

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self) | {"identity_better": self.identity_better}


@dataclass(frozen=True)
class RowsPlan:
    """Which number of columns to take, and whether to project at all.

    Args:
        spec: the spec with the best number of columns.
        distance2: squared distance of two typical rows.
        tried: what each number of columns gives, ascending.
        best: the one with the smallest error of a distance.
        signs: the same with random signs, where they were not asked for and have a smaller error.
    """

    spec: ProjectionSpec
    distance2: float
    parts: int
    tried: tuple[ExpectedErrors, ...]
    best: ExpectedErrors
    signs: ExpectedErrors | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "kind": "projection",
            "squared_distance": self.distance2,
            "parts": self.parts,
            "best": self.best.to_dict(),
            "tried": [errors.to_dict() for errors in self.tried],
            "notes": list(self.sentences()),
        }

    def rows(self) -> list[dict[str, Any]]:
        """A table, one dictionary for each number of columns."""
        return [errors.to_dict() for errors in self.tried]

    def sentences(self) -> tuple[str, ...]:
        """Conclusions as sentences."""
        best, distance = self.best, f"a squared distance of {self.distance2:,.6g}"
        lines = [
            f"With k = {best.k}, {distance} has a standard error of {best.distance:,.4g} "
            f"({best.distance / self.distance2:.1%}); a squared norm {best.sq_norm:,.4g}, an inner product "
            f"{best.inner:,.4g}, a single feature {best.feature:,.4g}."
        ]
        if best.identity_better:
            lines.append(
                f"Do not project: rows kept as they are (matrix = 'identity', {self.spec.users.size:,} rows x "
                f"{self.spec.features.size:,} features) have a standard error of {best.identity:,.4g}, "
                f"{best.distance / best.identity:.3g} times less, under the same promise."
            )
        else:
            lines.append(
                f"Projecting is {best.identity / best.distance:.3g} times more accurate than rows kept as they are "
                f"(matrix = 'identity'), whose standard error is {best.identity:,.4g}."
            )
        if self.signs is not None and self.signs.distance < best.identity:
            lines.append(
                f"Take random signs: matrix = 'rademacher' with k = {self.signs.k} has a standard error of "
                f"{self.signs.distance:,.4g}, {best.distance / self.signs.distance:.3g} times less."
            )
        dense = self.spec.unit == "item" and self.spec.max_total is None and self.spec.max_features is None
        if dense and self.spec.matrix_seed == "public":
            lines.append(
                "A public matrix stretches the worst row by its largest singular value, so a promise of the norm alone "
                "never gains accuracy from it: promise max_total or max_features, or take matrix_seed = 'secret'."
            )
        if best.distance > self.distance2:
            lines.append("The error is larger than the distance itself: more data, or a larger epsilon, is needed.")
        if (least := self.least(0.2)) < math.inf:
            lines.append(f"With this k, squared distances are known to 20% from a distance of {least:,.4g} on.")
        return tuple(lines)

    def least(self, relative: float) -> float:
        """The smallest distance (not squared) whose square has this relative error, at the best k."""
        from scipy.optimize import brentq

        noise, law = 2 * self.best.tau, MatrixLaw.of(self.spec.outline)

        def excess(distance: float) -> float:
            return math.sqrt(law.squared_norm(distance**2, noise)) / distance**2 - relative

        high = 1.0
        while excess(high) > 0:
            high *= 2
            if high > 1e60:
                return math.inf
        return float(brentq(excess, 1e-9, high, rtol=1e-12))


def plan(
    spec: ProjectionSpec, distance2: float, *, parts: int = 1, candidates: tuple[int, ...] | None = None
) -> RowsPlan:
    """The best number of columns, and what rows without a projection would give.

    Args:
        spec: any k; everything else as it will be.
        distance2: squared distance of two typical rows, user units.
    """
    tried = (spec.k,) if spec.matrix == "identity" else CANDIDATES
    best, errors = best_columns(spec, distance2, tried if candidates is None else candidates, parts)
    signs = None
    if spec.matrix == "gaussian":
        k, other = best_columns(with_columns(spec, spec.k, "rademacher"), distance2, tuple(errors), parts)
        signs = other[k] if other[k].distance < errors[best].distance else None
    return RowsPlan(with_columns(spec, best), distance2, parts, tuple(errors.values()), errors[best], signs)


def expected_errors(
    spec: ProjectionSpec, distance2: float, norm2: float | None = None, layers: int = 1
) -> ExpectedErrors:
    """Standard errors of the answers.

    Args:
        distance2: squared distance of two typical rows, user units.
        norm2: squared norm of a typical row; by default that of rows with nothing in common, half of distance2.
    """
    norm2 = distance2 / 2 if norm2 is None else norm2
    for name, value in (("distance2", distance2), ("norm2", norm2)):
        if not 0 <= value < math.inf:
            raise SpecError(f"{name} must be at least 0 and finite, found {value!r:.40}")
    checked_int(layers, "layers", 1, 1 << 20)
    unprojected = spec if spec.matrix == "identity" else with_columns(spec, None, "identity")
    bare_tau, bare_excess = _noise(unprojected, layers)
    bare = MatrixLaw.of(unprojected.outline).squared_norm(distance2, 2 * bare_tau, excess=2 * bare_excess)
    tau, excess = _noise(spec, layers)
    unit, law = spec.entry_variance * 4.0**spec.fraction_bits, MatrixLaw.of(spec.outline)
    return ExpectedErrors(
        k=spec.k,
        sigma=math.sqrt(float(gaussian_variance(creation_sigma2(spec))) / unit / spec.k),
        tau=tau,
        distance=math.sqrt(law.squared_norm(distance2, 2 * tau, excess=2 * excess)),
        sq_norm=math.sqrt(law.squared_norm(norm2, tau, excess=excess)),
        inner=math.sqrt(law.inner(norm2, norm2, max(0.0, norm2 - distance2 / 2), tau)),
        feature=math.sqrt(law.inner(norm2, 1.0, 0.0, (tau, 0.0))),
        identity=math.sqrt(bare),
    )


def _noise(spec: ProjectionSpec, layers: int) -> tuple[float, float]:
    """Variance and fourth cumulant of the noise of a published cell, signal units and their square."""
    parameters = creation_sigma2(spec), publication_sigma2(spec)
    first, fresh = map(gaussian_variance, parameters)
    unit = spec.entry_variance * 4.0**spec.fraction_bits
    excess = layers * noise_fourth(parameters[0]) + noise_fourth(parameters[1])
    return float(layers * first + fresh) / unit, excess / float(unit) ** 2


def best_columns(
    spec: ProjectionSpec, distance2: float, candidates: tuple[int, ...] = CANDIDATES, layers: int = 1
) -> tuple[int, dict[int, ExpectedErrors]]:
    """The number of columns for which the error of a squared distance is smallest, and what each would give.

    Args:
        candidates: the numbers that are tried; for srht those up to d'.
    """
    errors: dict[int, ExpectedErrors] = {}
    for k in candidates:
        if spec.matrix == "srht" and k > spec.outline.order:
            continue
        errors[k] = expected_errors(with_columns(spec, k), distance2, layers=layers)
    if not errors:
        raise SpecError(
            f"candidates must hold a number of columns that is possible, from 1 to {MAX_COLUMNS}, found none"
        )
    return min(errors, key=lambda k: errors[k].distance), errors


def with_columns(spec: ProjectionSpec, k: int | None, matrix: Family | None = None) -> ProjectionSpec:
    """The spec with another number of columns; warnings are not repeated.

    Args:
        k: number of columns; None: rows are kept as they are, for one user, as noise does not depend on their number.
    """
    fields = spec.to_dict()
    fields.pop("kind")
    if not spec.intrusion:  # such a spec says nothing of a fresh layer
        del fields["epsilon_publish"], fields["delta_publish"]
    fields.update(users=spec.users, features=spec.features, k=k, matrix=matrix or spec.matrix)
    if k is None:
        fields.update(users=1, matrix_seed="public", seed=None)
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        return ProjectionSpec(**fields)
