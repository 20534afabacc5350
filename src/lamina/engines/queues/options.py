"""Settings of queues, their defaults in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lamina.errors import BadOption

DAY_S: Final = 86_400
_MAY_BE_FRACTIONS: Final = ("dump_every_s", "expire_every_s", "idle_s")
STORES: Final = ("memory", "journal")


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueOptions:
    """How queues are kept. docs/reference/options.md lists them; a test keeps it so."""

    store: str = "memory"
    """Where messages are: ``memory`` (log and dumps) or ``journal`` (a folder on disk for each queue)."""
    quota: int = 128
    """Messages that may wait in a queue; the next one becomes a marker, and none is taken until the queue is empty."""
    ttl_s: int = 21 * DAY_S
    """Seconds that a message is kept, unless its queue or itself says otherwise; 0: for ever."""
    max_body: int = 65_536
    """Bytes of the largest message."""
    dump_every_s: float = 3600
    """Seconds between two dumps; 0: only on demand and at an orderly stop."""
    expire_every_s: float = 600
    """Seconds between two looks for expired messages; 0: only at dumps, restores and when a queue is used."""
    idle_s: float = 600
    """In the store ``journal``: seconds after which the files of a queue that nobody uses are closed."""
    max_file_messages: int = 256
    """In the store ``journal``: messages of a file before the next one is begun. Larger than the quota."""
    path_parts: int = 5
    """In the store ``journal``: pieces into which the path of a queue's folder is cut."""
    part_chars: int = 2
    """In the store ``journal``: characters of each piece but the last."""
    most_open: int = 512
    """In the store ``journal``: queues whose files are open at the same time."""
    keep_copies: int = 3
    """In the store ``journal``: how many copies of a queue's former states are kept."""
    keep_copy_days: int = 7
    """In the store ``journal``: and for how many days; one older copy stays in any case."""

    def __post_init__(self) -> None:
        if self.store not in STORES:
            raise BadOption(f"{self.store!r} is no store of queues", hint="give memory or journal", option="store")
        for name, least, most in (
            ("quota", 1, 1 << 31),
            ("ttl_s", 0, 1 << 40),
            ("max_body", 1, 1 << 26),
            ("dump_every_s", 0, 1 << 31),
            ("expire_every_s", 0, 1 << 31),
            ("idle_s", 0, 1 << 31),
            ("max_file_messages", 2, 1 << 31),
            ("path_parts", 1, 8),
            ("part_chars", 1, 4),
            ("most_open", 1, 1 << 20),
            ("keep_copies", 1, 1000),
            ("keep_copy_days", 1, 36_500),
        ):
            value = getattr(self, name)
            kinds = int | float if name in _MAY_BE_FRACTIONS else int
            if not isinstance(value, kinds) or not least <= value <= most:
                raise BadOption(f"{name} = {value!r} cannot be", hint=f"give {least} to {most}", option=name)
        if self.store == "journal" and self.quota >= self.max_file_messages:
            raise BadOption(
                f"quota = {self.quota} cannot be: a file of a journal takes {self.max_file_messages} messages",
                hint="give a quota below max_file_messages",
                option="quota",
            )
