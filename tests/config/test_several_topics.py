"""`[[input.topics]]`: what each topic has of its own, and what several topics exclude.

In: texts of configurations. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import pytest

from sketchstream.config.loader import Config
from sketchstream.errors import ConfigError
from sketchstream.topics import partition_numbers

TWO = """
[kafka]
"bootstrap.servers" = "unused:9092"
"group.id" = "reach"
[input]
partitioned_by = "none"
item = "user_id"
time = "ts"
[[input.topics]]
topic = "clicks"
[[input.topics]]
topic = "orders"
format = "avro"
item = "buyer.id"
payload = { registry = "http://registry:8081" }
[[sketch]]
name = "hourly"
window = "1h"
unit = "event"
epsilon = 1
publish = "state"
intrusion = true
domain = { size = 10 }
max_count = 30
"""
TWO = TWO.replace('item = "user_id"', 'item_type = "int"\nitem = "user_id"')


def test_numbers_of_times_may_count_other_units_in_other_topics() -> None:
    for unit in ("s", "us"):
        text = TWO.replace('time = "ts"', f'time = "ts"\ntime_unit = "{unit}"')
        own = text.replace('item = "buyer.id"', 'item = "buyer.id"\ntime_unit = "ns"')
        assert [one.input.time_unit for one in Config.parse(own, environ={}).per_topic()] == [unit, "ns"]
        assert [one.input.time_unit for one in Config.parse(text, environ={}).per_topic()] == [unit, unit]


def test_each_topic_is_as_if_it_were_alone() -> None:
    config = Config.parse(TWO, environ={})
    clicks, orders = config.per_topic()
    assert (clicks.group, clicks.sealed_topic, clicks.format) == ("reach", "reach.sealed", "json")
    assert (clicks.input.topic, clicks.input.item, clicks.payload) == ("clicks", "user_id", None)
    assert (orders.group, orders.sealed_topic, orders.format) == ("reach.orders", "reach.sealed.orders", "avro")
    assert (orders.input.topic, orders.input.item, orders.input.time) == ("orders", "buyer.id", "ts")
    assert orders.payload is not None
    assert config.fingerprint == clicks.fingerprint == orders.fingerprint
    alone = Config.parse(TWO.replace("[[input.topics]]\n", "", 1).partition("[[input.topics]]")[0] + SKETCH, environ={})
    assert (alone.group, alone.sealed_topic, alone.input.topic) == ("reach", "reach.sealed", "clicks")
    assert alone.fingerprint == config.fingerprint


SKETCH = TWO[TWO.index("[[sketch]]") :]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[input]", '[input]\ntopic = "a"', "input takes one of topic, [[input.topics]] and file"),
        ('partitioned_by = "none"', 'partitioned_by = "item"', "partitioned_by = 'item' needs one topic"),
        ('unit = "event"', 'unit = "item"', "an item in several partitions would lose"),
        ('topic = "orders"', 'topic = "clicks"', "names a topic twice"),
        ("[input]", '[input]\ndata_loss = "accept"', "data_loss = 'accept' needs one topic"),
        ('topic = "orders"', 'topic = "no topic"', "must be one topic's name"),
        ('payload = { registry = "http://registry:8081" }', "", "format = 'avro' needs schemas"),
        ('format = "avro"', 'fromat = "avro"', "did you mean input.topics.1.format?"),
        ('topic = "orders"', "", "input.topics.1.topic is missing"),
        ('payload = { registry = "http://registry:8081" }', 'payload = { reg = "x" }', "unknown key"),
    ],
)
def test_what_several_topics_exclude_is_refused_with_its_reason(old: str, new: str, words: str) -> None:
    assert old in TWO
    with pytest.raises(ConfigError) as raised:
        Config.parse(TWO.replace(old, new), environ={})
    assert any(words in line for line in raised.value.mistakes), raised.value.mistakes
    assert len(set(raised.value.mistakes)) == len(raised.value.mistakes)


@pytest.mark.parametrize("topics", [1, 2, 3])
def test_a_topic_of_which_nothing_was_heard_is_waited_for(topics: int) -> None:
    assert partition_numbers([], topics) == [100_000 * t for t in range(topics)]
    assert partition_numbers([(2, 2)], topics)[:3] == [0, 1, 2]
    assert partition_numbers([(100_001, 3)], topics)[:4] == [0, 100_000, 100_001, 100_002]
