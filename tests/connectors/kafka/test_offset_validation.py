"""Positions in doubt: what the leader's bounds say of them, and when they are believed. No broker is needed."""

from __future__ import annotations

from sketchstream_connectors.kafka.input.offset_validation import REFETCHES, DoubtedPositions, PositionVerdict

PATIENCE = 30.0


def held(offset: int = 100) -> DoubtedPositions:
    doubts = DoubtedPositions()
    doubts.hold(0, offset, now=0.0)
    assert doubts.note_question(0, now=0.0) == offset
    return doubts


def test_a_position_before_the_log_was_trimmed() -> None:
    doubts = held()
    assert doubts.is_held(0)
    found = doubts.judge(0, 120, 200, 0.0, PATIENCE)
    assert found is not None
    assert (found.exists, found.resume_at) == (False, 120)
    assert "trimmed" in found.text
    assert not doubts.is_held(0)


def test_a_position_behind_the_log_is_believed_to_be_lost_after_a_while_only() -> None:
    doubts = held()
    assert doubts.judge(0, 0, 80, 10.0, PATIENCE) is None
    assert doubts.is_held(0)
    doubts.hold(0, 100, now=20.0)  # said once more: it is in doubt since the first time
    found = doubts.judge(0, 0, 80, 30.1, PATIENCE)
    assert found is not None
    assert (found.exists, found.resume_at) == (False, 80)


def test_a_position_that_exists_is_read_but_its_doubt_is_remembered_until_a_chunk_comes() -> None:
    doubts = held()
    assert doubts.judge(0, 0, 100, 1.0, PATIENCE) == PositionVerdict(True)
    assert not doubts.is_held(0)
    assert doubts.due(1e9) == []
    doubts.hold(0, 100, now=40.0)
    doubts.note_question(0, now=40.0)
    found = doubts.judge(0, 0, 100, 40.0, PATIENCE)
    assert found is not None
    assert (found.exists, found.resume_at) == (False, None), "nobody can say where reading could go on"
    doubts = held()
    doubts.clear_doubt(0)
    assert doubts.note_question(0, now=1.0) is None


def test_a_leader_that_says_nothing_is_asked_again() -> None:
    doubts = held()
    assert doubts.due(0.4) == []
    assert doubts.due(0.5) == [0]
    assert doubts.judge(0, None, None, 99.0, PATIENCE) is None


def test_an_unreadable_batch_is_fetched_again_a_few_times() -> None:
    doubts = DoubtedPositions()
    assert [doubts.refetch(0, 7) for _ in range(REFETCHES)] == [1, 2, 3]
    assert doubts.refetch(0, 8) == 1, "another batch"
    assert [doubts.refetch(0, 8) for _ in range(3)] == [2, 3, None]
    doubts.clear_doubts()
    assert doubts.refetch(0, 8) == 1
