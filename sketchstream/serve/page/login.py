"""Signing in with a browser: a form takes a token, and a cookie keeps a session in its place.

In: a token in a form. Out: a cookie that scripts cannot read and other sites cannot send. Touches: nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from starlette.responses import RedirectResponse, Response

from sketchstream.serve.clients.access import COOKIE, SESSION_S
from sketchstream.serve.page import rendering

if TYPE_CHECKING:
    from starlette.requests import Request

    from sketchstream.serve.clients.access import Access

MAX_FORM_BYTES: Final = 16_384
"""Most bytes of a form."""


class LoginPages:
    """The pages that sign a browser in and out.

    Args:
        access: access rules.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    async def form(self, request: Request) -> Response:
        """The form for a token."""
        return self._page(request, request.query_params.get("next", "/"))

    async def enter(self, request: Request) -> Response:
        """Take a token from the form, and give a cookie for it; an unknown token gets the form again."""
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > MAX_FORM_BYTES:
                return self._page(request, "/", 413, "The form is too large.")
        fields = parse_qs(body.decode("ascii", "replace"))
        token, target = fields.get("token", [""])[0].strip(), _own_address(fields.get("next", ["/"])[0])
        address, guesses = request.state.address, self._access.guesses
        wait = guesses.wait_s(address)
        if wait:
            late = f"Too many wrong tokens came from your address. Try again in {math.ceil(wait)} seconds."
            return self._page(request, target, 429, late)
        known_token = self._access.match(token)
        if known_token is None:
            guesses.wrong(address)
            return self._page(request, target, 401, "This token is not known here. Ask the operator for one.")
        answer = RedirectResponse(target, 303)
        secure = request.url.scheme == "https"
        session = self._access.session(known_token)
        answer.set_cookie(COOKIE, session, SESSION_S, httponly=True, samesite="strict", secure=secure, path="/")
        return answer

    async def leave(self, request: Request) -> Response:
        """Delete the cookie of the session."""
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict", path="/")
        return answer

    def _page(self, request: Request, target: str, status: int = 200, alarm: str = "") -> Response:
        """The form for a token, with an alarm if there is one."""
        return rendering.html(
            "login.html",
            status,
            title="Sign in",
            needed=self._access.needed,
            inside=self._access.resume(request.cookies.get(COOKIE, "")) is not None,
            wanted=_own_address(target),
            alarm=alarm,
        )


def _own_address(address: str) -> str:
    """An address of this service; the first page in place of one that leads elsewhere."""
    good = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if good else "/"
