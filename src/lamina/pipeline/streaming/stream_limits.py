"""How much of what is there a batch takes: so many records or bytes, divided fairly among the logs.

Each log gets an equal share. What some do not need, the others get in the next round. Who is furthest behind comes
first, so that none waits for ever where there are more logs than records to give. The first record of a log may be
larger than its share if it is not more than all that is left; and the first of a batch may have any size.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from lamina.log.files import Files
from lamina.pipeline import pieces
from lamina.pipeline.pieces import Times
from lamina.pipeline.reading import read_piece
from lamina.pipeline.streaming.track import Track

_ROUNDS: Final = 4
_WHOLE: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Limits:
    """None: no such limit."""

    records: int | None = None
    bytes: int | None = None

    @property
    def is_spent(self) -> bool:
        return (self.records is not None and self.records <= 0) or (self.bytes is not None and self.bytes <= 0)

    def share(self, among: int) -> Limits:
        """An equal part, but at least something."""
        return Limits(*(None if each is None else max(each // among, 1) for each in (self.records, self.bytes)))

    def less(self, records: int, bytes: int) -> Limits:
        return Limits(
            None if self.records is None else self.records - records, None if self.bytes is None else self.bytes - bytes
        )


@dataclass(frozen=True, slots=True)
class Walked:
    """How far a log was gone through."""

    time_ns: int
    records: int
    bytes: int


Walk = Callable[[str, int, int, Limits, int | None], Walked]
"""Of a log, from after a time up to another, as far as limits allow; and one record of at most so many bytes anyhow."""


def admit(begun: Mapping[str, int], ends: Mapping[str, int], limits: Limits, walk: Walk) -> dict[str, int]:
    """How far each log goes in this batch."""
    reached = {key: begun.get(key, 0) for key in ends}
    is_first = True
    hungry = sorted((key for key in ends if ends[key] > reached[key]), key=lambda key: reached[key])
    for _ in range(_ROUNDS):
        share = limits.share(len(hungry)) if hungry else limits
        still = []
        for key in hungry:
            if limits.is_spent:
                return reached
            walked = walk(key, reached[key], ends[key], share, None if is_first else limits.bytes)
            is_first = is_first and not walked.records
            reached[key] = walked.time_ns
            limits = limits.less(walked.records, walked.bytes)
            if walked.time_ns < ends[key]:
                still.append(key)
        hungry = still
    return reached


def walk(disk: Files, track: Track, after: int, until: int, limits: Limits, anyhow: int | None) -> Walked:
    """As ``Walk``. ``anyhow`` None: a record of any size. Raises: DiskError."""
    records = size = 0
    last = after
    times = Times(after + 1, until + 1)
    for file in track.files(after, until):
        for piece in pieces.cut(disk, [file], times, _WHOLE):
            for found in read_piece(disk, piece, times, _pass_over):
                count = len(found.times)
                if limits.records is not None:
                    count = min(count, limits.records - records)
                if limits.bytes is not None:
                    sums = list(accumulate(found.lengths[:count]))
                    count = bisect_right(sums, limits.bytes - size)
                    if not count and not records and (anyhow is None or sums[0] <= anyhow):
                        count = 1
                if count:
                    last = found.times[count - 1]
                records, size = records + count, size + sum(found.lengths[:count])
                if count < len(found.times):
                    return Walked(track.settle(last, until) if records else after, records, size)
    return Walked(until, records, size)


def _pass_over(file: str, offset: int, reason: str) -> None:
    """Damage is told by who reads it."""
