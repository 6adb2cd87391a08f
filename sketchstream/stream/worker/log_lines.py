"""A worker's log lines about records that it counted or did not count, and about windows that it left open.

In: counters, assigned partitions. Out: lines for the log. Touches: nothing.

With `diagnostics = "off"` the lines contain only numbers that depend on envelopes (times, partitions), and a remark
that others exist.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from sketchstream.stream.interfaces import Frontier
from sketchstream.stream.monitoring.metrics import Metrics
from sketchstream.stream.published.evidence import misplaced_law
from sketchstream.stream.windows.calendar import NO_TIME, iso
from sketchstream.stream.worker.assigned_partition import AssignedPartition

REASONS: Final = ("late", "future", "unreadable_times", "undecodable", "invalid", "nulls", "misplaced")
"""Counters of what was not counted. A record may be in several; `misplaced` and `invalid` count updates."""
ADVICE: Final = {
    "late": "their windows are sealed: the same input again is not counted a second time, and one that is not in the "
    "order of its times has to be sorted, or needs a larger input.lateness",
    "future": "event times lie beyond input.max_ahead; check input.time and the producers' clocks",
    "unreadable_times": "check input.time",
    "undecodable": "check input.format",
    "invalid": "check input.item_type and max_weight",
    "nulls": "check input.item",
    "misplaced": "check input.partitioner with `sketchstream validate`",
}
RECENT: Final = 10
"""Number of the newest reports, one a minute, whose records are judged together."""
MISPLACED_SHARE: Final = 0.05
"""Share of misplaced updates beyond which a worker warns."""
DEVIATIONS: Final = 6.0
"""Standard deviations of noise that a published number must exceed for a warning."""
MAX_NAMED_WINDOWS: Final = 3
"""Most open windows of a sketch that a message names."""


def counts(metrics: Metrics) -> str:
    """Updates, and records that were not counted, by reason, as far as diagnostics allow."""
    exact = metrics.exact()
    parts = [f"updates={exact['updates']}"] if metrics.diagnostics else []
    parts += [f"{name}={exact[name]}" for name in REASONS if exact.get(name)]
    if not metrics.diagnostics:
        parts.append("diagnostics=off (how many events were counted is not said)")
    return " ".join(parts)


def counters_shown(metrics: Metrics) -> dict[str, int]:
    """Updates, and records that were not counted, by name, as far as diagnostics allow."""
    exact = metrics.exact()
    return {name: exact[name] for name in ("updates", *REASONS) if name in exact}


class Recent:
    """The exact counters of the last `RECENT` reports: a worker that was right for months is judged by today."""

    def __init__(self) -> None:
        self._past: deque[dict[str, int]] = deque([{}], RECENT + 1)

    def counted(self, metrics: Metrics) -> dict[str, int]:
        """What was counted since the oldest of those reports, by name."""
        return {name: n - self._past[0].get(name, 0) for name, n in metrics.exact().items()}

    def note(self, metrics: Metrics) -> None:
        """Note that a report was made."""
        self._past.append(metrics.exact())


def main_reason(exact: Mapping[str, int]) -> str | None:
    """The reason why too many records were not counted, with what to do; None if there is none.

    Too many are one in twenty updates that are misplaced, as a right partitioner misplaces none, and more than half of
    the records for any other reason.

    Args:
        exact: counters of one stretch of time, those of payloads only if diagnostics allow.
    """
    # each sketch counts its own updates, so misplaced ones are compared with those
    misplaced, updates = exact.get("misplaced", 0), exact.get("updates", 0)
    others = [name for name in REASONS if name != "misplaced" and 2 * exact.get(name, 0) > exact["records"]]
    if misplaced > updates or (not others and MISPLACED_SHARE * (misplaced + updates) < misplaced):
        many = "more than half" if misplaced > updates else f"{misplaced / (misplaced + updates):.0%}"
        return f"{many} of all records are misplaced: {ADVICE['misplaced']}"
    if not others:
        return None
    name = max(others, key=lambda reason: exact[reason])
    return f"more than half of all records are {name.replace('_', ' ')}: {ADVICE[name]}"


def published_reason(frontiers: Iterable[Frontier]) -> str | None:
    """Why windows that were published just now lack records, from their published evidence; None if that shows none.

    The numbers are noisy and anyone may read them, so this is said whatever diagnostics allow.

    Args:
        frontiers: published frontiers.
    """
    for frontier in frontiers:
        evidence = frontier.evidence
        newest = None if evidence is None else max(evidence.windows, key=lambda window: window[1], default=None)
        if evidence is None or newest is None:
            continue
        numbers = evidence.windows[newest]
        mean, variance = misplaced_law(evidence.noise, 1) if evidence.noise.misplaced else (math.inf, 0.0)
        if numbers.misplaced is not None and numbers.misplaced > mean + DEVIATIONS * variance**0.5 + 1.0:
            return (
                f"records of sketch {frontier.sketch} are misplaced in the window that ended at {iso(newest[1])}: "
                f"{ADVICE['misplaced']}"
            )
    return None


def describe_unsealed(partitions: Collection[AssignedPartition], lateness_ms: int, *, bounded: bool) -> Iterator[str]:
    """Describe the open windows and what they wait for.

    Args:
        partitions: partitions of the worker.
        lateness_ms: how long a window stays open behind the watermark.
        bounded: the input has an end, at which the windows could be sealed.
    """
    opened: dict[str, dict[tuple[int, int], int]] = {}
    for assigned in partitions:
        if assigned.state is None:
            continue
        for sketch_state in assigned.state.sketch_states.values():
            for window in sketch_state.windows.values():
                marks = opened.setdefault(sketch_state.name, {})
                place = (window.start, window.end)
                marks[place] = min(assigned.state.watermark, marks.get(place, assigned.state.watermark))
    for name, windows in sorted(opened.items()):
        for (start, end), watermark in sorted(windows.items())[:MAX_NAMED_WINDOWS]:
            reached = "nowhere: input.quorum records must agree" if watermark == NO_TIME else iso(watermark)
            advice = "; input.close_at_end = true seals it at the end of the file" if bounded else ""
            yield (
                f"window {iso(start)} to {iso(end)} of sketch {name} is open: it is sealed when the watermark "
                f"(now {reached}) reaches {iso(end + lateness_ms)}, its end and input.lateness{advice}"
            )
        if len(windows) > MAX_NAMED_WINDOWS:
            yield f"{len(windows) - MAX_NAMED_WINDOWS} more windows of sketch {name} are open"


def nothing_sealed(partitions: Collection[AssignedPartition], metrics: Metrics, *, bounded: bool) -> str | None:
    """Why no window was opened or sealed in this run; None if one was."""
    exact = metrics.exact()
    states = [partition.state for partition in partitions if partition.state is not None]
    if exact["windows_sealed"] or any(state.open_windows for state in states):
        return None
    if not exact["records"]:
        if bounded and any(state.position for state in states):
            return (
                "there is nothing new: an earlier run read the input to its end, and nothing is counted twice; windows "
                "keep the configuration and the key of their time (`sketchstream reset` counts anew, at a further loss)"
            )
        return "there were no records"
    refused = [f"{exact[name]} {name.replace('_', ' ')}" for name in REASONS[:3] if exact.get(name)]
    if exact["late"] == exact["records"]:
        return f"all {exact['records']} records are late: {ADVICE['late']}"
    reason = (
        f"none of {exact['records']} records opened a window: {', '.join(refused) or 'their times were not readable'}"
    )
    advice = next((ADVICE[name] for name in REASONS[:3] if exact.get(name)), ADVICE["unreadable_times"])
    return f"{reason}; {advice}"
