"""The page that an analyst opens.

In: a `Service`. Out: routes. Touches: its own templates and static files, reading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from sketchstream.serve.clients.access import Access
    from sketchstream.serve.service import Service


def routes(service: Service, access: Access) -> list[BaseRoute]:
    """The routes of the page.

    Args:
        service: answers.
        access: access rules.
    """
    from starlette.routing import Route

    from sketchstream.serve.page.login import LoginPages
    from sketchstream.serve.page.views import Views

    views, login = Views(service), LoginPages(access)
    sketch = "/sketches/{name}"
    return [
        Route("/", views.sketches),
        Route(sketch, views.sketch),
        Route(f"{sketch}/window", views.window),
        Route(f"{sketch}/window/{{picture}}.{{form}}", views.window_picture),
        Route(f"{sketch}/over-time/{{picture}}.{{form}}", views.series_picture),
        Route(f"{sketch}/open/{{picture}}.{{form}}", views.open_picture),
        Route(f"{sketch}/overlap", views.overlap),
        Route(f"{sketch}/overlap/{{picture}}.{{form}}", views.overlap_picture),
        Route(f"{sketch}/compare", views.compare),
        Route(f"{sketch}/compare/{{picture}}.{{form}}", views.compare_picture),
        Route("/ledger", views.ledger),
        Route("/incidents", views.incidents),
        Route("/help", views.help),
        Route("/login", login.form),
        Route("/login", login.enter, methods=["POST"]),
        Route("/login/leave", login.leave, methods=["POST"]),
        Route("/static/{asset}", views.asset),
    ]
