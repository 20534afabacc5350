"""Where browsers reach the HTTP door when something in front of it ends TLS, such as ``https://lamina.example.org``.

What headers say about that is not believed, for anybody can send them: whoever runs the server says it once.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from lamina.errors import BadOption

_PORTS: Final = {"http": 80, "https": 443}
_NAME: Final = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?", re.ASCII).fullmatch
_IN_BRACKETS: Final = re.compile(r"\[[0-9a-f:.%]+\](:.*)?", re.ASCII | re.IGNORECASE).fullmatch
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII).fullmatch
_NO_HOST: Final = "there is no host in it that can be"
_HINT: Final = "give scheme and host, such as https://lamina.example.org"


@dataclass(frozen=True, slots=True)
class PublicUrl:
    """As browsers write it: in small letters, and without a port that goes without saying."""

    scheme: str
    host: str
    """The name alone; an address of IPv6 without its brackets."""
    authority: str
    """With the port, as in the header Host."""

    @property
    def origin(self) -> str:
        """As in the header Origin."""
        return f"{self.scheme}://{self.authority}"

    @property
    def is_https(self) -> bool:
        return self.scheme == "https"

    @classmethod
    def parse(cls, text: str) -> PublicUrl:
        """Raises: BadOption, with what is wrong."""
        if not text.isascii() or not text.isprintable() or " " in text:
            raise _bad("there are letters in it that no address has", "write a name of other letters as xn--...")
        try:
            parts = urlsplit(text)
        except ValueError:  # later versions of Python refuse more of what is in brackets
            raise _bad(_NO_HOST) from None
        try:
            host, port = parts.hostname or "", parts.port
        except ValueError as error:
            raise _bad(f"it is no address of the web: {error}") from None
        if parts.scheme not in _PORTS:
            raise _bad("it does not begin with https:// or http://")
        if "@" in parts.netloc:
            raise _bad("there is a user in it")
        if parts.path not in ("", "/") or "?" in text or "#" in text:
            raise _bad("there is more than a host in it; the console has to have a host name of its own")
        if port == 0 or parts.netloc.endswith(":"):
            raise _bad("there is a colon in it and no port that can be")
        if "[" in parts.netloc and not _IN_BRACKETS(parts.netloc):  # what is beside the brackets would be passed over
            host = ""
        host = _checked(host)
        shown = f"[{host}]" if ":" in host else host
        is_usual = port is None or port == _PORTS[parts.scheme]
        return cls(parts.scheme, host, shown if is_usual else f"{shown}:{port}")


def _checked(host: str) -> str:
    if ":" in host and "%" not in host:
        try:
            return str(ipaddress.IPv6Address(host))
        except ValueError:
            host = ""
    is_number = _NUMBER(host.rpartition(".")[2]) is not None  # browsers take it for an address, and write it as one
    if not _NAME(host) or ".." in host or (is_number and not _is_address(host)):
        raise _bad(_NO_HOST)
    return host


def _is_address(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def _bad(what: str, hint: str = _HINT) -> BadOption:
    return BadOption(what, hint=hint, option="public_url")
