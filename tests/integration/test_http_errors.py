"""Every error that the API documents can be met: each code is provoked, with the status that the document says."""

from __future__ import annotations

import errno
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

import pytest

from http_lab import HttpLab
from integration.console_server import Filled, record_runs
from integration.http_mistakes import Answered, Met, documented, filled_server, spoil
from lamina import runs
from lamina.server.http import api
from lamina.server.http.asking import MOST_BODY
from lamina.server.http.ops import all_operations
from lamina.server.http.ops.logs_desk import desk_of
from lamina.server.http.ops.logs_works import Running
from lamina.server.security.throttle import BURST, LONGEST_S, RATE


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Met]:
    """For mistakes that leave it as it was."""
    with filled_server(tmp_path_factory.mktemp("common")) as met:
        yield met


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Met]:
    """For one that does not: with little in it."""
    settings: dict[str, Any] = {"jobs.sync": "always"}
    with HttpLab(tmp_path, **settings) as lab:
        with lab.remote() as lm:
            lm.jobs.add("mail", b"letter")
            lm.topic("orders").publish_many({"note": "x" * 80} for _ in range(200))
            lm.store.put(1, b"stock/001", b"41")
        yield Met(lab, Filled())


def _not_allowed(met: Met) -> Answered:
    return met.do("jobs.pause", met.lab.user("reader", "*:read"))


def _unauthorized(met: Met) -> Answered:
    met.lab.user("reader", "*:read")
    return met.do("server.audit")


def _not_ready(met: Met) -> Answered:
    met.lab.inside.audit = None
    return met.do("jobs.pause")


def _wrong_host(met: Met) -> Answered:
    met.lab.host = "elsewhere.example"
    return met.do("server.audit")


def _too_many_logins(met: Met) -> Answered:
    met.lab.user("reader", "*:read")
    for _ in range(BURST + int(RATE * LONGEST_S) + 1):
        met.lab.inside.gate.delay(b"a guess", "127.0.0.1")
    return met.do("server.audit", "a guess")


def _error(met: Met) -> Answered:
    """A mistake of ours, planted."""

    async def breaks(place: object, asked: object) -> None:
        raise RuntimeError("planted")

    broken = replace(all_operations()["server.audit"], do=breaks)
    (route,) = (one for one in api.routes(_serving(met), [broken]) if one.path.endswith("/audit"))
    met.lab.app.router.routes.insert(0, route)
    return met.do("server.audit")


def _serving(met: Met) -> Any:
    from lamina.server.http.serving import Serving

    assert met.lab.site.access is not None
    return Serving(met.lab.inside, met.lab.site.access)


def _disk_full(met: Met) -> Answered:
    with met.disk("topics", errno.ENOSPC):
        return met.do("topics.publish")


def _disk_error(met: Met) -> Answered:
    with met.disk("topics", errno.EIO):
        return met.do("topics.publish")


def _log_failed(met: Met) -> Answered:
    """Nobody knows what is on a disk that could not be synced."""
    with met.disk("jobs", errno.EIO, "sync"):
        met.do("jobs.pause")
    return met.do("jobs.add")


def _corruption(met: Met) -> Answered:
    with met.stopped():
        spoil(min((met.lab.folder / "topics" / "orders").glob("*.dat")))
    return met.do("topics.entries", name="orders", limit=1000)


def _busy(met: Met) -> Answered:
    """Somebody verifies the log already."""
    over = threading.Event()
    running = Running("topics/big", "verify", "somebody")
    desk_of(met.lab.inside).works.begin(running, lambda work: str(over.wait(60)))
    try:
        return met.do("logs.verify", name="topics/big")
    finally:
        over.set()


def _log_closed(met: Met) -> Answered:
    store = met.lab.inside.find_store()
    assert store is not None
    store.close()
    return met.do("store.put")


def _log_locked(met: Met) -> Answered:
    """Another process has the topic."""
    met.lab.restart()
    with open(met.lab.folder / "topics/orders/lamina.lock", "a") as lock:
        flock(lock, LOCK_EX)
        return met.do("topics.publish")


def _wrong_format(met: Met) -> Answered:
    """A file of something else."""
    with met.stopped():
        max((met.lab.folder / "topics/orders").glob("*.dat")).write_bytes(b"PK" + bytes(100))
    return met.do("topics.publish")


def _stopped(met: Met) -> Answered:
    """It is closed."""
    _log_closed(met)
    return met.do("store.compact", wait=True)


def _storage(met: Met) -> Answered:
    record_runs(met.lab.folder)
    Path(runs.folder_of(str(met.lab.folder)), met.run + runs.RECORD).write_text("{")
    return met.do("pipeline.run")


COMMON: dict[str, Callable[[Met], Answered]] = {
    "bad_entry": lambda met: met.do("store.scan", storage=1, as_of="2100-01-01T00:00:00Z"),
    "bad_job": lambda met: met.do("jobs.redrive", id="no id"),
    "bad_name": lambda met: met.do("topics.publish", name="hex:zz"),
    "bad_option": lambda met: met.do("server.audit", limit=0),
    "bad_topic": lambda met: met.do("topics.publish", id="0-0"),
    "busy": _busy,
    "duplicate_job": lambda met: (met.do("jobs.add", unique="once"), met.do("jobs.add", unique="once"))[1],
    "forged": lambda met: met.send("jobs.pause", origin="http://elsewhere.example"),
    "group_exists": lambda met: met.do("topics.create_group", group="packers"),
    "job_not_found": lambda met: met.do("jobs.redrive", id="00000000-0000-4000-8000-000000000000"),
    "no_group": lambda met: met.do("topics.reset_group", group="nobody"),
    "not_leased": lambda met: met.do("jobs.release", id=met.filled.ready),
    "not_there": lambda met: met.do("queues.suspend", handle="a" * 16),
    "too_large": lambda met: met.send("jobs.add", b" " * (MOST_BODY + 1)),
    "too_old": lambda met: met.do("store.scan", storage=1, as_of="2020-01-01T00:00:00Z"),
    "wrong_type": lambda met: met.send("jobs.add", content_type="text/plain"),
}
OWN: dict[str, Callable[[Met], Answered]] = {
    "corruption": _corruption,
    "disk_error": _disk_error,
    "disk_full": _disk_full,
    "error": _error,
    "log_closed": _log_closed,
    "log_failed": _log_failed,
    "log_locked": _log_locked,
    "not_allowed": _not_allowed,
    "not_ready": _not_ready,
    "stopped": _stopped,
    "storage": _storage,
    "unauthorized": _unauthorized,
    "wrong_format": _wrong_format,
    "too_many_logins": _too_many_logins,
    "wrong_host": _wrong_host,
}


def test_each_documented_code_has_a_way_to_it() -> None:
    assert sorted([*COMMON, *OWN]) == sorted(documented())


def _check(code: str, status: int, found: Any) -> None:
    assert found.get("error", {}).get("code") == code, found
    assert status in documented()[code].values()
    assert found["error"]["message"]


@pytest.mark.parametrize("code", sorted(COMMON))
def test_a_documented_error_can_be_met(common: Met, code: str) -> None:
    _check(code, *COMMON[code](common))


@pytest.mark.parametrize("code", sorted(OWN))
def test_a_documented_error_can_be_met_on_a_server_in_trouble(own: Met, code: str) -> None:
    _check(code, *OWN[code](own))


def test_a_mistake_of_ours_has_the_headers_of_every_answer(own: Met) -> None:
    assert _error(own)[0] == 500
    assert own.lab.page("/settings")[2].keys() - own.lab.request("GET", "/api/v1/audit").headers.keys() <= {
        "set-cookie"
    }


def test_errors_are_those_of_the_reference() -> None:
    """Stable words, of which docs/reference/errors.md and docs/reference/http.md say when one gets them."""
    root = Path(__file__).parents[2] / "docs/reference"
    told = (root / "errors.md").read_text() + (root / "http.md").read_text()
    missing = [code for code in documented() if not re.search(rf"`{code}`", told)]
    assert missing == []
