"""Blocks that give their sizes, as Apache Avro for Java writes them, hold what blocks without sizes hold.

In: Java, whose jars Maven brings once, as it brings the broker's; a machine without them fails here. Out: nothing.
Touches: a Java process; `.cache/kafka` of the checkout.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from helpers import avro_reference
from helpers.binary_payloads import laid_out, told
from helpers.format_fuzz import avro_finder, avro_schema
from helpers.kafka.devbroker import Jars

JAVA = Path(__file__).resolve().parents[2] / "helpers" / "avro_java"
BLOCK_BYTES = 64
"""The smallest that the encoder takes: longer arrays have several blocks."""
SCHEMAS, VALUES = 12, 40
LISTS = {
    "type": "record",
    "name": "Lists",
    "fields": [
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "rows", "type": {"type": "array", "items": {"type": "map", "values": ["null", "long"]}}},
        {"name": "user", "type": "string"},
    ],
}


def cases() -> list[tuple[Any, list[Any], list[bytes]]]:
    """Schemas that Java knows too, slots, values."""
    found: list[tuple[Any, list[Any], list[bytes]]] = []
    made = avro_reference.Schemas(0)
    slots = [("user", True, False, False), ("tags", True, False, False)]
    found.append((LISTS, slots, [made.value(LISTS) for _ in range(VALUES)]))
    for seed in range(1, SCHEMAS):
        made = avro_reference.Schemas(seed)
        schema, wanted = avro_schema(made)
        found.append((schema, wanted, [made.value(schema) for _ in range(VALUES)]))
    return found


def test_what_java_writes_in_blocks_of_known_size_is_read() -> None:
    jars = Jars(pom=JAVA / "pom.xml")
    jars.bring()
    asked = cases()
    lines = []
    for schema, _, values in asked:
        lines += [f"schema {json.dumps(schema)}", *(f"value {value.hex()}" for value in values)]
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", jars.class_path(), str(JAVA / "Blocks.java"), str(BLOCK_BYTES)]
    ran = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    written = iter(ran.stdout.splitlines())
    sized = 0
    for schema, slots, values in asked:
        bodies = [bytes.fromhex(next(written)) for _ in values]
        found = told(avro_finder(schema, slots).find(*laid_out(bodies, guarded=True)), len(bodies))
        for value, body, one in zip(values, bodies, found, strict=True):
            assert one == avro_reference.expected(schema, body, slots), (schema, body.hex())
            assert one == avro_reference.expected(schema, value, slots), (schema, value.hex())
            sized += one is not None and body != value
    assert sized > VALUES, "Java's encoder wrote no block with its size"
