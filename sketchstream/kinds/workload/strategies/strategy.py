"""Integer strategies: the matrix from cells to the counters of a sketch, and its decoder.

In: a workload and a shape of noise, or an integer matrix. Out: `Strategy`: exact sensitivities, digest, bytes.
Touches: nothing.
Source: docs/theory/workload.md, section 6 (why privacy uses only the integers; why the answers are unbiased).

The state is z = C x + noise with an integer matrix C, one column a cell. The noise is independent in all counters, so
its covariance in the answers is decided by C. C is a rounded root of the wanted covariance. Its sensitivity is computed
from the rounded integers, in integers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, Self

import msgpack
import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.errors import ChecksumError, FormatError, SpecError, TruncatedError, VersionError
from sketchstream.kinds.linear.causal import MAX_ROOT_POSITIONS, CausalFactor
from sketchstream.kinds.pseudo_inverse import pseudo_inverse
from sketchstream.kinds.workload.queries.queries import Workload, product_workload
from sketchstream.kinds.workload.queries.runs import pack_integers, unpack_integers
from sketchstream.kinds.workload.strategies.optimise import Objective, Optimum, triangular_solution

Form = Literal["cells", "rows", "rounded", "identity", "queries", "tree", "causal"]

VERSION: Final = 1
"""Version of the format of a strategy's bytes."""
BITS: Final = 20
"""Scale of the first rounding, 2^BITS: entries of a millionth of the largest are not lost."""
MAX_BITS: Final = 32
"""Scale of the last rounding that is tried, 2^MAX_BITS: beyond, the state's 64 bits would hold few events."""
MAX_STATE: Final = 1 << 27
"""Entries of a strategy, at most: 1 GiB."""
MAX_ROUNDING_LOSS: Final = 1.001
"""Largest factor by which rounding may raise the objective: no more than the certified gap of its optimum."""
MAX_COVARIANCE_CELLS: Final = 1 << 12
"""Cells up to which the covariance of all cells' estimates is written out: 128 MiB."""
MAGIC: Final = b"SKWS"
"""First bytes of a strategy."""


@dataclass(frozen=True, eq=False)
class Strategy:
    """An integer matrix and what privacy needs of it.

    Args:
        matrix: (m, N) int64; one unit of weight in cell j adds column j to the state.
        form: "cells" (upper triangular, m = N), "rows" (combinations of r independent queries), "rounded" (real
            queries of rank below N: nearly unbiased), "identity", "queries", "tree", "causal" (lower triangular: the
            normalised square root of sums over `width` cells, the same integers on every machine).
        bits: scale of the rounding; 0 without rounding.
        workload_digest: digest of the workload that it was made for.
        objective: what the optimiser made small: the sum of the variances ("total") or the largest ("max").
        lower: lower bound of the objective for L2 sensitivity 1, from the optimiser; 0 for Laplace strategies.
        upper: the objective that the optimiser reached; 0 for Laplace strategies.
        rank: rank of the workload; 0 where nothing depends on it.
        root: (m, m) int64, lower triangular, for "rows": the matrix is the root times the chosen queries.
        chosen: (m,) indices of these queries; None for other forms.
        width: cells of each sum, for form "causal".
    """

    matrix: Ints
    form: Form
    bits: int
    workload_digest: bytes
    objective: Objective = "total"
    lower: float = 0.0
    upper: float = 0.0
    rank: int = 0
    root: Ints | None = None
    chosen: Ints | None = None
    width: int = 0

    def __post_init__(self) -> None:
        if self.matrix.size > MAX_STATE:
            raise SpecError(f"a strategy may have 2^27 entries, found {self.matrix.shape[0]} x {self.matrix.shape[1]}")
        self.matrix.flags.writeable = False

    @property
    def length(self) -> int:
        """Counters of the state, m."""
        return int(self.matrix.shape[0])

    @property
    def size(self) -> int:
        """Number of cells, N."""
        return int(self.matrix.shape[1])

    @cached_property
    def largest(self) -> int:
        """Largest entry in absolute value."""
        return max(int(self.matrix.max()), -int(self.matrix.min()))

    @cached_property
    def sensitivity2(self) -> int:
        """Largest squared L2 norm of a column, exactly."""
        return _largest_sum(self.matrix, self.largest, squared=True)

    @cached_property
    def sensitivity1(self) -> int:
        """Largest L1 norm of a column, exactly."""
        return _largest_sum(self.matrix, self.largest, squared=False)

    @cached_property
    def decoder(self) -> Floats:
        """(N, m) estimates of the cells from the state; exact for every query of the workload."""
        if self.form == "identity":
            return np.eye(self.size)
        floats = self.matrix.astype(np.float64)
        if self.form in ("cells", "causal"):
            return triangular_solution(floats, np.eye(self.size), lower=self.form == "causal")
        if self.form == "tree":
            out = np.zeros((self.size, self.length))
            for cells, words, inverse in self._blocks():
                out[cells, words] = inverse @ floats[words, cells].T
            return out
        if self.form == "queries":
            return pseudo_inverse(floats)
        from scipy.linalg import qr

        q, r = qr(floats.T, mode="economic")
        return np.asarray(q @ triangular_solution(r, np.eye(len(r))).T)

    def estimate(self, point: Floats) -> Floats:
        """(N,) estimates of the cells from a state; for form "causal" without the decoder."""
        if self.form == "causal":
            return triangular_solution(self.matrix, point, lower=True)
        return np.asarray(self.decoder @ point)

    @cached_property
    def sum_coefficients(self) -> Floats:
        """(m,) coefficients of the counters in the sum of the cells' estimates."""
        if self.form == "causal":
            return triangular_solution(self.matrix, np.ones(self.size), lower=True, transposed=True)
        return np.asarray(self.decoder.sum(axis=0))

    @cached_property
    def cell_covariance(self) -> Floats:
        """(N, N) covariance of the cells' estimates for independent noise of variance 1 in each counter."""
        if self.form == "tree":
            out = np.zeros((self.size, self.size))
            for cells, _, inverse in self._blocks():
                out[cells, cells] = inverse
            return out
        return self.decoder @ self.decoder.T

    @property
    def causal_variances(self) -> Floats:
        """(N,) variances of the answers for L2 sensitivity 1, of form "causal"."""
        ones = np.ones(self.width)
        return CausalFactor(ones, self.size).variances(ones, np.arange(self.size), self.size)

    @property
    def total(self) -> float:
        """Sum of the answers' variances for L2 sensitivity 1, before rounding; 0 for Laplace strategies."""
        return float(self.causal_variances.sum()) if self.form == "causal" else self.upper

    @cached_property
    def least_total(self) -> float:
        """Lower bound of that sum for all Gaussian noise; 0: none is known.

        For prefixes it is the square of the nuclear norm, over N. The singular values of their matrix are
        1 / (2 sin((2k - 1) pi / (4N + 2))).
        """
        if self.form != "causal":
            return self.lower
        if self.width != self.size:
            return 0.0
        angles = (2 * np.arange(1, self.size + 1) - 1) * np.pi / (4 * self.size + 2)
        return float(np.sum(0.5 / np.sin(angles)) ** 2 / self.size)

    def _blocks(self) -> Iterator[tuple[slice, Ints, Floats]]:
        """Widest blocks of a tree: their cells, the counters of them, and the inverse of their Gram matrix."""
        width = int(np.count_nonzero(self.matrix, axis=1).max())
        inverses: dict[bytes, Floats] = {}
        for start in range(0, self.size, width):
            cells = slice(start, min(start + width, self.size))
            words = np.flatnonzero(self.matrix[:, cells].any(axis=1))
            block = self.matrix[words, cells]
            if (entries := block.tobytes()) not in inverses:
                floats = block.astype(np.float64)
                inverses[entries] = np.asarray(np.linalg.inv(floats.T @ floats), np.float64)
            yield cells, words, inverses[entries]

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that are equal exactly for equal strategies."""
        head = (VERSION, *self.matrix.shape, str(self.sensitivity2), self.bits, self.form)
        digest = hashlib.sha256(repr(head).encode() + self.workload_digest)
        digest.update(np.ascontiguousarray(self.matrix, "<i8").tobytes())
        return digest.digest()

    def to_bytes(self) -> bytes:
        """The strategy as it is shipped with a spec: workers must not compute their own, whose last bits may differ.

        Equal strategies have equal bytes. Data that the workload determines are omitted: a triangle below or above the
        diagonal, the identity, the queries themselves, and integer combinations of queries but for their factors.
        """
        head: dict[str, Any] = {
            "version": VERSION,
            "form": self.form,
            "bits": self.bits,
            "shape": [self.length, self.size],
            "workload": self.workload_digest,
            "objective": self.objective,
            "lower": self.lower,
            "upper": self.upper,
            "rank": self.rank,
            "sensitivity2": str(self.sensitivity2),
            "sensitivity1": str(self.sensitivity1),
            "digest": self.digest,
        }
        more, body = self._body()
        first: bytes = msgpack.packb(head | more)
        return MAGIC + len(first).to_bytes(4, "little") + first + body

    def _body(self) -> tuple[dict[str, Any], bytes]:
        """Further fields of the head, and what of the matrix is written."""
        if self.form == "causal":
            return {"width": self.width}, b""
        if self.root is not None and self.chosen is not None:
            return {"chosen": pack_integers(self.chosen)}, pack_integers(self.root[np.tril_indices(self.length)])
        if self.form == "cells":
            return {}, pack_integers(self.matrix[np.triu_indices(self.length)])
        return {}, b"" if self.form in ("identity", "queries") else pack_integers(self.matrix)

    @classmethod
    def from_bytes(cls, data: bytes, workload: Workload) -> Self:
        """The strategy that `to_bytes` wrote.

        Raises:
            FormatError: not a strategy for this workload, truncated, or altered; sensitivities are computed again.
        """
        if data[:4] != MAGIC:
            raise FormatError("expected the bytes of a workload strategy")
        length = int.from_bytes(data[4:8], "little")
        if len(data) < 8 + length:
            raise TruncatedError("the bytes of a workload strategy end too early")
        try:
            head: dict[str, Any] = msgpack.unpackb(data[8 : 8 + length])
            version = head["version"]
            if version != VERSION:
                raise VersionError(f"expected version {VERSION} of the strategy format, found {version!r:.20}")
            if head["workload"] != workload.digest:
                raise FormatError("the strategy was made for another workload")
            strategy = cls(
                **cls._read_body(head, data[8 + length :], workload),
                form=head["form"],
                bits=head["bits"],
                workload_digest=workload.digest,
                **{name: head[name] for name in ("objective", "lower", "upper", "rank")},
            )
            declared = (head["digest"], head["sensitivity2"], head["sensitivity1"])
        except (KeyError, TypeError, ValueError, IndexError, msgpack.exceptions.UnpackException) as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError("the bytes of a workload strategy are damaged") from error
        if declared != (strategy.digest, str(strategy.sensitivity2), str(strategy.sensitivity1)):
            raise ChecksumError(
                "digest mismatch: the bytes of a workload strategy were altered after they were written"
            )
        return strategy

    @staticmethod
    def _read_body(head: dict[str, Any], body: bytes, workload: Workload) -> dict[str, Any]:
        """The matrix, and its factors if it has any."""
        rows, size = map(int, head["shape"])
        form = head["form"]
        square = form in ("cells", "identity", "causal")
        queries = form == "queries"
        sized = 0 < rows * size <= MAX_STATE and size == workload.size and (not square or rows == size)
        if not sized or (queries and rows != workload.count) or (body and form in ("identity", "causal", "queries")):
            raise FormatError("the bytes of a workload strategy declare an impossible shape")
        if form == "identity":
            return {"matrix": np.eye(size, dtype=np.int64)}
        if form == "causal":
            width = head["width"]
            if width != causal_width(workload) or not 0 <= head["bits"] <= MAX_BITS:
                raise FormatError("the bytes of a workload strategy are of another workload")
            return {"matrix": _causal_matrix(size, width, head["bits"]), "width": width}
        if queries:
            return {"matrix": workload.dense().astype(np.int64)}
        triangle = rows * (rows + 1) // 2
        if "chosen" in head:
            chosen = unpack_integers(head["chosen"], rows)
            if chosen.min() < 0 or chosen.max() >= workload.count:
                raise FormatError("the bytes of a workload strategy name queries that the workload does not have")
            root = np.zeros((rows, rows), np.int64)
            root[np.tril_indices(rows)] = unpack_integers(body, triangle)
            matrix = _integer_product(root.astype(np.float64), workload.some_rows(chosen))
            return {"matrix": matrix, "root": root, "chosen": chosen}
        matrix = np.zeros((rows, size), np.int64)
        if form == "cells":
            matrix[np.triu_indices(rows)] = unpack_integers(body, triangle)
        else:
            matrix[:] = unpack_integers(body, rows * size).reshape(rows, size)
        return {"matrix": matrix}


def declared_head(data: object) -> dict[str, Any]:
    """The head of what a stranger gives as the bytes of a strategy; empty where `Strategy.from_bytes` refuses them."""
    if not isinstance(data, bytes) or data[:4] != MAGIC:
        return {}
    try:
        head = msgpack.unpackb(data[8 : 8 + int.from_bytes(data[4:8], "little")])
    except (TypeError, ValueError, msgpack.exceptions.UnpackException):
        return {}
    return head if isinstance(head, dict) else {}


def declared_size(data: object) -> int:
    """Elements that a strategy of a stranger's bytes holds: those of its matrix, or of rows and columns without one."""
    head = declared_head(data)
    try:
        rows, size = map(int, head["shape"])
    except (KeyError, TypeError, ValueError):
        return 0
    return max(0, rows + size if "levels" in head else rows * size)


def from_matrix(workload: Workload, matrix: Ints, form: Form, *, rank: int = 0) -> Strategy:
    """A strategy that needs no rounding.

    Args:
        matrix: (m, N) int64, a matrix whose row space holds the workload's.
    """
    return Strategy(np.ascontiguousarray(matrix, np.int64), form, 0, workload.digest, rank=rank)


def causal_width(workload: Workload) -> int:
    """Cells of each sum, where the queries are sums of the last cells up to each; 0 for other workloads."""
    if not workload.flat or workload.size > MAX_ROOT_POSITIONS:
        return 0
    factor = workload.products[0][0]
    return {"prefix": factor.size, "trailing": factor.width}.get(factor.name, 0)


def causal(workload: Workload) -> Strategy:
    """The normalised square root of prefixes or trailing sums: near the best covariance, found in milliseconds."""
    size, width = workload.size, causal_width(workload)
    matrix = _causal_matrix(size, width, BITS)
    return Strategy(matrix, "causal", BITS, workload.digest, rank=size, width=width)


def _causal_matrix(size: int, width: int, bits: int) -> Ints:
    """(N, N) the columns of the factor, rounded."""
    return np.ascontiguousarray(CausalFactor(np.ones(width), size).columns(np.arange(size), 1 << bits).T)


def from_shape(
    workload: Workload,
    shape: Optimum,
    *,
    objective: Objective = "total",
    row_weights: Floats | None = None,
    bits: int = BITS,
) -> Strategy:
    """The integer strategy whose noise has this covariance in the answers, up to rounding.

    Args:
        bits: scale of the first rounding; it is raised until rounding costs at most a factor 1.001 of the objective.
    """
    reduced = shape.reduced
    root = np.linalg.cholesky(shape.covariance)
    form: Form
    chosen: Ints | None
    if reduced.rank == workload.size:
        form = "cells"
        exact: Any = _cells_root(root, reduced.columns)
        independent = chosen = None
    elif workload.integer and (workload.writable or len(workload.products) == 1):
        form = "rows"
        chosen = independent_rows(workload, reduced.rank)
        independent = workload.some_rows(chosen)
        weights = 1.0 if row_weights is None else np.sqrt(row_weights[chosen])[:, None]
        coordinates = (independent * weights) @ reduced.right / reduced.singular
        exact = _rows_root(coordinates @ root / weights)
    else:
        form = "rounded"
        exact = triangular_solution(root, reduced.columns, lower=True)
        independent = chosen = None
    for scale in range(bits, MAX_BITS + 1, 4):
        rounded = np.rint(np.ldexp(exact, scale))
        if form != "rounded" and not np.all(np.diagonal(rounded)):
            continue
        matrix = _integer_product(rounded, independent)
        factor = None if chosen is None else rounded.astype(np.int64)
        strategy = Strategy(
            matrix, form, scale, workload.digest, objective, shape.lower, shape.upper, reduced.rank, factor, chosen
        )
        if attained_objective(workload, strategy, objective, row_weights) <= MAX_ROUNDING_LOSS * shape.upper:
            return strategy
    raise SpecError(
        f"the strategy could not be rounded: the workload's scales differ too much for {MAX_BITS} bits; rescale rows"
    )


def attained_objective(
    workload: Workload, strategy: Strategy, objective: Objective = "total", row_weights: Floats | None = None
) -> float:
    """The objective that an integer strategy reaches for L2 sensitivity 1."""
    scale = float(strategy.sensitivity2)
    if strategy.size > MAX_COVARIANCE_CELLS:
        return objective_value(workload.power_sums(strategy.decoder, 2) * scale, objective, row_weights)
    if objective == "total" and row_weights is None:
        return scale * float(np.vdot(workload.gram(), strategy.cell_covariance))
    return objective_value(workload.variances(strategy.cell_covariance) * scale, objective, row_weights)


def objective_value(variances: Floats, objective: Objective, row_weights: Floats | None) -> float:
    """The largest of the answers' variances, or their weighted sum."""
    if objective == "max":
        return float(variances.max())
    return float(np.sum(variances if row_weights is None else variances * row_weights))


def independent_rows(workload: Workload, rank: int) -> Ints:
    """Indices of `rank` linearly independent queries, well conditioned, by pivoted QR."""
    from scipy.linalg import qr

    if len(workload.products) == 1 and len(workload.products[0]) > 1:
        rows = []
        for factor in workload.products[0]:
            rank = int(np.linalg.matrix_rank(factor.gram(), hermitian=True))
            rows.append(independent_rows(product_workload({"cell": factor}), rank))
        return workload.product_rows(rows)
    matrix = workload.dense()
    if rank == len(matrix):
        return np.arange(rank, dtype=np.int64)
    _, pivots = qr(matrix.T, mode="r", pivoting=True)
    return np.sort(pivots[:rank]).astype(np.int64)


def _cells_root(root: Any, columns: Floats) -> Floats:
    """The upper triangular C with C' C = columns' covariance^-1 columns, and a positive diagonal."""
    return _upper_root(triangular_solution(root, columns, lower=True))


def _rows_root(half: Floats) -> Floats:
    """The inverse of the lower triangular K with K K' = half half', and a positive diagonal."""
    return np.tril(triangular_solution(_upper_root(half.T), np.eye(len(half))).T)


def _upper_root(matrix: Floats) -> Floats:
    """The upper triangular R with R' R = matrix' matrix, and a positive diagonal."""
    from scipy.linalg import qr

    (triangle,) = qr(matrix, mode="r")
    return np.asarray(np.triu(triangle * np.where(np.diagonal(triangle) < 0, -1.0, 1.0)[:, None]))


def _integer_product(rounded: Floats, rows: Floats | None) -> Ints:
    """The rounded matrix, multiplied exactly by integer rows if given."""
    if rows is None:
        return rounded.astype(np.int64)
    if float(np.abs(rounded).max()) * float(np.abs(rows).max()) * len(rows) < 2.0**53:
        return (rounded @ rows).astype(np.int64)  # every partial sum is a whole number below 2^53: exact
    product: Ints = rounded.astype(np.int64) @ rows.astype(np.int64)
    return product


def _largest_sum(matrix: Ints, largest: int, *, squared: bool) -> int:
    """Largest sum over a column of its entries' squares, or of their absolute values, in integers of any size."""
    bound = (largest * largest if squared else largest) * len(matrix)
    exact = matrix if bound < 1 << 62 else matrix.astype(object)
    return int(max(np.einsum("ij,ij->j", exact, exact) if squared else np.abs(exact).sum(axis=0)))
