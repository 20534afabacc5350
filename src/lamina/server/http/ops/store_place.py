"""The store of a server, for operations: whether it is open, moments of its past, and how much is in it.

Reading the past reads files, and counting reads entries: both are done by one thread at a time, and what they found is
kept for a while, so that a page that is looked at again and again costs little.
"""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from itertools import islice
from typing import Annotated, Final, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from lamina.engines.store import as_of, codec
from lamina.engines.store.api import Store
from lamina.engines.store.view import Snapshot
from lamina.errors import BadEntry, BadOption, NotThere
from lamina.server.http.operations import Place
from lamina.units import parse_time

Storage = Annotated[int, msgspec.Meta(ge=0)]
"""The number of one."""
ShownStorage = int | str
"""The same in an answer: text from where signed numbers of 64 bits end, as many who read JSON cannot hold more."""
Key = Annotated[str, msgspec.Meta(max_length=1 << 16)]
"""As text, or ``hex:`` and two digits a byte."""
AsOf = Annotated[str, msgspec.Meta(max_length=80)]
"""An epoch (``17``), a time (``2026-11-15T06:26:40Z``, ``1794725200506ms``) or how long ago (``-5m``); empty: now."""

_KEPT: Final = 2  # moments of the past
_KEPT_S: Final = 30.0
_COUNT_S: Final = 0.08  # that counting takes at most, or so
_AGAIN_S: Final = 5.0  # and how often it is done,
_SHARE: Final = 50  # nor for more than this part of the time
_MOST_STORAGES: Final = 1000
_LOOK: Final = 256  # entries between two looks at the clock
_EPOCH: Final = re.compile(r"[0-9]{1,20}")
_SMALL_TIME: Final = re.compile(r"([0-9]{1,20})(ms|ns)")

_pasts: WeakKeyDictionary[Store, Past] = WeakKeyDictionary()
_counts: WeakKeyDictionary[Store, Counts] = WeakKeyDictionary()


def shown_storage(storage: int) -> ShownStorage:
    return storage if storage < 1 << 63 else str(storage)


def store_of(place: Place) -> Store:
    """Raises: NotReady while the server starts or stops; NotThere if it was never used."""
    store = place.inside.find_store()
    if store is None:
        if place.inside.life.phase != "ready":
            place.is_there(None)
        raise NotThere("the store was never used: it is made by the first write", hint="S.WRITE 1 PUT key value")
    return store


async def opened_store(place: Place) -> Store:
    """The same; one that is not there yet is made. Raises: NotReady; what opening it does."""
    if place.inside.find_store() is None:
        door = place.inside.resp
        house = None if door is None else door.house.store
        if house is None:
            place.is_there(None)
        else:
            await place.in_thread(house.opened)
    return store_of(place)


# -- the past ----------------------------------------------------------------------------------------------------------


class Moment(NamedTuple):
    """An epoch, or a time."""

    epoch: int = 0
    time_ns: int | None = None


def moment_of(text: str) -> Moment | None:
    """None: now. Raises: BadOption."""
    text = text.strip()
    if not text:
        return None
    if _EPOCH.fullmatch(text):
        return Moment(int(text))
    if small := _SMALL_TIME.fullmatch(text):
        return Moment(time_ns=int(small[1]) * (1_000_000 if small[2] == "ms" else 1))
    try:
        return Moment(time_ns=parse_time(text))
    except (BadOption, OverflowError, ValueError):
        raise BadOption(
            f"as_of: {text[:60]!r} is neither an epoch nor a time",
            hint="write 17 (an epoch), 2026-11-15T06:26:40Z, 1794725200506ms or -5m",
        ) from None


class View(NamedTuple):
    """The store at one moment."""

    epoch: int
    snapshot: Snapshot


class Past:
    """The last moments that were asked for. Threads: safe from any; who comes second waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._views: OrderedDict[int, Snapshot] = OrderedDict()
        self._timer: threading.Timer | None = None

    def at(self, store: Store, moment: Moment) -> View:
        """Raises: TooOld; BadEntry for what is yet to come; Corruption, DiskError."""
        with self._lock:
            epoch = moment.epoch
            if moment.time_ns is not None:
                epoch = _epoch_at(store, moment.time_ns)
            view = self._views.pop(epoch, None)
            if view is None:
                view = store.as_of(epoch=epoch)
            self._views[epoch] = view
            while len(self._views) > _KEPT:
                self._views.popitem(last=False)
            self._forget_later()
            return View(epoch, view)

    def _forget_later(self) -> None:
        """They hold memory, and files that were removed."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(_KEPT_S, self.forget)
        self._timer.daemon = True
        self._timer.start()

    def forget(self) -> None:
        with self._lock:
            self._views.clear()


def _epoch_at(store: Store, time_ns: int) -> int:
    if time_ns > store.engine.clock.now_ns():
        raise BadEntry("that moment is yet to come", hint="give a time that has passed")
    return min(as_of.epoch_at(store.engine, time_ns), store.engine.last_epoch)


def past_of(store: Store) -> Past:
    return _pasts.setdefault(store, Past())


def view_of(store: Store, moment: Moment | None) -> View:
    """In a thread. Raises: as ``Past.at``."""
    if moment is None:
        return View(*store.engine.pinned())
    return past_of(store).at(store, moment)


# -- how much there is -------------------------------------------------------------------------------------------------


class Counted(NamedTuple):
    """One storage."""

    storage: int
    keys: int
    bytes: int
    """Of keys and values."""
    is_all: bool
    """False: there are more than could be counted in the time."""
    is_added: bool


class Counts:
    """How much is in each storage, a moment ago. Threads: safe from any; who comes second waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: tuple[int, int] | None = None
        self._found: list[Counted] = []
        self._again_at = 0.0

    def of(self, store: Store) -> list[Counted]:
        """Raises: Corruption, DiskError."""
        with self._lock:
            now = time.monotonic()
            present = store.last_epoch, store.engine.catalog.generation
            if self._of is None or (present != self._of and now >= self._again_at):
                self._found = _count(store)
                self._of = present
                self._again_at = now + max(_AGAIN_S, (time.monotonic() - now) * _SHARE)
            return self._found

    def forget(self) -> None:
        """Something was changed by the one who looks."""
        with self._lock:
            self._of = None


def counts_of(store: Store) -> Counts:
    return _counts.setdefault(store, Counts())


def _count(store: Store) -> list[Counted]:
    snapshot = store.snapshot()
    added = {storage for storage, (_, is_there) in snapshot.storages.there.items() if is_there}
    numbers, at = set(added), 0
    end = time.monotonic() + _COUNT_S
    while len(numbers) < _MOST_STORAGES and time.monotonic() < end:
        first = next(snapshot.scan(None, codec.place(at, b"")), None)
        if first is None:
            break
        numbers.add(first.storage)
        if first.storage == codec.MOST:
            break
        at = first.storage + 1
    found = []
    for left, number in zip(range(len(numbers), 0, -1), sorted(numbers), strict=True):
        now = time.monotonic()
        found.append(_count_one(snapshot, number, now + max(end - now, 0) / left, number in added))
    return found


def _count_one(snapshot: Snapshot, storage: int, end: float, is_added: bool) -> Counted:
    keys = size = 0
    entries = snapshot.scan(storage)
    while some := list(islice(entries, _LOOK)):
        keys += len(some)
        size += sum(len(entry.key) + len(entry.value) for entry in some)
        if time.monotonic() >= end:
            return Counted(storage, keys, size, next(entries, None) is None, is_added)
    return Counted(storage, keys, size, True, is_added)
