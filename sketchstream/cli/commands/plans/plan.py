"""`sketchstream plan`: the expected accuracy of a sketch, and the sketch for an accuracy.

In: the spec of the sketch, and public expectations of the stream. Out: expected errors. Touches: nothing; no
data and no sketch are read.
"""

from __future__ import annotations

import math
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from sketchstream import kinds
from sketchstream.cli import options, show
from sketchstream.cli.deployments import LOSSES, DeploymentOptions, PlannedDeployment, deployed
from sketchstream.cli.specs import Description, describe_by_options
from sketchstream.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sketchstream.cli.deployments import PlannedWindows
    from sketchstream.kinds.profile import planner
    from sketchstream.kinds.profile.spec import ProfileSpec
    from sketchstream.stream.windows.plans import EarlyAnswers

MIN_SLOTS: Final = 1024
"""Number of slots that the search begins with if none is given."""


OF_KINDS: Final = ("gaussian", "projection", "workload", "convolution")
"""Kinds with options of their own: the module that is called as the kind has the command that answers."""


class PlanOfKind(click.Command):
    """Hands a plan of another kind than `profile` to the command that answers, with its options."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The context of the command that answers; kinds without one of their own are planned from a table."""
        kind, rest = _split_kind(args)
        has_table = any(argument.partition("=")[0] == "--table" for argument in args)
        whole = any(argument.partition("=")[0] in ("--size", "--help") for argument in rest)
        name, module = f"plan --kind {kind}", kind
        if kind in kinds.names() and kind not in ("profile", *OF_KINDS):
            module = "table"
        elif has_table:
            name, module, rest = "plan", "table", args
        elif kind not in OF_KINDS:
            return super().make_context(info_name, args, parent, **extra)
        elif kind == "gaussian" and not whole:
            module = "calibrate"  # for the noise alone
        command = import_module(f"sketchstream.cli.commands.plans.{module}").command
        return options.with_examples(command).make_context(name, rest, parent, **extra)


def _split_kind(args: list[str]) -> tuple[str, list[str]]:
    """The kind that arguments ask for, and the arguments without `--kind KIND`."""
    for place, argument in enumerate(args):
        option, equals, kind = argument.partition("=")
        if option == "--kind" and equals:
            return kind, args[:place] + args[place + 1 :]
        if option == "--kind" and args[place + 1 :]:
            return args[place + 1], args[:place] + args[place + 2 :]
    return "profile", args


@click.command(cls=PlanOfKind)
@click.option(
    "--kind",
    type=click.Choice(kinds.names()),
    default="profile",
    show_default=True,
    expose_value=False,
    help="Kind of sketch; other kinds have options of their own: `sketchstream plan --kind KIND --help`.",
)
@click.option(
    "--table", type=options.FILE, expose_value=False, help="Sketch of any kind, as a [[sketch]] block: alone."
)
@describe_by_options
@click.option("--items", type=click.FloatRange(min=1), help="Distinct items expected in one window.")
@click.option("--mean", type=float, default=3.0, show_default=True, help="Expected mean count of an item.")
@options.law
@click.option("--parts", type=click.IntRange(min=1), default=1, show_default=True, help="Partitions that are stacked.")
@click.option("--merges", type=click.IntRange(min=1), default=1, show_default=True, help="States that are merged.")
@click.option("--windows", type=click.IntRange(min=1), default=1, show_default=True, help="Windows of one item.")
@click.option(
    "--runs", type=click.IntRange(min=0), default=0, show_default=True, help="Number of windows to simulate as well."
)
@click.option("--target", type=float, help="Find the cheapest sketch with this relative error, such as 0.02.")
@click.option("--number", default="distinct", show_default=True, help="With --target: distinct, at_least.3, mean, ...")
@options.choice("--vary", ("slots", "epsilon"), "With --target: what may change.", "slots")
@click.option(
    "--shared",
    type=click.FloatRange(0, 1),
    default=0.2,
    show_default=True,
    help="With --overlap: share of a group's items that is in all groups; the others are in it alone.",
)
@deployed
@options.result_format()
def command(
    description: Description,
    deployment: DeploymentOptions,
    items: float | None,
    target: float | None,
    number: str,
    vary: Literal["slots", "epsilon"],
    shared: float,
    form: show.Format,
    **expectation: Any,
) -> None:
    r"""Compute the expected error of every number of a sketch, and that of a curator with raw counts.

    With --target: the smallest number of slots, or the smallest epsilon, that reaches a relative error (one standard
    deviation). Nothing is drawn and no data are read.

    With --groups: the errors of one group's numbers; --items of a window are split evenly over the groups, an item
    that is in several counts in each, unless --group-items says how many one group has. With --window, and --every
    where windows overlap: the memory of all windows that are open at once, and what an event and an item lose in one
    window and in all that hold them.

    With --emit-every and --epsilon-early: what early answers of a window cost, and how accurate they are.

    With --overlap: the errors of sets of groups of that size, at an assumed share of items that they have in common.

    With --kind gaussian and --size: the error of counts by every method; without --size the noise for an epsilon and a
    delta, as `sketchstream calibrate` finds it. With --kind
    projection: the best number of columns, and whether to project at all. With --kind workload: the errors of every
    set of queries, with every mechanism.

    \b
    Examples:
      sketchstream plan --unit item --epsilon 1 --open --slots 1048576 --items 1000000
      sketchstream plan --unit item --epsilon 1 --open --items 50000 --target 0.02 --number at_least.3
      sketchstream plan --unit event --epsilon 1 --open --slots 16384 --items 90000 --groups 9 --window 7d --every 1d
      sketchstream plan --unit event --epsilon 1 --size 900 --items 300 --window 1h --emit-every 15m --epsilon-early 1
      sketchstream plan --unit item --epsilon 4 --open --slots 1048576 --items 600000 --groups 3 --overlap --shared .2
      sketchstream plan --kind gaussian --epsilon 1 --delta 1e-6 --sensitivity 2
      sketchstream plan --kind gaussian --size 4000 --epsilon 1 --delta 1e-6 --items 3000 --mean 80
      sketchstream plan --kind projection --rows 105 --features 441 --epsilon 1 --delta 1e-6 --squared-distance 1e6
      sketchstream plan --kind workload --workload prefix:512 --epsilon 1 --delta 1e-6
    """
    from sketchstream.config.schema import StoreTable
    from sketchstream.kinds.forecast import plain_forecast
    from sketchstream.kinds.profile import planner
    from sketchstream.stream.windows import units

    if description.open_domain and description.slots is None and vary == "slots" and target is not None:
        description = replace(description, slots=MIN_SLOTS)
    spec = _add_groups(deployment, description.spec(), description.named_options())
    windows_given = deployment.windows(spec)
    expected = {"items": deployment.items(items, spec.group_count), **expectation}
    if deployment.overlap:
        if target is not None or expected["runs"]:
            raise ConfigError("--target and --runs are not for --overlap: leave them out")
        _print_sets(spec, expected, shared, windows_given, form)
        return
    if target is None:
        plan = planner.plan(spec, **expected)
    else:
        plan = planner.smallest_plan(spec, target=target, number=number, vary=vary, **expected)
    planned = PlannedDeployment(plan.spec, plan.items, plan.parts, plan.merges, windows_given)
    early = None if planned.windows is None else planned.windows.early
    released = None if early is None else planner.plan(plan.spec.changed(epsilon_publish=early.epsilon), **expected)
    if early is not None:  # the losses of the spec alone would be too small; `_print_deployment` has all of them
        ledger = planned.ledger
        plan = replace(plan, loss=ledger.loss(), loss_with_intrusion=ledger.loss(intrusion=True), loss_notes=())

    def data() -> dict[str, Any]:
        forecast = plain_forecast(plan.spec, lambda tried: ("distinct items", _distinct(tried, plan, expected)))
        facts = forecast | plan.to_dict() | (planned.to_dict() if deployment.asked else {})
        if early is not None and released is not None:
            numbers = {name: number.to_dict() for name, number in released.numbers.items()}
            facts["early"] = {"most": early.most, "epsilon": str(early.epsilon), "numbers": numbers}
        return facts

    if not show.print_data(form, data, tuple(plan.COLUMNS), lambda: rows_of(plan)):
        return
    spec, domain = plan.spec, plan.spec.domain
    whose = "" if spec.groups is None else f" in one of {len(spec.groups):,} groups"
    slots = f"{domain.size:,} slots" + (f" in {domain.levels} levels" if domain.levels > 1 else "")
    modulus = "" if spec.modulus is None else f", modulus {spec.modulus}"
    click.echo(
        f"epsilon {spec.epsilon}, epsilon_publish {spec.epsilon_publish}, unit {spec.unit}{modulus}, {slots}, "
        f"{plan.items:,.0f} items expected{whose}\n"
    )
    print_table(plan)
    size, partitions, settings = planned.overlap * planned.memory.window, planned.partitions, StoreTable()
    cost = units.spell_snapshots(size, partitions, settings.snapshot_every, settings.snapshot_rate)
    busy = "the busy window" if planned.overlap == 1 else f"the {planned.overlap} busy windows"
    click.echo(f"\nIn a worker, {partitions} partition{'s' * (partitions > 1)}: snapshots of {busy} write {cost}.")
    if deployment.asked:
        _print_deployment(planned)
    if early is not None and released is not None:
        _print_early(early, plan, released)


def _add_groups(deployment: DeploymentOptions, spec: ProfileSpec, chosen: Collection[str]) -> ProfileSpec:
    """The spec with its groups.

    With `overlap`, options of the spec that were not chosen follow from it.

    Raises:
        ConfigError: options that do not fit together; a list that cannot be read.
        SpecError: groups that cannot be, more than there may be among them.
    """
    groups = deployment.declared(spec.domain.size or 0, spec.dtype.itemsize)
    if not deployment.overlap:
        if deployment.epsilon_overlap is not None or (deployment.counts, deployment.noise) != ("modulus", "groups"):
            raise ConfigError("--epsilon-overlap, --counts and --noise belong to --overlap: give it too")
        return spec if groups is None else spec.changed(groups=groups)
    if groups is None:
        raise ConfigError("--overlap needs --groups: it says what groups have in common")
    return spec.changed(
        **{name: None for name in ("epsilon_publish", "max_count", "modulus") if name not in chosen},
        groups=groups,
        overlap=True,
        epsilon_overlap=deployment.epsilon_overlap,
        counts=deployment.counts,
        noise=deployment.noise,
    )


def _print_early(early: EarlyAnswers, final: planner.Plan, released: planner.Plan) -> None:
    """Print what early answers cost, and their errors besides those of the final answer."""
    click.echo(
        f"\nEarly answers: up to {early.most} of each window, at a cost of {early.epsilon} each, which the losses "
        "above hold. They say preliminary until the final answer replaces them. One standard error of each, at the "
        "items of the whole window:\n"
    )
    show.print_table(
        ("number", "final", "early", "times"),
        [
            [
                name,
                f"{number.sd:,.4g}",
                f"{released[name].sd:,.4g}",
                f"{released[name].sd / number.sd:.3g}" if 0 < number.sd < math.inf else "-",
            ]
            for name, number in final.numbers.items()
        ],
    )


def _distinct(spec: ProfileSpec, plan: planner.Plan, expected: Mapping[str, Any]) -> float:
    """The error of the number of distinct items of a plan, or of another spec with the same expectations."""
    from sketchstream.kinds.profile import planner

    chosen = plan if spec is plan.spec else planner.plan(spec, **{**expected, "runs": 0})
    return chosen["distinct"].sd


def _print_deployment(planned: PlannedDeployment) -> None:
    """Print groups, memory, losses and the guarantee's sentences about them."""
    from sketchstream.kinds.profile.statement import assumed_of_groups

    for sentence in planned.sentences():
        click.echo(sentence)
    click.echo()
    show.print_table(LOSSES, planned.rows())
    click.echo()
    guarantee = planned.guarantee
    for sentence in guarantee.protects[:1] + guarantee.seen:
        click.echo(f"  - {sentence}")
    for sentence in assumed_of_groups(planned.spec):
        click.echo(f"  - assumed: {sentence}")


def _print_sets(
    spec: ProfileSpec,
    expected: Mapping[str, Any],
    shared: float,
    windows: PlannedWindows | None,
    form: show.Format,
) -> None:
    """Print the expected errors of sets of groups."""
    from sketchstream.kinds.profile.overlap.forecast import COLUMNS, forecast

    figures = forecast(spec, expected["items"], shared=shared, parts=expected["parts"])
    planned = PlannedDeployment(figures.spec, figures.items, figures.parts, figures.merges, windows)
    rows = [[row[name] for name in COLUMNS] for row in figures.rows()]
    if not show.print_data(form, lambda: figures.to_dict() | planned.to_dict(), COLUMNS, lambda: rows):
        return
    click.echo(
        f"epsilon {spec.epsilon}, epsilon_overlap {figures.overlap.epsilon}, {len(figures.overlap.groups)} groups of "
        f"{figures.items:,.0f} items, {shared:.0%} of them in all groups\n"
    )
    show.print_table(
        COLUMNS,
        [(name, f"{n:,.0f}", f"{sd:,.0f}", "-" if part is None else f"{part:.2%}") for name, n, sd, part in rows],
    )
    click.echo("\nsd: one standard error; relative: that over the expected number.")
    for note in figures.notes():
        click.echo(f"{note[:1].upper()}{note[1:]}.")
    _print_deployment(planned)


def rows_of(plan: planner.Plan) -> list[tuple[object, ...]]:
    """The numbers of a plan as rows of CSV, in the columns of a plan."""
    return [
        (name, number.value, number.sd, number.relative, number.simulated, number.central)
        for name, number in plan.numbers.items()
    ]


def print_table(plan: planner.Plan) -> None:
    """Print the numbers of a plan, a legend of the columns, and notes."""
    show.print_table(tuple(plan.COLUMNS), plan.rows())
    click.echo()
    show.print_pairs((f"  {name}", meaning) for name, meaning in plan.COLUMNS.items())
    click.echo()
    for note in plan.notes:
        click.echo(note)
