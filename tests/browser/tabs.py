"""A tab of Chromium that writes down what must not happen: errors of scripts, broken policies, requests elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Locator, Request

PATIENCE_MS = 30_000
_UNFOLD = "at => { for (; at; at = at.parentElement) if (at.tagName === 'DETAILS') at.open = true; }"
_FLAGS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")


@contextmanager
def launched(program: str) -> Iterator[Browser]:
    """Chromium, gone when the block ends. Raises: playwright's Error if it does not start."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*_FLAGS])
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """One, with cookies of its own. ``options`` as of a Playwright context, such as ``color_scheme="dark"``."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.url = url
        self._context = browser.new_context(base_url=url, **options)
        self._context.set_default_timeout(PATIENCE_MS)
        self.page = self._context.new_page()
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.allowed = re.compile("(?!)")
        """What may be told on the console: an answer 403 is told there as an error."""
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.problems.append(f"script: {error}"))
        self.page.on("request", self._asked)
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))

    def allow(self, pattern: str) -> None:
        self.allowed = re.compile(pattern)

    def close(self) -> list[str]:
        """What went wrong."""
        if not self.page.is_closed() and self.page.url.startswith("http") and self.page.evaluate("window.__pwned"):
            self.problems.append("a payload was run as a script")
        self._context.close()
        return self.problems

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not self.allowed.search(message.text):
            self.problems.append(f"console: {message.text} ({message.location.get('url', '')})")

    def _asked(self, request: Request) -> None:
        where = urlsplit(request.url)
        self.requests.append(where.path + (f"?{where.query}" if where.query else ""))
        if where.scheme in ("http", "https", "ws", "wss") and f"{where.scheme}://{where.netloc}" != self.url:
            self.problems.append(f"a request to {request.url}")
        if where.path == "/nothing":
            self.problems.append("the picture of a payload was asked for")

    # -- looking -----------------------------------------------------------------------------------------------------

    def go(self, path: str) -> int:
        """The status."""
        answer = self.page.goto(path, wait_until="load")
        assert answer is not None
        return answer.status

    @property
    def content(self) -> str:
        return self.page.inner_text("main")

    @property
    def at(self) -> str:
        """Where it is: path and query."""
        where = urlsplit(self.page.url)
        return where.path + (f"?{where.query}" if where.query else "")

    def login(self, token: str) -> None:
        self.page.fill("input[name=token]", token)
        self.page.click("text=Log in >> visible=true >> nth=-1")

    def until(self, script: str, argument: object = None) -> None:
        """Wait until ``script`` is true in the page."""
        self.page.wait_for_function(script, arg=argument, timeout=PATIENCE_MS)

    # -- acting ------------------------------------------------------------------------------------------------------

    def form(self, operation: str, hidden: Mapping[str, object] | None = None) -> Locator:
        """The form of an action that is on the page, with these values in it; what it is folded into is opened."""
        wanted = f'form[action="/act/{operation}"]'
        for name, value in (hidden or {}).items():
            wanted += f':has([name="{name}"][value="{value}"])'
        form = self.page.locator(wanted).first
        form.wait_for(state="attached")
        form.evaluate(
            "form => { for (let at = form; at; at = at.parentElement) if (at.tagName === 'DETAILS') at.open = true; }"
        )
        return form

    def fill(self, form: Locator, fields: Mapping[str, object]) -> None:
        """What a person can type or choose there."""
        for name, value in fields.items():
            field = form.locator(f'[name="{name}"]:not([type=hidden])').first
            if field.count() == 0:
                continue
            kind = field.evaluate("field => field.type")
            if kind in ("checkbox", "radio"):
                field.set_checked(bool(value))
            elif kind == "select-one":
                field.select_option(str(value))
            else:
                field.fill(str(value))

    def press(self, operation: str, fields: Mapping[str, object], hidden: Mapping[str, object] | None = None) -> str:
        """The button of an action: gives the text of the page that says what is going to happen."""
        form = self.form(operation, hidden)
        self.fill(form, fields)
        with self.page.expect_navigation():
            form.locator("button:visible").last.click()
        return self.page.inner_text("main")

    def confirm(self, where: str = "p.told") -> str:
        """Say yes; gives what is told then."""
        with self.page.expect_navigation():
            self.page.click("form.confirm button")
        return self.page.inner_text(where)
