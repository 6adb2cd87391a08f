"""Chromium for tests of pages: what it loaded, what it refused, what accessibility rules say.

In: addresses. Out: pages, findings. Touches: a process of Chromium.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

ONLY_VIOLATIONS: Final = {"resultTypes": ["violations"]}
"""Names of elements that pass are not made: on a page of thousands of cells they take most of the time."""


def chromium() -> str:
    """The browser; a test that needs it never passes without it."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "no chromium: bring it with `make chromium`"
    return found


@contextlib.contextmanager
def started() -> Iterator[Browser]:
    """One browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Visit:
    """A page as somebody looks at it, and what happened behind it.

    Args:
        page: page of the browser.
        base: the only address that it may ask.
        asked: addresses that it asked for.
        complaints: what the console said: refusals of the policy, errors of the script.
    """

    page: Page
    base: str
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def open(self, address: str) -> Page:
        """A page of the site, with everything that it loads."""
        self.page.goto(self.base + address, wait_until="load")
        return self.page

    def strangers(self) -> list[str]:
        """Addresses of other hosts that were asked for."""
        return [one for one in self.asked if not one.startswith(self.base)]

    def violations(self) -> list[str]:
        """Rules of accessibility that the page breaks, with the elements that do."""
        found = Axe().run(self.page, options=ONLY_VIOLATIONS).response["violations"]
        return [f"{one['id']}: {[node['target'] for node in one['nodes']]}" for one in found]

    def overflow(self) -> int:
        """Pixels by which the page is wider than its window."""
        found: int = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return found


@contextlib.contextmanager
def visit(browser: Browser, base: str, width: int = 1280, scheme: str = "light", **more: Any) -> Iterator[Visit]:
    """A new visitor of a site.

    Args:
        browser: a started one.
        base: address of the site, without a slash at its end.
        width: width of the window, pixels.
        scheme: "light" or "dark".
        more: further arguments of the browser's context.
    """
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **more)  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(60_000)
    found = Visit(page, base)
    page.on("request", lambda request: found.asked.append(request.url))
    page.on("console", lambda message: found.complaints.append(message.text))
    page.on("pageerror", lambda error: found.complaints.append(str(error)))
    try:
        yield found
    finally:
        context.close()
