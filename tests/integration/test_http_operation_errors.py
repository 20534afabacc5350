"""Each error that an operation documents can be met at this very operation; and it answers with no other.

``WAYS`` says for each pair of an operation and a code how to get there: with wrong fields, or on a server in trouble.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from http_lab import HttpLab
from integration.console_server import Filled
from integration.http_mistakes import (
    AUDIT,
    Answered,
    Met,
    closed_server,
    code_of,
    damaged_server,
    documented,
    failed_server,
    filled_server,
    parts_of,
    spoil,
)
from lamina import runs
from lamina.engines import elsewhere
from lamina.engines.store.catalog import NAME as CATALOG
from lamina.errors import StorageError
from lamina.server.http.ops import all_operations, logs_actions
from lamina.server.http.ops.logs_desk import desk_of
from lamina.server.http.ops.logs_works import Running
from waiting import wait_until

pytestmark = pytest.mark.xdist_group("http operation errors")  # servers are made once

Act = Callable[[Met, str], Answered]
FULL, BROKEN = errno.ENOSPC, errno.EIO
NOBODY = "00000000-0000-4000-8000-000000000000"

JOB_CHANGES = (
    "jobs.add jobs.delete jobs.release jobs.redrive jobs.pause jobs.resume "
    "jobs.redrive_queue jobs.redrive_group jobs.redrive_edited jobs.purge"
)
OF_JOB = "jobs.delete jobs.release jobs.redrive jobs.redrive_edited"
OF_JOB_QUEUE = "jobs.resume jobs.redrive_queue jobs.redrive_group jobs.purge"
TOPIC_READS = "topics.entries topics.entry topics.groups topics.group topics.pending"
GROUP_CHANGES = "topics.delete_group topics.reset_group topics.acknowledge topics.claim"
TOPIC_CHANGES = f"topics.publish topics.trim topics.create_group {GROUP_CHANGES}"
TOPIC_OPENING = f"topics.one topics.why {TOPIC_READS} {TOPIC_CHANGES}"
QUEUE_READS = "queues.list queues.show queues.browse"
QUEUE_CHANGES = "queues.purge queues.move queues.suspend queues.delete queues.dump"
LOG_WORKS = "logs.clean logs.compact logs.verify logs.measure logs.stop"


@dataclass(frozen=True)
class Way:
    """To an error: on which server (a fixture), and what to do there."""

    server: str
    act: Act


WAYS: dict[tuple[str, str], Way] = {}
"""By operation and code."""


def _way(code: str, operations: str, act: Act, server: str = "common") -> None:
    for operation in operations.split():
        assert (operation, code) not in WAYS, (operation, code)
        WAYS[operation, code] = Way(server, act)


def _asked(**fields: object) -> Act:
    """With these fields."""
    return lambda met, name: met.do(name, **fields)


def _over(folder: str, number: int, method: str = "append", **fields: object) -> Act:
    """While the disk fails so."""

    def act(met: Met, name: str) -> Answered:
        with met.disk(folder, number, method):
            return met.do(name, **fields)

    return act


# -- wrong fields ------------------------------------------------------------------------------------------------------

_NO_NAME = "hex:zz"
_way("bad_name", "jobs.queues topics.list", _asked(after=_NO_NAME))
_way(
    "bad_name", f"jobs.queue jobs.list jobs.search jobs.dead jobs.add jobs.pause {OF_JOB_QUEUE}", _asked(queue=_NO_NAME)
)
_way("bad_name", f"{TOPIC_OPENING} topics.delete", _asked(name=_NO_NAME))
_way("bad_name", "store.scan", _asked(prefix=_NO_NAME))
_way("bad_name", "store.key store.put store.remove", _asked(key=_NO_NAME))
_way("bad_name", f"logs.one logs.rotate {LOG_WORKS}", _asked(name=f"topics/{_NO_NAME}"))
_way("bad_job", f"jobs.one jobs.timeline {OF_JOB}", _asked(id="no id"))
_way("bad_job", "jobs.add jobs.pause jobs.resume", _asked(queue="not a name"))
_way("bad_topic", "topics.entries topics.pending", _asked(after="no id"))
_way("bad_topic", "topics.entry topics.publish", _asked(id="no id"))
_way("bad_topic", "topics.trim", _asked(keep=None, before=f"{'9' * 20}-0"))
_way("bad_topic", "topics.create_group", _asked(at=f"{'9' * 20}-0"))
_way("bad_topic", "topics.reset_group", _asked(to=f"{'9' * 20}-0"))
_way("bad_topic", "topics.acknowledge topics.claim", _asked(ids="no id"))
_way("bad_entry", "store.scan store.key store.put store.remove", _asked(storage=1 << 64))
_way("bad_entry", "store.clean", _asked(keep_epoch=1 << 62))
_way("too_old", "store.scan store.key", _asked(as_of="2020-01-01T00:00:00Z"))
_way("job_not_found", "jobs.queue jobs.list jobs.search jobs.dead", _asked(queue="nobody"))
_way("job_not_found", OF_JOB_QUEUE, _asked(queue="nobody"))
_way("job_not_found", f"jobs.one {OF_JOB}", _asked(id=NOBODY))
_way("no_group", f"topics.group topics.pending {GROUP_CHANGES}", _asked(group="nobody"))
_way("group_exists", "topics.create_group", _asked(group="packers"))
_way("not_leased", "jobs.release", lambda met, name: met.do(name, id=met.filled.ready))
_way("duplicate_job", "jobs.add", _asked(queue="once", unique="only-one"))
_way("duplicate_job", "jobs.redrive jobs.redrive_edited", lambda met, name: met.do(name, id=met.filled.dead[-1]))


def _not_for_him(met: Met, name: str) -> Answered:
    """A job that is gone, which only who may see all jobs is told."""
    return met.do(name, met.lab.user("somebody", "jobs:read:mail"), id=NOBODY)


_way("job_not_found", "jobs.timeline", _not_for_him, "own")


# -- a disk that fails -------------------------------------------------------------------------------------------------

for _code, _number in (("disk_full", FULL), ("disk_error", BROKEN)):
    _way(_code, JOB_CHANGES, _over("jobs", _number))
    _way(_code, TOPIC_CHANGES, _over("topics", _number))
    _way(_code, QUEUE_CHANGES, _over("queues", _number))
    _way(_code, "store.put store.remove store.switch_epoch store.rotate", _over("store", _number))
    _way(_code, "store.compact", _over("store", _number, wait=True))
    _way(_code, "logs.rotate", _over("store", _number, name="store"))
    # These write nothing themselves, or behind their answer: nothing is done that cannot be written down.
    _way(_code, f"{LOG_WORKS} store.cancel", _over(AUDIT, _number))
_way("disk_full", "topics.delete store.clean", _over(AUDIT, FULL))
_way("disk_error", "topics.delete", _over("topics", BROKEN, "rename_folder"))
_way("disk_error", "store.clean store.show store.files store.compactions", _over("store", BROKEN, "list"))
_way("disk_error", "store.scan store.key", _over("store", BROKEN, "read_into"))
_way("disk_error", "jobs.timeline", _over("jobs", BROKEN, "open"))
_way("disk_error", "topics.list topics.one topics.why", _over("topics", BROKEN, "list"))
_way("disk_error", TOPIC_READS, _over("topics/cold", BROKEN, "open", name="cold"), "cold")
_way("disk_error", QUEUE_READS, _over("queues", BROKEN, "open"), "cold")
_way("disk_error", "pipeline.run pipeline.page", _over("pipeline", BROKEN, "open"))
_way("disk_error", "server.audit", _over("logs", BROKEN, "list"))


def _no_folder(met: Met, name: str) -> Answered:
    """A file is where the records of runs should be."""
    folder = Path(runs.folder_of(str(met.lab.folder)))
    folder.rename(folder.with_name("aside"))
    folder.touch()
    try:
        return met.do(name)
    finally:
        folder.unlink()
        folder.with_name("aside").rename(folder)


def _no_record(met: Met, name: str) -> Answered:
    record = Path(runs.folder_of(str(met.lab.folder)), met.run + runs.RECORD)
    content = record.read_text()
    record.write_text("{")
    try:
        return met.do(name)
    finally:
        record.write_text(content)


def _killed(met: Met, name: str) -> Answered:
    """The process that does the work is killed."""
    start = elsewhere._start

    def start_and_kill(module: str, what: str) -> Popen[bytes]:
        process = start(module, what)
        process.kill()
        return process

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(elsewhere, "_start", start_and_kill)
        return met.do(name)


_way("disk_error", "pipeline.runs", _no_folder)
_way("storage", "pipeline.run", _no_record)
_way("storage", "queues.dump", _killed, "own")


# -- a log that failed before: nobody knows what is on the disk -------------------------------------------------------

_way("log_failed", f"{JOB_CHANGES} {QUEUE_CHANGES}", _asked(), "failed")
_way("log_failed", TOPIC_CHANGES, _asked(name="orders"), "failed")
_way("log_failed", "store.put store.remove store.switch_epoch store.rotate", _asked(), "failed")
_way("log_failed", "store.compact", _asked(wait=True), "failed")
_way("log_failed", "logs.rotate", _asked(name="jobs"), "failed")
_way("log_failed", f"{LOG_WORKS} topics.delete store.cancel store.clean", _asked(), "unaudited")


# -- damaged, foreign and locked files --------------------------------------------------------------------------------

for _code, _topic in (("corruption", "orders"), ("wrong_format", "logs.web"), ("log_locked", "big")):
    _way(_code, TOPIC_OPENING, _asked(name=_topic), "cold")
    _way(_code, "logs.rotate", _asked(name=f"topics/{_topic}"), "cold")
    _way(_code, "logs.clean", _asked(name=f"topics/{_topic}", dry_run=True), "cold")
_way("log_locked", "topics.delete", _asked(name="big"), "cold")
_way("corruption", "store.show store.scan store.key", _asked(), "cold")
_way("corruption", "store.put store.remove", _asked(key="stock/001", dry_run=True), "cold")
_way("corruption", "server.audit queues.dump", _asked(), "cold")


def _compacted(met: Met, name: str) -> Answered:
    assert code_of(met.do("store.put")) == ""
    return met.do(name, wait=True)


def _part_foreign(met: Met, name: str) -> Answered:
    for _ in range(2):
        assert code_of(met.do("store.put")) == ""
        found = met.do(name, wait=True)
        for path in parts_of(met):
            path.write_bytes(b"PK" + path.read_bytes()[2:])
    return found


def _catalog_damaged(met: Met, name: str) -> Answered:
    spoil(met.lab.folder / "store" / CATALOG)
    return met.do(name)


def _store_locked(met: Met, name: str) -> Answered:
    """It was never used, and another process has it now."""
    folder = met.lab.folder / "store"
    folder.mkdir(exist_ok=True)
    with open(folder / "lamina.lock", "w") as lock:
        flock(lock, LOCK_EX | LOCK_NB)
        return met.do(name)


_way("corruption", "store.compact", _compacted, "cold")
_way("wrong_format", "store.compact", _part_foreign, "own")
_way("corruption", "store.clean", _catalog_damaged, "cold")
_way("log_locked", "store.put", _store_locked, "own")


# -- engines that are closed while somebody asks ----------------------------------------------------------------------

_way("log_closed", f"{JOB_CHANGES} {TOPIC_OPENING} topics.delete", _asked(), "closed")
_way("log_closed", "queues.purge queues.move queues.suspend queues.delete", _asked(), "closed")
_way("log_closed", "store.show store.put store.remove store.switch_epoch store.rotate store.clean", _asked(), "closed")
_way("log_closed", "store.scan store.key", _asked(as_of="1"), "closed")
_way("log_closed", "logs.rotate", _asked(name="jobs"), "closed")
_way("log_closed", "logs.clean", _asked(name="topics/orders", dry_run=True), "closed")
_way("stopped", "store.compact", _asked(wait=True), "closed")


def _queues_closed(met: Met, name: str) -> Answered:
    """Before anything else was refused: a dump would tell that."""
    assert met.lab.inside.queues is not None
    met.lab.inside.queues.engine.close()
    return met.do(name)


_way("log_closed", "queues.dump", _queues_closed, "own")


def _closed_meanwhile(met: Met, name: str) -> Answered:
    """Rotating waits for a session, and the store is closed."""
    assert code_of(met.do("store.put")) == ""
    store: Any = met.lab.inside.find_store()
    store.engine.begin(store.engine.channel())
    with ThreadPoolExecutor(1) as waiting:
        asked = waiting.submit(met.do, name, **({"name": "store"} if name == "logs.rotate" else {}))
        wait_until(lambda: bool(store.engine._rotations.begun))
        store.close()
        return asked.result()


_way("stopped", "store.rotate logs.rotate", _closed_meanwhile, "own")


# -- somebody else is at work -----------------------------------------------------------------------------------------


def _busy(met: Met, name: str) -> Answered:
    over = threading.Event()
    log = str(met.sample(name)["name"])
    running = desk_of(met.lab.inside).works.begin(Running(log, "planted", "somebody"), lambda work: str(over.wait(60)))
    try:
        return met.do(name)
    finally:
        over.set()
        assert running.over.wait(60)


def _session_open(met: Met, name: str) -> Answered:
    store: Any = met.lab.inside.find_store()
    session = store.engine.begin(store.engine.channel())
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(logs_actions, "_ROTATE_S", 0.05)
            return met.do(name, name="store")
    finally:
        session.abort()


_way("busy", LOG_WORKS, _busy)
_way("busy", "logs.rotate", _session_open)


# -- servers -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Met]:
    """For mistakes that leave it as it was."""
    with filled_server(tmp_path_factory.mktemp("common")) as met:
        with met.lab.remote() as lm:
            lm.jobs.add("once", b"failed", unique="only-one")
            (failed,) = lm.jobs.lease_many("once", most=1)
            failed.bury(b"no")
            met.filled.dead.append(failed.id)
            lm.jobs.add("once", b"goes on", unique="only-one")
            lm.store.compact()  # so that entries are read from a file
            lm.store.put(3, b"new", b"for the next compaction")
        yield met


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Met]:
    with damaged_server(tmp_path_factory.mktemp("cold")) as met:
        yield met


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Met]:
    with failed_server(tmp_path_factory.mktemp("failed")) as met:
        yield met


@pytest.fixture(scope="module")
def unaudited(failed: Met) -> Met:
    """The log of what was done over HTTP has failed, too: so this comes last."""
    with failed.disk("logs", BROKEN, "sync"):
        failed.do("jobs.pause")
    return failed


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Met]:
    with closed_server(tmp_path_factory.mktemp("closed")) as met:
        yield met


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Met]:
    """With nothing in it."""
    with HttpLab(tmp_path) as lab:
        yield Met(lab, Filled())


# -- tests -------------------------------------------------------------------------------------------------------------

DOCUMENTED = documented()
PAIRS = {(name, code) for name, operation in all_operations().items() for code in operation.errors}
SERVERS = ("common", "cold", "closed", "failed", "own")


def test_each_error_of_each_operation_has_a_way_to_it() -> None:
    assert set(WAYS) - PAIRS == set(), "ways to errors that are not documented"
    assert PAIRS - set(WAYS) == set(), "errors without a way"


def _on(*servers: str) -> list[tuple[str, str]]:
    """Pairs that are met there, server by server."""
    found = [pair for pair in WAYS if WAYS[pair].server in servers]
    return sorted(found, key=lambda pair: (servers.index(WAYS[pair].server), pair))


@pytest.mark.parametrize(("operation", "code"), _on(*SERVERS))
def test_a_documented_error_can_be_met(operation: str, code: str, request: pytest.FixtureRequest) -> None:
    way = WAYS[operation, code]
    met: Met = request.getfixturevalue(way.server)
    before = met.state(operation) if way.server == "common" else None
    _check(operation, code, way.act(met, operation))
    if before is not None:
        assert met.state(operation) == before


def _check(operation: str, code: str, answered: Answered) -> None:
    assert code_of(answered) == code, answered
    assert answered[0] == DOCUMENTED[code][operation]
    assert answered[1]["error"]["message"]


def test_a_dump_tells_why_what_others_changed_is_not_in_the_log(own: Met) -> None:
    assert own.lab.inside.queues is not None
    engine = own.lab.inside.queues.engine
    with own.lab.remote() as lm:
        lm.queues.create()
    with own.disk("queues", BROKEN):
        engine.suspend(next(iter(engine.state.queues.values())))
        _check("queues.dump", "disk_error", own.do("queues.dump"))


# -- and no other ------------------------------------------------------------------------------------------------------

TROUBLES: dict[str, tuple[int, str]] = {
    "full": (FULL, "append"),
    "broken": (BROKEN, "append"),
    "unreadable": (BROKEN, "read_into"),
    "not to be looked at": (BROKEN, "size"),
    "not to be opened": (BROKEN, "open"),
    "not to be listed": (BROKEN, "list"),
    "no new files": (FULL, "create"),
    "not to be synced": (BROKEN, "sync"),
}
"""Disks, in an order in which each finds something left to do: logs that could not be synced are of no use."""
LOGS = ("jobs", "topics/orders", "groups/orders", "queues", "store", AUDIT)


def _variants(name: str) -> Iterator[dict[str, object]]:
    """What else can be asked of an operation."""
    fields: list[dict[str, object]] = [{}]
    if name.startswith("logs.") and name != "logs.list":
        fields = [{"name": log} for log in LOGS]
    elif name == "store.compact":
        fields = [{"wait": True}]
    for each in fields:
        if all_operations()[name].changes:
            yield {**each, "dry_run": True}
        yield each


def _undocumented(met: Met) -> list[tuple[str, dict[str, object], Answered]]:
    """Ask for everything; those that take away what others need come last."""
    found = []
    for name in sorted(all_operations(), key=lambda name: (all_operations()[name].changes, name.endswith("delete"))):
        for fields in _variants(name):
            answered = met.do(name, **fields)
            code = code_of(answered)
            if code == "error" or (code and name not in DOCUMENTED.get(code, {})):
                found.append((name, fields, answered))
    return found


@pytest.fixture(scope="module", params=["warm", "just started"])
def spare(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Met]:
    """For disks that fail."""
    with suppress(StorageError), filled_server(tmp_path_factory.mktemp("spare"), queues="journal") as met:
        if request.param == "just started":
            met.lab.restart()
        yield met


@pytest.mark.parametrize("trouble", TROUBLES)
def test_no_operation_gives_an_error_that_it_does_not_document(spare: Met, trouble: str) -> None:
    number, method = TROUBLES[trouble]
    with spare.disk("", number, method, but="logs"):
        assert _undocumented(spare) == []


@pytest.mark.parametrize("server", ["cold", "closed", "failed"])
def test_nor_on_a_server_in_trouble(server: str, request: pytest.FixtureRequest) -> None:
    assert _undocumented(request.getfixturevalue(server)) == []


@pytest.mark.parametrize(("operation", "code"), _on("unaudited"))
def test_nothing_is_done_that_cannot_be_written_down(operation: str, code: str, unaudited: Met) -> None:
    _check(operation, code, WAYS[operation, code].act(unaudited, operation))


def test_that_is_documented_for_all_that_change_something(unaudited: Met) -> None:
    assert _undocumented(unaudited) == []
