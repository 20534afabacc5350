"""Keys of a queue: only salted hashes of them are kept, and every check takes the same time.

A key should be random (``secrets.token_urlsafe()``): it is hashed once, quickly, as a server that checks thousands a
second has to. A guessable key is guessable from the files.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest
from typing import Final

SALT_BYTES: Final = 16
LONGEST: Final = 512
_NOBODY: Final = bytes(SALT_BYTES + 32)
"""What a key is compared with where there is none: no key has this hash that anybody knows of."""


def hashed(key: bytes, salt: bytes) -> bytes:
    """What is kept of ``key``: the salt (16 random bytes), and the hash of the two."""
    return salt + blake2b(key, salt=salt, digest_size=32).digest()


def is_key(key: bytes, kept: bytes | None) -> bool:
    """Whether ``key`` is the one of which ``kept`` is kept; False if nothing is, after the same work."""
    expected = _NOBODY if kept is None or len(kept) != len(_NOBODY) else kept
    return compare_digest(hashed(key, expected[:SALT_BYTES]), expected) and kept is not None
