"""Specs of the linear kinds with every option away from its default, and what must never change about them.

In: nothing. Out: functions that make the specs, and what is recorded of each. Touches: nothing; the noise that it draws
follows from a fixed key, whatever `SKETCHSTREAM_TEST_SEED` says.

`tests/golden/write_specs.py` records the specs once, `tests/kinds/test_golden_specs.py` compares. Strategies of
workloads come from the record: their optimiser works in floating point, and a bit may differ between processors.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pytest

import sketchstream as ss
from sketchstream import kinds
from sketchstream.kinds.workload.queries.queries import Workload
from sketchstream.kinds.workload.queries.universe import Column
from sketchstream.kinds.workload.strategies.strategy import Strategy
from sketchstream.noise import entropy

DRAWN: Final = 64
LINEAGE: Final = bytes(range(16))
ITEMS: Final = ["a", "b", 5, b"c"]
USERS: Final = ["ATL", "BOS", "ORD"]
FEATURES: Final = ["DL", "UA"]
TABLE: Final = ss.Universe([Column("origin", ["EWR", "JFK"], other=True), Column.buckets("hour", 0, 6, 4)])
PRIVATE: Final = {"epsilon_publish": "3/4", "delta_publish": "1e-8"}
JUDGED: Final = {"counted_share": "1/20", "epsilon_records": "1/5"}
BOTH: Final = {"epsilon": "3/2", "delta": "1e-7"}
Spec = Any


def gaussian_events(_: bytes | None) -> Spec:
    """Events with decimal weights, and every counter beside the slots."""
    return ss.GaussianSpec(
        "3/2", "1e-7", "event", ss.ClosedDomain(items=ITEMS), max_weight="2.5", fraction_bits=3, capacity=1 << 30,
        total_share="1/40", counted=True, epsilon_records="1/5", **PRIVATE,
    )  # fmt: skip


def gaussian_items(_: bytes | None) -> Spec:
    """Items with all three bounds, published bare."""
    return ss.GaussianSpec(
        "3/2", "1e-7", "item", ss.ClosedDomain(size=70), max_weight=2, max_total="7.5", max_per_slot="3", capacity=999,
        fraction_bits=1, total_share="1/30", intrusion=False,
    )  # fmt: skip


def projection_events(_: bytes | None) -> Spec:
    """Lists, a matrix of its own seed, decimal weights, and both counters."""
    return ss.ProjectionSpec(
        ss.ClosedDomain(items=USERS), ss.ClosedDomain(items=FEATURES), 24, "3/2", "1e-7", max_weight="2.5",
        matrix="rademacher", seed="5a" * 32, fraction_bits=3, capacity=1 << 20, **PRIVATE, **JUDGED,
    )  # fmt: skip


def projection_items(_: bytes | None) -> Spec:
    """Items with every promise, published bare."""
    return ss.ProjectionSpec(
        9, 30, 8, "3/2", "1e-7", "item", max_total="7.5", max_norm=3, max_features=5, matrix="srht", fraction_bits=1,
        intrusion=False,
    )  # fmt: skip


def projection_secret(_: bytes | None) -> Spec:
    """A secret matrix, whose ledger counts a law of norms."""
    return ss.ProjectionSpec(9, 30, 8, "3/2", "1e-7", "item", max_norm=3, matrix_seed="secret", fraction_bits=2)


def workload_events(strategy: bytes | None) -> Spec:
    """Tables of columns, weighted, with both counters."""
    return _workload(
        TABLE.marginals((1, 2)), strategy, "gaussian", **BOTH, max_weight=3, n_bound=1000, capacity=1 << 30,
        row_weights=[3.0, *[1.0, 2.0, 0.5] * 6], universe=TABLE, **PRIVATE, **JUDGED,
    )  # fmt: skip


def workload_items(strategy: bytes | None) -> Spec:
    """Pure noise for items, the largest error as the objective, published bare."""
    return _workload(
        Workload.named("ranges:12"), strategy, "laplace", epsilon="3/2", delta=0, unit="item", max_weight=2,
        max_total=7, objective="max", intrusion=False,
    )  # fmt: skip


def workload_ball(strategy: bytes | None) -> Spec:
    """Noise in a ball."""
    return _workload(Workload.named("marginals:4:1"), strategy, "l2ball", epsilon="3/2", delta=0, max_weight=2)


def convolution_series(_: bytes | None) -> Spec:
    """Two filters by event time, correlated Gaussian noise, both counters."""
    return ss.ConvolutionSpec(
        ["sum", "decay:0.5"], 40, **BOTH, noise="gaussian", layout="time", floor="1/32", max_weight=3, step_ms=60_000,
        weights=["1", "1/2"], transform_length=96, capacity=1 << 20, **PRIVATE, **JUDGED,
    )  # fmt: skip


def convolution_spectrum(_: bytes | None) -> Spec:
    """Laplace noise in the spectrum, an answer that looks ahead."""
    return ss.ConvolutionSpec("window:8", 40, **BOTH, noise="laplace", floor="1/16", origin=3, max_weight=2, **PRIVATE)


def convolution_closed(_: bytes | None) -> Spec:
    """Items, noise on the counts, positions published when they close."""
    return ss.ConvolutionSpec(
        "window:8", 40, **BOTH, noise="counts", unit="item", max_total=5, publish="closed", intrusion=False,
        step_ms=1000,
    )  # fmt: skip


def convolution_tree(_: bytes | None) -> Spec:
    """Laplace noise on blocks of given widths and weights."""
    return ss.ConvolutionSpec(
        "sum", 40, epsilon="3/2", noise="tree", levels=[(1, 3), (5, 2), (20, 1)], max_weight=2, **JUDGED,
        epsilon_publish="3/4",
    )  # fmt: skip


def convolution_root(_: bytes | None) -> Spec:
    """Gaussian noise on the square root of the second filter, positions published when they close."""
    return ss.ConvolutionSpec(
        ["sum", "decay:0.5"], 40, **BOTH, noise="toeplitz", root=1, publish="closed", intrusion=False, max_weight=3,
        step_ms=1000,
    )  # fmt: skip


def convolution_table(_: bytes | None) -> Spec:
    """Marginal tables under pure noise."""
    columns = {"late": (0, 1), "day": tuple("abcde")}
    names = ["marginal:late", "marginal:late,day"]
    return ss.ConvolutionSpec(names, columns=columns, epsilon="3/2", noise="laplace_pure", max_weight=2, floor="1/8")


def projection_rows(_: bytes | None) -> Spec:
    """Rows as they are."""
    return ss.ProjectionSpec(12, 40, None, **BOTH, matrix="identity", max_weight=3, **PRIVATE)


def hierarchy_events(_: bytes | None) -> Spec:
    """Levels of other weights, signed counts, both counters."""
    paths = [("fr", "paris"), ("fr", "lyon"), ("de", "bonn"), ("it", "bonn")]
    return ss.HierarchySpec(
        ["country", "city"], paths, "3/2", "1e-7", max_weight=3, signed=True, multipliers=[0, 2, 3], capacity=1 << 20,
        **PRIVATE, **JUDGED,
    )  # fmt: skip


def hierarchy_items(_: bytes | None) -> Spec:
    """Items, published bare."""
    paths = [f"{at % 7}\t{at}" for at in range(30)]
    return ss.HierarchySpec(["x", "y"], paths, "3/2", "1e-7", "item", max_total=9, max_weight=4, intrusion=False)


SPECS: Final[dict[str, Callable[[bytes | None], Spec]]] = {
    one.__name__: one
    for one in (
        gaussian_events, gaussian_items, projection_events, projection_items, projection_secret, workload_events,
        workload_items, workload_ball, convolution_series, convolution_spectrum, convolution_closed, convolution_table,
        convolution_tree, convolution_root, projection_rows,
        hierarchy_events, hierarchy_items,
    )
}  # fmt: skip
LISTS: Final = {"gaussian_events": ITEMS, "projection_events": [*USERS, *FEATURES]}
"""Lists of the domains, which no dictionary holds."""


def recorded(spec: Spec) -> dict[str, Any]:
    """What must stay the same of a spec, as plain data for JSON.

    Args:
        spec: spec of a linear kind.
    """
    kind = kinds.kind_of(spec)
    ledger = kind.accounting.ledger(spec, LINEAGE, *(("9",) if _pure(spec) else ("9", "1e-4")))
    return {
        "spec": text(spec.to_dict()),
        "fingerprint": spec.fingerprint.hex(),
        "ledger": text(ledger.to_dict()),
        "loss": str(ledger.loss()),
        "components": [f"{one.name} {one.share} {one.law}" for one in kind.accounting.components(spec)],
        "draws": _draws(spec),
    }


def text(data: Any) -> Any:
    """Plain data with bytes as {"hex": digits}."""
    if isinstance(data, bytes):
        return {"hex": data.hex()}
    if isinstance(data, Mapping):
        return {name: text(value) for name, value in data.items()}
    return [text(one) for one in data] if isinstance(data, (list, tuple)) else data


def data(written: Any) -> Any:
    """The inverse of `text`."""
    if isinstance(written, Mapping):
        return (
            bytes.fromhex(written["hex"])
            if written.keys() == {"hex"}
            else {name: data(value) for name, value in written.items()}
        )
    return [data(one) for one in written] if isinstance(written, list) else written


def _workload(workload: Workload, strategy: bytes | None, mechanism: Any, **options: Any) -> Spec:
    """A spec with a recorded strategy, or with one that is computed."""
    known = None if strategy is None else Strategy.from_bytes(strategy, workload)
    return ss.WorkloadSpec(workload, mechanism=mechanism, strategy=known, **options)


def _pure(spec: Spec) -> bool:
    """Whether the ledger counts pure epsilons."""
    return bool(getattr(spec, "pure", getattr(spec, "measure", "mu2") == "epsilon"))


def _draws(spec: Spec) -> list[int]:
    """The first counters of a fresh state, under noise from fixed keys."""
    kind = kinds.kind_of(spec)
    numbers: Iterator[int] = itertools.count(1)
    state = np.zeros(spec.slots, spec.dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entropy, "fresh_key", lambda: bytearray(hashlib.sha256(b"%d" % next(numbers)).digest()))
        kind.draw(spec, state, kind.accounting.creation_cost(spec))
    return [int(one) for one in state[:DRAWN]]
