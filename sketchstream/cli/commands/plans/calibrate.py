"""`sketchstream calibrate`: the Gaussian noise for an epsilon and a delta, or the guarantee of a given noise.

In: two of epsilon, delta and sigma; what neighbours can differ by. Out: the third number. Touches: nothing; no data are
read and nothing is drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sketchstream.cli import options, show
from sketchstream.errors import ConfigError

if TYPE_CHECKING:
    from sketchstream.privacy.calibration.discrete import DiscreteCalibration


@click.command()
@click.option("--epsilon", help='Privacy loss, at least 0: "1", "0.1", "1/2".')
@click.option("--delta", help='From 1e-300 to 0.5, such as "1e-6".')
@click.option("--sigma", help="Standard deviation of the noise; then one of epsilon and delta is found.")
@click.option("--sensitivity", help="Largest L2 distance between neighbours.  [default: 1]")
@click.option("--discrete", is_flag=True, help="Noise on the integers: an exact sigma^2, verified on the integers.")
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    help='With --discrete: by what neighbours differ in their coordinates, such as "2,1"; may be repeated.',
)
@click.option("--sensitivity2", type=click.IntRange(min=1), help="With --discrete: squared L2 sensitivity, any shape.")
@click.option(
    "--coordinates", type=click.IntRange(min=1), help="With --sensitivity2: coordinates that differ, at most."
)
@options.result_format()
def command(
    epsilon: str | None,
    delta: str | None,
    sigma: str | None,
    sensitivity: str | None,
    discrete: bool,
    shapes: tuple[str, ...],
    sensitivity2: int | None,
    coordinates: int | None,
    form: show.Format,
) -> None:
    r"""Find the third of epsilon, delta and sigma, for Gaussian noise on the real numbers or on the integers.

    Sigma is never below the smallest sufficient one, and at most a relative 1e-11 above it; delta and epsilon are
    never below the true ones. With --discrete, sigma^2 is a rational number, verified for discrete Gaussian noise:
    integers need slightly more.

    \b
    Examples:
      sketchstream calibrate --epsilon 1 --delta 1e-6
      sketchstream calibrate --epsilon 0.5 --sigma 20 --sensitivity 3
      sketchstream calibrate --epsilon 1 --delta 1e-6 --discrete --shape 2,1 --shape 1,1,1
      sketchstream calibrate --epsilon 1 --delta 1e-6 --discrete --sensitivity2 64 --coordinates 64
    """
    if sum(number is not None for number in (epsilon, delta, sigma)) != 2:
        raise ConfigError("exactly two of --epsilon, --delta and --sigma are needed: the third is found")
    if not discrete and (shapes or sensitivity2 is not None or coordinates is not None):
        raise ConfigError("--shape, --sensitivity2 and --coordinates belong to --discrete")
    if discrete:
        show.facts(_discrete(epsilon, delta, sensitivity, shapes, sensitivity2, coordinates), form)
        return
    show.facts(_continuous(epsilon, delta, sigma, "1" if sensitivity is None else sensitivity), form)


def _continuous(epsilon: str | None, delta: str | None, sigma: str | None, sensitivity: str) -> dict[str, Any]:
    """Results for noise on the real numbers."""
    from sketchstream.privacy.calibration.continuous import calibrate, delta_of, epsilon_of

    fields: dict[str, Any] = {"noise": "gaussian", "epsilon": epsilon, "delta": delta, "sensitivity": sensitivity}
    if epsilon is None:
        assert delta is not None
        assert sigma is not None
        return fields | {"epsilon": epsilon_of(delta, sigma, sensitivity), "sigma": sigma}
    if delta is None:
        assert sigma is not None
        return fields | {"delta": delta_of(epsilon, sigma, sensitivity), "sigma": sigma}
    return fields | {"sigma": calibrate(epsilon, delta, sensitivity)}


def _discrete(
    epsilon: str | None,
    delta: str | None,
    sensitivity: str | None,
    shapes: tuple[str, ...],
    sensitivity2: int | None,
    coordinates: int | None,
) -> dict[str, Any]:
    """Results for noise on the integers."""
    from sketchstream.privacy.calibration.discrete import calibrate_discrete

    if epsilon is None or delta is None:
        raise ConfigError("--discrete finds sigma^2: --epsilon and --delta are needed")
    if (sensitivity2 is None) != (coordinates is None):
        raise ConfigError("--sensitivity2 and --coordinates are needed together")
    if sum((sensitivity is not None, bool(shapes), sensitivity2 is not None)) > 1:
        raise ConfigError("only one of --sensitivity, --shape and --sensitivity2 can be given with --discrete")
    calibration: DiscreteCalibration
    if sensitivity2 is not None:
        calibration = calibrate_discrete(epsilon, delta, sensitivity2=sensitivity2, coordinates=coordinates)
        reach: dict[str, Any] = {"sensitivity2": sensitivity2, "coordinates": coordinates}
    else:
        listed = shapes or ("1" if sensitivity is None else sensitivity,)
        calibration = calibrate_discrete(epsilon, delta, [_shape(text) for text in listed])
        reach = {"shapes": list(listed)}
    return {"noise": "discrete gaussian", "epsilon": epsilon, "delta": delta, **reach} | {
        "sigma2": str(calibration.sigma2),
        "sigma": calibration.sigma,
        "delta_verified": calibration.delta,
        "route": calibration.route,
    }


def _shape(text: str) -> list[int]:
    """The whole numbers of "2,1"."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(
            f"noise on the integers needs whole numbers, such as --shape 2,1, found {text[:40]!r}"
        ) from None
