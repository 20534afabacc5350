"""Records of entries to the answer that shows them: ``[[id, [name, value, ...]], ...]``, the same in both versions.

_entry_replies.pyx is the compiled twin, made by hand; tests hold the two equal.
"""

from __future__ import annotations

from collections.abc import Sequence

from lamina.engines.topics import entries
from lamina.engines.topics.ids import EntryId


def show_all(payloads: Sequence[bytes]) -> bytes:
    """Raises: BadRecord for one that is no entry."""
    parts = [b"*%d\r\n" % len(payloads)]
    for payload in payloads:
        id, fields = entries.decode(payload)
        shown = entries.show(id)
        parts.append(b"*2\r\n$%d\r\n%b\r\n*%d\r\n" % (len(shown), shown, len(fields)))
        parts += [b"$%d\r\n%b\r\n" % (len(field), field) for field in fields]
    return b"".join(parts)


def show_ids(ids: Sequence[EntryId]) -> bytes:
    """The answers to several entries that were added."""
    return b"".join(map(show_id, ids))


def show_id(id: EntryId) -> bytes:
    """The answer to an entry that was added."""
    shown = entries.show(id)
    return b"$%d\r\n%b\r\n" % (len(shown), shown)


def show_pending(entries: Sequence[tuple[EntryId, bytes, int, int]], now: int) -> bytes:
    """What is pending: ``[[id, consumer, idle, deliveries], ...]``, of id, consumer, since when and deliveries."""
    parts = [b"*%d\r\n" % len(entries)]
    for id, consumer, time, deliveries in entries:
        parts.append(b"*4\r\n%b$%d\r\n%b\r\n" % (show_id(id), len(consumer), consumer))
        parts.append(b":%d\r\n:%d\r\n" % (max(now - time, 0), deliveries))
    return b"".join(parts)
