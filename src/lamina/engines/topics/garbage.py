"""Groups that nobody uses any more, given back piece by piece.

To free a million pending entries takes a tenth of a second in which the interpreter runs nothing else, whichever thread
does it. So a thread takes them apart and lets others on in between.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Final

from lamina.engines.topics.group_state import Group

_LARGE: Final = 10_000  # pending entries; to free fewer takes less than to start a thread and wait for it
_PIECE: Final = 1000
_REST_S: Final = 0.001


def free(groups: Iterable[Group]) -> None:
    """Nobody uses these any more. Small ones go when the caller lets go of them, as anything does."""
    large = [group for group in groups if len(group.pending) > _LARGE]
    if large:
        threading.Thread(target=_take_apart, args=(large,), name="lamina-garbage", daemon=True).start()


def _take_apart(groups: list[Group]) -> None:
    for group in groups:
        pending = group.pending
        while pending:
            for _ in range(min(_PIECE, len(pending))):
                pending.popitem()
            _rest()
        for ids in (group.ids, *(consumer.ids for consumer in group.consumers.values())):
            while ids.shrink():
                _rest()


def _rest() -> None:
    """Let others on."""
    time.sleep(_REST_S)
