"""`sketchstream inspect`: the header of a sketch file.

In: any sketch file. Out: its public parameters. Touches: that file.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from sketchstream.cli import options, show, sketches
from sketchstream.spec import NO_PRIVACY, NoPrivacyWarning, read_rational

_HIDDEN: Final = ("items", "ledger", "lengths", "kind")
"""Parts of a header that are long, shown otherwise, or shown by `sketchstream ledger`."""
_OBJECTS: Final = {"release": "histogram", "sealed-state": "state"}
_LIVES: Final = {
    "sketch": "open: a secret, never publish, copy or back it up",
    "release": "published by a release; the sketch stayed open",
}


@click.command()
@click.argument("file", type=options.FILE)
@options.result_format()
def command(file: Path, form: show.Format) -> None:
    r"""Print the header of an open or published sketch: parameters, noise layers, key id. No key is needed.

    The numbers of an open sketch are never shown: they are a secret.

    \b
    Example:
      sketchstream inspect s.sealed
    """
    show.facts(_public(sketches.read_header(file), file), form)


def _public(header: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """The header's fields, the type of the object first, without long ones."""
    kind = str(header["kind"])
    sealed = kind != "sketch" and header.get("final", True)
    facts: dict[str, Any] = {
        "file": str(file),
        "object": _OBJECTS.get(kind, kind),
        "life": "sealed: published, final" if sealed else _LIVES[kind],
    }
    if "lengths" in header:
        facts["parts"] = len(header["lengths"])
    if _no_privacy(header):
        facts["warning"] = "NO PRIVACY"
        warnings.warn("epsilon above 10 protects nobody: NO PRIVACY", NoPrivacyWarning, stacklevel=1)
    return facts | {name: value for name, value in header.items() if name not in _HIDDEN}


def _no_privacy(header: Mapping[str, Any]) -> bool:
    """Whether the header's epsilons are too large for meaningful privacy."""
    epsilons = [str(header["spec"].get(name, "0")) for name in ("epsilon", "epsilon_publish")]
    try:
        return any(read_rational(epsilon) > NO_PRIVACY for epsilon in epsilons)
    except ValueError:
        return False  # the kind, which is not loaded here, refuses such a spec
