"""The survey of a sample names fields that most records have, with the type of their values, and finds the time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchstream.stream.input.field_survey import Field, Survey


def survey(*documents: dict[str, Any]) -> Survey:
    found = Survey()
    found.add(documents)
    return found


def test_fields_are_named_with_type_and_share() -> None:
    full = {"user": {"id": "u1"}, "n": 3, "price": 0.5, "ok": True, "tags": ["a"], "ts": 1_700_000_000_000}
    found = survey(*[full] * 15, *[{"user": {"id": "u2"}, "n": 1}] * 5)
    assert found.fields() == [
        Field("n", "whole number", 1.0),
        Field("user.id", "text", 1.0),
        Field("ok", "truth value", 0.75),
        Field("price", "decimal", 0.75),
        Field("tags", "list", 0.75),
        Field("ts", "time", 0.75),
    ]


def test_a_field_of_few_records_is_not_named() -> None:
    assert survey(*[{"a": 1}] * 11, *[{"a": 1, "secret": 1}] * 9).fields() == [Field("a", "whole number", 1.0)]
    assert survey(*[{"rare": 1}] * 9).fields() == []


def test_values_of_two_types_are_mixed() -> None:
    assert survey(*[{"a": 1}] * 10, *[{"a": "x"}] * 10).fields() == [Field("a", "mixed", 1.0)]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1_700_000_000_000, "time"),
        (1_700_000_000, "whole number"),  # seconds are not milliseconds
        (1_700_000_000_000_000, "whole number"),
        ("2026-11-25T10:00:00Z", "time"),
        ("2026-11-25T10:00:00.123+02:00", "time"),
        ("2026-11-25T10:00:00", "time without offset"),
        ("2026-11-25", "text"),
        ("0" * 30, "text"),
        (datetime(2026, 11, 25, tzinfo=UTC), "time"),
        (datetime(2026, 11, 25), "time without offset"),  # noqa: DTZ001 - as a column without a time zone gives it
        (None, "mixed"),
    ],
)
def test_times_are_milliseconds_or_rfc_3339(value: object, kind: str) -> None:
    assert survey(*[{"x": value}] * 20).fields() == [Field("x", kind, 1.0)]


def test_the_likeliest_time_is_found_by_its_name() -> None:
    day = 1_700_000_000_000
    assert survey(*[{"born": day, "meta": {"event_time": day}, "at": 5}] * 20).time() == "meta.event_time"
    assert survey(*[{"born": day, "n": 1}] * 20).time() == "born"
    assert survey(*[{"user_id": 1_700_000_000, "price": 1.7e9}] * 20).time() is None  # may be anything


@pytest.mark.parametrize(
    ("values", "unit"),
    [
        ([1_700_000_000], "s"),
        ([1_700_000_000.25], "s"),
        ([1_700_000_000_000], "ms"),
        ([1_700_000_000_000_000], "us"),
        ([1_700_000_000_000_000_000], "ns"),
        ([1_700_000_000] * 19 + [True], "s"),
        ([1_700_000_000] * 9 + [1_700_000_000_000], "ms"),  # not nearly all
        (["2026-11-25T10:00:00Z"], "ms"),
        ([5.0, 1e300, -1], "ms"),
    ],
)
def test_the_unit_of_numbers_is_the_one_in_which_they_are_recent(values: list[object], unit: str) -> None:
    found = survey(*[{"ts": value} for value in values] * 20)
    assert found.unit("ts") == unit
    assert found.unit("nowhere") == "ms"
    assert found.time() == ("ts" if unit != "ms" or len(values) == 1 else None)


@given(
    st.lists(
        st.dictionaries(
            st.text(max_size=3),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
                lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
                max_leaves=4,
            ),
            max_size=4,
        ),
        max_size=30,
    )
)
def test_any_json_is_surveyed(documents: list[dict[str, Any]]) -> None:
    found = survey(*documents)
    assert found.records == len(documents)
    assert all(0.5 <= one.share <= 1 for one in found.fields())
    assert found.time() is None or found.time() in {one.name for one in found.fields()}
