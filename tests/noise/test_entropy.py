"""The keystream: known answers, one-time keys, erasure, forks, pickles; and what samplers leave behind."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from helpers.noise.words import Recorded, Seeded
from sketchstream import forks, noise
from sketchstream.errors import SketchstreamError, SpecError
from sketchstream.kinds.convolution.mechanisms.independent import add_gaussian, add_laplace
from sketchstream.kinds.convolution.spec import ConvolutionSpec
from sketchstream.kinds.convolution.update import add_noise
from sketchstream.kinds.workload.strategies.ball import add_ball_noise
from sketchstream.noise import entropy, laplace
from sketchstream.noise.blocks import block_samples
from sketchstream.noise.entropy import Keystream
from sketchstream.noise.selection import choose

pytestmark = pytest.mark.entropy


def words_of(stream: Keystream, count: int) -> np.ndarray:
    words = np.full(count, 0xABCD1234, np.uint32)
    stream.fill(words)
    return words


def test_words_are_aes_256_in_counter_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entropy, "fresh_key", lambda: bytearray(32))
    words = words_of(Keystream(), 8)
    # AES-256 of the zero block under the zero key (NIST's CAVP, also the first block of GCM's test cases)
    assert words.tobytes().hex().startswith("dc95c078a2408989ad48a21492842087")


def test_any_cut_of_the_stream_gives_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entropy, "fresh_key", lambda: bytearray(b"k" * 32))
    whole = words_of(Keystream(), 200_000)
    pieces = Keystream()
    cut = np.concatenate([words_of(pieces, n) for n in (1, 2, 0, 65_536, 70_000, 3, 64_458)])
    assert np.array_equal(whole, cut)


def test_two_keystreams_share_nothing() -> None:
    first, second = words_of(Keystream(), 1000), words_of(Keystream(), 1000)
    assert len({*first.tolist(), *second.tolist()}) > 1990


def test_the_key_is_overwritten_and_used_once(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[bytearray] = []
    fresh = entropy.fresh_key

    def spy() -> bytearray:
        keys.append(fresh())
        assert any(keys[-1])
        return keys[-1]

    monkeypatch.setattr(entropy, "fresh_key", spy)
    for _ in range(3):
        noise.discrete_laplace(np.zeros(10, np.int32), Fraction(1))
    assert len(keys) == 3
    assert not any(any(key) for key in keys)


def test_a_new_key_is_drawn_after_the_limit_and_after_erasure(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr(entropy, "fresh_key", lambda: drawn.append(0) or bytearray(len(drawn).to_bytes(32)))
    monkeypatch.setattr(entropy, "REKEY_BYTES", 4096)
    stream = Keystream()
    words_of(stream, 1024)
    assert len(drawn) == 1
    words_of(stream, 2500)
    assert len(drawn) == 4
    stream.erase()
    words_of(stream, 1)
    assert len(drawn) == 5


def test_a_keystream_that_ends_or_cannot_begin_anew_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with Keystream() as stream:
        words_of(stream, 4)
        assert stream._context is not None
    assert stream._context is None
    words_of(stream, 4)
    assert stream._context is not None

    def refuse() -> bytearray:
        raise OSError("no key")

    monkeypatch.setattr(entropy, "fresh_key", refuse)
    stream._left = 0  # as after REKEY_BYTES
    with pytest.raises(OSError, match="no key"):
        words_of(stream, 4)
    assert stream._context is None, "the former key is gone although there is no other"


SERIES = ConvolutionSpec("sum", 16, epsilon=1, delta="1e-6", noise="gaussian", layout="time")


@pytest.mark.parametrize(
    "draw",
    [
        lambda: noise.discrete_laplace(np.zeros(9, np.int64), Fraction(1)),
        lambda: noise.discrete_gaussian(np.zeros(9, np.int64), Fraction(10)),
        lambda: noise.discrete_gaussians(np.zeros(9, np.int64), [Fraction(1), Fraction(7)], np.arange(9) % 2),
        lambda: noise.randomized_response(np.zeros(9, np.int16), 16, Fraction(1)),
        lambda: noise.joint_response(np.zeros((3, 9), np.int16), 16, Fraction(1)),
        lambda: choose({"a": Fraction(0), "b": Fraction(1)}, Fraction(1)),
        lambda: add_gaussian(np.zeros(9, np.int64), np.resize([9.0, 2.0**44], 9)),
        lambda: add_laplace(np.zeros(9, np.int64), np.full(9, 7)),
        lambda: add_ball_noise(np.zeros(3, np.int64), Fraction(1, 9)),
        lambda: add_noise(SERIES, np.zeros(SERIES.size, np.int64)),
    ],
)
def test_every_sampler_forgets_its_keys(draw: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Keystream] = []
    begin = Keystream.__init__

    def noted(stream: Keystream) -> None:
        begin(stream)
        made.append(stream)

    monkeypatch.setattr(Keystream, "__init__", noted)
    draw()
    assert made
    assert all(stream._context is None for stream in made)


def test_a_forked_child_draws_under_its_own_key() -> None:
    stream = Keystream()
    words_of(stream, 16)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - the child leaves no trace in coverage
        os.write(write, words_of(stream, 256).tobytes())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        theirs = np.frombuffer(pipe.read(), np.uint32)
    os.waitpid(child, 0)
    assert theirs.size == 256
    assert len({*theirs.tolist(), *words_of(stream, 256).tolist()}) > 500


def test_a_forked_child_with_a_reused_process_number_draws_under_its_own_key(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Keystream()
    words_of(stream, 16)
    before = stream._context
    monkeypatch.setattr(forks, "_forks", forks._forks + 1)  # what the handler does in the child
    words_of(stream, 16)
    assert stream._context is not before


@pytest.mark.parametrize("way", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_keystream_cannot_be_pickled_or_copied(way: object) -> None:
    with pytest.raises(TypeError, match="pickled or copied"):
        way(Keystream())  # type: ignore[operator]


def test_without_the_device_the_key_comes_from_the_system_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", refuse)
    assert any(entropy.fresh_key())


def test_nothing_is_left_in_the_scratch() -> None:
    for draw in (
        lambda source: noise.discrete_laplace(np.zeros(1000, np.int32), Fraction(1, 10), source),
        lambda source: noise.randomized_response(np.zeros(1000, np.int16), 16, Fraction(1), source),
        lambda source: noise.discrete_gaussian(np.zeros(1000, np.int64), Fraction(10), source),
    ):
        source = Recorded(Seeded(1))
        draw(source)
        assert any(source.words)
        assert all(not buffer.any() for buffer in source.buffers)


def test_the_scratch_is_erased_when_the_source_fails() -> None:
    class Failing(Recorded):
        def fill(self, words: np.ndarray) -> None:
            if self.buffers:
                raise OSError
            super().fill(words)

    source = Failing(Seeded(1))
    samples = 2 * block_samples(laplace.plan(Fraction(1)).rows)
    with pytest.raises(OSError):
        noise.discrete_laplace(np.zeros(samples, np.int32), Fraction(1), source)
    assert not source.buffers[0].any()


@pytest.mark.parametrize("epsilon", ["1/10000", "1", "30"])
def test_each_sample_takes_the_same_number_of_words(epsilon: str) -> None:
    ready = laplace.plan(Fraction(epsilon))
    source = Recorded(Seeded(2))
    laplace.add(np.zeros(5000, np.int32), ready, source, laplace.numpy_block)
    assert ready.rows * 5000 <= len(source.words) <= ready.rows * 5000 + 50


@pytest.mark.parametrize(
    "draw",
    [
        lambda out: noise.discrete_laplace(out, Fraction(1, 1_000_000)),
        lambda out: noise.discrete_laplace(out, Fraction(1)),
        lambda out: noise.discrete_gaussian(out, Fraction(10**9)),
        lambda out: noise.randomized_response(out.view(np.int16), 32, Fraction(1)),
    ],
)
def test_memory_stays_within_a_third_of_the_state(draw: object) -> None:
    out = np.zeros(4_000_000, np.int32)
    draw(np.zeros(100_000, np.int32))  # type: ignore[operator] # loads the loops, builds the thresholds
    tracemalloc.start()
    try:
        draw(out)  # type: ignore[operator]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 0.3 * out.nbytes


def test_noise_is_added_to_any_shape_and_wraps() -> None:
    plain, shaped = np.zeros(24, np.int64), np.zeros((2, 3, 4), np.int64)
    noise.discrete_laplace(plain, Fraction(1, 10), Seeded(3))
    noise.discrete_laplace(shaped, Fraction(1, 10), Seeded(3))
    assert np.array_equal(plain, shaped.reshape(-1))
    for draw, scale in ((noise.discrete_laplace, Fraction(1, 10)), (noise.discrete_gaussian, Fraction(100))):
        for kind in (np.int32, np.int64):
            drawn, full = np.zeros(24, kind), np.full(24, np.iinfo(kind).max, kind)
            draw(drawn, scale, Seeded(3))
            draw(full, scale, Seeded(3))
            size, top = 1 << np.iinfo(kind).bits, np.iinfo(kind).max
            wrapped = [(top + one + size // 2) % size - size // 2 for one in drawn.tolist()]  # in Python's integers
            assert full.tolist() == wrapped
            assert min(wrapped) < 0 < max(wrapped), "noise of both signs: some sums wrap, and some do not"


def test_empty_arrays_are_left_alone() -> None:
    for kind in (np.int32, np.int64):
        noise.discrete_laplace(np.zeros((3, 0), kind), Fraction(1))
        noise.discrete_gaussian(np.zeros(0, kind), Fraction(1))
    noise.randomized_response(np.zeros(0, np.int16), 5, Fraction(1))


READ_ONLY = np.zeros(4, np.int32)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    "out",
    [np.zeros(4), np.zeros(4, np.int16), np.zeros(4, ">i4"), np.zeros((4, 4), np.int32)[:, ::2], READ_ONLY, [0, 0]],
)
def test_arrays_that_cannot_take_noise_are_refused(out: object) -> None:
    with pytest.raises(SpecError, match="in place"):
        noise.discrete_laplace(out, Fraction(1))  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="in place"):
        noise.discrete_gaussian(out, Fraction(1))  # type: ignore[arg-type]


@pytest.mark.parametrize("epsilon", [0, -1, Fraction(0), Fraction(-1, 2), 0.5, float("nan"), "1", True, None])
def test_parameters_that_are_no_positive_rationals_are_refused(epsilon: Fraction) -> None:
    out = np.zeros(4, np.int32)
    for call in (
        lambda: noise.discrete_laplace(out, epsilon),
        lambda: noise.discrete_gaussian(out, epsilon),
        lambda: noise.randomized_response(out.view(np.int16), 16, epsilon),
    ):
        with pytest.raises(SketchstreamError, match="positive Fraction"):
            call()
    assert not out.any()


@pytest.mark.parametrize("modulus", [0, 1, -3, (1 << 15) + 1, 2.0, True, "7"])
def test_moduli_that_do_not_fit_are_refused(modulus: int) -> None:
    with pytest.raises(SpecError, match="modulus"):
        noise.randomized_response(np.zeros(4, np.int16), modulus, Fraction(1))


def test_noise_loads_nothing_heavy_before_it_is_used() -> None:
    code = (
        "import sys, sketchstream.noise\nprint([m for m in ('numba', 'cryptography', 'scipy') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError):
        _ = noise.uniform
