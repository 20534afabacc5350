"""Which folder an upkeep job works on: one that this machine, and every executor, can write to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from lamina.errors import BadOption, LogLocked
from lamina.log.files import Files
from lamina.log.files.real import RealFiles
from lamina.pipeline.places import find
from lamina.pipeline.storage import open_storage


def folder_of(data: str, kind: str) -> tuple[Files, str]:
    """The disk and the folder of the one log of this kind, as a path that means the same in every process.

    Raises: BadOption if there is none, or if it can only be read; DiskError.
    """
    files, path = open_storage(data)
    if not isinstance(files, RealFiles):
        raise BadOption(
            f"{data} is on shared storage, which is only read",
            hint="run it where the folder is on a disk, or mounted like one",
        )
    found = [place for place in find(files, os.path.abspath(path)) if place.kind == kind]
    if not found:
        raise BadOption(f"{data} holds no {kind}", hint=f"they would be in its folder {kind}/, made by lamina serve")
    return files, found[0].folder


@contextmanager
def for_itself(hint: str) -> Iterator[None]:
    """Say what to do when another process has the folder; the error names it."""
    try:
        yield
    except LogLocked as error:
        raise LogLocked(error.message, hint=hint, **error.facts) from error


def size_of(files: Files, path: str) -> int:
    """Bytes of a file; 0 if it is gone. Raises: OSError."""
    try:
        file = files.open(path)
    except FileNotFoundError:
        return 0
    try:
        return file.size()
    finally:
        file.close()
