"""Whatever is interleaved, every event is counted once: polls, snapshots read piece by piece, moves, kills, failures.

In: seeds of schedules. Out: nothing. Touches: threads, of which one runs at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from helpers.interleaving import ITEMS, Model
from sketchstream import image
from sketchstream.kinds.profile.groups import GroupIndex
from sketchstream.stream.input.partition_counts import Steps
from sketchstream.stream.state import work_pace
from sketchstream.stream.state.partition import PartitionState
from sketchstream.stream.state.sketch_state import OpenWindow, SketchState
from sketchstream.stream.state.window_lifecycle import WindowLifecycle

pytestmark = [pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning"), pytest.mark.statistics]
SEEDS = range(20)
ACTIONS = 250
MANY_SLOTS = work_pace.LARGE_SLOTS


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of small states, in several pieces, and blocks of deferred events that are soon full."""
    monkeypatch.setattr(image, "PIECE_BYTES", 96)
    monkeypatch.setattr(image, "_BLOCK", 4)
    monkeypatch.setattr(image, "MIN_DEFERRING_BYTES", 300)
    monkeypatch.setattr(work_pace, "LARGE_SLOTS", MANY_SLOTS)


class Schedule:
    """Actions in an order that a seed decides.

    Args:
        seed: seed of the schedule.
    """

    def __init__(self, seed: int) -> None:
        self.model, self.random = Model(), Random(seed)
        self.seen: Counter[str] = Counter()
        self.stalled: int | None = None
        """A worker that hears of nothing; its jobs go on."""
        self.actions: dict[Callable[[], None], int] = {
            self.send: 6,
            self.step: 10,
            self.advance_job: 10,
            self.end_jobs: 4,
            self.wait: 5,
            self.fetch_ahead: 3,
            self.stale: 2,
            self.called_new: 1,
            self.move: 2,
            self.stall: 2,
            self.regain: 1,
            self.kill: 1,
            self.break_commit: 3,
            self.break_publication: 3,
        }

    def send(self) -> None:
        self.model.send([int(ITEMS * self.random.random() ** 2) for _ in range(self.random.randint(1, 20))])

    def step(self) -> None:
        number = self.random.randrange(2) if self.stalled is None else 1 - self.stalled
        self.model.sources[number].size = self.random.randint(1, 12)
        self.model.step(number)

    def advance_job(self) -> None:
        running = self.model.jobs.running
        if running:
            job = self.random.choice(running)
            for _ in range(self.random.randint(1, 6)):
                self.model.jobs.advance(job)

    def end_jobs(self) -> None:
        self.model.end_jobs()

    def wait(self) -> None:
        self.model.driver.clock.advance(self.random.choice([0.3, 1.1]))

    def fetch_ahead(self) -> None:
        self.random.choice(self.model.sources).fetch(self.random.randrange(2), self.random.randint(1, 9))

    def stale(self, called: str = "yes") -> None:
        source = self.random.choice(self.model.sources)
        source.fetch(self.random.randrange(2), self.random.randint(1, 9), back=self.random.randint(1, 12))
        source.stale = called

    def called_new(self) -> None:
        if self.seen["called_new"] <= 4:  # a partition that errs again and again halts
            self.stale("called new")

    def move(self) -> None:
        self.model.move(self.random.randrange(2))

    def stall(self) -> None:
        self.stalled = self.random.choice([None, 0, 1])

    def regain(self) -> None:
        partition = self.random.randrange(2)
        self.model.sources[self.model.owner[partition]].regained.add(partition)

    def kill(self) -> None:
        self.model.kill(self.random.randrange(2))

    def break_commit(self) -> None:
        self.model.fates.commits.append(self.random.choice(["good", "refused", "unknown"]))

    def break_publication(self) -> None:
        self.model.fates.publications.append(self.random.choice(["good", "refused", "half"]))

    def run(self) -> None:
        """All actions, perhaps a last kill, and the comparison with the exact counts."""
        actions, weights = list(self.actions), list(self.actions.values())
        for action in self.random.choices(actions, weights, k=ACTIONS):
            self.seen[action.__name__] += 1
            action()
        if self.random.random() < 0.5:
            self.kill()
        for counters in (self.model.counters, *(worker.metrics.counters for worker in self.model.workers)):
            self.seen.update(counters)
        self.seen["bodies"] = len(self.model.publisher.log)
        self.model.settle()
        self.model.check()


def run_all() -> Counter[str]:
    """All schedules; how often what happened."""
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        # every second schedule opens and seals in other threads
        work_pace.LARGE_SLOTS = 1 if seed % 2 else MANY_SLOTS
        schedule = Schedule(seed)
        try:
            schedule.run()
        except AssertionError as error:
            error.add_note(f"schedule {seed}")
            raise
        seen.update(schedule.seen)
    return seen


def test_every_event_is_counted_once_whatever_is_interleaved(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[str] = Counter()
    for name in ("room", "detach"):
        called = getattr(image.StateImage, name)

        def counted(*given: Any, name: str = name, called: Any = called) -> Any:
            seen[name] += 1
            return called(*given)

        monkeypatch.setattr(image.StateImage, name, counted)
    seen += run_all()
    # what must have happened, and often, for this to say something
    for name in ("room", "detach", "gaps", "snapshots", "commit_failures", "restores", "bodies", "publish_failures"):
        assert seen[name] >= len(SEEDS) // 2, f"{name}: {seen[name]}"


def late_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events are added at once to counters that the image has not read yet."""
    honest: Any = GroupIndex.apply

    def apply(self: Any, *what: Any, image: object = None, **how: Any) -> None:
        honest(self, *what, **how)

    monkeypatch.setattr(GroupIndex, "apply", apply)


def late_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that changes after it was captured is taken for saved."""
    opened = WindowLifecycle.opening

    def unchanged(self: WindowLifecycle, state: SketchState, *which: Any) -> Steps[OpenWindow | None]:
        window = yield from opened(self, state, *which)
        if window is not None and window.blob is not None:
            window.dirty = False
        return window

    monkeypatch.setattr(WindowLifecycle, "opening", unchanged)


def wrong_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The position of a chunk is believed, whatever the offsets of its records are."""
    monkeypatch.setattr(PartitionState, "_require_between", lambda *_: None)


@pytest.mark.parametrize("mistake", [late_pieces, late_writes, wrong_positions])
def test_schedules_show_mistakes(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises(AssertionError, match="items seen"):
        run_all()
