"""Where a server listens, as people write it: a host and a port, or a socket in the file system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lamina.errors import BadOption

UNIX: Final = "unix:"
_LONGEST_PATH: Final = 107  # bytes of the path of a socket, on Linux


@dataclass(frozen=True, slots=True)
class Address:
    """A place to listen on or to call."""

    host: str
    port: int
    path: str = ""
    """Of a socket in the file system; then there is no host and no port."""

    @classmethod
    def parse(cls, text: str) -> Address:
        """``HOST:PORT``, ``[IPv6]:PORT`` or ``:PORT``. Raises: BadOption."""
        host, colon, port = text.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise BadOption(f"{text!r} is no address", hint="give HOST:PORT, such as 127.0.0.1:9922")
        return cls(host.strip("[]"), int(port))

    @classmethod
    def parse_listen(cls, text: str) -> Address:
        """Where a door can listen: as ``parse``, or ``unix:/path``. Raises: BadOption."""
        if not text.startswith(UNIX):
            return cls.parse(text)
        path = text.removeprefix(UNIX)
        if not path or "\0" in path or len(path.encode(errors="surrogateescape")) > _LONGEST_PATH:
            raise BadOption(
                f"{text!r} is no address", hint=f"give unix: and a path of at most {_LONGEST_PATH} bytes", path=path
            )
        return cls("", 0, path)

    def __str__(self) -> str:
        if self.path:
            return UNIX + self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
