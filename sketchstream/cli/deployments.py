"""The options that say in which groups and windows a planned sketch will count, and what follows from them.

In: options. Out: a spec with groups, its windows, their memory and losses. Touches: the file with the list of groups.
Source: docs/theory/privacy.md, section 5: what adds over windows, and groups.

Nothing is computed here that a worker or a guarantee computes too: memory is `SketchPlan.memory`, a sentence is the
guarantee's, a loss is the ledger's times a number of windows that `guarantee` counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from sketchstream.cli import options
from sketchstream.errors import ConfigError

if TYPE_CHECKING:
    from sketchstream.kinds.groups.group_list import GroupLimit, Groups
    from sketchstream.privacy.deployments.guarantee import Guarantee
    from sketchstream.privacy.deployments.surroundings import Context
    from sketchstream.privacy.losses.history import Loss
    from sketchstream.stream.windows.plans import Memory, SketchPlan

    PlannedWindows = tuple[SketchPlan, int]
    """Windows of a sketch, and how far behind the watermark (ms) they may stay open."""

LOSSES: Final = ("a loss is at most", "windows", "event", "item")


@dataclass(frozen=True)
class DeploymentOptions:
    """Groups and windows from the options; fields have the names of the options."""

    groups: str | None
    other_group: bool
    group_items: float | None
    max_groups: int | None
    group_of_item: bool
    group_limit: GroupLimit
    window: str | None = None
    every: str | None = None
    timezone: str = "UTC"
    lateness: str | None = None
    emit_every: str | None = None
    epsilon_early: str | None = None
    overlap: bool = False
    epsilon_overlap: str | None = None
    counts: Literal["modulus", "presence"] = "modulus"
    noise: Literal["groups", "joint"] = "groups"

    @property
    def asked(self) -> bool:
        """Whether there is anything to say about groups or windows."""
        return self.groups is not None or self.window is not None

    def declared(self, slots: int, itemsize: int) -> Groups | None:
        """The groups; None without any.

        Args:
            slots: counters of each sketch.
            itemsize: size of a counter, bytes.

        Raises:
            ConfigError: options that do not fit together; a list that cannot be read.
            SpecError: groups that cannot be, more than there may be among them.
        """
        from sketchstream.kinds.groups.group_list import Groups, require_few

        if self.groups is None:
            limited = self.max_groups is not None or self.group_of_item or self.group_limit != "promised"
            if self.other_group or self.group_items or limited:
                raise ConfigError(
                    "--other-group, --group-items, --max-groups, --group-of-item and --group-limit belong to --groups: "
                    "give it too"
                )
            return None
        number, names = _parse_groups(self.groups)
        require_few(number + self.other_group, slots, itemsize)
        limits = (self.max_groups, self.group_of_item, self.group_limit)
        return Groups(names or range(1, number + 1), self.other_group, *limits)

    @property
    def file_of_groups(self) -> str | None:
        """Name of a file with the list of groups: the one given, or one to be written if only their number is known."""
        if self.groups is None or self.groups.isdecimal():
            return None if self.groups is None else "groups.txt"
        return None if "," in self.groups and not Path(self.groups).exists() else self.groups

    def items(self, items: float | None, groups: int) -> float:
        """Distinct items expected in one group, or in the sketch without groups.

        Args:
            items: distinct items of one window.
            groups: number of groups; 1 without any.

        Raises:
            ConfigError: no number was given, or two; less than one item for each group.
        """
        if (items is None) == (self.group_items is None):
            raise ConfigError("give the expected number of items: either --items, or with --groups --group-items")
        if self.group_items is not None:
            return self.group_items
        assert items is not None
        if items < groups:
            raise ConfigError(
                f"--items {items:,.0f} split evenly over {groups:,} groups is less than one item a group; give "
                "--group-items, the items of the group that matters, or fewer groups"
            )
        return items / groups

    def windows(self, spec: Any) -> PlannedWindows | None:
        """The windows of a sketch; None: it has none.

        Raises:
            ConfigError: the windows are invalid.
        """
        from sketchstream.config.plans import early_answers
        from sketchstream.config.schema import InputTable
        from sketchstream.stream.windows.calendar import hopping
        from sketchstream.stream.windows.plans import SketchPlan
        from sketchstream.stream.windows.units import duration_ms

        table = InputTable.model_fields
        if self.window is None:
            others = (self.every, self.lateness, self.emit_every, self.epsilon_early)
            if any(other is not None for other in others) or self.timezone != "UTC":
                raise ConfigError(
                    "--every, --timezone, --lateness, --emit-every and --epsilon-early belong to --window: give it too"
                )
            return None
        late = table["lateness"].default if self.lateness is None else duration_ms(self.lateness, "--lateness")
        hops = hopping(self.window, self.every, self.timezone)
        early = early_answers(spec, hops[:2], self.emit_every, self.epsilon_early, late)
        calendar, steps, stride = hops
        plan = SketchPlan("sketch", spec, calendar, steps, stride=stride, early=early)
        return plan, late + table["quorum_time"].default


def _parse_groups(text: str) -> tuple[int, list[Any]]:
    """Number of groups, and their names if they are listed, separated by commas or in a file.

    Raises:
        ConfigError: a file that cannot be read.
    """
    from sketchstream.items.item_lists import read_items

    if text.isdecimal():
        if int(text) == 0:
            raise ConfigError("--groups must be at least one group, found 0")
        return int(text), []
    if "," in text and not Path(text).exists():
        named: list[Any] = [name for part in text.split(",") if (name := part.strip())]
    else:
        named = list(read_items(Path(text).expanduser(), what="--groups (a number, names between commas, or a file)"))
    return len(named), named


@dataclass(frozen=True)
class PlannedDeployment:
    """A sketch that is planned, in a deployment with these groups and windows.

    Args:
        spec: spec of the sketch, with its groups.
        items: distinct items of a window that were planned for, in one group.
        parts: partitions that are stacked.
        merges: states that are merged.
        ungrouped: windows of a sketch without groups, see `DeploymentOptions.windows`; None: it has no windows.
    """

    spec: Any
    items: float
    parts: int
    merges: int
    ungrouped: PlannedWindows | None

    @property
    def partitions(self) -> int:
        """Number of partitions of the input."""
        return self.parts * self.merges

    @cached_property
    def windows(self) -> SketchPlan | None:
        """The windows of a worker."""
        return None if self.ungrouped is None else replace(self.ungrouped[0], spec=self.spec)

    @property
    def ledger(self) -> Any:
        """What one window charges, early answers included."""
        from sketchstream.kinds import initial_ledger

        return initial_ledger(self.spec) if self.windows is None else self.windows.ledger

    @property
    def overlap(self) -> int:
        """Windows that hold one instant."""
        return 1 if self.windows is None else self.windows.overlap

    @cached_property
    def memory(self) -> Memory:
        """Memory of one partition; without windows that of one sketch."""
        from sketchstream.stream.windows.calendar import hopping
        from sketchstream.stream.windows.plans import Memory, SketchPlan

        if self.windows is None or self.ungrouped is None:
            alone = SketchPlan("sketch", self.spec, hopping("1d")[0])
            return Memory(alone.window_bytes(self.partitions, checked=self._checked), 1, 0)
        return self.windows.memory(self.ungrouped[1], self.partitions, checked=self._checked)

    @property
    def _checked(self) -> bool:
        """Whether partitions hold different items: then they are stacked."""
        return self.merges == 1

    @cached_property
    def context(self) -> Context:
        """The deployment, as far as it is known."""
        from sketchstream.config.context import of_windows
        from sketchstream.privacy.deployments.surroundings import Context

        fields: dict[str, Any] = {} if self._checked else {"partitions": self.partitions, "keyed": False}
        return Context(**fields) if self.windows is None else of_windows(self.windows, **fields)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Guarantee of the sketch with all its groups."""
        from sketchstream import kinds

        guarantee: Guarantee = kinds.kind_of(self.spec).guarantee(self.spec, self.ledger, self.context)
        return guarantee

    def losses(self) -> list[tuple[str, int, Loss | None, Loss]]:
        """Each row: where, in how many windows, most that an event (None: it is not in them) and an item lose there."""
        from sketchstream.privacy.deployments.surroundings import (
            OtherSketch,
            copies_of_item,
            duration,
            windows_a_day,
            windows_of,
        )

        spec, context = self.spec, self.context
        sketch = OtherSketch.of("", self.ledger, context.window_ms, groups=spec.group_losses)
        event, item = sketch.event.pure, sketch.item.pure * copies_of_item(context)
        rows: list[tuple[str, int, Loss | None, Loss]] = [("in one window", 1, event, item)]
        if self.overlap > 1:
            windows = self.overlap
            rows.append(("in all windows that hold it", windows, event * windows, item * windows))
        if self.windows is not None:
            assert context.window_ms is not None
            day = windows_a_day(context)
            whole = windows_of(context.window_ms, context.window_ms, self.overlap, context.every_ms)
            rows.append(("in a day", day, None, item * day))
            if self.overlap > 1:
                rows.append((f"in {duration(context.window_ms)}", whole, None, item * whole))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Plain data; losses as strings ('3/2', 'unlimited')."""
        from sketchstream.privacy.losses.loss_numbers import loss_number

        spec, memory = self.spec, self.memory
        return {
            "groups": None if spec.groups is None else len(spec.groups),
            "groups_of_one_item": None if spec.groups is None else spec.groups.of_one_item,
            "window": None if self.windows is None else self.windows.window,
            "windows_that_hold_an_event": self.overlap,
            "memory": {
                "partitions": self.partitions,
                "window": memory.window,
                "open_windows": memory.most,
                "states": memory.states,
                "snapshot": memory.snapshot,
                "all_partitions": memory.for_partitions(self.partitions),
            },
            "losses": [
                {
                    "what": what,
                    "windows": number,
                    "event": None if event is None else loss_number(event),
                    "item": loss_number(item),
                }
                for what, number, event, item in self.losses()
            ],
            "guarantee": self.guarantee.to_dict(),
        }

    def sentences(self) -> list[str]:
        """The groups and the memory, for people."""
        from sketchstream.stream.windows.units import spell_bytes

        spec, memory, sentences = self.spec, self.memory, []
        if spec.groups is not None:
            sentences.append(
                f"{len(spec.groups):,} groups: the numbers above are those of a group of {self.items:,.0f} items"
            )
        text = f"Memory of the counters in one partition: {spell_bytes(memory.window)} a window"
        if self.windows is not None:
            text += (
                f", {spell_bytes(memory.states)} all windows that may be open at once ({memory.most}), "
                f"{spell_bytes(memory.snapshot)} more while a snapshot is written"
            )
            if self.partitions > 1:
                text += f"; {spell_bytes(memory.for_partitions(self.partitions))} for {self.partitions} partitions"
        return [*sentences, text]

    def rows(self) -> list[list[str]]:
        """The losses as text."""
        from sketchstream.privacy.ledgers.loss_texts import loss_words

        return [
            [what, f"{number:,}", "-" if event is None else loss_words(event), loss_words(item)]
            for what, number, event, item in self.losses()
        ]


_GROUPS = (
    click.option("--groups", help="Their number, names between commas, or a file with one a line: a sketch for each."),
    click.option("--other-group", is_flag=True, help="With --groups: all other values are a group too."),
    click.option("--group-items", type=click.FloatRange(min=1),
                 help="With --groups, in place of --items: distinct items in one group.  [default: an even split]"),
    click.option("--max-groups", type=int, help="With --unit item: most groups of a window in which one item counts."),
    click.option("--group-of-item", is_flag=True, help="With --unit item: promised that an item has one group."),
    options.choice("--group-limit", ("promised", "ranked"),
                   "Who keeps to --max-groups: the source, or a keyed ranking of the groups for each item.",
                   "promised"),
)  # fmt: skip
_WINDOWS = (
    click.option("--window", help="Width of a window: 1h, 1d, 7d, 1mo, ..."),
    click.option("--every", help="With --window: time between the starts of windows, such as 1d; they overlap."),
    click.option("--timezone", default="UTC", show_default=True, help="With --window: where days begin."),
    click.option("--lateness", help="With --window: how late records may be.  [default: as in a configuration]"),
    click.option("--emit-every", help="With --window: time between its early answers, such as 15m."),
    click.option("--epsilon-early", metavar="FRACTION", help="With --emit-every: cost of all early answers."),
)  # fmt: skip

_SETS = (
    click.option("--overlap", is_flag=True,
                 help="With --groups: the errors of unions, intersections and differences of groups."),
    click.option("--epsilon-overlap", metavar="FRACTION", help="With --overlap: its cost.  [default: 1/4 or 1]"),
    options.choice("--counts", ("modulus", "presence"), "With --overlap: what counters hold.", "modulus"),
    options.choice("--noise", ("groups", "joint"),
                   "With --overlap: whether the noise of a slot's counters is drawn together.", "groups"),
)  # fmt: skip


deployed = options.gather("deployment", DeploymentOptions, (*_GROUPS, *_WINDOWS, *_SETS))
"""All these options on a command, which gets them as one argument, `deployment`."""
grouped = options.gather("deployment", DeploymentOptions, _GROUPS, needed=True)
"""The options of groups on a command, which gets them as one argument, `deployment`."""
