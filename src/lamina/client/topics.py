"""The topics of a server, spoken to in the commands of Redis Streams; answers as the embedded ones give them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from lamina.client.resp import Reply, RespClient, Word
from lamina.engines.topics import ids
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.messages import END, START, Message, Publishable, show_name, to_flat
from lamina.engines.topics.views import ConsumerView, GroupView, Reset, TopicView, show_id
from lamina.errors import BadTopic, LaminaError, NoGroup, WireError
from lamina.log.frame import MAX_PAYLOAD

if TYPE_CHECKING:
    from lamina.engines.topics.why import WhyReport

PAGE: Final = 1000


class TopicClient:
    """Over one connection. Threads: one at a time. Raises, each method: Disconnected, WireError."""

    def __init__(self, server: RespClient) -> None:
        self._server = server

    def names(self) -> list[str]:
        """Of all topics, sorted."""
        found, cursor = set[bytes](), b"0"
        while True:
            cursor, names = self._server.ask("SCAN", cursor, "COUNT", PAGE, "TYPE", "stream")
            found.update(names)
            if cursor == b"0":
                return [show_name(name) for name in sorted(found)]

    def stats(self, name: str) -> TopicView:
        """How much there is; all zero for a topic that does not exist."""
        facts = self._info(name)
        if facts is None:
            return TopicView(name, 0, 0, None, None, 0)
        first, last = facts["first-entry"], facts["last-generated-id"].decode()
        return TopicView(
            name,
            facts["length"],
            facts.get("entries-added", facts["length"]),
            None if first is None else first[0].decode(),
            None if last == "0-0" else last,
            facts["groups"],
        )

    def why(self, name: str, retention: str | None) -> WhyReport:
        """Why it is as large as it is, by these limits or by those the server has for it. Raises: BadTopic."""
        from lamina.engines.topics.why import HolderReport, LimitReport, LogConsumerReport, WhyReport

        reply = self._server.ask("L.WHY", name, *(() if retention is None else (retention,)))
        if reply is None:
            raise BadTopic(f"there is no topic {name}")
        facts = json.loads(reply)
        limits = [LimitReport(**limit) for limit in facts.pop("limits")]
        holders = [HolderReport(**one) for one in facts.pop("holders")]
        consumers = [LogConsumerReport(**one) for one in facts.pop("log_consumers", ())]
        return WhyReport(limits=limits, holders=holders, log_consumers=consumers, **facts)

    def _info(self, name: str) -> dict[str, Any] | None:
        (reply,) = self._server.ask_all([("XINFO", "STREAM", name)])
        if isinstance(reply, BadTopic) and "no such key" in reply.message:
            return None
        if isinstance(reply, LaminaError):
            raise reply
        return _facts(reply)

    # -- publishing --------------------------------------------------------------------------------------------------

    def publish(self, name: str, message: Publishable, *, id: str | None = None) -> str:
        """Raises: BadTopic, StorageError."""
        reply: bytes = self._server.ask("XADD", name, id or "*", *to_flat(message, MAX_PAYLOAD))
        return reply.decode()

    def publish_many(self, name: str, messages: Sequence[Publishable]) -> list[str]:
        """All at once; returns their ids. Raises: the first refusal; others may have been published."""
        commands: list[list[Word]] = [["XADD", name, "*", *to_flat(message, MAX_PAYLOAD)] for message in messages]
        replies = self._server.ask_all(commands)
        for reply in replies:
            if isinstance(reply, LaminaError):
                raise reply
        return [reply.decode() for reply in replies]

    # -- reading -----------------------------------------------------------------------------------------------------

    def read(self, name: str, since: str | None, last: int | None) -> Iterator[Message]:
        """The messages there are, page by page: from an id on, or the newest so many of them."""
        start = ids.FIRST if since is None else ids.parse(since.encode())
        if last is not None:
            start = self._start_of_last(name, start, last)
        end = self._newest(name)
        while start <= end:
            page = self._range("XRANGE", name, start, end, PAGE)
            yield from page
            if len(page) < PAGE:
                return
            start = EntryId(page[-1].entry_id + 1)

    def _newest(self, name: str) -> EntryId:
        facts = self._info(name)
        return ids.FIRST if facts is None else ids.parse(facts["last-generated-id"])

    def _start_of_last(self, name: str, start: EntryId, last: int) -> EntryId:
        end, found = ids.LAST, ids.LAST
        while last and start <= end:
            most = min(last, PAGE)
            page = self._range("XREVRANGE", name, end, start, most)
            last -= len(page)
            if page:
                found = page[-1].entry_id
                end = EntryId(found - 1)
            if len(page) < most:
                break
        return found

    def _range(self, command: str, name: str, one: EntryId, other: EntryId, count: int) -> list[Message]:
        return _messages(self._server.ask(command, name, ids.show(one), ids.show(other), "COUNT", count))

    def follow(self, name: str, after: str, is_over: Callable[[], bool] = lambda: False) -> Iterator[Message]:
        """What comes behind an id, for ever: one looks each second whether it is over."""
        while not is_over():
            reply = self._server.ask("XREAD", "COUNT", PAGE, "BLOCK", 1000, "STREAMS", name, after, wait=1)
            for message in _messages(reply[0][1]) if reply else ():
                after = message.id
                yield message

    # -- groups ------------------------------------------------------------------------------------------------------

    def groups(self, name: str) -> list[GroupView]:
        if self._info(name) is None:
            return []
        return [self._group(name, _facts(reply)) for reply in self._server.ask("XINFO", "GROUPS", name)]

    def _group(self, name: str, facts: dict[str, Any]) -> GroupView:
        group = facts["name"]
        consumers = [_facts(reply) for reply in self._server.ask("XINFO", "CONSUMERS", name, group)]
        oldest = self._server.ask("XPENDING", name, group)[1]
        return GroupView(
            show_name(group),
            facts["pending"],
            facts["last-delivered-id"].decode(),
            facts.get("lag"),
            None if oldest is None else oldest.decode(),
            tuple(ConsumerView(show_name(one["name"]), one["pending"], one["idle"]) for one in consumers),
        )

    def reset(self, name: str, group: str, to: str, *, dry_run: bool = False) -> Reset:
        """Let a group go on at another place: with the first message at or behind ``to``, an id, "start" or "end".

        Raises: NoGroup.
        """
        info = self._info(name)
        known = next((one for one in self.groups(name) if one.name == group), None)
        if info is None or known is None:
            what = f"topic {name!r}" if info is None else f"group {group!r} of the topic {name!r}"
            raise NoGroup(f"there is no {what}")
        at, last = ids.parse(known.last_id.encode()), self._last_before(info, to)
        again, skipped = (self._count(name, last, at), 0) if last < at else (0, self._count(name, at, last))
        if not dry_run:
            self._server.ask("XGROUP", "SETID", name, group, ids.show(last))
        return Reset(name, group, known.last_id, show_id(last), again, skipped, known.pending, last)

    def _last_before(self, info: dict[str, Any], to: str) -> EntryId:
        first = info["first-entry"]
        if to == END or (to == START and first is None):
            return ids.parse(info["last-generated-id"])
        if to == START:
            to = first[0].decode()
        return EntryId(max(ids.parse(to.encode()) - 1, ids.FIRST))

    def _count(self, name: str, after: EntryId, until: EntryId) -> int:
        total = 0
        while after < until:
            page = self._range("XRANGE", name, EntryId(after + 1), until, PAGE)
            total += len(page)
            if len(page) < PAGE:
                break
            after = page[-1].entry_id
        return total


def _facts(reply: Reply) -> dict[str, Any]:
    """A list of names and values, in turn."""
    if not isinstance(reply, list) or len(reply) % 2:
        raise WireError("no reply of a server of topics", hint="is it one?")
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def _messages(reply: Reply) -> list[Message]:
    return [Message(ids.parse(id), flat or []) for id, flat in reply]
