"""The HTTP door without its socket: real engines on a temporary folder, and requests handed to the application.

    with HttpLab(tmp_path) as lab:
        lab.redis("XADD", "mail", "*", "f", "v")            # as a client of the RESP door
        lab.workq.ask(add(1, "q"))                           # as a client of the workq door
        lab.inside.jobs, lab.inside.topics, lab.inside.queues, lab.inside.find_store()
        status, found = lab.get_json("/api/v1/topics")
        status, html, headers = lab.page("/topics")
        assert lab.act("jobs.pause", {"queue": "q"}).did == "..."

``lab.user("ann", "jobs:read:mail.*")`` gives a token; from then on whoever comes needs one.
"""

from __future__ import annotations

import asyncio
import html as html_entities
import re
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlencode, urlsplit

import msgspec

from integration.resp_wire import Wire, Word
from integration.workq_server import Client
from lamina.addresses import Address
from lamina.cli.serve_settings import to_settings
from lamina.client.connecting import Remote, connect
from lamina.config import Given, load
from lamina.log.files import Files
from lamina.log.files.real import RealFiles
from lamina.log.history import History
from lamina.log.teardown import Teardown
from lamina.server import houses
from lamina.server.app import _keep_history
from lamina.server.audit import Audit, Entry
from lamina.server.disks import Disks
from lamina.server.http.access import COOKIE
from lamina.server.http.app import Site, build
from lamina.server.http.console.app import site
from lamina.server.inside import Inside
from lamina.server.life import Life
from lamina.server.listening import Listener
from lamina.server.looking import Looking
from lamina.server.security import tokens, users
from lamina.server.security.gate import Gate
from lamina.server.security.rights import Right
from lamina.server.security.users import User
from waiting import wait_until

T = TypeVar("T")
HOST = "127.0.0.1"
_LONGEST_S = 60.0
_SMALL: Mapping[str, object] = {
    "jobs.sync": "os",
    "topics.sync": "os",
    "queues.sync": "os",
    "jobs.segment_bytes": "4096",
    "topics.segment_bytes": "4096",
    "server.reserve_bytes": "0",
}
"""What holds unless a lab is told otherwise."""


class Answer(NamedTuple):
    """Of one request."""

    status: int
    headers: dict[str, str]
    """Names in small letters; several of one name are joined by a line end."""
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Acted(NamedTuple):
    """What became of a button that was pressed, and confirmed."""

    status: int
    """200: done. Else what it was refused with."""
    plan: str
    """The text of the page that says what is going to happen; empty if it was refused."""
    did: str
    """What is told afterwards; of one that was refused, why."""


class LoopThread:
    """A loop that runs in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def begin(self, task: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(task, self.loop)

    def run(self, task: Coroutine[Any, Any, T]) -> T:
        return self.begin(task).result(_LONGEST_S)

    def close(self) -> None:
        async def end() -> None:
            left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await self.loop.shutdown_asyncgens()
            await self.loop.shutdown_default_executor()

        self.run(end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_LONGEST_S)
        self.loop.close()


class HttpLab:
    """A server whose HTTP door is called instead of connected to. ``settings``: such as ``**{"queues.quota": "3"}``."""

    def __init__(
        self,
        folder: Path,
        *,
        queues: str = "memory",
        is_loopback: bool = True,
        files: Files | None = None,
        **settings: object,
    ) -> None:
        """``queues``: memory or journal. ``files``: the disk of all engines."""
        self._files = files
        self.folder = folder / "data"
        self._given = {**_SMALL, "queues.store": queues, **settings}
        self._is_loopback = is_loopback
        self.cookies: dict[str, str] = {}
        self.host = f"{HOST}:9980"

    # -- its life ------------------------------------------------------------------------------------------------------

    def __enter__(self) -> HttpLab:
        self._opened = Teardown("the lab")
        try:
            self._open()
        except BaseException:
            self._opened.close()
            raise
        return self

    def __exit__(self, *problem: object) -> None:
        self._opened.close()

    def restart(self) -> None:
        """An orderly stop and a start on the same folder; sessions are gone."""
        self._opened.close()
        self.__enter__()

    def _open(self) -> None:
        opened = self._opened
        places = {"data": str(self.folder), "workq.listen": f"{HOST}:0", "resp.listen": f"{HOST}:0"}
        flags = [Given(key, value, key) for key, value in {**places, "http.listen": "off", **self._given}.items()]
        self.config = load(flags=flags, environment={}).raise_problem()
        settings = to_settings(self.config)
        assert settings.jobs is not None and settings.topics is not None
        self.life = Life()
        self.gate = Gate(str(self.folder))
        disks = None
        if self._files is not None:
            sizes = {"reserve_bytes": settings.reserve_bytes, "low_water_bytes": settings.low_water_bytes}
            files = self._files
            disks = Disks(self.life, str(self.folder), files=lambda: files, **sizes)
        past = History.on_disk(RealFiles(), str(self.folder), settings.history_s, settings.history_percent)
        self.inside = Inside(
            self.life, self.gate, data=str(self.folder), config=lambda: self.config, disks=disks, past=past
        )
        self._doors, self._http = LoopThread(), LoopThread()
        opened.later(self._doors.close)
        served = [
            opened.enter(houses.jobs(settings.jobs, self.inside)),
            opened.enter(houses.topics(settings.topics, self.inside)),
        ]
        self.audit = self.inside.audit = Audit(str(self.folder))
        opened.later(self.audit.close)
        _keep_history(self.inside, str(self.folder), opened)
        self.inside.looking = Looking(self.inside)  # it looks when a test says so
        listeners = [Listener(Address.parse(f"{HOST}:0")) for _ in served]
        self.ports = [int(each.shown.rpartition(":")[2]) for each in listeners]
        doors = self._doors.run(self._open_doors(served, listeners))
        opened.later(lambda: self._doors.run(self._close_doors(doors, listeners)))
        self.life.ready()
        self.site: Site = site(self.inside, is_loopback=self._is_loopback)
        self.app = build(self.life, self.site)
        opened.later(self._http.close)
        self.workq = opened.enter(Client(self.ports[0]))
        self.wire = opened.enter(Wire(self.ports[1]))
        # Only then: one that is still being let in when its listener closes is lost by asyncio, with its socket.
        wait_until(lambda: all(self.on_loop(lambda: [bool(door.connections) for door in doors])))

    async def _open_doors(self, served: list[houses.Served], listeners: list[Listener]) -> list[Any]:
        doors = []
        for each, listener in zip(served, listeners, strict=True):
            doors.append(each.open_door(100))
            await listener.open(doors[-1], None)
        self.inside.opened(asyncio.get_running_loop(), doors)
        return doors

    async def _close_doors(self, doors: list[Any], listeners: list[Listener]) -> None:
        self.inside.closed()
        for listener in listeners:
            listener.stop()
        await asyncio.gather(*(door.close() for door in doors))
        for listener in listeners:
            await listener.wait_closed()

    # -- data ----------------------------------------------------------------------------------------------------------

    def redis(self, *words: Word) -> Any:
        """What the RESP door answers."""
        return self.wire.ask(*words)

    def remote(self, user: str | None = None, token: str | None = None) -> Remote:
        """A client of both doors; close it."""
        return connect(f"lamina://{HOST}:{self.ports[1]}?workq={self.ports[0]}", user=user, token=token)

    def user(self, name: str, *rights: str, expires_ns: int | None = None) -> str:
        """Somebody who may do this, such as ``"jobs:read:mail.*"``. Gives the token; the same name again changes it."""
        token = tokens.make()
        with users.changing(str(self.folder)) as known:
            known[name] = User(name, tuple(map(Right.parse, rights)), tokens.digest(token), 1, expires_ns)
        self.read_users()
        return token

    def read_users(self) -> None:
        """As at SIGHUP."""
        found = self.gate.read()
        self.on_loop(lambda: self.gate.change(found))

    def on_loop(self, call: Callable[[], T]) -> T:
        """What ``call`` returns, called where the doors live."""

        async def run() -> T:
            return call()

        return self._doors.run(run())

    def entries(self) -> list[Entry]:
        """The audit log, the newest first."""
        return list(self.audit.newest(1000))

    # -- requests ------------------------------------------------------------------------------------------------------

    def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        with_cookies: bool = False,
    ) -> Answer:
        """Any one. ``path`` with its query. Answers that have no end are for ``stream``."""
        answer = self._http.run(self._asked(method, path, body, headers or {}, with_cookies))
        if with_cookies:
            for line in answer.headers.get("set-cookie", "").splitlines():
                for name, morsel in SimpleCookie(line).items():
                    self.cookies[name] = morsel.value
                    if morsel["max-age"] == "0":
                        del self.cookies[name]
        return answer

    def get_json(self, path: str, token: str | None = None, **query: object) -> tuple[int, Any]:
        """``path`` with or without ``/api/v1``. Status, and what the answer holds."""
        answer = self.request("GET", _api(path) + _query(path, query), headers=_bearer(token))
        return answer.status, answer.json()

    def post_json(self, path: str, body: object = None, token: str | None = None) -> tuple[int, Any]:
        """The same for what changes something."""
        data = msgspec.json.encode({} if body is None else body)
        answer = self.request("POST", _api(path), data, {**_bearer(token), "content-type": "application/json"})
        return answer.status, answer.json()

    def page(self, path: str, **query: object) -> tuple[int, str, dict[str, str]]:
        """As a browser asks, which keeps its cookies and goes where it is led: status, HTML and headers."""
        answer = self.request("GET", path + _query(path, query), headers={"accept": "text/html"}, with_cookies=True)
        if answer.status in (302, 303, 307) and "location" in answer.headers:
            return self.page(answer.headers["location"])
        return answer.status, answer.text, answer.headers

    def post_form(self, path: str, fields: Mapping[str, object], **headers: str) -> Answer:
        """As a browser sends one, of a page of ours. ``headers``: others beside, ``origin="http://elsewhere"``."""
        sent = {
            "accept": "text/html",
            "content-type": "application/x-www-form-urlencoded",
            "origin": f"http://{self.host}",
            "sec-fetch-site": "same-origin",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        return self.request("POST", path, urlencode(fields).encode(), sent, with_cookies=True)

    def login(self, token: str) -> int:
        """Have the browser log in. Gives the status; 303 is success."""
        return self.post_form("/login", {"token": token, "back": "/"}).status

    def form_token(self) -> str:
        """What the forms of the browser's session hold; a session is begun if there is none."""
        access = self.site.access
        assert access is not None
        if access._sessions.get(self.cookies.get(COOKIE, "")) is None:
            for path in ("/settings", "/jobs", "/topics", "/queues", "/store"):
                if self.page(path)[0] == 200:
                    break
        return access._sessions[self.cookies[COOKIE]].form_token

    def act(self, operation: str, fields: Mapping[str, object] | None = None, back: str = "/healthz") -> Acted:
        """Press a button: see what it is going to do, say yes, and read what was done."""
        sent = {**(fields or {}), "form_token": self.form_token(), "back": back}
        shown = self.post_form(f"/act/{operation}", sent)
        if shown.status != 200:
            return Acted(shown.status, "", text_of(shown.text))
        assert f'action="/act/{operation}?sure=1"' in shown.text
        hidden = dict(_HIDDEN.findall(shown.text.partition("?sure=1")[2]))
        done = self.post_form(
            f"/act/{operation}?sure=1", {name: html_entities.unescape(value) for name, value in hidden.items()}
        )
        if done.status != 303:
            return Acted(done.status, text_of(shown.text), text_of(done.text))
        assert done.headers["location"] == back
        return Acted(200, text_of(shown.text), unquote(self.cookies.get("lamina_told", "")))

    @contextmanager
    def stream(self, path: str, headers: Mapping[str, str] | None = None) -> Iterator[Iterator[str]]:
        """Events of a live page or a tail, each as its text, as they come; the browser goes away when it ends."""
        pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        gone = asyncio.Event()
        task = self._http.begin(self._streamed(path, headers or {}, pieces, gone))

        def events() -> Iterator[str]:
            left = ""
            while (piece := self._http.run(pieces.get())) is not None:
                left += piece.decode()
                while "\n\n" in left:
                    one, _, left = left.partition("\n\n")
                    yield one

        try:
            yield events()
        finally:
            self._http.loop.call_soon_threadsafe(gone.set)
            task.result(_LONGEST_S)

    # -- the application -----------------------------------------------------------------------------------------------

    def _scope(self, method: str, path: str, headers: Mapping[str, str], with_cookies: bool) -> dict[str, Any]:
        where = urlsplit(path)
        sent = {"host": self.host, **headers}
        if with_cookies and self.cookies:
            sent["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(where.path),
            "raw_path": where.path.encode(),
            "query_string": where.query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in sent.items()],
            "client": (HOST, 50_000),
            "server": (HOST, 9980),
            "state": {},
        }

    async def _asked(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], with_cookies: bool
    ) -> Answer:
        started: dict[str, Any] = {}
        found = bytearray()
        sent = False
        done = asyncio.Event()

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if not sent:
                sent = True
                return {"type": "http.request", "body": body, "more_body": False}
            await done.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                started.update(message)
            else:
                found.extend(message.get("body", b""))
                if not message.get("more_body"):
                    done.set()

        try:
            await self.app(self._scope(method, path, headers, with_cookies), receive, send)
        except Exception:
            if not started:  # starlette answers 500, then raises for whoever runs it
                raise
        shown: dict[str, str] = {}
        for name, value in started["headers"]:
            key = name.decode().lower()
            shown[key] = f"{shown[key]}\n{value.decode('latin-1')}" if key in shown else value.decode("latin-1")
        return Answer(started["status"], shown, bytes(found))

    async def _streamed(
        self, path: str, headers: Mapping[str, str], pieces: asyncio.Queue[bytes | None], gone: asyncio.Event
    ) -> None:
        first = True

        async def receive() -> dict[str, Any]:
            nonlocal first
            if first:
                first = False
                return {"type": "http.request", "body": b"", "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                assert message["status"] == 200, message
            elif message.get("body"):
                pieces.put_nowait(message["body"])

        try:
            await self.app(self._scope("GET", path, headers, True), receive, send)
        finally:
            pieces.put_nowait(None)


_HIDDEN = re.compile(r'<input type="hidden" name="([^"]*)" value="([^"]*)">')
_TAG = re.compile(r"<[^>]*>")


def text_of(page: str) -> str:
    """What a page says, without its tags, on one line: the content, not the menu."""
    content = page.partition('<main id="content"')[2].partition(">")[2].partition("</main>")[0] or page
    return " ".join(html_entities.unescape(_TAG.sub(" ", content)).split())


def _api(path: str) -> str:
    return path if path.startswith("/api/") else "/api/v1" + path


def _query(path: str, query: Mapping[str, object]) -> str:
    return ("&" if "?" in path else "?") + urlencode(query) if query else ""


def _bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"authorization": f"Bearer {token}"}
