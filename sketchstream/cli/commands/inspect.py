"""`sketchstream inspect`: the header of a sketch file, and nothing else.

In: any sketch file. Out: its public parameters. Touches: that file.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import click

from sketchstream.cli import options, show

_HIDDEN: Final = ("items", "ledger")
"""Parts of a header that are long: the list of a closed domain, and what `sketchstream ledger` shows."""


@click.command(short_help="Print the header of any sketch file, and nothing else.")
@click.argument("file", type=options.FILE)
@options.result_format()
def command(file: Path, form: show.Format) -> None:
    r"""Print the header of an open or published sketch: parameters, noise layers, key id. No key is needed.

    The numbers of an open sketch are never shown: they are a secret.

    \b
    Example:
      sketchstream inspect s.sealed
    """
    from sketchstream.cli import sketches

    show.facts(_public(sketches.read_header(file), file), form)


def _public(header: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """The header's fields, long ones left out, life and warning first."""
    life = {"sketch": "open (a secret: never publish, copy or back it up)", "release": "look (the sketch may be open)"}
    found = str(header.get("object"))
    if found == "release" and header.get("final"):
        found = "histogram"
    facts: dict[str, Any] = {"file": str(file), "object": found, "life": life.get(found, "published")}
    if _no_privacy(header):
        facts["warning"] = "NO PRIVACY: an epsilon above 10 protects nobody"
    facts |= {name: value for name, value in header.items() if name not in (*_HIDDEN, "object")}
    return facts


def _no_privacy(header: Mapping[str, Any]) -> bool:
    """Whether the header's epsilons are so large that they protect nobody."""
    from sketchstream.spec import NO_PRIVACY

    spec = header.get("spec") or {}
    return any(Fraction(spec.get(name, "0")) > NO_PRIVACY for name in ("epsilon", "epsilon_publish"))
