"""The `[payload]` table: what formats with schemas take, and how its mistakes are told.

In: texts of configurations. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import pytest

from helpers.configurations import EVENTS_FILE, HOURLY_TOPIC, SEALED_DIRECTORY
from sketchstream.config.loader import Config
from sketchstream.errors import ConfigError

REGISTRY = '[payload]\nregistry = "http://registry:8081"\n'
OWN = '[payload]\nregistry = "http://registry:8080/apis/registry/v2"\n'


def configured(form: str, payload: str) -> str:
    return HOURLY_TOPIC.replace("[key]", f"{payload}[key]").replace('time = "ts"', f'time = "ts"\nformat = "{form}"')


@pytest.mark.parametrize(
    ("form", "payload", "words"),
    [
        ("avro", "", "payload is missing: format = 'avro' needs schemas"),
        ("json", REGISTRY, "payload.registry does not belong to format = 'json'"),
        ("avro", '[payload]\nframing = "none"\n', "exactly one of them"),
        ("avro", REGISTRY + 'schema_file = "a.avsc"\nframing = "none"\n', "exactly one of them"),
        ("avro", '[payload]\nschema_file = "a.avsc"\n', "it needs payload.framing = 'none'"),
        ("avro", REGISTRY + 'framing = "none"\n', "give schema_file"),
        ("avro", REGISTRY + 'framing = "glue"\n', "whose registry has another interface"),
        ("avro", REGISTRY + 'framing = "apicurio8"\n', "needs payload.ids: 'global'"),
        ("avro", REGISTRY + 'framing = "apicurio8"\nids = "global"\n', "Apicurio's own interface only"),
        ("avro", OWN + 'framing = "apicurio8"\nids = "content"\n', "by Confluent's interface"),
        ("avro", REGISTRY + 'ids = "content"\n', "belongs to payload.framing = 'apicurio8'"),
        ("protobuf", OWN + 'framing = "apicurio8"\nids = "global"\n', "let producers write content ids"),
        ("avro", REGISTRY + 'token = "t"\nusername = "u"\n', "two ways to log in"),
        ("avro", REGISTRY + 'password = "p"\n', "payload.password needs payload.username"),
        ("avro", REGISTRY + 'key = "k.pem"\n', "payload.key needs payload.certificate"),
        ("avro", REGISTRY + 'message = "a.B"\n', "payload.message does not belong to format = 'avro'"),
        ("avro", REGISTRY + 'framing = "guess"\n', "payload.framing must be 'confluent'"),
        ("avro", REGISTRY.replace("registry =", "regstry ="), "did you mean payload.registry?"),
        ("protobuf", REGISTRY + 'message = "a.B"\n', "payload.message names the message type in payload.schema_file"),
        ("protobuf", REGISTRY + 'framing = "glue"\n', "not known for format = 'protobuf'"),
    ],
)
def test_mistakes_are_told_in_words(form: str, payload: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Config.parse(configured(form, payload))
    assert any(words in line for line in raised.value.mistakes), raised.value.mistakes


@pytest.mark.parametrize(("payload", "ids"), [(REGISTRY, "content"), (OWN, "global")])
def test_both_kinds_of_ids_have_their_interface(payload: str, ids: str) -> None:
    config = Config.parse(configured("avro", f'{payload}framing = "apicurio8"\nids = "{ids}"\n'))
    assert config.payload is not None
    assert config.payload.ids == ids


@pytest.mark.parametrize("form", ["avro", "protobuf"])
def test_one_url_or_several_are_right(form: str) -> None:
    one = Config.parse(configured(form, REGISTRY + 'cache = "schemas"\n'))
    assert one.payload is not None
    assert one.payload.registry == "http://registry:8081"
    several = Config.parse(
        configured(form, '[payload]\nregistry = ["http://a:1", "http://b:1"]\ntoken = "marked"\n'),
    )
    assert several.payload is not None
    assert several.payload.registry == ("http://a:1", "http://b:1")
    assert "marked" not in repr(several.payload)


@pytest.mark.parametrize("form", ["protobuf", "value"])
def test_formats_of_topics_are_no_formats_of_files(form: str) -> None:
    text = configured(form, REGISTRY if form != "value" else "")
    text = text.replace('topic = "events"', 'file = "events"').replace("[kafka]", "[worker]\nraw = true\n[serve]")
    with pytest.raises(ConfigError) as raised:
        Config.parse(text)
    assert any(f"input.format = '{form}' belongs to topics" in line for line in raised.value.mistakes)


def test_avro_files_take_no_payload_table() -> None:
    text = (
        EVENTS_FILE.replace("events.jsonl", "events.avro") + SEALED_DIRECTORY + "[key]" + HOURLY_TOPIC.split("[key]")[1]
    )
    assert Config.parse(text).format == "avro"
    with pytest.raises(ConfigError, match="an Avro file has its own schema"):
        Config.parse(text + REGISTRY)
