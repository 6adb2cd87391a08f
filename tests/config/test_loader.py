"""Configuration: what is read, and a clear line for everything that cannot be."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from helpers.configurations import HOURLY_TOPIC
from sketchstream.config import resources
from sketchstream.config.loader import Config
from sketchstream.errors import ConfigError
from sketchstream.items.item_lists import read_items
from sketchstream.spec import ClosedDomain, NoPrivacyWarning, OpenDomain
from sketchstream.stream.windows.quorum import Quorum
from sketchstream.stream.windows.units import duration_ms, size_bytes
from sketchstream_connectors.factory import rules

TOPIC = HOURLY_TOPIC
FILE = """
[input]
file = "events.jsonl"
item = "user_id"
time = "ts"
[[sketch]]
name = "daily"
unit = "event"
window = "1d"
timezone = "America/New_York"
epsilon = "1/2"
domain = { size = 100 }
"""
FILE = FILE.replace('time = "ts"', 'time = "ts"\nitem_type = "int"')


def parse(text: str, **environ: str) -> Config:
    return Config.parse(text, "/etc/reach/c.toml", environ)


def test_defaults_of_a_topic() -> None:
    config = parse(TOPIC)
    plan = config.plan("hourly")
    assert (config.group, config.format, config.sealed_topic) == ("reach", "json", "reach.sealed")
    assert config.sealed_directory is None
    assert config.key_file == Path("/etc/reach/k")
    assert plan.spec.epsilon == Fraction(1)
    assert plan.spec.domain == OpenDomain(1024, 4)
    assert (config.input.lateness, config.max_ahead, config.input.idle) == (600_000, 600_000, 600_000)
    assert config.quorum == Quorum(records=10, time_ms=150_000, most=10_000)
    assert config.input.idle_topic == 3_600_000
    assert config.store.snapshot_every == 30_000
    assert config.checks_partitions


def test_defaults_of_a_file() -> None:
    config = parse(FILE)
    assert config.format == "jsonl"
    assert config.input_file == Path("/etc/reach/events.jsonl")
    assert config.store_path == Path("/etc/reach/state")
    assert config.sealed_directory == Path("/etc/reach/sealed")
    assert config.sealed_topic is None
    assert config.plan("daily").spec.domain == ClosedDomain(size=100)
    assert not config.checks_partitions
    assert parse(FILE.replace("events.jsonl", "-").replace("item =", 'format = "json"\nitem =')).input_file is None


def test_environment_overrides_the_file() -> None:
    config = parse(
        TOPIC,
        SKETCHSTREAM__KAFKA__GROUP_ID="other",
        SKETCHSTREAM__INPUT__LATENESS="1m",
        SKETCHSTREAM__WORKER__FAIL_FAST="true",
        SKETCHSTREAM__SKETCH__HOURLY__EPSILON="0.25",
        SKETCHSTREAM__SKETCH__0__DOMAIN="{ slots = 64, levels = 2 }",
        SKETCHSTREAM_TEST_KAFKA="not ours",
    )
    assert config.group == "other"
    assert config.input.lateness == config.max_ahead == 60_000
    assert config.worker.fail_fast
    assert config.plan("hourly").spec.epsilon == Fraction(1, 4)
    assert config.plan("hourly").spec.domain == OpenDomain(64, 2)


def test_dotted_names_need_no_quotes() -> None:
    text = TOPIC.replace('"group.id"', "group.id").replace('"bootstrap.servers"', "bootstrap.servers")
    assert parse(text).kafka == {"bootstrap.servers": "127.0.0.1:9092", "group.id": "reach"}
    assert (
        parse(TOPIC.replace('"group.id"', '"consumer.fetch.max.bytes" = 5\n"group.id"')).kafka[
            "consumer.fetch.max.bytes"
        ]
        == 5
    )


BAD = [
    (TOPIC, "", "[[[", "TOML"),
    (TOPIC, 'topic = "events"', 'tpoic = "events"', r"unknown key input\.tpoic; did you mean input\.topic\?"),
    (TOPIC, "[input]", "[inputs]", r"unknown key inputs; did you mean input\?"),
    (
        TOPIC,
        "epsilon = 1",
        "epsilno = 1",
        r'unknown key sketch "hourly"\.epsilno; did you mean sketch "hourly"\.epsilon',
    ),
    (TOPIC, "levels = 4", "level = 4", r'unknown key sketch "hourly"\.domain\.level; did you mean .*levels'),
    (TOPIC, "epsilon = 1\n", "", r'sketch "hourly"\.epsilon is missing'),
    (TOPIC, "epsilon = 1", "epsilon = 0", r'sketch "hourly": epsilon must be a positive'),
    (TOPIC, "epsilon = 1", "epsilon = 51", "above 50"),
    (TOPIC, "epsilon = 1", 'epsilon = "much"', "epsilon must be a positive"),
    (TOPIC, 'window = "1h"', 'window = "7m"', "does not divide a day"),
    (TOPIC, 'window = "1h"', "window = 60", r'sketch "hourly"\.window'),
    (TOPIC, 'window = "1h"', 'window = "1h"\ntimezone = "Mars"', "unknown time zone 'Mars'"),
    (TOPIC, 'name = "hourly"', 'name = "Hourly!"', "lower-case"),
    (TOPIC, "slots = 1024, levels = 4", "slots = 1", "slots"),
    (TOPIC, "slots = 1024, levels = 4", "slots = 10, size = 4", "exactly one of"),
    (TOPIC, "slots = 1024, levels = 4", "size = 4", "item_type = 'int'"),
    (TOPIC, "slots = 1024, levels = 4", 'items_file = "none.txt"', "cannot read domain.items_file"),
    (TOPIC, 'partitioned_by = "item"', "", "partitioned_by is missing"),
    (TOPIC, 'partitioned_by = "item"', 'partitioned_by = "user"', "partitioned_by must be 'item' or 'none'"),
    (TOPIC, 'partitioned_by = "item"', 'partitioned_by = "none"', "publish = 'state'"),
    (TOPIC, 'unit = "event"', 'unit = "item"\nmodulus = 1', "modulus"),
    (TOPIC, 'topic = "events"', 'topic = "events"\nfile = "x.jsonl"', "not both"),
    (TOPIC, 'topic = "events"', "", "not neither"),
    (TOPIC, 'topic = "events"', 'topic = "a,b"', "one topic's name"),
    (TOPIC, '"group.id" = "reach"', "", "group.id"),
    (TOPIC, '"group.id" = "reach"', '"group.id" = "reach"\n"enable.auto.commit" = true', "cannot be set"),
    (TOPIC, '"group.id" = "reach"', '"group.id" = "reach"\n"consumer.isolation.level" = "x"', "cannot be set"),
    (TOPIC, '"group.id" = "reach"', '"group.id" = "reach"\n"transactional.id" = "x"', "fence"),
    (TOPIC, '"bootstrap.servers"', '"bootstrap.server"', 'did you mean "bootstrap.servers"'),
    (TOPIC, '"group.id"', '"group_id"', "have dots"),
    (TOPIC, 'item = "user_id"', "", "input.item is missing"),
    (TOPIC, 'item = "user_id"', 'item = "user_id"\nformat = "packed"', "has no fields"),
    (TOPIC, 'item = "user_id"', 'item = "user_id"\nformat = "csv"', "for a topic"),
    (TOPIC, 'item = "user_id"', 'item = "user_id"\nlateness = 10', "with a unit"),
    (TOPIC, 'item = "user_id"', 'item = "user_id"\nidle = "never"', "with a unit"),
    (TOPIC, 'item = "user_id"', 'item = "user_id"\nquorum = 0', "quorum"),
    (TOPIC, 'item = "user_id"', 'item = "user_id"\nquorum = 33', "quorum"),
    (TOPIC, 'item = "user_id"', 'item = "user_id"\nquorum_most = 9', "at least input.quorum"),
    (TOPIC, 'item = "user_id"', 'item = "user_id"\nquorum_time = "0s"', "between 1ms and 1d"),
    (TOPIC, 'item = "user_id"', 'item = "user_id"\nquorum_time = "2d"', "between 1ms and 1d"),
    (TOPIC, 'item = "user_id"', 'item = "user_id"\ndead_letter_rate = 0', "dead_letter_rate"),
    (TOPIC, 'file = "k"', "", r"key\.file is missing"),
    (TOPIC, '[key]\nfile = "k"', "", "needs a hash key"),
    (TOPIC, "[key]", '[store]\nkind = "dir"\n[key]', "for files and stdin"),
    (TOPIC, "[key]", '[store]\nsnapshot_every = "1ms"\n[key]', "at least 100ms"),
    (TOPIC, "[key]", '[output]\ntopic = ""\n[key]', "a topic or a directory"),
    (TOPIC, "[key]", '[worker]\nmetrics = "9400"\n[key]', "HOST:PORT"),
    (TOPIC, "[key]", '[worker]\nmemory_limit = "4 gigs"\n[key]', "a size such as"),
    (TOPIC, "[key]", "[privacy]\nmax_epsilon = 0.5\n[key]", "above privacy.max_epsilon"),
    (TOPIC, "[key]", '[privacy]\ndiagnostics = "some"\n[key]', "privacy.diagnostics must be"),
    (FILE, 'file = "events.jsonl"', 'file = "events.bin"', "input.format is missing"),
    (FILE, 'file = "events.jsonl"', 'file = "events.txt"', "no event times"),
    (FILE, 'file = "events.jsonl"', 'file = "events.jsonl"\npartitioned_by = "item"', "belongs to input.topic"),
    (FILE, 'time = "ts"', "", "input.time is missing"),
    (FILE, "[[sketch]]", '[store]\nkind = "kafka"\n[[sketch]]', "needs input.topic"),
    (
        FILE,
        "[[sketch]]",
        '[[sketch]]\nname = "daily"\nunit = "event"\nwindow = "1h"\nepsilon = 1\ndomain = {size = 4}\n[[sketch]]',
        "two sketches",
    ),
    (FILE, "size = 100", "size = 100, sample_rate = 2", "sample_rate"),
    (FILE, "epsilon = ", "max_count = 0\nepsilon = ", "max_count"),
    (FILE, "epsilon = ", 'publish = "state"\nepsilon = ', "intrusion"),
]


@pytest.mark.parametrize(("text", "old", "new", "message"), BAD)
def test_mistakes_get_one_clear_line(text: str, old: str, new: str, message: str) -> None:
    broken = text.replace(old, new, 1) if old else new
    assert broken != text
    with pytest.raises(ConfigError, match=message) as caught:
        parse(broken)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("/etc/reach/c.toml")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("SKETCHSTREAM__GROUP", "x", "TABLE__KEY"),
        ("SKETCHSTREAM__INPUT__TPOIC", "x", "did you mean input.topic"),
        ("SKETCHSTREAM__SKETCH__WEEKLY__EPSILON", "1", "no .*weekly"),
        ("SKETCHSTREAM__SKETCH__HOURLY__DOMAIN", "{slots}", "TOML"),
        ("SKETCHSTREAM__KAFKA__ACKS", "1", "cannot be set"),
    ],
)
def test_mistakes_in_the_environment(variable: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(TOPIC, **{variable: value})


def test_item_units_need_a_checked_partitioner() -> None:
    item = TOPIC.replace('unit = "event"', 'unit = "item"\nmodulus = 32')
    assert parse(item).plan("hourly").spec.modulus == 32
    with pytest.raises(ConfigError, match="partitioner that is checked"):
        parse(item.replace('partitioner = "murmur2"', 'partitioner = "unchecked"'))
    with pytest.raises(ConfigError, match="partitioned_by"):
        parse(item.replace('partitioned_by = "item"', 'partitioned_by = "none"'))


def test_there_is_no_default_partitioner() -> None:
    config = parse(TOPIC.replace('partitioner = "murmur2"', ""))
    assert config.lacks_partitioner
    assert not config.checks_partitions
    with pytest.raises(ConfigError, match="validate -c FILE --write"):
        config.require_partitioner()
    with pytest.raises(ConfigError, match="partitioner is missing"):
        rules(config)
    for name in ("murmur2_random", "consistent_random", "fnv1a", "crc32"):
        named = parse(TOPIC.replace('partitioner = "murmur2"', f'partitioner = "{name}"'))
        assert named.partitioner == {"crc32": "consistent"}.get(name, name)
        named.require_partitioner()
    for unkeyed in ('partitioner = "unchecked"', 'partitioner = "murmur2"\n'):
        parse(TOPIC.replace('partitioner = "murmur2"', unkeyed)).require_partitioner()
    assert not parse(FILE).lacks_partitioner


def test_losses_of_several_sketches_add_up() -> None:
    two = (
        TOPIC + '[[sketch]]\nname = "daily"\nunit = "event"\nwindow = "1d"\nepsilon = 1\n'
        "domain = { slots = 64, levels = 2 }\n"
    )
    limit = "[privacy]\nmax_epsilon = {}\n[key]"
    assert len(parse(two.replace("[key]", limit.format(2))).sketches) == 2
    with pytest.raises(ConfigError, match="together lose up to 2"):
        parse(two.replace("[key]", limit.format(1.5)))


def test_epsilons_without_privacy_warn_with_the_name() -> None:
    with pytest.warns(NoPrivacyWarning, match="hourly"):
        parse(TOPIC.replace("epsilon = 1", "epsilon = 30"))


def test_lists_of_items(tmp_path: Path) -> None:
    path = tmp_path / "items.txt"
    path.write_bytes(b"a\r\nb\n\xc3\xa9\n")
    assert read_items(path) == ["a", "b", "é"]
    assert read_items(path, "bytes") == [b"a", b"b", b"\xc3\xa9"]
    path.write_bytes(b"7\n-8")
    assert read_items(path, "int") == [7, -8]
    for data, kind, message in [
        (b"a\nb\na\n", "text", "line 3 .* repeats line 1"),
        (b"7\n07\n", "int", "line 2 .* repeats line 1"),
        (b"a\n\nb\n", "text", "line 2 .* is empty"),
        (b"", "text", "is empty"),
        (b"secret\xff\n", "text", "line 1 .* not UTF-8"),
        (b"secret\n", "int", "not a whole number"),
    ]:
        path.write_bytes(data)
        with pytest.raises(ConfigError, match=message) as caught:
            read_items(path, kind)
        assert "secret" not in str(caught.value)


def test_memory_is_estimated_and_limited() -> None:
    # 64 MiB are read ahead of two responses of up to 1 KiB
    small = TOPIC.replace("[kafka]", '[kafka]\n"fetch.max.bytes" = 1024')
    assert small != TOPIC
    config = parse(small.replace("[key]", f'[worker]\nmemory_limit = "{(64 << 10) + 2 + 100}KiB"\n[key]'))
    # 1,024 slots of 4 bytes, 3 windows open at once, and one partition's copy
    assert resources.memory_bytes(config, 4) == 1024 * 4 * 3 * 5
    minutes = parse(TOPIC.replace('window = "1h"', 'window = "1m"'))  # 10 min of lateness and 2.5 of quorum_time
    assert resources.memory_bytes(minutes, 4) == 1024 * 4 * 15 * 5
    assert "60.0 KiB, reading them up to 64.0 MiB" in resources.check_memory(config, 4)
    with pytest.raises(ConfigError, match="memory_limit"):
        resources.check_memory(config, 16)
    assert [resources.fits_memory(config, n, 16) for n in (1, 7, 8)] == [True, True, False]
    ids = TOPIC.replace("domain = { slots = 1024, levels = 4 }", "domain = { size = 4096 }")
    assert ids != TOPIC
    closed = parse(ids.replace('item = "user_id"', 'item = "user_id"\nitem_type = "int"'))
    of_one = resources.memory_bytes(closed, 1, total=4)
    assert of_one == 1024 * 4 * 3 * 2, "a partition has slots for its own items only"


def test_memory_of_the_input_is_two_responses_and_what_is_read_ahead() -> None:
    ahead = 64 << 20
    assert resources.input_bytes(parse(TOPIC), 5) == 2 * 5 * (4 << 20) + ahead
    of_few = [resources.input_bytes(parse(TOPIC), few) for few in (1, 2, 4)]
    assert of_few == [2 * (16 << 20) + ahead] * 3, "few share as much"
    assert resources.input_bytes(parse(TOPIC), 100) == 2 * (50 << 20) + ahead, "one response is bounded too"
    for name in ("max.partition.fetch.bytes", "consumer.max.partition.fetch.bytes"):
        less = parse(TOPIC.replace("[kafka]", f'[kafka]\n"{name}" = 1000'))
        assert resources.input_bytes(less, 3) == 6000 + ahead


def test_durations_and_sizes() -> None:
    assert [duration_ms(text) for text in ("250ms", "30s", "10m", "1h", "1d", "1w")] == [
        250,
        30_000,
        600_000,
        3_600_000,
        86_400_000,
        604_800_000,
    ]
    assert [size_bytes(text) for text in ("4GiB", "10MB", "512", 512)] == [4 << 30, 10_000_000, 512, 512]
    for text in ("", "10", "1mo", "-1s", 10, None, True, "1000000d"):
        with pytest.raises(ConfigError):
            duration_ms(text)
    with pytest.raises(ConfigError, match=r"^max_ahead must be at most ten years, found '30000d'"):
        duration_ms("30000d", "max_ahead")
    for text in ("", "4gib", 0, -1, True, 1.5):
        with pytest.raises(ConfigError):
            size_bytes(text)


def test_names_are_found_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="did you mean 'hourly'"):
        parse(TOPIC).plan("hurly")


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        Config.load(tmp_path / "none.toml", {})
    (tmp_path / "x.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="UTF-8"):
        Config.load(tmp_path / "x.toml", {})
