"""Where the topics of a command are: behind a server, or in a folder that no server has open."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lamina.cli.reaching import RESP, endpoint_of, one_of, server_or_folder
from lamina.errors import BadOption, BadTopic, LogLocked, from_os
from lamina.units import parse_time

if TYPE_CHECKING:
    from lamina.client.remote_topics import RemoteTopics
    from lamina.engines.topics.api import TopicFolder
    from lamina.engines.topics.messages import Message, Publishable
    from lamina.engines.topics.views import GroupView, Reset, TopicView
    from lamina.engines.topics.why import WhyReport

_ID: Final = re.compile(r"\d{1,20}-\d{1,20}", re.ASCII).fullmatch


where: Final = server_or_folder(RESP)
"""The options that every command has."""


class FolderPlace:
    """Topics of a data folder, which this process has for itself."""

    def __init__(self, topics: TopicFolder) -> None:
        self._topics = topics

    def names(self) -> list[str]:
        return self._topics.names()

    def stats(self, name: str) -> TopicView:
        return self._topics.topic(name).stats()

    def publish(self, name: str, message: Publishable, id: str | None = None) -> str:
        return self._topics.topic(name).publish(message, id=id)

    def publish_many(self, name: str, messages: Sequence[Publishable]) -> list[str]:
        return self._topics.topic(name).publish_many(messages)

    def read(self, name: str, since: str | None, last: int | None) -> Iterator[Message]:
        return self._topics.topic(name).read(since=since, last=last)

    def follow(self, name: str, after: str) -> Iterator[Message]:
        raise BadOption("nobody else can publish to a folder that is open here", hint="-f follows a server: --server")

    def groups(self, name: str) -> list[GroupView]:
        return self._topics.topic(name).groups()

    def reset(self, name: str, group: str, to: str, *, dry_run: bool) -> Reset:
        return self._topics.topic(name).reset(group, to, dry_run=dry_run)

    def delete(self, name: str) -> bool:
        return self._topics.delete(name)

    def why(self, name: str, retention: str | None) -> WhyReport:
        from lamina.engines.topics.retention import KEEP, parse
        from lamina.engines.topics.why import why

        limits = parse(retention or KEEP)
        topic = self._topics.topic(name).find()
        if topic is None:
            raise no_topic(name)
        return why(topic, limits, self._topics.clock.now_ns())


class ServerPlace:
    """Topics of a server."""

    def __init__(self, topics: RemoteTopics) -> None:
        self._topics = topics

    def names(self) -> list[str]:
        return self._topics.names()

    def stats(self, name: str) -> TopicView:
        return self._topics.topic(name).stats()

    def publish(self, name: str, message: Publishable, id: str | None = None) -> str:
        return self._topics.topic(name).publish(message, id=id)

    def publish_many(self, name: str, messages: Sequence[Publishable]) -> list[str]:
        return self._topics.topic(name).publish_many(messages)

    def read(self, name: str, since: str | None, last: int | None) -> Iterator[Message]:
        return self._topics.topic(name).read(since=since, last=last)

    def follow(self, name: str, after: str) -> Iterator[Message]:
        from lamina.engines.topics.ids import EntryId
        from lamina.engines.topics.messages import parse_id
        from lamina.engines.topics.views import show_id

        return self._topics.topic(name).follow(since=show_id(EntryId(parse_id(after) + 1)))

    def groups(self, name: str) -> list[GroupView]:
        return self._topics.topic(name).groups()

    def reset(self, name: str, group: str, to: str, *, dry_run: bool) -> Reset:
        return self._topics.topic(name).reset(group, to, dry_run=dry_run)

    def delete(self, name: str) -> bool:
        return self._topics.delete(name)

    def why(self, name: str, retention: str | None) -> WhyReport:
        from lamina.client.topic_talks import why

        topics = self._topics
        return topics.lines.do(why(topics.topic(name).raw_name, retention))


Place = FolderPlace | ServerPlace


@contextmanager
def topics_at(server: str | None, data: str | None, *, makes: bool = False) -> Iterator[Place]:
    """The topics of the server or of the folder, which is made if it ``makes`` one.

    Raises: BadOption; LogLocked if a server has the folder; what opening it does. A server is called at the first use.
    """
    one_of(server, data)
    if data is not None:
        yield from _opened(data, makes)
        return
    from lamina.client.lines import Lines
    from lamina.client.lines_aio import AsyncLines
    from lamina.client.remote_topics import RemoteTopics

    endpoint = endpoint_of(server, RESP)
    lines = Lines(endpoint)
    try:
        yield ServerPlace(RemoteTopics(lines, AsyncLines(endpoint)))
    finally:
        lines.close()


def _opened(data: str, makes: bool) -> Iterator[Place]:
    from lamina.data import open as open_data

    _check_folder(data, makes)
    with open_data(data) as folder:
        try:
            topics = folder.topics
        except LogLocked as error:
            hint = "a server has it open: give --server HOST:PORT instead of --data, or stop it first"
            raise LogLocked(error.message, hint=hint, **error.facts) from error
        yield FolderPlace(topics)


def _check_folder(data: str, makes: bool) -> None:
    """Looking for topics in the wrong place must not make a folder there."""
    path = Path(data)
    try:
        if (path / "topics").is_dir():
            return
        names = os.listdir(path)
    except FileNotFoundError as error:
        if makes:
            return
        raise from_os(error, "open the data folder", data) from error
    except OSError as error:
        raise from_os(error, "open the data folder", data) from error
    if any(name.endswith((".log", ".dat")) for name in names):
        parent = f": give {path.parent}" if path.name == "topics" else ""
        raise BadOption(
            f"{data} is a folder of log files, not a data folder", hint=f"its topics would be in topics/{parent}"
        )
    if not makes:
        raise BadOption(
            f"{data} holds no topics", hint="they would be in its folder topics/, made by the first publish"
        )


def no_topic(name: str) -> BadTopic:
    return BadTopic(f"there is no topic {name}", hint='"lamina topics ls" shows them')


def check_topic(place: Place, name: str) -> TopicView:
    """Raises: BadTopic if there is no such topic."""
    stats = place.stats(name)
    if not stats.added and not stats.groups and stats.last_id is None and name not in place.names():
        raise no_topic(name)
    return stats


def to_moment(text: str) -> str:
    """An id, from an id or from a time as people write it; "start" and "end" stay. Raises: BadOption."""
    from lamina.engines.topics.messages import END, START

    if text in (START, END) or _ID(text):
        return text
    try:
        return f"{max(parse_time(text), 0) // 1_000_000}-0"
    except BadOption as error:
        raise BadOption(error.message, hint=f"{error.hint}; or an id, such as 1700000000123-0") from error
