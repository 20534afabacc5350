"""What is odd about a queue's folder, told to whoever keeps the log of the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_REFUSALS: Final = ("write_refused", "sync_failed")


@dataclass(frozen=True, slots=True)
class Problem:
    """One oddity. Neither ids nor what was sent are in it: ``queue`` is the handle that operators know."""

    kind: str
    """A word that stays: torn_state_line, write_file_missing and so on."""
    queue: str
    is_error: bool
    """Messages were lost, or may have been. Else all is well again."""
    lost: int = 0
    """Messages that are gone, as far as that is known."""
    detail: str = ""
    file: str = ""
    """The file in the queue's folder that it is about."""
    offset: int | None = None
    """The byte in it."""

    @property
    def is_damage(self) -> bool:
        """What was safe once is not as it was written; not merely a disk that refuses now."""
        return self.is_error and self.kind not in _REFUSALS

    def __str__(self) -> str:
        lost = f", {self.lost} messages lost" if self.lost else ""
        place = f": {self.file}" if self.file else ""
        place += f", byte {self.offset}" if self.offset is not None else ""
        detail = f": {self.detail}" if self.detail else ""
        return f"queue {self.queue}: {self.kind}{lost}{place}{detail}"
