"""Operations on topics.

topics_list.py      which there are                 topics_changes.py          publish, trim, delete
topics_one.py       one of them, and why it is      topics_group_changes.py    groups made, deleted, moved
                    as large as it is               topics_pending_changes.py  messages acknowledged, claimed
topics_entries.py   its messages                    topics_common.py           names, moments, who waits
topics_groups.py    its groups, what is pending     topics_reading.py          in small pieces: reading, counting
topics_tail.py      following it
"""

from __future__ import annotations

from typing import Final

from lamina.server.http.operations import AnyOperation
from lamina.server.http.ops.topics_changes import DELETE, PUBLISH, TRIM
from lamina.server.http.ops.topics_entries import ENTRIES, ENTRY
from lamina.server.http.ops.topics_group_changes import CREATE_GROUP, DELETE_GROUP, RESET_GROUP
from lamina.server.http.ops.topics_groups import GROUP, GROUPS, PENDING
from lamina.server.http.ops.topics_list import LIST
from lamina.server.http.ops.topics_one import ONE, WHY
from lamina.server.http.ops.topics_pending_changes import ACKNOWLEDGE, CLAIM

OPERATIONS: Final[tuple[AnyOperation, ...]] = (
    *(LIST, ONE, WHY, ENTRIES, ENTRY, GROUPS, GROUP, PENDING),
    *(PUBLISH, TRIM, DELETE, CREATE_GROUP, DELETE_GROUP, RESET_GROUP, ACKNOWLEDGE, CLAIM),
)
