"""Operations on the store."""

from __future__ import annotations

from typing import Final

from lamina.server.http.operations import AnyOperation, Asks, Done, Operation
from lamina.server.http.ops import store_doing as doing
from lamina.server.http.ops import store_looking as looking

_DISK: Final = ("disk_full", "disk_error", "log_failed")
_READ: Final = ("bad_entry", "bad_name", "too_old", "corruption", "disk_error", "log_closed")

SHOW: Final = Operation(
    name="store.show",
    method="GET",
    path="/store",
    summary="Storages, epochs and how large the store is",
    right=looking.RIGHT,
    asks=Asks,
    gives=looking.StoreFacts,
    do=looking.show_store,
    errors=("corruption", "disk_error", "log_closed"),
)
SCAN: Final = Operation(
    name="store.scan",
    method="GET",
    path="/store/scan",
    summary="Entries of a storage, now or as they were",
    right=looking.RIGHT,
    asks=looking.ScanAsks,
    gives=looking.Entries,
    do=looking.scan,
    errors=_READ,
)
KEY: Final = Operation(
    name="store.key",
    method="GET",
    path="/store/key",
    summary="What a key holds, now or as it was",
    right=looking.RIGHT,
    asks=looking.KeyAsks,
    gives=looking.KeyFacts,
    do=looking.show_key,
    errors=_READ,
)
FILES: Final = Operation(
    name="store.files",
    method="GET",
    path="/store/files",
    summary="The files of the store",
    right=looking.RIGHT,
    asks=Asks,
    gives=looking.Files,
    do=looking.list_files,
    errors=("disk_error",),
)
COMPACTIONS: Final = Operation(
    name="store.compactions",
    method="GET",
    path="/store/compactions",
    summary="Compactions: the one that is going on, and those that have ended",
    right=looking.RIGHT,
    asks=Asks,
    gives=looking.Compactions,
    do=looking.list_compactions,
    errors=("disk_error",),
)
PUT: Final = Operation(
    name="store.put",
    method="POST",
    path="/store/put",
    summary="Put a value into a key of the store",
    right=("store", "write"),
    asks=doing.PutAsks,
    gives=Done,
    do=doing.do_put,
    plan=doing.plan_put,
    target=lambda asked: f"storage {asked.storage}",
    hidden=("value",),
    errors=(*_DISK, "bad_entry", "bad_name", "corruption", "log_closed", "log_locked"),
)
REMOVE: Final = Operation(
    name="store.remove",
    method="POST",
    path="/store/remove",
    summary="Take a key of the store away",
    right=("store", "write"),
    asks=doing.RemoveAsks,
    gives=Done,
    do=doing.do_remove,
    plan=doing.plan_remove,
    target=lambda asked: f"storage {asked.storage}",
    errors=(*_DISK, "bad_entry", "bad_name", "corruption", "log_closed"),
)
SWITCH: Final = Operation(
    name="store.switch_epoch",
    method="POST",
    path="/store/switch_epoch",
    summary="End the present epoch of the store",
    right=("store", "write"),
    asks=doing.NothingMore,
    gives=Done,
    do=doing.do_switch,
    plan=doing.plan_switch,
    errors=(*_DISK, "log_closed"),
)
ROTATE: Final = Operation(
    name="store.rotate",
    method="POST",
    path="/store/rotate",
    summary="Begin new files of the store",
    right=("store", "admin"),
    asks=doing.NothingMore,
    gives=Done,
    do=doing.do_rotate,
    plan=doing.plan_rotate,
    errors=(*_DISK, "log_closed", "stopped"),
)
COMPACT: Final = Operation(
    name="store.compact",
    method="POST",
    path="/store/compact",
    summary="Compact the store",
    right=("store", "admin"),
    asks=doing.CompactAsks,
    gives=Done,
    do=doing.do_compact,
    plan=doing.plan_compact,
    errors=(*_DISK, "corruption", "wrong_format", "stopped"),
)
CANCEL: Final = Operation(
    name="store.cancel",
    method="POST",
    path="/store/cancel",
    summary="Give up the compaction of the store that is going on",
    right=("store", "admin"),
    asks=doing.NothingMore,
    gives=Done,
    do=doing.do_cancel,
    plan=doing.plan_cancel,
    errors=_DISK,
)
CLEAN: Final = Operation(
    name="store.clean",
    method="POST",
    path="/store/clean",
    summary="Remove files of the store that compactions made obsolete",
    right=("store", "admin"),
    asks=doing.CleanAsks,
    gives=Done,
    do=doing.do_clean,
    plan=doing.plan_clean,
    errors=(*_DISK, "bad_entry", "corruption", "log_closed"),
)
OPERATIONS: Final[tuple[AnyOperation, ...]] = (
    SHOW,
    SCAN,
    KEY,
    FILES,
    COMPACTIONS,
    PUT,
    REMOVE,
    SWITCH,
    ROTATE,
    COMPACT,
    CANCEL,
    CLEAN,
)
