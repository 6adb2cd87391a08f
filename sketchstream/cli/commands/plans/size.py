"""`sketchstream size`: a complete block of the configuration from the numbers and errors wanted.

In: answers, from options or at the terminal. Out: the block, its guarantee, its errors. Touches: nothing; no data are
read.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from sketchstream.cli import options, show
from sketchstream.cli.commands.plans import plan as planning
from sketchstream.cli.deployments import DeploymentOptions, grouped
from sketchstream.errors import ConfigError

if TYPE_CHECKING:
    from sketchstream.kinds.profile.planner import Machine, Sizing
    from sketchstream.privacy.deployments.guarantee import Guarantee
    from sketchstream.spec import Unit

UNITS: Final = ("item", "event")
MACHINES: Final = ("trusted", "untrusted")
NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]*")


@click.command()
@click.option("--items", type=click.FloatRange(min=1), help="Distinct items expected in one window.")
@click.option("--number", "numbers", multiple=True, help="What matters: distinct, at_least.5, mean, ...; repeat it.")
@click.option("--error", type=click.FloatRange(0, 1, min_open=True, max_open=True),
              help="Relative error wanted, one standard deviation.  [default: 0.02]")  # fmt: skip
@options.choice("--unit", UNITS,
                "What is protected: all that an item does in a window, or each event.  [default: item]")  # fmt: skip
@options.choice("--machine", MACHINES,
                "Whether its operators are trusted more than readers of results.  [default: trusted]")  # fmt: skip
@click.option("--epsilon-publish", help="Most that the unit loses to readers.  [default: 1]")
@click.option("--epsilon", help="Privacy of the state.  [default: 4 if the machine is trusted, else epsilon-publish]")
@click.option("--largest", type=click.IntRange(1, 32767), help="Largest count to resolve.  [default: by the numbers]")
@click.option("--mean", type=float, default=3.0, show_default=True, help="Expected mean count of an item.")
@options.law
@click.option("--parts", type=click.IntRange(min=1), default=1, show_default=True, help="Partitions of the topic.")
@click.option("--window", default="1d", show_default=True, help="Width of a window: 1h, 1d, 1mo, ...")
@click.option("--name", default="people", show_default=True, help="Name of the sketch.")
@click.option("--group-by", default="group", show_default=True, help="With --groups: their field of the records.")
@grouped
@options.result_format()
def command(
    items: float | None,
    numbers: tuple[str, ...],
    error: float | None,
    unit: Unit | None,
    machine: Machine | None,
    epsilon_publish: str | None,
    epsilon: str | None,
    largest: int | None,
    window: str,
    name: str,
    group_by: str,
    deployment: DeploymentOptions,
    form: show.Format,
    **expectation: Any,
) -> None:
    r"""Find the smallest sketch that answers with the error wanted, and print its block of the configuration.

    On a terminal it asks for what no option says. Two dials protect people: epsilon-publish bounds what they lose to
    everybody who reads the results; epsilon bounds what they lose to somebody who seizes the memory or the disk of the
    machine that counts. Nothing is drawn and no data are read.

    With --groups every group reaches the error, and the epsilons are those of all groups in which an item counts
    together. --items are split evenly over the groups, unless --group-items says how many one group has.

    \b
    Examples:
      sketchstream size
      sketchstream size --items 1e6 --number distinct --number at_least.5 --error 0.011
      sketchstream size --items 1e6 --groups campaigns.txt --max-groups 2 --group-limit ranked --error 0.2
    """
    from sketchstream import kinds
    from sketchstream.kinds.profile import planner
    from sketchstream.privacy.deployments.surroundings import Context
    from sketchstream.stream.windows.calendar import Calendar, Width

    width = Width.parse(window)
    if NAME.fullmatch(name) is None:
        raise ConfigError(
            f"--name must be small letters, digits and _.- and begin with a letter or a digit, found {name!r:.40}"
        )
    groups = deployment.declared(1024, 2)
    if deployment.group_items is None:
        question = "How many distinct items (people, say) do you expect in a window"
        items = options.ask(items, question, None, float, "--items")
    sizing = planner.size(
        items=deployment.items(items, 1 if groups is None else len(groups)),
        groups=groups,
        unit=options.ask(
            unit, "What must be protected: all that an item does, or each event", "item", click.Choice(UNITS)
        ),
        numbers=numbers or _words(options.ask(None, "Which numbers matter", "distinct, at_least.3", str)),
        target=options.ask(error, "Which relative error (one standard deviation) may they have", 0.02, float),
        machine=options.ask(
            machine,
            "Is the machine's operator trusted more than the readers",
            "trusted",
            click.Choice(MACHINES),
        ),
        epsilon_publish=options.ask(
            epsilon_publish, "Most that the protected unit may lose to readers (epsilon)", "1", str
        ),
        epsilon=epsilon,
        largest=largest,
        **expectation,
    )
    context = Context(window_ms=Calendar(width).shortest_ms)
    guarantee = kinds.kind_of(sizing.spec).guarantee(sizing.spec, kinds.initial_ledger(sizing.spec), context)
    block = sizing.block(name, window, group_by, deployment.file_of_groups)
    columns, rows = tuple(sizing.plan.COLUMNS), partial(planning.rows_of, sizing.plan)
    if show.print_data(form, partial(_facts, sizing, guarantee, block), columns, rows):
        _print(sizing, guarantee, block)


def _facts(sizing: Sizing, guarantee: Guarantee, block: str) -> dict[str, Any]:
    """Plain data."""
    return {
        "configuration": block,
        "spec": sizing.spec.to_dict(),
        "memory": sizing.memory,
        "numbers": list(sizing.numbers),
        "error": sizing.target,
        "guarantee": guarantee.to_dict(),
        "plan": sizing.plan.to_dict(),
    }


def _print(sizing: Sizing, guarantee: Guarantee, block: str) -> None:
    """Print the block without comments, then its meaning."""
    click.echo(block)
    click.echo()
    click.echo(f"{guarantee.summary}\n")
    for sentence in guarantee.protects[:1] + guarantee.seen[2:]:
        click.echo(f"  {sentence}")
    whose = "a window" if sizing.spec.groups is None else f"in one of {sizing.spec.group_count:,} groups"
    worst = sizing.plan.worst(sizing.numbers).relative
    click.echo(
        f"\n{', '.join(sizing.numbers)}: error at most {worst:.2%} for {sizing.plan.items:,.0f} items {whose}; "
        f"{sizing.memory:,} bytes for each open window"
        + (f" in each of {sizing.plan.parts} partitions\n" if sizing.plan.parts > 1 else "\n")
    )
    planning.print_table(sizing.plan)


def _words(text: str) -> tuple[str, ...]:
    """Names that commas or blanks separate."""
    return tuple(filter(None, re.split(r"[,\s]+", text)))
