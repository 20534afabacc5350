"""Changing the store over HTTP: an entry, the epoch, and its files."""

from __future__ import annotations

import base64
import binascii
import logging
import threading
from contextlib import suppress
from typing import Annotated, Final, Literal

import msgspec

from lamina.engines.store import cleaning
from lamina.engines.store.api import Store, check_place
from lamina.errors import BadOption, LaminaError, NotReady
from lamina.server.http.names import read_name, show_name
from lamina.server.http.operations import Changes, Done, Payload, Place, Plan
from lamina.server.http.ops.store_place import Key, Storage, counts_of, opened_store, past_of, store_of
from lamina.units import show_bytes

logger = logging.getLogger("lamina.store")

_LONGEST_S: Final = 30.0  # that an answer waits for the end of an epoch
_BEGIN_S: Final = 0.2  # that one waits for a compaction to begin
_SHOWN: Final = 20  # files that a plan names


class PutAsks(Changes, frozen=True, kw_only=True):
    """What to put where."""

    storage: Storage
    key: Key
    value: Payload = ""
    encoding: Literal["text", "hex", "base64"] = "text"
    """How the value is written here."""
    newlines: Literal["as_is", "lf"] = "as_is"
    """``lf``: ends of lines that a browser sends as two characters become one, as they were typed."""


class RemoveAsks(Changes, frozen=True, kw_only=True):
    """Which entry goes."""

    storage: Storage
    key: Key


class NothingMore(Changes, frozen=True, kw_only=True):
    """Nothing more."""


class CompactAsks(Changes, frozen=True, kw_only=True):
    """How."""

    wait: bool = False
    """Answer when it has ended, not when it has begun."""


class CleanAsks(Changes, frozen=True, kw_only=True):
    """What stays."""

    keep_epoch: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Reads as of this epoch and later ones stay possible, if they are now; none: those of the recent past,
    as the setting ``server.history_s`` asks for."""


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"


def _bytes(asked: PutAsks) -> bytes:
    """Raises: BadOption."""
    try:
        if asked.encoding == "hex":
            return bytes.fromhex(asked.value)
        if asked.encoding == "base64":
            return base64.b64decode(asked.value, validate=True)
        text = asked.value.replace("\r\n", "\n") if asked.newlines == "lf" else asked.value
        return text.encode()
    except (ValueError, binascii.Error):
        raise BadOption(f"value: it is not {asked.encoding}", hint="say with encoding how it is written") from None


def _of_key(asked: PutAsks | RemoveAsks) -> tuple[bytes, str]:
    """The key, and how it is told. Raises: BadName, BadEntry."""
    key = read_name(asked.key)
    check_place(asked.storage, key)
    return key, f"the key {show_name(key)[:200]!r} of storage {asked.storage}"


# -- entries -----------------------------------------------------------------------------------------------------------


async def plan_put(place: Place, asked: PutAsks) -> Plan:
    place.check("store", "write", str(asked.storage))
    (key, which), value = _of_key(asked), _bytes(asked)
    store = place.inside.find_store()
    if store is None:
        place.is_there(place.inside.resp)
        return Plan(
            will=f"make the store, and put {show_bytes(len(value))} into {which}",
            details=["The store was never used: its folder is made now."],
            count=1,
        )
    found = await place.in_thread(store.entry, asked.storage, key)
    if found is None:
        return Plan(will=f"put {show_bytes(len(value))} into {which}", details=["It holds nothing now."], count=1)
    return Plan(
        will=f"put {show_bytes(len(value))} into {which}",
        details=[f"It holds {show_bytes(len(found.value))} now, which the past keeps for as long as files reach back."],
        warning="What it holds now is replaced.",
        count=1,
    )


async def do_put(place: Place, asked: PutAsks) -> Done:
    place.check("store", "write", str(asked.storage))
    (key, which), value = _of_key(asked), _bytes(asked)
    store = await opened_store(place)
    epoch = await place.in_thread(store.put, asked.storage, key, value)
    counts_of(store).forget()
    return Done(did=f"put {show_bytes(len(value))} into {which}, durable with epoch {epoch}", count=1)


async def plan_remove(place: Place, asked: RemoveAsks) -> Plan:
    place.check("store", "write", str(asked.storage))
    key, which = _of_key(asked)
    found = await place.in_thread(store_of(place).entry, asked.storage, key)
    if found is None:
        return Plan(will=f"change nothing: {which} holds nothing", count=0)
    return Plan(
        will=f"take {which} away, which holds {show_bytes(len(found.value))}",
        details=["The past keeps it for as long as files reach back."],
        warning="From then on it is not there.",
        count=1,
    )


async def do_remove(place: Place, asked: RemoveAsks) -> Done:
    place.check("store", "write", str(asked.storage))
    key, which = _of_key(asked)
    store = store_of(place)
    epoch = await place.in_thread(store.remove, asked.storage, key)
    counts_of(store).forget()
    return Done(did=f"took {which} away, durable with epoch {epoch}", count=1)


# -- epochs and files --------------------------------------------------------------------------------------------------


async def plan_switch(place: Place, asked: NothingMore) -> Plan:
    place.check_some("store", "write")
    epoch = store_of(place).epoch
    return Plan(will=f"end epoch {epoch}; what was written in it becomes durable, and epoch {epoch + 1} begins")


async def do_switch(place: Place, asked: NothingMore) -> Done:
    place.check_some("store", "write")
    store = store_of(place)

    def switch() -> int:
        following = store.switch_epoch()
        store.wait_durable(following - 1, _LONGEST_S)
        return following

    try:
        following = await place.in_thread(switch)
    except TimeoutError:
        raise _too_slow("the epoch was ended, but is not durable yet") from None
    return Done(did=f"epoch {following - 1} is durable, epoch {following} has begun")


def _too_slow(what: str) -> NotReady:
    return NotReady(what, hint="a session that is open keeps it; it happens when that ends")


async def plan_rotate(place: Place, asked: NothingMore) -> Plan:
    place.check("store", "admin")
    store = store_of(place)
    size = await place.in_thread(store.engine.logged_bytes)
    return Plan(
        will=f"end epoch {store.epoch}, and begin new files for what is written from then on",
        details=[f"{show_bytes(size)} are in files that no compaction has taken yet."],
    )


async def do_rotate(place: Place, asked: NothingMore) -> Done:
    place.check("store", "admin")
    store = store_of(place)
    try:
        rotated = await place.in_thread(store.rotate, _LONGEST_S)
    except TimeoutError:
        raise _too_slow("the files are not rotated yet") from None
    return Done(did=f"rotated {_files(len(rotated.new))} behind epoch {rotated.epoch}", count=len(rotated.new))


async def plan_compact(place: Place, asked: CompactAsks) -> Plan:
    place.check("store", "admin")
    store = store_of(place)
    if store.compactions.running is not None:
        return Plan(will="change nothing: a compaction is going on", count=0)
    logged = await place.in_thread(store.engine.logged_bytes)
    parts = store.engine.catalog.parts
    return Plan(
        will=f"merge {show_bytes(logged)} of files into sorted ones that have "
        f"{show_bytes(sum(part.bytes for part in parts))} now",
        details=[
            "In a process of its own; clients go on meanwhile, and it can be given up at any time.",
            "Former files stay until they are cleaned up.",
        ],
    )


async def do_compact(place: Place, asked: CompactAsks) -> Done:
    place.check("store", "admin")
    store = store_of(place)
    if asked.wait:
        report = await place.in_thread(store.compact)
        if not report.inputs:
            return Done(did="nothing: no file is new since the last compaction", count=0)
        return Done(
            did=f"merged {_files(len(report.inputs))}: {show_bytes(report.bytes_before)} before, "
            f"{show_bytes(report.bytes_after)} after",
            count=len(report.inputs),
        )
    if store.compactions.running is not None:
        return Done(did="nothing: a compaction is going on", count=0)
    thread = threading.Thread(target=_compact, args=(store,), name="lamina-store-asked", daemon=True)
    thread.start()
    await place.in_thread(thread.join, _BEGIN_S)
    return Done(did="began to compact: how far it is and how it ends is among the compactions", count=1)


def _compact(store: Store) -> None:
    try:
        store.compact()
    except LaminaError as error:  # who looks finds it among the runs
        logger.warning("a compaction ended: %s", error)


async def plan_cancel(place: Place, asked: NothingMore) -> Plan:
    place.check("store", "admin")
    if store_of(place).compactions.running is None:
        return Plan(will="change nothing: no compaction is going on", count=0)
    return Plan(will="give up the compaction that is going on; the next one goes on from there", count=1)


async def do_cancel(place: Place, asked: NothingMore) -> Done:
    place.check("store", "admin")
    was_there = await place.in_thread(store_of(place).cancel_compaction)
    did = "gave up the compaction" if was_there else "nothing: no compaction was going on"
    return Done(did=did, count=int(was_there))


async def plan_clean(place: Place, asked: CleanAsks) -> Plan:
    place.check("store", "admin")
    store = store_of(place)
    engine = store.engine

    def look() -> list[tuple[str, int]]:
        return cleaning.obsolete(
            engine.files,
            engine.folder,
            engine.catalog,
            keep=list(engine.runs),
            keep_after_epoch=asked.keep_epoch,
            history=store.compactions.history,
            now_ns=engine.clock.now_ns(),
        )

    goes, keep = await place.in_thread(look), asked.keep_epoch
    details = [f"{name}: {show_bytes(size)}" for name, size in goes[:_SHOWN]]
    if len(goes) > _SHOWN:
        details.append(f"and {len(goes) - _SHOWN} more")
    reach = f"before epoch {engine.catalog.epoch if keep is None else min(keep, engine.catalog.epoch)}"
    if keep is None and store.compactions.history.keep_s:
        reach = "before the recent past that is kept (history_s)"
    return Plan(
        will=f"remove {_files(len(goes))} that compactions made obsolete, {show_bytes(sum(size for _, size in goes))}",
        details=details,
        warning=f"The store can then no longer be read as it was {reach}." if goes else "",
        count=len(goes),
    )


async def do_clean(place: Place, asked: CleanAsks) -> Done:
    place.check("store", "admin")
    store = store_of(place)
    if store.compactions.running is not None:
        raise NotReady("a compaction is going on", hint="clean up when it has ended")
    keep = asked.keep_epoch
    done = await place.in_thread(lambda: store.compactions.clean_up(keep, keeps_recent=keep is None))
    await place.in_thread(past_of(store).forget)
    with suppress(NotReady):
        await place.on_loop(_forget_past, place)
    kept = f"; kept {_files(len(done.kept))}" if done.kept else ""
    did = f"removed {_files(len(done.removed))}, {show_bytes(done.bytes)}{kept}"
    return Done(did=did, count=len(done.removed))


def _forget_past(place: Place) -> None:
    """Or views that clients had asked for would keep files that were removed."""
    door = place.inside.resp
    house = None if door is None else door.house.store
    if house is not None and house.opened_store is not None:
        house.past.forget()
