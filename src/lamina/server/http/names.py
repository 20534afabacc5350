"""Names and payloads as text: names are bytes inside, and a payload may be anything."""

from __future__ import annotations

import base64
from typing import Final

import msgspec

from lamina.errors import BadName

_HEX: Final = "hex:"


def show_name(name: bytes) -> str:
    """As text; one that is no printable UTF-8, or looks like the other form, as ``hex:6f72...``."""
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return _HEX + name.hex()
    return text if text.isprintable() and not text.startswith(_HEX) else _HEX + name.hex()


def read_name(text: str) -> bytes:
    """The bytes that ``show_name`` shows so. Raises: BadName."""
    if not text.startswith(_HEX):
        return text.encode("utf-8", "surrogatepass")
    try:
        return bytes.fromhex(text[len(_HEX) :])
    except ValueError:
        raise BadName(
            f"{text[:80]!r} is no name", hint=f"{_HEX} is followed by two hexadecimal digits a byte"
        ) from None


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes for a reader: as text where they are UTF-8, else in base 64."""

    size: int
    """Bytes in all."""
    text: str | None = None
    base64: str | None = None
    is_cut: bool = False
    """There is more than is shown."""


def shown(data: bytes, most: int = 1 << 16) -> Shown:
    """``data``, cut to ``most`` bytes."""
    head = bytes(data[:most])
    is_cut = len(data) > most
    try:
        return Shown(size=len(data), text=head.decode(), is_cut=is_cut)
    except UnicodeDecodeError as error:
        if is_cut and error.start > len(head) - 4:  # the cut went through a letter
            return Shown(size=len(data), text=head[: error.start].decode(), is_cut=True)
        return Shown(size=len(data), base64=base64.b64encode(head).decode(), is_cut=is_cut)
