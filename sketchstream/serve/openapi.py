"""The OpenAPI document of the HTTP API.

In: nothing. Out: the document as plain data, with an example for each path. Touches: nothing. A test sends generated
requests to a running service and holds the answers to this document.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sketchstream.kinds.projection.questions import MOST_AMONG
from sketchstream.serve.problems import PROBLEM
from sketchstream.serve.questions import METHODS, NORMS
from sketchstream.serve.service import LIMIT, VERSION

Schema = dict[str, Any]

TIME: Final[Schema] = {"type": "string", "format": "date-time", "example": "2013-01-01T05:00:00Z"}
END: Final[Schema] = {"type": ["number", "null"]}
TEXT: Final[Schema] = {"type": "string"}
WHOLE: Final[Schema] = {"type": "integer", "minimum": 0}
ANSWERS: Final = ("ready", "pending", "on_request", "none", "incident")


def _object(required: dict[str, Schema], more: dict[str, Schema] | None = None, *, closed: bool = True) -> Schema:
    """An object with these fields; closed: and no others."""
    return {
        "type": "object",
        "properties": required | (more or {}),
        "required": list(required),
        "additionalProperties": not closed,
    }


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


ENDS: Final[dict[str, Schema]] = {"value": END, "low": END, "high": END}
BOUND: Final[Schema] = {
    "enum": ["lower", "upper", "modulo"],
    "description": "what counts modulo `modulus` (unit item) make of the number: a lower or an upper bound, or a "
    "statement about counts modulo it only; absent: it is an estimate",
}
NUMBER: Final[Schema] = {
    "type": "object",
    "properties": {**ENDS, "bound": BOUND},
    "required": list(ENDS),
    "additionalProperties": False,
}
POINT: Final[dict[str, Schema]] = {
    "window_start": TIME,
    "window_end": TIME,
    "complete": {"type": ["boolean", "null"]},
    "answer": {"enum": list(ANSWERS)},
    **ENDS,
}
FACTS: Final[dict[str, Schema]] = {
    "sketch": TEXT,
    "window_start": TIME,
    "window_end": TIME,
    "complete": {"type": ["boolean", "null"]},
}
SCHEMAS: Final[dict[str, Schema]] = {
    "Problem": _object({"type": TEXT, "title": TEXT, "status": WHOLE, "detail": TEXT}),
    "Sketch": _object(
        {
            "name": TEXT,
            "configured": {"type": "boolean"},
            "counts": _object(dict.fromkeys(("windows", "settled", "pending", "incidents"), WHOLE)),
            "first": {"type": ["string", "null"]},
            "last": {"type": ["string", "null"]},
            "published_through": {"type": ["string", "null"]},
        },
        dict.fromkeys(("kind", "unit", "window", "timezone", "summary"), TEXT)
        | {"answer": {"enum": ["profile", "estimate"]}, "groups": _list(TEXT)},
    ),
    "Sketches": _object({"sketches": _list(_ref("Sketch"))}),
    "Window": _object({**FACTS, "status": TEXT, "answer": {"enum": list(ANSWERS)}}, {"failure": TEXT}, closed=False),
    "Windows": _object({"sketch": TEXT, "windows": _list(_ref("Window")), "next": {"type": ["string", "null"]}}),
    "Profile": _object(
        {
            **FACTS,
            "method": TEXT,
            "max_count": WHOLE,
            "fractions": _list({"type": "number"}),
            "counts": _list({"type": "number"}),
            "distinct": NUMBER,
            "at_least": {"type": "object", "additionalProperties": NUMBER},
            "guarantee": {"type": "object"},
        },
        closed=False,
    ),
    "Estimate": _object({**FACTS, "guarantee": {"type": "object"}}, closed=False),
    "Estimates": _object({"sketch": TEXT, "windows": _list(_ref("Estimate"))}),
    "Closed": _object({"sketch": TEXT, "windows": _list(_object({**FACTS, "closed": WHOLE}, closed=False))}),
    "Series": _object(
        {
            "sketch": TEXT,
            "metric": TEXT,
            "title": TEXT,
            "level": {"type": "number"},
            "pending": WHOLE,
            "pending_seconds": END,
            "points": _list(_object(POINT)),
        },
        {"bound": BOUND},
    ),
    "SeriesByGroup": _object(
        {
            "sketch": TEXT,
            "metric": TEXT,
            "level": {"type": "number"},
            "pending": WHOLE,
            "pending_seconds": END,
            "groups": _list(_object({"group": TEXT, "title": TEXT, "pending": WHOLE, "points": _list(_object(POINT))})),
        },
        {"bound": BOUND},
    ),
    "SeriesOrByGroup": {"anyOf": [_ref("Series"), _ref("SeriesByGroup")]},
    "Difference": _object(
        {
            "sketch": TEXT,
            "metric": TEXT,
            "title": TEXT,
            "level": {"type": "number"},
            "independent": {"type": "boolean"},
            "difference": _object(ENDS),
            "window": _object(POINT),
            "against": _object(POINT),
            "assumes": TEXT,
        },
        {"bound": BOUND},
    ),
    "Ledger": _object(
        {
            "keyed": {"type": "boolean"},
            "limit": {"type": ["string", "null"]},
            "budget": {
                "anyOf": [
                    _object({"limit": TEXT, "event": TEXT, "item": TEXT, "kept": {"type": "boolean"}}),
                    {"type": "null"},
                ]
            },
            "total": _ref("Total"),
            "days": {"type": "object", "additionalProperties": _ref("Total")},
            "unbounded_for_items": _list(TEXT),
            "conflicts": WHOLE,
            "copied": WHOLE,
            "sketches": _list(
                _object(
                    dict.fromkeys(
                        ("sketch", "revision", "unit", "windows", "partitions", "one_window", "all_windows"), TEXT
                    )
                )
            ),
        }
    ),
    "Total": _object(
        dict.fromkeys(("event", "event_zcdp", "item", "item_zcdp"), TEXT),
        {f"{unit}_{what}": {"type": "object"} for unit in ("event", "item") for what in ("gaussian", "together")}
        | {"record": TEXT},
    ),
    "Incidents": _object({"incidents": _list(_object({"sketch": TEXT, "window_start": TIME, "text": TEXT}))}),
    "Status": _object(
        {
            "ready": {"type": "boolean"},
            "unread": {"type": ["integer", "null"]},
            "error": {"type": ["string", "null"]},
            "pending": WHOLE,
            "rate_per_second": END,
            "pending_seconds": END,
            "sketches": {"type": "object", "additionalProperties": _object({"behind_seconds": END})},
        }
    ),
}
EXAMPLE_ENDS: Final = {"value": 341.2, "low": 260.1, "high": 420.9}
EXAMPLE_FACTS: Final = {
    "sketch": "aircraft",
    "window_start": "2013-01-01T05:00:00Z",
    "window_end": "2013-02-01T05:00:00Z",
    "complete": True,
}
EXAMPLE_POINT: Final = {**EXAMPLE_FACTS, **EXAMPLE_ENDS, "answer": "ready"}
EXAMPLE_TOTAL: Final = {"event": "1", "event_zcdp": "1/2", "item": "12", "item_zcdp": "6"}
EXAMPLE_SKETCH: Final = {
    "name": "aircraft",
    "configured": True,
    "kind": "profile",
    "answer": "profile",
    "unit": "item",
    "window": "1mo",
    "timezone": "America/New_York",
    "summary": "The loss (epsilon) of one item is at most 1 against readers of what is published.",
    "counts": {"windows": 12, "settled": 12, "pending": 0, "incidents": 0},
    "first": "2013-01-01T05:00:00Z",
    "last": "2014-01-01T05:00:00Z",
    "published_through": "2014-01-01T05:00:00Z",
}


def _point(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in (EXAMPLE_POINT | fields).items() if name != "sketch"}


EXAMPLE_ESTIMATE: Final[dict[str, Any]] = {
    **EXAMPLE_FACTS,
    "answers": [{"what": "N14228", "value": 12.0, "low": 8.5, "high": 15.5}],
    "guarantee": {"unit": "event"},
}
EXAMPLE_SERIES: Final = {
    "sketch": "aircraft",
    "metric": "exactly.1",
    "title": "items seen only once",
    "level": 0.95,
    "pending": 0,
    "pending_seconds": 0.0,
    "points": [_point()],
}
EXAMPLES: Final[dict[str, Any]] = {
    "Sketch": EXAMPLE_SKETCH,
    "Sketches": {"sketches": [EXAMPLE_SKETCH]},
    "Windows": {
        "sketch": "aircraft",
        "windows": [
            {
                **EXAMPLE_FACTS,
                "partitions": {"published": 1, "of": 1, "missing": []},
                "revision": 0,
                "status": "complete",
                "answer": "ready",
            }
        ],
        "next": None,
    },
    "Profile": {
        **EXAMPLE_FACTS,
        "method": "likelihood",
        "max_count": 2,
        "fractions": [0.5, 0.3, 0.2],
        "counts": [500.0, 300.0, 200.0],
        "distinct": {"value": 500.0, "low": 460.0, "high": 540.0},
        "at_least": {"1": {"value": 500.0, "low": 460.0, "high": 540.0}},
        "guarantee": {"unit": "item"},
    },
    "Estimate": EXAMPLE_ESTIMATE,
    "Estimates": {"sketch": "aircraft", "windows": [EXAMPLE_ESTIMATE]},
    "Closed": {
        "sketch": "departures",
        "windows": [
            {
                **EXAMPLE_FACTS,
                "sketch": "departures",
                "complete": False,
                "closed": 2,
                "answers": [{"name": "sum", "values": [61.2, 118.0], "stderr": [5.1, 5.1]}],
                "guarantee": {"unit": "event"},
            }
        ],
    },
    "Series": EXAMPLE_SERIES,
    "SeriesOrByGroup": EXAMPLE_SERIES,
    "SeriesByGroup": {
        "sketch": "reach",
        "metric": "exactly.1",
        "level": 0.95,
        "pending": 0,
        "pending_seconds": 0.0,
        "groups": [{"group": "spring", "title": "items seen only once", "pending": 0, "points": [_point()]}],
    },
    "Difference": {
        "sketch": "aircraft",
        "metric": "distinct",
        "title": "distinct items",
        "level": 0.95,
        "independent": True,
        "difference": {"value": 5.0, "low": -110.2, "high": 120.4},
        "window": _point(),
        "against": _point(window_start="2012-12-01T05:00:00Z", window_end="2013-01-01T05:00:00Z", value=336.2),
        "assumes": "the noises of the two windows are independent",
    },
    "Total": EXAMPLE_TOTAL,
    "Ledger": {
        "keyed": True,
        "limit": None,
        "budget": {"limit": "2 per 1mo", "event": "1", "item": "1", "kept": True},
        "total": EXAMPLE_TOTAL,
        "days": {"2013-01-01": {"event": "1", "event_zcdp": "1/2", "item": "1", "item_zcdp": "1/2"}},
        "unbounded_for_items": [],
        "conflicts": 0,
        "copied": 0,
        "sketches": [
            {
                "sketch": "aircraft",
                "revision": "0",
                "unit": "item",
                "windows": "12",
                "partitions": "1",
                "one_window": "1",
                "all_windows": "12",
            }
        ],
    },
    "Incidents": {
        "incidents": [
            {"sketch": "aircraft", "window_start": "2013-01-01T05:00:00Z", "text": "... was published twice ..."}
        ]
    },
    "Status": {
        "ready": True,
        "unread": 0,
        "error": None,
        "pending": 0,
        "rate_per_second": 2.5,
        "pending_seconds": 0.0,
        "sketches": {"aircraft": {"behind_seconds": 0.0}},
    },
    "Problem": {
        "type": "about:blank",
        "title": "Not found",
        "status": 404,
        "detail": "there is no such sketch; there are: aircraft",
    },
}


def _query(name: str, schema: Schema, text: str, *, needed: bool = False, many: bool = False) -> dict[str, Any]:
    """A query parameter."""
    out: dict[str, Any] = {"name": name, "in": "query", "description": text, "required": needed, "schema": schema}
    return out | ({"explode": True, "style": "form"} if many else {})


FROM: Final = _query("from", TIME, "Windows that start at or after this time, RFC 3339 with an offset.")
TO: Final = _query("to", TIME, "Windows that end at or before this time.")
FORMAT: Final = _query("format", {"enum": ["json", "csv", "arrow"], "default": "json"}, "What to answer in.")
GROUP: Final = _query("group", {"type": "string", "example": "spring"}, "Of a sketch with groups: the one to show.")
BY: Final = _query("by", {"enum": ["group"]}, "All groups of the sketch, each with its series under `groups`.")
AGAINST_GROUP: Final = _query("against_group", TEXT, "The group of the other window; default: the same.")
METRIC: Final = _query(
    "metric",
    {
        "type": "string",
        "pattern": r"^[a-z][a-z_]{0,30}(\.[0-9]{1,8}){0,2}$",
        "example": "exactly.1",
    },
    "A number of the answer: distinct, total, mean, entropy, at_least.K, exactly.K, quantile.Q, ... of profiles; sum "
    "and count.P of gaussian sketches, answer.N of workloads, last.F and answer.F.P of convolutions, norm.P of "
    "projections.",
)
NAME: Final = {
    "name": "name",
    "in": "path",
    "required": True,
    "description": "Name of the sketch.",
    "schema": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_.-]{0,99}$", "example": "aircraft"},
}
TOP: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": 100_000}
AMONG: Final[Schema] = {"type": "integer", "minimum": 2, "maximum": MOST_AMONG}
METHOD: Final[Schema] = {"type": "string", "pattern": "^[a-z][a-z_-]{0,20}$", "example": "auto"}


def _answer(name: str, *, table: bool = False) -> dict[str, Any]:
    """Responses of a path: one schema, and problems."""
    content: dict[str, Any] = {"application/json": {"schema": _ref(name), "example": EXAMPLES[name]}}
    if table:
        content |= {
            "text/csv": {"schema": {"type": "string"}},
            "application/vnd.apache.arrow.stream": {"schema": {"type": "string", "format": "binary"}},
        }
    return {"description": "The answer.", "content": content, "headers": {"ETag": {"schema": TEXT}}}


def _get(summary: str, answer: str, *parameters: dict[str, Any], named: bool = True, table: bool = False) -> Schema:
    """One GET operation."""
    given = [NAME, *parameters] if named else list(parameters)
    if table:
        given.append(FORMAT)
    return {"summary": summary, "parameters": given, "responses": _responses(_answer(answer, table=table))}


def _responses(answer: dict[str, Any]) -> dict[str, Any]:
    problem = {
        "description": "What was found, and what to do.",
        "content": {PROBLEM: {"schema": _ref("Problem"), "example": EXAMPLES["Problem"]}},
    }
    return {"200": answer, "304": {"description": "The client has it already."}, "default": problem}


def _plain(summary: str) -> dict[str, Any]:
    text = {"description": "Lines of text.", "content": {"text/plain": {"schema": TEXT}}}
    return {"get": {"summary": summary, "parameters": [], "responses": {"200": text, "503": text}, "security": []}}


FORM: Final[Schema] = _object(
    {},
    {
        "from": TIME,
        "to": TIME,
        "method": METHOD,
        "top": TOP,
        "among": AMONG,
        "count": {"type": "integer", "minimum": 1, "maximum": 10_000},
        "quantity": {"enum": ["distance", "inner", "sq_norm", "with_vector"]},
        "format": {"enum": ["json", "csv", "arrow"]},
    }
    | {name: _list(TEXT) for name in ("item", "row", "other", "nearest", "drift", "feature", "weight", "sum")},
)


@cache
def document() -> dict[str, Any]:
    """The document."""
    one = "/v1/sketches/{name}"
    span = (FROM, TO)
    against = (
        _query("against_from", TIME, "Start of the window to compare with.", needed=True),
        _query("against_to", TIME, "End of the window to compare with.", needed=True),
    )
    needed = tuple(given | {"required": True} for given in span)
    paths: dict[str, Any] = {
        "/v1/sketches": {"get": _get("All sketches.", "Sketches", named=False)},
        one: {"get": _get("One sketch.", "Sketch")},
        f"{one}/windows": {
            "get": _get(
                "Windows with their completeness, a page at a time.",
                "Windows",
                *span,
                _query("limit", {"type": "integer", "minimum": 1, "maximum": LIMIT, "default": 100}, "Of one page."),
                _query("order", {"enum": ["desc", "asc"], "default": "desc"}, "desc: the newest first."),
                _query(
                    "cursor",
                    {"type": "string", "pattern": "^-?[0-9]{1,16}_-?[0-9]{1,16}$"},
                    "What the page before gave as `next`.",
                ),
                table=True,
            )
        },
        f"{one}/profile": {
            "get": _get(
                "The profile of one window: what `sketchstream profile -c --format json` prints.",
                "Profile",
                *span,
                GROUP,
                _query("method", {"enum": list(METHODS)}, "Estimator."),
                _query("max_count", {"type": "integer", "minimum": 0, "maximum": 10_000_000}, "Largest count."),
                _query("norm", {"enum": list(NORMS)}, "With method=circulant: norm of the correction."),
                table=True,
            )
        },
        f"{one}/estimate": {
            "get": _get(
                "The estimates of one window: what `sketchstream estimate -c --format json` prints.",
                "Estimate",
                *span,
                _query("method", METHOD, "Estimator, of those that the kind has."),
                _query("top", TOP, "The largest counts."),
                _query("among", AMONG, "Squared distances of all pairs of the first so many rows, of projections."),
                _query("sum", _list({"type": "string", "pattern": "^[0-9]*:[0-9]*$"}), "LOW:HIGH.", many=True),
                table=True,
            ),
            "post": {
                "summary": "The same, for items and rows: they come in the form, where no log on the way has them.",
                "parameters": [NAME],
                "requestBody": {
                    "required": True,
                    "content": {"application/x-www-form-urlencoded": {"schema": FORM, "example": {"item": ["N14228"]}}},
                },
                "responses": _responses(_answer("Estimate", table=True)),
            },
        },
        f"{one}/estimates": {
            "get": _get(
                "The estimates of all windows in a range: what `sketchstream estimate -c --all` prints.",
                "Estimates",
                *span,
                table=True,
            )
        },
        f"{one}/closed": {
            "get": _get("Series at positions published before their window is sealed.", "Closed", *span, table=True)
        },
        f"{one}/series": {
            "get": _get(
                "A number by window, as far as it is computed.", "SeriesOrByGroup", *span, GROUP, BY, METRIC, table=True
            )
        },
        f"{one}/difference": {
            "get": _get(
                "A number of one window minus that of another.",
                "Difference",
                *needed,
                *against,
                GROUP,
                AGAINST_GROUP,
                METRIC,
            )
        },
        "/v1/ledger": {"get": _get("What an event, or an item, can have lost so far.", "Ledger", named=False)},
        "/v1/incidents": {"get": _get("Publications of which nothing is shown.", "Incidents", named=False, table=True)},
        "/v1/status": {"get": _get("What is unread, and still to be reconstructed.", "Status", named=False)},
        "/healthz": _plain("Whether the process answers."),
        "/readyz": _plain("Whether everything published is stored."),
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "sketchstream",
            "version": VERSION,
            "summary": "Private statistics with intervals, from published sketches.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
