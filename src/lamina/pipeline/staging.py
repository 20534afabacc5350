"""Where tasks put what they make until the job commits it: ``_tmp/<job>/part-<task>-<random>`` beside the log.

On the same disk, so that committing is a rename. Nothing in there counts for anybody. Tasks that were killed, or lost
against a duplicate of themselves, leave files behind: the job removes its folder at its end, and the next job of the
same kind what a killed one left. Spark, too, passes over names that begin with an underscore.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from lamina.errors import from_os
from lamina.log.files import Files, join
from lamina.log.naming import STAGING


@contextmanager
def staging(files: Files, folder: str, job: str) -> Iterator[str]:
    """A new folder for a job of this kind, gone at the end. Hold the lock of the log: what is there of others is swept.

    Raises: DiskFull, DiskError.
    """
    place = join(join(folder, STAGING), f"{job}-{secrets.token_hex(6)}")
    sweep(files, folder, job)
    try:
        files.make_folder(place)
    except OSError as error:
        raise from_os(error, "make the folder", place) from error
    try:
        yield place
    finally:
        sweep(files, folder, job)


def sweep(files: Files, folder: str, job: str) -> None:
    """Remove what jobs of this kind have left. Failing is no error: nothing in there counts."""
    above = join(folder, STAGING)
    with suppress(OSError):
        for name in files.list(above):
            if name.startswith(f"{job}-"):
                files.remove_folder(join(above, name))
        files.remove_empty_folder(above)


def part_name(task: int) -> str:
    """A name that no other attempt at the same task has."""
    return f"part-{task:05d}-{secrets.token_hex(6)}"
