"""Where the store of a command is, to look at beside a server or to change while there is none; what its words mean."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import click

from lamina.cli.render import progress_bar
from lamina.errors import BadEntry, BadOption, Corruption, LogLocked, from_os
from lamina.units import parse_time

if TYPE_CHECKING:
    from lamina.engines.store.api import Store
    from lamina.engines.store.looking import Looked

_MOST: Final = (1 << 64) - 1
_STOP: Final = "a server has it open: stop it first (export, get, scan, inspect, verify, gc --dry-run work beside it)"
_LIMESTONE: Final = "limestone-manifest.json"
_BACKUP: Final = "backup_manifest"

of_store = click.argument("data", metavar="DIR", type=click.Path())
of_storage = click.argument("storage", type=click.IntRange(0, _MOST))
as_of_option = click.option(
    "--as-of",
    metavar="EPOCH|TIME",
    help="As it was when that epoch was durable, or at a time: 4711, -5m, 2026-11-15.",
)
in_hex = click.option("--hex", "in_hex", is_flag=True, help="Keys and values are given and shown in hexadecimal.")


def folder_of(data: str, *, to_change: bool = False) -> str:
    """The folder of the store: ``store/`` of a data folder, or the one given if it is a store itself.

    Looking in the wrong place must not make one there. Raises: BadOption, DiskError.
    """
    names = _names(data)
    if "store" in names:
        return str(Path(data) / "store")
    if _LIMESTONE in names:
        hint = f"take it over: lamina store import {data} --to DIR"
        raise BadOption(f"{data} is a folder of limestone, not a data folder", hint=hint)
    if not _is_store(names):
        hint = "it would be in its folder store/, made by the first write, by import or by restore"
        raise BadOption(f"{data} holds no store", hint=hint)
    if to_change and _BACKUP in names:
        hint = f"make a store of it: lamina store restore {data} --to DIR"
        raise BadOption(f"{data} is a backup, which is not to be changed", hint=hint)
    return data


def new_folder_of(data: str) -> str:
    """Where a new store goes: into a data folder that has none, and may not be there. Raises: BadOption, DiskError."""
    if _is_store(_names(data, is_needed=False)):
        raise BadOption(f"{data} is a store itself, not a data folder", hint="name a new folder, or the one above it")
    return str(Path(data) / "store")


def is_there(backup: str) -> None:
    """Look at a folder that should be a backup. Raises: DiskError if it is not there, or cannot be looked at."""
    _names(backup, what="backup")


def _names(data: str, *, is_needed: bool = True, what: str = "data folder") -> set[str]:
    try:
        return {each.name for each in Path(data).iterdir()}
    except FileNotFoundError as error:
        if not is_needed:
            return set()
        raise from_os(error, f"open the {what}", data) from error
    except OSError as error:
        raise from_os(error, f"open the {what}", data) from error


def _is_store(names: set[str]) -> bool:
    return any(name in ("compaction_catalog", "epoch") or name.startswith(("epoch.", "pwal_")) for name in names)


@contextmanager
def looked_at(data: str, as_of: str | None = None) -> Iterator[Looked]:
    """What the store holds, or held; nothing is changed, and no lock is taken.

    What is in no sorted file yet is held in memory, and beyond 256 MiB in a folder for temporary files.
    Raises: BadOption, BadEntry, TooOld, Corruption, WrongFormat, DiskError.
    """
    from lamina.engines.store import hints
    from lamina.engines.store.looking import look
    from lamina.log.files.real import RealFiles

    folder = folder_of(data)
    epoch, time_ns = moment(as_of)
    try:
        with TemporaryDirectory(prefix="lamina-store-") as spill_to, progress_bar("reading the store") as progress:
            looked = look(RealFiles(), folder, epoch=epoch, time_ns=time_ns, spill_to=spill_to, progress=progress)
        with looked:
            yield looked
    except Corruption as error:
        if _BACKUP not in _names(folder):
            raise
        raise Corruption(error.file, error.offset, error.reason, hint=hints.OF_A_BACKUP) from error


@contextmanager
def opened(data: str, *, makes: bool = False, hint: str = _STOP) -> Iterator[Store]:
    """The store, to change it. Raises: LogLocked while a server has it; BadOption, Corruption, DiskError."""
    from lamina.engines.store.api import Store
    from lamina.engines.store.options import StoreOptions

    folder = folder_of(data, to_change=True) if not makes or _is_there(data) else new_folder_of(data)
    with for_itself(hint), progress_bar("reading the store") as progress:
        # Only what was asked for: a server that keeps history may have been here.
        store = Store.open(folder, options=StoreOptions(compact_dead_ratio=0), progress=progress)
    with store:
        yield store


def _is_there(data: str) -> bool:
    names = _names(data, is_needed=False)
    return "store" in names or _is_store(names)


@contextmanager
def for_itself(hint: str = _STOP) -> Iterator[None]:
    """Say what to do when the folder is not free."""
    try:
        yield
    except LogLocked as error:
        raise LogLocked(error.message, hint=hint, **error.facts) from error


# -- words -----------------------------------------------------------------------------------------------------------


def moment(text: str | None) -> tuple[int | None, int | None]:
    """An epoch, or a time in nanoseconds: a number alone is an epoch. Raises: BadOption; BadEntry for a later time."""
    if text is None:
        return None, None
    if text.isascii() and text.isdigit():
        if len(text) > 20 or int(text) > _MOST:
            raise BadOption(f"{text[:40]} is no epoch", hint="an epoch has 64 bits")
        return int(text), None
    try:
        time_ns = parse_time(text)
    except BadOption as error:
        raise BadOption(error.message, hint="write an epoch (4711), a time (2026-11-15T06:17:00Z), or -5m") from error
    if time_ns > time.time_ns():
        raise BadEntry("that moment is yet to come", hint="give a time that has passed")
    return None, time_ns


def to_bytes(text: str, *, in_hex: bool) -> bytes:
    """A key or a value, as it was given. Raises: BadOption."""
    if not in_hex:
        return os.fsencode(text)
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise BadOption(f"{text[:40]!r} is not hexadecimal", hint="two digits a byte, such as 00ff7a") from None
