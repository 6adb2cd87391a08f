"""What a sketch of kind `workload` is: its queries, its privacy, its strategy; validated once, frozen.

In: what a user asks for. Out: a frozen `WorkloadSpec`, its plain data, its fingerprint, the laws of its layers.
Touches: nothing (a workload that names a file is read by `Workload.named`).
Source: docs/theory/workload.md.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import msgpack
import numpy as np
import numpy.typing as npt

from sketchstream.errors import SpecError
from sketchstream.kinds.gaussian.calibration import MAX_DELTA, MIN_DELTA
from sketchstream.kinds.workload.factors import Floats
from sketchstream.kinds.workload.mechanism import MECHANISMS, SLACK, Law, Mechanism, choose, layer_law
from sketchstream.kinds.workload.queries import Workload
from sketchstream.kinds.workload.strategy import Strategy
from sketchstream.spec import Epsilon, Unit, exact_epsilon, exact_rational, whole

MAX_WEIGHT: Final = (1 << 30) - 1
CAPACITY: Final = 1 << 40
LARGE_DELTA: Final = Fraction(1, 10_000)
SPREAD: Final = 1e6
"""Ratio of column norms above which a warning says that small queries will drown."""


class WorkloadWarning(UserWarning):
    """A workload or a parameter that is allowed and probably not meant."""


@dataclass(frozen=True, eq=False)
class WorkloadSpec:
    """Private answers to a fixed batch of linear queries over the cells of a table.

    Args:
        workload: the queries: a `Workload`, its text ("prefix:512", "marginals:8:1,2", "a.npy"), or a matrix.
        epsilon: privacy of a layer; exact rational.
        delta: privacy of a layer, below 1/2; 0 selects pure epsilon privacy ("laplace", "l2ball").
        mechanism: "auto" (smallest predicted error), "gaussian" (the best covariance), "laplace", "l2ball" (rank up
            to 16), or for comparison "paper" and "plain".
        unit: what is protected: one "event", or everything of one "item", whose total weight the source bounds.
        max_weight: largest absolute weight of one event (unit "event").
        max_total: a promise of the source, for unit "item": the absolute weights of an item's events over the sketch's
            life add up to at most this.
        n_bound: upper bound of the total weight of all events, none of them negative in sum; allows projection.
        objective: "total" (sum of the variances) or "max" (the largest).
        row_weights: (d,) importance of each query, positive; only with "total".
        capacity: largest sum of absolute weights that the counters must hold.
        intrusion: True adds a fresh layer at seal; False publishes the bare state, and is void for events after any
            copy of the open state.
        epsilon_publish: of the fresh layer at seal (default: epsilon).
        delta_publish: of the fresh layer at seal (default: delta).
        strategy: one that was made for this workload before; else it is computed here.

    Raises:
        SpecError: for anything that cannot be; the message names the argument.

    Examples:
        >>> spec = WorkloadSpec("prefix:64", epsilon="1", delta="1e-6", mechanism="gaussian")
        >>> spec.strategy.length, spec.layer().name
        (64, 'discrete-gaussian')
    """

    workload: Workload
    epsilon: Fraction
    delta: Fraction
    mechanism: Mechanism
    unit: Unit
    max_weight: int
    max_total: int | None
    n_bound: int | None
    objective: str
    row_weights: tuple[float, ...] | None
    capacity: int
    intrusion: bool
    epsilon_publish: Fraction
    delta_publish: Fraction
    strategy: Strategy

    kind = "workload"

    def __init__(
        self,
        workload: Workload | str | npt.ArrayLike,
        epsilon: Epsilon,
        delta: Epsilon,
        mechanism: Mechanism = "auto",
        *,
        unit: Unit = "event",
        max_weight: int = 1,
        max_total: int | None = None,
        n_bound: int | None = None,
        objective: str = "total",
        row_weights: Sequence[float] | None = None,
        capacity: int = CAPACITY,
        intrusion: object = True,
        epsilon_publish: Epsilon | None = None,
        delta_publish: Epsilon | None = None,
        strategy: Strategy | None = None,
    ) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        queries = _workload(workload)
        put("workload", queries)
        put("epsilon", exact_epsilon(epsilon))
        put("delta", _delta(delta, "delta"))
        publish = self.epsilon if epsilon_publish is None else exact_epsilon(epsilon_publish, "epsilon_publish")
        put("epsilon_publish", publish)
        put("delta_publish", self.delta if delta_publish is None else _delta(delta_publish, "delta_publish"))
        if unit not in ("event", "item"):
            msg = f"unit must be 'event' or 'item', found {unit!r:.40}"
            raise SpecError(msg)
        put("unit", unit)
        put("max_weight", whole(max_weight, "max_weight", 1, MAX_WEIGHT))
        if (unit == "item") != (max_total is not None):
            msg = (
                "unit = 'item' needs max_total=, the promised bound of an item's total weight; unit = 'event' has none"
            )
            raise SpecError(msg)
        put("max_total", None if max_total is None else whole(max_total, "max_total", 1, MAX_WEIGHT))
        if max_total is not None and self.max_weight > max_total:
            msg = f"max_weight must be at most max_total, found {max_weight} and {max_total}"
            raise SpecError(msg)
        put("n_bound", None if n_bound is None else whole(n_bound, "n_bound", 1, 1 << 53))
        if objective not in ("total", "max"):
            msg = f"objective must be 'total' or 'max', found {objective!r:.40}"
            raise SpecError(msg)
        put("objective", objective)
        weights = _row_weights(row_weights, queries.count, objective)
        put("row_weights", None if weights is None else tuple(weights.tolist()))
        put("capacity", whole(capacity, "capacity", 1, 1 << 62))
        if not isinstance(intrusion, bool):
            msg = f"intrusion must be True or False, found {type(intrusion).__name__}"
            raise SpecError(msg)
        put("intrusion", intrusion)
        self._put_strategy(mechanism, weights, strategy)
        self._require_room()
        self._warn()

    def _put_strategy(self, mechanism: Mechanism, weights: Floats | None, strategy: Strategy | None) -> None:
        """Compute or check the strategy."""
        if strategy is None:
            found = choose(
                self.workload,
                mechanism,
                self.epsilon,
                self.delta,
                weight=self.weight,
                objective=self.objective,
                row_weights=weights,
            )
            mechanism, strategy = found.mechanism, found.strategy
        elif mechanism not in MECHANISMS or mechanism == "auto":
            msg = f"a spec with a given strategy needs its mechanism, not {mechanism!r:.40}"
            raise SpecError(msg)
        elif strategy.workload_digest != self.workload.digest:
            msg = "the strategy was made for another workload"
            raise SpecError(msg)
        if min(self.delta, self.delta_publish) == 0 and mechanism not in ("laplace", "l2ball"):
            msg = "delta must be > 0 for Gaussian noise; use mechanism='laplace' or 'l2ball'"
            raise SpecError(msg)
        object.__setattr__(self, "mechanism", mechanism)
        object.__setattr__(self, "strategy", strategy)

    def _require_room(self) -> None:
        """Refuse a capacity that the counters cannot hold: no update looks at them."""
        deviation = max(self.layer().variance, self.fresh().variance) ** 0.5
        most = ((1 << 63) - 64 * math.ceil(2 * deviation) - 1) // self.strategy.largest
        if self.capacity > most:
            msg = f"capacity must be at most {max(most, 0)} for this workload's counters, found {self.capacity}"
            raise SpecError(msg)

    def _warn(self) -> None:
        """Say what is allowed and probably not meant."""
        if max(self.delta, self.delta_publish) > LARGE_DELTA:
            warnings.warn("delta above 1e-4 allows rare total disclosure", WorkloadWarning, stacklevel=4)
        if len(self.workload.products) == 1 and self.workload.products[0][0].name == "matrix":
            matrix = self.workload.dense()
            norms = np.sqrt(np.einsum("ij,ij->j", matrix, matrix))
            if norms.max() > SPREAD * norms[norms > 0].min():
                text = (
                    "columns of the workload differ in norm by more than 1e6: small queries will drown; set row_weights"
                )
                warnings.warn(text, WorkloadWarning, stacklevel=4)
            if len(np.unique(matrix, axis=0)) < len(matrix):
                text = "the workload has duplicate rows: they are weighted twice"
                warnings.warn(text, WorkloadWarning, stacklevel=4)

    @property
    def weight(self) -> int:
        """The unit's weight W: the L1 distance between the histograms of two neighbours is at most this."""
        return self.max_weight if self.max_total is None else self.max_total

    @property
    def length(self) -> int:
        """Counters of the state, int64 each."""
        return self.strategy.length

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of one counter."""
        return np.dtype(np.int64)

    def layer(self) -> Law:
        """The law of the layer at creation."""
        return self.law(self.epsilon, self.delta)

    def fresh(self) -> Law:
        """The law of the fresh layer at seal."""
        return self.law(self.epsilon_publish, self.delta_publish)

    def law(self, epsilon: Fraction, delta: Fraction) -> Law:
        """The law of a layer, or of a release's fresh noise, of this privacy.

        Args:
            epsilon: privacy.
            delta: privacy; not used by the pure mechanisms.
        """
        return layer_law(self.mechanism, self.strategy, epsilon, delta, self.weight)

    @cached_property
    def variances(self) -> Floats:
        """(d,) variance of each answer for independent noise of variance 1 in each counter."""
        return np.maximum(self.workload.variances(self.strategy.spread), 0.0)

    @cached_property
    def heaviness(self) -> Floats:
        """(d,) sum of the fourth powers of each answer's coefficients in the counters, over the square of the second.

        It is 1 for an answer that reads one counter, and near 0 for one that averages many.
        """
        fourth = np.empty(self.workload.count)
        step = max(1, (1 << 22) // self.length)
        for start in range(0, len(fourth), step):
            chosen = np.arange(start, min(start + step, len(fourth)), dtype=np.int64)
            fourth[chosen] = np.sum((self.workload.some_rows(chosen) @ self.strategy.decoder) ** 4, axis=1)
        out: Floats = np.divide(fourth, self.variances**2, out=np.zeros_like(fourth), where=self.variances > 0)
        return out

    @property
    def integral(self) -> bool:
        """Whether unprojected answers are whole numbers, so that their noise is on the integers too."""
        strategy = self.strategy
        direct = strategy.form == "queries" and strategy.rank == strategy.length
        return direct or (strategy.form == "identity" and self.workload.integer)

    @property
    def pure(self) -> bool:
        """Whether the noise is pure: its loss is an epsilon, and not a mu^2."""
        return self.mechanism in ("laplace", "l2ball")

    def loss(self, law: Law) -> Fraction:
        """What a view behind one layer of this law costs the unit: mu^2 for Gaussian noise, epsilon for pure noise.

        1 / loss is the resistance of the layer in a ledger. For Gaussian noise on the integers the part of the
        variance that pays for the lattice is left out.

        Args:
            law: of the layer, as `law` returned it.
        """
        if law.name == "discrete-gaussian":
            return Fraction(self.strategy.sensitivity2 * self.weight**2) / (law.parameter - SLACK)
        if law.name == "discrete-laplace":
            return law.parameter * self.weight * self.strategy.sensitivity1
        square = law.parameter * self.strategy.sensitivity2 * self.weight**2
        return Fraction(math.isqrt(square.numerator), math.isqrt(square.denominator))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, canonical; the strategy and matrices are represented by their digests."""
        out: dict[str, Any] = {
            "kind": self.kind,
            "workload": self.workload.to_dict(),
            "epsilon": str(self.epsilon),
            "delta": str(self.delta),
            "mechanism": self.mechanism,
            "unit": self.unit,
            "max_weight": self.max_weight,
            "objective": self.objective,
            "capacity": self.capacity,
            "intrusion": self.intrusion,
            "epsilon_publish": str(self.epsilon_publish),
            "delta_publish": str(self.delta_publish),
            "strategy": self.strategy.digest,
        }
        if self.max_total is not None:
            out["max_total"] = self.max_total
        if self.n_bound is not None:
            out["n_bound"] = self.n_bound
        if self.row_weights is not None:
            out["row_weights"] = list(self.row_weights)
        return out

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], strategy: Strategy, matrices: Sequence[object] = ()) -> WorkloadSpec:
        """The spec that `to_dict` described.

        Args:
            data: plain data.
            strategy: the one that the data represent by its digest.
            matrices: of the workload, where it has some.

        Raises:
            SpecError: another kind or another strategy, a matrix that is missing, unknown fields.
        """
        fields = dict(data)
        kind = fields.pop("kind", None)
        if kind != cls.kind:
            msg = f"expected a spec of kind 'workload', found {kind!r:.40}"
            raise SpecError(msg)
        if fields.pop("strategy", None) != strategy.digest:
            msg = "the strategy is not the one that this spec was made with"
            raise SpecError(msg)
        workload = Workload.from_dict(fields.pop("workload", {}), matrices)
        try:
            return cls(workload, strategy=strategy, **fields)
        except TypeError:
            msg = "spec has fields that this version does not know"
            raise SpecError(msg) from None

    @cached_property
    def fingerprint(self) -> bytes:
        """16 bytes that are equal exactly for equal specs."""
        data = self.to_dict()
        packed = msgpack.packb({name: data[name] for name in sorted(data)})
        return hashlib.blake2b(packed, digest_size=16, person=b"sketch-spec").digest()


def _workload(value: object) -> Workload:
    """The queries, however they were given."""
    if isinstance(value, Workload):
        return value
    return Workload.named(value) if isinstance(value, str) else Workload.of_matrix(value)


def _delta(value: Epsilon, name: str) -> Fraction:
    """An exact delta: 0, or from 1e-300 to 1/2."""
    wanted = f"{name} must be 0, or from 1e-300 to 0.5"
    exact = exact_rational(value, wanted)
    if exact and not MIN_DELTA <= exact <= MAX_DELTA:
        msg = f"{wanted}, found {str(value)[:40]}"
        raise SpecError(msg)
    return exact


def _row_weights(given: Sequence[float] | None, count: int, objective: str) -> Floats | None:
    """Importance of each query, checked."""
    if given is None:
        return None
    weights = np.asarray(given, np.float64)
    if weights.shape != (count,) or not np.all(np.isfinite(weights)) or not np.all(weights > 0):
        msg = f"row_weights must be {count} positive numbers, one for each query"
        raise SpecError(msg)
    if objective != "total":
        msg = "row_weights belongs to objective = 'total'"
        raise SpecError(msg)
    return weights
