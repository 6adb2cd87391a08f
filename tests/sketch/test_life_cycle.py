"""The life of a sketch: create, update, release, seal, stack, merge, bytes, and every wrong order of them."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sketchstream as ss
from sketchstream import published
from sketchstream.stream.state.window_sketch import WindowSketch

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")

EXACT = "30"
"""At this epsilon a slot's noise is zero with probability above 1 - 1e-12."""


@pytest.fixture
def key() -> ss.Key:
    return ss.Key(bytes(range(16)))


def exact_spec(**fields: object) -> ss.ProfileSpec:
    return ss.ProfileSpec(epsilon=EXACT, **{"domain": ss.ClosedDomain(size=50), "max_count": 20, **fields})


def counts_of(published: object) -> list[int]:
    profile = published.profile(method="inverse")
    return [round(value) for value in profile.counts[:5]]


STREAM = [1, 2, 2, 3, 3, 3, 4, 4, 4]
TRUTH = [46, 1, 1, 2, 0]


def test_seal_publishes_the_profile_of_the_stream_when_noise_is_zero() -> None:
    sketch = ss.Sketch.create(exact_spec())
    sketch.update(STREAM)
    assert counts_of(sketch.seal()) == TRUTH


@pytest.mark.parametrize("unit", ["event", "item"])
def test_a_published_state_gives_the_same_profile(unit: str) -> None:
    more = {"unit": "item", "modulus": 32} if unit == "item" else {}
    sketch = ss.Sketch.create(exact_spec(publish="state", intrusion=False, **more))
    sketch.update(np.array(STREAM))
    sealed = sketch.seal()
    assert isinstance(sealed, ss.SealedState)
    assert counts_of(sealed) == TRUTH


def test_an_open_domain_counts_text_items_without_a_list(key: ss.Key) -> None:
    sketch = ss.Sketch.create(exact_spec(domain=ss.OpenDomain(slots=1 << 16, levels=2)), key)
    sketch.update([f"user-{i}" for i in STREAM])
    profile = sketch.seal().profile(method="inverse")
    assert profile.distinct.value == pytest.approx(4, abs=0.05)
    assert profile.at_least(3).value == pytest.approx(2, abs=0.05)


def test_a_release_leaves_the_sketch_open_and_is_charged_before_it_is_drawn() -> None:
    sketch = ss.Sketch.create(ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=50)), max_epsilon="3/2")
    release = sketch.release(epsilon="1/2")
    assert release.cost == Fraction(1, 2)
    assert sketch.ledger.loss() == 1, "events before it are hidden by the layer, later ones pay the publication alone"
    sketch.release(epsilon="1/2")
    assert sketch.ledger.loss() == Fraction(3, 2)
    with pytest.raises(ss.BudgetError) as refused:
        sketch.release(epsilon="1")
    assert (refused.value.limit, refused.value.asked, refused.value.spent) == (Fraction(3, 2), 1, Fraction(3, 2))
    sketch.update([1])


def test_two_releases_draw_their_noise_independently_but_one_release_never_changes() -> None:
    sketch = ss.Sketch.create(ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=50)))
    first, second = sketch.release("0.1"), sketch.release("0.1")
    assert (first.values != second.values).any()
    assert first.seal_id != second.seal_id
    assert ss.load(first.to_bytes()).to_bytes() == first.to_bytes()


@pytest.mark.parametrize("step", ["update", "release", "seal", "refresh", "to_bytes"])
def test_after_seal_every_step_is_refused_and_says_why(step: str) -> None:
    sketch = ss.Sketch.create(ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=50)))
    sketch.seal()
    arguments = {"update": ([1],), "release": ("1",)}.get(step, ())
    with pytest.raises(ss.SealedError, match="sealed"):
        getattr(sketch, step)(*arguments)


def test_an_open_sketch_has_no_profile_and_cannot_be_pickled_or_copied() -> None:
    sketch = ss.Sketch.create(ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=50)))
    with pytest.raises(ss.SealedError, match="seal or release first"):
        sketch.profile()
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(sketch)
    with pytest.raises(TypeError, match="pickled"):
        copy.copy(sketch)


def test_bytes_of_an_open_sketch_have_one_size_whatever_was_counted(key: ss.Key) -> None:
    spec = ss.ProfileSpec(epsilon="1", domain=ss.OpenDomain(slots=1024, levels=2))
    sketch, other = ss.Sketch.create(spec, key), ss.Sketch.create(spec, key)
    sketch.update([b"x"] * 100_000)
    assert len(sketch.to_bytes()) == len(other.to_bytes())


def test_an_open_sketch_goes_on_from_its_bytes(key: ss.Key) -> None:
    spec = exact_spec(domain=ss.ClosedDomain(items=["a", "b", "c", 4, b"d"]), max_count=5)
    sketch = ss.Sketch.create(spec, key)
    sketch.update(["a", "b", "b"])
    again = ss.Sketch.from_bytes(sketch.to_bytes(), key)
    again.update(["b"])
    assert counts_of(again.seal()) == [3, 1, 0, 1, 0]
    light = sketch.to_bytes(with_items=False)
    assert b"\xa1a" not in light
    assert counts_of(ss.Sketch.from_bytes(light, key, spec=spec).seal()) == [3, 1, 1, 0, 0]


def test_another_key_is_refused(key: ss.Key) -> None:
    spec = ss.ProfileSpec(epsilon="1", domain=ss.OpenDomain(slots=1024, levels=2))
    data = ss.Sketch.create(spec, key).to_bytes()
    with pytest.raises(ss.KeyMismatchError):
        ss.Sketch.from_bytes(data, ss.Key(bytes(16)))
    with pytest.raises(ss.KeyMismatchError):
        ss.Sketch.create(spec)


def test_open_bytes_cannot_be_read_as_published_and_the_other_way_round(key: ss.Key) -> None:
    sketch = ss.Sketch.create(ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=50)))
    with pytest.raises(ss.FormatError, match="open sketch"):
        published.read_published(sketch.to_bytes())
    with pytest.raises(ss.SealedError):
        ss.Sketch.from_bytes(sketch.seal().to_bytes())


def sealed(spec: ss.ProfileSpec, items: list[int], key: ss.Key | None = None) -> object:
    sketch = ss.Sketch.create(spec, key)
    sketch.update(items)
    return sketch.seal()


@pytest.mark.parametrize("publish", ["histogram", "state"])
def test_stack_of_partitions_is_the_profile_of_all_items(publish: str) -> None:
    spec = exact_spec(publish=publish, intrusion=None if publish == "histogram" else False)
    parts = [sealed(spec, [1, 2, 2]), sealed(spec, [3, 3, 3, 4, 4, 4])]
    stacked = ss.stack(parts)
    assert counts_of(stacked) == [96, 1, 1, 2, 0]
    again = ss.load(stacked.to_bytes())
    assert counts_of(again) == [96, 1, 1, 2, 0]


@pytest.mark.parametrize("unit", ["event", "item"])
def test_merge_equals_the_sketch_of_the_joined_streams(unit: str) -> None:
    more = {"unit": "item", "modulus": 1 << 15} if unit == "item" else {}
    spec = exact_spec(publish="state", intrusion=False, **more)
    merged = ss.merge([sealed(spec, [1, 2, 3]), sealed(spec, [2, 3, 3, 4]), sealed(spec, [4, 4])])
    assert counts_of(merged) == TRUTH
    assert len(merged.layers) == 3


def test_merging_residues_never_leaves_the_modulus() -> None:
    spec = exact_spec(unit="item", modulus=1 << 15, publish="state", intrusion=False)
    sketches = [ss.Sketch.create(spec) for _ in range(2)]
    sketches[0].update([7], weights=[(1 << 15) - 1])
    sketches[1].update([7], weights=[3])
    state = ss.merge([sketch.seal() for sketch in sketches]).state
    assert state[7] == 2
    assert (state >= 0).all()


def test_open_sketches_merge_into_one_and_are_closed() -> None:
    spec = exact_spec()
    first, second = ss.Sketch.create(spec), ss.Sketch.create(spec)
    first.update([1, 2, 3, 3])
    second.update([2, 3, 4, 4, 4])
    merged = ss.merge([first, second])
    assert first.closed
    assert second.closed
    assert counts_of(merged.seal()) == TRUTH


def test_merge_refuses_itself_descendants_other_specs_and_histograms() -> None:
    spec = ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=50), publish="state", intrusion=False)
    other = ss.ProfileSpec(epsilon="2", domain=ss.ClosedDomain(size=60), publish="state", intrusion=False)
    sketch = ss.Sketch.create(spec)
    twin = ss.Sketch.from_bytes(sketch.to_bytes())
    with pytest.raises(ss.MergeError, match="noise layer"):
        ss.merge([sketch.seal(), twin.seal()])
    one = sealed(spec, [1])
    with pytest.raises(ss.MergeError, match="itself"):
        ss.merge([one, one])
    with pytest.raises(ss.MergeError) as refused:
        ss.merge([one, sealed(other, [1])])
    assert refused.value.fields == ("domain", "epsilon", "epsilon_publish")
    histogram = sealed(ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=50)), [1])
    with pytest.raises(ss.MergeError, match="histograms"):
        ss.merge([histogram])
    with pytest.raises(ss.MergeError, match="both"):
        ss.stack([histogram, one])
    with pytest.raises(ss.MergeError, match="itself"):
        ss.stack([histogram, histogram])
    with pytest.raises(ss.MergeError):
        ss.stack([])


def test_parts_with_other_epsilons_may_be_stacked() -> None:
    specs = [ss.ProfileSpec(epsilon=e, domain=ss.ClosedDomain(size=50)) for e in ("1", "2")]
    stacked = ss.stack([sealed(spec, [1]) for spec in specs])
    from sketchstream.kinds.profile.observations import observed_counts

    assert len(observed_counts(stacked)) == 2


def test_refresh_adds_a_layer_that_protects_against_a_second_look() -> None:
    sketch = ss.Sketch.create(
        ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=50), publish="state", intrusion=False)
    )
    sketch.refresh("1/2")
    assert [layer.parameter for layer in sketch.layers] == [Fraction(39, 40), Fraction(39, 80)]
    assert [layer.cost for layer in sketch.ledger.layers] == [1, Fraction(1, 2)]


def test_intrusion_adds_a_layer_at_seal() -> None:
    spec = ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=50), publish="state", intrusion=True)
    assert len(sealed(spec, [1]).layers) == 2


def test_weights_delete_and_the_state_wraps_without_a_word() -> None:
    spec = exact_spec(domain=ss.ClosedDomain(size=5), max_count=5)
    sketch = ss.Sketch.create(spec)
    sketch.update([1, 2, 2], weights=[1, 1, -1])
    assert counts_of(sketch.seal())[:2] == [4, 1]


@given(st.lists(st.integers(0, 49), max_size=60), st.integers(0, 60))
def test_order_and_batching_do_not_matter(items: list[int], cut: int) -> None:
    spec = ss.ProfileSpec(epsilon=EXACT, domain=ss.ClosedDomain(size=50), publish="state", intrusion=False)
    whole, parts = ss.Sketch.create(spec), ss.Sketch.create(spec)
    whole.update(items)
    parts.update(items[cut:][::-1])
    parts.update(items[:cut])
    assert (whole.seal().state == parts.seal().state).all()


def test_only_kept_items_of_a_closed_domain_have_slots() -> None:
    keep = np.zeros(50, bool)
    keep[[1, 2, 3]] = True
    sketch = ss.Sketch.create(exact_spec(), keep=keep)
    assert sketch.slots == 3
    sketch.update([1, 2, 2, 9], invalid="skip")
    with pytest.raises(ss.DomainError, match="position 0"):
        sketch.update([9])
    assert counts_of(sketch.seal()) == [1, 1, 1, 0, 0]


def test_reprs_show_public_parameters_only(key: ss.Key) -> None:
    sketch = ss.Sketch.create(ss.ProfileSpec(epsilon="1", domain=ss.OpenDomain(slots=64, levels=2)), key)
    release = sketch.release("1")
    for shown in (repr(sketch), repr(release), repr(key), repr(sketch.seal())):
        assert "array" not in shown
        assert "noised" not in shown


def test_states_that_were_merged_or_changed_are_overwritten_with_zeros() -> None:
    spec = ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=50))
    first, second = WindowSketch.create(spec), WindowSketch.create(spec)
    former = [first._state, second._state]
    assert all(state.any() for state in former)
    merged = ss.merge([first, second])
    assert not any(state.any() for state in former)
    old = merged._state
    merged.change_slots(np.arange(50) % 2 == 0)
    assert merged._state.size == 25
    assert not old.any()
