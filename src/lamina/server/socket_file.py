"""A socket in the file system: for its owner alone, and taken over only from a server that is dead.

One that is bound and does not listen yet belongs to a server that is still restoring: a connection to it is refused as
one to a dead server's is. The kernel knows the difference (``/proc/net/unix``). Nothing but a socket is ever removed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from typing import Final

from lamina.errors import BadOption, DiskError

_BOUND: Final = "/proc/net/unix"
_WORDS_BEFORE_PATH: Final = 7
_PROBE_S: Final = 1.0
_HINT: Final = "is another server running there?"


class SocketFile:
    """Taken from the moment it is made to ``close``."""

    def __init__(self, path: str) -> None:
        """Raises: BadOption if there is a file that is no socket; DiskError if a server has it, or nobody can."""
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if _is_left_over(path):
                os.unlink(path)
            mask = os.umask(0o177)
            try:
                self.socket.bind(path)
            finally:
                os.umask(mask)
            self._inode = os.stat(path).st_ino
        except OSError as error:
            self.socket.close()
            raise _cannot_listen(path, error) from error
        except BaseException:
            self.socket.close()
            raise

    def close(self) -> None:
        """Let go of it; twice is fine."""
        self.socket.close()
        with contextlib.suppress(OSError):
            if os.stat(self.path).st_ino == self._inode:  # else another server has it by now
                os.unlink(self.path)


def _is_left_over(path: str) -> bool:
    """Raises: DiskError if a server has it; BadOption if it is no socket; OSError."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise BadOption(f"unix:{path}: there is a file that is no socket", hint="name another path")
    except FileNotFoundError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            if not _is_bound(path):
                return True
    raise DiskError(f"unix:{path}: cannot listen: a server listens there", hint=_HINT)


def _is_bound(path: str) -> bool:
    """Whether a process that lives has a socket of this path, also one that does not listen yet."""
    try:
        with open(_BOUND, "rb") as file:
            lines = file.read().splitlines()
    except OSError:  # nobody can tell: then who does not answer is dead
        return False
    names = {os.fsencode(path), os.fsencode(os.path.abspath(path))}
    found = (line.split(None, _WORDS_BEFORE_PATH) for line in lines)
    return any(len(words) > _WORDS_BEFORE_PATH and words[-1] in names for words in found)


def _cannot_listen(path: str, error: OSError) -> DiskError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    return DiskError(f"unix:{path}: cannot listen: {reason}", hint=_HINT)
