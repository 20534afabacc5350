"""Settings of a log, their defaults in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lamina.errors import BadOption
from lamina.log.frame import MAX_PAYLOAD
from lamina.log.sync import ALWAYS, Sync, parse
from lamina.units import KIB, MIB

_LARGEST_PAYLOAD: Final = 1 << 30
_OLDEST_S: Final = 1e9


@dataclass(frozen=True, kw_only=True, slots=True)
class LogOptions:
    """How a log is written. docs/reference/options.md lists them; a test keeps it so."""

    sync: Sync = ALWAYS
    """When written bytes are forced to the disk: ALWAYS, interval(ms) or OS; or as text, "interval:500"."""
    segment_bytes: int = 64 * MIB
    """Start a new file when the active one has at least this many bytes."""
    segment_age_s: float | None = None
    """Start a new file when the first record of the active one is this many seconds old; None: never for age."""
    max_payload: int = MAX_PAYLOAD
    """Largest payload in bytes. A larger size found in a file is damage, not an allocation."""
    gather_bytes: int = 64 * KIB
    """When this much waits to be written, the next append writes it (without a sync) before it returns."""

    def __post_init__(self) -> None:
        given: object = self.sync
        if isinstance(given, str):
            object.__setattr__(self, "sync", parse(given))
        elif not isinstance(given, Sync):
            raise BadOption(f"sync = {self.sync!r} is no policy", hint="give ALWAYS, interval(ms) or OS", option="sync")
        for name, least, most in (
            ("segment_bytes", 1, 1 << 62),
            ("max_payload", 1, _LARGEST_PAYLOAD),
            ("gather_bytes", 1, 1 << 40),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise BadOption(f"{name} = {value!r} cannot be", hint=f"give {least} to {most}", option=name)
        age = self.segment_age_s
        if age is not None and (isinstance(age, bool) or not isinstance(age, int | float) or not 0 < age <= _OLDEST_S):
            hint = f"give seconds, above 0 and up to {_OLDEST_S}, or None"
            raise BadOption(f"segment_age_s = {age!r} cannot be", hint=hint, option="segment_age_s")
