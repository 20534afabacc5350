"""Copies of earlier queue.log files: their names, and which of them stay.

Of N files and M days: the N newest that are younger than M days; the oldest that is younger, so that it may grow old;
and the newest of those that are older. So however often copies are made, there is one from M days before; and there are
never more than N + 2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

_NAME: Final = re.compile(r"queue\.(\d{8}T\d{6}\.\d{6}Z)\.log", re.ASCII)
_FORM: Final = "%Y%m%dT%H%M%S.%fZ"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def stamp(now_ns: int) -> str:
    """Of a fixed width, so that names sort as times do."""
    return (_EPOCH + timedelta(microseconds=now_ns // 1000)).strftime(_FORM)


def name_at(now_ns: int, taken: Iterable[str]) -> str:
    """The name of a copy that is made now: one that is not taken, later than those that are where the clock stands."""
    names = set(taken)
    while (name := f"queue.{stamp(now_ns)}.log") in names:
        now_ns += 1000
    return name


def copies_among(names: Iterable[str]) -> list[str]:
    """The copies among names of a folder, the oldest first; ``queue.log`` is none."""
    return sorted(name for name in names if _time_of(name) is not None)


def to_remove(names: Iterable[str], now_ns: int, keep_copies: int, keep_days: int) -> list[str]:
    """Which of the copies go."""
    times = {name: time for name in names if (time := _time_of(name)) is not None}
    border = _EPOCH + timedelta(microseconds=now_ns // 1000) - timedelta(days=keep_days)
    young = sorted(name for name, time in times.items() if time > border)
    old = sorted(name for name, time in times.items() if time <= border)
    kept = {*young[-keep_copies:], *young[:1], *old[-1:]}
    return [name for name in sorted(times) if name not in kept]


def _time_of(name: str) -> datetime | None:
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    try:
        return datetime.strptime(found[1], _FORM).replace(tzinfo=UTC)
    except ValueError:  # the 45th of January
        return None
