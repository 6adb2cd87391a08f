"""Sketch files in Python: saved, loaded by path, refused where others can read an open one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sketchstream as ss
from sketchstream.errors import EstimateError, FormatError, MergeError

SPEC = ss.ProfileSpec(epsilon="1", domain=ss.OpenDomain(slots=256, levels=2))


@pytest.fixture
def key() -> ss.Key:
    return ss.Key(bytes(range(16)))


def published(key: ss.Key) -> dict[str, object]:
    state = ss.ProfileSpec(epsilon="1", domain=SPEC.domain, publish="state", intrusion=True)
    release = ss.Sketch.create(SPEC, key).seal()
    return {
        "release": release,
        "state": ss.Sketch.create(state, key).seal(),
        "stack": ss.stack([release, ss.Sketch.create(SPEC, key).seal()]),
    }


@pytest.mark.parametrize("name", ["release", "state", "stack"])
def test_what_was_published_is_saved_for_everybody_and_loaded_without_a_key(
    key: ss.Key, tmp_path: Path, name: str
) -> None:
    found = published(key)[name]
    path = tmp_path / name
    found.save(path)
    assert path.stat().st_mode & 0o777 == 0o644
    again = ss.load(path)
    assert type(again) is type(found)
    assert again.to_bytes() == found.to_bytes() == path.read_bytes()
    assert ss.load(found.to_bytes()).to_bytes() == found.to_bytes()
    with pytest.raises(ss.StoreError, match="exists and is not overwritten"):
        found.save(path)


def test_an_open_sketch_is_saved_as_a_secret_and_loaded_with_its_key(key: ss.Key, tmp_path: Path) -> None:
    sketch = ss.Sketch.create(SPEC, key)
    path = tmp_path / "s.sketch"
    sketch.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ss.StoreError, match="exists and is not overwritten"):
        sketch.save(path)
    again = ss.load(path, key)
    assert isinstance(again, ss.Sketch)
    assert (again._state == sketch._state).all()
    with pytest.raises(ss.KeyMismatchError, match=r"s\.sketch: .*key"):
        ss.load(path)


def test_saving_again_takes_the_place_of_the_earlier_copy_and_erases_it(key: ss.Key, tmp_path: Path) -> None:
    sketch = ss.Sketch.create(SPEC, key)
    path = tmp_path / "s.sketch"
    sketch.save(path)
    before = path.read_bytes()
    (tmp_path / "link").hardlink_to(path)  # shows what the earlier file holds afterwards
    sketch.update(["a"])
    sketch.save(path, replace=True)
    assert path.stat().st_mode & 0o777 == 0o600
    assert (ss.load(path, key)._state == sketch._state).all()
    assert (tmp_path / "link").read_bytes() == bytes(len(before))
    sketch.save(tmp_path / "new", replace=True)
    assert (tmp_path / "new").exists()


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o604])
def test_an_open_sketch_that_others_can_read_is_refused_with_advice(key: ss.Key, tmp_path: Path, mode: int) -> None:
    path = tmp_path / "s.sketch"
    ss.Sketch.create(SPEC, key).save(path)
    path.chmod(mode)
    with pytest.raises(ss.StoreError, match=rf"mode {mode:04o}: others could read or change it; chmod 600 it; if "):
        ss.load(path, key)
    path.chmod(0o640)  # a secret that a group may read is what Kubernetes mounts
    assert isinstance(ss.load(path, key), ss.Sketch)


def test_other_files_are_refused_by_name(key: ss.Key, tmp_path: Path) -> None:
    key.save(tmp_path / "key")
    with pytest.raises(ss.FormatError, match=r"key: this is a key file: read it with Key\.load"):
        ss.load(tmp_path / "key")
    (tmp_path / "text").write_text("no sketch")
    with pytest.raises(ss.FormatError, match="text: these bytes are not a sketch"):
        ss.load(tmp_path / "text")
    with pytest.raises(ss.StoreError, match=r"cannot read .*nothing: no such file"):
        ss.load(tmp_path / "nothing")
    release = tmp_path / "release"
    ss.Sketch.create(SPEC, key).seal().save(release)
    data = release.read_bytes()
    for cut in (0, 3, 20, 60, len(data) - 1):
        release.write_bytes(data[:cut])
        with pytest.raises(ss.FormatError):
            ss.load(release)


@pytest.mark.parametrize("wrong", [None, 3, [b"x"]])
def test_what_is_no_path_and_no_list_is_refused(wrong: Any) -> None:
    for read in (ss.load, ss.Key.load, ss.windows):
        with pytest.raises(FormatError, match="expected a path, found"):
            read(wrong)
    with pytest.raises(MergeError, match="stack takes"):
        ss.stack(wrong)
    found = ss.Sketch.create(ss.GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(size=2))).seal().estimate()
    with pytest.raises(EstimateError, match="number"):
        found.number(wrong)
