"""``lamina serve`` with all its doors as a process, filled with something of everything, and a plain HTTP client."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode

from integration.resp_wire import Wire
from integration.secured_server import SecuredServer
from integration.workq_server import HOST, LAMINA
from lamina.client.connecting import Remote, connect
from lamina.engines.queues import ids
from lamina.errors import BadOption
from lamina.pipeline.recording import Recording

PATIENCE_S = 60.0
MARKUP = '<script>window.__pwned = 1</script><img src="/nothing" onerror="window.__pwned = 2"><b>&amp; "bold"</b>'
"""A payload that a page must show as it is."""
STRANGE = "a/b <i>&%? \u00fc"
"""A name that is hard to put into a page or an address."""
BIG = 1 << 20
_SEGMENT = 16 * 1024


class Got(NamedTuple):
    """An answer."""

    status: int
    headers: Mapping[str, str]
    """Names in small letters."""
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


class ConsoleServer(SecuredServer):
    """All doors, on ports that stay the same over a restart of the same object."""

    def __init__(self, folder: Path, *flags: object, host: str = HOST) -> None:
        super().__init__(folder, *flags, host=host)
        self.folder = folder
        self._ports = {door: _free_port() for door in ("resp", "workq", "http")}
        words = ["serve", "--data", folder, "--segment-bytes", _SEGMENT, "--reserve-bytes", 0]
        for door, port in self._ports.items():
            words += [f"--{door}", f"{host}:{port}"]
        self._words = [str(LAMINA), *map(str, words), *map(str, flags)]

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    @property
    def http(self) -> int:
        """The port of the HTTP door."""
        return self._ports["http"]

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.http}"

    def remote(self, user: str | None = None, token: str | None = None) -> Remote:
        """A client of the other doors."""
        where = f"lamina://{HOST}:{self._ports['resp']}?workq={self._ports['workq']}"
        return connect(where, user=user, token=token)

    def wire(self) -> Wire:
        return Wire(self._ports["resp"])

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None, *, host: str = HOST
    ) -> Got:
        """One request over a connection of its own."""
        with self.connection(host) as line:
            line.request(method, path, body or None, dict(headers or {}))
            found = line.getresponse()
            return Got(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())

    @contextmanager
    def connection(self, host: str = HOST) -> Iterator[HTTPConnection]:
        line = HTTPConnection(host, self.http, timeout=PATIENCE_S)
        try:
            yield line
        finally:
            line.close()

    def get(self, path: str, token: str | None = None, **query: object) -> Got:
        """A GET of the API, or of anything."""
        return self.ask("GET", path + (f"?{urlencode(query)}" if query else ""), headers=bearer(token))

    def post(self, path: str, body: object, token: str | None = None) -> Got:
        """A POST of JSON."""
        sent = {"content-type": "application/json", **bearer(token)}
        return self.ask("POST", path, json.dumps(body).encode(), sent)


def until(is_so: Callable[[], bool], what: str) -> None:
    """Wait for it."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"authorization": f"Bearer {token}"}


def _free_port() -> int:
    with socket.socket() as each:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        each.bind((HOST, 0))
        return int(each.getsockname()[1])


class Browser:
    """What a browser is for a server: it keeps cookies, and sends forms with what it found in them."""

    def __init__(self, server: ConsoleServer) -> None:
        self.server = server
        self.cookies: dict[str, str] = {}

    def get(self, path: str) -> Got:
        return self._keep(self.server.ask("GET", path, headers={"accept": "text/html", **self._cookie()}))

    def post(self, path: str, fields: Mapping[str, object], **headers: str) -> Got:
        sent = {
            "accept": "text/html",
            "content-type": "application/x-www-form-urlencoded",
            "origin": self.server.url,
            "sec-fetch-site": "same-origin",
            **self._cookie(),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        kept = {name: value for name, value in sent.items() if value}
        return self._keep(self.server.ask("POST", path, urlencode(fields).encode(), kept))

    def login(self, token: str) -> Got:
        return self.post("/login", {"token": token, "back": "/"})

    def _cookie(self) -> dict[str, str]:
        return {"cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())} if self.cookies else {}

    def _keep(self, got: Got) -> Got:
        for name, value in re.findall(r"(lamina_\w+)=([^;,]*);", got.headers.get("set-cookie", "")):
            self.cookies[name] = value
        return got


@dataclass
class Filled:
    """Names of what is there."""

    ready: str = ""
    scheduled: str = ""
    working: str = ""
    done: str = ""
    """Ids of jobs of the queue ``mail``."""
    dead: list[str] = field(default_factory=list)
    """The same, of jobs that failed for good."""
    pending: list[str] = field(default_factory=list)
    """Ids of messages of ``orders`` that the group ``packers`` has not acknowledged."""
    handles: list[str] = field(default_factory=list)
    """Of queues with messages."""
    secrets: list[str] = field(default_factory=list)
    """Ids of these queues, which nobody may ever see."""


def fill(lm: Remote) -> Filled:
    """Something of every kind: jobs in all states, topics with groups, queues with messages, a compacted store,
    payloads of markup, of bytes that are no text, and of a mebibyte."""
    filled = Filled()
    _fill_jobs(lm, filled)
    _fill_topics(lm, filled)
    _fill_queues(lm, filled)
    _fill_store(lm)
    return filled


class _Report:
    def as_dict(self) -> dict[str, object]:
        return {"dropped": 1234, "kept": 40, "is_dry_run": False}


def record_runs(data: Path) -> None:
    """As jobs of the pipeline leave them: one that was done, one that failed."""
    with Recording(str(data), "clean", arguments={"keep": "7d"}) as run:
        run.progress(1, 2)
        run.done(_Report())
    with suppress(BadOption), Recording(str(data), "export", arguments={"to": MARKUP}):
        raise BadOption(MARKUP, hint="none")


def _fill_jobs(lm: Remote, filled: Filled) -> None:
    jobs = lm.jobs
    for number in range(20):
        jobs.add("reports.daily", b'{"day": %d}' % number, priority=number % 3)
    filled.done = jobs.add("mail", b"to be sent", ttr=3600)
    (one,) = jobs.lease_many("mail", most=1)
    one.complete(b"sent as 4711")
    for number in range(12):
        for queue in ("mail", "letters", "returned"):
            jobs.add(queue, MARKUP.encode() if number == 3 else b"letter %d" % number, ttr=3600)
            (one,) = jobs.lease_many(queue, most=1)
            reason = b"smtp: timed out after 30 s" if number % 3 else MARKUP.encode()
            one.bury(reason if number != 5 else b"550 no such person: user%d@example.org" % number)
            if queue == "mail":
                filled.dead.append(one.id)
    filled.working = jobs.add("mail", b"being sent", ttr=3600)
    assert [one.id for one in jobs.lease_many("mail", most=1)] == [filled.working]
    filled.ready = jobs.add("mail", MARKUP.encode(), priority=5)
    jobs.add("mail", bytes(range(256)))
    jobs.add("mail", b"x" * BIG)
    filled.scheduled = jobs.add("mail", b"tomorrow", delay=86_400)
    for number in range(30):
        jobs.add("paused", b"%d" % number)
    jobs.pause("paused")


def _fill_topics(lm: Remote, filled: Filled) -> None:
    orders = lm.topic("orders")
    orders.publish_many({"item": f"tea {number}", "count": str(number), "note": "x" * 80} for number in range(400))
    orders.publish({"item": MARKUP, "count": "1"})
    orders.publish({b"\xff\xfe": bytes(range(256))})
    for group, most in (("packers", 50), ("billing <b>", 380), ("auditors", 10)):
        with orders.subscribe(group, since="start", wait=0, consumer="worker-1 <i>") as messages:
            for number, message in enumerate(messages):
                if number >= most:
                    break
                if number % 10:
                    message.ack()
                elif group == "packers":
                    filled.pending.append(message.id)
    lm.topic(STRANGE).publish({"body": MARKUP})
    lm.topic("logs.web").publish_many({"line": f"GET /{number}"} for number in range(50))
    lm.topic("big").publish({"body": b"y" * BIG})


def _fill_queues(lm: Remote, filled: Filled) -> None:
    for number in range(8):
        made = lm.queues.create()
        filled.secrets += made
        id = ids.parse(made.rid.encode())
        assert id is not None
        filled.handles.append(ids.handle(id))
        for each in range(number + 2):
            lm.queue(made.sid).send(MARKUP.encode() if each == 1 else b"message %d" % each)
        if number == 4:
            lm.queue(made.rid).suspend()


def _fill_store(lm: Remote) -> None:
    store = lm.store
    for round in range(3):
        for number in range(40):
            store.put(1, b"stock/%03d" % number, b"%d of round %d" % (number, round))
        store.put(2, STRANGE.encode(), MARKUP.encode())
        store.put(2, b"big", b"z" * (BIG // 4))
        store.remove(1, b"stock/007")
        store.switch_epoch()
        if round < 2:
            store.compact()
            with suppress(Exception):
                store.clean_up()
