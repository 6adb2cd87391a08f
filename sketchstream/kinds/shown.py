"""How the answers of a kind are shown: its numbers by name, its pictures, a headline.

In: an answer as plain data, with the keys of the command line's JSON. Out: the kind's module. Touches: nothing.

A kind names the module in `Kind.shows`; it has the functions of `Shown`. What pages, reports, notebooks and series over
time show of a kind is written there once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from sketchstream import kinds

if TYPE_CHECKING:
    from sketchstream.pictures import Number, Picture
    from sketchstream.report import Table

Answer = Mapping[str, Any]


class Shown(Protocol):
    """What a kind says of its answers."""

    def headline(self, answer: Answer) -> str:
        """The most important numbers in a sentence."""

    def numbers(self, answer: Answer) -> dict[str, str]:
        """Names of the numbers that are worth following over time, with their titles; the usual one first."""

    def number(self, answer: Answer, name: str) -> tuple[str, Number] | None:
        """The title of a number, and its value with the ends of its interval; None: the answer does not have it."""

    def pictures(self, answer: Answer) -> list[Picture]:
        """Charts with their tables."""

    def tables(self, answer: Answer) -> list[Table]:
        """Tables without a chart."""


class _Plain:
    """Of a kind that names no module: nothing is drawn, and its top-level numbers are its numbers."""

    def headline(self, answer: Answer) -> str:
        del answer
        return ""

    def numbers(self, answer: Answer) -> dict[str, str]:
        return {name: name for name, one in answer.items() if _is_number(one)}

    def number(self, answer: Answer, name: str) -> tuple[str, Number] | None:
        one = answer.get(name)
        return (name, one) if one is not None and _is_number(one) else None

    def pictures(self, answer: Answer) -> list[Picture]:
        del answer
        return []

    def tables(self, answer: Answer) -> list[Table]:
        del answer
        return []


def of(answer: Answer) -> Shown:
    """How an answer is shown.

    Args:
        answer: of any kind: its `kind`, or that of profiles, which say none.
    """
    return named(str(answer.get("kind", "profile")))


def named(kind: str) -> Shown:
    """How the answers of the kind of this name are shown.

    Raises:
        SpecError: there is none.
    """
    module = kinds.named(kind).shows
    return cast("Shown", import_module(module)) if module else _Plain()


def chained(answers: Sequence[Answer]) -> list[Picture]:
    """Answers of consecutive windows as one series, for kinds whose answers run on from window to window.

    Args:
        answers: of one sketch, ascending.
    """
    if not answers:
        return []
    module = import_module(kinds.named(str(answers[0].get("kind", "profile"))).shows)
    found: list[Picture] = module.chained(answers) if hasattr(module, "chained") else []
    return found


def _is_number(one: object) -> bool:
    return isinstance(one, Mapping) and one.keys() == {"value", "low", "high"}
