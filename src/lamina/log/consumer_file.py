"""The file of one consumer: its name, and what is in it.

    header lmcp 1 · one record: {"name": ..., "position": ..., "streams": {...}, "written": ..., "expires": ...}

The record is framed as any, so that bytes which went bad are seen. Its payload is JSON, for it is small, and other
programs may want to read and write it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lamina.errors import BadName
from lamina.log import folders, kernel
from lamina.log.formats import HEADER
from lamina.log.frame import Stop

NEVER: Final = (1 << 63) - 1
MOST_BYTES: Final = 1 << 20
"""Of one file; a larger one is none of ours."""
_MAGIC: Final = HEADER.pack(b"lmcp", 1)
_LONGEST: Final = 200  # bytes of a name in a file name: what comes behind ~ needs room, too


@dataclass(frozen=True, slots=True)
class Consumer:
    """One that reads, as its file says."""

    name: str
    position: int
    """Time of a record, in nanoseconds: it and all before it were read. Of every log of the folder but ``streams``."""
    streams: Mapping[str, int]
    """The same for single logs (naming.FileName.stream), where a folder has several: ``{"pwal_0000": 17...}``."""
    written_ns: int
    expires_ns: int
    damage: str | None = None
    """Why the file cannot be read; then it holds everything."""

    def position_in(self, stream: str) -> int:
        return self.streams.get(stream, self.position)

    def has_expired(self, now_ns: int) -> bool:
        return self.expires_ns <= now_ns


def encode(consumer: Consumer) -> bytes:
    """The bytes of its file."""
    facts = {
        "name": consumer.name,
        "position": consumer.position,
        "streams": dict(sorted(consumer.streams.items())),
        "written": consumer.written_ns,
        "expires": consumer.expires_ns,
    }
    text = json.dumps(facts, ensure_ascii=False, separators=(",", ":"))
    return _MAGIC + kernel.encode_many(consumer.written_ns, [text.encode()])


def decode(data: bytes) -> Consumer:
    """Raises: ValueError that says what is wrong."""
    if len(data) > MOST_BYTES or data[: len(_MAGIC)] != _MAGIC:
        raise ValueError("no file of a consumer, or of a later version")
    found = kernel.scan(data, len(_MAGIC), len(data))
    if len(found.times) != 1 or found.why is not Stop.END:
        raise ValueError("it is not whole")
    at = found.offsets[0]
    facts = json.loads(data[at : at + found.lengths[0]])
    try:
        streams = facts["streams"]
        numbers = [facts["position"], facts["written"], facts["expires"], *streams.values()]
        if not isinstance(facts["name"], str) or not all(
            type(number) is int and 0 <= number <= NEVER for number in numbers
        ):
            raise ValueError("a value that cannot be")
        return Consumer(facts["name"], facts["position"], streams, facts["written"], facts["expires"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a value is missing or cannot be: {error}") from error


def file_name(name: str) -> str:
    """Raises: BadName."""
    try:
        encoded = folders.folder_name(name.encode()) if name else ""
    except (UnicodeEncodeError, BadName):
        encoded = ""
    if not 0 < len(encoded) <= _LONGEST:
        raise BadName(
            f"{name[:40]!r} cannot be the name of a consumer",
            hint=f"use 1 to {_LONGEST} bytes of UTF-8, counting three for each that is not a letter, digit, _ - or .",
        )
    return encoded


def name_of(encoded: str) -> str | None:
    """The opposite of ``file_name``. None: no consumer can have it."""
    try:
        return (folders.name_of(encoded) or b"").decode() or None
    except UnicodeDecodeError:
        return None
