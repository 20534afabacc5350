"""A folder of this user for what is made once and can be made again: the java that Spark starts, and its classes.

``$XDG_CACHE_HOME/lamina``, else ``~/.cache/lamina``. Where that cannot be written to, a folder that goes away with the
process. Whatever is in there may be removed at any time.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from hashlib import blake2b

from lamina.errors import from_os


def folder() -> str | None:
    """The folder, there and writable; None if this user can have none."""
    above = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    place = os.path.join(above, "lamina")
    if not os.path.isabs(place):
        return None
    with suppress(OSError):
        os.makedirs(place, mode=0o700, exist_ok=True)
        # What is in there is executed: a folder of somebody else is none of ours.
        if os.stat(place).st_uid == os.geteuid() and os.access(place, os.W_OK | os.X_OK):
            return place
    return None


def program(name: str, text: str) -> str:
    """The path of an executable file with this text, which two processes may make at the same time.

    The name of its folder is of the text: what another process uses is never changed under it.
    Raises: DiskFull, DiskError.
    """
    home = os.path.join(folder() or _short_lived(), f"{name}-{digest(text)}")
    path = os.path.join(home, "bin", name)
    with suppress(OSError), open(path, encoding="utf-8") as file:
        if file.read() == text and os.access(path, os.X_OK):
            return path
    unfinished = f"{path}.{os.getpid()}-{secrets.token_hex(4)}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(unfinished, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(unfinished, 0o700)
        os.replace(unfinished, path)
    except OSError as error:
        with suppress(OSError):
            os.remove(unfinished)
        raise from_os(error, "make the program", path) from error
    return path


def digest(*words: str) -> str:
    """A short name for these words together."""
    return blake2b("\0".join(words).encode(), digest_size=8).hexdigest()


@cache
def _short_lived() -> str:
    try:
        place = tempfile.mkdtemp(prefix="lamina-")
    except OSError as error:
        raise from_os(error, "make the folder", tempfile.gettempdir()) from error
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place
