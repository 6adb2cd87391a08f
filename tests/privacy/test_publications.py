"""One list of what a deployment gives out: statement, ledger and documents draw from it, and nothing else goes out.

In: the list, specs of all kinds, published bytes. Out: verdicts. Touches: nothing.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

import pytest

import sketchstream as ss
from helpers.configurations import EVENTS_TOPIC
from helpers.paths import ROOT
from sketchstream import kinds
from sketchstream.components import Component
from sketchstream.config.loader import Config
from sketchstream.kinds import initial_ledger
from sketchstream.privacy.deployments import publications
from sketchstream.privacy.deployments.census import Census
from sketchstream.privacy.deployments.deployment import Deployment, Record
from sketchstream.privacy.deployments.publications import PUBLICATIONS, FrontierNoise, Publication
from sketchstream.privacy.deployments.surroundings import DAY_MS, Context, OtherSketch
from sketchstream.privacy.losses.composition import Losses
from sketchstream.provenance import Origin
from sketchstream.stream.interfaces import Frontier
from sketchstream.stream.published.evidence import EvidenceNoise, PublishedEvidence, noise_of_frontiers

F = Fraction
HOUR = 3_600_000
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


def statement(spec: Any, **context: Any) -> str:
    return str(kinds.kind_of(spec).guarantee(spec, initial_ledger(spec), Context(**context)))


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
        says=lambda spec, context: ["the number of clicks: epsilon 1/3"],
    )
    raw = Publication("faces", "pictures of faces", "the wall", "apart", says=lambda spec, context: ["pictures: raw"])
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
    kind = kinds.kind_of(spec)
    real = kind.accounting.components

    def with_one_more(self: Any, spec: Any) -> tuple[Component, ...]:
        del self
        return (*real(spec), Component("clicks", Fraction(0), own_cost=Fraction(1)))

    monkeypatch.setattr(type(kind.accounting), "components", with_one_more)
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
    real = kinds.view_header
    monkeypatch.setattr(kinds, "view_header", lambda spec: {**real(spec), "median": 3})
    with pytest.raises(ss.SpecError, match=f"median: {UNLISTED}"):
        release.to_bytes()


# What was missing from the statements of some kinds.


@each_kind
def test_every_statement_names_all_that_a_deployment_publishes(spec: Any) -> None:
    day = Losses(F(1, 2), F(1, 8))
    other = OtherSketch("daily", day, Losses.unlimited(), DAY_MS, records=F(1, 5))
    text = statement(
        spec,
        window_ms=7 * DAY_MS,
        overlap=7,
        partitions=4,
        others=(other,),
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
    kind, ledger = kinds.kind_of(spec), initial_ledger(spec)
    others = tuple(
        OtherSketch.of(name, initial_ledger(one), DAY_MS)
        for name, one in SPECS.items()
        if one.kind in ("profile", "gaussian")
    )
    found = kind.guarantee(spec, ledger, Context(window_ms=DAY_MS, others=others))
    expected = Losses.of_sketch(ledger.loss())
    for name in ("profile", "gaussian"):
        expected += Losses.of_sketch(initial_ledger(SPECS[name]).loss())
    assert found.total == found.total_kept == expected
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


ITEMS = ss.ProfileSpec("1", "item", ss.ClosedDomain(size=8), modulus=4)


def misplaced_in(name: str, windows: int, spec: Any = ITEMS, **origin: Any) -> list[Any]:
    return [
        ss.Sketch.create(
            spec, origin=Origin(name, window=(at * DAY_MS, (at + 1) * DAY_MS), partition=partition, **origin)
        ).seal()
        for at in range(windows)
        for partition in (0, 1)
    ]


def test_an_item_in_wrong_partitions_pays_once_in_every_window_and_never_an_event() -> None:
    """Of the two partitions of a window its own and one other, which its hash names, can hold it."""
    sealed = [*misplaced_in("people", 3), *misplaced_in("clicks", 5, SPECS["profile"])]
    noise = {"people": FrontierNoise(misplaced=F(1, 10)), "clicks": FrontierNoise(misplaced=F(1, 2))}
    found = Deployment.from_records(map(Record.of, sealed), evidence=noise)
    assert found.total().misplaced == F(3, 10)
    assert {one.misplaced for one in list(found.by_day().values())[:3]} == {F(1, 10)}
    assert found.to_dict()["total"]["misplaced_item"] == "3/10"
    assert "loses at most 3/10 more to the published numbers of such items" in str(found)
    assert Deployment.of(sealed).total().misplaced == 0
    assert "misplaced_item" not in Deployment.of(sealed).to_dict()["total"]
    grown = misplaced_in("people", 3, partitions_open=2, partitions_seal=4)
    assert Deployment.from_records(map(Record.of, grown), evidence=noise).total().misplaced == F(6, 10), (
        "one partition for each number"
    )


def test_a_census_counts_misplaced_items_as_a_list_of_windows_does() -> None:
    sealed = misplaced_in("people", 4)
    records = Deployment.of(sealed).records
    kind = ("people", 0, "1:0-1")
    windows = sorted({one.window for one in records if one.window is not None})
    noise = {"people": FrontierNoise(F(1, 5), F(1, 10))}
    census = Census.count([(kind, one) for one in windows], {kind: list(records[:2])}, evidence=noise)
    listed = Deployment.from_records(map(Record.of, sealed), evidence=noise).total()
    assert census.total().misplaced == listed.misplaced == F(4, 10)
    assert census.total().record == listed.record == F(1, 5)


def test_the_ledger_knows_the_noise_that_frontiers_name_and_the_largest_where_it_changed() -> None:
    said = [("a", PublishedEvidence(EvidenceNoise(F(1), F(epsilon, 10), 1024))) for epsilon in (1, 3, 2)]
    assert noise_of_frontiers([*said, ("b", None)]) == {"a": FrontierNoise(F(1), F(3, 10))}


def test_a_record_pays_for_every_window_that_refuses_it_and_once_for_being_late() -> None:
    """In 7 overlapping windows, epsilon 1/10 for one that is admitted: refused by all, by one, or by none of them."""

    def weekly(start: int) -> Any:
        return ss.Sketch.create(
            SPECS["gaussian"], origin=Origin("weekly", window=(start * DAY_MS, (start + 7) * DAY_MS), partition=0)
        ).seal()

    sealed = [weekly(start) for start in range(10)]
    for refused, expected in ((F(0), F(7, 10)), (F(1, 20), F(15, 20)), (F(1, 5), F(15, 10))):
        found = (
            Deployment.from_records(map(Record.of, sealed), evidence={"weekly": FrontierNoise(refused)}).total().record
        )
        ways = [(7 - k) * F(1, 10) + (F(1, 10) if k else 0) + k * refused for k in range(8 if refused else 1)]
        assert found == expected == max(ways)


def test_a_number_of_misplaced_events_costs_an_event_no_more_than_being_counted() -> None:
    text = EVENTS_TOPIC + '[[sketch]]\nname = "s"\nunit = "event"\n'
    text += 'window = "1h"\nepsilon = 1\ndomain = { size = 8 }\n'
    assert Config.parse(text + 'epsilon_misplaced = "1/2"\n').sketches[0].epsilon_misplaced == F(1, 2)
    with pytest.raises(ss.ConfigError, match=r'at most 1/2 with unit = "event", found 3/5'):
        Config.parse(text + 'epsilon_misplaced = "3/5"\n')
    item = text.replace('"event"', '"item"\nmodulus = 8')
    assert Config.parse(item + "epsilon_misplaced = 2\n").sketches[0].epsilon_misplaced == 2


def test_specs_without_the_field_admit_no_records() -> None:
    """As those of kinds that others register."""
    charged = [one for one in PUBLICATIONS if one.charge == "record"]
    assert charged
    assert all(one.cost(object()) == 0 for one in charged)


def test_a_topic_that_keeps_records_for_a_whole_window_is_no_less_than_the_window() -> None:
    for retention, least in ((HOUR - 1, False), (HOUR, True), (HOUR + 1, True)):
        said = publications.readers_of_the_topic(Context(window_ms=HOUR, retention_ms=retention))
        assert ("buys nothing against a reader of the topic" in said) == least
        assert ("less than the window" in said) != least
