"""How ``lamina topics`` shows topics, messages and groups to people and to programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from lamina.cli.render import out, print_table
from lamina.units import show_bytes, show_duration, show_time

if TYPE_CHECKING:
    from lamina.engines.topics.messages import Message
    from lamina.engines.topics.views import GroupView, Reset, TopicView
    from lamina.engines.topics.why import WhyReport

_PREVIEW: Final = 200
_LAST_YEAR_MS: Final = 253_402_300_799_999


# -- for programs ----------------------------------------------------------------------------------------------------


def message_facts(message: Message) -> dict[str, object]:
    """Fields as text where they are; else all of them in hexadecimal, as pairs, so that nothing is mistaken."""
    facts: dict[str, object] = {"id": message.id, "time_ms": message.time_ms}
    try:
        fields = {name.decode(): value.decode() for name, value in message.pairs}
    except UnicodeDecodeError:
        fields = {}
    if len(fields) == len(message.pairs):
        facts["fields"] = fields
    else:
        facts["pairs_hex"] = [[name.hex(), value.hex()] for name, value in message.pairs]
    return facts


def reset_facts(found: Reset) -> dict[str, object]:
    facts = asdict(found)
    del facts["last_before"]
    return facts


# -- for people ------------------------------------------------------------------------------------------------------


def print_topics(topics: Sequence[TopicView]) -> None:
    if not topics:
        out.print("no topics")
        return
    columns = ["topic", "messages ", "published ", "groups ", "oldest", "newest"]
    rows = [[one.name, one.length, one.added, one.groups, _when(one.first_id), _when(one.last_id)] for one in topics]
    print_table(columns, rows)


def print_message(message: Message) -> None:
    fields = " ".join(f"{_text(name)}={_text(value)}" for name, value in message.pairs)
    out.print(f"{message.id}  {_when(message.id)}  {fields}", markup=False, soft_wrap=True)


def contents(found: TopicView) -> str:
    return f"{_messages(found.length)} and {found.groups:,} group{'' if found.groups == 1 else 's'}"


def print_deleted(found: TopicView, *, dry_run: bool) -> None:
    went = "would be deleted" if dry_run else "deleted"
    out.print(f"{found.name} {went}, with {contents(found)}", markup=False)
    if dry_run:
        out.print("nothing was changed: leave out --dry-run to do it")


def print_groups(name: str, groups: Sequence[GroupView]) -> None:
    if not groups:
        out.print(f"no groups in {name}", markup=False)
        return
    columns = ["group", "consumers ", "pending ", "lag ", "last delivered", "oldest pending", "last seen "]
    print_table(columns, [_group_row(group) for group in groups])
    consumers = [
        [group.name, one.name, one.pending, show_duration(one.idle_ms / 1000)]
        for group in groups
        for one in group.consumers
    ]
    if consumers:
        out.print()
        print_table(["group", "consumer", "pending ", "last seen "], consumers)


def _group_row(group: GroupView) -> list[object]:
    seen = min((one.idle_ms for one in group.consumers), default=None)
    return [
        group.name,
        len(group.consumers),
        group.pending,
        "-" if group.lag is None else group.lag,
        group.last_id,
        group.oldest_pending or "-",
        "-" if seen is None else show_duration(seen / 1000),
    ]


def print_reset(found: Reset, *, dry_run: bool) -> None:
    verb = "would go on" if dry_run else "goes on"
    out.print(f"{found.group} {verb} behind {found.to_id}; it was at {found.from_id}", markup=False)
    out.print(f"  {_messages(found.again)} delivered again, {_messages(found.skipped)} skipped")
    if found.pending:
        out.print(f"  {_messages(found.pending)} pending, which stay with their consumers until they acknowledge")
    if dry_run:
        out.print("nothing was changed: leave out --dry-run to do it")


def print_why(name: str, report: WhyReport) -> None:
    out.print(f"{name}: {report.answer}", markup=False)
    size = f"{show_bytes(report.bytes)} in {report.files} files, {_messages(report.length)}"
    since = "" if report.oldest_written is None else f", the oldest file begun {report.oldest_written}"
    out.print(f"  {size}{since}", markup=False)
    out.print(f"  retention {report.retention}", markup=False)
    for limit in report.limits:
        would = f"{limit.files} files, {show_bytes(limit.bytes)}"
        out.print(f"  {limit.limit} alone would let go {would}", markup=False)
    if report.dead_files:
        text = f"  {report.dead_files} files are written anew without what is dead in them, about"
        out.print(f"{text} {show_bytes(report.dead_bytes)}", markup=False)
    if report.past_files:
        out.print(
            f"  {report.past_files} files stay for the recent past, about {show_bytes(report.past_bytes)}", markup=False
        )
    for holder in report.holders:
        unread = "an unknown number of" if holder.unread is None else f"{holder.unread:,}"
        holds = "holds" if holder.holds else "needs, but does not hold,"
        facts = f"{holder.pending:,} pending, {unread} unread, last seen {show_duration(holder.idle_s)} ago"
        out.print(f"  group {holder.group} {holds} what is from {holder.oldest_needed} on: {facts}", markup=False)
        out.print(f"    {holder.advice}", markup=False)
    for one in report.log_consumers:
        until = "" if one.expires is None else f", until {one.expires}"
        behind = "everything" if one.position is None else f"what was written after {one.position}"
        out.print(f"  consumer {one.consumer} of the log holds {behind}{until}", markup=False)
        out.print(f"    {one.advice}", markup=False)


def _messages(count: int) -> str:
    return f"{count:,} message{'' if count == 1 else 's'}"


def _when(id: str | None) -> str:
    """The time in an id; a publisher may have chosen one that is no time."""
    if id is None:
        return "-"
    ms = int(id.partition("-")[0])
    return show_time(ms * 1_000_000)[:23] + "Z" if ms <= _LAST_YEAR_MS else "-"


def _text(data: bytes) -> str:
    """No control characters: they come from whoever published."""
    text = data[:_PREVIEW].decode("utf-8", "backslashreplace")
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return shown + ("..." if len(data) > _PREVIEW else "")
