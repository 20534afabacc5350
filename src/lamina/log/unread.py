"""Which sealed files of a log somebody has yet to read: those stay, whatever cleaning thinks of their records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lamina.errors import StorageError
from lamina.log.consumer_file import Consumer
from lamina.log.naming import FileName
from lamina.log.reader import Reader


def unread(reader: Reader, names: Sequence[FileName], consumers: Iterable[Consumer]) -> list[FileName]:
    """Of ``names``, sealed files of one log, oldest first: those with records past the position of a consumer.

    Times rise through a log, so these are the newest ones. A file that cannot be read may have such records, too.
    """
    after = min((one.position_in(reader.stream) for one in consumers), default=None)
    if after is None:
        return []
    for place in range(len(names) - 1, -1, -1):
        newest = newest_of(reader, names[place])
        if newest is not None and newest <= after:
            return list(names[place + 1 :])
    return list(names)


def newest_of(reader: Reader, name: FileName) -> int | None:
    """Time of the newest record of a file; None: it has none, or that cannot be known."""
    try:
        segment = reader.open(name, is_newest=True)  # a header that was cut short is no reason to fail
        if segment is None:
            return None
        try:
            return reader.index_of(segment).last_data or None
        finally:
            segment.file.close()
    except StorageError:
        return None
