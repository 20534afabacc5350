"""Operations on queues."""

from __future__ import annotations

from typing import Final

from lamina.server.http.operations import AnyOperation, Done, Operation
from lamina.server.http.ops import queues_doing as doing
from lamina.server.http.ops import queues_looking as looking

_READ: Final = ("disk_error",)
_DISK: Final = ("disk_full", "disk_error", "log_failed", "log_closed")

LIST: Final = Operation(
    name="queues.list",
    method="GET",
    path="/queues",
    summary="Queues, the deepest first or in order of their handles",
    right=looking.RIGHT,
    asks=looking.ListAsks,
    gives=looking.QueueList,
    do=looking.list_queues,
    errors=_READ,
)
SHOW: Final = Operation(
    name="queues.show",
    method="GET",
    path="/queues/{handle}",
    summary="What is known of one queue",
    right=looking.RIGHT,
    asks=looking.OneAsks,
    gives=looking.QueueFacts,
    do=looking.show_queue,
    errors=_READ,
)
BROWSE: Final = Operation(
    name="queues.browse",
    method="GET",
    path="/queues/{handle}/messages",
    summary="What waits in a queue, without taking it",
    right=looking.RIGHT,
    asks=looking.BrowseAsks,
    gives=looking.Messages,
    do=looking.browse,
    errors=_READ,
)
PURGE: Final = Operation(
    name="queues.purge",
    method="POST",
    path="/queues/{handle}/purge",
    summary="Drop messages that wait for too long",
    right=looking.RIGHT,
    asks=doing.PurgeAsks,
    gives=Done,
    do=doing.do_purge,
    plan=doing.plan_purge,
    target=lambda asked: asked.handle,
    errors=_DISK,
)
MOVE: Final = Operation(
    name="queues.move",
    method="POST",
    path="/queues/{handle}/move",
    summary="Move messages to another queue",
    right=looking.RIGHT,
    asks=doing.MoveAsks,
    gives=Done,
    do=doing.do_move,
    plan=doing.plan_move,
    target=lambda asked: asked.handle,
    errors=_DISK,
)
SUSPEND: Final = Operation(
    name="queues.suspend",
    method="POST",
    path="/queues/{handle}/suspend",
    summary="Have a queue take nothing more",
    right=looking.RIGHT,
    asks=doing.EndAsks,
    gives=Done,
    do=doing.do_suspend,
    plan=doing.plan_suspend,
    target=lambda asked: asked.handle,
    errors=_DISK,
)
DELETE: Final = Operation(
    name="queues.delete",
    method="POST",
    path="/queues/{handle}/delete",
    summary="Delete a queue and what waits in it",
    right=looking.RIGHT,
    asks=doing.EndAsks,
    gives=Done,
    do=doing.do_delete,
    plan=doing.plan_delete,
    target=lambda asked: asked.handle,
    errors=_DISK,
)
DUMP: Final = Operation(
    name="queues.dump",
    method="POST",
    path="/queues/dump",
    summary="Write a dump of all queues",
    right=looking.RIGHT,
    asks=doing.DumpAsks,
    gives=Done,
    do=doing.do_dump,
    plan=doing.plan_dump,
    errors=(*_DISK, "storage", "corruption"),
)
OPERATIONS: Final[tuple[AnyOperation, ...]] = (LIST, SHOW, BROWSE, PURGE, MOVE, SUSPEND, DELETE, DUMP)
