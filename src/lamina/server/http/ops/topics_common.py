"""What operations on topics share: names, moments, finding a topic, and telling those who wait at the RESP door."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Annotated, Final

import msgspec

from lamina.engines.topics import ids
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.messages import END, START, parse_id
from lamina.engines.topics.topic import Topic
from lamina.engines.topics.topics import Topics
from lamina.errors import BadOption, NotReady, NotThere
from lamina.server.http.names import read_name, show_name
from lamina.server.http.operations import Place
from lamina.units import parse_duration, parse_time

OF_OPENING: Final = ("corruption", "wrong_format", "log_locked", "log_closed", "disk_error")
"""Errors of what opens a topic that nobody used since the start."""
OF_CHANGING: Final = (*OF_OPENING, "disk_full", "log_failed")
"""Errors of what then writes to it."""

Moment = Annotated[str, msgspec.Meta(max_length=100)]
"""A time as RFC 3339 has it, milliseconds since 1970, ``-1h`` for an hour ago, or the id of a message."""

_ID: Final = re.compile(r"\d{1,20}-\d{1,20}", re.ASCII).fullmatch
_DIGITS: Final = re.compile(r"\d+", re.ASCII).fullmatch
_AGO: Final = re.compile(r"-(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h|d)", re.ASCII).fullmatch
_TO_THE_MINUTE: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d", re.ASCII).fullmatch
_MS_DIGITS: Final = 14  # up to the year 5138
_NS_DIGITS: Final = range(17, 20)  # from 1973 on
_MOST_NS: Final = (1 << 63) - 1
_LAST_OF_MS: Final = (1 << 64) - 1
_HINT: Final = "write 2026-11-15T06:17:00Z, milliseconds since 1970, -1h, or an id such as 1700000000123-0"


# -- names -------------------------------------------------------------------------------------------------------------


def shown_name(name: bytes) -> str:
    """As ``read_name`` takes it, also of no bytes at all: a topic can have that name."""
    return show_name(name) or "hex:"


def engine_of(place: Place) -> Topics:
    """Raises: NotReady."""
    return place.is_there(place.inside.topics)


def find(place: Place, shown: str, level: str = "read") -> tuple[bytes, Topic]:
    """The topic that is shown so, which the user may ``read`` or ``write``. It is opened: blocks.

    Raises: NotAllowed; NotThere; BadName; what opening one does.
    """
    name = read_name(shown)
    place.check("topics", level, name)
    topic = engine_of(place).get(name)
    if topic is None:
        raise no_topic(shown)
    return name, topic


def no_topic(shown: str) -> NotThere:
    return NotThere(f"there is no topic {shown[:200]}", hint="it may have been deleted; GET /api/v1/topics lists them")


def counted(count: int, what: str = "message") -> str:
    """``1 message``, ``12 345 messages``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}".replace(",", " ")


# -- moments -----------------------------------------------------------------------------------------------------------


def first_at(text: str, now_ns: int) -> EntryId:
    """The first id that is meant by a time or an id. Raises: BadOption, BadTopic."""
    return parse_id(text) if _ID(text) else ids.make(_ms(text, now_ns), 0)


def last_at(text: str, now_ns: int) -> EntryId:
    """The last one: of a time, all of its millisecond. Raises: BadOption, BadTopic."""
    return parse_id(text) if _ID(text) else ids.make(_ms(text, now_ns), _LAST_OF_MS)


def position_before(topic: Topic, text: str) -> EntryId:
    """Behind which id a group goes on that is to begin there; also ``start`` and ``end``. Raises: BadOption, BadTopic.

    The caller holds the lock of the topic.
    """
    if text == START:
        return topic.state.trimmed_to
    if text == END:
        return topic.state.last_id
    return EntryId(max(first_at(text, topic.clock.now_ns()) - 1, ids.FIRST))


def check_moment(text: str, now_ns: int) -> str:
    """Raises: BadOption, BadTopic unless it is one, or ``start`` or ``end``."""
    if text not in (START, END):
        first_at(text, now_ns)
    return text


def _ms(text: str, now_ns: int) -> int:
    """Rounded down: ids have no finer time, and none may be missed."""
    text = text.strip()
    if _DIGITS(text):
        if len(text) <= _MS_DIGITS:
            return int(text)
        if len(text) in _NS_DIGITS:
            return int(text) // 1_000_000
        raise BadOption(f"{text[:40]!r} is neither milliseconds nor nanoseconds since 1970", hint=_HINT)
    if ago := _AGO(text):
        return max(now_ns - int(parse_duration(ago[1] + ago[2]) * 10**9), 0) // 1_000_000
    try:
        return max(parse_time(text + ":00" if _TO_THE_MINUTE(text) else text), 0) // 1_000_000
    except (BadOption, ValueError, OverflowError):
        raise BadOption(f"{text[:60]!r} is not a time", hint=_HINT) from None


def time_of(id: EntryId | None) -> int | None:
    """The time in an id, in nanoseconds since 1970; None: its publisher chose one that is no time."""
    if id is None:
        return None
    time_ns = ids.ms_of(id) * 1_000_000
    return time_ns if time_ns <= _MOST_NS else None


def id_text(id: EntryId) -> str:
    return ids.show(id).decode()


# -- those who wait ----------------------------------------------------------------------------------------------------


async def tell_waiting(place: Place, name: bytes, *, is_gone: bool = False) -> None:
    """Let clients of the RESP door that wait for this topic look again. ``is_gone``: it was deleted."""
    door = place.inside.resp
    if door is None:
        return

    def tell() -> None:
        door.house.changed(name)
        if is_gone:
            door.house.forget_closed()

    with suppress(NotReady):  # the doors are closing: whoever waited is sent away
        await place.on_loop(tell)
