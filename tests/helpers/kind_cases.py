"""One sketch, or several, of every kind: what the laws of the seam and the public interface are tested with.

In: nothing. Out: `CASES`. Touches: nothing. A new kind adds a case here, and is held to both.
"""

from __future__ import annotations

from typing import Any

import sketchstream as ss
from helpers.conformance import Case
from helpers.tally import TallySpec
from sketchstream import WorkloadSpec
from sketchstream.kinds.groups.group_list import Groups
from sketchstream.kinds.workload.queries.universe import Column

LIST = [f"item {i}" for i in range(30)]
NAMES = list("abcde")
GROUPED = [(NAMES[i % 5], one) for i, one in enumerate(LIST)]
STATE = {"publish": "state", "intrusion": True}
FRACTIONS = {"max_weight": "2.5", "fraction_bits": 2}
TABLE = ss.Universe([Column("origin", ["EWR", "JFK", "LGA"], other=True), Column.buckets("hour", 0, 6, 4)])
JUDGED: dict[str, Any] = {"counted_share": "1/20", "epsilon_records": "1/5"}
SERIES = {"epsilon": "1", "delta": "1e-6"}
BY_TIME = {"noise": "gaussian", "layout": "time", **SERIES}
CELLS = {"columns": {"late": (0, 1), "day": tuple("abcde")}, "epsilon": "1"}
PLACES = ["country", "city"]
CITIES = [("fr", "paris"), ("fr", "lyon"), ("de", "bonn"), ("de", "ulm"), ("it", "bonn")]
PAIRS = [(i % 12, i * 7 % 40) for i in range(30)]


def in_groups(domain: Any, **limits: Any) -> ss.ProfileSpec:
    """A profile that protects items, each of which counts in a limited number of five groups."""
    return ss.ProfileSpec("1", "item", domain, modulus=16, groups=Groups(NAMES, **limits), **STATE)


def projection(epsilon: str, users: Any = 12, features: Any = 40, **options: Any) -> ss.ProjectionSpec:
    """A small projection."""
    users, features = (one if isinstance(one, int) else ss.ClosedDomain(items=one) for one in (users, features))
    return ss.ProjectionSpec(users, features, 16, epsilon, "1e-6", **{"max_weight": 3, **options})


CASES = {
    "profile": Case(
        ss.ProfileSpec("1", domain=ss.ClosedDomain(size=400), max_weight=3, **STATE),
        ss.ProfileSpec("1/2", domain=ss.ClosedDomain(size=400), max_weight=3, **STATE),
        items=list(range(0, 300, 4)),
        weights=[1, 2, 3] * 25,
        outside=400,
        bad_weight=4,
    ),
    "profile, open": Case(
        ss.ProfileSpec("1", domain=ss.OpenDomain(slots=1024, levels=2), **STATE),
        ss.ProfileSpec("1", domain=ss.OpenDomain(slots=2048, levels=2), **STATE),
        items=LIST,
        bad_weight=2,
    ),
    "profile, items": Case(
        ss.ProfileSpec("1", "item", ss.ClosedDomain(items=LIST), modulus=16, **STATE),
        ss.ProfileSpec("1", "item", ss.ClosedDomain(items=LIST), modulus=8, **STATE),
        items=LIST,
        outside="stranger",
    ),
    "profile, groups": Case(
        ss.ProfileSpec("1", domain=ss.OpenDomain(slots=512, levels=2), groups=Groups(["a", "b"], True), **STATE),
        ss.ProfileSpec("1", domain=ss.OpenDomain(slots=512, levels=2), groups=Groups(["b", "a"], True), **STATE),
        items=[("abc"[i % 3], one) for i, one in enumerate(LIST)],
        bad_weight=2,
        group="other",
    ),
    "profile, items in groups": Case(
        in_groups(ss.ClosedDomain(items=LIST), max_groups=2),
        in_groups(ss.ClosedDomain(items=LIST), max_groups=3),
        items=GROUPED,
        outside=("f", LIST[0]),
        group="a",
    ),
    "profile, items in ranked groups": Case(
        in_groups(ss.OpenDomain(512, 2), max_groups=2, limit="ranked"),
        in_groups(ss.OpenDomain(512, 2), max_groups=2, limit="promised"),
        items=GROUPED,
        group="e",
    ),
    "gaussian": Case(
        ss.GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(items=LIST)),
        ss.GaussianSpec("1", "1e-7", domain=ss.ClosedDomain(items=LIST)),
        items=LIST,
        outside="stranger",
        bad_weight=2,
        asked=("1/2", "1e-6"),
        options=(("items", LIST),),
    ),
    "gaussian, fractions and counters": Case(
        ss.GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(size=400), total_share="1/40", **FRACTIONS),
        ss.GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(size=400), total_share="1/20", **FRACTIONS),
        items=list(range(0, 300, 4)),
        weights=[1, "-2.25", 0.5] * 25,
        outside=400,
        bad_weight="2.5000001",
        asked=("1/2", "1e-6"),
    ),
    "gaussian, items": Case(
        ss.GaussianSpec("1", "1e-6", "item", ss.ClosedDomain(size=400), max_total=9, max_per_slot=3),
        ss.GaussianSpec("1", "1e-6", "item", ss.ClosedDomain(size=400), max_total=9, max_per_slot=2),
        items=list(range(0, 300, 4)),
        weights=[1, -2, 3] * 25,
        outside=-1,
        bad_weight=4,
        asked=("1/2", "1e-6"),
    ),
    "workload": Case(
        WorkloadSpec("prefix:24", "1", "1e-6", "gaussian", max_weight=3),
        WorkloadSpec("prefix:24", "1", "1e-6", "gaussian", max_weight=3, n_bound=100),
        items=[i % 24 for i in range(40)],
        weights=[1, -2, 3, 2] * 10,
        outside=24,
        bad_weight=4,
        asked=("1/2", "1e-7"),
    ),
    "workload, tables of an item": Case(
        WorkloadSpec(TABLE.marginals((1, 2)), "1", "1e-6", "gaussian", unit="item", max_total=5, universe=TABLE),
        WorkloadSpec(TABLE.marginals((1,)), "1", "1e-6", "gaussian", unit="item", max_total=5, universe=TABLE),
        items=["EWR\t3", "JFK\t23", "LGA\t0", "elsewhere\t12"] * 6,
        outside="JFK\t24",
        bad_weight=2,
        options=(("method", "cap"), ("n_bound", 50)),
    ),
    "workload, laplace": Case(
        WorkloadSpec("ranges:12", "1", 0, "laplace", intrusion=False),
        WorkloadSpec("ranges:12", "2", 0, "laplace", intrusion=False),
        items=[i % 12 for i in range(40)],
        outside=-1,
        bad_weight=-2,
    ),
    "workload, ball": Case(
        WorkloadSpec("marginals:4:1", "1", 0, "l2ball"),
        WorkloadSpec("marginals:4:1", "1/3", 0, "l2ball"),
        items=list(range(16)) * 2,
        outside=16,
        bad_weight=1 << 40,
    ),
    "convolution": Case(
        ss.ConvolutionSpec("window:24", 100, noise="gaussian", max_weight=3, **SERIES, **JUDGED),
        ss.ConvolutionSpec("window:25", 100, noise="gaussian", max_weight=3, **SERIES, **JUDGED),
        items=list(range(0, 90, 3)),
        weights=[1, -2, 3] * 10,
        outside=100,
        bad_weight=4,
        asked=("1/2", "1e-7"),
        arguments=(("kernel", "window:24"), ("group", "cyclic")),
    ),
    "convolution, items, by time": Case(
        ss.ConvolutionSpec(["sum", "decay:0.9"], 60, unit="item", max_total=5, **BY_TIME),
        ss.ConvolutionSpec(["sum", "decay:0.8"], 60, unit="item", max_total=5, **BY_TIME),
        items=list(range(60)) * 2,
        weights=[1, -5, 3] * 40,
        outside=-1,
        bad_weight=-6,
        asked=("1/2",),
        arguments=(("kernel", ["sum", "decay:0.9"]), ("group", "cyclic")),
    ),
    "convolution, Laplace noise in the spectrum": Case(
        ss.ConvolutionSpec("window:24", 100, noise="laplace", max_weight=3, **SERIES, **JUDGED),
        ss.ConvolutionSpec("window:25", 100, noise="laplace", max_weight=3, **SERIES, **JUDGED),
        items=list(range(100)),
        weights=[1, -2, 3, 1] * 25,
        outside=100,
        bad_weight=4,
        asked=("1/2", "1e-6"),
        arguments=(("kernel", "window:24"), ("group", "cyclic")),
    ),
    "convolution, noise on the counts": Case(
        ss.ConvolutionSpec([1, 0.5, 0.25], 3000, noise="counts", max_weight=2, **SERIES),
        ss.ConvolutionSpec([1, 0.5, 0.26], 3000, noise="counts", max_weight=2, **SERIES),
        items=list(range(40)),
        outside=3000,
        bad_weight=3,
        asked=("1/2",),
        arguments=(("kernel", [1, 0.5, 0.25]), ("group", "cyclic")),
    ),
    "convolution, table": Case(
        ss.ConvolutionSpec(["marginal:late", "marginal:day"], noise="laplace_pure", **CELLS),
        ss.ConvolutionSpec(["marginal:late", "marginal:"], noise="laplace_pure", **CELLS),
        items=list(range(10)) * 3,
        outside=10,
        bad_weight=2,
        asked=("1/2",),
        arguments=(("kernel", ["marginal:late", "marginal:day"]), ("group", "cyclic")),
    ),
    "projection, events": Case(
        projection("1", counted_share="1/40", epsilon_records="1/10"),
        projection("2"),
        items=PAIRS,
        weights=[1, -2, 3] * 10,
        outside=(12, 0),
        bad_weight=4,
        asked=("1", "1e-6"),
    ),
    "projection, listed items": Case(
        projection(
            "1", unit="item", users=LIST, features=["a", "b"], max_weight=None, max_total=5, matrix="rademacher"
        ),
        projection(
            "1", unit="item", users=LIST, features=["a", "b"], max_weight=None, max_total=6, matrix="rademacher"
        ),
        items=[(name, "ab"[i % 2]) for i, name in enumerate(LIST)],
        outside=("stranger", "a"),
        bad_weight=6,
        asked=("1", "1e-6"),
        options=(("users", LIST), ("nearest", ["item 0"]), ("count", 2)),
    ),
    "hierarchy": Case(
        ss.HierarchySpec(PLACES, CITIES, "1", "1e-6", max_weight=3, **JUDGED),
        ss.HierarchySpec(PLACES, CITIES[1:], "1", "1e-6", max_weight=3, **JUDGED),
        items=[*CITIES, *CITIES, *CITIES, *CITIES],
        weights=[1, -2, 3, 2, 1] * 4,
        outside=("fr", "ulm"),
        bad_weight=4,
        asked=("1/2", "1e-7"),
        arguments=(("levels", PLACES), ("paths", CITIES)),
    ),
    "projection, rows as they are": Case(
        ss.ProjectionSpec(12, 40, None, "1", "1e-6", matrix="identity", max_weight=3),
        ss.ProjectionSpec(12, 40, None, "2", "1e-6", matrix="identity", max_weight=3),
        items=PAIRS,
        weights=[1, -2, 3] * 10,
        outside=(12, 0),
        bad_weight=4,
        asked=("1", "1e-6"),
    ),
    "tally": Case(
        TallySpec("1", ss.ClosedDomain(items=LIST)),
        TallySpec("2", ss.ClosedDomain(items=LIST)),
        items=LIST,
        outside="stranger",
        bad_weight=2,
    ),
}
