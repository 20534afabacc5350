"""Groups that nobody uses any more, given back piece by piece.

To free a million pending entries takes a tenth of a second in which the interpreter runs nothing else, whichever thread
does it. So a thread takes them apart and lets others on in between.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Final

from lamina.engines.topics.group_state import Group, Pending
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.sorted_map import SortedMap

LARGE: Final = 10_000
"""Pending entries: to free fewer takes less than to start a thread and wait for it."""
_REST_S: Final = 0.001


def free(groups: Iterable[Group]) -> None:
    """Nobody uses these any more. Small ones go when the caller lets go of them, as anything does."""
    large = [group for group in groups if len(group.pending) > LARGE]
    if large:
        of_consumers = [consumer.pending for group in large for consumer in group.consumers.values()]
        free_pending(of_consumers + [group.pending for group in large])


def free_pending(pending: list[SortedMap[EntryId, Pending]]) -> None:
    """The same for what was pending."""
    threading.Thread(target=_take_apart, args=(pending,), name="lamina-garbage", daemon=True).start()


def _take_apart(pending: list[SortedMap[EntryId, Pending]]) -> None:
    for each in pending:
        while each.shrink():
            time.sleep(_REST_S)  # let others on
