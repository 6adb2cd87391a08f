"""Templates and static files of the page, and the headers that fence it in.

In: a template's name and its values. Out: responses. Touches: templates and static files, reading, once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
from starlette.responses import Response

from sketchstream.pictures import report
from sketchstream.pictures.charts import Point
from sketchstream.serve.page import links

if TYPE_CHECKING:
    from jinja2 import Environment

POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""What browsers may load for the page: its own style sheet, script and icon, and nothing inline."""
TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
OPTIONAL: Final = (
    "chain", "compare", "failure", "group", "groups", "guarantee", "headline", "here", "intervals", "largest",
    "lead", "lines", "links", "metrics", "note", "notices", "overlap", "picture", "pictures", "refresh", "root",
    "sections", "series", "sides", "table", "tables", "trail", "waiting",
)  # fmt: skip
"""Values that templates show if they have them; all others must be given."""
STATIC: Final = Path(__file__).parent / "static"


def html(template: str, status: int = 200, /, **values: Any) -> Response:
    """A page.

    Args:
        template: file of the template.
        status: HTTP status code.
        values: values of the template.
    """
    context = {
        **dict.fromkeys(OPTIONAL, ""),
        "assets": {name: address for address, (name, _) in assets().items()},
        "navigation": (("Sketches", "/"), ("Ledger", "/ledger"), ("Incidents", "/incidents"), ("Help", "/help")),
    } | values
    text = environment().get_template(template).render(**context)
    return Response(text, status, {"Content-Security-Policy": POLICY}, "text/html; charset=utf-8")


@cache
def environment() -> Environment:
    """The page's templates, and those that it shares with reports; everything that they insert is escaped."""
    page = "sketchstream.serve.page"
    templates = report.environment((page, "templates"), (page, "static"))
    templates.filters["points"] = _points
    templates.filters["file_name"] = links.file_name
    templates.filters["pairs"] = lambda names: [(name, name) for name in names]
    return templates


@cache
def assets() -> dict[str, tuple[str, bytes]]:
    """Static files by the name in their address, which changes with their content: name, content."""
    files = {}
    for path in sorted(STATIC.iterdir()):
        if path.suffix not in TYPES:
            continue
        body = path.read_bytes()
        if path.suffix == ".css":  # the style sheet takes its colors from reports
            body = environment().get_template(path.name).render().encode()
        digest = hashlib.blake2b(body, digest_size=6).hexdigest()
        files[f"{path.stem}.{digest}{path.suffix}"] = (path.name, body)
    return files


def asset(address: str) -> Response | None:
    """A static file; None if there is none at this address."""
    file = assets().get(address)
    if file is None:
        return None
    name, body = file
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(body, 200, headers, f"{TYPES[Path(name).suffix]}; charset=utf-8")


def _points(points: Sequence[Point]) -> str:
    """The points of a chart for its script."""
    return orjson.dumps([[point.x, point.y, point.text] for point in points]).decode()
