"""One `[[sketch]]` of a configuration file: what all kinds of sketches share, and how each kind's table is found.

In: plain data of a block. Out: a validated table of its kind, which makes a spec. Touches: nothing. Imported only when
a configuration is read (pydantic is slow to import).

The module is `table` of the kind's package; its `TABLE` derives from `SketchTable`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from sketchstream import kinds
from sketchstream.errors import SpecError
from sketchstream.spec import ClosedDomain, OpenDomain

EPSILON_RECORDS = "1/10"
"""Default of `epsilon_records`."""
COUNTED_SHARE = "1/40"
"""Default of `counted_share` for unit "event"."""


def _text(value: object) -> object:
    """Convert a number to text where text is expected: epsilon = 1 means epsilon = "1"."""
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _digits(value: object) -> object:
    """Convert a whole number to its digits, as for items of type text."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Number = Annotated[str, BeforeValidator(_text)]
Value = Annotated[str, BeforeValidator(_digits)]
"""A value of a field: a text, or a whole number."""
Share = Annotated[float, Field(gt=0, lt=1)]


class ConfigTable(BaseModel):
    """A frozen table of the configuration file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=False, defer_build=True)


class DomainTable(ConfigTable):
    """`domain` of a sketch: open (slots, levels) or closed (size or items_file)."""

    slots: int | None = None
    levels: int | None = None
    size: int | None = None
    items_file: Path | None = None
    sample_rate: Number | None = None


class QualityTable(ConfigTable):
    """`[quality]`, or `quality` of a sketch: share of records that a window may lose before answers report it.

    `refused` is about records that came too late or were refused, the others about records that were admitted.
    """

    warn: Share = 0.005
    warn_alarm: Share = 1e-3
    incomplete: Share = 0.02
    incomplete_alarm: Share = 1e-5
    refused: Annotated[float, Field(ge=0, lt=1)] = 0.0


class BlockWindows(Protocol):
    """What a sketch's table may ask of its windows."""

    def positions(self, step: str) -> tuple[int, int]:
        """Milliseconds of one position of a series, and positions of the longest window.

        Raises:
            ConfigError: no such step.
        """

    def periods(self, window: str, period: str) -> tuple[int, int]:
        """Number of periods of a window, and the milliseconds of each.

        Raises:
            ConfigError: periods do not divide the window, or are not equally long.
        """


@dataclass(frozen=True)
class TableContext:
    """What a sketch's table must know of the file's input and of its windows.

    Args:
        partitioned_by: "item", "none", or None for files.
        unchecked: whether the topic's partitioner is not checked.
        weights: whether records carry weights.
        packed: whether a record holds any number of events.
        windows: windows of the block; None if they are invalid and only the rest is checked.
        folder: folder of the file, from which its paths begin.
    """

    partitioned_by: Literal["item", "none"] | None
    unchecked: bool
    weights: bool
    packed: bool
    windows: BlockWindows | None = None
    folder: Path = Path()


class SketchTable(ConfigTable):
    """One `[[sketch]]`, as far as all kinds have the same keys."""

    name: str
    window: str | None = None
    windows: tuple[str, ...] | None = None
    every: str | None = None
    timezone: str = "UTC"
    kind: str = "profile"
    epsilon: Number
    unit: Literal["event", "item"] = "event"
    domain: DomainTable | None = None
    quality: QualityTable | None = None
    epsilon_refused: Number | None = None
    epsilon_misplaced: Number | None = None
    emit_every: str | None = None
    epsilon_early: Number | None = None

    def lists(self) -> Mapping[str, Path]:
        """Keys of the block whose list lies in a file, besides that of its domain."""
        return {}

    def with_lists(self, lists: Mapping[str, tuple[str, ...]]) -> Self:
        """This block with the lists that were read from those files."""
        return self.model_copy(update=dict(lists))

    def fields(self) -> Mapping[str, str]:
        """Role -> field of the records, for the roles that the kind needs besides item, weight and time."""
        return {}

    def listed(self) -> Mapping[str, tuple[str, ...]]:
        """Role -> the values of its field that the block lists, where it lists any; numbers by their digits."""
        return {}

    @property
    def counts_some(self) -> bool:
        """Whether only some of the records admitted are meant to count, so that no loss can be judged from them."""
        return False

    @property
    def needs_item(self) -> bool:
        """Whether `input.item` must be there: events of the kind are about items."""
        return True

    @property
    def says_unit(self) -> bool:
        """Whether the block sets its unit."""
        return "unit" in self.model_fields_set

    def check(self, context: TableContext) -> Iterator[str]:
        """Mistakes that show against the input; those of all kinds."""
        if self.unit != "item":
            return
        if context.partitioned_by == "none":
            yield (
                "unit = 'item' needs input.partitioned_by = 'item': an item in several partitions would lose "
                "epsilon in each of them"
            )
        if context.unchecked:
            yield (
                "unit = 'item' needs a partitioner that is checked, not 'unchecked': an item in several partitions "
                "would lose epsilon in each of them; `sketchstream validate` finds it"
            )

    def to_spec(self, domain: ClosedDomain | OpenDomain | None, context: TableContext) -> Any:
        """The spec of this sketch.

        Args:
            domain: domain of the sketch; None where that is wrong, and only the rest is checked, and for
                kinds whose blocks have none.
            context: the input.

        Raises:
            SpecError, ConfigError: such a sketch is not possible.
        """
        raise NotImplementedError

    def arguments(self, made: type[Any], context: TableContext) -> dict[str, Any]:
        """Arguments of the spec that the block gives under their own names, with the noise that quality needs.

        Args:
            made: class of the spec.
            context: the input.

        Raises:
            SpecError: `epsilon_records` is invalid, or records are packed.
        """
        taken = signature(made).parameters
        arguments = {name: getattr(self, name) for name in type(self).model_fields if name in taken}
        if arguments.get("counted_share", "") is None:  # none where quality is not judged
            arguments["counted_share"] = "0" if context.packed or self.unit == "item" else COUNTED_SHARE
        return arguments | {"epsilon_records": self._records_noise(arguments["epsilon_records"], context)}

    def _records_noise(self, epsilon: str | None, context: TableContext) -> str:
        """Noise of the number of records admitted; by default for unit "event", where a record holds one event.

        A packed record holds any number of events, so that no share of records could be judged from events counted.
        """
        if epsilon is None:
            return "0" if context.packed or self.unit == "item" or self.counts_some else EPSILON_RECORDS
        if context.packed and epsilon != "0":
            raise SpecError("epsilon_records needs records of one event each; leave it out where records are packed")
        return epsilon


class LinearTable(SketchTable):
    """One `[[sketch]]` of a linear kind. A key with the name of an argument of the spec is that argument."""

    delta: Number
    epsilon_publish: Number | None = None
    delta_publish: Number | None = None
    intrusion: bool = True
    epsilon_records: Number | None = None


def table_of(kind: object) -> type[SketchTable] | None:
    """The model of a block of this kind; None where no such kind can be configured."""
    module = kinds.module_of_kind(kind, "table") if isinstance(kind, str) and kind in kinds.names() else None
    if not module:
        return None
    table: type[SketchTable] = import_module(module).TABLE
    return table


def configurable() -> tuple[str, ...]:
    """Names of the kinds that can be configured."""
    return tuple(name for name in kinds.names() if kinds.module_of_kind(name, "table"))


def read_block(value: object) -> SketchTable:
    """One block as a table of its kind.

    Raises:
        ValidationError: pydantic's, with places inside the block.
    """
    if isinstance(value, SketchTable):
        return value
    kind = value.get("kind", "profile") if isinstance(value, Mapping) else "profile"
    model = table_of(kind)
    if model is None:
        known: Any = Literal[configurable()]
        create_model("Block", kind=(known, ...)).model_validate({"kind": kind})
        raise AssertionError
    return model.model_validate(value)
