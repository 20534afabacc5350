"""Whether some groups of topics are not looked at: a topic that nobody has used since the start is not opened for it.

What they have yet to read is not in the figures then, and whoever reads those has to know.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from lamina.server.http.ops import logs_names as names
from lamina.server.inside import Inside

if TYPE_CHECKING:
    from lamina.engines.topics.topics import Topics

_AT_ONCE: Final = 1000  # folders that one look goes to

# Of topics whose groups are not open, whether there are any. It stays so: who makes one opens them.
_known: WeakKeyDictionary[Topics, dict[bytes, bool]] = WeakKeyDictionary()


def has_unread_groups(inside: Inside) -> bool:
    """True also as long as that is still being found out."""
    topics = inside.topics
    if topics is None:
        return False
    before = _known.get(topics, {})
    open_ones = {name for name, topic in topics.opened() if topic.opened_groups is not None}
    now: dict[bytes, bool] = {}
    left = _AT_ONCE
    for name in topics.known():
        if name in open_ones:
            continue
        found = before.get(name)
        if found is None:
            if not left:
                break
            left -= 1
            found = os.path.isdir(names.topic_ref(inside, name, names.GROUPS).folder)
        now[name] = found
    _known[topics] = now
    return not left or any(now.values())
