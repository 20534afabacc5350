"""Ids of queues and messages: 24 random bytes, shown as 32 characters of base64url.

A queue has two that are unrelated: the recipient's and the sender's. Each is half of a capability, so neither is shown
to operators: they see a handle, which is made from the recipient's id and leads to nothing.

_ids.pyx is the compiled twin.
"""

from __future__ import annotations

from base64 import b32encode
from binascii import a2b_base64, b2a_base64
from hashlib import blake2b
from typing import Final

ID_BYTES: Final = 24
_LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
# Not through the module base64: each command shows and reads several ids.
_TO_STANDARD: Final = bytes.maketrans(b"-_", b"+/")
_FROM_STANDARD: Final = bytes.maketrans(b"+/", b"-_")


def show(id: bytes) -> str:
    return wire(id).decode()


def wire(id: bytes) -> bytes:
    """The same as bytes."""
    return b2a_base64(id, newline=False).translate(_FROM_STANDARD)


def parse(text: bytes) -> bytes | None:
    """The id that ``text`` shows, or None if it shows none: a path is never made from anything else."""
    if len(text) != 32 or text.translate(None, _LETTERS):
        return None
    return a2b_base64(text.translate(_TO_STANDARD))


def handle(rid: bytes) -> str:
    """What operators call the queue: 16 letters and digits, the same after every restart, and no use to a client."""
    return b32encode(blake2b(rid, digest_size=10, person=b"lamina handle").digest()).decode().lower()
