"""One thing in a folder that cannot be read hides its own window only, and is told of."""

from __future__ import annotations

import json
import shutil

import pytest

from helpers.serving import MINUTE, publish, serving
from helpers.streams import EPOCH
from sketchstream.errors import FormatError
from sketchstream.provenance import Origin
from sketchstream.stream.windows.calendar import iso
from sketchstream_connectors.files.sealed import DirectorySealed
from sketchstream_connectors.kafka.publishing.sealed import read_frontier

BAD = {
    "no JSON": b"{",
    "deep": b"[" * 100_000,
    "digits": b"9" * 100_000,
    "infinite": b'{"partition":1e999}',
    "large": None,
    "other": None,
}


@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    made = tmp_path_factory.mktemp("unreadable") / "sealed"
    publish(made, minutes=3, partitions=2)
    return made


@pytest.fixture
def folder(tmp_path, sealed):
    shutil.copytree(sealed, tmp_path / "sealed")
    return tmp_path


def complete(client):
    """Whether each window of the sketch `minutes` lacks nothing, oldest first."""
    listed = client.get("/v1/sketches/minutes/windows", params={"order": "asc"}).json()["windows"]
    return [one["complete"] is not False for one in listed]


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_frontier_stops_no_other_sketch_and_is_told_of(folder, kind):
    (folder / "sealed" / "another" / "r0").mkdir(parents=True)
    path = folder / "sealed" / "another" / "r0" / "frontier.p00001.json"
    good = (folder / "sealed" / "minutes" / "r0" / "frontier.p00001.json").read_bytes()
    bad = BAD[kind]
    if kind == "large":
        bad = good.replace(b'"sequence":', b'"sequence":9' + b"9" * 40).replace(b'"minutes"', b'"another"')
    path.write_bytes(good if bad is None else bad)
    with serving(folder, processes=0) as (service, client):
        assert complete(client) == [True] * 3
        assert client.get("/readyz").status_code == 200
        assert "another" not in client.get("/readyz").text
        assert "frontier.p00001.json" in client.get("/v1/status").json()["error"]
        assert len(service.follower.problems) == 1
        path.unlink()
        service.follower.step()
        assert service.follower.problems == ()
        assert client.get("/v1/status").json()["error"] is None
    path.write_bytes(b"{")
    with_sketch = DirectorySealed(folder / "sealed")
    assert {one.sketch for one in with_sketch.frontiers("minutes")} == {"minutes"}


@pytest.mark.parametrize("target", ["itself", "nothing"])
def test_a_body_that_cannot_be_opened_leaves_its_window_incomplete_until_it_can_be(folder, target):
    path = sorted((folder / "sealed" / "minutes" / "r0").glob("*/p00001.sealed"))[0]
    whole = path.read_bytes()
    path.unlink()
    path.symlink_to(path if target == "itself" else "gone")
    with serving(folder, processes=0) as (service, client):
        assert complete(client) == [False, True, True]
        assert [path.name in problem for problem in service.follower.problems] == [True]
        path.unlink()
        path.write_bytes(whole)
        service.follower.step()
        assert complete(client) == [True] * 3
        assert service.follower.problems == ()


def test_a_folder_that_cannot_be_listed_holds_back_its_own_sketch_only(folder):
    loop = folder / "sealed" / "other"
    loop.symlink_to(loop)
    windows = folder / "sealed" / "minutes" / "r0" / iso(EPOCH + 60 * MINUTE).replace("-", "").replace(":", "")
    windows.symlink_to(windows)
    with serving(folder, processes=0) as (service, client):
        assert complete(client) == [True] * 3
        assert len(service.follower.problems) == 2
        assert client.get("/readyz").status_code == 200


@pytest.mark.parametrize("place", ["partitions", "published_through", "closed_through", "grown_from"])
@pytest.mark.parametrize("number", [1 << 62, -(1 << 63), 10_001])
def test_a_number_that_no_input_has_costs_nothing_and_hides_its_own_sketch_only(folder, place, number):
    """Readers go through all partitions of a window, and show times: a frontier of 400 bytes says how many and when."""
    path = folder / "sealed" / "minutes" / "r0" / "frontier.p00000.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {place: number}))
    with serving(folder, processes=0) as (_, client):
        for where in ("", "/minutes", "/hours", "/minutes/windows", "/hours/windows", "/minutes/series"):
            assert client.get(f"/v1/sketches{where}").status_code == 200, where
        assert client.get("/").status_code == client.get("/ledger").status_code == 200
        assert client.get("/v1/sketches/hours/windows").json()["windows"]


def test_a_file_of_any_size_is_not_read_further_than_its_budget(folder, monkeypatch):
    monkeypatch.setenv("SKETCHSTREAM_READ_MEMORY_MB", "1")
    (path,) = sorted((folder / "sealed" / "minutes").rglob("*.sealed"))[:1]
    frontier = folder / "sealed" / "minutes" / "r0" / "frontier.p00000.json"
    for one in (path, frontier):
        with one.open("r+b") as file:
            file.truncate(1 << 40)  # of which the disk has nothing
    with serving(folder, processes=0) as (service, client):
        assert len(client.get("/v1/sketches/hours/windows").json()["windows"]) == 1
        assert "more than" in client.get("/v1/incidents").text
        assert any("more than" in one for one in service.follower.problems)


@pytest.mark.parametrize("number", [10_001, -1, 1 << 62])
def test_a_body_or_a_topic_names_no_more_partitions_than_an_input_has(number):
    for fields in ({"partition": number}, {"partitions": [4, number]}, {"partitions_seal": number}):
        with pytest.raises(FormatError, match="at most 10,000 partitions"):
            Origin.from_dict({"name": "minutes", "window": [0, 1]} | fields)
    value = {"published_through": 0, "partitions": 10_000, "sequence": 1}
    assert read_frontier(("minutes", 0, 3), json.dumps(value).encode()) is not None
    assert read_frontier(("minutes", 0, 3), json.dumps(value | {"partitions": number}).encode()) is None
    assert read_frontier(("minutes", 0, number), json.dumps(value).encode()) is None
