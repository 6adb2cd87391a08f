"""What tries a mutant: checks of `sketchstream verify --quick`, and tests, with the functions that each of them calls.

In: the package; tests, which pytest has collected. Out: for every function the judges that call it, cheapest first;
what they find on a mutant. Touches: children of its own, each with a limit of time.

Every judge runs in a child of one warm process, so nothing is imported, collected or compiled twice. A first pass on
the honest package notes which functions a judge calls, how long it takes, and whether it passes: one that does not is
no judge.
"""

from __future__ import annotations

import gc
import math
import os
import resource
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, Literal

import msgpack
import pytest
from mutation.operators import MODULES, ROOT

from sketchstream.audit import report
from sketchstream.audit.observed import Outcome

Kind = Literal["verify", "suite"]
LIMIT_S: Final = 300
"""Processor time of a child; a mutant that needs more does not end."""
PATIENCE_S: Final = 900
"""The same by the clock, for children that wait for ever."""
CASES: Final = 2
"""Sketches, or laws, for each check of `verify`, unless survivors are tried again."""
SLOW_S: Final = 6
"""Processor time, being watched, from which on something is no judge."""


@dataclass(frozen=True)
class Judge:
    """One check or test.

    Args:
        kind: whose it is.
        name: unique.
        group: judges of one group are watched in one child.
        run: says what is wrong; empty if nothing is.
    """

    kind: Kind
    name: str
    group: str
    run: Callable[[], str]


@dataclass(frozen=True)
class Watched:
    """A judge that passed on the honest package: its time, and the functions that it called.

    Args:
        kind: kind of the judge.
        name: name of the judge.
        seconds: processor time.
        called: "module:function".
    """

    kind: Kind
    name: str
    seconds: float
    called: frozenset[str]


class Listener:
    """Hears from pytest what failed last."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Called for each phase of a test."""
        if report.failed:
            self.failed.append(report.nodeid)


def checks(cases: int | None = CASES) -> list[Judge]:
    """The quick checks of `verify`, a group for each section.

    Args:
        cases: at most so many sketches, or laws, for each check of a section; None: all.
    """
    seen: Counter[str] = Counter()
    out: list[Judge] = []
    for name, step in report._steps(quick=True):
        what = name.partition(",")[0]
        seen[what] += 1
        if cases is None or (seen[what] <= cases and not name.startswith("bounds")):
            group = f"verify: {name.partition(':')[0]}"
            out.append(Judge("verify", name, group, lambda step=step: _refused(step)))  # type: ignore[misc]
    return out


def _refused(check: Callable[[], Outcome | report.Outcomes]) -> str:
    found = check()
    outcomes = [outcome for _, outcome in found] if isinstance(found, list) else [found]
    return next((result or "refused" for passed, _, result, _ in outcomes if not passed), "")


def tests(items: Sequence[pytest.Item], listener: Listener) -> list[Judge]:
    """Tests that pytest has collected, a group for each file."""

    def failed(item: pytest.Item) -> str:
        listener.failed.clear()
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
        return " ".join(listener.failed[:1])

    return [
        Judge("suite", item.nodeid, item.nodeid.partition("::")[0], lambda item=item: failed(item))  # type: ignore[misc]
        for item in items
    ]


def in_child(work: Callable[[], Any], limit_s: float = LIMIT_S, patience_s: float = PATIENCE_S) -> Any:
    """What `work` returns in a process of its own, or text that says how it ended.

    Args:
        work: gives plain data.
        limit_s: processor time of the child.
        patience_s: the same by the clock.
    """
    from helpers import entropy  # only after pytest has read it as a plugin

    with tempfile.TemporaryFile("w+b") as said:
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s), int(limit_s)))  # a signal ends the child
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(1, 2)
            entropy.NAMED._home = os.getpid()  # keys follow from the names of tests here too
            try:
                out = work()
            except BaseException as error:
                out = f"{type(error).__name__}: {error}"[:160]
            said.write(msgpack.packb(out))
            said.flush()
            os._exit(0)
        until = time.monotonic() + patience_s
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            time.sleep(0.01)
            if time.monotonic() > until:
                os.kill(child, signal.SIGKILL)
        said.seek(0)
        text = said.read()
    return msgpack.unpackb(text) if text else f"ended by signal {os.WTERMSIG(ended[1])}"


def watched(judges: Sequence[Judge], note: Callable[[str], None]) -> list[Watched]:
    """Run judges on the honest package, a child for each group: those that pass, with what they call.

    Args:
        judges: all of them.
        note: told about each that is no judge, and why.
    """
    groups: dict[str, list[Judge]] = {}
    for one in judges:
        groups.setdefault(one.group, []).append(one)
    out: list[Watched] = []
    for group, some in groups.items():
        found = in_child(lambda some=some: [_watch(one) for one in some], 3600, math.inf)  # type: ignore[misc]
        if isinstance(found, str):
            note(f"{group}: {found}")
            continue
        for one, (seconds, said, called) in zip(some, found, strict=True):
            if said or seconds > SLOW_S:
                note(f"{one.name}: {said or f'takes {seconds:.0f} s'}")
            else:
                out.append(Watched(one.kind, one.name, seconds, frozenset(called)))
    return out


def _watch(judge: Judge) -> tuple[float, str, list[str]]:
    """Time, what is wrong, and functions of the package that were called."""
    codes: set[CodeType] = set()

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        del event, argument
        codes.add(frame.f_code)

    forget()
    began = time.process_time()
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        said = judge.run()
    except Exception as error:
        said = type(error).__name__
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
    seconds = time.process_time() - began
    return seconds, said, sorted(set(filter(None, map(_name, codes))))


_FILES: Final = {str(ROOT / "sketchstream" / f"{module}.py"): module for module in MODULES}


def _name(code: CodeType) -> str:
    module = _FILES.get(code.co_filename)
    return f"{module}:{code.co_qualname}" if module else ""


def forget() -> None:
    """Forget what functions of the package keep, so that a judge calls what its answer depends on."""
    for one in gc.get_objects():
        if type(one).__name__ == "_lru_cache_wrapper" and str(one.__module__).startswith("sketchstream"):
            one.cache_clear()


def found(judges: Sequence[Judge], budget_s: float) -> Any:
    """What the first of some judges that fails on a mutant says, and how many were asked; to be run in a child.

    Args:
        judges: cheapest first.
        budget_s: ask no other judge after so much processor time.
    """
    forget()
    began = time.process_time()
    for asked, one in enumerate(judges):
        if time.process_time() - began > budget_s:
            return "", asked
        try:
            said = one.run()
        except Exception as error:
            said = type(error).__name__
        if said:
            return f"{one.name}: {said}"[:200], asked + 1
    return "", len(judges)


def kept(path: Path, mapped: Sequence[Watched] | None = None) -> list[Watched]:
    """Write or read what was watched, so that an interrupted run need not watch again.

    Args:
        path: path of the file.
        mapped: what to write; None: read.
    """
    if mapped is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgpack.packb([[one.kind, one.name, one.seconds, sorted(one.called)] for one in mapped]))
        return list(mapped)
    return [
        Watched(kind, name, seconds, frozenset(called))
        for kind, name, seconds, called in msgpack.unpackb(path.read_bytes())
    ]
