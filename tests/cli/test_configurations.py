"""`validate`: what it says of a good configuration, and one clear line for each bad one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.commands import Run
from sketchstream.config.checks import looks_like_people

GOOD = """
[kafka]
"bootstrap.servers" = "127.0.0.1:1"
"group.id" = "reach"
[input]
topic = "events"
format = "json"
item = "user_id"
time = "ts"
partitioned_by = "item"
partitioner = "murmur2"
[key]
file = "key"
[[sketch]]
name = "hourly"
window = "1h"
unit = "event"
epsilon = "1"
domain = { slots = 65536, levels = 4 }
"""

FILE = """
[input]
file = "e.jsonl"
item = "user_id"
time = "ts"
[key]
file = "key"
[[sketch]]
name = "hourly"
window = "1h"
unit = "event"
epsilon = "1"
domain = { slots = 65536, levels = 4 }
"""

BAD: list[tuple[str, str, str, str]] = [
    (GOOD, "[kafka]", "[kafka", "not valid TOML"),
    (GOOD, 'topic = "events"', 'topik = "events"', "did you mean"),
    (GOOD, '"group.id" = "reach"', "", "group.id"),
    (GOOD, '"bootstrap.servers" = "127.0.0.1:1"', "", "bootstrap.servers"),
    (GOOD, '"group.id" = "reach"', '"group.id" = "reach"\nacks = "1"', "acks"),
    (GOOD, '"group.id" = "reach"', '"group.id" = "reach"\n"transactional.id" = "x"', "fence"),
    (GOOD, '"group.id" = "reach"', '"group.id" = "reach"\n"enable.auto.commit" = true', "enable.auto.commit"),
    (GOOD, 'partitioned_by = "item"', "", "partitioned_by is missing"),
    (GOOD, 'partitioned_by = "item"', 'partitioned_by = "none"', "publish = 'state'"),
    (GOOD, 'partitioned_by = "item"', 'partitioned_by = "luck"', "must be"),
    (GOOD, 'item = "user_id"', "", "input.item is missing"),
    (GOOD, 'format = "json"', 'format = "csv"', "input.format"),
    (GOOD, 'format = "json"', 'format = "key"', "input.item"),
    (GOOD, 'window = "1h"', 'window = "7h"', "does not divide a day"),
    (GOOD, 'window = "1h"', 'window = "soon"', "a window is"),
    (GOOD, 'window = "1h"', "", "window is missing"),
    (GOOD, 'window = "1h"', 'window = "1h"\ntimezone = "Mars/Olympus"', "Mars/Olympus"),
    (GOOD, 'epsilon = "1"', 'epsilon = "-1"', "positive rational"),
    (GOOD, 'epsilon = "1"', 'epsilon = "100"', "above 50"),
    (GOOD, 'epsilon = "1"', "", "epsilon is missing"),
    (GOOD, 'unit = "event"', 'unit = "person"', "unit"),
    (GOOD, 'unit = "event"', 'unit = "item"\nmodulus = 1', "modulus"),
    (GOOD, 'epsilon = "1"', 'epsilon = "1"\npublish = "state"', "intrusion"),
    (GOOD, 'epsilon = "1"', 'epsilon = "1"\nkind = "magic"', "kind"),
    (GOOD, "slots = 65536, levels = 4", "slots = 65536, size = 5", "exactly one of"),
    (GOOD, "slots = 65536, levels = 4", 'items_file = "nowhere.txt"', "nowhere.txt"),
    (GOOD, "slots = 65536, levels = 4", "size = 5", "item_type = 'int'"),
    (GOOD, "slots = 65536, levels = 4", "slots = 65536, levles = 4", "did you mean"),
    (GOOD, 'name = "hourly"', 'name = "Hourly!"', "name"),
    (GOOD, '[key]\nfile = "key"', "", "key"),
    (GOOD, "[[sketch]]", '[privacy]\nmax_epsilon = "1/2"\n[[sketch]]', "max_epsilon"),
    (GOOD, "[[sketch]]", '[store]\nkind = "dir"\n[[sketch]]', "store.kind"),
    (GOOD, "[[sketch]]", '[worker]\nmetrics = "nowhere"\n[[sketch]]', "HOST:PORT"),
    (GOOD, "[[sketch]]", '[store]\nsnapshot_every = "1ms"\n[[sketch]]', "snapshot_every"),
    (GOOD, "[[sketch]]", '[worker]\nmemory_limit = "lots"\n[[sketch]]', "memory_limit"),
    (GOOD, "domain = {", 'domain = "big" #{', "domain"),
    (FILE, 'file = "e.jsonl"', 'file = "e.log"', "input.format is missing"),
    (FILE, 'time = "ts"', "", "input.time is missing"),
    (FILE, 'file = "e.jsonl"', 'file = "e.txt"', "no event times"),
    (FILE, 'time = "ts"', 'time = "ts"\npartitioned_by = "item"', "belongs to input.topic"),
    (FILE, 'time = "ts"', 'time = "ts"\nlateness = "a while"', "lateness"),
    (FILE, "[[sketch]]", '[store]\nkind = "kafka"\n[[sketch]]', "needs input.topic"),
]


@pytest.mark.parametrize(
    ("text", "old", "new", "complaint"), BAD, ids=[f"{new or 'no ' + old}" for _, old, new, _ in BAD]
)
def test_bad_configuration_is_one_clear_line(
    run: Run, key: Path, tmp_path: Path, text: str, old: str, new: str, complaint: str
) -> None:
    assert text.count(old) == 1
    (tmp_path / "c.toml").write_text(text.replace(old, new))
    result = run("validate", "--offline", "-c", "c.toml")
    assert complaint in result.complaint
    assert result.code == 2, result.complaint
    assert result.out == ""


def test_missing_configuration_and_missing_key(run: Run, tmp_path: Path) -> None:
    missing = run("validate", "-c", "nowhere.toml")
    assert "nowhere.toml" in missing.complaint
    (tmp_path / "c.toml").write_text(GOOD)
    result = run("validate", "--offline", "-c", "c.toml")
    assert result.code == 1
    assert "key" in result.complaint


def test_environment_overrides_the_file(run: Run, key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c.toml").write_text(GOOD)
    monkeypatch.setenv("SKETCHSTREAM__SKETCH__HOURLY__EPSILON", "1/2")
    data = json.loads(run("validate", "--offline", "-c", "c.toml", "--format", "json").out)
    assert data["sketches"][0]["epsilon"] == "1/2"
    monkeypatch.setenv("SKETCHSTREAM__SKETCH__DAILY__EPSILON", "1/2")
    assert "daily" in run("validate", "--offline", "-c", "c.toml").complaint


def test_validate_says_what_sketches_cost_together(run: Run, key: Path, tmp_path: Path) -> None:
    second = GOOD[GOOD.index("[[sketch]]") :].replace("hourly", "daily").replace('"1h"', '"1d"').replace('"1"', '"1/2"')
    (tmp_path / "c.toml").write_text(GOOD + second)
    data = json.loads(run("validate", "-c", "c.toml", "--partitions", "4", "--format", "json").out)
    assert [sketch["loss"] for sketch in data["sketches"]] == ["1", "1/2"]
    assert {sketch["loss_with_all_sketches"] for sketch in data["sketches"]} == {"3/2"}
    assert data["partitions"] == 4
    assert "open windows of 4 partitions" in data["memory"]
    table = run("validate", "--offline", "-c", "c.toml").out
    assert "hourly" in table
    assert "daily" in table


def test_validate_names_an_input_file_that_is_missing_and_an_output_that_is_no_folder(
    run: Run, key: Path, tmp_path: Path
) -> None:
    (tmp_path / "c.toml").write_text(FILE)
    missing = run("validate", "-c", "c.toml")
    assert missing.code == 0, missing.err
    assert "warning: input.file = 'e.jsonl': there is no such file, and a worker ends without it" in missing.err
    (tmp_path / "e.jsonl").write_text('{"user_id": "zebra", "ts": "2024-01-01T00:00:00Z"}\n')
    assert "no such file" not in run("validate", "-c", "c.toml").err
    (tmp_path / "taken").write_text("")
    (tmp_path / "c.toml").write_text(FILE.replace("[[sketch]]", '[output]\ndirectory = "taken/below"\n[[sketch]]'))
    for command in ("validate", "worker"):
        done = run(command, "-c", "c.toml")
        assert done.code == 2, done.err
        assert "output.directory must be a folder, or where one can be made, but " in done.err
        assert done.err.rstrip().endswith("taken is a file")


def test_validate_warns_of_unkeyed_topics_and_of_many_partitions(run: Run, key: Path, tmp_path: Path) -> None:
    text = GOOD.replace('partitioned_by = "item"', 'partitioned_by = "none"')
    (tmp_path / "c.toml").write_text(text + 'publish = "state"\nintrusion = false\n')
    result = run("validate", "-c", "c.toml", "--partitions", "3", "--format", "json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["sketches"][0]["merge_factor"] == pytest.approx(4.6827**2, rel=1e-3)
    assert "key the topic by item" in result.err
    (tmp_path / "d.toml").write_text(GOOD)
    assert "257 partitions" in run("validate", "-c", "d.toml", "--partitions", "257").err


@pytest.mark.parametrize(("modulus", "warned"), [(2, True), (4, True), (8, False), (32, False)])
def test_validate_warns_of_a_modulus_that_wraps_usual_counts(
    run: Run, key: Path, tmp_path: Path, modulus: int, warned: bool
) -> None:
    (tmp_path / "c.toml").write_text(GOOD.replace('unit = "event"', f'unit = "item"\nmodulus = {modulus}'))
    result = run("validate", "-c", "c.toml", "--partitions", "3", "--offline")
    assert result.code == 0, result.err
    assert ("of the items have" in result.err) == warned
    assert ("modulus 32 leaves 0.48%" in result.err) == warned


def test_counters_of_presence_have_no_counts_that_wrap(run: Run, key: Path, tmp_path: Path) -> None:
    block = 'unit = "item"\ngroup_by = "g"\ngroups = ["a", "b"]\noverlap = true\ncounts = "presence"\nmodulus = 3'
    (tmp_path / "c.toml").write_text(GOOD.replace('unit = "event"', block))
    result = run("validate", "-c", "c.toml", "--partitions", "3", "--offline", "--format", "json")
    assert result.code == 0, result.err
    assert "of the items have" not in result.err
    assert "items_beyond_modulus" not in result.out


def test_a_lost_key_is_not_to_be_made_anew(run: Run, key: Path, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(FILE)
    key.unlink()
    for command in ("validate", "worker"):
        lost = run(command, "-c", "c.toml")
        assert lost.code == 1
        assert "bring it back from its backup" in lost.complaint
        assert "If nothing was counted yet" in lost.complaint
        assert "begin a new revision with `sketchstream reset`" in lost.complaint  # a file takes no --to
    (tmp_path / "c.toml").write_text(GOOD)
    assert "with `sketchstream reset --to committed`" in run("validate", "-c", "c.toml", "--offline").complaint


def test_commands_for_topics_refuse_files(run: Run, key: Path, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(FILE)
    for command in (["topics", "create"], ["topics", "acls"], ["validate", "--online"]):
        result = run(*command, "-c", "c.toml")
        assert result.code == 2
        assert "input.topic" in result.complaint


def test_acls_name_every_topic_without_a_broker(run: Run, key: Path, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(GOOD)
    rows = json.loads(run("topics", "acls", "-c", "c.toml", "--format", "json").out)
    assert {row["name"] for row in rows} >= {"events", "reach.events.state", "reach.sealed", "reach"}


@pytest.mark.parametrize("command", [["worker"], ["validate", "--online"], ["topics", "create"]])
def test_broker_that_is_not_there_is_one_line(spawn: Run, key: Path, tmp_path: Path, command: list[str]) -> None:
    quick = '"admin.bootstrap.timeout.ms" = 1000\n"group.id"'
    (tmp_path / "c.toml").write_text(GOOD.replace('"group.id"', quick))
    result = spawn(*command, "-c", "c.toml")
    assert result.code == 1, result.err
    assert "127.0.0.1:1 cannot be reached: 111 ECONNREFUSED" in result.complaint
    assert len(result.err.splitlines()) == 1


def test_a_period_beyond_the_budget_is_refused_before_anything_is_drawn(run: Run, key: Path, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text('{"user": "a", "ts": 1700000000000}\n')
    text = """
[input]
file = "events.jsonl"
item = "user"
time = "ts"
close_at_end = true
[key]
file = "key"
[privacy]
budget = { epsilon = "LIMIT", per = "1d" }
[[sketch]]
name = "hourly"
window = "1h"
epsilon = "1/2"
unit = "item"
domain = { slots = 64, levels = 1 }
"""
    (tmp_path / "c.toml").write_text(text.replace("LIMIT", "11"))
    for command in ("validate", "worker", "ledger"):
        refused = run(command, "-c", "c.toml")
        assert "an item could lose 12 in one period (hourly 24 times 1/2)" in refused.complaint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.toml", "events.jsonl", "key"]
    (tmp_path / "c.toml").write_text(text.replace("LIMIT", "12"))
    checked = json.loads(run("validate", "--offline", "-c", "c.toml", "--format", "json").out)
    assert checked["budget"] == "an item loses at most 12 of 12 per 1d"
    run("worker", "-c", "c.toml")
    assert "privacy.budget is 12 per 1d; in one period one event lost at most 1/2" in run("ledger", "-c", "c.toml").out


def test_a_profile_that_does_not_say_its_unit_is_refused_with_both_words(run: Run, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(FILE.replace('unit = "event"\n', ""))
    for command in ("validate", "worker"):
        result = run(command, "-c", "c.toml")
        assert result.code == 2
        assert 'sketch "hourly".unit is missing: unit = "item" protects everything that one item' in result.err
        assert 'unit = "event" protects one event' in result.err
    made = run("create", "-o", "s", "--epsilon", "1", "--size", "5")
    assert made.code == 2
    assert "--unit is needed: --unit item protects everything" in made.err
    assert "--unit event protects one event" in made.err
    assert "--unit is needed" in run("plan", "--epsilon", "1", "--size", "5", "--items", "3").err
    (tmp_path / "t.toml").write_text("epsilon = 1\ndomain = { size = 64 }\n")
    assert "unit is missing: unit" in run("create", "-o", "s", "--table", "t.toml").err
    assert not (tmp_path / "s").exists()


def test_other_kinds_are_asked_for_their_unit_where_items_look_like_people(run: Run, key: Path, tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text('{"user_id": "a", "airport": "b", "ts": 1700000000000}\n')
    said = FILE.replace("epsilon", 'kind = "gaussian"\ndelta = "1e-6"\nepsilon', 1)
    said = said.replace("slots = 65536, levels = 4", 'items_file = "users.txt"')
    (tmp_path / "users.txt").write_text("a\nb\n")
    unsaid = said.replace('unit = "event"\n', "")
    for text, asked in ((unsaid, True), (said, False), (unsaid.replace('"user_id"', '"airport"'), False)):
        (tmp_path / "c.toml").write_text(text)
        result = run("validate", "-c", "c.toml")
        assert result.code == 0, result.err
        assert ("sketch \"hourly\" counts 'user_id', which looks like people" in result.err) == asked


@pytest.mark.parametrize("name", ["user_id", "userId", "user.id", "customers", "Email", "account_number", "device-id"])
def test_fields_of_people_are_known(name: str) -> None:
    assert looks_like_people(name)


@pytest.mark.parametrize("name", [None, "airport", "user_agent", "superuser_count", "url", "sku", "campaign_id"])
def test_fields_of_other_things_are_not_taken_for_people(name: str | None) -> None:
    assert not looks_like_people(name)
