"""How far a stream has read: of each log, the time of the last record.

    {"version": 1, "logs": {"topics/orders": 1794725200506000000, "topics/returns": ...}}

Times, for bytes would not last: cleaning rewrites files. A log that is not in it is read from its beginning: it came
later. Spark keeps offsets as text and compares them so: logs stand in the order of their names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from lamina.errors import BadOption

VERSION: Final = 1
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_HINT: Final = 'it is earliest, latest, or of each log the time after which to begin: {"topics/orders": 17…}'
# As Kafka writes them.
_WORDS: Final = {-2: EARLIEST, -1: LATEST}


def show(logs: Mapping[str, int]) -> dict[str, Any]:
    """As Spark gets it."""
    return {"version": VERSION, "logs": dict(sorted(logs.items()))}


def parse(offset: Mapping[str, Any]) -> dict[str, int]:
    """The opposite of ``show``. Raises: BadOption for what a later version wrote, or nobody."""
    version, logs = offset.get("version"), offset.get("logs")
    if version != VERSION or not isinstance(logs, Mapping):
        raise BadOption(
            f"the checkpoint has an offset of version {version!r}, and this is version {VERSION}",
            hint="go on with the version that wrote it, or begin with another checkpointLocation",
        )
    return {str(log): int(time_ns) for log, time_ns in logs.items()}


def parse_starting(text: str) -> str | dict[str, int | str]:
    """``earliest``, ``latest``, or of each log the time after which to begin, or one of these words.

    Raises: BadOption.
    """
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    try:
        given = json.loads(text)
    except ValueError:
        raise BadOption(f"startingOffsets: {text!r} is no offset", hint=_HINT) from None
    if isinstance(given, dict) and "version" in given:
        given = parse(given)
    if not isinstance(given, dict):
        raise BadOption(f"startingOffsets: {text!r} is no offset", hint=_HINT)
    found: dict[str, int | str] = {}
    for log, value in given.items():
        value = _WORDS.get(value, value) if type(value) is int else value
        is_time = type(value) is int and 0 <= value < 1 << 63
        if not is_time and value not in _WORDS.values():
            raise BadOption(f"startingOffsets: {value!r} is no time of {log}", hint=_HINT)
        found[str(log)] = value
    return found
