"""Sizes, times and durations as people write them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

from lamina.errors import BadOption

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

_SIZE = re.compile(r"(\d{1,19})\s*(B|KB|MB|GB|KiB|MiB|GiB)?", re.IGNORECASE | re.ASCII)
_FACTORS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": KIB, "mib": MIB, "gib": GIB}
_ISO = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_AGO = re.compile(r"-(\d{1,15})(ms|s|m|h|d)", re.ASCII)
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*(ms|s|m|h|d)?", re.ASCII)
_AGO_NS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}


def parse_bytes(text: str) -> int:
    """``64MiB`` → 67108864."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise BadOption(f"{text!r} is not a size", hint="write 67108864, 64MiB or 64MB")
    return int(match[1]) * _FACTORS[(match[2] or "B").lower()]


def show_bytes(count: int) -> str:
    """67108864 → ``64.0 MiB``."""
    if count < KIB:
        return f"{count} B"
    size = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        size /= KIB
        if size < KIB:
            return f"{size:.1f} {unit}"
    return f"{size / KIB:.1f} TiB"


def parse_time(text: str) -> int:
    """A moment as nanoseconds since 1970: RFC 3339 (a day alone, and UTC, will do), nanoseconds, or ``-5m`` for ago."""
    text = text.strip()
    if re.fullmatch(r"\d{1,19}", text, re.ASCII):
        return int(text)
    if ago := _AGO.fullmatch(text):
        return time.time_ns() - int(ago[1]) * _AGO_NS[ago[2]]
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        text += "T00:00:00Z"
    match = _ISO.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        zone = "+00:00" if match[3] in (None, "Z") else match[3]
        whole = datetime.fromisoformat(match[1] + zone)
    except ValueError:
        raise BadOption(
            f"{text!r} is not a time",
            hint="write 2026-11-15T06:17:00.5Z, nanoseconds since 1970, or -5m",
        ) from None
    return int(whole.timestamp()) * 10**9 + int((match[2] or "0").ljust(9, "0"))


def show_time(time_ns: int) -> str:
    """1794725200499000000 → ``2026-11-15T06:26:40.499000000Z``."""
    seconds, nanos = divmod(time_ns, 10**9)
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment.year:04d}-{moment:%m-%dT%H:%M:%S}.{nanos:09d}Z"


def parse_duration(text: str) -> float:
    """``30``, ``1.5``, ``500ms``, ``10s``, ``5m``, ``2h`` or ``1d``, in seconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise BadOption(f"{text[:60]!r} is not a duration", hint="write 30 or 1.5 (seconds), 500ms, 10s, 5m, 2h or 1d")
    return float(match[1]) * _AGO_NS[match[2] or "s"] / 10**9


def show_duration(seconds: float) -> str:
    """5400 → ``1h 30m``: the two largest units."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    left = int(seconds)
    units = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
    first = next(at for at, (_, size) in enumerate(units) if left >= size)
    (large, large_size), (small, small_size) = units[first : first + 2]
    rest = left % large_size // small_size
    return f"{left // large_size}{large} {rest}{small}" if rest else f"{left // large_size}{large}"
