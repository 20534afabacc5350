"""What is odd about a queue's folder, told to whoever keeps the log of the server."""

from __future__ import annotations

from dataclasses import dataclass

from lamina.engines.queues import ids


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

    def __str__(self) -> str:
        lost = f", {self.lost} messages lost" if self.lost else ""
        detail = f": {self.detail}" if self.detail else ""
        return f"queue {self.queue}: {self.kind}{lost}{detail}"


def about(rid: bytes, kind: str, *, is_error: bool = False, lost: int = 0, detail: str = "") -> Problem:
    return Problem(kind, ids.handle(rid), is_error, lost, detail)
