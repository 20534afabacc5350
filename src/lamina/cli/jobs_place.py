"""Where the jobs of a command are: behind a server, or in a folder that no server has open. What is known of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from lamina.errors import BadOption, JobNotFound, LogLocked, from_os
from lamina.units import parse_time

if TYPE_CHECKING:
    from lamina.client.workq import Block, WorkqClient
    from lamina.engines.jobs.api import Jobs
    from lamina.engines.jobs.views import QueueView

    Place = Jobs | WorkqClient

Facts = dict[str, Any]
"""What is known of a queue or a job, by name. What the protocol does not tell is not in it."""

SERVER: Final = "127.0.0.1:9922"
STATES: Final = ("ready", "scheduled", "leased", "completed", "failed")
_PAGE: Final = 100  # the most that one inspect gives
_TIMEOUT_S: Final = 30
# A job that was tried before is ready now or after a while: the protocol does not tell which.
_WIRE_STATES: Final = {b"1": "completed", b"2": "failed", b"3": "waiting", b"4": "leased"}

_Function = TypeVar("_Function", bound=Callable[..., object])


def where(command: _Function) -> _Function:
    """The two options that every command has."""
    command = click.option(
        "--data", metavar="DIR", type=click.Path(), help="A data folder that no server has open, instead of a server."
    )(command)
    return click.option("--server", metavar="HOST:PORT", help=f"The server to ask.  [default: {SERVER}]")(command)


@contextmanager
def jobs_at(server: str | None, data: str | None, *, makes: bool = False) -> Iterator[Place]:
    """The jobs of the server or of the folder, which is made if it ``makes`` one.

    Raises: BadOption; LogLocked if a server has the folder; what opening it does. A server is called at the first use.
    """
    if server is not None and data is not None:
        raise BadOption("--server and --data exclude each other", hint="a running server has its folder for itself")
    if data is not None:
        yield from _opened(data, makes)
        return
    from lamina.client.workq import WorkqClient
    from lamina.server.app import Address

    address = Address.parse(server or SERVER)
    with WorkqClient(address.host or "127.0.0.1", address.port, _TIMEOUT_S) as client:
        yield client


def _opened(data: str, makes: bool) -> Iterator[Place]:
    from lamina.data import open as open_data

    _check_folder(data, makes)
    with open_data(data) as folder:
        try:
            jobs = folder.jobs
        except LogLocked as error:
            hint = "a server has it open: give --server HOST:PORT instead of --data, or stop it first"
            raise LogLocked(error.message, hint=hint, **error.facts) from error
        yield jobs


def _check_folder(data: str, makes: bool) -> None:
    """Looking for jobs in the wrong place must not make a folder there."""
    path = Path(data)
    try:
        if (path / "jobs").is_dir():
            return
        names = os.listdir(path)
    except FileNotFoundError as error:
        if makes:
            return
        raise from_os(error, "open the data folder", data) from error
    except OSError as error:
        raise from_os(error, "open the data folder", data) from error
    if any(name.endswith(".log") for name in names):
        parent = f": give {path.parent}" if path.name == "jobs" else ""
        raise BadOption(
            f"{data} is a folder of log files, not a data folder", hint=f"its jobs would be in jobs/{parent}"
        )
    if not makes:
        raise BadOption(f"{data} holds no jobs", hint="they would be in its folder jobs/, made by the first add")


@contextmanager
def about(kind: str, name: str) -> Iterator[None]:
    """Say what was not found."""
    try:
        yield
    except JobNotFound as error:
        hints = {"job": "it was never added, was deleted, or has expired", "queue": '"lamina jobs ls" shows the queues'}
        raise JobNotFound(f"there is no {kind} {name}", hint=hints[kind]) from error


# -- what is known ---------------------------------------------------------------------------------------------------


def queue_facts(place: Place) -> Iterator[Facts]:
    from lamina.client.workq import WorkqClient

    if not isinstance(place, WorkqClient):
        yield from (view.as_dict() for view in cast("Iterable[QueueView]", place.queues()))
        return
    for block in _pages(place, "queues"):
        sizes = {key.removesuffix("-len"): int(value) for key, value in block.facts.items() if key.endswith("-len")}
        yield {"name": block.title, **sizes}


def list_facts(place: Place, name: str, state: str, limit: int) -> Iterator[Facts]:
    """Jobs in the order in which they are handed out. Raises: JobNotFound, BadJob."""
    from lamina.client.workq import WorkqClient
    from lamina.engines.jobs.api import check_name

    with about("queue", check_name(name)):
        if not isinstance(place, WorkqClient):
            yield from (asdict(view) for view in place.list(name, state, limit=limit))
            return
        for block in _pages(place, "state", name, state, limit=limit):
            yield {**_job(block), "state": state}


def job_facts(place: Place, id: str) -> Facts:
    """Raises: JobNotFound, BadJob."""
    from lamina.client.workq import WorkqClient
    from lamina.engines.jobs.views import parse_id, show_id

    id = show_id(parse_id(id))
    with about("job", id):
        if not isinstance(place, WorkqClient):
            return asdict(place.show(id))
        facts = _job(place.inspect("job", id)[0])
        ended = place.result(id) if facts["state"] in ("completed", "failed") else None
        if ended is not None:
            facts["result" if ended.is_success else "last_error"] = ended.result
        return facts


def state_after_fail(place: Place, id: str) -> str:
    """Failed for good, or to be tried again."""
    try:
        return str(job_facts(place, id)["state"])
    except JobNotFound:  # of a run: its caller has been told, and it is forgotten
        return "failed"


def _pages(client: WorkqClient, *what: str, limit: int = 1 << 32) -> Iterator[Block]:
    """What an ``inspect`` gives, page by page. What comes or goes meanwhile may be missed or seen twice."""
    done = 0
    while done < limit:
        asked = min(limit - done, _PAGE)
        page = client.inspect(what[0], *what[1:], done, asked)
        yield from page
        done += len(page)
        if not page:  # fewer than asked for may be all that fits into one answer
            return


def _job(block: Block) -> Facts:
    facts = block.facts
    scheduled = parse_time(facts["time"].decode()) if "time" in facts else None
    untried = "ready" if scheduled is None or scheduled <= time.time_ns() else "scheduled"
    return {
        "id": block.title,
        "name": facts["name"].decode(),
        "state": _WIRE_STATES.get(facts["state"], untried),
        "payload": facts["payload"],
        "priority": int(facts["priority"]),
        "attempts": int(facts["attempts"]),
        "max_attempts": int(facts["max-attempts"]),
        "fails": int(facts["fails"]),
        "max_fails": int(facts["max-fails"]),
        "ttr_ms": int(facts["ttr"]),
        "ttl_ms": int(facts["ttl"]),
        "created_ns": parse_time(facts["created"].decode()),
        "scheduled_ns": scheduled,
    }


def plain(facts: Facts) -> dict[str, object]:
    """For JSON: bytes as text where they are, else in hexadecimal under another name, so that nothing is mistaken."""
    return dict(_plain(key, value) for key, value in facts.items())


def _plain(key: str, value: object) -> tuple[str, object]:
    if not isinstance(value, bytes):
        return key, value
    try:
        return key, value.decode()
    except UnicodeDecodeError:
        return f"{key}_hex", value.hex()
