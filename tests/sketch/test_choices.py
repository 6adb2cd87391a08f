"""A word that nobody knows is refused: every choice that the public interface offers, found by its signatures.

In: the signatures of everything public. Out: nothing. Touches: nothing.

A parameter offers a choice if its annotation holds a `Literal` or a `bool`, or if it is in `ALSO`. Each is called with
words that are none of the choices; a call that works otherwise must end in one of our errors. A new parameter without a
call in `CALLS` fails here.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
import sys
import tempfile
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sketchstream as ss
from sketchstream.cli import main
from sketchstream.errors import SketchstreamError

pytestmark = pytest.mark.filterwarnings("ignore:.*NO PRIVACY")
CLOSED = ss.ClosedDomain(64)
MU = {"epsilon": "1", "delta": "1e-6"}
KEY = ss.Key(bytes(range(16)))
SPECS: dict[str, Any] = {
    "profile": ss.ProfileSpec("1", domain=CLOSED),
    "profile of items": ss.ProfileSpec("1", "item", CLOSED, epsilon_publish="1"),
    "profile of an open domain": ss.ProfileSpec("1", domain=ss.OpenDomain(64, 2)),
    "gaussian": ss.GaussianSpec(**MU, domain=CLOSED),
    "convolution": ss.ConvolutionSpec("window:4", 16, epsilon="1"),
    "workload": ss.WorkloadSpec("prefix:16", **MU),
    "projection": ss.ProjectionSpec(4, 8, 2, **MU),
}
PAIRS = ss.Pairs([1, 2], [3, 4])
ALSO = {"method", "law", "objective", "number", "vary", "mode"}
"""Parameters that offer a choice although their annotation is wider."""
NOT_PUBLIC = re.compile(
    r"(from_header|from_dict|to_dict|rows)$|^(Release|SealedState|Stack|Sketch|Guarantee|Ledger|Plan|Profile|Estimate|"
    r"Answers|Overlap|Series|FilterAnswers|WorkloadAnswers|HierarchyAnswers|PublishedRows|RowAnswer|GaussianEstimate|"
    r"Denoised|Difference|DiscreteCalibration|Hardened|Origin|Ranked|RowEstimates|SetEstimate|Window|Windows)\.__init__$|"
    r"^Key\.(item|ranking)_key$|^(Ledger|Guarantee)\.|"
    r"^Sketch\.(from_bytes|to_bytes)$|^WorkloadSpec\.cost$"
)
"""Made by the engine and not by users: parts of files, results, account entries."""


START = 1_700_000_000_000 // 3_600_000 * 3_600_000
WINDOWS = """
[input]
file = "e.jsonl"
item = "user"
time = "ts"
close_at_end = true
[key]
file = "key"
[[sketch]]
name = "hourly"
window = "1h"
unit = "event"
epsilon = "1"
domain = { slots = 64, levels = 2 }
"""


def opened(kind: str) -> ss.Sketch:
    return ss.Sketch.create(SPECS[kind], KEY if SPECS[kind].needs_key else None)


@functools.cache
def sealed(kind: str) -> Any:
    return opened(kind).seal()


def update(kind: str) -> Callable[..., object]:
    return lambda **given: opened(kind).update(PAIRS if kind == "projection" else [1, 2], **given)


def update_sums(kind: str) -> Callable[..., object]:
    return lambda **given: opened(kind).update_sums(PAIRS if kind == "projection" else [1, 2], [1, 1], [1, 1], **given)


def save(given: dict[str, Any]) -> None:
    opened("profile").save(Path(given.pop("folder")) / "s.sketch", **given)


@functools.cache
def windows() -> ss.Windows:
    """Two windows of a worker over a file."""
    folder = Path(tempfile.mkdtemp())
    lines = [{"user": number % 50, "ts": START + number * 36_000} for number in range(200)]
    (folder / "e.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "c.toml").write_text(WINDOWS)
    KEY.save(folder / "key")
    assert main(["worker", "-c", str(folder / "c.toml")]) == 0
    return ss.windows(folder / "c.toml")


def difference(number: Any = "distinct") -> object:
    first, second, *_ = windows()
    return first.difference(second, number)


@functools.cache
def overlap() -> ss.Overlap:
    spec = ss.ProfileSpec(
        "1", "item", CLOSED, groups=ss.Groups(["a", "b"], max_groups=2), overlap=True, epsilon_overlap="1"
    )
    return ss.Sketch.create(spec, KEY).seal().overlap()


CALLS: dict[str, list[Callable[..., object]]] = {
    "ProfileSpec.__init__": [
        lambda **given: ss.ProfileSpec(**{"epsilon": "1", "domain": CLOSED, **given}),
        lambda **given: ss.ProfileSpec(
            **{"epsilon": "1", "domain": CLOSED, "publish": "state", "intrusion": True, **given}
        ),
    ],
    "GaussianSpec.__init__": [lambda **given: ss.GaussianSpec(**{**MU, "domain": CLOSED, **given})],
    "ConvolutionSpec.__init__": [
        lambda **given: ss.ConvolutionSpec(**{"kernel": "window:4", "length": 16, "epsilon": "1", **given})
    ],
    "WorkloadSpec.__init__": [lambda **given: ss.WorkloadSpec(**{"workload": "prefix:16", **MU, **given})],
    "ProjectionSpec.__init__": [
        lambda **given: ss.ProjectionSpec(**{"users": 4, "features": 8, "k": 2, **MU, **given})
    ],
    "HierarchySpec.__init__": [
        lambda **given: ss.HierarchySpec(**{"levels": ["a", "b"], "paths": [("x", "y"), ("x", "z")], **MU, **given})
    ],
    "denoise": [lambda **given: ss.denoise([1.0, 2.0, 3.0, 4.0, 5.0], 1.0, **given)],
    "Column.__init__": [lambda **given: ss.Column("a", ["x", "y"], **given)],
    "Column.buckets": [lambda **given: ss.Column.buckets("a", 0, 1, 3, **given)],
    "Groups.__init__": [lambda **given: ss.Groups(**{"names": ["a", "b"], **given})],
    "Sketch.update": [update(kind) for kind in SPECS],
    "Sketch.update_sums": [update_sums(kind) for kind in SPECS],
    "backfill": [lambda **given: ss.backfill(iter(()), SPECS["gaussian"], **given)],
    "Sketch.save": [lambda **given: save(given)],
    "Release.profile": [lambda **given: sealed("profile").profile(**given)],
    "Release.estimate": [
        lambda kind=kind, **given: sealed(kind).estimate(**given) for kind in ("gaussian", "workload")
    ],
    "SealedState.profile": [lambda **given: sealed("profile").profile(**given)],
    "SealedState.estimate": [
        lambda kind=kind, **given: sealed(kind).estimate(**given) for kind in ("gaussian", "workload")
    ],
    "Stack.profile": [lambda **given: ss.stack([sealed("profile of items")]).profile(**given)],
    "Stack.estimate": [lambda **given: ss.stack([sealed("gaussian")]).estimate(**given)],
    "GaussianLedger.loss": [lambda **given: opened("gaussian").ledger.loss(**given)],
    "GaussianLedger.order": [lambda **given: opened("gaussian").ledger.order(**given)],
    "plan": [lambda **given: ss.plan(**{"spec": SPECS["profile"], "items": 50, **given})],
    "smallest_plan": [
        lambda **given: ss.smallest_plan(
            **{"spec": SPECS["profile of an open domain"], "target": 0.9, "items": 50, **given}
        )
    ],
    "Window.difference": [difference],
    "Overlap.at_least": [lambda number=1: overlap().at_least(number)],
    "Overlap.exactly": [lambda number=1: overlap().exactly(number)],
}


def public() -> Iterator[tuple[str, Callable[..., object]]]:
    """Everything that a user calls, by its name."""
    for name in ss.__all__:
        thing = getattr(ss, name)
        if inspect.isclass(thing):
            if issubclass(thing, BaseException):
                continue
            for part, method in inspect.getmembers(thing, callable):
                if (part == "__init__" or not part.startswith("_")) and inspect.isroutine(method):
                    yield f"{name}.{part}", method
        elif callable(thing):
            yield name, thing


def choices(function: Callable[..., object]) -> list[str]:
    """Parameters that offer a choice."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    known = vars(sys.modules[function.__module__]) if getattr(function, "__module__", None) else {}
    found = []
    for parameter in parameters:
        text = str(parameter.annotation)
        listed = any(typing.get_origin(known.get(word)) is typing.Literal for word in re.findall(r"\w+", text))
        wider = parameter.name in ALSO and parameter.annotation is not parameter.empty
        if listed or wider or re.search(r"\b(bool|Literal)\b", text):
            found.append(parameter.name)
    return found


OFFERED = [
    (name, parameter) for name, function in public() if not NOT_PUBLIC.search(name) for parameter in choices(function)
]


WRONG = ["eror", "", "Error", "no", 3, 0.5, b"event", ["error"]]
"""Values that are none of the choices, whatever they are."""


def test_the_calls_work_without_a_wrong_word(tmp_path: Path) -> None:
    for name, calls in CALLS.items():
        for call in calls:
            call(**({"folder": tmp_path} if name == "Sketch.save" else {}))


@pytest.mark.parametrize(("name", "parameter"), OFFERED)
def test_a_word_that_nobody_knows_is_refused(name: str, parameter: str, tmp_path: Path) -> None:
    assert name in CALLS, f"{name} offers a choice ({parameter}): say how it is called, in CALLS"
    taken = []
    for number, call in enumerate(CALLS[name]):
        for value in WRONG:
            try:
                call(**{parameter: value}, **({"folder": tmp_path} if name == "Sketch.save" else {}))
            except SketchstreamError:
                continue
            except Exception as error:
                taken.append((number, value, error))
            else:
                taken.append((number, value))
    assert not taken
