"""The kind `projection` as the engine sees it.

In: calls of the engine. Out: answers from the spec, the mechanism and the estimators. Touches: the states it
is given, and entropy through `noise`.
Source: docs/theory/projection.md, sections 2 to 4 (the statement).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy.typing as npt

from sketchstream.array_types import Flags
from sketchstream.errors import EstimateError, FormatError, MergeError
from sketchstream.items.arrays import Pairs
from sketchstream.items.events import Events
from sketchstream.kinds.capabilities import Listing, Scoped
from sketchstream.kinds.expansion import Expansion
from sketchstream.kinds.exports import USUAL, AnswerRows
from sketchstream.kinds.intake import Intake
from sketchstream.kinds.linear.answers import LinearAnswers, parts_of, sum_parts
from sketchstream.kinds.linear.kind import LinearAccounting, LinearKind
from sketchstream.kinds.options import require_method
from sketchstream.kinds.projection import mechanism
from sketchstream.kinds.projection.forecast import expected_errors
from sketchstream.kinds.projection.matrices.matrix import MAX_COLUMNS
from sketchstream.kinds.projection.matrices.sensitivity import MAX_PAIR_PRODUCTS, MAX_PASSED
from sketchstream.kinds.projection.mechanism import NOWHERE, RowCells, matrix_of, secret_scope
from sketchstream.kinds.projection.reading.answers import Projection, answer_questions
from sketchstream.kinds.projection.secret import SecretLedger, SecretShift
from sketchstream.kinds.projection.spec import IdentityRowsWarning, ProjectionSpec
from sketchstream.noise.laws import gaussian_variance
from sketchstream.privacy.ledgers.gaussian_ledger import GaussianLedger
from sketchstream.privacy.losses.gaussian import UnitShift
from sketchstream.spec import ClosedDomain, Item

if TYPE_CHECKING:
    from sketchstream.items.key import Key
    from sketchstream.kinds.projection.matrices.matrix import Matrix
    from sketchstream.privacy.deployments.surroundings import Context
    from sketchstream.privacy.ledgers.sketch_history import SketchHistory
    from sketchstream.provenance import Origin
    from sketchstream.published import Published


class ProjectionAccounting(LinearAccounting[ProjectionSpec]):
    """Costs are mu^2; for a secret matrix, its mean over matrices."""

    def noise_cost(self, spec: ProjectionSpec, epsilon: Fraction, delta: Fraction) -> Fraction:
        return self.cost(spec, mechanism.sigma2(spec, epsilon, delta))

    def ledger_and_shift(self, spec: ProjectionSpec) -> tuple[type[GaussianLedger], UnitShift]:
        shift = mechanism.unit_shift(spec)
        return SecretLedger if isinstance(shift, SecretShift) else GaussianLedger, shift


class ProjectionIntake(Intake[ProjectionSpec]):
    """Pairs of a row and an item."""

    carries = ("row", "item", "weight")

    def most_weight(self, spec: ProjectionSpec) -> int | None:
        """Largest weight, from the bound of events or, for items, from the smallest promise."""
        return math.floor(spec.lattice.max_weight)

    def events(self, spec: ProjectionSpec, given: Events) -> Events:
        """Pairs of the record's row and its item; a record without a row is not an event."""
        found = super().events(spec, given)
        rows, good = given.columns["row"].items(_type_of(spec.users))
        return found.counted(Pairs(rows, found.items), good)


class ProjectionKind(LinearKind[ProjectionSpec], Scoped, Listing):
    """Noisy random projections of users' rows; costs are mu^2, answers are distances, norms and inner products."""

    name = "projection"
    partitions = "merge"
    promised_for_all_partitions = True
    spec_type = ProjectionSpec
    accounting = ProjectionAccounting()
    intake = ProjectionIntake()

    def expansion(self, data: Mapping[str, Any]) -> Expansion:
        """Norms of a matrix are found by passes over its rows, a Gram matrix, or all pairs of rows."""
        described, columns = data.get("features"), data.get("k")
        features = described.get("size") if isinstance(described, Mapping) else None
        if type(features) is not int or type(columns) is not int or not (0 < columns <= MAX_COLUMNS and features > 0):
            return Expansion()  # refused at once, or rows that are not projected
        if data.get("matrix") == "identity":
            return Expansion()
        family, few, whole = data.get("matrix"), data.get("max_features"), data.get("max_norm") is not None
        if family == "srht":
            order = 1 << (features - 1).bit_length()
            paired = few is not None and order <= MAX_PASSED
            return Expansion(40 * order, 10 * order * order.bit_length()) if paired else Expansion()
        passed = features <= MAX_PASSED and (family == "gaussian" or whole)
        smaller = min(features, columns)
        operations = 40 * features * columns if passed else 0
        operations += features * columns * smaller // 2 if passed and whole else 0
        pairs = features**2 * columns
        paired = few is not None and pairs <= MAX_PAIR_PRODUCTS
        operations += pairs if paired else 0
        memory = (32 * smaller**2 if passed and whole else 0) + (8 * features * columns if paired else 0)
        return Expansion(memory, operations)

    def read_spec(self, data: Mapping[str, Any], items: Sequence[Item] | None = None) -> ProjectionSpec:
        """See `ProjectionSpec.from_dict`; `items` are the listed users, then the listed features."""
        users, features = None, None
        if items is not None:
            described = data.get("users")
            listed = isinstance(described, Mapping) and "items_digest" in described
            size = int(described["size"]) if listed and isinstance(described, Mapping) else 0
            users = items[:size] if listed else None
            features = items[size:] or None
        with warnings.catch_warnings(action="ignore", category=IdentityRowsWarning):  # the constructor warned
            return ProjectionSpec.from_dict(data, users, features)

    # Descriptions.

    def facts_of_kind(self, spec: ProjectionSpec, slots: int) -> list[tuple[str, str]]:
        rows = ("rows", f"{spec.users.size:,} users, {spec.features.size:,} features")
        if spec.matrix == "identity":
            return [rows, ("projected to", f"nothing: they are kept as they are ({slots:,} counters)")]
        return [
            rows,
            ("projected to", f"{spec.k:,} columns by a {spec.matrix_seed} {spec.matrix} matrix ({slots:,} counters)"),
        ]

    def unit_in_words(self, spec: ProjectionSpec) -> str:
        if spec.unit == "event":
            return f"one event: one user, one feature, an absolute weight of at most {spec.max_weight}; or its absence"
        promises = []
        if spec.max_total is not None:
            promises.append(f"their absolute weights add up to at most {spec.max_total}")
        if spec.max_norm is not None:
            norm = f"the sums of absolute weights by feature have an L2 norm of at most {spec.max_norm}"
            limit = "" if spec.max_features is None else f", on at most {spec.max_features} features"
            promises.append(norm + limit)
        return f"all events of one user in this sketch, if {', and '.join(promises)}"

    def relation(self, spec: ProjectionSpec) -> tuple[str, ...]:
        """Neighbours, and what replacing costs."""
        if spec.unit == "event":
            return (
                "that it happened at all (its weight against 0); replacing it by another event of the same user "
                "multiplies mu by at most 2, by an event of another user by at most the square root of 2",
            )
        return (
            "that the user was there at all (the row against zeros); replacing the row by another one within the same "
            "bounds multiplies mu by at most 2",
        )

    def exposes(self, spec: ProjectionSpec) -> tuple[str, ...]:
        return (
            "the users and features of the domain, k, the bounds of weights, and the class of the matrix: all are "
            "public",
        )

    def assumes(self, spec: ProjectionSpec, ledger: SketchHistory, context: Context) -> tuple[str, ...]:
        """The cipher, promises that are kept, and what must be secret of a secret matrix."""
        lines = [
            "AES-256: this is computational differential privacy up to the cipher; the samplers are exact",
            "parameters, lists of users and features, and a public seed were not chosen from the data",
        ]
        if spec.unit == "item":
            lines.append(
                "the promise on the weights of a user, over all partitions of the sketch together: its source keeps "
                "it, the engine keeps no count of users that could check it"
            )
        if spec.matrix == "identity":
            return tuple(lines)
        if spec.matrix_seed == "public":
            lines.append(
                "nothing about the matrix: the numbers hold for this one, and for rows chosen with knowledge of it"
            )
        else:
            lines += [
                "the hash key: nobody who produces data, or chooses them, has it; the matrix depends on it",
                "the stream does not react to what is published of this sketch, nor to a copy of its open state: both "
                "show something of the matrix",
                "no other sketch of this spec, name, revision and window is made with this key",
                "BLAKE2b: the matrix comes from a keyed hash, which stands for a random function",
            ]
        return tuple(lines)

    # Updates and states.

    def index(
        self, spec: ProjectionSpec, key: Key | None, keep: Flags | None, origin: Origin | None = None
    ) -> RowCells:
        """Users, features and the matrix; a secret matrix depends on the sketch's name, revision and window."""
        self.require_all_places(keep)
        return RowCells(spec, key, NOWHERE if origin is None else secret_scope(origin))

    def items(self, source: object) -> Pairs:
        """Pairs of a user and a feature."""
        return Pairs.of(source)

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
            raise FormatError(
                "a release of a sketch with a secret matrix was not written by this package and is not used"
            )
        super().require_view(spec, header, body)

    # Answers.

    def rows(self, spec: ProjectionSpec) -> AnswerRows:
        """One row for each user; ranks are those of nearest rows."""
        return AnswerRows(("user", *USUAL), "norm.0", {**USUAL, "rank": "int64"})

    def expected_error(self, spec: ProjectionSpec) -> tuple[str, float]:
        """The error that noise alone makes of the squared norm of an empty row."""
        return "squared norm", expected_errors(spec, 0.0).sq_norm

    def estimate(self, published: Published, **options: Any) -> LinearAnswers:
        """Distances, norms and inner products.

        Without a question the answer is a `Projection`, which takes any number of them. Parts of a stack are added up.

        Args:
            options: `method`: "auto". `key`: of a secret matrix, for questions about features. `users`, `features`: the
                lists, where they are listed, so that they can be named. At most one question, as of
                `answer_questions`. `level` of the intervals.
        """
        require_method(options.pop("method", "auto"), ("auto",))
        lists = {name: options.pop(name, None) for name in ("users", "features")}
        key = options.pop("key", None)
        projection = self._projection(published, key, lists)
        answer = answer_questions(projection, options, lambda later: self._projection(later, key, lists))
        return answer.computed_from(published)

    def names(self, spec: ProjectionSpec) -> dict[str, Any]:
        both = {"users": spec.users, "features": spec.features}
        return {name: domain.items for name, domain in both.items() if domain.items is not None}

    def _projection(
        self, published: Published, key: Key | None, lists: Mapping[str, Sequence[Item] | None]
    ) -> Projection:
        """The rows that were published, with the variance of their noise."""
        parts = parts_of(self, published)
        spec = published.spec
        self.require_addable(spec, [part.origin for part in parts])
        if any(given is not None for given in lists.values()):
            data = spec.to_dict()
            with warnings.catch_warnings(action="ignore", category=UserWarning):
                spec = ProjectionSpec.from_dict(data, lists["users"], lists["features"])
        parameters = [parameter for part in parts for parameter in part.parameters]
        variance = sum(map(gaussian_variance, parameters), Fraction(0))
        fourth = math.fsum(map(mechanism.noise_fourth, parameters))
        matrix: Matrix | None = None
        if spec.matrix_seed == "public" or key is not None:
            made_with = parts[0].key_id
            if key is not None and made_with not in (None, key.id):
                raise EstimateError("the sketch was made with another hash key; give the one it was created with")
            matrix = matrix_of(spec, key, secret_scope(parts[0].origin))
        cells = sum_parts(spec, parts).reshape(spec.shape)
        return Projection(spec, cells, variance, matrix, fourth)


def _type_of(domain: ClosedDomain) -> Literal["text", "int", "bytes"]:
    """Type of a domain's items in records: ids are integers."""
    first = 0 if domain.items is None else domain.items[0]
    return "int" if isinstance(first, int) else "text" if isinstance(first, str) else "bytes"


KIND: Final = ProjectionKind()
