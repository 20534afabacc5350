"""What a user has to be allowed for each command of the workq door. Only those are asked who may not do everything.

Commands with the name of a queue are checked by it. Commands with the id of a job are checked by the queue the job is
in: one that is not for this user looks as if it was not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import Job
from lamina.errors import JobNotFound
from lamina.server.security.users import User
from lamina.server.workq import commands as c

LEVELS: Final[dict[type, str]] = {
    c.Add: "write",
    c.Run: "write",
    c.Lease: "write",
    c.Complete: "write",
    c.Fail: "write",
    c.Bury: "write",
    c.Touch: "write",
    c.Release: "write",
    c.Delete: "write",
    c.Result: "read",
    c.Redrive: "admin",
    c.Pause: "admin",
    c.Resume: "admin",
    c.InspectServer: "",
    c.InspectQueue: "read",
    c.InspectQueues: "",
    c.InspectJobs: "read",
    c.InspectScheduled: "read",
    c.InspectState: "read",
    c.InspectJob: "read",
    c.InspectView: "read",
    c.InspectViews: "read",
    c.InspectQueueViews: "",
    c.Refusal: "",
}
"""Of the right to jobs. Empty: whoever has logged in; of many queues only those are shown that may be read."""

_SHOWS: Final = (c.InspectQueue, c.InspectJobs, c.InspectScheduled, c.InspectState, c.InspectViews)


class MayNot(Exception):
    """It is not for this user."""


def check(user: User, engine: JobEngine, command: c.Command) -> c.Command:
    """The command as it may be run. Raises: MayNot; JobNotFound for what the user may not know of."""
    level = LEVELS.get(type(command), "admin")
    if isinstance(command, c.Refusal):
        # A line with a mistake makes the queues it names before that: not those of others.
        return command._replace(queues=tuple(name for name in command.queues if user.may("jobs", "write", name)))
    if not level:
        return command
    if isinstance(command, c.Lease):
        names: Sequence[str] = command.names
    else:
        name = getattr(command, "name", None)
        names = (name,) if name is not None else ()
    if names:
        if not all(user.may("jobs", level, name) for name in names):
            raise JobNotFound("no such queue") if isinstance(command, _SHOWS) else MayNot
        return command
    id = getattr(command, "id", None)
    if id is None:
        raise MayNot
    queue = engine.job(id).queue.name
    if user.may("jobs", level, queue):
        return command
    if user.may("jobs", "read", queue):
        raise MayNot
    raise JobNotFound("no such job")


def readable(user: User | None, names: list[str]) -> list[str]:
    """Those queues of ``names`` that the user may look into."""
    if user is None or user.may_everything:
        return names
    return [name for name in names if user.may("jobs", "read", name)]


def may_see(user: User | None, job: Job) -> bool:
    """Whether what became of a job may be told."""
    return user is None or user.may_everything or user.may("jobs", "read", job.queue.name)
