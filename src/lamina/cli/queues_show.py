"""How ``lamina queues`` shows queues and messages to people and to programs: by handle, never by id."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from lamina.cli.render import out, print_table
from lamina.units import show_bytes, show_duration, show_time

if TYPE_CHECKING:
    from lamina.engines.queues.looking import QueueView
    from lamina.engines.queues.message import Message
    from lamina.engines.queues.migrating import MigrationReport
    from lamina.engines.queues.tending import Moved, Purged

_PREVIEW: Final = 200
_LAST_YEAR_S: Final = 253_402_300_799


# -- for programs ----------------------------------------------------------------------------------------------------


def message_facts(number: int, message: Message) -> dict[str, object]:
    """All of it but its id, which is for its recipient."""
    return {
        "number": number,
        "time_s": message.ts,
        "is_quota": message.is_marker and not message.is_loss,
        "is_loss": message.is_loss,
        "flags_base64": b64encode(message.flags).decode(),
        "size": len(message.body or b""),
        "body_base64": None if message.body is None else b64encode(message.body).decode(),
        "ttl_s": message.ttl if message.ttl >= 0 else None,
    }


# -- for people ------------------------------------------------------------------------------------------------------


def print_queues(views: Sequence[QueueView], total: int) -> None:
    if not total:
        out.print("no queues")
        return
    columns = ["queue", "status", "secured", "waiting ", "oldest", "closed", "created"]
    rows = [
        [
            view.handle,
            view.status,
            _yes(view.is_secured),
            view.waiting,
            _when(view.oldest_s),
            "quota met" if view.is_closed else "-",
            _when(view.created_s)[:10],
        ]
        for view in views
    ]
    print_table(columns, rows)
    for view in views:
        if view.problem:
            out.print(f"{view.handle}: {view.problem}", markup=False)
    if len(views) < total:
        out.print(f"{total - len(views):,} more: --limit {total}", markup=False)


def print_queue(view: QueueView, store: str, size: int, newest_s: int | None) -> None:
    closed = "yes, a sender met the quota: it takes nothing until all was received" if view.is_closed else "no"
    ttl = "as the server says" if view.ttl_s is None else show_duration(view.ttl_s) if view.ttl_s else "for ever"
    status = "off: takes no messages, those that wait can be received" if view.status == "off" else view.status
    facts = {
        "queue": view.handle,
        "status": status,
        "secured": f"{_yes(view.is_secured)}{', senders show a key' if view.is_secured else ''}",
        "waiting": f"{_messages(view.waiting)}, {show_bytes(size)}",
        "oldest": _when(view.oldest_s),
        "newest": _when(newest_s),
        "closed": closed,
        "kept for": ttl,
        "created": _when(view.created_s)[:10],
        "store": store,
    }
    if view.problem:
        facts["problem"] = view.problem
    for name, value in facts.items():
        out.print(f"{name:9} {value}", markup=False)


def print_message(number: int, message: Message) -> None:
    if message.body is None:
        out.print(f"{number:4}  {_when(message.ts)}  here a sender met the quota", markup=False)
        return
    flags = f"  [{_text(message.flags)}]" if message.flags else ""
    head = f"{number:4}  {_when(message.ts)}{flags}  {show_bytes(len(message.body))}"
    out.print(f"{head}  {_text(message.body)}", markup=False, soft_wrap=True)


def print_purged(purged: Sequence[Purged], *, dry_run: bool) -> None:
    went = "would go" if dry_run else "went"
    for one in purged:
        out.print(f"{one.handle}: {_messages(one.messages)} {went}, {one.left:,} left", markup=False)
    total = sum(one.messages for one in purged)
    queues = "1 queue" if len(purged) == 1 else f"{len(purged):,} queues"
    out.print(f"{_messages(total)} of {queues} {went}", markup=False)
    if dry_run and total:
        out.print("nothing was changed: leave out --dry-run to do it")


def print_moved(moved: Moved) -> None:
    again = f" ({moved.were_there:,} of them were there already)" if moved.were_there else ""
    out.print(f"{_messages(moved.messages)} moved from {moved.from_handle} to {moved.to_handle}{again}", markup=False)


def print_would_move(source: QueueView, target: QueueView) -> None:
    counts = f"{_messages(source.waiting)} would move from {source.handle} to {target.handle}, where {target.waiting:,}"
    out.print(f"{counts} wait; nothing was changed: leave out --dry-run to do it", markup=False)


def print_would_migrate(store: str, to: str, queues: int, messages: int) -> None:
    if store == to:
        out.print(f"nothing to do: all is in the store {to}", markup=False)
        return
    out.print(f"{queues:,} queues with {_messages(messages)} would go from {store} to {to}", markup=False)
    out.print("nothing was changed: leave out --dry-run to do it")


def print_migrated(report: MigrationReport) -> None:
    if report.was_there:
        out.print(f"nothing to do: all is in the store {report.to}", markup=False)
    elif report.was_resumed:
        out.print("a migration that was broken off has come to its end")
    for word, counted in (("before", report.before), ("after", report.after)):
        counts = f"{counted.queues:,} queues, {_messages(counted.messages)}"
        out.print(f"{word:7} {counts}, digest {counted.digest[:16]}", markup=False)
    if not report.was_there:
        out.print(f"serve them with: lamina serve --queues {report.to}", markup=False)


def _messages(count: int) -> str:
    return f"{count:,} message{'' if count == 1 else 's'}"


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"


def _when(seconds: int | None) -> str:
    if seconds is None or seconds > _LAST_YEAR_S:
        return "-"
    return show_time(seconds * 10**9)[:19] + "Z"


def _text(data: bytes) -> str:
    """As text if it is, else in hexadecimal. No control characters: they come from whoever sent it."""
    more = "..." if len(data) > _PREVIEW else ""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data[: _PREVIEW // 2].hex()}{'...' if len(data) > _PREVIEW // 2 else ''}"
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:_PREVIEW]) + more
