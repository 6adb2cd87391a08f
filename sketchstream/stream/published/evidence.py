"""Published evidence about the windows of a sketch: noisy numbers that frontiers carry, and the laws of their noise.

In: plans, what a frontier holds. Out: numbers for frontiers, snapshots and readers. Touches: nothing. What a worker
keeps of open windows is in `stream.state.evidence`, which readers do not see.
Source: docs/streams.md, "Quality"; docs/theory/privacy.md, section 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from sketchstream import kinds
from sketchstream.kinds.interface import Spec
from sketchstream.privacy.deployments import publications
from sketchstream.privacy.losses.law_names import DISCRETE_GAUSSIAN
from sketchstream.spec import NO_PRIVACY, read_rational
from sketchstream.stream.published.values import digits, integer, read_signed
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream.stream.windows.plans import SketchPlan

Span = tuple[int, int]

FEW_CELLS, MANY_CELLS = 1024, 4096
"""Numbers of cells for misplaced items; the larger one if epsilon is below 1, because each cell then shows little."""


@dataclass(frozen=True)
class EvidenceNoise:
    """The noise of the evidence that a sketch keeps.

    Args:
        refused: epsilon of each draw in a number of refused records; 0: not kept.
        misplaced: epsilon of each draw in the number of misplaced events, or of the cells of misplaced items and of
            the draw in their published sum; 0: not kept.
        cells: unit "item": number of cells; 0: events are counted.
        unkeyed: whether records of an item may be in any partition, so that none is misplaced.
    """

    refused: Fraction = Fraction(0)
    misplaced: Fraction = Fraction(0)
    cells: int = 0
    unkeyed: bool = False

    @classmethod
    def for_plan(cls, plan: SketchPlan | None, *, checked: bool, unkeyed: bool = False) -> EvidenceNoise:
        """The noise of a sketch.

        Args:
            plan: plan of the sketch; None: it is no longer configured, and nothing is kept.
            checked: whether items are compared with the partitioner, so that some can be misplaced.
            unkeyed: whether the input is not partitioned by item.
        """
        if plan is None:
            return cls()
        misplaced = misplaced_noise(plan.spec) if plan.epsilon_misplaced is None else plan.epsilon_misplaced
        if not checked:
            misplaced = Fraction(0)
        cells = 0
        if misplaced and plan.spec.unit == "item":
            cells = FEW_CELLS if misplaced >= 1 else MANY_CELLS
        refused = refused_noise(plan.spec) if plan.epsilon_refused is None else plan.epsilon_refused
        return cls(refused, misplaced, cells, unkeyed)


def refused_noise(spec: Spec) -> Fraction:
    """Default noise of numbers of refused records: 1/10, and a tenth of the sketch's epsilon if that is more.

    Half of it where epsilon is above 10, with which the project says that nobody is protected.
    """
    epsilon = _epsilon(spec)
    return max(Fraction(1, 10), epsilon / (2 if epsilon > NO_PRIVACY else 10))


def misplaced_noise(spec: Spec) -> Fraction:
    """Default noise of the number of misplaced events or items.

    A misplaced event changes this number and nothing else of the sketch. With half the sketch's smallest epsilon the
    two draws cost it no more than an event that is counted (Gaussian sketches: a twentieth, as their mu is smaller
    than epsilon / 4). A misplaced item may also have records where it belongs, so it pays on top: a tenth, and a
    half where epsilon is above 10.
    """
    epsilon = _epsilon(spec)
    gaussian = any(component.law == DISCRETE_GAUSSIAN for component in kinds.kind_of(spec).accounting.components(spec))
    if spec.unit == "event":
        return epsilon / (20 if gaussian else 2)
    return epsilon / (2 if epsilon > NO_PRIVACY else 10)


def _epsilon(spec: Spec) -> Fraction:
    """The smaller of a sketch's two epsilons."""
    epsilons = (getattr(spec, name, None) for name in ("epsilon", "epsilon_publish"))
    return min(Fraction(epsilon) for epsilon in epsilons if epsilon)


@dataclass(frozen=True)
class WindowNumbers:
    """The published evidence about one window in one partition.

    Args:
        refused: noisy number of records that the window refused.
        draws: draws of noise in it.
        contradicted: records that were written inside the window came after idleness had closed it.
        misplaced: noisy number of misplaced events, or of cells that are set; None: not kept, or nothing was counted.
    """

    refused: int
    draws: int
    contradicted: bool = False
    misplaced: int | None = None


@dataclass(frozen=True)
class PublishedEvidence:
    """The evidence of one frontier.

    Args:
        noise: noise of the numbers.
        since: windows that end by then (ms) have no numbers, because they were not kept then; NO_TIME: all have.
        older: noisy number of records refused by windows that are older than those with numbers.
        older_draws: draws of noise in that number.
        windows: evidence by window.
        former: evidence about windows before `since`, with the noise of a former configuration; newest first.
    """

    noise: EvidenceNoise
    since: int = NO_TIME
    older: int = 0
    older_draws: int = 0
    windows: Mapping[Span, WindowNumbers] = field(default_factory=dict)
    former: tuple[PublishedEvidence, ...] = ()

    def fields(self) -> dict[str, Any]:
        """Plain data, for frontiers."""
        out: dict[str, Any] = {
            "epsilon_refused": str(self.noise.refused),
            "older": [self.older, self.older_draws],
            "windows": [
                [*window, numbers.refused, numbers.draws, int(numbers.contradicted), numbers.misplaced]
                for window, numbers in sorted(self.windows.items())
            ],
        }
        if self.noise.misplaced:
            out |= {"epsilon_misplaced": str(self.noise.misplaced), "cells": self.noise.cells}
        if self.noise.unkeyed:
            out["anywhere"] = 1
        if self.former:
            out["former"] = [former.fields() for former in self.former]
        return out if self.since == NO_TIME else {**out, "since": self.since}

    def every(self) -> dict[Span, WindowNumbers]:
        """The evidence of all windows, those of former noises too."""
        return {window: numbers for part in (*self.former, self) for window, numbers in part.windows.items()}

    def stored(self) -> dict[str, Any]:
        """Plain data for snapshots, in which the size of a number does not depend on its value."""
        out = self.fields()
        out["older"] = [digits(self.older), self.older_draws]
        for numbers in out["windows"]:
            numbers[2], numbers[5] = digits(numbers[2]), None if numbers[5] is None else digits(numbers[5])
        return out | ({"former": [former.stored() for former in self.former]} if self.former else {})

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> PublishedEvidence:
        """Read what `fields` or `stored` wrote.

        Raises:
            ValueError, TypeError, KeyError: it is not that.
        """
        windows: dict[Span, WindowNumbers] = {}
        for start, end, refused, draws, contradicted, misplaced in fields["windows"]:
            windows[integer(start), integer(end)] = WindowNumbers(
                _number(refused), integer(draws), bool(contradicted), None if misplaced is None else _number(misplaced)
            )
        older, older_draws = fields["older"]
        noise = EvidenceNoise(
            read_rational(fields["epsilon_refused"]),
            read_rational(fields.get("epsilon_misplaced", "0")),
            integer(fields.get("cells", 0)),
            bool(fields.get("anywhere", 0)),
        )
        former = tuple(
            cls.read({**part, "former": ()}) for part in fields.get("former", ())
        )  # which have none themselves
        return cls(noise, integer(fields.get("since", NO_TIME)), _number(older), integer(older_draws), windows, former)


def noise_of_frontiers(
    frontiers: Iterable[tuple[str, PublishedEvidence | None]],
) -> dict[str, publications.FrontierNoise]:
    """The noise of the numbers that frontiers carry, by the name of the sketch; where it changed, its largest epsilons.

    Args:
        frontiers: names of sketches, and the evidence of a frontier.
    """
    by_name: dict[str, publications.FrontierNoise] = {}
    for name, newest in frontiers:
        for noise in () if newest is None else (newest.noise, *(former.noise for former in newest.former)):
            before = by_name.get(name, publications.FrontierNoise())
            refused, misplaced = max(before.refused, noise.refused), max(before.misplaced, noise.misplaced)
            by_name[name] = publications.FrontierNoise(refused, misplaced)
    return by_name


def misplaced_law(noise: EvidenceNoise, parts: int) -> tuple[float, float]:
    """Mean and variance of the published numbers of some partitions if nothing is misplaced.

    Args:
        noise: noise of the numbers.
        parts: number of partitions.
    """
    epsilon = float(noise.misplaced)
    laplace_variance = 0.5 / np.sinh(epsilon / 2.0) ** 2
    if not noise.cells:
        return 0.0, 2.0 * laplace_variance * parts
    set_ = 1.0 / (1.0 + np.exp(epsilon))
    return noise.cells * set_ * parts, (noise.cells * set_ * (1.0 - set_) + laplace_variance) * parts


def _number(value: object) -> int:
    """A number as `fields` or `stored` writes it."""
    return read_signed(value) if isinstance(value, str) else integer(value)
