"""The watermark's rule, record by record, in plain Python: the twin of `kernels.admit` and `kernels.move`."""

from __future__ import annotations

from dataclasses import dataclass, field

from sketchstream.stream.state.watermark import TARGET_TIMES
from sketchstream.stream.windows.calendar import EARLIEST_MS, LATEST_MS, NO_TIME
from sketchstream.stream.windows.quorum import Quorum


@dataclass
class Votes:
    """What is known of one target."""

    score: int = 0
    times: list[int] = field(default_factory=list)


@dataclass
class Reference:
    """Targets are kept by their time, with every time that was testified since their score last was nothing."""

    quorum: Quorum
    lateness_ms: int
    value: int = NO_TIME
    votes: dict[int, Votes] = field(default_factory=dict)

    def targets(self) -> list[int]:
        slice_ms = self.quorum.slice_ms
        base = max(self.value, EARLIEST_MS)
        return [(base // (slice_ms << i) + 1) * (slice_ms << i) for i in range(TARGET_TIMES)]

    def slice_of(self, time: int) -> int:
        number = time // self.quorum.slice_ms
        shift = ((number >> 6) % 2**64 * 0x9E3779B97F4A7C15 % 2**64) >> 58
        return (number % 2**64 + shift) & 63

    def admit(self, time: int, stamp: int | None, future_after: int = LATEST_MS) -> tuple[int, int]:
        """The watermark before this record, and its verdict."""
        before = self.value
        if not EARLIEST_MS <= time < LATEST_MS:
            return before, 2
        if time > future_after:
            return before, 1
        clock = time if stamp is None or stamp < 0 else stamp
        testified = min(time, clock)
        base = max(self.value, EARLIEST_MS)
        for target in set(self.targets()):
            votes = self.votes.setdefault(target, Votes())
            if testified >= target:
                votes.score = min(votes.score + 8, 8 * self.quorum.most)
                votes.times.append(testified)
                continue
            against = target > clock and clock > base - self.lateness_ms
            votes.score = max(0, votes.score - (24 if against else 1))
            if votes.score == 0:
                votes.times.clear()
        for target in sorted(set(self.targets()), reverse=True):
            votes = self.votes[target]
            slices = len({self.slice_of(one) for one in votes.times})
            if votes.score >= 8 * self.quorum.records and (
                slices >= self.quorum.records or votes.score == 8 * self.quorum.most
            ):
                self.advance(min(votes.times))
                break
        return before, 0

    def advance(self, value: int) -> None:
        if value <= self.value:
            return
        old = sorted((target, votes) for target, votes in self.votes.items() if target in set(self.targets()))
        self.value = min(value, LATEST_MS - 1)
        kept = {}
        for target in self.targets():
            for time, votes in old:
                if time >= target:
                    kept[target] = Votes(votes.score, list(votes.times))
                    break
        self.votes = kept

    def scores(self) -> list[int]:
        found = [self.votes[target].score if target in self.votes else 0 for target in self.targets()]
        return [score for score in found if score]
