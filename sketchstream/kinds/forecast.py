"""The plan of a sketch of any kind, from its spec alone: the error of its numbers, and that of similar specs.

In: a spec. Out: a `Forecast`, and plain data with the same keys for all kinds. Touches: nothing; no data and no sketch
are read.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Final

from sketchstream import kinds
from sketchstream.errors import EstimateError, SpecError
from sketchstream.kinds.interface import Spec
from sketchstream.privacy.losses.law_names import parameter_name
from sketchstream.spec import NoPrivacyWarning

Error = Callable[[Any], tuple[str, float]]
FACTORS: Final = (Fraction(1, 2), Fraction(2))
"""Factors of epsilon whose errors a plan lists."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a sketch will publish, computed from its spec alone.

    Attributes:
        quantity: what the numbers are, such as "count".
        rmse: root mean squared error of one of them as `seal` publishes it, from noise alone; infinite if noise may
            hide all that is counted, so that the error is not known beforehand.
        noise: law and parameter of the first layer of noise.
        alternatives: specs that differ in one parameter, each with its rmse.
        advice: what follows, in a sentence.
    """

    quantity: str
    rmse: float
    noise: dict[str, str]
    alternatives: list[dict[str, Any]]
    advice: str

    def __str__(self) -> str:
        return self.advice

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def forecast(spec: Spec) -> Forecast:
    """The error of the numbers of a sketch before it is created, and what other specs would have.

    A profile's number is that of distinct items where a quarter of the slots is used; `plan` computes all of them.

    Examples:
        >>> import sketchstream as ss
        >>> spec = ss.GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(size=100))
        >>> print(ss.forecast(spec))
        one count has a standard error of 5.983; with epsilon 2 it would have 53% of it
    """
    return Forecast(**plain_forecast(spec))


def plain_forecast(
    spec: Spec, error: Error | None = None, others: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """What a sketch of this spec will publish, as plain data.

    Args:
        spec: spec of any kind.
        error: what the numbers are, and their root mean squared error, by the spec; default `Kind.expected_error`.
        others: alternatives that are known already, each with its rmse; default: other epsilons, and no fresh noise.

    Returns:
        quantity: what the numbers are; rmse: root mean squared error of those that `seal` publishes; noise: law and
        parameter of the first layer; alternatives: other specs, each with its rmse; advice: a sentence.
    """
    kind = kinds.kind_of(spec)
    accounting, measure = kind.accounting, error or kind.expected_error
    quantity, rmse = measure(spec)
    law = accounting.law(spec)
    noise = {"law": law, parameter_name(law): str(accounting.parameter(spec, accounting.creation_cost(spec)))}
    alternatives = others
    if alternatives is None:
        alternatives = list(_measure_specs(_others(spec), measure))
    least = min(alternatives, key=lambda one: float(one["rmse"]), default={"rmse": rmse})
    changed = ", ".join(f"{name} {value}" for name, value in least.items() if name != "rmse")
    known = math.isfinite(rmse)
    advice = f"one {quantity} has a standard error of {rmse:.4g}" if known else f"noise may hide all {quantity}"
    if changed and least["rmse"] < rmse:
        less = f"it would have {least['rmse'] / rmse:.0%} of it" if known else f"the error would be {least['rmse']:.4g}"
        advice += f"; with {changed} {less}"
    return {"quantity": quantity, "rmse": rmse, "noise": noise, "alternatives": alternatives, "advice": advice}


def _measure_specs(others: Iterable[tuple[dict[str, str], Spec]], measure: Error) -> Iterator[dict[str, Any]]:
    """The error of each spec; one whose sketches could not tell the number is left out."""
    for change, other in others:
        with suppress(EstimateError, SpecError):
            rmse = measure(other)[1]
            if math.isfinite(rmse):
                yield {**change, "rmse": rmse}


def _others(spec: Spec) -> list[tuple[dict[str, str], Spec]]:
    """Specs that differ in one thing: epsilons, and the fresh noise at seal. Impossible ones are left out."""
    data = spec.to_dict()
    epsilons = [name for name in ("epsilon", "epsilon_publish") if isinstance(data.get(name), str)]
    changes: list[tuple[dict[str, str], Mapping[str, Any]]] = [
        ({"epsilon": str(spec.epsilon * factor)}, {name: str(Fraction(data[name]) * factor) for name in epsilons})
        for factor in FACTORS
    ]
    if data.get("intrusion") is True:
        changes.append(({"intrusion": "false"}, {"intrusion": False}))
    out = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoPrivacyWarning)
        for change, fields in changes:
            try:
                out.append((change, kinds.read_spec({**data, **fields})))
            except SpecError:
                continue
    return out
