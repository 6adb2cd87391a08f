"""A profile as data, text and tables.

In: a `Profile`. Out: dictionaries, the CSV of the command line and the service, text, a rich table. Touches: nothing.
The keys are those of the command line's JSON.
"""

from __future__ import annotations

import io
import math
import textwrap
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kinds.answers import LEVEL
from sketchstream.kinds.estimates import normal_quantile
from sketchstream.kinds.exports import ColumnType
from sketchstream.kinds.profile.estimate.intervals.wrapping import mark_bound
from sketchstream.pictures import numbers
from sketchstream.texts.number_texts import speller

if TYPE_CHECKING:
    from rich.table import Table

    from sketchstream.kinds.estimates import Estimate
    from sketchstream.kinds.profile.estimate.profile_numbers import ProfileNumbers

SCALARS = ("distinct", "total", "mean", "entropy", "one_hit_ratio", "coverage")
TITLES = {
    "distinct": "distinct items",
    "total": "events",
    "mean": "mean count",
    "entropy": "entropy (nats)",
    "one_hit_ratio": "seen once, share",
    "coverage": "coverage",
}
CSV_NUMBERS = ("distinct", "total", "mean", "entropy")
_ENDS: Final = [
    f"{name}{end}" for name in ("fraction", "items", "at_least", *CSV_NUMBERS) for end in ("", "_low", "_high")
]
COLUMNS: Final[dict[str, ColumnType]] = {"count": "int64", **dict.fromkeys(_ENDS, "float64")}
"""Types of the columns of CSV and Arrow; those that name a bound are text."""
QUANTILES = (0.5, 0.9, 0.99)
EXACT = 30
"""Largest count of which the number of items is listed with its interval."""


def reach_steps(n: int) -> list[int]:
    """The k at which k+ numbers are listed: every one up to 1000, then 1-2-5 steps up to n."""
    steps = list(range(1, min(n, 1000) + 1))
    scale = 1000
    while scale <= n:
        steps += [k for k in (scale, 2 * scale, 5 * scale) if 1000 < k <= n]
        scale *= 10
    return steps


def more(profile: ProfileNumbers, level: float) -> dict[str, Any]:
    """Plain data of a profile, besides the keys that all kinds have.

    Args:
        profile: what is exported.
        level: level of the intervals.
    """
    facts, z = profile.facts, normal_quantile(level)
    out: dict[str, Any] = {
        "d": facts.d,
        "epsilon_publish": facts.cost,
        "form": facts.form,
        "domain": "open" if facts.open_domain else "closed",
        "max_count": profile.max_count,
        "fractions": profile.fractions.tolist(),
        "counts": profile.counts.tolist(),
    }

    def number_data(name: str) -> dict[str, Any]:
        return profile.number(name, level).to_dict()

    out |= {name: number_data(name) for name in ("above", *SCALARS)}
    out["quantiles"] = {str(q): number_data(f"quantile.{q}") for q in QUANTILES}
    out["at_least"] = {str(k): number_data(f"at_least.{k}") for k in reach_steps(profile.max_count)}
    out["exactly"] = {str(k): number_data(f"exactly.{k}") for k in range(1, min(profile.max_count, EXACT) + 1)}
    out.update(facts.settings)
    if facts.sample is not None:
        out["sample"] = dict(facts.sample)
    if facts.wrapping is not None:
        out["wrapping"] = facts.wrapping.to_dict(z)
    out["covers"] = profile.covers
    return out


def columns(profile: ProfileNumbers) -> dict[str, Floats]:
    """The profile as columns, one row for each count 0..n."""
    out = {"count": np.arange(profile.max_count + 1, dtype=np.float64)}
    for name, estimates in (
        ("fraction", (profile.fractions, *profile.number("fractions").T)),
        ("items", (profile.counts, *profile.number("counts").T)),
        ("at_least", profile.tail_ends(normal_quantile(LEVEL))[:-1].T),
    ):
        out |= dict(zip((name, f"{name}_low", f"{name}_high"), estimates, strict=True))
    return out


def header(*, wraps: bool) -> tuple[str, ...]:
    """Names of the columns of `to_csv`.

    Args:
        wraps: whether counts are kept modulo p.
    """
    bounded = {f"{name}_high": f"{name}_bound" for name in CSV_NUMBERS} if wraps else {}
    return tuple(one for name in COLUMNS for one in ((name, bounded[name]) if name in bounded else (name,)))


def to_csv(profile: ProfileNumbers) -> str:
    """CSV text of `columns`, followed by the numbers of `CSV_NUMBERS`, which are the same in every line.

    Where counts are kept modulo p, a column `NAME_bound` says whether the number is a lower or an upper bound.
    """
    wraps = profile.facts.wrapping is not None
    cells: list[str] = []
    for number in map(profile.number, CSV_NUMBERS):
        cells += [_cell(number.value), _cell(number.low), _cell(number.high), *([number.bound or ""] if wraps else [])]
    whole = "".join(f",{cell}" for cell in cells)
    out = io.StringIO()
    out.write(",".join(header(wraps=wraps)) + "\n")
    for row in zip(*columns(profile).values(), strict=True):
        out.write(str(int(row[0])) + "," + ",".join(map(_cell, row[1:])) + whole + "\n")
    return out.getvalue()


def _cell(value: float) -> str:
    """A number; empty for an end that does not exist."""
    return repr(float(value)) if math.isfinite(value) else ""


def rows(profile: ProfileNumbers) -> list[tuple[str, str, str, str]]:
    """The most important numbers: name, estimate, low, high, without digits that say nothing."""
    n, say = profile.max_count, profile.names
    titled = [(say(TITLES[name]), name) for name in SCALARS]
    titled += [(f"seen {k} times or more", f"at_least.{k}") for k in (2, 3, 5, 10, 30, 100, 300) if k <= n]
    titled += [(say(f"count of {round(q * 100)}% of items at most"), f"quantile.{q}") for q in QUANTILES]
    if not profile.blind:
        titled.append((f"share above {n}", "above"))
    return [_row(title, name, profile.number(name)) for title, name in titled]


def _row(title: str, name: str, estimate: Estimate) -> tuple[str, str, str, str]:
    """Title, estimate, low and high of one number."""
    spell = speller(estimate.low, estimate.high, numbers.spelling(name))
    return (
        mark_bound(title, estimate.bound),
        spell(estimate.value),
        spell(estimate.low),
        "unknown" if estimate.high == math.inf else spell(estimate.high),
    )


def heading(profile: ProfileNumbers) -> str:
    """Title of the profile, one line."""
    facts = profile.facts
    layers = "" if len(facts.layers) == 1 else f", {len(facts.layers)} layers"
    domain = "open" if facts.open_domain else "closed"
    published = "" if facts.cost is None else f", epsilon_publish {facts.cost}"
    about = f"{domain} domain, {facts.d:,} slots, unit {facts.unit}, epsilon {facts.epsilon}{published}{layers}"
    return f"profile by {facts.method}: {about}"


def text(profile: ProfileNumbers) -> str:
    """The profile as a plain table."""
    lines = rows(profile)
    width = max(len(row[0]) for row in lines)
    cells = [max(*(len(row[i]) for row in lines), 8) for i in (1, 2, 3)]
    head = " " * width + "".join(
        f"  {name:>{size}}" for name, size in zip(("estimate", "low", "high"), cells, strict=True)
    )
    body = [
        f"{row[0]:<{width}}" + "".join(f"  {value:>{size}}" for value, size in zip(row[1:], cells, strict=True))
        for row in lines
    ]
    covers = textwrap.wrap(f"95% intervals; they cover {profile.covers}.", max(len(head), 80))
    return "\n".join([heading(profile), head, *body, *covers])


def table(profile: ProfileNumbers) -> Table:
    """A rich table of `rows`."""
    from rich.table import Table

    out = Table(title=heading(profile), caption=f"95% intervals; they cover {profile.covers}.")
    out.add_column("")
    for name in ("estimate", "low", "high"):
        out.add_column(name, justify="right")
    for row in rows(profile):
        out.add_row(*row)
    return out
