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

    from sketchstream.serve.page.entrance import Entrance
    from sketchstream.serve.page.views import Views

    views, entrance = Views(service), Entrance(access)
    one = "/sketches/{name}"
    return [
        Route("/", views.sketches),
        Route(one, views.sketch),
        Route(f"{one}/window", views.window),
        Route(f"{one}/window/{{picture}}.{{form}}", views.window_picture),
        Route(f"{one}/over-time/{{picture}}.{{form}}", views.series_picture),
        Route(f"{one}/open/{{picture}}.{{form}}", views.open_picture),
        Route(f"{one}/overlap", views.overlap),
        Route(f"{one}/overlap/{{picture}}.{{form}}", views.overlap_picture),
        Route(f"{one}/compare", views.compare),
        Route(f"{one}/compare/{{picture}}.{{form}}", views.compare_picture),
        Route("/ledger", views.ledger),
        Route("/incidents", views.incidents),
        Route("/help", views.help),
        Route("/login", entrance.form),
        Route("/login", entrance.enter, methods=["POST"]),
        Route("/login/leave", entrance.leave, methods=["POST"]),
        Route("/static/{asset}", views.asset),
    ]
