"""The views ``queue_state``, one row per queue, and ``queue_messages``, what waits in them, in order.

As ``lamina queues`` shows them: by handle, never by id or key, and nothing has expired that the files do not say has.
Of an earlier time the queues can be had back to the newest dump. Journals keep the present only: there is no earlier
time, and what is there when a task reads them is what counts, not what was there when the read was made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from lamina.engines.queues import ids
from lamina.engines.queues.dump_check import time_of_end
from lamina.engines.queues.looking import Looked, look
from lamina.engines.queues.message import NO_TTL
from lamina.errors import BadOption
from lamina.log.files import Files
from lamina.log.segment import open_for_reading
from lamina.pipeline import places
from lamina.pipeline.frozen import Frozen
from lamina.pipeline.reach import too_old
from lamina.pipeline.schema import Column
from lamina.pipeline.views.queues import BODY, FLAGS, QUEUE, SENT, moment
from lamina.pipeline.views.states.base import Log, Row, StateView

STORE: Final = Column("store", "string", "where its messages are: memory or journal")
STATUS: Final = Column("status", "string", "active, or off: nothing more is accepted")
IS_SECURED: Final = Column("is_secured", "boolean", "senders have to show a key")
IS_CLOSED: Final = Column("is_closed", "boolean", "a sender met the quota: nothing is taken until all was received")
WAITING: Final = Column("waiting", "bigint", "messages that wait, without the mark of the quota")
BYTES: Final = Column("bytes", "bigint", "of their bodies")
OLDEST: Final = Column("oldest", "timestamp", "when the first that waits was sent, in seconds")
NEWEST: Final = Column("newest", "timestamp", "when the last that waits was sent, in seconds")
TTL_S: Final = Column("ttl_s", "bigint", "how long messages are kept; null: as the server says; 0: for ever")
CREATED: Final = Column("created", "timestamp", "the day on which the queue was made")
PROBLEM: Final = Column("problem", "string", "of a journal: what a server that opens it will heal; null: nothing")
NUMBER: Final = Column("number", "bigint", "its place in the queue, from 1 on")
MESSAGE: Final = Column("message", "string", "handle of the message, as in queue_events")
IS_QUOTA: Final = Column("is_quota", "boolean", "the mark that a sender met the quota here")
SIZE: Final = Column("size", "bigint", "bytes of its body")
KEPT_S: Final = Column("ttl_s", "bigint", "how long the message is kept, if it says so itself; 0: for ever")

_DUMP: Final = ".dump"


class _QueuesView(StateView):
    kinds = (places.QUEUES,)

    def check_reach(self, disk: Files, log: Log, as_of_ns: int) -> None:
        base = next((file for file in log.files if file.name.endswith(_DUMP)), None)
        if base is None:
            return
        file = open_for_reading(disk, log.place.folder, base.name)
        try:
            dumped = time_of_end(file)
        finally:
            file.close()
        if dumped is not None and dumped > as_of_ns:
            raise too_old(log.place, as_of_ns, dumped)


class QueueStateView(_QueuesView):
    """One row per queue."""

    name = "queue_state"
    columns = (
        *(QUEUE, STORE, STATUS, IS_SECURED, IS_CLOSED, WAITING, BYTES),
        *(OLDEST, NEWEST, TTL_S, CREATED, PROBLEM),
    )

    def rows(self, disk: Files, log: Log) -> Iterator[Row]:
        with _looked(disk, log) as looked:
            for queue in [] if looked is None else list(looked.state.queues.values()):
                assert looked is not None
                view = looked.view(queue)
                # All from one look: of a journal that a server writes to, the next one may find something else.
                messages = looked.messages(queue)
                is_closed = bool(messages) and messages[-1].is_marker and not messages[-1].is_loss
                yield (
                    view.handle,
                    looked.store,
                    view.status,
                    view.is_secured,
                    is_closed,
                    len(messages) - is_closed,
                    sum(len(message.body or b"") for message in messages),
                    moment(messages[0].ts) if messages else None,
                    moment(messages[-1].ts) if messages else None,
                    view.ttl_s,
                    moment(view.created_s),
                    view.problem or None,
                )


class QueueMessagesView(_QueuesView):
    """One row per message that waits."""

    name = "queue_messages"
    columns = (QUEUE, NUMBER, MESSAGE, SENT, IS_QUOTA, FLAGS, SIZE, BODY, KEPT_S)

    def rows(self, disk: Files, log: Log) -> Iterator[Row]:
        with _looked(disk, log) as looked:
            for queue in [] if looked is None else list(looked.state.queues.values()):
                assert looked is not None
                handle = ids.handle(queue.rid)
                for number, message in enumerate(looked.messages(queue), 1):
                    yield (
                        handle,
                        number,
                        ids.handle(message.id),
                        moment(message.ts),
                        message.is_marker and not message.is_loss,
                        None if message.is_marker and not message.is_loss else message.flags,
                        len(message.body or b""),
                        message.body,
                        None if message.ttl == NO_TTL else message.ttl,
                    )


@contextmanager
def _looked(disk: Files, log: Log) -> Iterator[Looked | None]:
    """The queues as they were; None: there were none yet. Raises: TooOld, BadOption, Corruption, DiskError."""
    with Frozen(disk, log.place, log.files, log.as_of_ns) as frozen:
        if frozen.is_empty:
            yield None
            return
        looked = look(frozen.files, frozen.folder)
        if looked.layouts and log.as_of_ns is not None:
            raise BadOption(
                f"{log.place.path}: the messages are in journals, which keep the present only",
                hint="leave out asOf, or look into queue_events for what is still there",
                option="asOf",
            )
        yield looked
