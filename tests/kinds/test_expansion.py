"""Specs of strangers are refused by their declared sizes, before anything is expanded.

In: specs that are short and describe much. Out: nothing. Touches: one environment variable of its own.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Mapping
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchstream import kinds, wire
from sketchstream.errors import FormatError, SpecError
from sketchstream.kinds.convolution.spec import ConvolutionSpec
from sketchstream.kinds.expansion import VARIABLE
from sketchstream.kinds.projection.spec import ProjectionSpec
from sketchstream.kinds.workload.spec import WorkloadSpec
from sketchstream.kinds.workload.strategies.strategy import MAGIC
from sketchstream.published import read_published
from sketchstream.serve.store.ledgers import shape_of
from sketchstream.sketch import Sketch

SERIES = ConvolutionSpec("window:3", 24, epsilon="1", delta="1e-6")
ROWS = ProjectionSpec(users=8, features=16, k=4, epsilon="1", delta="1e-6", unit="item", max_total=4)
BATCH = WorkloadSpec("prefix:8", epsilon="1", delta="1e-6")
HEAD = msgpack.packb({"version": 1, "form": "identity", "bits": 0, "shape": [11_000, 11_000]})
MANY_FILTERS = {
    "length": 1 << 22,
    "transform_length": 1 << 23,
    "kernel": [f"window:{(1 << 22) - i}" for i in range(64)],
    "weights": ["1"] * 64,
}
LARGE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "many long filters": (SERIES.to_dict(), MANY_FILTERS),
    "many short filters over a long series": (
        SERIES.to_dict(),
        {**MANY_FILTERS, "kernel": [f"window:{i + 1}" for i in range(64)]},
    ),
    "a long group": (
        SERIES.to_dict(),
        {"mode": "circular", "group": [2] * 22, "length": 1 << 22, "kernel": ["marginal"] * 40},
    ),
    "a pass over many features": (
        ROWS.to_dict(),
        {"matrix": "gaussian", "k": 4096, "features": {"kind": "closed", "size": 1 << 24}},
    ),
    "a large Gram matrix": (
        ROWS.to_dict(),
        {"matrix": "rademacher", "max_norm": "4", "k": 4096, "features": {"kind": "closed", "size": 1 << 20}},
    ),
    "a matrix that has no bytes": (
        BATCH.to_dict(),
        {"strategy": MAGIC + len(HEAD).to_bytes(4, "little") + HEAD},
    ),
    "all pairs of many rows": (
        ROWS.to_dict(),
        {
            "matrix": "rademacher",
            "max_norm": "4",
            "max_features": 2,
            "k": 16,
            "features": {"kind": "closed", "size": 1 << 16},
        },
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_short_spec_that_describes_much_is_refused_before_it_is_expanded(name: str) -> None:
    plain, changed = LARGE[name]
    tracemalloc.start()
    began = time.process_time()
    try:
        with pytest.raises(FormatError, match=VARIABLE):
            kinds.read_published_spec({**plain, **changed})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 24, "modules that are loaded, no arrays"
    assert time.process_time() - began < 5, "the work itself takes a minute or more"


def test_no_reader_of_published_bytes_expands_such_a_spec() -> None:
    release = Sketch.create(SERIES).seal()
    header = wire.unpack_header(release.to_bytes())
    large = {**header["spec"], **MANY_FILTERS}
    assert shape_of({**header, "spec": large}) is None
    body = wire.pack({**header, "spec": large}, np.zeros(release.slots, np.int64), codec=wire.RAW)
    with pytest.raises(FormatError, match=VARIABLE):
        read_published(body)


def test_who_trusts_the_origin_raises_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ConvolutionSpec(["window:3", "window:5"], 100_000, epsilon="1", delta="1e-6", noise="gaussian")
    monkeypatch.setenv(VARIABLE, "1")
    with pytest.raises(FormatError, match="limit of 1 MB"):
        kinds.read_published_spec(spec.to_dict())
    monkeypatch.setenv(VARIABLE, "300")
    assert kinds.read_published_spec(spec.to_dict()).fingerprint == spec.fingerprint


@given(
    st.sampled_from([SERIES.to_dict(), ROWS.to_dict(), BATCH.to_dict()]),
    st.dictionaries(
        st.sampled_from(
            ["length", "transform_length", "kernel", "group", "features", "k", "matrix", "max_features", "strategy"]
        ),
        st.one_of(
            st.integers(-(2**70), 2**70),
            st.text(),
            st.none(),
            st.lists(st.integers(0, 9)),
            st.booleans(),
            st.floats(),
            st.binary(max_size=40).map(lambda body: MAGIC + body),
        ),
    ),
)
def test_whatever_a_stranger_declares_is_read_or_refused(plain: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
    kind = kinds.by_name(plain["kind"])
    found = kind.expansion({**plain, **changed})
    assert found.n_bytes >= 0
    assert found.operations >= 0


def test_the_declared_sizes_bound_what_a_spec_takes() -> None:
    """The bound that is computed is not below the memory that is then used, for specs of a moderate size."""
    for spec in (
        ConvolutionSpec("window:64", 1 << 16, epsilon="1", delta="1e-6", noise="gaussian"),
        ConvolutionSpec([f"window:{64 + i}" for i in range(8)], 1 << 16, epsilon="1", delta="1e-6", noise="laplace"),
        ProjectionSpec(
            users=4,
            features=1000,
            k=256,
            epsilon="1",
            delta="1e-6",
            unit="item",
            max_norm=4,
            max_total=4,
            matrix="rademacher",
        ),
    ):
        described = spec.to_dict()
        kinds.read_published_spec(described)  # loads what it needs
        tracemalloc.start()
        try:
            kinds.read_published_spec(described)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak <= kinds.kind_of(spec).expansion(described).n_bytes + (1 << 20)


def test_wrong_sizes_are_still_refused_as_such() -> None:
    with pytest.raises(SpecError, match="length"):
        kinds.read_published_spec({**SERIES.to_dict(), "length": 1 << 40})
