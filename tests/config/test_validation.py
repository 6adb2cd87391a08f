"""Every mistake of a configuration is one line, and all of them are told at once, in words and not in a library's."""

from __future__ import annotations

import copy
import itertools
import re
import tomllib
from pathlib import Path

import pytest

from helpers.configurations import HOURLY_TOPIC
from helpers.pages import EVERY_KIND
from sketchstream.config import kafka_settings
from sketchstream.config.loader import Config
from sketchstream.config.schema import TABLES
from sketchstream.errors import ConfigError
from sketchstream.kinds.config_tables import table_of
from sketchstream.stream import formats

GOOD = HOURLY_TOPIC
JARGON = re.compile(
    r"(?i)literal\[|tuple|dictionary|instance of|input should|pathlib|unable to|NoneType|validation|pydantic"
)


PYTHON = re.compile(r"\b(?:True|False|None)\b|\[function|\[str|something else|datetime")
"""What Python, or the library that reads tables, would say."""


def mistakes(*changes: tuple[str, str], text: str = GOOD, **environ: str) -> list[str]:
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    with pytest.raises(ConfigError) as caught:
        Config.parse(text, "c.toml", environ)
    for line in caught.value.mistakes:
        assert line.startswith("c.toml: "), line
        assert "\n" not in line
        assert not JARGON.search(line), line
    return [line.removeprefix("c.toml: ") for line in caught.value.mistakes]


def test_five_mistakes_of_five_kinds_are_five_lines() -> None:
    found = mistakes(
        ('"group.id" = "reach"', '"group.id" = "reach"\n"securty.protocol" = "SSL"'),
        ('topic = "events"', 'tpoic = "events"'),
        ('time = "ts"', 'time = "ts"\nlateness = 10'),
        ('window = "1h"', 'window = "7m"'),
        ("[key]", '[output]\ntopic = ""\n[key]'),
    )
    assert sorted(found) == sorted(
        [
            "unknown key input.tpoic; did you mean input.topic?",
            "input.lateness must be a number with a unit such as '30s', '10m', '1h' or '1d', found 10",
            'unknown key kafka "securty.protocol"; did you mean "security.protocol"?',
            "sketch \"hourly\": a window is '1m' to '12h' (dividing a day), '1d', '1w', '1mo' or '1y'; '7m' does not divide a day",  # noqa: E501
            "output needs a topic or a directory",
        ]
    )


@pytest.mark.parametrize("table", ["key", "names", "output", "privacy", "quality", "serve", "store", "worker"])
def test_a_wrong_table_hides_no_mistake_that_uses_its_name_as_a_word(table: str) -> None:
    """The record's key is not the table [key]; but what follows from a wrong table is hidden."""
    data = tomllib.loads(GOOD)
    data[table] = 5
    del data["input"]["partitioned_by"]
    with pytest.raises(ConfigError) as caught:
        Config.from_data(data, Path("c.toml"))
    found = [line.removeprefix("c.toml: ") for line in caught.value.mistakes]
    assert f"{table} must be a table: [{table}]" in found
    assert [line for line in found if line.startswith("input.partitioned_by is missing")]
    assert not any("needs a hash key" in line for line in found)


def test_a_domain_of_ids_is_not_reported_where_the_type_of_items_is_wrong() -> None:
    ids = ("slots = 1024, levels = 4", "size = 9")
    (only,) = mistakes(('time = "ts"', 'time = "ts"\nitem_type = "number"'), ids)
    assert only.startswith("input.item_type must be 'text', 'int' or 'bytes'")
    (only,) = mistakes(ids)
    assert "domain.size counts the ids" in only


def test_mistakes_of_every_sketch_and_table_are_told() -> None:
    second = '[[sketch]]\nname = "Daily"\nunit = "event"\nwindow = "1d"\n'
    second += 'epsilon = 99\ndomain = { slots = 1 }\ntimezone = "Mars"\n'
    found = mistakes(
        ('item = "user_id"', 'item = "user_id"\nformat = "xml"\nclose_at_end = true'),
        ("epsilon = 1", "epsilon = 0"),
        ("[key]", '[worker]\nmetrics = "9400"\n[store]\nkind = "dir"\n[key]'),
        text=GOOD + second,
        SKETCHSTREAM__NONSENSE="x",
        SKETCHSTREAM__KAFKA__SESSION_TIMEOUT_MS="soon",
    )
    for words in (
        "input.format must be 'json', 'key'",
        "input.close_at_end belongs to files",
        'sketch "hourly": epsilon must be a positive',
        "worker.metrics must be HOST:PORT",
        "store.kind = 'dir' is for files",
        "name of sketch 2 must be lower-case",
        'sketch "Daily": unknown time zone',
        'sketch "Daily": slots of an OpenDomain',
        'sketch "Daily": epsilon above 50',
        "SKETCHSTREAM__NONSENSE: expected",
        "kafka \"session.timeout.ms\" must be a whole number, found 'soon'",
    ):
        assert [line for line in found if words in line], (words, found)
    assert len(found) == 11, found


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("[[sketch]]", "[sketch]", "sketch must be blocks with two brackets on each side: [[sketch]]"),
        (
            '[key]\nfile = "k"',
            "",
            'sketch "hourly" needs a hash key: [key] file = "..." (made by `sketchstream keygen -o FILE`)',
        ),
        ('file = "k"', "file = 5", "key.file must be a path, found 5"),
        ('topic = "events"', "topic = 5", "input.topic must be a text, found 5"),
        ('topic = "events"', 'topic = ["a"]', "input.topic must be a text"),
        (
            'time = "ts"',
            'time = "ts"\nformat = "xml"',
            f"input.format must be {', '.join(map(repr, formats.names()))}, 'jsonl', 'lines', 'csv', 'parquet' or "
            "'msgpack', found 'xml'",
        ),
        ('time = "ts"', 'time = "ts"\ndead_letter_rate = 0', "input.dead_letter_rate must be at least 1, found 0"),
        (
            'time = "ts"',
            'time = "ts"\ndead_letter_rate = 1.5',
            "input.dead_letter_rate must be a whole number, found 1.5",
        ),
        (
            'time = "ts"',
            'time = "ts"\ndead_letter_payload = "maybe"',
            "input.dead_letter_payload must be true or false, found 'maybe'",
        ),
        (
            'partitioner = "murmur2"',
            'partitioner = "md5"',
            "input.partitioner must be 'murmur2', 'murmur2_random', 'consistent', 'consistent_random', 'fnv1a', 'fnv1a_random' or 'unchecked', found 'md5'",  # noqa: E501
        ),
        ("slots = 1024", 'slots = "many"', "sketch \"hourly\".domain.slots must be a whole number, found 'many'"),
        ("domain = {", "domain = 5 # {", 'sketch "hourly".domain must be a table, found 5'),
        ("epsilon = 1\n", "epsilon = [1]\n", 'sketch "hourly".epsilon must be a text'),
        ("epsilon = 1\n", "epsilon = false\n", 'sketch "hourly".epsilon must be a text, found false'),
        (
            "epsilon = 1\n",
            "epsilon = 1\ngroups = true\n",
            'sketch "hourly".groups must be a list, or a path, found true',
        ),
        ("epsilon = 1\n", "epsilon = 1\ngroups = [true]\n", 'sketch "hourly".groups.0 must be a text, found true'),
        (
            "epsilon = 1\n",
            "epsilon = 1\nwhere = {a = 1.5}\n",
            'sketch "hourly".where.a must be a text, or a list, found 1.5',
        ),
        ("epsilon = 1\n", "epsilon = 1\nwindows = 'True'\n", "sketch \"hourly\".windows must be a list, found 'True'"),
        (
            "epsilon = 1\n",
            'epsilon = 1\npublish = "state"\n',
            "sketch \"hourly\": publish = 'state' needs intrusion written out: true adds fresh noise at seal, false "
            "publishes the bare state, which voids the guarantee for events after any copy of the open state",
        ),
        ('window = "1h"\n', "", 'sketch "hourly": window is missing: give window = "1d", or windows = ["1h", "1d"]'),
        ("[key]\n", "[store]\n[key]\nextra = 1\n", "unknown key key.extra"),
    ],
)
def test_one_mistake_is_one_line_without_jargon(old: str, new: str, line: str) -> None:
    assert mistakes((old, new)) == [line]


def test_no_mistake_is_spelled_as_in_python() -> None:
    """Every key of every table and of every kind of sketch, with values of wrong types."""
    data = tomllib.loads(EVERY_KIND)
    told: list[str] = []
    for number, one in enumerate([*TABLES, *data["sketch"]]):
        block = data["sketch"][max(0, number - len(TABLES))]
        table = TABLES[one] if isinstance(one, str) else table_of(block.get("kind", "profile"))
        for key, value in itertools.product(table.model_fields, (True, [True], {"a": True}, 1.5, "x", [])):
            changed = copy.deepcopy(data | {"sketch": [block]})
            place = changed.setdefault(one, {}) if isinstance(one, str) else changed["sketch"][0]
            place[key] = value
            try:
                Config.from_data(changed, Path("sketchstream.toml"))
            except ConfigError as error:
                told += error.mistakes
    assert len(told) > 500
    assert [one for one in told if PYTHON.search(one)] == []


def test_a_file_without_anything_says_what_is_missing() -> None:
    assert mistakes(text="") == ["input is missing", "sketch is missing: the file needs at least one [[sketch]] block"]
    assert mistakes(text="input = 5\n") == [
        "input must be a table: [input]",
        "sketch is missing: the file needs at least one [[sketch]] block",
    ]


KAFKA = [
    ('"securty.protocol" = "SSL"', 'unknown key kafka "securty.protocol"; did you mean "security.protocol"?'),
    (
        '"security.protocol" = "SSLL"',
        'kafka "security.protocol" must be "PLAINTEXT", "SSL", "SASL_PLAINTEXT" or "SASL_SSL", found \'SSLL\'; did you mean "SSL"?',  # noqa: E501
    ),
    ('"session.timeout.ms" = "soon"', "kafka \"session.timeout.ms\" must be a whole number, found 'soon'"),
    ('"fetch.max.wait.ms" = -1', 'kafka "fetch.max.wait.ms" must not be negative, found -1'),
    ('"check.crcs" = "perhaps"', "kafka \"check.crcs\" must be true or false, found 'perhaps'"),
    (
        '"producer.fetch.max.bytes" = 5',
        'kafka "producer.fetch.max.bytes" is not an option of the producer (consumer only)',
    ),
    (
        '"compression.type" = "brotli"',
        'kafka "compression.type" must be "none", "gzip", "snappy", "lz4" or "zstd", found \'brotli\'',
    ),
    ('"queued.max.messages.kbytes" = 5', 'unknown key kafka "queued.max.messages.kbytes"'),
    ('"ssl.cafile" = "ca.pem"', 'kafka "ssl.cafile" has no effect under security.protocol = "PLAINTEXT": set "SSL"'),
    (
        '"sasl.mechanism" = "PLAIN"',
        'kafka "sasl.mechanism" has no effect under security.protocol = "PLAINTEXT": nobody would log in; set "SASL_PLAINTEXT"',  # noqa: E501
    ),
    (
        '"security.protocol" = "SASL_SSL"',
        'kafka "sasl.mechanism" is missing: security.protocol = "SASL_SSL" needs one of "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI" or "AWS_MSK_IAM"',  # noqa: E501
    ),
]


@pytest.mark.parametrize(("setting", "line"), KAFKA)
def test_settings_of_kafka_are_checked_without_a_broker(setting: str, line: str) -> None:
    assert mistakes(('"group.id"', f'{setting}\n"group.id"')) == [line]


def test_logins_say_everything_that_they_need() -> None:
    plain = mistakes(('"group.id"', '"security.protocol" = "sasl_ssl"\n"sasl.mechanisms" = "plain"\n"group.id"'))
    assert plain == [
        'kafka "sasl.plain.username" is missing: sasl.mechanism = "PLAIN" needs it',
        'kafka "sasl.plain.password" or "sasl.plain.password.file" is missing: sasl.mechanism = "PLAIN" needs it',
    ]
    bearer = mistakes(
        (
            '"group.id"',
            '"security.protocol" = "SASL_SSL"\n"sasl.mechanism" = "OAUTHBEARER"\n'
            '"sasl.oauthbearer.token.endpoint.url" = "http://idp.example/token"\n"group.id"',
        )
    )
    assert [line.split(":")[0] for line in bearer] == [
        'kafka "sasl.oauthbearer.client.id" is missing',
        'kafka "sasl.oauthbearer.client.secret" or "sasl.oauthbearer.client.secret.file" is missing',
        'kafka "sasl.oauthbearer.token.endpoint.url" must begin with https',
    ]


@pytest.mark.parametrize("spelling", ["ssl", "SSL", "Ssl", " ssl "])
def test_protocols_are_read_in_any_case(spelling: str) -> None:
    text = GOOD.replace('"group.id"', f'"security.protocol" = "{spelling}"\n"group.id"')
    assert Config.parse(text).kafka["security.protocol"] == "SSL"


@pytest.mark.parametrize("server", ["localhost", "a:1,b", "a:0", "a:99999", ":9092", "a b:1"])
def test_servers_are_hosts_with_ports(server: str) -> None:
    (line,) = mistakes(('"127.0.0.1:9092"', f'"{server}"'))
    assert "must be HOST:PORT" in line
    settings, wrong = kafka_settings.read({"bootstrap.servers": "a:1, [::1]:2,SASL_SSL://b-1.c_d:3"})
    assert (list(settings), wrong) == (["bootstrap.servers"], [])


def test_secrets_are_not_shown() -> None:
    _, wrong = kafka_settings.read({"sasl.password": True, "ssl.key.password": ["zebra"]})
    assert len(wrong) == 2
    assert "zebra" not in str(wrong)


def test_the_table_of_settings_is_that_of_the_client() -> None:
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

    clients = {"consumer": KafkaConsumer, "producer": KafkaProducer, "admin": KafkaAdminClient}
    objects = {"selector", "kafka.client", "metric.reporters", "partitioner", "ssl.context", "socket.options"}
    objects |= {"default.offset.commit.callback", "sasl.oauth.token.provider", "api.version", "consumer.timeout.ms"}
    replaced = {"socks5.proxy"}  # by proxy.url
    theirs: dict[str, tuple[str, ...]] = {}
    for client, made in clients.items():
        for key, default in made.DEFAULT_CONFIG.items():
            name = key.replace("_", ".")
            theirs[name] = (*theirs.get(name, ()), client)
            if name not in kafka_settings.KNOWN or default is None:
                continue
            flag = name in kafka_settings._FLAGS
            number = name in kafka_settings._INTS
            assert (type(default) is bool, type(default) is int) == (flag, number), name
    ours = {name: clients for name, clients in kafka_settings.KNOWN.items() if name not in kafka_settings.OURS}
    expected = {
        name: clients
        for name, clients in theirs.items()
        if name not in kafka_settings.OWNED and name not in objects and name not in replaced
    }
    assert ours == expected


@pytest.mark.parametrize("key", ["group_by", "groups", "other_group", "max_groups", "group_of_item", "where"])
@pytest.mark.parametrize("kind", ["gaussian", "workload", "convolution", "projection"])
def test_groups_of_other_kinds_are_refused_with_what_to_do_instead(kind: str, key: str) -> None:
    values = {"group_by": '"c"', "groups": '["a"]', "max_groups": "1", "where": '{ c = "a" }'}
    found = mistakes(('name = "hourly"', f'name = "hourly"\nkind = "{kind}"\n{key} = {values.get(key, "true")}'))
    said = [line for line in found if "belongs to kind = 'profile'" in line]
    assert len(said) == 1
    assert said[0].startswith(f'sketch "hourly".{key} belongs')
    assert "a column of kind 'workload'" in said[0]
