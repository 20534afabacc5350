"""Who may come in, and what pages of others cannot make a browser do."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from browser.conftest import Open, Place
from browser.tabs import Tab
from browser.test_actions import audited
from integration.console_samples import SAMPLES, address_of
from integration.console_server import ConsoleServer, Filled
from integration.workq_server import HOST
from lamina.server.http.ops import all_operations
from lamina.server.security import tokens, users
from lamina.server.security.rights import Right
from lamina.server.security.users import User

POST = """async ([url, kind, mode]) => {
  const asked = { method: "POST", mode, body: "{}", headers: { "content-type": kind } };
  try { return (await fetch(url, asked)).status; } catch (error) { return "refused"; }
}"""
FRAME = """url => new Promise(done => {
  const frame = document.createElement("iframe");
  frame.onload = () => {
    try { done(frame.contentDocument === null); } catch { done(true); }
  };
  frame.src = url;
  document.body.append(frame);
})"""


@contextmanager
def elsewhere(html: str) -> Iterator[str]:
    """Another server, with this one page. Gives its address."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(html.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer((HOST, 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def _form(action: str, fields: dict[str, object]) -> str:
    inputs = "".join(f'<input name="{name}" value="{value}">' for name, value in fields.items())
    return f'<form method="post" action="{action}">{inputs}</form><script>document.forms[0].submit()</script>'


def test_a_page_of_another_server_cannot_press_a_button(tab_of: Open, place: Place) -> None:
    before = audited(place)
    fields = {**SAMPLES["jobs.pause"](place.filled), "form_token": "guessed", "back": "/"}
    for path in ("/act/jobs.pause", "/act/jobs.pause?sure=1"):
        tab = tab_of(place)
        tab.allow("status of 403|favicon")
        tab.go("/jobs")  # it has a session here
        with elsewhere(_form(place.server.url + path, fields)) as url:
            tab.page.goto(url, wait_until="commit")
            tab.page.wait_for_url(f"{place.server.url}/act/**")
            assert "forged" in tab.page.inner_text("main")
        tab.problems.clear()  # the other server is another host
    assert audited(place) == before


def test_a_script_of_another_server_cannot_ask_or_change(tab_of: Open, place: Place) -> None:
    before = audited(place)
    path, body = address_of(all_operations()["jobs.pause"], SAMPLES["jobs.pause"](place.filled))
    with elsewhere("<p>nothing</p>") as url:
        tab = tab_of(place)
        tab.page.goto(url)
        for kind in ("text/plain", "application/json"):
            for mode in ("cors", "no-cors"):
                got = tab.page.evaluate(
                    POST,
                    [place.server.url + path, kind, mode],
                )
                assert got in ("refused", 0, 403, 415), (kind, mode)
        read = tab.page.evaluate(
            "async url => { try { return await (await fetch(url)).text(); } catch (error) { return 'refused'; } }",
            f"{place.server.url}/api/v1/settings",
        )
        assert read == "refused"
        framed = tab.page.evaluate(
            FRAME,
            f"{place.server.url}/settings",
        )
        assert framed is True, "the page is in no frame that could be read"
        tab.problems.clear()
    assert body == {} and audited(place) == before


def test_logging_in_and_out(tab_of: Open, guarded: Place) -> None:
    tab = tab_of(guarded)
    tab.allow("status of 401")
    tab.go("/audit?limit=7")
    assert tab.at.startswith("/login?back=")
    tab.login("wrong")
    assert "Nobody who may come in has this token" in tab.content
    tab.login("late")
    assert "Nobody who may come in has this token" in tab.content, "its time is over"
    tab.login("ann")
    assert tab.at == "/audit?limit=7", "where one wanted to go"
    assert "ann" in tab.page.inner_text("header")
    with tab.page.expect_navigation():
        tab.page.click("text=Log out")
    assert tab.at == "/login"
    tab.page.go_back()
    tab.go("/settings")
    assert tab.at.startswith("/login"), "the session is over"


def test_one_sees_what_one_may(tab_of: Open, guarded: Place) -> None:
    tab = tab_of(guarded)
    tab.allow("status of 403")
    tab.go("/jobs")
    tab.login("mailer")
    assert set(tab.page.inner_text("nav").split()) == {"Log", "Jobs"}
    assert "mail" in tab.content and "reports.daily" not in tab.content and "letters" not in tab.content
    for path in ("/settings", "/topics", "/audit"):
        assert tab.go(path) == 403
        assert "ailer may not" in tab.content  # the page begins it with a capital


def test_a_page_whose_token_expires_leads_to_the_login(tab_of: Open, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    soon = User("brief", (Right.parse("*:read"),), tokens.digest("brief"), 1, time.time_ns() + 5 * 10**9)
    users.save(str(folder), {"brief": soon})
    with ConsoleServer(folder) as server:
        tab: Tab = tab_of(Place(server, Filled()))
        tab.go("/settings")
        tab.login("brief")
        assert tab.at == "/settings"
        tab.page.wait_for_url("**/login?back=**")
        tab.page.goto("about:blank")  # before the server is gone
