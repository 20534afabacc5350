"""A record of the history: figures at a moment, as JSON.

    {"of": 3735928559, "names": ["jobs.added", …], "after": 0.0, "values": [12, …]}      the first of each life
    {"of": 3735928559, "after": 10.0, "values": [14, …]}                                 the next ones

``of`` says which names the values belong to, ``after`` how many seconds passed since the record before it; 0: the
server has just started. The moment is that of the record. Names are said again now and then, so that old files can go.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from lamina.log.reader import Record

NAMED_EVERY: Final = 60
"""Records after which the names are said again."""
_FIGURES: Final = 6

_OF_ENGINES: Final = ("added", "leased", "completed", "failed", "delivered", "sent", "acknowledged", "written")
_OF_LOGS: Final = ("appends", "bytes", "syncs", "sync_s")
_COUNTED: Final = frozenset((*_OF_ENGINES, *_OF_LOGS))


def is_counter(name: str) -> bool:
    """It only grows while a server lives: what is shown is how fast. All others are shown as they are."""
    return name.rpartition(".")[2] in _COUNTED


class Row(NamedTuple):
    """Figures at a moment."""

    time_s: float
    after_s: float
    names: Sequence[str]
    values: Sequence[float | None]


class _Stored(msgspec.Struct, omit_defaults=True):
    of: int
    after: float
    values: list[float | None]
    names: list[str] | None = None


_decode: Final = msgspec.json.Decoder(_Stored).decode


class RowWriter:
    """Makes records of figures."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._of = 0
        self._unnamed = NAMED_EVERY

    def payload(self, after_s: float, figures: Mapping[str, float]) -> bytes:
        names = list(figures)
        is_new = names != self._names
        if is_new:
            self._names, self._of = names, zlib.crc32("\n".join(names).encode())
        is_named = is_new or self._unnamed >= NAMED_EVERY or not after_s
        self._unnamed = 0 if is_named else self._unnamed + 1
        values = [_rounded(value) for value in figures.values()]
        return msgspec.json.encode(_Stored(self._of, round(after_s, 3), values, names if is_named else None))

    def refused(self) -> None:
        """The last one is not in the log: say the names again."""
        self._unnamed = NAMED_EVERY


def read_rows(records: Iterator[Record]) -> Iterator[Row]:
    """Rows of records; one that cannot be understood is passed over."""
    known: dict[int, list[str]] = {}
    for record in records:
        try:
            stored = _decode(record.payload)
        except msgspec.DecodeError:
            continue
        if stored.names is not None:
            known = {stored.of: stored.names}
        names = known.get(stored.of)
        if names is not None and len(names) == len(stored.values):
            yield Row(record.time_ns / 1e9, stored.after, names, stored.values)


def _rounded(value: float | None) -> float | None:
    """In few letters; what is no number is none."""
    if value is None or not math.isfinite(value):
        return None
    if value == int(value):
        return int(value)
    return float(f"{value:.{_FIGURES}g}") if abs(value) < 10**_FIGURES else round(value)
