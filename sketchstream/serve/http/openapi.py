"""The OpenAPI document: what the framework makes of the routes and their models, with an example of each answer.

In: routes. Out: the document as plain data. Touches: nothing.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from sketchstream.serve.http.problems import PROBLEM
from sketchstream.serve.http.shapes import Problem
from sketchstream.serve.service import VERSION

START: Final = "2013-01-01T05:00:00Z"
END: Final = "2013-02-01T05:00:00Z"
SPAN: Final = {"window_start": START, "window_end": END, "complete": True}
FACTS: Final = {"sketch": "aircraft", **SPAN}
SKETCH: Final = {
    "name": "aircraft",
    "configured": True,
    "kind": "profile",
    "answer": "profile",
    "unit": "item",
    "window": "1mo",
    "timezone": "America/New_York",
    "summary": "The loss of one item is at most epsilon 1 against readers of what is published.",
    "counts": {"windows": 12, "settled": 12, "pending": 0, "incidents": 0},
    "first": START,
    "last": "2014-01-01T05:00:00Z",
    "published_through": "2014-01-01T05:00:00Z",
}
SET: Final = {"value": 80_120.0, "low": 78_680.0, "high": 81_560.0, "sd": 734.7}
ESTIMATE: Final = {
    **FACTS,
    "answers": [{"what": "N14228", "value": 12.0, "low": 8.5, "high": 15.5}],
    "guarantee": {"unit": "event"},
}
POINT: Final = {**SPAN, "answer": "ready", "value": 341.2, "low": 260.1, "high": 420.9}
WINDOW: Final = {
    **FACTS,
    "partitions": {"published": 1, "of": 1, "missing": []},
    "revision": 0,
    "status": "complete",
    "answer": "ready",
}
CLOSED: Final = {
    **FACTS,
    "sketch": "departures",
    "complete": False,
    "closed": 2,
    "answers": [{"name": "sum", "values": [61.2, 118.0], "stderr": [5.1, 5.1]}],
    "guarantee": {"unit": "event"},
}
LEDGER_ROW: Final = {
    "sketch": "aircraft",
    "revision": "0",
    "unit": "item",
    "windows": "12",
    "partitions": "1",
    "one_window": "1",
    "all_windows": "12",
}
TABLE: Final = {
    "sketch": "aircraft",
    "table": "numbers",
    "path": "/v1/tables/aircraft/numbers.parquet",
    "columns": [{"name": "window_start", "type": "time"}, {"name": "value", "type": "float64"}],
}
DISTINCT: Final = {"value": 500.0, "low": 460.0, "high": 540.0}
TOTAL: Final = {"event": "1", "event_zcdp": "1/2", "item": "12", "item_zcdp": "6"}
EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "Problem": {
        "type": "about:blank",
        "title": "Not found",
        "status": 404,
        "detail": "there is no such sketch; there are: aircraft",
    },
    "Sketch": SKETCH,
    "Sketches": {"sketches": [SKETCH]},
    "Windows": {"sketch": "aircraft", "windows": [WINDOW], "next": None},
    "Profile": {
        **FACTS,
        "method": "likelihood",
        "max_count": 2,
        "fractions": [0.5, 0.3, 0.2],
        "counts": [500.0, 300.0, 200.0],
        "distinct": DISTINCT,
        "at_least": {"1": DISTINCT},
        "guarantee": {"unit": "item"},
    },
    "Estimate": ESTIMATE,
    "Overlap": {
        **FACTS,
        "sketch": "reach",
        "kind": "overlap",
        "groups": ["spring", "summer"],
        "people": SET,
        "answers": [{"query": "spring & summer", **SET}],
        "regions": [{"in": ["spring", "summer"], **SET}],
        "increments": [{"group": "spring", "added": SET, "reached": SET}],
        "consistent": True,
        "epsilon": "1/4",
        "coverage": 0.95,
        "notes": [],
        "guarantee": {"unit": "item"},
    },
    "Estimates": {"sketch": "aircraft", "windows": [ESTIMATE]},
    "Closed": {"sketch": "departures", "windows": [CLOSED]},
    "Series": {
        "sketch": "aircraft",
        "metric": "exactly.1",
        "title": "items seen only once",
        "level": 0.95,
        "pending": 0,
        "pending_seconds": 0.0,
        "points": [POINT],
    },
    "SeriesByGroup": {
        "sketch": "reach",
        "metric": "exactly.1",
        "level": 0.95,
        "pending": 0,
        "pending_seconds": 0.0,
        "groups": [{"group": "spring", "title": "items seen only once", "pending": 0, "points": [POINT]}],
    },
    "Difference": {
        "sketch": "aircraft",
        "metric": "distinct",
        "title": "distinct items",
        "level": 0.95,
        "independent": True,
        "difference": {"value": 5.0, "low": -110.2, "high": 120.4},
        "window": POINT,
        "against": {**POINT, "window_start": "2012-12-01T05:00:00Z", "window_end": START, "value": 336.2},
        "assumes": "the noises of the two numbers are independent",
    },
    "Total": TOTAL,
    "Ledger": {
        "keyed": True,
        "limit": None,
        "budget": {"limit": "2 per 1mo", "event": "1", "item": "1", "kept": True},
        "total": TOTAL,
        "days": {"2013-01-01": {"event": "1", "event_zcdp": "1/2", "item": "1", "item_zcdp": "1/2"}},
        "unbounded_for_items": [],
        "conflicts": 0,
        "copied": 0,
        "sketches": [LEDGER_ROW],
    },
    "Incidents": {"incidents": [{"sketch": "aircraft", "window_start": START, "text": "... was published twice ..."}]},
    "Status": {
        "ready": True,
        "unread": 0,
        "error": None,
        "pending": 0,
        "rate_per_second": 2.5,
        "pending_seconds": 0.0,
        "sketches": {"aircraft": {"behind_seconds": 0.0}},
    },
    "Tables": {"tables": [TABLE]},
}
"""Examples of the shapes, by name."""
PROBLEMS: Final = {
    "description": "What was found, and what to do.",
    "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def document(routes: list[BaseRoute]) -> dict[str, Any]:
    """The OpenAPI document of some routes."""
    described = []
    for route in routes:
        if isinstance(route, APIRoute):
            copied = copy.copy(route)
            copied.methods = (route.methods or set()) - {"HEAD"}
            described.append(copied)
    made = get_openapi(
        title="sketchstream",
        version=VERSION,
        summary="Private statistics with intervals, from published sketches.",
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        routes=described,
    )
    for operations in made["paths"].values():
        for operation in operations.values():
            operation.pop("description", None)  # the framework makes it of the summary
    made["security"] = [{}, {"token": []}]
    components = made.setdefault("components", {})
    components.setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
    for name, example in EXAMPLES.items():
        components["schemas"][name]["examples"] = [example]
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return made
