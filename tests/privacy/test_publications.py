"""One list of what a deployment gives out: statement, ledger and documents draw from it, and nothing else goes out.

In: the list, specs of all kinds, published bytes. Out: verdicts. Touches: nothing.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

import pytest

import sketchstream as ss
from helpers.paths import ROOT
from sketchstream import kinds
from sketchstream.components import Component
from sketchstream.kinds import planned
from sketchstream.privacy import publications
from sketchstream.privacy.composition import Losses
from sketchstream.privacy.deployment import Deployment
from sketchstream.privacy.guarantee import DAY_MS, Beside, Context
from sketchstream.privacy.publications import PUBLICATIONS, Publication
from sketchstream.published import Origin
from sketchstream.stream.interfaces import Frontier

F = Fraction
JUDGED: dict[str, Any] = {"epsilon_records": "1/10"}
SPECS: dict[str, Any] = {
    "profile": ss.ProfileSpec("1", domain=ss.ClosedDomain(size=8), **JUDGED),
    "gaussian": ss.GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(size=8), **JUDGED),
    "workload": ss.WorkloadSpec("prefix:8", "1", "1e-6", "gaussian", **JUDGED),
    "convolution": ss.ConvolutionSpec("window:4", 16, epsilon=1, delta="1e-6", noise="gaussian", **JUDGED),
    "projection": ss.ProjectionSpec(4, 8, 4, "1", "1e-6", max_weight=1, **JUDGED),
}
each_kind = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
UNLISTED = "not on the list of what a deployment publishes"


def statement(spec: Any, **around: Any) -> str:
    return str(kinds.of(spec).guarantee(spec, planned(spec), Context(**around)))


def documented() -> None:
    """The check of the documents."""
    assert publications.table() in (ROOT / "docs" / "guarantee.md").read_text()


def test_the_documents_have_the_whole_list() -> None:
    documented()
    assert len({one.name for one in PUBLICATIONS}) == len(PUBLICATIONS)
    assert {one.charge for one in PUBLICATIONS} == publications.CHARGES.keys()


@each_kind
def test_a_new_entry_is_in_every_statement_and_the_ledger_and_missed_by_the_documents(
    spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed = ss.Sketch.create(spec).seal()
    before = Deployment.of([sealed])
    noisy = Publication(
        "clicks",
        "the number of clicks",
        "sealed topic",
        "record",
        cost=lambda spec: F(1, 3),
        says=lambda spec, around: ["the number of clicks: epsilon 1/3"],
    )
    raw = Publication("faces", "pictures of faces", "the wall", "apart", says=lambda spec, around: ["pictures: raw"])
    monkeypatch.setattr(publications, "PUBLICATIONS", (*PUBLICATIONS, noisy, raw))
    text, ledger = statement(spec), Deployment.of([sealed])
    assert "the number of clicks: epsilon 1/3" in text
    assert "pictures: raw" in text
    assert ledger.total().record == before.total().record + F(1, 3)
    assert "pictures of faces" in str(ledger)
    with pytest.raises(AssertionError):
        documented()


@each_kind
def test_a_number_that_is_not_listed_is_refused_by_statement_ledger_and_writer(
    spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = kinds.of(spec)
    real = kind.components

    def with_one_more(self: Any, spec: Any) -> tuple[Component, ...]:
        del self
        return (*real(spec), Component("clicks", Fraction(0), own=Fraction(1)))

    monkeypatch.setattr(type(kind), "components", with_one_more)
    sealed = ss.Sketch.create(spec).seal()
    assert "clicks" in [one.name for one in sealed.counters], "it would be published"
    for refused in (sealed.guarantee, lambda: Deployment.of([sealed]), sealed.to_bytes):
        with pytest.raises(ss.SpecError, match=UNLISTED):
            refused()


@each_kind
def test_fields_of_headers_and_frontiers_are_all_listed(spec: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    publications.require_listed(one.name for one in dataclasses.fields(Frontier))
    publications.require_listed(one.name for one in dataclasses.fields(Origin))
    release = ss.Sketch.create(spec).release("1/2", *(() if spec.kind == "profile" else ("1e-6",)))
    release.to_bytes()
    real = type(release.kind).view_header
    monkeypatch.setattr(type(release.kind), "view_header", lambda self, spec: {**real(self, spec), "median": 3})
    with pytest.raises(ss.SpecError, match=f"median: {UNLISTED}"):
        release.to_bytes()


# What was missing from the statements of some kinds.


@each_kind
def test_every_statement_names_all_that_a_deployment_publishes(spec: Any) -> None:
    day = Losses(F(1, 2), F(1, 8))
    other = Beside("daily", day, Losses.unlimited(), DAY_MS, records=F(1, 5))
    text = statement(
        spec,
        window_ms=7 * DAY_MS,
        overlap=7,
        partitions=4,
        beside=(other,),
        diagnostics="exact",
        store="dir",
        dead_letters="payload",
        late_records=True,
    )
    for words in (
        "epsilon 1/10 for a record that changes no other record's window, in each of the 7 overlapping windows that "
        "hold it: 7/10; with such numbers of the other sketches 9/10",
        "late records, also a function of envelopes: epsilon 1/10",
        "late records: raw data",
        "exact counts of invalid",
        "plain files of mode 0600",
        "dead letters, which hold raw payloads",
        "duplicates upstream",
        "other deployments on the same topic",
        "over 2 sketches, 7 overlapping windows that hold it",
        "loses at most 1/10 more, once for each such sample",
    ):
        assert words in text, words


@each_kind
def test_a_total_counts_all_sketches_on_the_topic_whatever_their_measure(spec: Any) -> None:
    kind, ledger = kinds.of(spec), planned(spec)
    around = tuple(
        Beside.of(name, planned(one), DAY_MS) for name, one in SPECS.items() if one.kind in ("profile", "gaussian")
    )
    found = kind.guarantee(spec, ledger, Context(window_ms=DAY_MS, beside=around))
    expected = Losses.of_sketch(ledger.loss())
    for name in ("profile", "gaussian"):
        expected += Losses.of_sketch(planned(SPECS[name]).loss())
    assert found.total == found.kept == expected
    alone = kind.guarantee(spec, ledger, Context(window_ms=DAY_MS))
    assert found.total.epsilon(F(1, 10**6)) > alone.total.epsilon(F(1, 10**6)) > 0
    assert "delta 1e-06" in found.to_dict()["total"]
    assert "a probability that can exceed delta" in str(found)


def test_records_add_up_over_overlapping_windows_and_sketches_in_the_ledger() -> None:
    def sealed(name: str, start: int, length: int, partition: int) -> Any:
        origin = Origin(name, window=(start * DAY_MS, (start + length) * DAY_MS), partition=partition)
        return ss.Sketch.create(SPECS["gaussian"], origin=origin).seal()

    weekly = [sealed("weekly", start, 7, partition) for start in range(10) for partition in (0, 1)]
    daily = [sealed("daily", start, 1, 0) for start in range(3)]
    assert Deployment.of(weekly).total().record == F(7, 10)
    found = Deployment.of(weekly + daily)
    assert found.total().record == F(8, 10)
    assert "one record loses at most 4/5 to the published numbers of records" in str(found)
    assert found.to_dict()["total"]["record"] == "4/5"
