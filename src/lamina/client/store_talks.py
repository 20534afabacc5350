"""What is said to a server about its store, without a socket (talking.py), and what the answers mean.

A session is asked for once: when its answer is lost nobody knows whether it was done, and doing it again could put an
old value over a newer one. All reads may be repeated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from lamina.client.queue_talks import WAIT_S, only_inside, pairs_of
from lamina.client.talking import Ask, Reply, Talk, Word, ask, fine
from lamina.engines.store.api import StorageInfo, check_place
from lamina.engines.store.catalog import Catalog
from lamina.engines.store.cleaning import CleanUp
from lamina.engines.store.codec import Version
from lamina.engines.store.compactions import CompactionReport
from lamina.engines.store.rotation import Rotated
from lamina.engines.store.view import Found
from lamina.errors import BadEntry, BadOption

PAGE: Final = 1000
"""Entries that are asked for at once; a server gives fewer if they are large."""
_LONG_S: Final = 86_400.0  # a compaction, a read of many files: longer than anybody waits
_DURABLE_S: Final = 60.0  # an epoch lasts for milliseconds, and a disk that is busy for seconds
_PER_ENTRY: Final = 5


class Epochs(NamedTuple):
    current: int
    durable: int


class Page(NamedTuple):
    entries: list[Found]
    following: bytes | None
    """Where the next one begins."""


# -- writing ----------------------------------------------------------------------------------------------------------


def write(words: Sequence[Word], *, waits: bool) -> Talk[int]:
    """A session: its epoch. Without words there is nothing to write."""
    if not words:
        return (yield from epochs()).durable
    reply = yield from ask(*words, *(() if waits else ("NOWAIT",)), wait=_DURABLE_S if waits else 0)
    return int(reply)


# -- reading ----------------------------------------------------------------------------------------------------------


def entry(storage: int, key: bytes, epoch: int | None = None) -> Talk[Found | None]:
    check_place(storage, key)
    words = ("S.GET", storage, key, "FULL", *_as_of(epoch))
    reply = yield from ask(*words, wait=0 if epoch is None else _LONG_S, may_repeat=True)
    return None if reply is None else _found(storage, [key, *reply])


def page(storage: int, start: bytes, end: bytes | None, epoch: int) -> Talk[Page]:
    """Of the store as it was. Raises: TooOld, if that is not to be had any more."""
    check_place(storage, start)
    if end is not None and type(end) is not bytes:
        raise TypeError("keys are bytes")
    to: tuple[Word, ...] = () if end is None else ("TO", end)
    words = ("S.SCAN", storage, "FROM", start, *to, "COUNT", PAGE, "FULL", *_as_of(epoch))
    following, flat = yield from ask(*words, wait=_LONG_S, may_repeat=True)
    entries = [_found(storage, flat[at : at + _PER_ENTRY]) for at in range(0, len(flat), _PER_ENTRY)]
    return Page(entries, following)


def snapshot(moment: str | None = None) -> Talk[int]:
    """The epoch by which it is read. ``moment``: as it was then. Raises: TooOld, BadEntry."""
    words: tuple[Word, ...] = () if moment is None else ("ASOF", moment)
    return int((yield from ask("S.SNAPSHOT", *words, wait=_LONG_S, may_repeat=True)))


def moment_of(epoch: int | None, time_ns: int | None) -> str:
    """Raises: BadEntry."""
    if (epoch is None) == (time_ns is None):
        raise BadEntry("as of what?", hint="give an epoch or a time")
    given = epoch if epoch is not None else time_ns
    if type(given) is not int or given < 0:
        raise BadEntry(f"{given!r} is no {'epoch' if time_ns is None else 'time'}", hint="give a number")
    return str(epoch) if epoch is not None else f"{time_ns}ns"


def storages(epoch: int | None = None) -> Talk[list[StorageInfo]]:
    reply = yield from ask("S.STORAGES", "FULL", *_as_of(epoch), wait=_LONG_S, may_repeat=True)
    return [StorageInfo(int(storage), entries, bool(is_added)) for storage, entries, is_added in reply]


def _as_of(epoch: int | None) -> tuple[Word, ...]:
    return () if epoch is None else ("ASOF", epoch)


def _found(storage: int, words: Sequence[Any]) -> Found:
    key, value, major, minor, time_ns = words
    return Found(storage, key, value, Version(int(major), int(minor)), int(time_ns))


# -- epochs -----------------------------------------------------------------------------------------------------------


def epochs() -> Talk[Epochs]:
    facts = pairs_of((yield from ask("S.EPOCH", may_repeat=True)))
    return Epochs(int(facts["current"]), int(facts["durable"]))


def switch(epoch: int | None) -> Talk[int]:
    words = () if epoch is None else (_number(epoch),)
    return int((yield from ask("S.SWITCH", *words, may_repeat=epoch is None)))


def wait_durable(epoch: int, timeout: float | None, now: Callable[[], float]) -> Talk[None]:
    """Raises: TimeoutError; what kept it from being durable."""
    end = math.inf if timeout is None else now() + timeout
    while True:
        left = min(max(end - now(), 0.0), WAIT_S)
        words = ("S.WAIT", _number(epoch), "BLOCK", max(math.ceil(left * 1000), 1))
        (reply,) = yield Ask([words], left, may_repeat=True)
        if fine(reply) is not None:
            return
        if now() >= end:
            raise TimeoutError(f"epoch {epoch} is not durable yet")


def _number(epoch: int) -> int:
    if type(epoch) is not int or epoch < 0:
        raise BadEntry(f"{epoch!r} is no epoch", hint="give a number")
    return epoch


# -- looking after it -------------------------------------------------------------------------------------------------


def rotate(timeout: float | None) -> Talk[Rotated]:
    """Raises: TimeoutError; Stopped, StorageError."""
    block: tuple[Word, ...] = () if timeout is None else ("BLOCK", max(math.ceil(timeout * 1000), 1))
    reply = yield from ask("S.ROTATE", *block, wait=_LONG_S if timeout is None else timeout)
    if reply is None:
        raise TimeoutError("the files are not rotated yet")
    epoch, files, new = reply
    return Rotated(int(epoch), _names(files), _names(new))


def compact() -> Talk[CompactionReport]:
    facts = pairs_of((yield from ask("S.COMPACT", wait=_LONG_S)))
    values: dict[str, Any] = {
        name.replace("-", "_"): _names(value) if name == "inputs" else float(value) if name == "seconds" else int(value)
        for name, value in facts.items()
    }
    return CompactionReport(**values)


def cancel_compaction() -> Talk[bool]:
    return bool((yield from ask("S.COMPACT", "STOP")))


def clean_up(keep_after_epoch: int | None) -> Talk[CleanUp]:
    """Of the catalog only the generation and the epoch are told."""
    words = () if keep_after_epoch is None else ("KEEP", _number(keep_after_epoch))
    facts = pairs_of((yield from ask("S.CLEAN", *words, wait=_LONG_S)))
    catalog = Catalog(generation=int(facts["generation"]), epoch=int(facts["epoch"]))
    return CleanUp(list(_names(facts["removed"])), int(facts["removed-bytes"]), list(_names(facts["kept"])), catalog)


def _names(reply: Reply) -> tuple[str, ...]:
    return tuple(name.decode() for name in reply)


# -- what is not over the wire ----------------------------------------------------------------------------------------


def no_range_of_all() -> BadEntry:
    return BadEntry("start and end are of one storage", hint="name the storage, or scan all of them from the beginning")


def no_progress() -> BadOption:
    return only_inside("the progress of a compaction", 'compact without it; "lamina store compact DIR" shows it')


def no_channel() -> BadOption:
    return only_inside("a channel of one's own", "use session(): a server shares its channels among all clients")


def no_callback() -> BadOption:
    return only_inside("a callback for epochs", "use wait_durable(epoch)")


def no_back_up() -> BadOption:
    return only_inside("a backup into a folder", 'run "lamina store backup" or "lamina backup" where the server is')
