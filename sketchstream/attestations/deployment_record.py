"""A deployment as a record of the public registry of deployments of differential privacy.

In: the ledger of a deployment, its sketches, what only its operators know. Out: plain data, a record of tier 2 or 3.
Touches: the file of what operators say.
Source: the registry's schema, github.com/opendp/deployments-registry-data, schemas/deployments-schema.yaml of July
2026; Dwork, Kohli & Mulligan, JPC 9(2), 2019; arXiv 2509.13509.

A record that says less than the truth is worse than none: losses are rounded up, and a deployment whose losses have no
bound is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sketchstream.config.bounded_toml import read_toml_file
from sketchstream.errors import ConfigError
from sketchstream.privacy.deployments import publications
from sketchstream.privacy.deployments.deployment import utc_day
from sketchstream.privacy.losses.zcdp import DELTA

if TYPE_CHECKING:
    from sketchstream.privacy.deployments.deployment import Deployment, Total
    from sketchstream.privacy.losses.composition import Composed

SECTORS: Final = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")
NEEDED: Final[Mapping[str, type]] = {
    "name": str,
    "data_curators": list,
    "intended_use": str,
    "data_product_region": str,
    "registry_authors": list,
}
OPTIONAL: Final[Mapping[str, type]] = {
    "data_product_sector": str,
    "url_slug": str,
    "sources": str,
    "justification": str,
}


def read_operator(path: Path) -> dict[str, Any]:
    """What operators say about their deployment, from a TOML file.

    Args:
        path: path of the file.

    Raises:
        ConfigError: it cannot be read, or a key is missing, unknown or of another type; one line for each.
    """
    written = read_toml_file(path)
    fields = {**NEEDED, **OPTIONAL}
    mistakes = [f"{path}: {name} is missing; needed are {', '.join(NEEDED)}" for name in NEEDED if name not in written]
    for name, value in written.items():
        if name not in fields:
            mistakes.append(f"{path}: unknown key {name!r:.60}; there are {', '.join(fields)}")
        elif fields[name] is list:
            if not isinstance(value, list) or not value or not all(isinstance(text, str) and text for text in value):
                mistakes.append(f"{path}: {name} must be a list of texts with at least one, found {value!r:.60}")
        elif not isinstance(value, str) or not value:
            mistakes.append(f"{path}: {name} must be a text, found {value!r:.60}")
    if written.get("data_product_sector", SECTORS[0]) not in SECTORS:
        mistakes.append(f"{path}: data_product_sector must be one of {', '.join(SECTORS)}")
    if mistakes:
        raise ConfigError(*mistakes)
    return written


def record(
    deployment: Deployment, specs: Mapping[str, Any], operator: Mapping[str, Any], exceptions: Sequence[str] = ()
) -> dict[str, Any]:
    """The record of a deployment.

    Args:
        deployment: everything that it has published.
        specs: specs of its sketches, by name.
        operator: see `read_operator`.
        exceptions: what no loss covers, by the statements of its sketches.

    Raises:
        ConfigError: nothing was published, or its losses have no bound.
    """
    if not deployment.records:
        raise ConfigError("nothing was published yet, so there is no loss to state")
    # a sketch of unit "event" bounds no item, so that a deployment with one is stated for events
    unit = "item" if {record.ledger.unit for record in deployment.records} == {"item"} else "event"
    whole, worst = deployment.total(), _worst_day(deployment, unit)
    composed = worst.item_at(DELTA) if unit == "item" else worst.event_at(DELTA)
    variant, parameters = _parameters(worst, unit, composed)
    ends = [record.window[1] for record in deployment.records if record.window is not None]
    kinds = sorted({spec.kind for spec in specs.values()})
    laws = sorted({layer.law for record in deployment.records for layer in record.ledger.history.layers()})
    basic = {name: operator[name] for name in ("name", "data_curators", "intended_use", "data_product_region")}
    basic |= {
        "description": f"Noisy sketches of a stream of events ({', '.join(sorted(specs))}; kinds {', '.join(kinds)}), "
        "published once for each window of event time, from which statistics with confidence intervals are computed.",
        "data_product_type": "Summary statistics",
        "publication_date": utc_day(min(ends)) if ends else utc_day(0),
    }
    if "data_product_sector" in operator:
        basic["data_product_sector"] = operator["data_product_sector"]
    administrative = {name: operator[name] for name in ("registry_authors", "sources") if name in operator}
    implementation = {
        "preprocessing_and_hyperparameter_tuning": "Parameters are fixed in a configuration file before the first "
        "event; a sample of the topic that `validate` reads costs at most 1/10, stated separately.",
        "mechanisms": f"{', '.join(laws)}, drawn in exact integer arithmetic from an AES-256-CTR keystream and added "
        f"to the state before the first event; sketchstream {version('sketchstream')}.",
    }
    if "justification" in operator:
        implementation["justification"] = operator["justification"]
    slug = re.sub(r"[^a-z0-9]+", "-", str(operator["name"]).lower()).strip("-")
    return {
        "url_slug": operator.get("url_slug", slug),
        "status": "Draft",
        "tier": 3 if "justification" in operator else 2,
        "deployment": {
            "basic": basic,
            "dp_variant": {
                "variant_name": variant,
                "data_domain": "All streams of records with the same envelopes (topic, partition, offset, times, size) "
                "and any payloads.",
                "unprotected_quantities": "; ".join(exceptions) or publications.not_counted(),
            },
            "privacy_loss": {
                "privacy_unit": _UNITS[unit],
                "privacy_unit_details": "Neighbouring streams have the same envelopes; the payloads of the unit are "
                "replaced by no-ops. To replace a unit by another one costs at most twice as much.",
                "privacy_parameters": parameters,
                "privacy_parameters_details": f"Largest of all UTC days. Over everything published so far: "
                f"{_losses_as_text(whole, unit)}. Of that worst day: {_losses_as_text(worst, unit)}.",
            },
            "deployment_model": {
                "model_name": "Central",
                "model_name_details": "Pan-private: the open state holds its own noise from the first moment on.",
                "actors": "Operators of the workers see records while they are processed; readers of the sealed topic "
                "see the publications that the losses are about.",
                "release_type": "Many releases"
                if len({record.window for record in deployment.records}) > 1
                else "One release",
                "release_type_details": "One publication for each sketch, window and partition. "
                + ("No limit is set." if deployment.limit is None else f"privacy.max_epsilon is {deployment.limit}.")
                + ("" if deployment.budget is None else f" privacy.budget is {deployment.budget}."),
                "data_source_type": "Dynamic",
                "access_type": "Non-interactive",
            },
            "accounting": {
                "post_processing": "Reconstruction by maximum likelihood and linear estimates, from published bytes "
                "and public facts alone.",
                "composition": "An event lies in one window of each series, or in all that overlap at its time; losses "
                "of an item add over windows, sketches and revisions, and over partitions that can hold it. Pure "
                "losses add, or compose by zCDP; Gaussian ones add as mu^2.",
            },
            "implementation": implementation,
            "administrative": administrative,
        },
    }


_UNITS: Final = {"item": "Everything that one item (such as a user) does in one UTC day", "event": "One event"}


def _worst_day(deployment: Deployment, unit: str) -> Total:
    """The total of the day on which the unit loses most."""

    def order(total: Total) -> float:
        return float((total.item_at(DELTA) if unit == "item" else total.event_at(DELTA)).epsilon)

    return max(deployment.by_day().values(), key=order)


def _parameters(total: Total, unit: str, composed: Composed) -> tuple[str, dict[str, float]]:
    """The name of the variant, and its parameters, rounded up.

    Raises:
        ConfigError: there is no bound.
    """
    pure, gaussian = (total.item, total.item_gaussian) if unit == "item" else (total.event, total.event_gaussian)
    if not gaussian.mu2 and pure != math.inf:
        return "Pure DP", {"epsilon": no_less(pure)}
    if composed.epsilon == math.inf:
        raise ConfigError(
            f"the loss of one {unit} has no bound, so there is nothing to state: `sketchstream ledger -c` says why"
        )
    return "Approximate DP", {"epsilon": no_less(composed.epsilon), "delta": float(DELTA)}


def no_less(value: Fraction | float) -> float:
    """The least float that is not below this number.

    Examples:
        >>> no_less(Fraction(1, 3)) >= Fraction(1, 3), no_less(Fraction(1, 2))
        (True, 0.5)
    """
    number = float(value)
    return math.nextafter(number, math.inf) if Fraction(number) < value else number


def _losses_as_text(total: Total, unit: str) -> str:
    """The losses of a total as text; those of an item only where all sketches bound it."""
    unbounded = ("item", "item_zcdp") if unit == "event" else ()
    fields = {name: value for name, value in total.to_dict().items() if name not in unbounded}
    losses = [f"{name} {value}" for name, value in fields.items() if isinstance(value, str)]
    return ", ".join([*losses, *["no bound on what an item loses"] * (unit == "event")])
