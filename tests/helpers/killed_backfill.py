"""Kills a backfill with SIGKILL, at each of its steps or at random moments, and lets it go on; run as a script.

In: a configuration, its range, "steps" or a number of random moments, a seed. Out: a line on standard output, or an
AssertionError. Touches: what the configuration names. Each run is a fork of this process, whose engine was
closed before.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from sketchstream import faults
from sketchstream.config.loader import Config
from sketchstream_connectors.lake.job import BackfillJob

WINDOWS = 2
"""That the range has."""


def run(path: str, start: int, end: int) -> int:
    """Windows that a run to the end has."""
    job = BackfillJob(Config.load(path), start, end)
    try:
        return sum(done.outcome != "no records" for done in job.run())
    finally:
        job.close()


def forked(work: Callable[[], object], after_s: float | None = None) -> bool:
    """Whether a fork that does this work came to its end, and was not killed, by itself or after this time."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    if after_s is not None:
        time.sleep(after_s)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "a run failed"
    return not os.WIFSIGNALED(status)


def held(folder: Path, ending: str) -> dict[str, bytes]:
    """Files of this ending."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob(f"*{ending}"))}


def require_once(folder: Path, before: dict[str, bytes] | None, windows: int | None) -> dict[str, bytes]:
    """Bodies that are stored: those from before are unchanged, all that is published is stored and booked."""
    bodies = held(folder / "sealed.state", ".body")
    booked = {name.removesuffix(".booked") for name in held(folder / "sealed.state", ".booked")}
    assert {name.removesuffix(".body") for name in bodies} <= booked, "a body without a row"
    assert all(bodies.get(name) == body for name, body in (before or {}).items()), "a body changed"
    published = held(folder / "sealed", ".sealed") if (folder / "sealed").exists() else {}
    assert {*published.values()} <= {*bodies.values()}, "published and not stored"
    if windows is not None:
        assert len(published) == len(bodies) == len(booked) == windows, (len(published), len(bodies), len(booked))
    return bodies


def at_steps(path: str, start: int, end: int, most: int) -> int:
    """Kill a new job at each step in turn, the first `most` of them; the number of kills."""
    folder = Path(path).parent
    for number in range(1, most + 1):
        for name in ("sealed", "sealed.state"):
            shutil.rmtree(folder / name, ignore_errors=True)
        left = number

        def reached(step: str) -> None:
            nonlocal left
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

        def work() -> None:
            faults.install(reached)
            run(path, start, end)

        if forked(work):
            return number - 1
        before = require_once(folder, None, None)
        assert forked(lambda: run(path, start, end))
        assert require_once(folder, before, WINDOWS)
    return most


def at_random(path: str, start: int, end: int, kills: int, seed: int) -> int:
    """Kill jobs at random moments, so many times in all; a job that came to its end begins anew. Its kills."""
    folder, bits = Path(path).parent, random.Random(seed)
    begun = time.monotonic()
    assert forked(lambda: run(path, start, end))
    whole_s = time.monotonic() - begun
    before: dict[str, bytes] = {}
    killed = 0
    while killed < kills:
        if forked(lambda: run(path, start, end), bits.uniform(0, whole_s)) or bits.random() < 0.3:
            assert forked(lambda: run(path, start, end))
            require_once(folder, before, WINDOWS)
            for name in ("sealed", "sealed.state"):
                shutil.rmtree(folder / name)
            before = {}
            continue
        killed += 1
        before = require_once(folder, before, None) if (folder / "sealed.state").exists() else {}
    assert forked(lambda: run(path, start, end))
    require_once(folder, before, WINDOWS)
    return killed


def main() -> None:
    path, start, end, how, seed = sys.argv[1:]
    run(path, int(start), int(end))  # forks have the compiled kernels of this process
    for name in ("sealed", "sealed.state"):
        shutil.rmtree(Path(path).parent / name)
    if how.startswith("steps"):
        print("killed", at_steps(path, int(start), int(end), int(how.removeprefix("steps"))))
    else:
        print("killed", at_random(path, int(start), int(end), int(how), int(seed)))


if __name__ == "__main__":
    main()
