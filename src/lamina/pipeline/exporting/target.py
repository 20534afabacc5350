"""Where an export goes: a folder of this machine's, which nobody else fills, and one export of a view at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lamina.errors import BadOption, LogLocked, from_os
from lamina.log import lock
from lamina.log.files import Files, join
from lamina.pipeline.exporting import manifest as manifests
from lamina.pipeline.exporting.manifest import Manifest
from lamina.pipeline.storage import open_storage


def check_target(to: str, data: str, view: str) -> tuple[Files, str]:
    """The disk and the folder, as a path that means the same in every process. Raises: BadOption."""
    if "://" in to and not to.startswith("file://"):
        raise BadOption(
            f"{to} is on shared storage: an export needs renames, which there are none of there",
            hint="export to a disk, or to one that is mounted, and copy from there",
        )
    files, path = open_storage(to)
    path = os.path.abspath(path)
    if "://" not in data:
        real, goes_to = os.path.realpath(data), os.path.realpath(path)
        if _is_within(goes_to, real):
            raise BadOption(f"{to} is in the data folder itself", hint="name a folder outside of it")
        if _is_within(real, os.path.join(goes_to, view)):
            raise BadOption(f"{to}/{view} is the data folder, or holds it", hint="name another folder")
    return files, path


def _is_within(path: str, folder: str) -> bool:
    return os.path.commonpath([path, folder]) == folder


@contextmanager
def locked(files: Files, to: str, view: str) -> Iterator[None]:
    """Be the only one who exports this view to this folder. Raises: LogLocked, DiskError."""
    folder = join(to, manifests.FOLDER)
    try:
        files.make_folder(folder)
    except OSError as error:
        raise from_os(error, "make the folder", folder) from error
    try:
        held = lock.take(files, folder, f"{view}.lock")
    except LogLocked as error:
        hint = "wait until it is done: it exports the same"
        raise LogLocked(f"another export of {view} to {to} is under way", hint=hint, **error.facts) from error
    try:
        yield
    finally:
        held.release()


def check_same(found: Manifest, wanted: Manifest, to: str, *, is_full: bool, is_moved: bool) -> None:
    """Whether an export can go on. Raises: BadOption, saying what is different and what to do."""
    if found.format != wanted.format:
        raise BadOption(f"{to} holds {found.view} as {found.format}", hint=f"export {wanted.format} to another folder")
    if found.data != wanted.data and not is_moved:
        raise BadOption(
            f"{to} holds an export of {found.data}, not of {wanted.data}",
            hint="export to another folder; or, if the data folder was moved, say so with --moved",
        )
    if found.columns != wanted.columns and not is_full:
        raise BadOption(
            f"{to} holds {found.view} with other columns: {_difference(found.columns, wanted.columns)}",
            hint="ask for the same columns, export to another folder, or begin anew with --full",
        )


def check_untouched(files: Files, to: str, found: Manifest | None, view: str) -> None:
    """Raises: BadOption if the folder of the view holds files of others, or if what was exported is gone."""
    names = list_folder(files, join(to, view))
    if found is None and names:
        raise BadOption(f"{to}/{view} holds files that no export has written", hint="name an empty folder")
    if found is not None and found.rows and not names:
        raise BadOption(f"{to}/{view} was exported before, and is gone", hint="put it back, or begin anew with --full")


def list_folder(files: Files, folder: str) -> list[str]:
    """Nothing if it is not there. Raises: DiskError."""
    try:
        return files.list(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise from_os(error, "list the folder", folder) from error


def _difference(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    gone = [name for name in before if name not in now]
    more = [name for name in now if name not in before]
    other = [name for name in now if name in before and now[name] != before[name]]
    words = [("without", gone), ("with", more), ("with other types", other)]
    return "; ".join(f"now {word} {', '.join(names)}" for word, names in words if names) or "in another order"
