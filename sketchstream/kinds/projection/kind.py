"""The kind `projection` as the engine sees it.

In: calls of the engine. Out: answers from the spec, the mechanism and the estimators. Touches: the states it
is given, and entropy through `mechanism`.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import numpy.typing as npt

from sketchstream.components import DISCRETE_GAUSSIAN, Component, quality_counters
from sketchstream.errors import DomainError, EstimateError, FormatError, MergeError, SpecError, WeightError
from sketchstream.items import Pairs, as_weights
from sketchstream.kinds.expansion import Expansion
from sketchstream.kinds.interface import AnyLedger, ColumnType, Events, Given, Kind, Mask, Progress, State
from sketchstream.kinds.projection import mechanism
from sketchstream.kinds.projection.answers import Projection
from sketchstream.kinds.projection.matrix import MOST_COLUMNS
from sketchstream.kinds.projection.places import Cells, matrix_of, secret_scope
from sketchstream.kinds.projection.questions import asked
from sketchstream.kinds.projection.secret import SecretLedger, SecretShift
from sketchstream.kinds.projection.sensitivity import MOST_PAIRED, MOST_PASSED
from sketchstream.kinds.projection.spec import IdentityRowsWarning, ProjectionSpec
from sketchstream.kinds.projection.statement import statement
from sketchstream.privacy.gaussian_ledger import ApproximateBudget, GaussianLedger
from sketchstream.privacy.history import LayerEntry
from sketchstream.privacy.sketch_history import Promise
from sketchstream.spec import ClosedDomain, Epsilon, Item, exact_epsilon, exact_rational

if TYPE_CHECKING:
    from sketchstream.batch import Invalid
    from sketchstream.hashing import Key
    from sketchstream.kinds.interface import Places
    from sketchstream.kinds.projection.matrix import Matrix
    from sketchstream.privacy.guarantee import Context, Guarantee
    from sketchstream.published import Origin, Published

DRAWN = 1 << 22
"""Cells that get their noise at a time, where somebody watches the progress."""


class ProjectionKind(Kind[ProjectionSpec]):
    """Noisy random projections of users' rows; costs are mu^2, answers are distances, norms and inner products."""

    name = "projection"
    carries = ("row", "item", "weight")
    partitions = "merge"
    table = "sketchstream.kinds.projection.table"
    shows = "sketchstream.kinds.projection.pictures"
    audit = "sketchstream.audit.projections"
    spec_type = ProjectionSpec

    def expansion(self, data: Mapping[str, Any]) -> Expansion:
        """Norms of a matrix are found by passes over its rows, a Gram matrix, or all pairs of rows."""
        described, columns = data.get("features"), data.get("k")
        features = described.get("size") if isinstance(described, Mapping) else None
        if type(features) is not int or type(columns) is not int or not (0 < columns <= MOST_COLUMNS and features > 0):
            return Expansion()  # refused at once
        family, few, whole = data.get("matrix"), data.get("max_features"), data.get("max_norm") is not None
        if family == "srht":
            order = 1 << (features - 1).bit_length()
            paired = few is not None and order <= MOST_PASSED
            return Expansion(40 * order, 10 * order * order.bit_length()) if paired else Expansion()
        passed = features <= MOST_PASSED and (family == "gaussian" or whole)
        smaller = min(features, columns)
        operations = 40 * features * columns if passed else 0
        operations += features * columns * smaller // 2 if passed and whole else 0
        pairs = features**2 * columns
        operations += pairs if few is not None and pairs <= MOST_PAIRED else 0
        return Expansion(32 * smaller**2 if passed and whole else 0, operations)

    def read_spec(self, data: Mapping[str, Any], items: Sequence[Item] | None = None) -> ProjectionSpec:
        """See `ProjectionSpec.from_dict`; `items` are the listed users, then the listed features."""
        users, features = None, None
        if items is not None:
            described = data.get("users")
            listed = isinstance(described, Mapping) and "items_digest" in described
            size = int(described["size"]) if listed and isinstance(described, Mapping) else 0
            users = items[:size] if listed else None
            features = items[size:] or None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentityRowsWarning)  # warned of once, at creation of the spec
            return ProjectionSpec.from_dict(data, users, features)

    def columns(self, spec: ProjectionSpec) -> dict[str, ColumnType]:
        """Ranks of nearest rows."""
        return super().columns(spec) | {"rank": "int64"}

    def usual_number(self, spec: ProjectionSpec) -> str:
        """The squared norm of the first row."""
        del spec
        return "norm.0"

    def comparable(self, spec: ProjectionSpec) -> ProjectionSpec:
        """Epsilons and deltas may differ between parts."""
        twin = copy.copy(spec)
        for name in ("epsilon", "epsilon_publish", "delta", "delta_publish"):
            object.__setattr__(twin, name, Fraction(1, 2))
        for name in ("counted_share", "epsilon_records"):
            object.__setattr__(twin, name, Fraction(0))
        return twin

    def facts(self, spec: ProjectionSpec, slots: int) -> list[tuple[str, str]]:
        """Public parameters in words."""
        at_seal = f"epsilon {spec.epsilon_publish}, delta {float(spec.delta_publish):g}"
        rows = [
            ("kind", "projection: distances and inner products of users' rows"),
            ("protected unit", "one event" if spec.unit == "event" else "all events of one user"),
            ("privacy of the state", f"epsilon {spec.epsilon}, delta {float(spec.delta):g}"),
            ("privacy of the publication at seal", at_seal if spec.intrusion else "bare state"),
            ("rows", f"{spec.users.size:,} users, {spec.features.size:,} features"),
            ("projected to", f"{spec.k:,} columns by a {spec.matrix_seed} {spec.matrix} matrix ({slots:,} counters)"),
        ]
        for name in ("max_weight", "max_total", "max_norm", "max_features"):
            if (value := getattr(spec, name)) is not None:
                rows.append((f"{name}{'' if name == 'max_weight' else ' (a promise)'}", str(value)))
        if spec.counted_share:
            rows.append(("share of the events counted", str(spec.counted_share)))
        if spec.fraction_bits:
            rows.append(("weights are multiples of", str(Fraction(1, 1 << spec.fraction_bits))))
        return rows

    # Costs of noise.

    def law(self, spec: ProjectionSpec) -> str:
        """Discrete Gaussian noise."""
        del spec
        return DISCRETE_GAUSSIAN

    def creation_cost(self, spec: ProjectionSpec) -> Fraction:
        """mu^2 of the calibrated noise."""
        return self.cost(spec, mechanism.creation_sigma2(spec))

    def asked_cost(self, spec: ProjectionSpec, epsilon: Epsilon, delta: Epsilon | None) -> Fraction:
        """mu^2 of noise that is calibrated to (epsilon, delta); the spec's delta, if none is given."""
        exact = exact_epsilon(epsilon, "epsilon of a release")
        limit = spec.delta if delta is None else exact_rational(delta, "delta must be in [1e-300, 0.5]")
        return self.cost(spec, mechanism.sigma2(spec, exact, limit))

    def parameter(self, spec: ProjectionSpec, cost: Fraction) -> Fraction:
        """sigma2 of every cell: the squared sensitivity over mu^2."""
        return mechanism.unit_shift(spec).sigma2(cost)

    def cost(self, spec: ProjectionSpec, parameter: Fraction) -> Fraction:
        """mu^2; for a secret matrix, its mean over matrices."""
        return mechanism.unit_shift(spec).cost(parameter)

    def components(self, spec: ProjectionSpec) -> tuple[Component, ...]:
        """The cells, then the events counted and the records admitted, if kept."""
        cells = Component("slots", 1 - spec.counted_share, law=DISCRETE_GAUSSIAN)
        return (cells, *quality_counters(DISCRETE_GAUSSIAN, spec.counted_share, spec.epsilon_records))

    def promise(self, spec: ProjectionSpec) -> Promise:
        """The state, under fresh noise or bare."""
        if not spec.intrusion:
            return Promise("bare")
        return Promise("fresh", self.cost(spec, mechanism.publication_sigma2(spec)))

    def ledger(
        self, spec: ProjectionSpec, lineage: bytes, epsilon: Epsilon | None = None, delta: Epsilon | None = None
    ) -> GaussianLedger:
        """A ledger of mu^2; its budget is an epsilon at a delta."""
        first = self.entry(spec, lineage, self.creation_cost(spec))
        shift, budget = mechanism.unit_shift(spec), ApproximateBudget.of(epsilon, delta)
        made = SecretLedger if isinstance(shift, SecretShift) else GaussianLedger
        return made.create(spec.unit, first, self.promise(spec), shift, budget)

    def entry(self, spec: ProjectionSpec, lineage: bytes, cost: Fraction) -> LayerEntry:
        """mu^2 of the whole sketch."""
        del spec
        return LayerEntry(lineage, DISCRETE_GAUSSIAN, cost)

    def read_ledger(self, spec: ProjectionSpec, data: Mapping[str, Any]) -> GaussianLedger:
        """A ledger of mu^2."""
        shift = mechanism.unit_shift(spec)
        made = SecretLedger if isinstance(shift, SecretShift) else GaussianLedger
        return made.from_dict(data, shift)

    def order(self, ledger: AnyLedger) -> Any:
        """Its mu^2, or the mean of it."""
        assert isinstance(ledger, GaussianLedger)
        loss = ledger.loss()
        return getattr(loss, "mean", loss.mu2)

    def planned_epsilon(self, spec: ProjectionSpec) -> float:
        """Epsilon at the spec's delta."""
        return self.ledger(spec, b"").loss().at(spec.delta).epsilon

    def statement(self, spec: ProjectionSpec, ledger: AnyLedger, context: Context | None = None) -> Guarantee:
        """The guarantee in (epsilon, delta) and mu^2."""
        assert isinstance(ledger, GaussianLedger)
        return statement(spec, ledger, context)

    # Updates and states.

    def index(self, spec: ProjectionSpec, key: Key | None, keep: Mask | None) -> Places:
        """Users, features and the matrix, for a sketch without a name."""
        return self._cells(spec, key, keep)

    def index_at(self, spec: ProjectionSpec, key: Key | None, keep: Mask | None, origin: Origin) -> Places:
        """Users, features and the matrix; a secret matrix depends on the sketch's name, revision and window."""
        return self._cells(spec, key, keep, secret_scope(origin))

    def _cells(self, spec: ProjectionSpec, key: Key | None, keep: Mask | None, *scope: tuple[str, str]) -> Cells:
        """The places of a sketch."""
        if keep is not None:
            msg = "keep belongs to kinds with a slot for each item; a projection has all users in every part"
            raise SpecError(msg)
        return Cells(spec, key, *scope)

    def items(self, source: object) -> Pairs:
        """Pairs of a user and a feature."""
        return Pairs.of(source)

    def events(self, spec: ProjectionSpec, given: Given) -> Events:
        """Pairs of the record's row and its item; a record without a row is not an event."""
        found = super().events(spec, given)
        rows, good = given.columns["row"].items(_type_of(spec.users))
        return Events(Pairs(rows, found.items), found.weights, good if found.good is None else good & found.good)

    def most_weight(self, spec: ProjectionSpec) -> int | None:
        """Largest weight, from the bound of events or, for items, from the smallest promise."""
        return math.floor(spec.lattice.max_weight)

    def draw(self, spec: ProjectionSpec, state: State, cost: Fraction, progress: Progress | None = None) -> None:
        """Discrete Gaussian noise in every cell."""
        step = state.size if progress is None else DRAWN
        for start in range(0, state.size, step):
            part = state[start : start + step]
            mechanism.add_layer(part, self.parameter(spec, cost))
            if progress is not None:
                progress(start + part.size)

    def update(
        self,
        spec: ProjectionSpec,
        index: Cells,
        state: State,
        items: Pairs,
        weights: object,
        *,
        counters: npt.NDArray[np.int64],
        threads: int,
        invalid: Invalid,
    ) -> None:
        """Add to each user's row the weight times the feature's row of the matrix, wrapping; one thread."""
        amounts, good = _lattice_weights(spec, weights, len(items), alone=invalid == "noop")
        users, features = index.places(items)
        try:
            outside = (users < 0) | (features < 0)
            _refuse(spec, outside & (invalid == "error"), ~good & (invalid != "noop"))
            users[~good] = -1
            mechanism.apply(spec, index.matrix, state.reshape(-1, spec.k), users, features, amounts, counters)
        finally:
            for one in (users, features, amounts):
                one.fill(0)

    def require_addable(self, spec: ProjectionSpec, origins: Sequence[Origin]) -> None:
        """States with a secret matrix are added within one name, revision and window: others have other matrices."""
        if spec.matrix_seed == "secret" and len({secret_scope(origin) for origin in origins}) > 1:
            msg = (
                "sketches with matrix_seed = 'secret' have one matrix for each name, revision and window, and cannot "
                "be added across them; use matrix_seed = 'public'"
            )
            raise MergeError(msg, ["matrix_seed"])

    # Publications.

    def require_view(self, spec: ProjectionSpec, header: Mapping[str, Any], body: npt.NDArray[Any]) -> None:
        """Require the cells of a state; a secret matrix has no releases."""
        if spec.matrix_seed == "secret":
            msg = "a release of a sketch with a secret matrix was not written by this package and is not used"
            raise FormatError(msg)
        self.require_state(spec, header["slots"], body)

    def require_state(self, spec: ProjectionSpec, slots: int, body: npt.NDArray[Any]) -> None:
        """One row of k cells for each user."""
        super().require_state(spec, slots, body)
        if slots != spec.domain.size:
            msg = f"a sketch of this spec has {spec.domain.size} counters, found {slots}"
            raise FormatError(msg)

    # Answers.

    def estimate(self, published: Published, **options: Any) -> Any:
        """Distances, norms and inner products.

        Without a question the answer is a `Projection`, which takes any number of them. Parts of a stack are added up.

        Args:
            published: a release, a sealed state, or a stack of either.
            options: `method`: "auto". `key`: of a secret matrix, for questions about features. `users`, `features`: the
                lists, where they are listed, so that they can be named. At most one question, as of
                `questions.asked`. `level` of the intervals.

        Raises:
            EstimateError: an unknown option, or parts that do not belong together.
        """
        method = options.pop("method", "auto")
        if method != "auto":
            msg = f"kind 'projection' has one method, 'auto', found {method!r:.40}"
            raise EstimateError(msg)
        lists = {name: options.pop(name, None) for name in ("users", "features")}
        key = options.pop("key", None)
        return asked(self._projection(published, key, lists), options, lambda one: self._projection(one, key, lists))

    def names(self, spec: ProjectionSpec) -> dict[str, Any]:
        """The lists of users and features."""
        both = {"users": spec.users, "features": spec.features}
        return {name: domain.items for name, domain in both.items() if domain.items is not None}

    def _projection(
        self, published: Published, key: Key | None, lists: Mapping[str, Sequence[Item] | None]
    ) -> Projection:
        """The rows that were published, with the variance of their noise."""
        parts: Sequence[Any] = getattr(published, "parts", (published,))
        spec = published.spec
        self.require_addable(spec, [part.origin for part in parts])
        if any(given is not None for given in lists.values()):
            data = spec.to_dict()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                spec = ProjectionSpec.from_dict(data, lists["users"], lists["features"])
        shown = [part.state if getattr(part, "cost", None) is None else part.noised for part in parts]
        variance = sum((layer.parameter for part in parts for layer in part.layers), Fraction(0))
        costs = [(part.spec, part.cost) for part in parts if getattr(part, "cost", None) is not None]
        variance += sum((self.parameter(own, cost) for own, cost in costs), Fraction(0))
        matrix: Matrix | None = None
        if spec.matrix_seed == "public" or key is not None:
            if key is not None and parts[0].key_id not in (None, key.id):
                msg = "the sketch was made with another hash key; give the one it was created with"
                raise EstimateError(msg)
            matrix = matrix_of(spec, key, secret_scope(parts[0].origin))
        return Projection(spec, self.add(spec, shown).reshape(spec.shape), variance, matrix)


def _type_of(domain: ClosedDomain) -> Literal["text", "int", "bytes"]:
    """Type of a domain's items in records: ids are integers."""
    first = 0 if domain.items is None else domain.items[0]
    return "int" if isinstance(first, int) else "text" if isinstance(first, str) else "bytes"


def _lattice_weights(
    spec: ProjectionSpec, weights: object, n: int, *, alone: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """(n,) int64 weights in lattice units, an own copy, and (n,) bool: which of them are weights of events.

    Args:
        spec: spec of the sketch.
        weights: integers, floats, Decimals, Fractions, texts of JSON numbers, or None for ones.
        n: expected number of weights.
        alone: judge each by itself.

    Raises:
        WeightError: not one for each event.
    """
    lattice = spec.lattice
    if weights is None:
        one = 1 << lattice.bits
        return np.full(n, one, np.int64), np.full(n, one <= lattice.most)
    if isinstance(weights, (int, float, np.generic)) or not hasattr(weights, "__len__") or len(weights) != n:
        as_weights(weights, n, alone=alone)
    given: Any = weights
    amounts, good = lattice.weights(given.to_pylist() if hasattr(given, "to_pylist") else given)
    return np.array(amounts, np.int64), good


def _refuse(spec: ProjectionSpec, outside: npt.NDArray[np.bool_], bad: npt.NDArray[np.bool_]) -> None:
    """Raise an error with the position of the first invalid event.

    Raises:
        DomainError, WeightError: there is one.
    """
    wrong = outside | bad
    if not wrong.any():
        return
    place = int(np.argmax(wrong))
    if outside[place]:
        msg = f"the user or the feature at position {place} is not in the domain; nothing was applied"
        raise DomainError(msg)
    msg = (
        f"the weight at position {place} is not a number within -{spec.lattice.max_weight}.."
        f"{spec.lattice.max_weight}; nothing was applied"
    )
    raise WeightError(msg)


KIND: Final = ProjectionKind()
