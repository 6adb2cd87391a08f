"""Audit of a worker: the windows that it publishes of records that count nothing.

In: `[[sketch]]` blocks of every kind. Out: outcomes. Touches: entropy, through the windows it opens; memory only.
Source: docs/theory/privacy.md sections 5 and 6.

The worker, its partitions and its decoders are the real ones; broker and store are in memory. All items are outside of
the domain, so what is published is noise alone: of its law, drawn afresh in every window and partition, and charged
once each.
"""

from __future__ import annotations

import warnings
from typing import Any, Final

import numpy as np

from sketchstream.audit import draws, histories
from sketchstream.audit.cases import Audit, Case
from sketchstream.audit.deployments import brute_force, compare_totals
from sketchstream.audit.observed import UNLIKELY, Outcome, counters_of, resolution
from sketchstream.noise import laws
from sketchstream.privacy.deployments.deployment import Deployment
from sketchstream.spec import NoPrivacyWarning

CONFIGURATION: Final = """
[kafka]
bootstrap.servers = "unused:9092"
group.id = "audit"
[input]
topic = "events"
item = "user"
item_type = "int"
time = "ts"
partitioned_by = "item"
partitioner = "murmur2"
lateness = "5m"
[[sketch]]
name = "audit"
window = "1h"
"""
HOURS: Final = 12
PARTITIONS: Final = 2
OUTSIDE: Final = 1 << 40
"""An item outside of every domain here: a payload that counts nothing."""
EACH_HOUR: Final = 6
"""Records of each partition in each window."""


def worker(audit: Audit, block: str) -> Outcome:
    """Check windows: their ledgers, noise, counters, and the loss of the whole deployment."""
    with warnings.catch_warnings(action="ignore", category=NoPrivacyWarning):
        parts = windows(block)
        case: Case | None = audit.promises("worker", parts[0].spec) if parts else None
    claim = "one publication of each window and partition, charged; fresh noise of its law"
    power = "one entry, one window"
    places = {(part.origin.window, part.origin.partition) for part in parts}
    if case is None or len(parts) < (HOURS - 1) * PARTITIONS or len(places) != len(parts):
        return False, claim, f"{len(parts)} parts of {len(places)} places", power
    expected: histories.Wanted = [("layer", case.costs["create"]), *histories.publication(case)]
    for part in parts:
        wrong = histories.differs(case, part.ledger, expected) or histories.compare_cost(case, part, "seal")
        wrong = wrong or histories.losses(case, part.ledger, expected)
        if wrong:
            return False, claim, f"WRONG: {wrong}", power
    wrong = _noise(case, parts) or _counters(case, parts)
    wrong = wrong or compare_totals(Deployment.of(parts).total(), brute_force(parts, keyed=True))
    if wrong:
        return False, claim, wrong, power
    passed, wanted_law, found, resolved = audit.windows(case, parts)
    return passed, f"{claim}: {wanted_law}", f"{found}, {len(parts)} parts", resolved


def windows(block: str) -> list[Any]:
    """What a worker publishes of records outside of the domain."""
    from sketchstream.testing.driver import Driver

    driver = Driver(CONFIGURATION + block, partitions=PARTITIONS, now="2024-01-01T00:00:00Z")
    for hour in range(HOURS):
        driver.advance(hours=1)
        for number in range(EACH_HOUR):
            at = f"2024-01-01T{hour:02}:{10 * number:02}:00Z"
            for partition in range(PARTITIONS):
                driver.send({"user": OUTSIDE, "ts": at}, timestamp=at, partition=partition)
        driver.run()
        if hour == HOURS // 2:
            driver.snapshot()
            driver.kill()
    driver.advance(hours=6)
    return [part for window in driver.windows("audit") for part in window.parts]


def _noise(case: Case, parts: list[Any]) -> str | None:
    """Text on noise that windows share; None if there is none."""
    bodies = [part.state if case.publishes != "histogram" else part.noised for part in parts]
    size = min(body.size for body in bodies)  # each partition has its part of a closed domain
    drawn = np.stack([body.ravel()[:size].astype(np.int64) for body in bodies])
    if case.publishes == "histogram":
        return "SHARED NOISE: two windows are equal" if len(np.unique(drawn, axis=0)) < len(drawn) else None
    return draws.shared_rows(drawn, case)


def _counters(case: Case, parts: list[Any]) -> str | None:
    """Text on counters of other laws, or other names; None if they are right."""
    admitted = {"admitted"} if case.admitted else set()
    for name in {*case.counters(case.costs["create"]), *admitted}:
        values = [counters_of(part).get(name) for part in parts]
        if None in values:
            return f"WRONG: no counter {name}"
        noise = np.array(values, np.int64) - (EACH_HOUR if name == "admitted" else 0)
        if len(np.unique(noise)) == 1:
            return f"WITHOUT NOISE: {name}"
        law = case.admitted if name == "admitted" else case.counters(case.costs["create"])[name]
        if name == "admitted" or case.publishes == "bare":
            worst = min(laws.battery(noise, law), key=lambda check: check.p_value)  # type: ignore[arg-type]
            if worst.p_value < UNLIKELY:
                power = f"would find {resolution(law, len(noise)):.0%}"
                return f"p = {worst.p_value:.2g} ({name}, {worst.name}), {power}"
    return None
