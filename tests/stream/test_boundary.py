"""The claims of history and live windows: in any order, whoever makes them, no window is on both sides."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sketchstream as ss
from sketchstream.stream.windows.boundary import NO_LIVE_WINDOW, Boundary
from sketchstream.stream.windows.calendar import NO_TIME

CLAIMS = st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=12)


@settings(max_examples=300, deadline=None)
@given(CLAIMS)
def test_no_window_is_on_both_sides_and_no_claim_takes_anything_away(claims: list[tuple[bool, int]]) -> None:
    now, live, history = Boundary(), set[int](), set[int]()
    for of_workers, at in claims:
        before = now
        if of_workers:
            now = now.with_live(at)
            live |= set(range(max(at, now.history), 21))  # windows that begin then or later, but for the history's
        else:
            try:
                now = now.with_history(at, "a", "users")
            except ss.ConfigError:
                assert any(start < at for start in live), "refused without a reason"
                continue
            history |= set(range(at))
        assert not live & history
        assert before.history <= now.history <= now.live <= before.live
        again = now.with_live(at) if of_workers else now.with_history(at, "a", "users")
        assert again == now
        assert Boundary.decode(now.encode()) == now
    assert live == set(range(now.live, 21))
    assert history == set(range(max(now.history, 0)))


def test_a_refusal_names_the_boundary() -> None:
    live = Boundary().with_live(86_400_000)
    with pytest.raises(ss.ConfigError, match=r"sketch users begin at 1970-01-02T00:00:00Z.*--to 1970-01-02T00:00:00Z"):
        live.with_history(86_400_001, "a", "users")
    booked = Boundary().with_history(5, "a", "users")
    with pytest.raises(ss.ConfigError, match="booked in another folder"):
        booked.with_history(4, "b", "users")


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"[]", b"{}", b"null", b"[" * 100_000),
        b'{"history":3,"live":2,"ledger":""}',
        b'{"history":"x","live":2,"ledger":""}',
        b'{"history":1,"live":2,"ledger":"","more":1}',
    ],
)
def test_other_bytes_are_no_boundary(data: bytes) -> None:
    with pytest.raises(ss.FormatError):
        Boundary.decode(data)
    assert (Boundary().history, Boundary().live) == (NO_TIME, NO_LIVE_WINDOW)
