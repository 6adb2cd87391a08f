"""The laws of `sketchstream.kinds.interface`, as checks that every kind passes.

A kind's tests make a `Case` of it and pass it to `check`, or to each of `CHECKS` by itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import sketchstream as ss
from sketchstream import kinds, wire
from sketchstream.components import Counters
from sketchstream.errors import DomainError, FormatError, MergeError, SealedError, SpecError, WeightError
from sketchstream.noise.laws import DiscreteGaussian, DiscreteLaplace, battery
from sketchstream.privacy.ledgers.sketch_history import Promise
from sketchstream.privacy.losses.history import View


@dataclass(frozen=True)
class Case:
    """One spec of a kind, and events for it.

    Args:
        spec: with little noise to speak of does no harm, but privacy that is usual.
        other: another spec of the same kind.
        items: valid items, at least 20.
        weights: one for each, or None.
        outside: an item outside the domain, or None where there is none.
        bad_weight: a weight that is no event, or None where any weight is one.
        asked: arguments of `release`.
        options: arguments of the answering method.
        group: one of the groups, where answers are those of a group.
        arguments: arguments of the spec's constructor that are no attributes of the spec.
    """

    spec: Any
    other: Any
    items: Sequence[Any]
    weights: Sequence[Any] | None = None
    outside: Any = None
    bad_weight: Any = None
    asked: tuple[Any, ...] = ("1",)
    options: tuple[tuple[str, Any], ...] = ()
    group: str | None = None
    arguments: tuple[tuple[str, Any], ...] = ()

    @property
    def kind(self) -> Any:
        return kinds.kind_of(self.spec)

    def sketch(self) -> Any:
        return ss.Sketch.create(self.spec, KEY if self.spec.needs_key else None)

    def update(self, sketch: Any, chosen: slice = slice(None)) -> None:
        sketch.update(list(self.items[chosen]), None if self.weights is None else list(self.weights[chosen]))


KEY = ss.Key(bytes(range(16)))


def specs_survive(case: Case) -> None:
    """Law 1."""
    for spec in (case.spec, case.other):
        data = json.loads(json.dumps(spec.to_dict(), default=bytes.hex))
        assert data["kind"] == spec.kind == case.kind.name
        items = getattr(spec.domain, "items", None)
        again = kinds.read_spec(spec.to_dict(), items)
        assert again.to_dict() == spec.to_dict()
        assert again.fingerprint == spec.fingerprint
        assert len(spec.fingerprint) == 16
    assert case.spec.fingerprint != case.other.fingerprint
    assert case.spec.unit in ("event", "item")
    with pytest.raises((AttributeError, TypeError)):
        case.spec.epsilon = Fraction(2)
    with pytest.raises(SpecError):
        kinds.read_spec({**case.spec.to_dict(), "kind": "no such kind"})
    assert case.kind.facts(case.spec, 7)


def kinds_hold_nothing(case: Case) -> None:
    """One object stands for all sketches of a kind: neither it nor what it has keeps anything of them."""
    case.sketch().seal()
    for one in (case.kind, case.kind.accounting, case.kind.intake):
        assert vars(one) == {}


def costs_are_exact(case: Case) -> None:
    """Law 2."""
    accounting, spec = case.kind.accounting, case.spec
    asked = accounting.asked_cost(spec, *(*case.asked, None)[:2])
    for cost in (accounting.creation_cost(spec), asked, Fraction(3, 7)):
        parameter = accounting.parameter(spec, cost)
        assert isinstance(parameter, Fraction)
        assert accounting.cost(spec, parameter) == cost
    components = accounting.components(spec)
    assert components[0].name == "slots"
    if case.group is not None:  # each group has counters of its own, and a unit pays for those of its group
        components = [one for one in components if one.name == "slots" or one.name.endswith(".0")]
    assert sum(one.share for one in components) == 1
    assert components[0].parameter(Fraction(1)) > 0


def noise_follows_its_law(case: Case) -> None:
    """Law 3: what creation draws is the law that the layer names; twice the scale is refused."""
    kind, spec = case.kind, case.spec
    (layer,) = case.sketch().layers
    accounting, cost = kind.accounting, kind.accounting.creation_cost(spec)
    assert (layer.law, layer.parameter) == (accounting.law(spec), accounting.parameter(spec, cost))
    if layer.law not in ("discrete-laplace", "discrete-gaussian"):
        return
    law = {"discrete-laplace": DiscreteLaplace, "discrete-gaussian": DiscreteGaussian}
    slots, parts = case.sketch().slots, []
    for _ in range(min(400, -(-40_000 // slots))):
        parts.append(np.zeros(slots, spec.dtype))
        kind.draw(spec, parts[-1], cost)
    right = law[layer.law](layer.parameter)
    wrong = law[layer.law](layer.parameter * 4)
    samples = np.concatenate(parts).astype(np.int64)
    assert min(check.p_value for check in battery(samples, right)) > 1e-7
    assert min(check.p_value for check in battery(samples, wrong)) < 1e-7


def updates_are_linear(case: Case) -> None:
    """Laws 4 and 6: any order, any batches; sums of parts are the whole."""
    kind, spec = case.kind, case.spec
    index = kind.index(spec, KEY if spec.needs_key else None, None)

    def applied(start: Any, *chosen: np.ndarray) -> Any:
        state = start.copy()
        counters = Counters.create(kind.accounting.components(spec)[1:], kind.accounting.creation_cost(spec)).moved()
        for places in chosen:
            items = kind.items([case.items[i] for i in places])
            weights = None if case.weights is None else [case.weights[i] for i in places]
            index.apply(state, items, weights, counters=counters, invalid="error")
        return state

    n = len(case.items)
    empty = np.zeros(index.slots, spec.dtype)
    assert index.slots == spec.slots, "memory is planned by it"
    order = np.random.default_rng(5).permutation(n)
    whole = applied(empty, np.arange(n))
    assert (applied(empty, order) == whole).all()
    assert (applied(empty, *np.array_split(order, 4)) == whole).all()
    assert (kinds.add_states(spec, [applied(empty, order[: n // 2]), applied(empty, order[n // 2 :])]) == whole).all()
    noisy = empty.copy()
    kind.draw(spec, noisy, kind.accounting.creation_cost(spec))
    assert (applied(noisy, np.arange(n)) == kinds.add_states(spec, [noisy, whole])).all()
    assert (whole != empty).any()


def sums_count_as_their_events(case: Case) -> None:
    """Law 11: from the same noise, rows of sums leave what their events leave, bit for bit, however divided."""
    repeated = [i % len(case.items) for i in range(3 * len(case.items))]
    events = [(case.items[i], 1 if case.weights is None else case.weights[-i]) for i in repeated]
    one = case.sketch()
    data, key = one.to_bytes(), one.key
    by_events, by_rows, by_parts = (ss.Sketch.from_bytes(data, key) for _ in range(3))
    by_events.update([item for item, _ in events], [weight for _, weight in events])
    by_rows.update_sums(*_rows(case, events))
    for part in (events[:7], events[7:]):
        items, sums, numbers = _rows(case, part)
        by_parts.update_sums(items, np.array(sums, np.int32), np.array(numbers, np.int64))
    assert (by_events._state != one._state).any()
    for other in (by_rows, by_parts):
        assert (other._state == by_events._state).all()
        assert other._content.counters.values.tolist() == by_events._content.counters.values.tolist()
    before = by_rows._state.copy()
    good, most = case.items[0], _most(case)
    for sum_, number in ((1, 0), (0, -1), *(() if most is None else ((2 * most + 1, 2), (-most - 1, 1)))):
        with pytest.raises(WeightError, match="position 1"):
            by_rows.update_sums([good, good], [0, sum_], [1, number], invalid="noop")
    with pytest.raises(WeightError):
        by_rows.update_sums([good, good], [0, 0.5], [1, 1])
    if case.outside is not None:
        with pytest.raises(DomainError, match="position 1"):
            by_rows.update_sums([good, case.outside], [1, 1], [1, 1])
        assert (by_rows._state == before).all()
        by_rows.update_sums([good, case.outside], [1, 1], [1, 1], invalid="noop")
        by_parts.update_sums([good], [1], [1])
        assert by_rows._content.counters.values.tolist() == by_parts._content.counters.values.tolist()
        assert (by_rows._state == by_parts._state).all()
    assert (by_rows._state == before).all() == (case.outside is None)
    by_rows.seal()
    with pytest.raises(SealedError):
        by_rows.update_sums([good], [1], [1])


def _rows(case: Case, events: Sequence[tuple[Any, Any]]) -> tuple[list[Any], list[int], list[int]]:
    """Items, sums of their weights in lattice units, numbers of their events: in no particular order."""
    lattice = getattr(case.spec, "lattice", None)
    sums: dict[Any, list[int]] = {}
    for item, weight in events:
        sums.setdefault(item, []).append(weight if lattice is None else lattice.weight(weight))
    rows = [(item, sum(weights), len(weights)) for item, weights in sorted(sums.items(), key=repr)]
    return [item for item, _, _ in rows], [total for _, total, _ in rows], [number for _, _, number in rows]


def _most(case: Case) -> int | None:
    """Largest absolute weight of an event, in the units of sums."""
    most: int | None = getattr(getattr(case.spec, "lattice", None), "most", case.kind.intake.most_weight(case.spec))
    return most


def bad_events_are_refused_or_nothing(case: Case) -> None:
    """Law 5."""
    good = list(case.items[:3])
    given = [1, 1, 1] if case.weights is None else list(case.weights[:3])
    batches = []
    if case.outside is not None:
        batches.append(([*good, case.outside], [*given, given[0]]))
    if case.bad_weight is not None:
        batches.append(([*good, good[0]], [*given, case.bad_weight]))
    for items, weights in batches:
        sketch = case.sketch()
        before = sketch._state.copy()
        with pytest.raises((DomainError, WeightError)) as caught:
            sketch.update(items, weights)
        assert "position 3" in str(caught.value)
        assert (sketch._state == before).all()
        twin = case.sketch()
        twin._state[:] = before
        sketch.update(items, weights, invalid="noop")
        twin.update(good, given)
        assert (sketch._state == twin._state).all()


def weights_that_a_mask_hides_are_refused(case: Case) -> None:
    """A masked array has numbers also where it shows none: neither a weight nor nothing is what the caller meant."""
    good = case.items[:2]
    for numbers in ([1, 1], [1.0, 1.0]):
        sketch = case.sketch()
        before = sketch._state.copy()
        with pytest.raises(WeightError, match="masked"):
            sketch.update(list(good), np.ma.masked_array(numbers, [0, 1]))
        assert (sketch._state == before).all()


def views_leave_the_state(case: Case) -> None:
    """Law 8, and what is published can be read again."""
    sketch = case.sketch()
    case.update(sketch)
    before = sketch._state.copy()
    first, second = sketch.release(*case.asked), sketch.release(*case.asked)
    assert (sketch._state == before).all()
    assert first.noised.shape == second.noised.shape
    assert first.seal_id != second.seal_id
    again = ss.load(first.to_bytes())
    assert again.to_bytes() == first.to_bytes()
    assert again.cost == first.cost == case.kind.accounting.asked_cost(case.spec, *(*case.asked, None)[:2])


def lives_are_accounted_for(case: Case) -> None:
    """Law 10: create, update, store, look, refresh, seal; the ledger has every draw, and altered bytes are refused."""
    sketch = case.sketch()
    case.update(sketch, slice(0, 10))
    data = sketch.to_bytes()
    again = ss.Sketch.from_bytes(data, sketch.key)
    assert (again._state == sketch._state).all()
    assert again.layers == sketch.layers
    case.update(again, slice(10, None))
    again.refresh()
    assert len(again.layers) == len(again.ledger.layers) == 2
    again.release(*case.asked)
    assert again.guarantee().to_dict()["unit"] == case.spec.unit
    loss = again.ledger.order()
    assert loss >= sketch.ledger.order()
    sealed = again.seal()
    assert again.closed
    with pytest.raises(SealedError):
        case.update(again)
    read = ss.load(sealed.to_bytes())
    assert read.to_bytes() == sealed.to_bytes()
    assert read.ledger.sealed
    assert read.guarantee().summary
    header, body = wire.unpack(sealed.to_bytes())
    header = {name: value for name, value in header.items() if name not in ("format", "codec", "body")}
    header["layers"] = header["layers"][:1]
    with pytest.raises(FormatError):
        type(read).from_header(header, body)


def publications_are_charged(case: Case) -> None:
    """Law 10: bytes are refused if their ledger lacks what they publish, or charges less for it."""
    sketch = case.sketch()
    early, release = (sketch.release(*case.asked) for _ in range(2))
    sealed, state = sketch.seal(), case.sketch().seal()
    shown = sealed.ledger.history
    tenth = View("release", release.cost / 10)
    nothing = Promise("nothing")
    for published, ledger in (
        (early, _with(early.ledger, early.ledger.history.entries[:-1])),
        (early, _with(early.ledger, (*early.ledger.history.entries[:-1], tenth))),
        (early, _with(early.ledger, (*early.ledger.history.entries, tenth))),
        (early, _with(early.ledger, (*early.ledger.history.entries[:-1], View("look", None)))),
        (early, replace(early.ledger, promised=nothing)),
        (early, replace(early.ledger, promised=Promise("histogram", early.cost / 1000))),
        (early, sealed.ledger),
        (sealed, _with(sealed.ledger, (*shown.entries[:-1], View("publication", Fraction(1, 1000))))),
        (sealed, _with(sealed.ledger, (*shown.entries[:-1], View("release", shown.entries[-1].cost)))),
        (sealed, _with(sealed.ledger, shown.entries[:-1])),
        (sealed, _with(sealed.ledger, shown.entries, seal=len(shown.entries))),
        (sealed, _with(sealed.ledger, shown.entries, seal=0)),
        (sealed, replace(sealed.ledger, promised=Promise("histogram", Fraction(1)))),
        (sealed, release.ledger),
        (sealed, state.ledger),
    ):
        with pytest.raises(FormatError):
            ss.load(replace(published, ledger=ledger).to_bytes())
    for published in (early, release, sealed, state):
        assert ss.load(published.to_bytes()).ledger == published.ledger
    for published in (early, sealed) if case.group is not None else ():
        one = published.group(case.group)
        assert ss.load(one.to_bytes()).ledger == one.ledger
    cheap = case.sketch()
    cheap._content = cheap._content._replace(ledger=replace(cheap.ledger, promised=nothing))
    with pytest.raises(FormatError, match="what the seal of its spec will publish"):
        ss.Sketch.from_bytes(cheap.to_bytes(), cheap.key)


def releases_fit_their_spec(case: Case) -> None:
    """Law 8: a release with a number too few or too many, or of another width, is not one of its spec."""
    release = case.sketch().release(*case.asked)
    shown = release.noised
    assert np.array_equal(ss.load(release.to_bytes()).noised, shown)
    other = np.int32 if shown.dtype == np.int64 else np.int64
    for wrong in (shown[..., :-1].copy(), np.concatenate([shown, shown], axis=-1), shown.astype(other)):
        with pytest.raises(FormatError):
            ss.load(replace(release, noised=wrong).to_bytes())
    for wrong in (release.slots + 1, 2 * release.slots, 1 << 31):
        with pytest.raises(FormatError, match=r"slots|counters"):
            ss.load(replace(release, slots=wrong).to_bytes())


def _with(ledger: Any, entries: tuple[Any, ...], seal: int | None = None) -> Any:
    """A ledger of other entries, of which the same number belongs to the seal."""
    history = ledger.history
    return replace(ledger, history=replace(history, entries=entries, seal=history.seal if seal is None else seal))


def published_states_merge_and_stack(case: Case) -> None:
    """States of disjoint streams merge where states are published; publications stack; no sketch with itself."""
    parts = [case.sketch() for _ in range(3)]
    for number, part in enumerate(parts):
        case.update(part, slice(number, None, 3))
    merged = ss.merge(parts[:2])
    assert len(merged.layers) == 2
    assert all(part.closed for part in parts[:2])
    sealed = [merged.seal(), parts[2].seal()]
    if isinstance(sealed[0], ss.SealedState):
        joined = ss.merge(sealed)
        assert ss.load(joined.to_bytes()).ledger == joined.ledger
    stacked = ss.stack(sealed)
    assert stacked.slots == sum(part.slots for part in sealed)
    assert ss.load(stacked.to_bytes()).to_bytes() == stacked.to_bytes()
    with pytest.raises(MergeError):
        ss.stack([sealed[0], sealed[0]])
    stranger = ss.Sketch.create(case.other, KEY if case.other.needs_key else None)
    with pytest.raises(MergeError):
        ss.merge([case.sketch(), stranger])


def answers_come_from_what_was_published(case: Case) -> None:
    """Law 9: the same from the bytes; the other method and open sketches are refused."""
    sketch = case.sketch()
    case.update(sketch)
    with pytest.raises(SealedError):
        getattr(sketch, case.kind.answer)()
    sealed = sketch.seal()
    options = dict(case.options)
    read = ss.load(sealed.to_bytes())
    if case.group is not None:
        with pytest.raises(ss.EstimateError, match="choose one"):
            getattr(sealed, case.kind.answer)(**options)
        sealed, read = sealed.group(case.group), read.group(case.group)
    said = getattr(sealed, case.kind.answer)(**options)
    again = getattr(read, case.kind.answer)(**options)
    assert json.dumps(said.to_dict(), default=str) == json.dumps(again.to_dict(), default=str)
    refused = "estimate" if case.kind.answer == "profile" else "profile"
    with pytest.raises(ss.EstimateError, match=case.kind.answer):
        getattr(sealed, refused)()


CHECKS: tuple[Callable[[Case], None], ...] = (
    specs_survive,
    kinds_hold_nothing,
    costs_are_exact,
    noise_follows_its_law,
    updates_are_linear,
    sums_count_as_their_events,
    bad_events_are_refused_or_nothing,
    weights_that_a_mask_hides_are_refused,
    views_leave_the_state,
    lives_are_accounted_for,
    publications_are_charged,
    releases_fit_their_spec,
    published_states_merge_and_stack,
    answers_come_from_what_was_published,
)
