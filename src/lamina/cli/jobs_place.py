"""Where the jobs of a command are: behind a server, or in a folder that no server has open. What is known of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from lamina.cli.reaching import WORKQ, endpoint_of, one_of, server_or_folder
from lamina.errors import BadJob, BadOption, JobNotFound, LogLocked, WireError, from_os
from lamina.log.history import DEFAULT_S
from lamina.units import parse_time

if TYPE_CHECKING:
    from lamina.client.jobs import RemoteJobs
    from lamina.client.workq import Block, WorkqClient
    from lamina.engines.jobs.api import Jobs
    from lamina.engines.jobs.views import QueueView

    Place = Jobs | WorkqClient

Facts = dict[str, Any]
"""What is known of a queue or a job, by name. What the protocol does not tell is not in it."""

STATES: Final = ("ready", "scheduled", "leased", "completed", "failed")
_PAGE: Final = 100  # the most that one inspect gives
# A job that was tried before is ready now or after a while: the protocol does not tell which.
_WIRE_STATES: Final = {b"1": "completed", b"2": "failed", b"3": "waiting", b"4": "leased"}


where: Final = server_or_folder(WORKQ)
"""The options that every command has."""


@contextmanager
def jobs_at(
    server: str | None, data: str | None, *, makes: bool = False, history_s: float = DEFAULT_S
) -> Iterator[Place]:
    """The jobs of the server or of the folder, which is made if it ``makes`` one; of that, cleaning leaves so much of
    the recent past.

    Raises: BadOption; LogLocked if a server has the folder; what opening it does. A server is called at the first use.
    """
    one_of(server, data)
    if data is not None:
        yield from _opened(data, makes, history_s)
        return
    from lamina.client.workq import WorkqClient

    with WorkqClient(endpoint=endpoint_of(server, WORKQ)) as client:
        yield client


def _opened(data: str, makes: bool, history_s: float) -> Iterator[Place]:
    from lamina.data import open as open_data

    _check_folder(data, makes)
    with open_data(data, history_s=history_s) as folder:
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
    views = _all_of(place, lambda jobs: [view.as_dict() for view in jobs.queues()])
    if views is not None:
        yield from views
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
        views = _all_of(place, lambda jobs: [asdict(view) for view in jobs.list(name, state, limit=limit)])
        if views is not None:
            yield from views
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
        views = _all_of(place, lambda jobs: [asdict(jobs.show(id))])
        if views is not None:
            return views[0]
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


def _all_of(client: WorkqClient, look: Callable[[RemoteJobs], list[Facts]]) -> list[Facts] | None:
    """All that there is to know, as a lamina server tells it; None if it is another server of the protocol."""
    from lamina.client.jobs import RemoteJobs

    with closing(RemoteJobs(client.endpoint)) as jobs:
        try:
            return look(jobs)
        except (BadJob, WireError):
            return None  # asked again in plain words: a mistake of ours shows there, too


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
