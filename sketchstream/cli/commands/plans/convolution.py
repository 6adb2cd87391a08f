"""`sketchstream plan --kind convolution`: the error of every noise and layout for some filters, the best first.

In: filters, a series or columns, the unit of privacy. Out: expected errors and advice. Touches: nothing; no data are
read and nothing is drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sketchstream.cli import options, show
from sketchstream.errors import ConfigError

if TYPE_CHECKING:
    from sketchstream.kinds.convolution.forecast import Figure
    from sketchstream.kinds.convolution.spec import ConvolutionSpec


@click.command()
@click.option("--kernel", "kernels", multiple=True, required=True,
              help="Filter: window:W, average:W, sum, decay:A, difference, identity, marginal:A,B or a .npy file; "
              "repeat it for several from one state.")  # fmt: skip
@click.option("--length", type=click.IntRange(min=1), help="Positions of the series.")
@click.option("--window", help="In place of --length: width of a window, such as 1d, 1mo, 1y; with --step.")
@click.option("--step", help="With --window: what one position is, such as 1m or 1h.")
@click.option("--timezone", default="UTC", show_default=True, help="With --window: where days begin.")
@click.option("--column", "columns", multiple=True, metavar="NAME=A,B,...",
              help="Marginals: a column with all its values; repeat it.")  # fmt: skip
@click.option("--epsilon", required=True, help='Privacy of the state: "1", "0.1", "1/2".')
@click.option("--delta", default="0", show_default=True, help="Delta of the state, such as 1e-6; 0: pure privacy.")
@options.unit()
@click.option("--max-weight", type=int, help="With --unit event: largest weight.  [default: 1]")
@click.option("--max-total", type=int, help="With --unit item: promised most of one item's weights together.")
@options.publication
@click.option("--counted-share",
              help="Share of every cost that the number of events counted gets, by which quality is judged; 0: none.  "
              "[default: 1/40 with --unit event, as in a configuration]")  # fmt: skip
@click.option("--parts", type=click.IntRange(min=1), default=1, show_default=True, help="Partitions that are added up.")
@options.result_format()
def command(
    kernels: tuple[str, ...],
    length: int | None,
    window: str | None,
    step: str | None,
    timezone: str,
    columns: tuple[str, ...],
    counted_share: str | None,
    parts: int,
    form: show.Format,
    **given: Any,
) -> None:
    r"""Compute the expected error of the published answers, for every possible noise and layout, the best first.

    The error is the root of the mean squared error over the positions, in counts; the noise that seal adds and the
    partitions that are added up are in it. Where another mechanism has a smaller error, the last line says so.

    \b
    Examples:
      sketchstream plan --kind convolution --kernel window:168 --window 1y --step 1h --epsilon 1 --delta 1e-6
      sketchstream plan --kind convolution --kernel sum --length 744 --epsilon 1 --delta 1e-6 --no-intrusion
      sketchstream plan --kind convolution --kernel marginal:late --column late=0,1 --column day=mo,tu --epsilon 1
    """
    from sketchstream.kinds.config_tables import COUNTED_SHARE
    from sketchstream.kinds.convolution import forecast
    from sketchstream.kinds.convolution.spec import ConvolutionSpec
    from sketchstream.kinds.forecast import plain_forecast

    arguments = {name: value for name, value in given.items() if value is not None}
    arguments |= _axis(length, window, step, timezone, columns)
    arguments["counted_share"] = counted_share or (COUNTED_SHARE if given["unit"] == "event" else "0")
    kernel = kernels[0] if len(kernels) == 1 else list(kernels)
    figures = forecast.forecast(kernel, parts=parts, **arguments)
    spec = ConvolutionSpec(kernel, noise="auto", layout=figures[0].layout, **arguments)
    advice = forecast.advice(spec)
    filters = [filter_.name for filter_ in spec.filters]
    facts: dict[str, Any] = {"filters": filters, "length": spec.length, "parts": parts}
    facts |= {"figures": [figure.to_dict() for figure in figures], "advice": advice}
    table = [_row(figure) for figure in figures]
    names = ("noise", "layout", *(f"error {name}" for name in filters), "M", "words", "changed by an event")
    if not show.print_data(form, lambda: plain_forecast(spec) | facts, names, lambda: table):
        return
    click.echo(_title(spec, parts))
    click.echo()
    show.print_table(names, table)
    if advice:
        click.echo(f"\n{advice}")


def _axis(
    length: int | None, window: str | None, step: str | None, timezone: str, columns: tuple[str, ...]
) -> dict[str, Any]:
    """Arguments of the spec for its positions."""
    if (length is not None) + (window is not None) + bool(columns) != 1 or (window is None) != (step is None):
        raise ConfigError("give either --length, or --window and --step, or --column for each column")
    if window is not None and step is not None:
        from sketchstream.stream.windows.calendar import Calendar, Width

        step_ms, positions = Calendar(Width.parse(window), timezone).positions(step)
        return {"length": positions, "step_ms": step_ms}
    if length is not None:
        return {"length": length}
    listed: dict[str, list[str]] = {}
    for text in columns:
        name, equals, values = text.partition("=")
        if not equals or name in listed:
            raise ConfigError(f"--column must be NAME=A,B,... with each name once, found {text[:60]!r}")
        listed[name] = values.split(",")
    return {"columns": listed}


def _row(figure: Figure) -> list[str]:
    counted = (f"{number:,}" for number in (figure.transform_length, figure.words, figure.words_touched))
    return [figure.noise, figure.layout, *(f"{rmse:,.2f}" for rmse in figure.rmse), *counted]


def _title(spec: ConvolutionSpec, parts: int) -> str:
    what = "cells" if spec.columns is not None else "positions"
    added = f", {parts} partitions added up" if parts > 1 else ""
    sealed = "fresh noise at seal" if spec.intrusion else "no fresh noise at seal"
    return (
        f"epsilon {spec.epsilon}, delta {float(spec.delta):g}, unit {spec.unit}, {spec.length:,} {what}, "
        f"{sealed}{added}"
    )
