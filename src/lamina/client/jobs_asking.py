"""A talk with a job server: what it yields, and how a command is asked again when the connection breaks.

A *talk* is a generator: it yields commands to ask or a rest to take, is sent the answers, and returns what the caller
wants to know. ``WorkqLines.do`` holds it over sockets, ``AsyncWorkqLines.do`` on a loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from lamina.client.endpoint import Endpoint
from lamina.client.talking import Ask, Patience
from lamina.client.wire import Command, Reading, nothing
from lamina.engines.jobs.views import parse_id, show_id
from lamina.errors import Disconnected, LaminaError

T = TypeVar("T")


class Asked(NamedTuple):
    """Commands that are sent at once; the answers come in the same order."""

    commands: Sequence[Command]

    @property
    def waits(self) -> bool:
        """It may take long for reasons of its own."""
        return any(command.wait_s > 0 for command in self.commands)


class Rest(NamedTuple):
    """Do nothing for a while."""

    seconds: float


Talk: TypeAlias = Generator[Asked | Rest, Any, T]


class Outcome(NamedTuple):
    """What a command was answered, and whether it may have been done before, by a try whose answer got lost."""

    value: Any
    is_second: bool


def ask(endpoint: Endpoint, *commands: Command, may_repeat: bool) -> Talk[list[Outcome]]:
    """Ask, again and again if need be. Raises: Disconnected when ``retry_s`` is over, or it must not be repeated."""
    patience = Patience(endpoint, time.monotonic)
    was_sent = False
    while True:
        try:
            values = yield Asked(commands)
            return [Outcome(value, was_sent) for value in values]
        except Disconnected as problem:
            was_sent = was_sent or bool(problem.facts.get("sent", True))
            pause_s = patience.pause_before_next(Ask((), may_repeat=may_repeat), problem)
        yield Rest(pause_s)


class Asking:
    """The start of every set of talks: a server, and how one command is asked."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def _ask(
        self,
        line: str,
        payload: bytes | None = None,
        *,
        reader: Callable[[int], Reading[Any]] = nothing,
        wait_s: float = 0,
        may_repeat: bool = True,
        is_done: type[LaminaError] | None = None,
    ) -> Talk[Any]:
        """Its value. ``is_done``: the refusal of a second try that says that the first one was done.

        Raises: the refusal; Disconnected.
        """
        command = Command(line, payload, wait_s, reader)
        ((value, is_second),) = yield from ask(self._endpoint, command, may_repeat=may_repeat)
        if is_second and is_done is not None and isinstance(value, is_done):
            return None
        return fine(value)


def fine(value: Any) -> Any:
    """The value. Raises: the refusal that it is."""
    if isinstance(value, LaminaError):
        raise value
    return value


def words(*parts: str | int) -> str:
    """A line. Every part was checked by the caller: a blank or a line end in it would be another command."""
    return " ".join(map(str, parts))


def canonical(id: str) -> str:
    """The id in its usual spelling. Raises: BadJob."""
    return show_id(parse_id(id))
