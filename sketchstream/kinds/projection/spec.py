"""The specification of a projection: parameters that are validated once and frozen, with a fingerprint.

In: user parameters. Out: a frozen `ProjectionSpec`, its plain-data form and its fingerprint; the seed of a secret
matrix. Touches: nothing.
Source: docs/theory/projection.md, sections 1 and 2 (units and bounds).
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, Literal, get_args

import msgpack

from sketchstream.errors import SpecError
from sketchstream.items.key import Key
from sketchstream.items.lattice import Lattice
from sketchstream.kinds.linear.spec import EventCountingSpec, stored_closed
from sketchstream.kinds.projection.matrices.matrix import FAMILIES, SEED_BYTES, Family, Matrix
from sketchstream.kinds.projection.matrices.sensitivity import MAX_PASSED
from sketchstream.spec import (
    MAX_SLOTS,
    ClosedDomain,
    Item,
    Rational,
    Unit,
    checked_int,
    exact_rational,
    require_choice,
)

MatrixSeed = Literal["public", "secret"]

PUBLIC_SEED: Final = bytes(range(SEED_BYTES))
"""Seed of a public matrix where none is given. All sketches that are compared with each other must share one."""
MAX_FRACTION_BITS: Final = 30
MAX_CAPACITY: Final = 1 << 53
"""Sums of absolute weights in lattice units stay below this, so that no cell reaches 2^63."""
CAPACITY: Final = 1 << 31
IDENTITY_CELLS: Final = 1 << 26
"""Up to this many users x features, rows kept without a projection are affordable."""


class IdentityRowsWarning(UserWarning):
    """Warns that the rows themselves would be more accurate than this projection under the same promise."""


class PairDomain(ClosedDomain):
    """The pairs of a user and a feature; each user has k counters.

    Attributes:
        size: counters of a sketch.
        items: the listed users, then the listed features; None if nothing is listed, or a list is not available.
    """

    users: ClosedDomain
    features: ClosedDomain

    def __init__(self, users: ClosedDomain, features: ClosedDomain, k: int) -> None:
        super().__init__(size=users.size * k)
        lists = [domain.items for domain in (users, features) if domain.listed]
        available = [items for items in lists if items is not None]
        names = tuple(item for items in available for item in items)
        object.__setattr__(self, "items", names if available and len(available) == len(lists) else None)
        object.__setattr__(self, "users", users)
        object.__setattr__(self, "features", features)

    @property
    def listed(self) -> bool:
        return self.users.listed or self.features.listed

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "pairs", "users": self.users.to_dict(), "features": self.features.to_dict()}


@dataclass(frozen=True)
class ProjectionSpec(EventCountingSpec):
    """Noisy projections of users' rows, from which distances, norms and inner products are estimated.

    Args:
        users: the rows, a ClosedDomain or their number.
        features: what rows consist of, a ClosedDomain or their number.
        k: columns of the projection, 1 to 4096; each row of the state has k cells. With matrix "identity" the number
            of features, or None.
        epsilon: privacy of a layer; exact rational (str, int, Fraction, Decimal, or float by its shortest repr).
        delta: exact rational from 1e-300 to 0.5.
        unit: unit of privacy: one "event", or all events of one "item" in this sketch; an item is a user.
        max_weight: largest absolute weight of one event. Unit "event" alone; default 1.
        max_total: unit "item": a promise of the source that the absolute weights of one item's events in one sketch,
            over all parts and partitions, add up to at most this.
        max_norm: a promise of the source, for unit "item", that the sums of absolute weights by feature have at most
            this L2 norm for every user. With `max_total` too, the better of both is used.
        max_features: a promise, besides max_norm, that no user touches more features than this.
        matrix: "gaussian", "rademacher" (best for events and max_total), "srht" (best for max_norm), or "identity":
            rows are not projected. `sketchstream plan` says which has the smallest error.
        matrix_seed: "public", or "secret": derived from the sketch's key; then less noise is enough for max_norm, no
            release is possible, and streams must not react to publications of this sketch.
        seed: seed of a public matrix, 32 bytes or 64 hexadecimal digits. Default: the bytes 0 to 31.
        fraction_bits: f, 0 to 30; weights are kept in multiples of 2^-f.
        capacity: largest sum of absolute weights that the counters must hold. In user units, times 2^f below 2^53.
        epsilon_publish: epsilon of the fresh noise at seal; default epsilon.
        delta_publish: delta of the fresh noise at seal; default delta.
        intrusion: True: `seal` adds fresh noise, and the guarantee holds with one copy of the open state. False: it
            publishes the bare state, and the guarantee is void for events after any copy.
        counted_share: unit "event": share of every cost that a counter of the events counted gets; 0: none is kept.
        epsilon_records: unit "event": epsilon of the number of records admitted, outside the ledger; 0: none is kept.

    Raises:
        SpecError: a parameter is outside its range, or parameters contradict each other.

    Examples:
        >>> spec = ProjectionSpec(users=100, features=5000, k=64, epsilon="1", delta="1e-6", matrix="rademacher")
        >>> spec.unit, spec.max_weight, spec.shape
        ('event', Fraction(1, 1), (100, 64))
    """

    users: ClosedDomain
    features: ClosedDomain
    k: int
    max_weight: Fraction | None
    max_total: Fraction | None
    max_norm: Fraction | None
    max_features: int | None
    matrix: Family
    matrix_seed: MatrixSeed
    seed: bytes | None = field(repr=False)
    fraction_bits: int
    capacity: int
    counted_share: Fraction

    kind = "projection"
    item_bounds = ("max_total", "max_norm")

    def __init__(
        self,
        users: ClosedDomain | int,
        features: ClosedDomain | int,
        k: int | None,
        epsilon: Rational,
        delta: Rational,
        unit: Unit = "event",
        *,
        max_weight: Rational | None = None,
        max_total: Rational | None = None,
        max_norm: Rational | None = None,
        max_features: int | None = None,
        matrix: Family = "gaussian",
        matrix_seed: MatrixSeed = "public",
        seed: bytes | str | None = None,
        fraction_bits: int = 0,
        capacity: int = CAPACITY,
        epsilon_publish: Rational | None = None,
        delta_publish: Rational | None = None,
        intrusion: bool = True,
        counted_share: Rational = 0,
        epsilon_records: Rational = 0,
    ) -> None:
        self._put(users=_as_closed_domain(users, "users"), features=_as_closed_domain(features, "features"))
        identity = require_choice(matrix, "matrix", FAMILIES) == "identity"
        self._put(k=checked_int(self.features.size if identity and k is None else k, "k", 1, MAX_SLOTS))
        checked_int(self.users.size * self.k, "users x k", 1, MAX_SLOTS)
        self._put_privacy(epsilon, delta, epsilon_publish, delta_publish, intrusion)
        self._put(fraction_bits=checked_int(fraction_bits, "fraction_bits", 0, MAX_FRACTION_BITS))
        self._put(capacity=checked_int(capacity, "capacity", 1, (MAX_CAPACITY >> self.fraction_bits) - 1))
        self._put_unit(unit, self._bound, max_weight=max_weight, max_total=max_total, max_norm=max_norm)
        few = None if max_features is None else checked_int(max_features, "max_features", 1, MAX_SLOTS)
        if few is not None and max_norm is None:
            raise SpecError("max_features needs max_norm, of unit = 'item'")
        self._put(max_features=few)
        self._put(matrix=require_choice(matrix, "matrix", FAMILIES))
        self._put(matrix_seed=require_choice(matrix_seed, "matrix_seed", get_args(MatrixSeed)))
        if matrix_seed == "secret" and seed is not None:
            raise SpecError("seed belongs to matrix_seed = 'public'; a secret seed is derived from the sketch's key")
        if identity and seed is not None:
            raise SpecError("matrix = 'identity' takes no seed: rows are not projected")
        none = matrix_seed == "secret" or identity
        self._put(seed=None if none else _seed(PUBLIC_SEED if seed is None else seed))
        self._check_matrix()
        self._put_counters(counted_share, epsilon_records)
        self._warn()

    def _bound(self, value: Rational, name: str) -> Fraction:
        """A bound of weights: at least one lattice unit, less than the capacity allows."""
        expected = f"{name} must be a number of at least one lattice unit, 2^-{self.fraction_bits}"
        exact = exact_rational(value, expected)
        if exact * (1 << self.fraction_bits) < 1:
            raise SpecError(f"{expected}, found {str(value)[:40]}")
        if exact > self.capacity:
            raise SpecError(f"{name} must be at most the capacity, {self.capacity}, found {str(value)[:40]}")
        return exact

    def _check_matrix(self) -> None:
        """The matrix exists, and its norms can be found."""
        _ = self.outline
        if self.matrix_seed == "secret":
            if self.matrix in ("srht", "identity"):
                raise SpecError(
                    "matrix_seed = 'secret' needs independent columns: use matrix = 'gaussian' or 'rademacher'"
                )
            if self.unit != "item" or self.max_total is not None or self.max_features is not None:
                raise SpecError("matrix_seed = 'secret' gains only for unit = 'item' with max_norm alone; use 'public'")
        elif self.features.size > MAX_PASSED and self.matrix == "gaussian":
            raise SpecError(
                f"matrix = 'gaussian' needs a pass over all features, at most {MAX_PASSED}, found "
                f"{self.features.size}; use matrix = 'rademacher'"
            )
        elif self.features.size > MAX_PASSED and self.matrix == "rademacher" and self.max_norm is not None:
            raise SpecError(
                f"max_norm with matrix = 'rademacher' needs a pass over all features, at most {MAX_PASSED}, found "
                f"{self.features.size}; use matrix = 'srht'"
            )

    def _warn(self) -> None:
        """Warn of parameters without meaningful privacy, or with avoidable errors."""
        self._warn_of_privacy(4)
        dense = self.max_norm is not None and self.max_total is None and self.max_features is None
        random = self.matrix_seed == "public" and self.matrix != "identity"
        if dense and random and self.users.size * self.features.size <= IDENTITY_CELLS:
            text = (
                "a public matrix with max_norm: identity rows would be more accurate; use matrix = 'identity', "
                "matrix_seed = 'secret', or a promise of max_total or max_features"
            )
            warnings.warn(text, IdentityRowsWarning, stacklevel=3)

    @cached_property
    def domain(self) -> PairDomain:
        """The pairs that events are about."""
        return PairDomain(self.users, self.features, self.k)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the state: users, k."""
        return self.users.size, self.k

    @property
    def needs_key(self) -> bool:
        """Whether a key determines the slots of items or the matrix."""
        return self.users.listed or self.features.listed or self.matrix_seed == "secret"

    @property
    def outline(self) -> Matrix:
        """A matrix of the same law; its seed does not matter."""
        return Matrix(self.matrix, PUBLIC_SEED, self.features.size, self.k)

    @property
    def entry_variance(self) -> Fraction:
        """E[R_jc^2] of the matrix's entries."""
        return self.outline.entry_variance

    @property
    def lattice(self) -> Lattice:
        """The lattice of weights; an event beyond the largest weight is a no-op, which depends on that event alone."""
        most = getattr(self, self.bounding)
        return Lattice(self.fraction_bits, most)

    @property
    def bounding(self) -> str:
        """Name of the parameter that bounds the weight of one event: the smallest."""
        bounds = {name: getattr(self, name) for name in ("max_weight", "max_total", "max_norm")}
        return min((name for name, bound in bounds.items() if bound is not None), key=lambda name: bounds[name])

    def projection_matrix(self, secret: bytes | None = None) -> Matrix:
        """The matrix.

        Args:
            secret: the 32 bytes of `secret_seed`, with matrix_seed "secret" only.

        Raises:
            SpecError: a secret seed is missing, or given for a public matrix.
        """
        if self.matrix == "identity":
            return self.outline
        if (secret is None) == (self.seed is None):
            verb = "needs" if self.seed is None else "takes no"
            raise SpecError(f"matrix_seed = {self.matrix_seed!r} {verb} secret seed")
        seed = self.seed if secret is None else secret
        assert seed is not None
        return Matrix(self.matrix, seed, self.features.size, self.k)

    def to_dict(self) -> dict[str, Any]:
        out = self._plain("kind", "users", "features", "k", "epsilon", "delta", "unit", "matrix", "matrix_seed")
        out |= self._plain("fraction_bits", "capacity", "epsilon_publish", "delta_publish", "intrusion")
        out |= self._given("max_weight", "max_total", "max_norm", "max_features")
        if self.seed is not None:
            out["seed"] = self.seed.hex()
        return out | self._given("counted_share", "epsilon_records")

    @classmethod
    def from_dict(
        cls,
        data: Mapping[str, Any],
        users: Sequence[Item] | None = None,
        features: Sequence[Item] | None = None,
    ) -> ProjectionSpec:
        """The spec that `to_dict` described.

        Args:
            users: the list of users, if the domain is a list; without it results can be read by position only.
            features: the list of features, likewise.

        Raises:
            SpecError: the dictionary does not describe such a spec, or a list is not the one it was made with.
        """
        fields = cls._read_fields(data)
        for name, listed in (("users", users), ("features", features)):
            fields[name] = stored_closed(fields.get(name), listed, f"{name} of a projection")
        return cls._from_fields(**fields)

    def _canonical(self) -> bytes:
        return json.dumps(self.to_dict(), sort_keys=True, default=bytes.hex).encode()


def secret_seed(key: Key, spec: ProjectionSpec, label: str, window: str = "") -> bytes:
    """The seed of a secret matrix: 32 bytes that only holders of the key can compute.

    Args:
        key: the sketch's key, known to no producer of data.
        label: name of the sketch. No two sketches of one spec may share label and window.
    """
    if spec.matrix_seed != "secret":
        raise SpecError("a secret seed is for matrix_seed = 'secret'; this spec has a public one")
    checked_key: object = key
    if not isinstance(checked_key, Key):
        raise SpecError(f"matrix_seed = 'secret' needs a Key, found {type(checked_key).__name__}")
    data = msgpack.packb([spec.fingerprint, label, window])
    digest = hashlib.blake2b(data, key=key.secret(), digest_size=SEED_BYTES, person=b"sketchstream-P2")
    return digest.digest()


def _as_closed_domain(domain: Any, name: str) -> ClosedDomain:
    """Convert to a closed domain without sampling; a number is a size."""
    if isinstance(domain, int) and not isinstance(domain, bool):
        return ClosedDomain(size=domain)
    if not isinstance(domain, ClosedDomain):
        raise SpecError(f"{name} must be a ClosedDomain or a number, found {type(domain).__name__}")
    if domain.sample_rate is not None:
        raise SpecError(f"{name} of a projection cannot be sampled: leave sample_rate out")
    return domain


def _seed(value: Any) -> bytes:
    """A seed of 32 bytes, checked."""
    raw: Any = value
    if isinstance(value, str):
        try:
            raw = bytes.fromhex(value)
        except ValueError:
            raw = value
    if not isinstance(raw, bytes) or len(raw) != SEED_BYTES:
        raise SpecError(
            f"seed must be {SEED_BYTES} bytes or {2 * SEED_BYTES} hexadecimal digits, found {type(value).__name__}"
        )
    return raw
