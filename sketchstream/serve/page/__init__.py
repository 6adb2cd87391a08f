"""The page that an analyst opens.

In: a `Service`. Out: routes. Touches: its own templates and static files, reading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from sketchstream.serve.service import Service


def routes(service: Service) -> list[BaseRoute]:
    """The routes of the page.

    Args:
        service: answers.
    """
    from starlette.routing import Route

    from sketchstream.serve.page.views import Views

    views = Views(service)
    one = "/sketches/{name}"
    return [
        Route("/", views.sketches),
        Route(one, views.sketch),
        Route(f"{one}/window", views.window),
        Route(f"{one}/window/{{picture}}.svg", views.window_picture),
        Route(f"{one}/series.svg", views.series_picture),
        Route("/ledger", views.ledger),
        Route("/incidents", views.incidents),
        Route("/help", views.help),
        Route("/static/{asset}", views.asset),
    ]
