"""Where something new is made: a folder or a file that is whole, or not there at all.

    <target>.restoring/     lock: one run at a time      part-...: what tasks have made      whole: what is to be it

Commit: the rename of ``whole`` to the target, made durable by the syncs of both folders. What a run that was killed has
left, the next one for the same target removes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from lamina.errors import BadOption, LogLocked, from_os
from lamina.log import lock
from lamina.log.files import Files, join
from lamina.pipeline.exporting.target import list_folder

RESTORING: Final = ".restoring"
"""Behind the name of the target while it is being made."""
_LOCK: Final = "lock"
_WHOLE: Final = "whole"
_PART: Final = "part-"


class Making:
    """What is being made. Threads: one at a time."""

    def __init__(self, files: Files, path: str, folder: str) -> None:
        self.files, self.path, self.folder = files, path, folder
        self.whole = join(folder, _WHOLE)

    def commit(self) -> None:
        """Durability: when it returns, the target is there, synced. Raises: BadOption, DiskError; then it is not."""
        try:
            self.files.remove_empty_folder(self.path)
            self.files.rename_folder(self.whole, self.path)
        except FileExistsError as error:
            raise BadOption(f"{self.path} was made by somebody else meanwhile", hint="name a new one") from error
        except OSError as error:
            raise from_os(error, "give its name to", self.path) from error


@contextmanager
def making(files: Files, path: str) -> Iterator[Making]:
    """A folder beside the target, gone at the end.

    Raises: LogLocked if another run makes the same; BadOption if something else is in the way; DiskFull, DiskError.
    """
    folder = path.rstrip("/") + RESTORING
    strange = [name for name in list_folder(files, folder) if not _is_ours(name)]
    if strange:
        raise BadOption(f"{folder} is in the way: {sorted(strange)[0]} is in it", hint="move it elsewhere")
    try:
        files.make_folder(folder)
        held = lock.take(files, folder, _LOCK)
    except LogLocked as error:
        raise LogLocked(f"another run makes {path}", hint="wait until it is done", **error.facts) from error
    except OSError as error:
        raise from_os(error, "make the folder", folder) from error
    try:
        _sweep(files, folder)
        yield Making(files, path, folder)
    finally:
        with suppress(OSError):
            _sweep(files, folder)
        with suppress(OSError):
            files.remove(join(folder, _LOCK))
        held.release()
        with suppress(OSError):
            files.remove_empty_folder(folder)


def _is_ours(name: str) -> bool:
    return name in (_LOCK, _WHOLE) or name.startswith(_PART)


def _sweep(files: Files, folder: str) -> None:
    for name in files.list(folder):
        if name != _LOCK and _is_ours(name):
            try:
                files.remove_folder(join(folder, name))
            except NotADirectoryError:
                files.remove(join(folder, name))
