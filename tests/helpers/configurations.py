"""Configurations that several tests start from.

In: nothing. Out: TOML texts. Touches: nothing.
"""

from __future__ import annotations

HOURLY_TOPIC = """
[kafka]
"bootstrap.servers" = "127.0.0.1:9092"
"group.id" = "reach"
[input]
topic = "events"
item = "user_id"
time = "ts"
partitioned_by = "item"
partitioner = "murmur2"
[key]
file = "k"
[[sketch]]
name = "hourly"
unit = "event"
window = "1h"
epsilon = 1
domain = { slots = 1024, levels = 4 }
"""
"""A topic, and one hourly sketch of an open domain."""

EVENTS_FILE = """
[input]
file = "events.jsonl"
item = "user"
item_type = "int"
time = "ts"
lateness = "1m"
quorum = 1
quorum_time = "1ms"
"""
"""A file of events, each of which moves the watermark; tables and keys of the input may follow."""

SEALED_DIRECTORY = """
[output]
directory = "sealed"
"""

EVENTS_TOPIC = """
[kafka]
bootstrap.servers = "unused:9092"
group.id = "reach"
[input]
topic = "events"
item = "user"
item_type = "int"
time = "ts"
partitioned_by = "item"
partitioner = "murmur2"
"""
"""A topic for workers over ports in memory; tables and keys of the input may follow."""

KEYED_TOPIC = """
[kafka]
"bootstrap.servers" = "127.0.0.1:9092"
"group.id" = "g"
[input]
topic = "t"
item = "user"
time = "ts"
partitioned_by = "item"
partitioner = "murmur2"
quorum = 1
quorum_time = "1ms"
[key]
file = "k"
"""
"""A topic for workers over ports in memory, with a hash key; each event moves the watermark. Tables may follow."""

UNKEYED_TOPIC = """
[kafka]
bootstrap.servers = "unused:9092"
group.id = "series"
[input]
topic = "events"
time = "ts"
partitioned_by = "none"
lateness = "5m"
"""
"""A topic of events without items, for workers over ports in memory; keys of the input and tables may follow."""

CLOSED_MINUTES = (
    UNKEYED_TOPIC
    + """quorum = 1
quorum_time = "1ms"
[[sketch]]
name = "minutes"
kind = "convolution"
window = "1h"
kernel = ["window:10", "sum"]
step = "1m"
epsilon = 1
delta = "1e-6"
publish = "closed"
intrusion = false
"""
)
"""A series by minutes whose positions are published when they close, in windows of an hour."""
