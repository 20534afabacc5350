"""Names of things as names of folders: any bytes become one path component, and back.

Letters, digits, ``_``, ``-`` and inner dots stay as they are; every other byte becomes ``%`` and two hex digits. So no
name leads out of its folder, none is hidden, and no two share one. No bytes at all are ``%``.
"""

from __future__ import annotations

import re
from typing import Final

from lamina.errors import BadName

LONGEST: Final = 255
_EMPTY: Final = "%"
_OTHER: Final = re.compile(rb"[^A-Za-z0-9_.-]")
_ENCODED: Final = re.compile(r"%([0-9A-F]{2})")
_PLAIN: Final = re.compile(r"(?:[A-Za-z0-9_-]|%[0-9A-F]{2})(?:[A-Za-z0-9_.-]|%[0-9A-F]{2})*").fullmatch


def folder_name(name: bytes) -> str:
    """Raises: BadName for one too long for the file system."""
    encoded = _OTHER.sub(lambda found: b"%%%02X" % found[0][0], name)
    if encoded.startswith(b"."):
        encoded = b"%2E" + encoded[1:]
    if len(encoded) > LONGEST:
        shown = name[:40].decode("utf-8", "backslashreplace")
        raise BadName(
            f"{shown!r} cannot be a name here",
            hint=f"use up to {LONGEST} bytes, counting three for each that is not a letter, digit, _ - or .",
        )
    return encoded.decode() or _EMPTY


def name_of(folder: str) -> bytes | None:
    """The name that ``folder_name`` made this of; None: none."""
    if folder == _EMPTY:
        return b""
    if not _PLAIN(folder):
        return None
    name = _ENCODED.sub(lambda found: chr(int(found[1], 16)), folder).encode("latin-1")
    return name if folder_name(name) == folder else None
