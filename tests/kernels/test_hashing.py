"""The keyed hash and the key: published vectors, slow twins, key files."""

from __future__ import annotations

import copy
import errno
import os
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numpy as np
import pytest

from helpers.updates_reference import SIPHASH_VECTORS, item_hash, siphash, slot_of
from sketchstream import kernels
from sketchstream.errors import KeyMismatchError, StoreError
from sketchstream.items.arrays import Items
from sketchstream.items.domains import Index, hashes
from sketchstream.items.key import Key
from sketchstream.spec import OpenDomain

KEY = Key(bytes(range(16)))
K0, K1 = np.uint64(0x0706050403020100), np.uint64(0x0F0E0D0C0B0A0908)


def _hash_spans(buffer: bytes, spans: list[tuple[int, int]]) -> list[int]:
    starts, ends = (np.array(column, np.int64) for column in zip(*spans, strict=True))
    out = np.empty(len(spans), np.uint64)
    kernels.hash_spans(np.frombuffer(buffer, np.uint8), starts, ends, K0, K1, out)
    return [int(value) for value in out]


def test_the_published_vectors_of_siphash_hold_one_by_one_and_side_by_side():
    message = bytes(range(64))
    expected = [int.from_bytes(bytes.fromhex(text), "little") for text in SIPHASH_VECTORS]
    assert len(expected) == 64
    assert [siphash(int(K0), int(K1), message[:i]) for i in range(64)] == expected
    assert [_hash_spans(message, [(0, i)])[0] for i in range(64)] == expected
    assert _hash_spans(message, [(0, i) for i in range(64)]) == expected


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 31, 32, 33, 1000])
def test_hashes_of_ints_are_those_of_their_eight_bytes(n):
    items = np.random.default_rng(n).integers(-(1 << 63), (1 << 63) - 1, n, endpoint=True)
    out = np.empty(n, np.uint64)
    kernels.hash_ints(items, K0, K1, out)
    assert out.tolist() == [siphash(int(K0), int(K1), int(item).to_bytes(8, "little", signed=True)) for item in items]


@pytest.mark.parametrize("longest", [0, 1, 7, 8, 9, 40, 71, 72, 73, 300])
@pytest.mark.parametrize("n", [1, 31, 32, 33, 200, 1025])
def test_hashes_of_strings_of_any_length_and_place_equal_the_twin(n, longest):
    rng = np.random.default_rng([n, longest])
    lengths = rng.integers(0, longest, n, endpoint=True)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    buffer = rng.bytes(int(offsets[-1]))
    spans = list(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
    chosen = range(n) if n < 300 else range(0, n, 7)
    found = _hash_spans(buffer, spans)
    assert [found[i] for i in chosen] == [siphash(int(K0), int(K1), buffer[slice(*spans[i])]) for i in chosen]


def test_int_text_and_bytes_are_three_items():
    found = [int(hashes(Items.of([item]), KEY)[0]) for item in (5, "5", b"5", (5).to_bytes(8, "little"))]
    assert found == [item_hash(KEY, item) for item in (5, "5", b"5", (5).to_bytes(8, "little"))]
    assert len(set(found)) == 4


@pytest.mark.parametrize(
    ("slots", "levels"), [(1000, 1), (1001, 3), (1 << 20, 8), (96, 32), (1 << 33, 1), (1 << 33, 2)]
)
def test_level_and_slot_come_from_one_hash(slots, levels):
    domain = OpenDomain(slots=slots, levels=levels)
    index = Index.build(domain, KEY)
    items = np.random.default_rng(1).integers(-(1 << 63), (1 << 63) - 1, 300)
    assert index.locate(Items.of(items)).tolist() == [slot_of(domain, KEY, int(item)) for item in items]
    texts = [f"item {number}" for number in range(300)]
    assert index.locate(Items.of(texts)).tolist() == [slot_of(domain, KEY, text) for text in texts]


@pytest.mark.parametrize("levels", [1, 2, 5, 8])
def test_levels_receive_their_shares_and_slots_within_a_level_are_uniform(levels):
    domain = OpenDomain(slots=64 * levels, levels=levels)
    n = 200_000
    slots = Index.build(domain, KEY).locate(Items.of(np.arange(n)))
    seen = np.bincount(slots, minlength=domain.size)
    expected = np.repeat(domain.level_shares() / 64, 64) * n
    chi = float(((seen - expected) ** 2 / expected).sum())
    freedom = domain.size - 1
    assert abs(chi - freedom) < 5 * (2 * freedom) ** 0.5


def test_a_second_process_finds_the_same_slots():
    code = (
        "from sketchstream.items.key import Key\nfrom sketchstream.items.arrays import Items\n"
        "from sketchstream.items.domains import Index\nfrom sketchstream.spec import OpenDomain\n"
        "index = Index.build(OpenDomain(slots=1 << 20, levels=8), Key(bytes(range(16))))\n"
        "print(index.locate(Items.of(['a', 'b', ''])).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    index = Index.build(OpenDomain(slots=1 << 20, levels=8), KEY)
    assert done.stdout.strip() == str(index.locate(Items.of(["a", "b", ""])).tolist())


def test_a_key_is_saved_once_for_its_owner_only_and_read_back(tmp_path):
    path = tmp_path / "key"
    key = Key.generate()
    key.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Key.load(path) == key
    with pytest.raises(StoreError, match="never overwritten"):
        Key.generate().save(path)
    assert Key.load(path) == key


def test_a_key_that_cannot_be_written_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreError, match="input/output error"):
        KEY.save(tmp_path / "key")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o620, 0o602, 0o666])
def test_a_key_file_that_others_may_read_or_change_is_refused(tmp_path, mode):
    path = tmp_path / "key"
    KEY.save(path)
    path.chmod(mode)
    with pytest.raises(StoreError, match="chmod 600"):
        Key.load(path)


def test_every_altered_key_file_is_refused(tmp_path):
    path = tmp_path / "key"
    KEY.save(path)
    good = path.read_bytes()
    for data in (b"", b"\n", good[:-2], good + b"x", good * 2, bytes(16), b"k" * 100_000, good.upper()):
        path.write_bytes(data)
        with pytest.raises(KeyMismatchError):
            Key.load(path)
    for at in range(len(good) - 1):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(KeyMismatchError):
            Key.load(path)


def test_a_missing_key_file_is_named(tmp_path):
    with pytest.raises(StoreError, match="no-such-key"):
        Key.load(tmp_path / "no-such-key")
    with pytest.raises(StoreError, match="cannot write"):
        KEY.save(tmp_path / "no-such-directory" / "key")


@pytest.mark.parametrize("secret", [b"", bytes(15), bytes(17), "0123456789abcdef", None, bytearray(16)])
def test_a_key_is_sixteen_bytes(secret):
    with pytest.raises(KeyMismatchError):
        Key(secret)


def test_a_key_does_not_leave_by_repr_pickle_or_error():
    secret = bytes.fromhex("00112233445566778899aabbccddeeff")
    key = Key(secret)
    for text in (repr(key), str(key), f"{key}"):
        assert secret.hex() not in text
        assert key.id.hex() in text
    with pytest.raises(TypeError, match="never pickled"):
        pickle.dumps(key)
    assert copy.copy(key) is key
    assert copy.deepcopy(key) is key
    assert key.id != secret[:8]
    assert not hasattr(key, "__dict__")


def test_keys_compare_by_their_secret():
    assert Key(bytes(16)) == Key(bytes(16))
    assert Key(bytes(16)) != Key(bytes(15) + b"\x01")
    assert Key(bytes(16)) != bytes(16)
    assert len({Key(bytes(16)), Key(bytes(16))}) == 1
    assert Key.generate() != Key.generate()


def _run(code: str, cache: Path) -> str:
    environment = {"NUMBA_CACHE_DIR": str(cache), "PATH": "/usr/bin:/bin", "HOME": str(cache)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.statistics
def test_an_edited_kernel_is_compiled_again_and_not_taken_from_the_disk(tmp_path):
    """The cache of compiled loops: a kernel that calls another one of its file, which is then edited."""
    module = tmp_path / "edited.py"
    text = (
        "from sketchstream.kernels import kernel\n"
        "@kernel\ndef inner(x):\n    return x + {add}\n"
        "@kernel\ndef outer(x):\n    return inner(x) * 10\n"
    )
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import edited; print(edited.outer(1))"
    module.write_text(text.format(add="1"))
    assert _run(code, tmp_path / "cache") == "20\n"
    cached = list((tmp_path / "cache").rglob("*.nbi"))
    assert cached, "the kernels must be cached on disk"
    assert _run(code, tmp_path / "cache") == "20\n"
    module.write_text(text.format(add="100"))
    assert _run(code, tmp_path / "cache") == "1010\n"


@pytest.mark.statistics
def test_an_edit_in_the_folder_of_kernels_compiles_what_calls_it_again(tmp_path):
    """A kernel elsewhere that calls one of sketchstream/kernels, here a copy of it, which is then edited."""
    package = tmp_path / "sketchstream"
    shutil.copytree(
        Path(kernels.__file__).parent, package / "kernels", ignore=shutil.ignore_patterns("__pycache__", "__init__.py")
    )
    (package / "__init__.py").touch()
    (package / "kernels" / "__init__.py").touch()
    called = package / "kernels" / "called.py"
    text = "from sketchstream.kernels.compilation import kernel\n@kernel\ndef inner(x):\n    return x + {add}\n"
    (tmp_path / "caller.py").write_text(
        "from sketchstream.kernels.compilation import kernel\nfrom sketchstream.kernels.called import inner\n"
        "@kernel\ndef outer(x):\n    return inner(x) * 10\n"
    )
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import caller; print(caller.outer(1))"
    called.write_text(text.format(add="1"))
    assert _run(code, tmp_path / "cache") == "20\n"
    called.write_text(text.format(add="100"))
    assert _run(code, tmp_path / "cache") == "1010\n"


@pytest.mark.statistics
def test_processes_that_compile_one_kernel_for_different_types_at_once_find_each_their_own_code(tmp_path):
    """Each reads the index before the other has written it, as two workers on a new machine may."""
    (tmp_path / "shared.py").write_text(
        "from sketchstream.kernels import kernel\n@kernel\ndef double(x):\n    return x[0] * 2\n"
    )
    use = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import numpy as np, shared\n"
    slow = (
        "import time\n"
        "from numba.core.caching import IndexDataCacheFile as File\n"
        "read = File._load_index\n"
        "File._load_index = lambda self: (read(self), time.sleep(1.0))[0]\n"
    )
    calls = [f"print(shared.double(np.array([3], np.{kind})))" for kind in ("int64", "float64", "float32")]
    with ThreadPoolExecutor() as threads:
        found = list(threads.map(lambda call: _run(use + slow + call, tmp_path / "cache"), calls))
    assert found == ["6\n", "6.0\n", "6.0\n"]
    data = list((tmp_path / "cache").rglob("shared.double*.nbc"))
    assert len(data) == 3, "one file of code for each type"
    hits = "; assert sum(shared.double.stats.cache_hits.values()) == 1, shared.double.stats"
    assert [_run(use + call + hits, tmp_path / "cache") for call in calls] == found


def test_a_kernel_works_where_nothing_can_be_cached(monkeypatch):
    """A read-only installation and home: numba refuses to cache, the loop is compiled without a cache."""
    from sketchstream.kernels import compilation

    original = numba.njit

    def without_disk(*args, **options):
        if options.get("cache"):
            msg = "cannot cache function: no locator available"
            raise RuntimeError(msg)
        return original(*args, **options)

    monkeypatch.setattr(numba, "njit", without_disk)
    assert compilation.kernel(lambda x: x + 1)(4) == 5
