"""What a client of the workq door can ask for, as values.

Ids are the 16 raw bytes, names are text, spans of time are whole milliseconds. Every value is in its range: who gets a
command does not check it again. The commands are tuples, so two kinds with equal fields compare equal, and
``InspectServer()`` is empty and false: tell them apart by type.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class Add(NamedTuple):
    """``add`` and, with a ``time``, ``schedule``: a job for the background."""

    id: bytes
    name: str
    ttr: int  # 1 .. 24 hours
    ttl: int  # 1 .. 30 days
    payload: bytes
    priority: int = 0  # signed, 32 bits
    max_attempts: int = 0  # 0: no limit
    max_fails: int = 0  # 0: the first fail is final
    time: int | None = None  # nanoseconds since 1970, of any year 1 .. 9999: may not fit into 64 bits
    unique: str = ""  # "": no key
    backoff: int = 0  # 0 .. 24 hours


class Run(NamedTuple):
    """A job whose result the client waits for."""

    id: bytes
    name: str
    ttr: int
    wait: int  # 0 .. 24 hours
    payload: bytes
    priority: int = 0


class Lease(NamedTuple):
    """Up to ``most`` jobs of any of the queues."""

    names: tuple[str, ...]  # at least one; a name may be there twice
    wait: int
    most: int = 1  # 1 .. 1000
    tells_attempts: bool = False  # unknown to workq: which attempt each job is in


class Complete(NamedTuple):
    id: bytes
    result: bytes


class Fail(NamedTuple):
    id: bytes
    result: bytes


class Bury(NamedTuple):
    """Failed for good, whatever attempts are left."""

    id: bytes
    result: bytes


class Delete(NamedTuple):
    id: bytes


class Result(NamedTuple):
    id: bytes
    wait: int


class InspectServer(NamedTuple):
    pass


class InspectQueue(NamedTuple):
    name: str


class InspectQueues(NamedTuple):
    offset: int  # unsigned, 32 bits
    limit: int  # 1 .. 100


class InspectJobs(NamedTuple):
    """The ready jobs of a queue."""

    name: str
    offset: int
    limit: int


class InspectScheduled(NamedTuple):
    name: str
    offset: int
    limit: int


class InspectJob(NamedTuple):
    id: bytes  # of any UUID version, the only such id


class InspectState(NamedTuple):
    name: str
    state: str  # one of STATES
    offset: int
    limit: int


class InspectView(NamedTuple):
    """All that is known of a job; unknown to workq, as the two below."""

    id: bytes


class InspectViews(NamedTuple):
    name: str
    state: str
    offset: int
    limit: int


class InspectQueueViews(NamedTuple):
    offset: int
    limit: int


STATES = ("ready", "scheduled", "leased", "completed", "failed")


class Touch(NamedTuple):
    """The lease runs for ``ttr`` from now."""

    id: bytes
    ttr: int


class Release(NamedTuple):
    """Back into the queue, ready after ``delay``."""

    id: bytes
    delay: int  # 0 .. 30 days


class Redrive(NamedTuple):
    """Failed jobs back into the queue: the one of ``id``, or up to ``limit`` of the queue ``name``."""

    id: bytes | None  # exactly one of id and name is given
    name: str | None
    limit: int  # 1 .. 1000; 1 with an id


class Pause(NamedTuple):
    name: str


class Resume(NamedTuple):
    name: str


class Auth(NamedTuple):
    """Who the client is; unknown to workq."""

    user: bytes
    token: bytes


class Refusal(NamedTuple):
    """What was sent is no command: answer ``-CLIENT-ERROR <text>`` in its place."""

    text: str
    queues: tuple[str, ...] = ()  # named before the mistake: as in workq, they exist from then on


Command: TypeAlias = (
    Add
    | Run
    | Lease
    | Complete
    | Fail
    | Bury
    | Delete
    | Result
    | InspectServer
    | InspectQueue
    | InspectQueues
    | InspectJobs
    | InspectScheduled
    | InspectJob
    | InspectState
    | InspectView
    | InspectViews
    | InspectQueueViews
    | Touch
    | Release
    | Redrive
    | Pause
    | Resume
    | Auth
    | Refusal
)
