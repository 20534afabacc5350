"""Operations: everything that can be asked for or done over HTTP, each said once.

The JSON API, its OpenAPI document and the pages of the console are made of the same operations, so that a page never
shows or does what a program could not. One that changes something has a plan: what it is going to do, which is shown
to a person before, and told to a program that asks with ``dry_run``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Generic, ParamSpec, TypeVar
from weakref import WeakValueDictionary

import msgspec

from lamina.errors import LaminaError, NotAllowed, NotReady
from lamina.server.audit import Audit, Entry
from lamina.server.inside import Inside, not_ready
from lamina.server.security.rights import ENGINES
from lamina.server.security.users import User

logger = logging.getLogger("lamina.server")

T = TypeVar("T")
P = ParamSpec("P")

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
"""A name of something, as names.py shows it."""
Limit = Annotated[int, msgspec.Meta(ge=1, le=1000)]
"""How many at most."""
After = Annotated[str, msgspec.Meta(max_length=8192)]
"""``next`` of the page before; empty: the first page."""
Payload = Annotated[str, msgspec.Meta(max_length=1 << 20)]
"""What a job or message holds, as somebody typed it."""


class Asks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operation is asked with: parts of the path, then of the query or the body."""


class Changes(Asks, frozen=True, kw_only=True):
    """The same, of one that changes something."""

    dry_run: bool = False
    """Only say what would be done."""


class Gives(msgspec.Struct, frozen=True, kw_only=True):
    """What an operation gives."""


class Plan(Gives, frozen=True, kw_only=True):
    """What is going to be done. It may have changed by the time it is."""

    will: str
    """In a sentence, such as ``put 12 failed jobs of mail back``."""
    details: list[str] = []
    """More of it, such as the first few of them."""
    warning: str = ""
    """What cannot be undone."""
    count: int | None = None
    """How many are affected, where that can be told."""


class Done(Gives, frozen=True, kw_only=True):
    """What was done."""

    did: str
    count: int | None = None
    id: str = ""
    """Of what was made."""


ANY: Final = "any"
"""As the engine of a right: each part of what is asked for is checked by the right of its own engine."""


def may_some(user: User, engine: str, level: str) -> bool:
    """Whether it has the right for some name; of ``any``: for some engine."""
    return any(user.may_some(one, level) for one in (ENGINES if engine == ANY else (engine,)))


MOST_AT_ONCE: Final = 8
"""Threads that work for one user. Who asks for many slow things waits for them, and nobody else does."""


class Turns:
    """Whose turn it is to have a thread. Of one door, on its loop only."""

    def __init__(self) -> None:
        self._of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def of(self, user: User) -> asyncio.Semaphore:
        return self._of.setdefault(user.name, asyncio.Semaphore(MOST_AT_ONCE))


class Place:
    """Where an operation is carried out: the server, and on whose behalf."""

    def __init__(self, inside: Inside, user: User, *, address: str = "", turns: Turns | None = None) -> None:
        self.inside = inside
        self.user = user
        self.address = address
        self._turn = asyncio.Semaphore(MOST_AT_ONCE) if turns is None else turns.of(user)

    def may(self, engine: str, level: str, name: bytes | str = "") -> bool:
        """Whether the user may ``read``, ``write`` or ``admin`` what has this name."""
        return self.user.may(engine, level, name)

    def check(self, engine: str, level: str, name: bytes | str = "") -> None:
        """Raises: NotAllowed."""
        if not self.user.may(engine, level, name):
            shown = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
            of = f" of {shown[:80]!r}" if shown else ""
            raise NotAllowed(
                f"{self.user.name} may not {level} {engine}{of}",
                hint=f"this needs the right {engine}:{level}; whoever runs the server gives it with lamina user",
            )

    def check_some(self, engine: str, level: str) -> None:
        """The same for any name at all: what is shown is then chosen name by name, with ``may``.

        ``engine`` may be ``any``: one of them will do.
        """
        if not may_some(self.user, engine, level):
            self.check(engine, level)

    def is_there(self, part: T | None) -> T:
        """An engine of ``inside``. Raises: NotReady while it is restored, or if the server is without it."""
        if part is None:
            if self.inside.life.phase == "ready":
                raise NotReady("this server does not serve that", hint="look at /api/v1/settings for what it serves")
            raise not_ready(self.inside.life)
        return part

    async def in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What ``call`` returns, called by a thread of its own: engines are safe there, and files may be read."""
        async with self._turn:
            return await asyncio.to_thread(call, *args, **kwargs)

    async def on_loop(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same by the thread of the doors: only for what belongs to a door, and quick."""
        return await self.inside.on_loop(call, *args, **kwargs)


A = TypeVar("A", bound=Asks)
G = TypeVar("G", bound=Gives)


@dataclass(frozen=True, kw_only=True)
class Operation(Generic[A, G]):
    """One of them. ``do`` checks the rights for the names it touches; ``plan`` the same ones."""

    name: str
    """Engine and verb, such as ``jobs.redrive``."""
    method: str
    """GET, or POST for what changes something."""
    path: str
    """Below /api/v1, such as ``/jobs/{queue}/redrive``; its parts are fields of ``asks``."""
    summary: str
    right: tuple[str, str]
    """Engine and level that it needs."""
    asks: type[A]
    gives: type[G]
    do: Callable[[Place, A], Awaitable[G]]
    plan: Callable[[Place, A], Awaitable[Plan]] | None = None
    """What it would do; None: it changes nothing."""
    target: Callable[[A], str] = field(default=lambda asked: "")
    """What it is done to, for the audit log: never the id of a queue."""
    errors: tuple[str, ...] = ()
    """Codes of errors that it may give, beside those that every one may."""
    hidden: tuple[str, ...] = ()
    """Fields of which the audit log has the size only."""

    @property
    def changes(self) -> bool:
        return self.plan is not None

    async def carry_out(self, place: Place, asked: A) -> G | Plan:
        """Do it; or say what would be done. What changes something is in the audit log before and after.

        Raises: what ``do`` does; NotReady if there is no audit log to write to.
        """
        if self.plan is None:
            return await self.do(place, asked)
        if getattr(asked, "dry_run", False):
            return await self.plan(place, asked)
        audit = place.inside.audit
        if audit is None:
            raise NotReady("there is no audit log to write this to", hint="the log of the server says why")
        begun = await asyncio.to_thread(
            audit.begin, place.user.name, place.address, self.name, self.target(asked), self._told(asked)
        )
        try:
            done = await self.do(place, asked)
        except BaseException as error:
            await _note_end(audit, begun, str(getattr(error, "code", "error")))
            raise
        await _note_end(audit, begun, "done", getattr(done, "did", ""))
        return done

    def _told(self, asked: A) -> Mapping[str, object]:
        given = msgspec.structs.asdict(asked)
        given.pop("dry_run", None)
        return {name: _size(value) if name in self.hidden else value for name, value in given.items() if value}


async def _note_end(audit: Audit, begun: Entry, outcome: str, told: str = "") -> None:
    """That it was begun is in the log. Whoever did it is told how it went, not that the disk is full since."""
    try:
        await asyncio.shield(asyncio.to_thread(audit.end, begun, outcome, told))
    except LaminaError as error:
        logger.warning("%s ended (%s), which is not in the audit log: %s", begun.action, outcome, error)


def _size(value: object) -> str:
    return f"{len(value)} characters" if isinstance(value, str) else type(value).__name__


AnyOperation = Operation[Any, Any]

USUAL: Final = ("bad_option", "not_allowed", "not_there", "not_ready", "unauthorized", "error")
"""Codes of errors that every operation may give."""
