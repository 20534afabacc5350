"""How far a stream has read: of each log, the time of the last record.

    {"version": 1, "logs": {"topics/orders": 1794725200506000000, "topics/returns": ...}}

What cleaning had taken out of the middle of a log before the stream began is no loss. While that is still ahead, the
offset has it, too: the numbers of the first and the last file that was gone, and the time of their last record.

    {"version": 1, "logs": {"jobs": 0}, "gone": {"jobs": [[2, 5, 1794725200506000000]]}}

Times, for bytes would not last: cleaning rewrites files. A log that is not in it is read from its beginning: it came
later. Spark keeps offsets as text and compares them so: logs stand in the order of their names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from lamina.errors import BadOption

VERSION: Final = 1
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_HINT: Final = 'it is earliest, latest, or of each log the time after which to begin: {"topics/orders": 17…}'
_NOT_OURS: Final = "go on with the version that wrote it, or begin with another checkpointLocation"
Gone = tuple[int, int, int]
# As Kafka writes them.
_WORDS: Final = {-2: EARLIEST, -1: LATEST}


def show(logs: Mapping[str, int], gone: Mapping[str, Sequence[Gone]] | None = None) -> dict[str, Any]:
    """As Spark gets it. ``gone``: in logs, files that were; what the stream has passed is left out."""
    ahead = {log: [list(one) for one in its if one[2] > logs[log]] for log, its in (gone or {}).items() if log in logs}
    known = {log: its for log, its in sorted(ahead.items()) if its}
    return {"version": VERSION, "logs": dict(sorted(logs.items())), **({"gone": known} if known else {})}


def parse(offset: Mapping[str, Any]) -> dict[str, int]:
    """The opposite of ``show``. Raises: BadOption for what a later version wrote, or nobody."""
    logs = _logs(offset)
    for log, time_ns in logs.items():
        if not _is_time(time_ns):
            raise BadOption(f"the offset has {time_ns!r} for {log}, which is no time", hint=_NOT_OURS)
    return dict(logs)


def parse_gone(offset: Mapping[str, Any]) -> dict[str, list[Gone]]:
    """Of logs, the files that were gone from their middle when the stream began. Raises: BadOption."""
    try:
        return {
            str(log): [(int(first), int(last), int(until)) for first, last, until in its]
            for log, its in offset.get("gone", {}).items()
        }
    except (AttributeError, TypeError, ValueError):
        raise BadOption(f"the offset has {offset['gone']!r} for files that are gone", hint=_NOT_OURS) from None


def _logs(offset: Mapping[str, Any]) -> Mapping[str, Any]:
    version, logs = offset.get("version"), offset.get("logs")
    if version != VERSION or not isinstance(logs, Mapping):
        raise BadOption(f"the offset is of version {version!r}, and this is version {VERSION}", hint=_NOT_OURS)
    return logs


def _is_time(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def parse_starting(text: str) -> str | dict[str, int | str]:
    """``earliest``, ``latest``, or of each log the time after which to begin, or one of these words.

    No log at all is earliest, since that is where logs begin that are not named. Raises: BadOption.
    """
    if (word := text.strip().lower()) in (EARLIEST, LATEST):
        return word
    try:
        given = json.loads(text)
    except ValueError:
        raise BadOption(f"startingOffsets: {text!r} is no offset", hint=_HINT) from None
    if isinstance(given, dict) and "version" in given:
        given = _logs(given)
    if not isinstance(given, dict):
        raise BadOption(f"startingOffsets: {text!r} is no offset", hint=_HINT)
    found: dict[str, int | str] = {}
    for log, value in given.items():
        value = _WORDS.get(value, value) if type(value) is int else value
        if not _is_time(value) and value not in _WORDS.values():
            raise BadOption(f"startingOffsets: {value!r} is no time of {log}", hint=_HINT)
        found[str(log)] = value
    return found or EARLIEST
