"""`sketchstream plan --kind gaussian` of a whole sketch: the expected error of every method of `estimate`.

In: the spec of the sketch, and the expected law of counts. Out: expected errors. Touches:
nothing; no data and no sketch are read.
"""

from __future__ import annotations

import math
from typing import Any, Final

import click

from sketchstream.cli import options, show
from sketchstream.errors import ConfigError

COLUMNS: Final = ("method", "error of a count", "of all", "")


@click.command()
@click.option("--size", type=click.IntRange(min=1), required=True, help="Items of the closed domain.")
@click.option("--epsilon", required=True, help='Privacy of the state: "1", "0.1", "1/2".')
@click.option("--delta", required=True, help='Delta of the state, such as "1e-6".')
@click.option("--items", type=click.IntRange(min=0), required=True, help="Items expected to occur in one window.")
@click.option("--mean", type=click.FloatRange(min=0, min_open=True), default=3.0, show_default=True,
              help="Expected mean count of an item that occurs.")  # fmt: skip
@options.law
@options.unit()
@click.option("--max-weight", help="Largest absolute weight of one event.  [default: 1]")
@click.option("--max-total", help="Unit item, a promise: the absolute weights of one item add up to at most this.")
@click.option("--max-per-slot", help="Unit item: the same promise for each slot.")
@options.fraction_bits(40)
@click.option("--total-share", help="Share of the noise that the total gets.  [default: as in a configuration]")
@options.publication
@click.option("--windows", type=click.IntRange(min=1), default=1, show_default=True, help="Windows that are merged.")
@options.result_format()
def command(
    size: int, items: int, mean: float, law: str, exponent: float, windows: int, form: show.Format, **given: Any
) -> None:
    r"""Compute the expected error of one published count, and of all counts for every method.

    The expected sum of squared errors is computed for the law of true counts that is said here, before anything is
    created; items that do not occur have the count 0. For the noise alone: `sketchstream calibrate`.

    \b
    Examples:
      sketchstream plan --kind gaussian --size 4000 --epsilon 1 --delta 1e-6 --items 3000 --mean 80
      sketchstream plan --kind gaussian --size 4000 --epsilon 1/2 --delta 1e-6 --items 400 --law zipf --format json
    """
    errors = forecast_errors(size, items, mean, law, exponent, windows, given)
    rows = [(name, value["rmse"], value["relative"]) for name, value in errors["methods"].items()]
    if not show.print_data(form, lambda: errors, ("method", "rmse", "relative"), lambda: rows):
        return
    click.echo(
        f"epsilon {errors['epsilon']}, delta {errors['delta']:g}, unit {errors['unit']}, {size:,} slots, "
        f"{items:,} items with counts of mean {errors['mean']:.4g}\n"
    )
    best = min(rows, key=lambda row: row[1])[0]
    cells = [
        (name, f"{rmse:,.4g}", "-" if math.isnan(relative) else f"{relative:.2%}", "best" if name == best else "")
        for name, rmse, relative in rows
    ]
    show.print_table(COLUMNS, cells)
    click.echo(
        f"\nOne published count has a standard error of {errors['stderr']:,.4g}; the sum of n counts sqrt(n) times "
        "that. 'of all': the root of the sum of squared errors, over that of the true counts."
    )


def forecast_errors(
    size: int, items: int, mean: float, law: str, exponent: float, windows: int, given: dict[str, Any]
) -> dict[str, Any]:
    """Expected errors as plain data; `given` are values of the spec, None where the user gave none."""
    from sketchstream.denoising.expected import expected_errors
    from sketchstream.kinds.forecast import plain_forecast
    from sketchstream.kinds.gaussian.spec import GaussianSpec
    from sketchstream.kinds.gaussian.table import TOTAL_SHARE
    from sketchstream.kinds.profile.planner.expectation import count_law
    from sketchstream.noise.laws import gaussian_variance
    from sketchstream.spec import ClosedDomain

    if items > size:
        raise ConfigError(f"--items must be at most --size = {size}, found {items}")
    arguments = {name: value for name, value in given.items() if value is not None}
    arguments.setdefault("total_share", TOTAL_SHARE if arguments["unit"] == "event" else "0")
    spec = GaussianSpec(domain=ClosedDomain(size=size), **arguments)
    scale = 1 << spec.fraction_bits
    shares = count_law(law, mean, exponent)
    # the quantiles of the law, one for each item that occurs: an expected sample of it
    places = (shares.cumsum() / shares.sum()).searchsorted([(rank + 0.5) / max(items, 1) for rank in range(items)])
    counts = [0.0] * (size - items) + [float(place + 1) * windows * scale for place in places.tolist()]
    variance = windows * float(sum(map(gaussian_variance, spec.published_variances)))
    errors = expected_errors(counts, variance)
    square = sum(count * count for count in counts)
    return {
        **plain_forecast(spec),
        "epsilon": str(spec.epsilon),
        "delta": float(spec.delta),
        "unit": spec.unit,
        "slots": size,
        "items": items,
        "mean": sum(counts) / (max(items, 1) * scale),
        "stderr": math.sqrt(variance) / scale,
        "methods": {
            name: {
                "rmse": math.sqrt(error / size) / scale,
                "relative": math.sqrt(error / square) if square else math.nan,
            }
            for name, error in errors.items()
        },
    }
