"""What was published under names that the configuration does not have any more is answered from what was published."""

from __future__ import annotations

import io
import json
import re

import pyarrow.parquet as pq
import pytest

import sketchstream as ss
from helpers import pages
from helpers.serving import HOUR, serving
from sketchstream.cli import main
from sketchstream.config.loader import Config
from sketchstream.query.sealed import SealedReader
from sketchstream.query.windows import PublishedWindows
from sketchstream.stream.windows.calendar import Calendar, Width, iso
from sketchstream.stream.windows.plans import SketchPlan, plan_of_windows
from sketchstream_connectors.files.sealed import DirectorySealed

RENAMED = re.sub(r'^name = "(reach|counts|tables|series|rows|tree)"', r'name = "new-\1"', pages.EVERY_KIND, flags=re.M)
LISTED = (
    pages.EVERY_KIND
    + """
[key]
file = "key"
[[sketch]]
name = "listed"
kind = "gaussian"
window = "1h"
epsilon = 1
delta = 1e-6
domain = { items_file = "users.txt" }
"""
)
LAST = {"from": iso(pages.DAY + 2 * HOUR), "to": iso(pages.DAY + 3 * HOUR)}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("renamed")
    pages.publish_every_kind(folder)
    with serving(folder, RENAMED) as (service, client):
        pages.settle(service)
        yield folder, service, client


def formerly(folder, sketch, text=pages.EVERY_KIND):
    """The answer of the last window under the configuration that published it."""
    source, config = DirectorySealed(folder / "sealed"), Config.parse(text, folder / "x.toml")
    published = PublishedWindows(config, SealedReader(source, config.quality_rule), source)
    window = published.only_window(sketch, pages.DAY + 2 * HOUR, None)
    return json.loads(published.given_out(window.of_group("spring") if window.groups else window).to_json())


@pytest.mark.parametrize("sketch", pages.KINDS)
def test_every_kind_is_answered_under_its_former_name(site, run, monkeypatch, sketch):
    folder, service, client = site
    monkeypatch.chdir(folder)
    group = {"group": "spring"} if sketch == "reach" else {}
    what = "profile" if sketch == "reach" else "estimate"
    asked = client.get(f"/v1/sketches/{sketch}/{what}", params=LAST | group)
    assert asked.status_code == 200, asked.text
    numbers, before = asked.json(), formerly(folder, sketch)
    assert numbers["guarantee"].pop("unit") == before["guarantee"].pop("unit")
    assert {**numbers, "guarantee": None} == {**before, "guarantee": None}
    options = ("--sketch", sketch, "--from", LAST["from"], *(("--group", "spring") if group else ()))
    printed = run(what, "-c", "sketchstream.toml", *options, "--format", "json")
    assert json.loads(printed.out) == asked.json()
    windows = ss.windows("sketchstream.toml", sketch, group=group.get("group"))
    assert json.loads(windows[2].answer.to_json()) == asked.json()
    assert windows[2].start.isoformat() == "2013-01-01T02:00:00+00:00"

    described = client.get(f"/v1/sketches/{sketch}").json()
    assert not described["configured"]
    assert described["kind"] == service.config.plan(f"new-{sketch}").spec.kind
    assert not any(one.get("failure") for one in client.get(f"/v1/sketches/{sketch}/windows").json()["windows"])
    points = client.get(f"/v1/sketches/{sketch}/series", params=group).json()["points"]
    assert points[-1]["value"] is not None
    for table in ("numbers", "answers"):
        found = client.get(f"/v1/tables/{sketch}/{table}.parquet")
        assert pq.read_table(io.BytesIO(found.content)).num_rows
    addresses = ((f"/sketches/{sketch}", {}), (f"/sketches/{sketch}/window", LAST), (f"/sketches/{sketch}/compare", {}))
    for address, where in addresses:
        page = client.get(address, params=where | group)
        assert page.status_code == 200
        assert pages.Parsed(page.text).values
    first = pages.Parsed(client.get("/").text)
    assert f"/sketches/{sketch}" in first.links
    assert "removed or renamed" in first.said


def test_a_name_of_which_nothing_was_published_is_refused_as_before(site, run, monkeypatch):
    folder, _, client = site
    monkeypatch.chdir(folder)
    for name in ("none", "../sealed/counts"):
        printed = run("estimate", "-c", "sketchstream.toml", "--sketch", name)
        assert printed.code
        assert f"no sketch is named {name!r}" in printed.err
    assert client.get("/v1/sketches/none/estimate").status_code == 404


def test_items_have_their_names_again_when_their_list_is_configured_again(tmp_path):
    assert main(["keygen", "-o", str(tmp_path / "key")]) == 0
    (tmp_path / "users.txt").write_text("".join(f"{user}\n" for user in range(60)))
    pages.publish_every_kind(tmp_path, text=LISTED)
    for text, named in ((pages.EVERY_KIND, False), (LISTED, True), (pages.EVERY_KIND, False)):
        with serving(tmp_path, text) as (service, client):
            pages.settle(service)
            found = client.get("/v1/sketches/listed/estimate", params=LAST).json()
            assert any(found["labels"]["item"]) is named
            assert found["raw"] == formerly(tmp_path, "listed", LISTED)["raw"]


@pytest.mark.parametrize(
    ("width", "steps", "stride", "overlap"),
    [("1h", 1, 1, 1), ("1d", 1, 1, 1), ("1d", 7, 1, 7), ("10m", 3, 2, 2), ("1mo", 1, 1, 1)],
)
def test_the_plan_of_published_windows_has_as_many_at_a_time(width, steps, stride, overlap):
    spec = Config.parse(pages.EVERY_KIND).plan("counts").spec
    plan = SketchPlan("x", spec, Calendar(Width.parse(width)), steps=steps, stride=stride)
    start = plan.starts.window(pages.DAY)[0]
    windows = plan.within(start, start + 70 * 24 * HOUR)[:20]
    found = plan_of_windows("x", spec, windows)
    assert found.overlap == plan.overlap == overlap
    assert found.starts.shortest_ms >= plan.starts.shortest_ms
    assert found.shortest_ms >= plan.shortest_ms
    assert plan_of_windows("x", spec, windows[:1]).overlap == 1
