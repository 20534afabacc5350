"""The journal of one queue, read and not touched: also while a server writes to it.

What opening a folder would heal is left as it is: the last whole line of queue.log counts, and as much of the message
files as it names. A server may take a file away between two of our steps; then its new line says where to go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from lamina.engines.queues.journal import copies, records, state_line
from lamina.engines.queues.journal.extents import extents
from lamina.engines.queues.journal.state_line import Parsed, StateLine
from lamina.engines.queues.journal.state_log import NAME
from lamina.engines.queues.message import Message
from lamina.log.files import File, Files, join, read_at
from lamina.log.frame import Stop
from lamina.log.scan import HEADER_SIZE, read_whole

_TAIL: Final = 4096
_TRIES: Final = 10

MISSING: Final = "a message file is missing"
NO_STATE: Final = "no line of queue.log can be read"
OLD_STATE: Final = "queue.log cannot be read, this is from an older copy"
BUSY: Final = "it changes too quickly to be read"
UNREADABLE: Final = "messages that cannot be read"


@dataclass(slots=True)
class Peeked:
    """What waits in a folder."""

    size: int = 0
    """Markers included, and what cannot be read."""
    is_closed: bool = False
    """It ends with a marker: a sender met the quota."""
    head: Message | None = None
    problem: str = ""
    """What is odd about it; a server that opens it heals and tells that."""


def peek(files: Files, folder: str) -> Peeked:
    """How many messages wait, and the first one. Raises: OSError, DiskError."""
    with _opened(files, folder) as found:
        if found is None:
            return Peeked()
        if not found.is_counted:
            return _counted(found)
        state = found.state
        peeked = Peeked(state.size, bool(state.size) and not state.can_write, _head(found), found.problem)
        if state.size and peeked.head is None and not peeked.problem:
            peeked.problem = UNREADABLE
        return peeked


def waiting(files: Files, folder: str, most: int | None = None) -> tuple[list[Message], str]:
    """All messages that wait, in order, or the first ``most``; and what is odd about them.

    Raises: OSError, DiskError.
    """
    with _opened(files, folder) as found:
        if found is None:
            return [], ""
        messages = _held(found, most)[:most]
        readable = [message for message in messages if message is not None]
        return readable, found.problem or (UNREADABLE if len(readable) < len(messages) else "")


# -- one folder ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Found:
    state: StateLine
    is_counted: bool
    """All fields of the state were given."""
    read: File | None
    write: File | None
    problem: str


@contextmanager
def _opened(files: Files, folder: str) -> Iterator[_Found | None]:
    """The state of a queue and its files, as they were together at one moment. None: nothing waits there."""
    parsed, problem = None, ""
    for _ in range(_TRIES):
        before = parsed
        parsed, problem = _state(files, folder)
        if parsed is None or (parsed.is_whole and not parsed.state.size):
            yield None if not problem else _Found(StateLine.fresh(""), True, None, None, problem)
            return
        with ExitStack() as stack:
            state = parsed.state
            read = _open(files, folder, state.read_file, stack)
            write = read if state.is_one_file else _open(files, folder, state.write_file, stack)
            if (read is None or write is None) and parsed != before:
                continue  # was it taken away just now? Then there is a new line
            is_odd = read is None or write is None
            yield _Found(state, parsed.is_whole, read, write, MISSING if is_odd else problem)
            return
    yield _Found(StateLine.fresh(""), True, None, None, BUSY)


def _state(files: Files, folder: str) -> tuple[Parsed | None, str]:
    try:
        names = files.list(folder)
    except (FileNotFoundError, NotADirectoryError):
        return None, ""
    if NAME in names:
        parsed = _last_line(files, join(folder, NAME))
        if parsed is not None:
            return parsed, ""
    for name in reversed(copies.copies_among(names)):
        parsed = _last_line(files, join(folder, name))
        if parsed is not None:
            return parsed, OLD_STATE
    return None, NO_STATE if any(records.NAME.fullmatch(name) for name in names) else ""


def _last_line(files: Files, path: str) -> Parsed | None:
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    try:
        size = file.size()
        start = max(size - _TAIL, 0)
        found = state_line.last_of(read_at(file, start, size - start), is_start=start == 0)
        if found.parsed is None and start:
            found = state_line.last_of(read_at(file, 0, size), is_start=True)
        return found.parsed
    finally:
        file.close()


def _open(files: Files, folder: str, id: str, stack: ExitStack) -> File | None:
    try:
        file = files.open(join(folder, records.name_of(id)))
    except FileNotFoundError:
        return None
    stack.callback(file.close)
    return file


def _held(found: _Found, wanted: int | None = None) -> list[Message | None]:
    """All that wait; ``wanted``: at least so many, if there are."""
    state, counted = found.state, found.is_counted
    held: list[Message | None] = []
    if found.read is not None:
        end = state.write_byte if counted and state.is_one_file else None
        most = None
        if state.is_one_file:
            most = state.write_msg - state.read_msg
        elif counted:
            most = state.read_count - state.read_msg
        held += [each.message for each in extents(found.read, state.read_byte, end, wanted)[:most]]
    if found.write is not None and not state.is_one_file and (wanted is None or len(held) < wanted):
        end = state.write_byte if counted else None
        held += [each.message for each in extents(found.write, 0, end, wanted)[: state.write_msg]]
    return held


def _counted(found: _Found) -> Peeked:
    held = _held(found)
    last = held[-1] if held else None
    return Peeked(
        len(held), last is not None and last.is_marker and not last.is_loss, held[0] if held else None, found.problem
    )


def _head(found: _Found) -> Message | None:
    """The first that waits, without reading the others."""
    state = found.state
    file, at = found.read, state.read_byte
    if state.read_msg >= state.read_count:  # received to its end: the next one is in the other file
        file, at = found.write, 0
    if file is None:
        return None
    record = read_whole(file, at + HEADER_SIZE, file.size())
    return None if isinstance(record, Stop) else records.decode(record[1])
