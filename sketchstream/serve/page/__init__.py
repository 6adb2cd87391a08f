"""The page that an analyst opens.

In: a `Service`. Out: routes. Touches: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from sketchstream.serve.service import Service


def routes(service: Service) -> list[BaseRoute]:
    """The routes of the page."""
    del service
    return []
