"""Tokens: 256 random bits each. Only their SHA-256 is kept, and compared in a time that tells nothing.

A slow hash, as for passwords that people choose, would add nothing: nobody can go through 2**256 tokens.
"""

from __future__ import annotations

import secrets
from hashlib import sha256
from hmac import compare_digest
from typing import Final

PREFIX: Final = "lam_"
"""So that whoever finds one in a file knows what it is."""
_BYTES: Final = 32
_NOBODY: Final = secrets.token_bytes(_BYTES)


def make() -> str:
    """A new one: 47 letters, digits, ``-`` and ``_``."""
    return PREFIX + secrets.token_urlsafe(_BYTES)


def digest(token: bytes | str) -> bytes:
    """What is kept of it: 32 bytes."""
    return sha256(token if isinstance(token, bytes) else token.encode()).digest()


def fits(token: bytes, kept: bytes | None) -> bool:
    """Whether ``kept`` is the digest of ``token``; None, for a user that is not there, takes the same time."""
    is_equal = compare_digest(digest(token), _NOBODY if kept is None else kept)
    return is_equal and kept is not None
