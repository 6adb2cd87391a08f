"""Releases from open windows as records: their golden bytes, and that readers of sealed sketches skip them.

In: a golden file. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import json

import pytest

from helpers.paths import GOLDEN
from sketchstream.stream.interfaces import SealedEntry
from sketchstream_connectors.files.publisher import CLOSED_NAME, EARLY_NAME, SEALED_NAME, file_name
from sketchstream_connectors.kafka.publishing.sealed import entry_records, read_key

ENTRY = SealedEntry("hourly", 2, (1_699_999_200_000, 1_700_002_800_000), 7, bytes(range(16)), bytes(600_000),
                    early=1_700_000_100_000)  # fmt: skip


def test_records_of_an_early_answer_are_the_golden_ones() -> None:
    golden = json.loads((GOLDEN / "v3" / "early-record.json").read_text())
    found = [
        {"key": key.decode(), "bytes": len(value), "headers": {name: text.decode() for name, text in headers}}
        for key, value, headers in entry_records(ENTRY)
    ]
    assert found == golden["records"]
    assert (file_name(ENTRY), ENTRY.key) == (golden["file"], golden["name"])


def test_readers_of_sealed_sketches_skip_early_answers() -> None:
    for key, _, _ in entry_records(ENTRY):
        named = read_key(key)
        assert named is not None
        body = named.body
        assert body is not None
        assert (body.final, body.positions) == (False, None)
        assert (body.sketch, body.window, body.partition, body.early) == ("hourly", ENTRY.window, 7, ENTRY.early)
    assert EARLY_NAME.fullmatch(file_name(ENTRY))
    assert not SEALED_NAME.fullmatch(file_name(ENTRY))
    assert not CLOSED_NAME.fullmatch(file_name(ENTRY))


@pytest.mark.parametrize(
    "key",
    [b"early/h/0/0/1/0/5/" + b"00" * 16 + b"/d/0/1/2", b"early/h/0/0/1/0/x/" + b"00" * 16 + b"/d/0/1", b"early", None],
)
def test_other_keys_are_no_early_answers(key: bytes | None) -> None:
    assert read_key(key) is None
