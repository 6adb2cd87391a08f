"""Specifications: what is accepted, what is refused and how, edges, fingerprints, and the package's public names."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sketchstream as ss
from sketchstream import kinds
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.spec import NoPrivacyWarning, exact_epsilon

CLOSED = ss.ClosedDomain(size=10)


@pytest.mark.parametrize("written", ["0.1", 0.1, Fraction(1, 10), Decimal("0.1"), "1/10", np.float64(0.1), "1e-1"])
def test_epsilon_is_the_rational_that_was_written(written: object) -> None:
    assert exact_epsilon(written) == Fraction(1, 10)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "x",
        "nan",
        "inf",
        float("nan"),
        float("inf"),
        0,
        -1,
        "-0.1",
        "1/0",
        True,
        None,
        51,
        1e-7,
        [1],
        "1" * 9,
        "1e99999999",
        "1e-99999999",
        Decimal("1e99999999"),
        "1_0",
        "1/1_0",
        "\u0661",
    ],
)
def test_impossible_epsilons_are_refused_with_what_was_expected(written: object) -> None:
    with pytest.raises(ss.SpecError, match="epsilon"):
        exact_epsilon(written)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"unit": "user"}, "unit must be"),
        ({"domain": None}, "domain must be"),
        ({"domain": 5}, "domain must be"),
        ({"unit": "item", "modulus": 1}, "modulus"),
        ({"unit": "item", "modulus": 2**15 + 1}, "modulus"),
        ({"unit": "item", "modulus": 32, "max_count": 32}, "max_count"),
        ({"unit": "item", "modulus": 32, "max_weight": 2}, "max_weight"),
        ({"unit": "item", "modulus": 32, "bits": 64}, "bits"),
        ({"modulus": 32}, "modulus belongs"),
        ({"max_count": 0}, "max_count"),
        ({"max_count": 2.5}, "max_count"),
        ({"max_count": True}, "max_count"),
        ({"max_weight": 0}, "max_weight"),
        ({"max_weight": 1 << 30}, "max_weight"),
        ({"epsilon": "0.001", "max_weight": 10_000}, "epsilon / max_weight"),
        ({"bits": 16}, "bits"),
        ({"publish": "all"}, "publish must be"),
        ({"publish": "state"}, "intrusion written out"),
        ({"publish": "state", "intrusion": "no"}, "intrusion written out"),
        ({"intrusion": True}, "intrusion belongs"),
        ({"epsilon_publish": "0"}, "epsilon_publish"),
    ],
)
def test_impossible_specs_are_refused_with_what_was_expected(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ss.SpecError, match=said):
        ProfileSpec(**{"epsilon": "1", "domain": CLOSED, **fields})


@pytest.mark.parametrize(
    "make",
    [
        lambda: ss.ClosedDomain(),
        lambda: ss.ClosedDomain(size=5, items=["a"]),
        lambda: ss.ClosedDomain(size=0),
        lambda: ss.ClosedDomain(items=[]),
        lambda: ss.ClosedDomain(items=["a", "a"]),
        lambda: ss.ClosedDomain(items=["a", 1.5]),
        lambda: ss.ClosedDomain(items=[True]),
        lambda: ss.ClosedDomain(items=[1 << 70]),
        lambda: ss.ClosedDomain(size=5, sample_rate=0),
        lambda: ss.ClosedDomain(size=5, sample_rate=True),
        lambda: ss.ClosedDomain(size=5, sample_rate="two"),
        lambda: ss.ClosedDomain(size=5, sample_rate="1e-99999999"),
        lambda: ss.OpenDomain(slots=1),
        lambda: ss.OpenDomain(slots=10, levels=0),
        lambda: ss.OpenDomain(slots=10, levels=8),
        lambda: ss.OpenDomain(slots=1 << 40),
    ],
)
def test_impossible_domains_are_refused(make: object) -> None:
    with pytest.raises(ss.SpecError):
        make()


def test_an_epsilon_that_protects_nobody_warns_and_says_so() -> None:
    with pytest.warns(NoPrivacyWarning, match="NO PRIVACY"):
        spec = ProfileSpec(epsilon=11, domain=CLOSED)
    assert spec.no_privacy
    assert not ProfileSpec(epsilon=10, domain=CLOSED).no_privacy


def test_edges_follow_the_rule_of_the_published_form() -> None:
    cumulative = ProfileSpec(epsilon=1, domain=CLOSED)
    assert cumulative.form == "cumulative"
    assert list(cumulative.edges[:8]) == [-3, -2, -1, 0, 1, 2, 3, 4]
    assert 304 in cumulative.edges
    assert 305 not in cumulative.edges
    assert cumulative.edges[-1] >= 1 << 30 > cumulative.edges[-2]
    bins = ProfileSpec(epsilon=1, domain=CLOSED, max_weight=2)
    assert bins.form == "bins"
    assert list(bins.edges[:3]) == [-(1 << 31), -3, -2]
    assert list(bins.edges[23:27]) == [19, 20, 22, 24]
    item = ProfileSpec(epsilon=1, unit="item", modulus=7, domain=CLOSED)
    assert list(item.edges) == list(range(7))
    assert item.form == "bins"
    for spec in (cumulative, bins, item):
        assert (np.diff(spec.edges) > 0).all()


def test_edges_do_not_depend_on_data_but_on_the_spec_only() -> None:
    specs = [ProfileSpec(epsilon=e, domain=CLOSED, max_count=2000) for e in ("0.1", "3")]
    assert (specs[0].edges == specs[1].edges).all()
    assert 1028 in specs[0].edges
    assert 1029 not in specs[0].edges


@given(
    st.sampled_from([CLOSED, ss.OpenDomain(64, 2), ss.ClosedDomain(size=9, sample_rate="1/3")]),
    st.fractions(Fraction(1, 1000), 10),
    st.integers(1, 500),
    st.sampled_from([("histogram", None), ("state", True), ("state", False)]),
)
def test_a_spec_survives_the_way_through_plain_data(domain, epsilon, max_count, publish) -> None:
    spec = ProfileSpec(epsilon, domain=domain, max_count=max_count, publish=publish[0], intrusion=publish[1])
    again = ProfileSpec.from_dict(spec.to_dict())
    assert again == spec
    assert again.fingerprint == spec.fingerprint


def test_a_listed_domain_is_described_by_its_digest() -> None:
    spec = ProfileSpec(epsilon=1, domain=ss.ClosedDomain(items=["a", b"a", 1, "1"]))
    outline = ProfileSpec.from_dict(spec.to_dict())
    assert outline.needs_key
    assert outline.fingerprint == spec.fingerprint
    assert ProfileSpec.from_dict(spec.to_dict(), items=["a", b"a", 1, "1"]) == spec
    with pytest.raises(ss.SpecError, match="list of items"):
        ProfileSpec.from_dict(spec.to_dict(), items=["a", b"a", "1", 1])
    assert "'a'" not in repr(spec)


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"kind": "gaussian"},
        {"kind": "profile"},
        {"kind": "profile", "domain": {"kind": "open", "slots": 9, "x": 1}},
    ],
)
def test_broken_plain_data_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(ss.SpecError):
        ProfileSpec.from_dict(broken)


def test_level_shares_sum_to_one_and_halve() -> None:
    shares = ss.OpenDomain(slots=64, levels=4).level_shares()
    assert list(shares) == [0.5, 0.25, 0.125, 0.125]
    assert ss.OpenDomain(slots=65, levels=4).size == 64


def test_every_public_name_exists_and_is_listed() -> None:
    for name in ss.__all__:
        assert getattr(ss, name) is not None
    assert sorted(ss.__all__) == ss.__all__
    assert set(ss.__all__) <= set(dir(ss))
    with pytest.raises(AttributeError, match="no attribute"):
        _ = ss.no_such_name


def test_the_spec_of_every_kind_has_a_public_name() -> None:
    public = {getattr(getattr(ss, name), "kind", None) for name in ss.__all__ if name.endswith("Spec")}
    assert public == set(kinds.names())


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, sketchstream; "
        "heavy = {'numba', 'scipy', 'kafka', 'pyarrow', 'matplotlib', 'cryptography', 'pydantic'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("max_count", "modulus"), [(None, 32), (5, 32), (31, 32), (32, 33), (300, 301)])
def test_the_modulus_of_items_is_32_or_the_least_that_resolves_what_is_wanted(max_count, modulus):
    spec = ProfileSpec(epsilon=1, unit="item", domain=CLOSED, max_count=max_count)
    assert spec.modulus == modulus
    assert spec.max_count == (31 if max_count is None else max_count)
