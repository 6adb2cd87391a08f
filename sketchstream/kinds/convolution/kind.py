"""The kind `convolution` as the engine sees it.

In: calls of the engine. Out: answers from the spec, the noise, the updates and the estimators. Touches: the
states it is given, and entropy through `noise`.
Source: docs/theory/convolution.md, sections 3, 6, 7 and 10 (the statement).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sketchstream.array_types import Flags, Ints, State
from sketchstream.components import Component, quality_counters
from sketchstream.errors import SpecError
from sketchstream.items.arrays import Items
from sketchstream.items.events import Events
from sketchstream.kinds.capabilities import Closing, Continuing
from sketchstream.kinds.convolution.forecast import figure
from sketchstream.kinds.convolution.fourier.filters import MAX_COEFFICIENTS
from sketchstream.kinds.convolution.reading.series import closed_series, estimate
from sketchstream.kinds.convolution.spec import ConvolutionSpec
from sketchstream.kinds.convolution.update import Updater, add_noise
from sketchstream.kinds.expansion import Expansion
from sketchstream.kinds.exports import USUAL, AnswerRows, Types
from sketchstream.kinds.intake import Intake
from sketchstream.kinds.interface import Progress
from sketchstream.kinds.linear.kind import LinearAccounting, LinearKind
from sketchstream.privacy.deployments.guarantee import PACKED, RELATION, assumptions
from sketchstream.privacy.ledgers.euclidean_ledger import EuclideanLedger
from sketchstream.privacy.ledgers.gaussian_ledger import ONE, GaussianLedger
from sketchstream.privacy.losses.gaussian import UnitShift
from sketchstream.privacy.losses.law_names import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE
from sketchstream.spec import Rational

if TYPE_CHECKING:
    from sketchstream.instalment import Instalment
    from sketchstream.items.key import Key
    from sketchstream.kinds.convolution.reading.series import Series
    from sketchstream.privacy.deployments.surroundings import Context
    from sketchstream.privacy.ledgers.sketch_history import SketchHistory
    from sketchstream.provenance import Origin
    from sketchstream.published import Published


class ConvolutionAccounting(LinearAccounting[ConvolutionSpec]):
    """Costs are mu^2, sqrt(2 rho) or epsilons, by the noise of the spec."""

    def law(self, spec: ConvolutionSpec) -> str:
        return spec.scheme.law

    def noise_cost(self, spec: ConvolutionSpec, epsilon: Fraction, delta: Fraction) -> Fraction:
        return spec.layer(epsilon, delta).cost

    def ledger_and_shift(self, spec: ConvolutionSpec) -> tuple[type[GaussianLedger], UnitShift]:
        return (EuclideanLedger, ONE) if spec.measure == "rho" else (GaussianLedger, spec.shift)

    def asked_cost(self, spec: ConvolutionSpec, epsilon: Rational, delta: Rational | None) -> Fraction:
        """The cost of fresh noise for this promise; noise that is not pure needs a delta (default: the spec's).

        Raises:
            SpecError: noise that the state cannot hold, or Laplace noise in layout "time", whose rounding mixes the
                coordinates in which releases and layers compose.
        """
        if spec.measure == "rho" and spec.layout == "time":
            raise SpecError(
                "noise = 'laplace' in layout = 'time' is published once, by seal: what a release and a layer cost "
                "together is known by coordinate, and rounding mixes them; use layout = 'fourier' or noise = 'gaussian'"
            )
        cost = super().asked_cost(spec, epsilon, delta)
        if not spec.pure:
            spec.scheme.require_scales([spec.layer_of(cost)])
        return cost

    def parameter(self, spec: ConvolutionSpec, cost: Fraction) -> Fraction:
        """sigma2 or epsilon of noise on the counts with the words' cost; the spec determines its distribution."""
        words = cost * (1 - spec.counted_share)
        return spec.bound**2 / words if spec.measure == "mu2" else words / spec.scheme.sensitivity1

    def cost(self, spec: ConvolutionSpec, parameter: Fraction) -> Fraction:
        words = spec.bound**2 / parameter if spec.measure == "mu2" else parameter * spec.scheme.sensitivity1
        return words / (1 - spec.counted_share)

    def components(self, spec: ConvolutionSpec) -> tuple[Component, ...]:
        """The words of the state, then the events counted and the records admitted, if kept."""
        law = DISCRETE_GAUSSIAN if spec.measure == "mu2" else DISCRETE_LAPLACE
        words = Component("slots", 1 - spec.counted_share, spec.scheme.sensitivity1, law)
        return (words, *quality_counters(law, spec.counted_share, spec.epsilon_records))


class ConvolutionIntake(Intake[ConvolutionSpec]):
    """Positions: event times, fields, or cells of a table."""

    carries = ("weight",)

    def roles(self, spec: ConvolutionSpec) -> tuple[str, ...]:
        """Fields of the table's columns, or the position, unless the event time is the position."""
        if spec.columns is not None:
            return tuple(spec.columns.values)
        return () if spec.step_ms is not None else ("position",)

    def stretch_ms(self, spec: ConvolutionSpec) -> int | None:
        return spec.step_ms

    def most_weight(self, spec: ConvolutionSpec) -> int | None:
        return spec.bound

    def events(self, spec: ConvolutionSpec, given: Events) -> Events:
        """Positions: of the event time in its window, of a field, or the cell that the columns name."""
        common = super().events(spec, given)
        good: Flags = np.ones(len(given), np.bool_)
        if spec.columns is not None:
            positions, good = _cells(spec, given)
        elif spec.step_ms is not None:
            if given.window is None:
                raise SpecError(
                    "positions that are times need a window: events of a series come from a stream, or as positions"
                )
            start, end = given.window
            positions = (np.clip(given.event_times, start, end) - start) // spec.step_ms
        else:
            positions, good = given.columns["position"].integers()
        return common.counted(Items.of(positions), good)


class ConvolutionKind(LinearKind[ConvolutionSpec], Closing, Continuing):
    """A series or a table of counts that is read through filters known beforehand."""

    name = "convolution"
    partitions = "merge"
    spec_type = ConvolutionSpec
    accounting = ConvolutionAccounting()
    intake = ConvolutionIntake()

    def continues(self, spec: ConvolutionSpec) -> bool:
        return spec.step_ms is not None

    def reaches_back(self, spec: ConvolutionSpec, name: str, window: tuple[int, int]) -> bool:
        """Answers up to the length of their filter, less one."""
        what, filter_place, *place = name.split(".")
        position = spec.positions_of(window) - 1 if what == "last" else int(place[0])
        return position < spec.filters[int(filter_place)].partial

    def expansion(self, data: Mapping[str, Any]) -> Expansion:
        """Each filter and its transform have as many elements as the group of the transform.

        Measured: 90 bytes and .6 microseconds an element for one filter, about half as much for each further one; up
        to 90 bytes more where the length has a large prime factor, and 75 more after other transforms.
        """
        from scipy.fft import next_fast_len

        size, kernel = _declared_size(data), data.get("kernel")
        several = isinstance(kernel, (list, tuple)) and bool(kernel) and isinstance(kernel[0], (str, bytes))
        filters = len(kernel) if several and isinstance(kernel, (list, tuple)) else 1
        padded = 0 if next_fast_len(max(size, 1)) == size else 90
        return Expansion(size * (95 + padded + 45 * filters), size * (600 + 650 * filters))

    # Descriptions.

    def facts_of_kind(self, spec: ConvolutionSpec, slots: int) -> list[tuple[str, str]]:
        what = "cells" if spec.columns is not None else "positions"
        return [
            ("filters", ", ".join(each.name for each in spec.filters)),
            (what, f"{spec.length:,}"),
            ("noise", f"{spec.noise}, layout {spec.layout}, {slots:,} words"),
        ]

    def unit_in_words(self, spec: ConvolutionSpec) -> str:
        if spec.unit == "event":
            return (
                f"one event: whether it counted, at which position, and with which weight up to {spec.bound} in "
                "absolute value; an event and its later deletion are two"
            )
        return (
            "everything that one item's source did in this sketch, at any positions: events of absolute weights that "
            f"add up to at most {spec.bound}"
        )

    def relation(self, spec: ConvolutionSpec) -> tuple[str, ...]:
        """Each event of a packed record is one; to move an event is two changes."""
        swapped = "every epsilon below doubles"
        if not spec.pure:
            measure = "mu^2" if spec.measure == "mu2" else "rho"
            swapped = f"the shift doubles, so every {measure} below becomes four times as large"
        return (
            PACKED.format("event"),
            f"{RELATION}to move an event to another position, or to flip the sign of a weight: {swapped}",
        )

    def assumes(self, spec: ConvolutionSpec, ledger: SketchHistory, context: Context) -> tuple[str, ...]:
        """Assumptions: positions were fixed, promises are kept, and delta follows from the noise on the integers."""
        lines = list(assumptions(spec, context) if spec.pure else assumptions(spec, context, "and (epsilon, delta)"))
        lines.append("filters, positions and the length of the series were fixed before the first event")
        if spec.unit == "item":
            lines.append(
                f"an item's weights add up to at most {spec.bound}, as its source promises: nothing checks that"
            )
        if spec.pure:
            return tuple(lines)
        if spec.measure == "mu2":
            lines.append("delta of the integer noise is bounded by a Gaussian nearby, with less variance by a rounding")
        else:
            lines.append("delta follows from zCDP: rho adds up over the coordinates of the noise, for each neighbour")
        spent = float(spec.scheme.sampling_delta(spec.epsilon, spec.delta)) * len(ledger.layers)
        if spent:
            lines.append(
                f"correlated noise is made with 128 bits: that adds at most {spent:.3g} to delta at epsilon "
                f"{spec.epsilon}, for the layers so far"
            )
        return tuple(lines)

    # Updates and states.

    def index(
        self, spec: ConvolutionSpec, key: Key | None, keep: Flags | None, origin: Origin | None = None
    ) -> Updater:
        self.require_all_places(keep)
        return Updater(spec)

    def draw(self, spec: ConvolutionSpec, state: State, cost: Fraction, progress: Progress | None = None) -> None:
        add_noise(spec, state, spec.layer_of(cost))
        if progress is not None:
            progress(spec.size)

    # Publications.

    def closes(self, spec: ConvolutionSpec) -> int | None:
        return spec.step_ms if spec.publish == "closed" else None

    def closed(self, spec: ConvolutionSpec, state: State, first: int, stop: int) -> State:
        """Words of the positions; those of the first positions follow the padding's words, which hold noise only."""
        words = state[first:stop]
        return words.copy() if first else np.concatenate([state[spec.length :], words])

    def closed_answers(self, parts: Sequence[Sequence[Instalment]], positions: int, before: Published | None) -> Series:
        return closed_series(parts, positions, before)

    # Answers.

    def rows(self, spec: ConvolutionSpec) -> AnswerRows:
        """Positions of a series and their times; the columns of a table are text, also where they have such names."""
        types: Types = {**USUAL, "partial": "bool"}
        if spec.columns is not None:
            return AnswerRows(("filter", *spec.columns.values, *types), "answer.0.0", types)
        time = () if spec.step_ms is None else ("time",)
        header = ("filter", "position", *time, *types)
        return AnswerRows(header, "last.0", {**types, "position": "int64", "time": "time"})

    def expected_error(self, spec: ConvolutionSpec) -> tuple[str, float]:
        """The error of all answers of all filters together."""
        errors = figure(spec, 1).rmse
        return "answer", math.sqrt(sum(error * error for error in errors) / len(errors))

    def estimate(self, published: Published, **options: Any) -> Series:
        return estimate(published, **options)


def _cells(spec: ConvolutionSpec, events: Events) -> tuple[Ints, Flags]:
    """(n,) cell of each record; (n,) whether all of its columns have a declared value."""
    place: Ints = np.zeros(len(events), np.int64)
    good = np.ones(len(place), np.bool_)
    for name, choices in spec.choices.items():
        codes = events.columns[name].codes(choices)
        good &= codes >= 0
        place = place * len(choices) + codes
    return np.where(good, place, -1), good


KIND: Final = ConvolutionKind()


def _declared_size(data: Mapping[str, Any]) -> int:
    """Elements of the group of the transform that a stranger's spec declares; 0 where its reader refuses it at once."""
    sizes = [data.get("length"), data.get("transform_length")]
    group = data.get("group")
    if isinstance(group, (list, tuple)) and all(type(order) is int for order in group[:64]):
        sizes.append(math.prod(group[:64]))
    return max((size for size in sizes if type(size) is int and 0 < size <= 4 * MAX_COEFFICIENTS), default=0)
