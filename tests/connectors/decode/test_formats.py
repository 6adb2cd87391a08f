"""Every payload format of the registry keeps the laws of `PayloadFormat`.

In: damaged payloads. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sketchstream.errors import ConfigError
from sketchstream.items.arrays import Items
from sketchstream.stream import formats
from sketchstream_connectors.decode.decoder import Decoder
from sketchstream_connectors.decode.records import from_client_records

NOW = 1_700_000_000_000


def fields_of(name: str) -> Any:
    """An item, a weight and a time, where the format has named fields."""
    named = formats.by_name(name).named
    return SimpleNamespace(
        item="user.id" if named else None,
        item_type="text",
        weight="n" if named else None,
        time="at" if named else "record",
        columns=(),
        decimals=False,
        time_unit="ms",
    )


def decoded(reader: formats.Reader, payloads: list[bytes | None]) -> Any:
    records = [SimpleNamespace(offset=i, timestamp=NOW, key=one, value=one) for i, one in enumerate(payloads)]
    return reader.decode(from_client_records(records))


def plain(items: Items) -> object:
    """The bytes of a single item, or its number."""
    whole = items.whole()
    if whole.type_name == "int":
        return int(whole.arrays[0][0])
    buffer, starts, ends = whole.arrays
    return bytes(buffer[int(starts[0]) : int(ends[0])])


def outcome(found: Any, record: int) -> tuple[object, ...]:
    """Everything that one record became."""
    of = np.arange(len(found)) if found.record is None else found.record
    here = np.flatnonzero(of == record)
    valid = found.valid[here]
    digests = [plain(found.items.take(here[i : i + 1])) if valid[i] else None for i in range(here.size)]
    weights = (valid if found.weights is None else found.weights[here] * valid).astype(int).tolist()
    return digests, valid.tolist(), weights, int(found.times[record]), bool(found.null[record])


@pytest.mark.parametrize("name", formats.names())
def test_every_event_is_judged_by_its_own_bytes(name: str) -> None:
    decoder, example = formats.by_name(name).example(fields_of(name), NOW)
    rng = np.random.default_rng(5)
    payloads: list[bytes | None] = [example, None, b"", example]
    for _ in range(200):
        damaged = bytearray(example)
        for _ in range(int(rng.integers(1, 4))):
            damaged[int(rng.integers(len(damaged)))] = int(rng.integers(256))
        payloads.append(
            bytes(damaged[: int(rng.integers(len(damaged) + 1))])
            + bytes(rng.integers(0, 256, int(rng.integers(3))).astype(np.uint8))
        )
    together = decoded(decoder, payloads)
    backwards = decoded(decoder, payloads[::-1])
    for record, payload in enumerate(payloads):
        alone = outcome(decoded(decoder, [payload]), 0)
        assert outcome(together, record) == alone
        assert outcome(backwards, len(payloads) - 1 - record) == alone
    assert outcome(together, 0)[1] == [True]
    assert outcome(together, 1)[1] == [False]


@pytest.mark.parametrize("name", formats.names())
def test_the_example_of_a_format_is_an_event(name: str) -> None:
    reader, example = formats.by_name(name).example(fields_of(name), NOW)
    found = decoded(reader, [example] * 2)
    assert found.valid.all()
    assert (found.times == NOW).all()


def test_an_unknown_format_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ConfigError, match=r"format must be json, key, .* or \w+, found 'xml'"):
        Decoder("xml")
