"""One `[[sketch]]` of a configuration: its name, spec, windows, and its list of items, if any.

In: a validated table. Out: a `SketchPlan` for each series of windows. Touches: the list of items that a closed domain
names.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sketchstream import kinds
from sketchstream.config import checks
from sketchstream.config.checks import Mistake
from sketchstream.errors import ConfigError, SpecError
from sketchstream.items.item_lists import read_items
from sketchstream.kinds.capabilities import Reconstructing
from sketchstream.kinds.interface import Spec
from sketchstream.spec import ClosedDomain, NoPrivacyWarning, OpenDomain, Rational, exact_epsilon, exact_noise
from sketchstream.stream.published.evidence import misplaced_noise
from sketchstream.stream.windows.calendar import Calendar, Width, hopping
from sketchstream.stream.windows.plans import EarlyAnswers, SketchPlan

if TYPE_CHECKING:
    from sketchstream.config.schema import FileTable
    from sketchstream.kinds.config_tables import DomainTable, SketchTable, TableContext

_Series = tuple[str, Calendar, int, int]
MAX_EARLY = 100
"""Most early answers of one window."""
SKETCH_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")


class SketchWarning(NoPrivacyWarning):
    """A warning about one sketch of a configuration.

    Args:
        sketch: name of the sketch.
        text: the warning, as what the sketch publishes repeats it.
    """

    def __init__(self, sketch: str, text: str) -> None:
        super().__init__(f'sketch "{sketch}": {text}')
        self.text = text


def plan_sketch(block: SketchTable, table: FileTable, folder: Path) -> tuple[list[SketchPlan], list[Mistake]]:
    """Turn one block into a plan for each of its series of windows, or into mistakes, which do not name the sketch."""
    context = _context_of_tables(table, folder)
    fields, listed = dict(block.fields()), dict(block.listed())
    mistakes = [*map(Mistake, block.check(context))]
    series: list[_Series] = []
    domain: ClosedDomain | OpenDomain | None = None
    try:
        series = _series(block)
    except ConfigError as error:
        mistakes.append(Mistake(str(error)))
    if block.domain is not None:
        try:
            domain = _domain(block.domain, table.input.item_type, folder)
        except (ConfigError, SpecError) as error:
            mistakes.append(Mistake(str(error), "input.item_type"))
    try:
        block = block.with_lists(
            {
                key: tuple(str(item) for item in read_items(folder / path.expanduser(), what=key))
                for key, path in block.lists().items()
            }
        )
    except ConfigError as error:
        mistakes.append(Mistake(str(error)))
    context = replace(context, windows=series[0][1] if series else None)
    early: EarlyAnswers | None = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NoPrivacyWarning)
        try:
            spec = block.to_spec(domain, context)
            refused, misplaced = (
                None if (epsilon := getattr(block, name)) is None else exact_noise(epsilon, name)
                for name in ("epsilon_refused", "epsilon_misplaced")
            )
            if spec.unit == "event" and misplaced is not None and misplaced > (most := misplaced_noise(spec)):
                mistakes.append(
                    Mistake(
                        f'epsilon_misplaced is at most {most} with unit = "event", found {misplaced}: a misplaced '
                        "event would lose more to the number of such events than an event that is counted"
                    )
                )
            if series:
                early_options = block.emit_every, block.epsilon_early
                early = early_answers(spec, series[0][1:3], *early_options, table.input.lateness, len(series))
        except (SpecError, ConfigError) as error:
            mistakes.append(Mistake(str(error)))
    if mistakes := mistakes or [Mistake(text, "input.format") for text in checks.check_fields(fields, table.input)]:
        return [], mistakes
    told = [str(warning.message) for warning in caught]
    if not spec.no_privacy and (text := kinds.kind_of(spec).guarantee(spec, kinds.initial_ledger(spec)).warning):
        told.append(text)
    for text in told:
        warnings.warn(SketchWarning(block.name, text), stacklevel=7)
    plans = [
        SketchPlan(name, spec, calendar, steps, fields, stride, refused, misplaced, early, listed)
        for name, calendar, steps, stride in series
    ]
    return plans, []


def early_answers(
    spec: Spec,
    windows: tuple[Calendar, int],
    emit_every: str | None,
    epsilon_early: Rational | None,
    lateness_ms: int,
    number: int = 1,
) -> EarlyAnswers | None:
    """Releases from open windows, if they are asked for.

    Args:
        spec: spec of the sketch.
        windows: calendar of the windows, or of their steps, and how many steps a window has.
        emit_every: how often a window is published before it is sealed.
        epsilon_early: what all of that costs.
        lateness_ms: how long windows stay open behind the watermark.
        number: number of series of windows that the sketch has.

    Raises:
        ConfigError: the sketch or its windows have none.
    """
    if emit_every is None and epsilon_early is None:
        return None
    if emit_every is None or epsilon_early is None:
        raise ConfigError(
            "emit_every and epsilon_early belong together: how often a window is published before it is sealed, and "
            "what all of these early answers cost"
        )
    kind = kinds.kind_of(spec)
    if not isinstance(kind, Reconstructing):
        raise ConfigError(
            f"emit_every belongs to kind 'profile': kind {kind.name!r} publishes every counter of a window, not their "
            "histogram, and each early answer would put noise of its own on each of them"
        )
    if kind.accounting.promise(spec).kind != "histogram":
        raise ConfigError(
            "emit_every needs publish = 'histogram': a state published before its window is sealed would show, with "
            "the one published then, exactly what came in between"
        )
    if number != 1 or windows[1] != 1:
        raise ConfigError(
            "emit_every belongs to one window without every: windows that hop are published often as they are"
        )
    every_ms, longest = windows[0].positions(emit_every, "emit_every")
    most = longest - (lateness_ms == 0)  # without lateness, the watermark that passes a window's end seals it
    if most > MAX_EARLY:
        raise ConfigError(
            f"emit_every gives at most {MAX_EARLY} early answers of a window, found {most}: publish less often"
        )
    return EarlyAnswers(every_ms, exact_epsilon(epsilon_early, "epsilon_early") / most, most)


def _series(block: SketchTable) -> list[_Series]:
    """The series of windows of a block: its name, or `name.1d` for each of several lengths; calendar, steps, stride.

    Raises:
        ConfigError: the windows are invalid.
    """
    zone = block.timezone
    if block.window is None and block.windows is None:
        raise ConfigError('window is missing: give window = "1d", or windows = ["1h", "1d"]')
    if block.window is not None and block.windows is not None:
        raise ConfigError("takes either window or windows, found both")
    if block.window is not None:
        return [(block.name, *hopping(block.window, block.every, zone))]
    if block.every is not None:
        raise ConfigError("every belongs to one window = ...; give hopping windows a [[sketch]] of their own")
    if not block.windows:
        raise ConfigError('windows must name at least one length, such as ["1h", "1d"], found an empty list')
    lengths: dict[Width, str] = {}
    for text in block.windows:
        width = Width.parse(text)
        if width in lengths:
            raise ConfigError(f"windows names one length twice: {lengths[width]!r} and {text!r}")
        lengths[width] = text.strip()
    return [(f"{block.name}.{text}", Calendar(width, zone), 1, 1) for width, text in lengths.items()]


def _context_of_tables(table: FileTable, folder: Path) -> TableContext:
    """Properties of the input for sketches."""
    from sketchstream.kinds.config_tables import TableContext

    block = table.input
    return TableContext(
        partitioned_by=block.partitioned_by,
        unchecked=block.topic is not None and block.partitioner == "unchecked",
        weights=block.weight is not None,
        packed=checks.input_format(block) in ("packed", "msgpack"),
        folder=folder,
    )


def _domain(table: DomainTable, item_type: str, folder: Path) -> ClosedDomain | OpenDomain:
    """Build the domain of a `domain = {...}`."""
    keys = sorted(name for name in ("slots", "size", "items_file") if getattr(table, name) is not None)
    if len(keys) != 1:
        raise ConfigError("domain takes exactly one of slots (open), size (ids 0..size-1) or items_file (a list)")
    if table.slots is not None:
        if table.sample_rate is not None:
            raise ConfigError("domain.sample_rate belongs to closed domains (size or items_file)")
        return OpenDomain(table.slots) if table.levels is None else OpenDomain(table.slots, table.levels)
    if table.levels is not None:
        raise ConfigError("domain.levels belongs to open domains (slots)")
    if table.size is not None:
        if item_type != "int":
            raise ConfigError(
                f"domain.size counts the ids 0..size-1: set input.item_type = 'int' (it is {item_type!r})"
            )
        return ClosedDomain(size=table.size, sample_rate=table.sample_rate)
    items = read_items(folder / Path(table.items_file or "").expanduser(), item_type)
    return ClosedDomain(items=items, sample_rate=table.sample_rate)
