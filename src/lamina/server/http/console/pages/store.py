"""Pages of the store: what is in it now, and as it was; its epochs, files and compactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lamina.errors import NotThere, TooOld
from lamina.server.http.console.page import Page
from lamina.server.http.console.pages.queues import port_of
from lamina.server.http.operations import Asks, Place
from lamina.server.http.ops import store, store_looking


async def _store(place: Place, asked: Asks) -> Mapping[str, object]:
    found = await store.SHOW.do(place, asked)
    files = await store.FILES.do(place, asked) if found.is_open and place.may(*store_looking.RIGHT) else None
    return {"found": found, "files": files, **_may(place)}


async def _scan(place: Place, asked: store_looking.ScanAsks) -> Mapping[str, object]:
    """Entries stand still: a page of the past must not be read from files again and again."""
    found, too_old = None, None
    try:
        found = await store.SCAN.do(place, asked)
    except TooOld as problem:
        too_old = problem
    except NotThere:  # the store was never used
        pass
    return {"found": found, "too_old": too_old, **_entry_values(place, asked.storage)}


async def _key(place: Place, asked: store_looking.KeyAsks) -> Mapping[str, object]:
    found, too_old = None, None
    try:
        found = await store.KEY.do(place, asked)
    except TooOld as problem:
        too_old = problem
    except NotThere:
        pass
    before = None
    if found is not None and found.entry is not None:
        major = int(found.entry.version.partition(".")[0])
        if 0 < major <= found.epoch:  # who chose versions of its own may have chosen any
            before = major - 1
    return {"found": found, "too_old": too_old, "before": before, **_entry_values(place, asked.storage)}


async def _compactions(place: Place, asked: Asks) -> Mapping[str, object]:
    return {"found": await store.COMPACTIONS.do(place, asked), **_may(place)}


def _entry_values(place: Place, storage: int) -> dict[str, object]:
    return {"still": True, "may_write": place.may("store", "write", str(storage)), "port": port_of(place)}


def _may(place: Place) -> dict[str, object]:
    return {
        "may_write": place.user.may_some("store", "write"),
        "may_admin": place.may("store", "admin"),
        "port": port_of(place),
    }


PAGES: Final[tuple[Page, ...]] = (
    Page(
        path="/store",
        section="store",
        template="store/store.html",
        asks=Asks,
        shows=_store,
        right=store_looking.RIGHT,
    ),
    Page(
        path="/store/scan",
        section="store",
        template="store/scan.html",
        asks=store_looking.ScanAsks,
        shows=_scan,
        right=store_looking.RIGHT,
    ),
    Page(
        path="/store/key",
        section="store",
        template="store/key.html",
        asks=store_looking.KeyAsks,
        shows=_key,
        right=store_looking.RIGHT,
    ),
    Page(
        path="/store/compactions",
        section="store",
        template="store/compactions.html",
        asks=Asks,
        shows=_compactions,
        right=store_looking.RIGHT,
    ),
)
