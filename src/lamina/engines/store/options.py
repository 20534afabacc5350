"""Settings of the store, their defaults in one place."""

from __future__ import annotations

from dataclasses import dataclass

from lamina.errors import BadOption
from lamina.units import MIB


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreOptions:
    """How a store is kept. docs/reference/options.md lists them; a test keeps it so."""

    epoch_ms: float = 40
    """Milliseconds of an epoch while something is written; who waits for it to be durable ends it at once. 0: epochs
    are switched by calls only."""
    memory_bytes: int = 256 * MIB
    """Memory for entries that are in no sorted file yet; beyond that they are spilled to one."""
    part_bytes: int = 64 * MIB
    """Size of one compacted file, about: each holds a range of keys, and is rewritten only if that changed."""
    max_session_bytes: int = 256 * MIB
    """Bytes of all entries of one session."""
    compact_dead_ratio: float = 0.5
    """Compact and clean up by itself when this part of all bytes is out of date (0.5: half); 0: not for that."""
    compact_every_s: float = 0
    """Compact and clean up by itself when something was written and this many seconds have passed; 0: not for that."""

    def __post_init__(self) -> None:
        for name, least, most in (
            ("epoch_ms", 0, 3_600_000),
            ("memory_bytes", 1, 1 << 50),
            ("part_bytes", 1024, 1 << 40),
            ("max_session_bytes", 1024, 1 << 34),
            ("compact_dead_ratio", 0, 1),
            ("compact_every_s", 0, 1 << 31),
        ):
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not least <= value <= most or (name.endswith("_bytes") and value != int(value)):
                raise BadOption(f"{name} = {value!r} cannot be", hint=f"give {least} to {most}", option=name)
