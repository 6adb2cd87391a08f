"""Ledgers of whole deployments against enumeration: random sketches, windows, partitions, revisions and copies.

In: small histories whose exact losses the oracle enumerates, put together at random. Out: verdicts. Touches: nothing.

Sketches have independent noise, so the exact loss of an event is the sum of its exact losses to the sketches that it
is in, and that of an item the sum over everything that can hold it. Which sketches these are is tried one by one here:
every instant, every partition, every choice of partitions.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import random
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from sketchstream.audit import oracle
from sketchstream.privacy.deployments.deployment import Deployment, Record
from sketchstream.privacy.ledgers.ledger import Ledger
from sketchstream.privacy.ledgers.sketch_history import Promise
from sketchstream.privacy.losses.history import History, LayerEntry, View

F = Fraction
HOUR = 3_600_000
RESPONSE = "randomized-response"


@dataclass(frozen=True)
class Family:
    """Publications with common noise: the histories of all copies, with their exact losses together."""

    histories: tuple[History, ...]
    event: float
    item: float


def _single(history: History) -> Family:
    """A sketch that was not copied."""
    ring = oracle.Ring(2, oracle.randomized_response, oracle.bins_release)
    event = max(oracle.exact_event_losses(history, ring).values())
    return Family((history,), event, oracle.exact_item_loss(history, ring))


def _copied(rng: random.Random) -> Family:
    """A layer, perhaps a release, and two copies that are sealed, each with data of its own after the split."""
    layer = LayerEntry(bytes(16), RESPONSE, rng.choice(oracle.COSTS))
    begin: tuple[LayerEntry | View, ...] = (layer,)
    joint = oracle.Transcript(layers=[layer])
    if rng.random() < 0.4:
        begin = (layer, View("release", rng.choice(oracle.COSTS)))
        joint.views.append(oracle._Seen(((), 1), begin[1].cost, frozenset({0})))
    histories = []
    for copy in range(2):
        cost = None if rng.random() < 0.4 else rng.choice(oracle.COSTS)
        histories.append(History(begin).sealed_by(View("publication", cost)))
        joint.views.append(oracle._Seen(((copy,), 1), cost, frozenset({0})))
    ring = oracle.Ring(2, oracle.randomized_response, oracle.bins_release)
    laws = [joint.law(ring, path) for path in itertools.product(range(2), repeat=len(joint.views))]
    loss = oracle.log_ratio(laws)  # an event may be in one copy or in both
    return Family(tuple(histories), loss, loss)


@cache
def pool() -> tuple[list[Family], list[Family]]:
    """Sketches and copied sketches, enumerated once."""
    rng = random.Random(31)
    single = [oracle.random_history(rng, RESPONSE, views=3, layers=2) for _ in range(60)]
    seen = [one for one in single if one.seal is not None]
    return [_single(one) for one in seen], [_copied(rng) for _ in range(25)]


@dataclass(frozen=True)
class Placed:
    """A family at its place, with the names of its windows' publications."""

    family: Family
    name: str
    revision: int
    window: tuple[int, int]
    partition: int
    counts: tuple[int, ...]


def named(history: History, lineage: bytes) -> History:
    """The history with noise of its own name; each layer has another one."""
    entries = tuple(
        replace(entry, lineage=lineage + at.to_bytes(8, "big")) if isinstance(entry, LayerEntry) else entry
        for at, entry in enumerate(history.entries)
    )
    return replace(history, entries=entries)


def random_deployment(rng: random.Random, unit: str) -> tuple[list[Record], list[Placed]]:
    """Up to three series of windows, tumbling or hopping, of hours to days, with gaps, copies and second revisions."""
    records, placed = [], []
    singles, copies = pool()
    for name in ("one", "two", "three")[: rng.randint(1, 3)]:
        step = rng.choice((1, 5, 24, 30))
        length = step * rng.choice((1, 1, 2, 3))
        offset = rng.choice((0, 0, 7))
        for number, revision in itertools.product(range(rng.randint(1, 4)), (0, 1)):
            if revision and rng.random() < 0.8:
                continue
            counts = rng.choice(((2,), (2,), (1, 2)))
            for partition in range(2):
                if rng.random() < 0.25:
                    continue
                family = rng.choice(copies if rng.random() < 0.1 else singles)
                begins = (offset + number * step) * HOUR
                place = (name, revision, (begins, begins + length * HOUR), partition, counts)
                placed.append(Placed(family, *place))
                lineage = len(placed).to_bytes(8, "big")
                for copy, history in enumerate(family.histories):
                    ledger = Ledger(unit, 1, named(history, lineage), Promise("nothing"))
                    records.append(Record(*place, ledger, lineage + bytes([copy])))
    return records, placed


def event_loss(placed: list[Placed], within: tuple[float, float] = (-math.inf, math.inf)) -> float:
    """Largest exact loss of an event: every instant at which something begins, every partition."""
    instants = {max(one.window[0], within[0]) for one in placed}
    losses = [
        sum(one.family.event for one in placed if one.partition == partition and one.window[0] <= at < one.window[1])
        for at, partition in itertools.product(instants, range(2))
        if within[0] <= at < within[1]
    ]
    return max(losses, default=0.0)


def item_loss(placed: list[Placed], keyed: bool) -> float:
    """Largest exact loss of an item that is active in every window, in any partitions that can hold it."""
    windows: dict[Any, list[Placed]] = {}
    for one in placed:
        windows.setdefault((one.name, one.revision, one.window), []).append(one)
    total = 0.0
    for parts in windows.values():
        several = len(set().union(*(part.counts for part in parts))) if keyed else len(parts)
        chosen = itertools.combinations(parts, min(several, len(parts)))
        total += max(sum(part.family.item for part in some) for some in chosen)
    return total


def check_all(seeds: range, make: Any = Deployment.from_records) -> int:
    """Compare many random deployments; gives how many totals were attained."""
    return sum(check(seed, make)[1] for seed in seeds)


def check(seed: int, make: Any = Deployment.from_records) -> tuple[int, int]:
    """Compare all totals of one random deployment; gives how many there were, and how many were attained."""
    rng = random.Random(seed)
    unit, keyed = rng.choice(("event", "item")), rng.random() < 0.7
    records, placed = random_deployment(rng, unit)
    rng.shuffle(records)
    found = make(records, keyed=keyed)
    compared = []
    if placed:
        compared.append((found.total().event, event_loss(placed)))
        if unit == "item":
            compared.append((found.total().item, item_loss(placed, keyed)))
    for day, total in found.by_day().items():
        begins = (dt.date.fromisoformat(day) - dt.date(1970, 1, 1)).days * 24 * HOUR
        within = (begins, begins + 24 * HOUR)
        touching = [one for one in placed if one.window[0] < within[1] and within[0] < one.window[1]]
        compared.append((total.event, event_loss(touching, within)))
        if unit == "item":
            compared.append((total.item, item_loss(touching, keyed)))
    touched = {day for one in placed for day in range(one.window[0] // (24 * HOUR), -(-one.window[1] // (24 * HOUR)))}
    assert len(found.by_day()) == len(touched)
    for claimed, exact in compared:
        assert exact <= claimed + 1e-9
        assert (claimed == math.inf) == (exact == math.inf)
    return len(compared), sum(claimed == math.inf or abs(exact - claimed) < 1e-3 for claimed, exact in compared)


def test_no_total_of_a_deployment_is_below_the_exact_loss() -> None:
    assert check_all(range(150)) > 50, "and many are reached"


@pytest.mark.slow
def test_no_total_of_a_thousand_deployments_is_below_the_exact_loss() -> None:
    assert check_all(range(1000, 2000)) > 300


def windows_by_their_beginning(self: Deployment) -> Any:
    """A day counts the windows that begin in it."""
    days: dict[str, list[Record]] = {}
    for record in self.records:
        assert record.window is not None
        day = (dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=record.window[0])).date()
        days.setdefault(day.isoformat(), []).append(record)
    return {day: self.total(records) for day, records in days.items()}


def one_window_of_each_sketch(records: list[Record], **said: Any) -> Deployment:
    """Overlapping windows are not added: only the newest of a sketch counts."""
    newest = {(one.name, one.revision, one.partition): one for one in sorted(records, key=lambda one: one.window or ())}
    return Deployment.from_records(newest.values(), **said)


def without_copies(records: list[Record], **said: Any) -> Deployment:
    """The second publication of one noise is dropped."""
    return Deployment.from_records([one for one in records if one.seal_id[-1:] != b"\x01"], **said)


def without_revisions(records: list[Record], **said: Any) -> Deployment:
    """A second revision replaces the first."""
    last = {
        (one.name, one.window, one.partition, one.seal_id[-1:]): one
        for one in sorted(records, key=lambda one: one.revision)
    }
    return Deployment.from_records(last.values(), **said)


@pytest.mark.parametrize("mutant", [one_window_of_each_sketch, without_copies, without_revisions])
def test_mutants_of_a_deployment_are_refused(mutant: Any) -> None:
    with pytest.raises(AssertionError):
        check_all(range(60), mutant)


def test_a_mutant_that_counts_a_window_on_one_day_only_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deployment, "by_day", windows_by_their_beginning)
    with pytest.raises(AssertionError):
        check_all(range(30))
