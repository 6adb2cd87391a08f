"""A word that nobody knows is refused over HTTP: every query parameter of every path, for sketches of all kinds.

In: the OpenAPI document, windows of every kind. Out: verdicts. Touches: a service over a temporary folder.

Requests that work are asked again with one parameter that is wrong, and with one more that does not exist. A path or a
parameter that is added to the document is asked too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from helpers import pages
from helpers.serving import HOUR
from sketchstream.stream.windows.calendar import iso

SKETCHES = ("reach", "counts", "tables", "series", "rows")
METRICS = {"reach": "distinct", "counts": "sum", "tables": "answer.0", "series": "last.0", "rows": "norm.0"}
WRONG = ("eror", "", "-7")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pages.every_kind(tmp_path_factory.mktemp("kinds")) as (_, _, found):
        yield found


def works(name: str, path: str) -> dict[str, str]:
    """Parameters with which the path may answer for this sketch."""
    start, end = iso(pages.DAY), iso(pages.DAY + HOUR)
    given = {"from": start, "to": end}
    if path.endswith("/series"):
        given = {"metric": METRICS[name]}
    if path.endswith("/difference"):
        given = {**given, "against_from": iso(pages.DAY + HOUR), "against_to": iso(pages.DAY + 2 * HOUR)}
        given["metric"] = METRICS[name]
    if name == "reach" and path.endswith(("/profile", "/series", "/difference")):
        given["group"] = "spring"
    return given if "{name}" in path and not path.endswith("{name}") else {}


PROBES = ("/healthz", "/readyz")
"""Paths that answer whatever is behind the question mark, as balancers add what they like."""


@pytest.mark.statistics
def test_every_parameter_refuses_unknown_words_and_unknown_names(client: Any) -> None:
    taken, unasked = [], []
    for path, one in client.get("/openapi.json").json()["paths"].items():
        if "get" not in one or path in PROBES or "{number}" in path:
            continue
        known = [given["name"] for given in one["get"].get("parameters", ()) if given["in"] == "query"]
        answered = 0
        for name in SKETCHES if "{name}" in path else ("",):
            address, usual = path.replace("{name}", name).replace("{table}", "windows"), works(name, path)
            if client.get(address, params=usual).status_code != 200:
                continue  # of another kind
            answered += 1
            for parameter in [*known, "surprise"]:
                for word in WRONG:
                    said = client.get(address, params={**usual, parameter: word})
                    if not 400 <= said.status_code < 500:
                        taken.append((address, parameter, word, said.status_code))
        if not answered:
            unasked.append(path)
    assert taken == []
    # no sketch here publishes positions, or what its groups have in common: for that see test_overlap.py
    assert [path for path in unasked if not path.endswith(("/closed", "/overlap"))] == []
