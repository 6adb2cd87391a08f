"""`init` writes a configuration that a worker runs, from a file or a topic, and says what is wrong before it writes."""

from __future__ import annotations

import csv
import json
import os
import pty
import re
import secrets
import select
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

import sketchstream as ss
from helpers.commands import Run
from sketchstream.cli.commands.start import init
from sketchstream.config.draft import Draft
from sketchstream.config.loader import Config
from sketchstream.stream.windows.calendar import Width

START = 1_700_000_000_000
USERS = 400
QUICK = ("--unit", "item", "--window", "1h", "--error", "20%", "--number", "distinct")


def event(number: int) -> dict[str, object]:
    return {"user": {"id": f"u{number % USERS}"}, "at": START + number * 1000, "country": "DE", "n": number % 3}


def jsonl(path: Path, events: int = 2000, change: Callable[[dict[str, object]], object] = lambda one: one) -> Path:
    path.write_text("".join(json.dumps(change(event(i))) + "\n" for i in range(events)))
    return path


def test_a_file_is_counted_with_what_init_writes(run: Run, tmp_path: Path) -> None:
    jsonl(tmp_path / "events.jsonl")
    made = run("init", "--file", "events.jsonl", "--item", "user.id", *QUICK)
    assert made.code == 0, made.err
    assert "one item is at most epsilon 1 " in made.out
    config = Config.load(tmp_path / "sketchstream.toml")
    assert (config.input.item, config.input.time, config.format) == ("user.id", "at", "jsonl")
    (plan,) = config.sketches
    assert plan.spec.unit == "item"
    assert f"worker -c {'sketchstream.toml'}" in made.out
    assert (tmp_path / "sketch.key").stat().st_mode & 0o777 == 0o600
    for step in ("validate", "worker"):
        assert run(step, "-c", "sketchstream.toml").code == 0
    answer = run("profile", "-c", "sketchstream.toml", "--sketch", "people", "--all", "--format", "json")
    (window,) = [json.loads(line) for line in answer.out.splitlines()]
    assert window["distinct"]["low"] <= USERS <= window["distinct"]["high"]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_a_file_with_fewer_records_than_the_sketch_needs_is_said_so(run: Run, tmp_path: Path, form: str) -> None:
    """2,000 records, sized for four groups of tens of thousands of users: every answer would be noise."""
    rows = [{"user": f"u{i % 400}", "at": START + i * 1000, "country": "DE"} for i in range(2000)]
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "e.parquet")
    elif form == "csv":
        with (tmp_path / "e.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, ["user", "at", "country"])
            table.writeheader()
            table.writerows(rows)
    else:
        (tmp_path / "e.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    base = ("init", "--file", f"e.{form}", "--item", "user", "--unit", "item", "--window", "1h", "--number", "distinct")
    made = run(*base, "--error", "20%", "--group-by", "country", "--groups", "DE,FR,US,BR", "--max-groups", "4")
    assert made.code == 0, made.err
    said = re.search(r"warning: e\.\w+ has about ([\d,]+) records", made.err)
    assert said, made.err
    assert 1900 <= int(said[1].replace(",", "")) <= 2100
    assert "--max-groups 1" in made.err
    fine = run(*base, "--error", "20%", "-o", "fine.toml")
    assert fine.code == 0
    assert "records, so its windows" not in fine.err


def test_a_first_line_that_is_data_is_not_shown(run: Run, tmp_path: Path) -> None:
    """Its values stand where names should, and one of them is a person's."""
    lines = [f"2024-03-04T00:00:{i % 60:02d}Z,FR,v{i:05d}" for i in range(200)]
    (tmp_path / "nohead.csv").write_text("\n".join(lines))
    refused = run("init", "--file", "nohead.csv", "--item", "visitor", *QUICK)
    assert refused.code != 0
    assert "first line must name the columns" in refused.err
    assert "v00000" not in refused.said


def test_csv_parquet_and_avro_are_looked_at_too(run: Run, tmp_path: Path) -> None:
    rows = [{"user_id": f"u{i % 50}", "time": START + i, "n": i} for i in range(500)]
    with (tmp_path / "e.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, ["user_id", "time", "n"])
        table.writeheader()
        table.writerows(rows)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "e.parquet")
    fields = [{"name": "user_id", "type": "string"}, *({"name": name, "type": "long"} for name in ("time", "n"))]
    with (tmp_path / "e.avro").open("wb") as out:
        fastavro.writer(out, {"type": "record", "name": "E", "fields": fields}, rows, codec="deflate")
    for form in ("csv", "parquet", "avro"):
        made = run("init", "--file", f"e.{form}", "--item", "user_id", "-o", f"{form}.toml", "--key-file", "k", *QUICK)
        assert made.code == 0, made.err
        config = Config.load(tmp_path / f"{form}.toml")
        assert (config.input.item, config.input.time, config.format) == ("user_id", "time", form)
        assert run("validate", "-c", f"{form}.toml").code == 0


def test_columns_in_columns_of_parquet_are_counted(run: Run, tmp_path: Path) -> None:
    """And days are times, as whoever reads the file takes them."""
    days = pa.array([datetime(2026, 1, 1 + i // 250, tzinfo=UTC).date() for i in range(500)])
    users = pa.array([{"id": f"u{i % 50}", "from": {"land": "FR"}} for i in range(500)])
    rows = pa.table({"user": users, "day": days, "n.m": range(500)})
    pq.write_table(rows, tmp_path / "e.parquet")
    split = ("--group-by", "user.from.land", "--groups", "FR,DE")
    made = run("init", "--file", "e.parquet", "--item", "user.id", *split, *QUICK)
    assert made.code == 0
    assert run("worker", "-c", "sketchstream.toml").code == 0
    lines = run("profile", "-c", "sketchstream.toml", "--all", "--by", "group", "--format", "json").out.splitlines()
    assert [json.loads(line)["group"] for line in lines] == ["FR", "DE"] * 2
    refused = run("init", "--file", "e.parquet", "--item", "user", "-o", "x.toml", *QUICK)
    assert "fields there are: day, n.m, user.from.land, user.id" in refused.err


def test_what_a_file_cannot_be_read_for_is_a_warning_below_its_configuration(run: Run, tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("id,ts,id\n" + "1,2026-01-01T00:00:00Z,2\n" * 200)
    floats = [None if i % 5 else float(i) for i in range(200)]
    pq.write_table(pa.table({"id": floats, "ts": [START] * 200}), tmp_path / "e.parquet")
    for form, said in (("csv", "more than one column 'id' among the 3 columns"), ("parquet", "of integers with gaps")):
        made = run("init", "--file", f"e.{form}", "--item", "id", "-o", f"{form}.toml", *QUICK)
        assert made.code == 0
        assert f"warning: {'there is ' * (form == 'csv')}" in made.err
        assert said in made.err
    jsonl(tmp_path / "few.jsonl", 9)
    few = run("init", "--file", "few.jsonl", *QUICK)
    assert "(fields are named from 10 records on)" in few.err


@pytest.mark.parametrize(("unit", "factor"), [("s", 0.001), ("us", 1000), ("ns", 10**6)])
def test_numbers_in_another_unit_are_found_and_counted(run: Run, tmp_path: Path, unit: str, factor: float) -> None:
    """Parts of a second too, which Python's `time.time()` has."""
    jsonl(tmp_path / "e.jsonl", 400, lambda one: one | {"at": one["at"] * factor, "order": 1_764_000_000})
    made = run("init", "--file", "e.jsonl", "--item", "user.id", "-o", "c.toml", *QUICK)
    assert made.code == 0, made.err
    config = Config.load(tmp_path / "c.toml")
    assert (config.input.time, config.input.time_unit) == ("at", unit)
    assert run("validate", "-c", "c.toml").code == 0
    assert run("worker", "-c", "c.toml").code == 0
    windows = ss.windows(tmp_path / "c.toml", "people")
    assert windows[0].start.timestamp() * 1000 <= START < windows[0].end.timestamp() * 1000
    text = (tmp_path / "c.toml").read_text()
    (tmp_path / "c.toml").write_text(text.replace(f'time_unit = "{unit}"', 'time_unit = "ms"'))
    wrong = run("validate", "-c", "c.toml")
    assert wrong.code != 0
    assert f'set input.time_unit = "{unit}"' in wrong.err or "readable time" in wrong.err


CHANNELS = ("search", "social", "email")
SPLIT = ("--file", "e.jsonl", "--item", "user.id", "--group-by", "channel")


def split(path: Path) -> None:
    jsonl(path / "e.jsonl", 1500, lambda one: one | {"channel": CHANNELS[int(str(one["at"])[:-3]) % 3]})


def test_answers_are_split_by_a_field_at_the_same_loss(run: Run, tmp_path: Path) -> None:
    split(tmp_path)
    made = run("init", *SPLIT, "--groups", ",".join(CHANNELS), *QUICK)
    assert made.code == 0, made.err
    assert "loss of one item is at most epsilon 1 against readers" in made.out, "not one for each group"
    assert "in each of 3 groups" in made.out
    assert "--all --by group --number distinct\n" in made.out
    config = Config.load(tmp_path / "sketchstream.toml")
    (plan,) = config.sketches
    assert (plan.spec.groups.names, plan.fields) == (CHANNELS, {"group": "channel"})
    assert plan.spec.epsilon_publish * 3 == 1
    assert run("worker", "-c", "sketchstream.toml").code == 0
    (command,) = [line.split()[1:] for line in made.out.splitlines() if line.strip().startswith("sketchstream profile")]
    shown = run(*command)
    assert shown.code == 0, shown.err
    assert all(name in shown.out for name in CHANNELS)


def test_an_item_may_be_kept_to_a_few_groups(run: Run, tmp_path: Path) -> None:
    split(tmp_path)
    (tmp_path / "groups.txt").write_text("\n".join(CHANNELS))
    made = run("init", *SPLIT, "--groups", "groups.txt", "--max-groups", "1", *QUICK)
    assert made.code == 0, made.err
    (plan,) = Config.load(tmp_path / "sketchstream.toml").sketches
    assert (plan.spec.groups.limit, plan.spec.groups.max_groups, plan.spec.epsilon_publish) == ("ranked", 1, 1)
    assert 'groups = "groups.txt"' in (tmp_path / "sketchstream.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--group-by", "chanel", "--groups", "a,b"), "did you mean 'channel'?"),
        (("--group-by", "channel"), "Missing option '--groups'"),
        (("--group-by", "channel", "--groups", "3"), "found a number: 3"),
        (("--group-by", "channel", "--groups", "a,b", "--max-groups", "3"), "max_groups must be"),
        (("--group-by", "channel", "--groups", "missing.txt"), "missing.txt"),
        (("--groups", "a,b"), "belong to --group-by"),
        (("--max-groups", "2"), "belong to --group-by"),
        (
            ("--group-by", "channel", "--groups", "a,b", "--max-groups", "1", "--unit", "event"),
            "belongs to --unit item",
        ),
    ],
)
def test_groups_that_cannot_be_are_refused(run: Run, tmp_path: Path, arguments: tuple[str, ...], text: str) -> None:
    split(tmp_path)
    done = run("init", "--file", "e.jsonl", "--item", "user.id", *QUICK, *arguments)
    assert done.code in (1, 2), done.err
    assert text in done.err
    assert not (tmp_path / "sketchstream.toml").exists()


def test_a_misspelt_group_is_said_at_once(run: Run, tmp_path: Path) -> None:
    split(tmp_path)
    made = run("init", *SPLIT, "--groups", "serch,social,email", *QUICK)
    assert made.code == 0, made.err
    assert "lists 'serch' of the field 'channel'" in made.err
    assert "search" not in made.err


@pytest.mark.parametrize("diagnostics", ["exact", "off"])
def test_a_worker_says_that_a_group_is_misspelt(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture, diagnostics: str
) -> None:
    """A file is read without `validate`; where exact numbers may not be logged, neither may what a sample lacks."""
    split(tmp_path)
    assert run("init", *SPLIT, "--groups", "serch,social,email", *QUICK).code == 0
    text = (tmp_path / "sketchstream.toml").read_text()
    (tmp_path / "sketchstream.toml").write_text(f'{text}\n[privacy]\ndiagnostics = "{diagnostics}"\n')
    done = run("worker", "-c", "sketchstream.toml")
    assert done.code == 0, done.err
    assert ("lists 'serch' of the field 'channel'" in caplog.text + done.err) is (diagnostics == "exact")


def test_mistakes_are_said_before_anything_is_written(run: Run, tmp_path: Path) -> None:
    jsonl(tmp_path / "e.jsonl", 200)
    jsonl(tmp_path / "untimed.jsonl", 200, lambda one: one | {"at": "yesterday"})
    jsonl(tmp_path / "naive.jsonl", 200, lambda one: one | {"at": "2026-11-25 10:00:00"})
    rows = pa.table({"user": ["a", "b"] * 50, "at": pa.array([START] * 100, pa.timestamp("ms"))})
    pq.write_table(rows, tmp_path / "naive.parquet")
    (tmp_path / "array.jsonl").write_text(json.dumps([{"user": "a", "at": START}] * 20, indent=1))
    (tmp_path / "lines.txt").write_text("a\nb\n")
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "broken.jsonl").write_text("no json\n" * 20)
    (tmp_path / "wide.csv").write_text("user,at\nü,2026-01-01T00:00:00Z\n" * 20, "utf-16")
    (tmp_path / "wide.jsonl").write_text((tmp_path / "e.jsonl").read_text(), "utf-16")
    jsonl(tmp_path / "dotted.jsonl", 200, lambda one: {"user.id": "a", "at": START})
    cases = {
        ("--file", "e.jsonl", "--item", "user.ident"): "did you mean 'user.id'?",
        ("--file", "e.jsonl"): "Missing option '--item', such as --item user.id",
        ("--file", "e.jsonl", "--item", "user.id", "--time", "att"): "did you mean 'at'?",
        ("--file", "e.jsonl", "--item", "user.id", "--error", "2"): "--error takes a share",
        ("--file", "e.jsonl", "--item", "user.id", "--window", "1 fortnight"): "window",
        ("--file", "untimed.jsonl", "--item", "user.id"): "no field of the sample is surely a time",
        ("--file", "naive.jsonl", "--item", "user.id"): "'at' says no instant, as its times have no offset",
        ("--file", "naive.parquet", "--item", "user"): "'at' says no instant, as its times have no offset",
        ("--file", "array.jsonl", "--item", "user"): "array.jsonl is a JSON array, not one JSON object a line: `jq",
        ("--file", "dotted.jsonl", "--item", "user.id"): "'user.id' is one name with a dot in it",
        ("--file", "wide.csv", "--item", "user"): "is not UTF-8, which is expected: where it is UTF-16, `iconv",
        ("--file", "wide.jsonl", "--item", "user"): "wide.jsonl is not UTF-8",
        ("--file", "lines.txt", "--item", "x"): "no fields to choose from",
        ("--file", "empty.jsonl", "--item", "x"): "holds no record",
        ("--file", "broken.jsonl", "--item", "x"): "holds no record",
        ("--file", "missing.jsonl", "--item", "x"): "cannot read",
        ("--file", "e.dat", "--item", "x"): "names no known format",
        (): "either --topic or --file",
        ("--topic", "t", "--file", "e.jsonl"): "either --topic or --file",
        ("--file", "e.jsonl", "--group", "g"): "belong to --topic",
        ("--topic", "t", "--kafka", "sasl.plain.password=x"): "is a secret",
        ("--topic", "t", "--kafka", "nonsense"): "NAME=VALUE",
        ("--topic", "t", "--bootstrap-servers", "127.0.0.1:1"): "cannot be reached",
    }
    for arguments, text in cases.items():
        done = run("init", *arguments, *(() if "--window" in arguments or "--error" in arguments else QUICK))
        assert done.code in (1, 2), arguments
        assert text in done.err, (arguments, done.err)
        assert "Traceback" not in done.err
        assert "internal" not in done.err
        assert not (tmp_path / "sketchstream.toml").exists()
        assert not (tmp_path / "sketch.key").exists()


def test_nothing_is_overwritten(run: Run, tmp_path: Path) -> None:
    jsonl(tmp_path / "e.jsonl", 200)
    (tmp_path / "sketchstream.toml").write_text("mine")
    done = run("init", "--file", "e.jsonl", "--item", "user.id", *QUICK)
    assert (done.code, (tmp_path / "sketchstream.toml").read_text()) == (1, "mine")
    assert "never overwritten" in done.complaint
    assert run("keygen", "-o", "sketch.key").code == 0
    before = (tmp_path / "sketch.key").read_bytes()
    assert run("init", "--file", "e.jsonl", "--item", "user.id", "-o", "other.toml", *QUICK).code == 0
    assert (tmp_path / "sketch.key").read_bytes() == before  # the key that is there is used


def test_no_value_of_the_sample_is_shown(run: Run, tmp_path: Path) -> None:
    jsonl(tmp_path / "e.jsonl", 300, lambda one: one | {"user": {"id": f"MARK{one['n']}"}, "country": "MARKED"})
    made = run("init", "--file", "e.jsonl", "--item", "user.id", *QUICK)
    assert made.code == 0
    assert "MARK" not in made.said + (tmp_path / "sketchstream.toml").read_text()


@pytest.mark.parametrize("groups", ["none", "two"])
def test_a_terminal_is_asked_questions(tmp_path: Path, groups: str) -> None:
    jsonl(tmp_path / "e.jsonl", 300)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "sketchstream.cli", "init", "--file", "e.jsonl", "--number", "distinct"]
    process = subprocess.Popen(command, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True)
    os.close(theirs)
    answers = {
        b"What to count": b"\n",
        b"Protect everything": b"item\n",
        b"Split answers by": b"\n",
        b"How wide": b"1h\n",
        b"relative error": b"20%\n",
    }
    if groups == "two":
        answers |= {b"Split answers by": b"country\n", b"Its values": b"DE, FR\n", b"In how many of these 2": b"1\n"}
    said, waiting, deadline = b"", dict(answers), time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([ours], [], [], 1)[0]:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # the other side is closed
                break
            said += piece
        for question in [one for one in waiting if one in said]:
            os.write(ours, waiting.pop(question))
    assert process.wait(timeout=60) == 0, said.decode()
    os.close(ours)
    assert not waiting
    assert b"user.id" in said  # listed, and suggested as what looks like people
    config = Config.load(tmp_path / "sketchstream.toml")
    assert (config.input.item, config.sketches[0].window) == ("user.id", "1h")
    found = config.sketches[0].spec.groups
    assert found is None if groups == "none" else (found.names, found.max_groups) == (("DE", "FR"), 1)


@pytest.mark.kafka
@pytest.mark.parametrize("unit", ["ms", "s"])
def test_a_topic_is_looked_at_and_its_partitioner_found(kafka: str, run: Run, tmp_path: Path, unit: str) -> None:
    from kafka import KafkaAdminClient

    topic = f"init-{secrets.token_hex(4)}"
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    configs = {"retention.ms": "-1"}
    admin.create_topics({topic: {"num_partitions": 3, "replication_factor": 1, "configs": configs}})
    admin.wait_for_topics([topic])
    admin.close()
    arguments = ("--topic", topic, "--bootstrap-servers", kafka, "--item", "user.id", *QUICK)
    empty = run("init", *arguments)
    assert empty.code == 2
    assert "holds no records" in empty.err
    producer = Producer({"bootstrap.servers": kafka, "partitioner": "murmur2_random"})
    now = time.time_ns() // 1_000_000
    for number in range(3000):
        at = now - 3000 + number
        one = event(number) | {"at": at if unit == "ms" else at / 1000, "user": {"id": f"u{number % 1500}"}}
        producer.produce(topic, json.dumps(one).encode(), key=str(one["user"]["id"]).encode())  # type: ignore[index]
    producer.flush(30)
    made = run("init", *arguments)
    assert made.code == 0, made.err
    config = Config.load(tmp_path / "sketchstream.toml")
    assert config.partitioner == "murmur2"
    assert (config.input.time, config.input.time_unit, config.group) == ("at", unit, f"sketchstream-{topic}")
    assert "topics create" in made.out
    assert run("topics", "create", "-c", "sketchstream.toml").code == 0
    assert run("validate", "-c", "sketchstream.toml").code == 0
    other = "ms" if unit == "s" else "us"
    text = (tmp_path / "sketchstream.toml").read_text().replace(f'time_unit = "{unit}"', "")
    text = text.replace('time = "at"', f'time = "at"\ntime_unit = "{other}"')
    (tmp_path / "sketchstream.toml").write_text(text)
    wrong = run("validate", "-c", "sketchstream.toml")
    assert wrong.code != 0
    assert ("readable time" if unit == "s" else 'set input.time_unit = "ms"') in wrong.err


@pytest.mark.parametrize(("window", "waits"), [("1m", 10), ("30m", 300), ("1h", None), ("1d", None), ("1mo", None)])
def test_a_short_window_of_a_topic_waits_a_sixth_of_itself(window: str, waits: int | None) -> None:
    kafka = {"bootstrap.servers": "127.0.0.1:9092", "group.id": "g"}
    found = init._wait_s(Width.parse(window))
    assert found == waits
    draft = Draft("user", "ts", "key", topic="events", kafka=kafka, wait_s=found)
    given = Config.parse(draft.text(init.PROVISIONAL.replace('"1d"', f'"{window}"'))).input
    usual = (600_000, 150_000, None) if found is None else (1000 * found, 1000 * found, 60_000)
    assert (given.lateness, given.quorum_time, given.max_ahead) == usual
