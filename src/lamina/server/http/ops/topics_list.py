"""Which topics there are. Looking at the list opens none: of those that nobody used since the start it shows what their
folders tell.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from contextlib import closing
from fnmatch import translate
from typing import Annotated, Final
from weakref import WeakKeyDictionary

import msgspec

from lamina.engines.topics import group_lag
from lamina.engines.topics.topic import Topic
from lamina.engines.topics.topics import Topics
from lamina.errors import from_os
from lamina.log.files import join
from lamina.log.folders import folder_name
from lamina.log.naming import sort_out
from lamina.server.http.names import read_name
from lamina.server.http.operations import After, Asks, Gives, Limit, Operation, Place
from lamina.server.http.ops.topics_common import engine_of, shown_name, time_of

_FEW_GROUPS: Final = 100  # of more the lag is not worked out for a list
_MOST_KNOWN: Final = 200_000  # sizes of sealed files that are remembered
_EMPTY_FOLDERS: Final = 1000  # of topics that were never written to: so many are passed over for a page

_sizes: WeakKeyDictionary[Topics, dict[tuple[bytes, str], int]] = WeakKeyDictionary()
"""Of sealed files, which do not change."""


class TopicRow(msgspec.Struct, frozen=True, kw_only=True):
    """One topic. What is not known of one that was not opened since the start is none."""

    name: str
    is_open: bool
    """It was used since the server started."""
    bytes: int
    """Of its files."""
    files: int
    length: int | None = None
    """Messages that are there."""
    added: int | None = None
    """Messages that were ever published."""
    last_ns: int | None = None
    """The time in the id of the newest message."""
    groups: int | None = None
    lag: int | None = None
    """Messages that the group which is behind most has yet to get; none: there is no group, or it cannot be known."""


class TopicListAsks(Asks, frozen=True, kw_only=True):
    """Which topics."""

    search: Annotated[str, msgspec.Meta(max_length=500)] = ""
    """A part of the name, small and large letters alike; or a pattern such as ``orders.*``."""
    after: After = ""
    limit: Limit = 100


class TopicList(Gives, frozen=True, kw_only=True):
    """Topics by name."""

    topics: list[TopicRow]
    total: int
    """Names that fit, on all pages."""
    next: str = ""
    """Ask with this as ``after`` for the next page; empty: there is none."""


async def _list(place: Place, asked: TopicListAsks) -> TopicList:
    place.check_some("topics", "read")
    topics = engine_of(place)
    return await place.in_thread(_listed, place, topics, asked)


def _listed(place: Place, topics: Topics, asked: TopicListAsks) -> TopicList:
    names = topics.known()
    if not place.user.may_all("topics", "read"):
        names = [name for name in names if place.may("topics", "read", name)]
    if asked.search:
        fits = _fitting(asked.search)
        names = [name for name in names if fits(shown_name(name))]
    start = bisect_right(names, read_name(asked.after)) if asked.after else 0
    opened = dict(topics.opened())
    rows: list[TopicRow] = []
    at = start
    for at in range(start, len(names)):
        if len(rows) == asked.limit or at - start > asked.limit + _EMPTY_FOLDERS:
            return TopicList(topics=rows, total=len(names), next=shown_name(names[at - 1]))
        row = _row(topics, names[at], opened.get(names[at]))
        if row is not None:
            rows.append(row)
    return TopicList(topics=rows, total=len(names))


def _fitting(search: str) -> Callable[[str], bool]:
    wanted = search.lower()
    if any(letter in wanted for letter in "*?["):
        fits = re.compile(translate(wanted)).match  # fnmatch itself remembers very many, of any length
        return lambda name: fits(name.lower()) is not None
    return lambda name: wanted in name.lower()


def _row(topics: Topics, name: bytes, topic: Topic | None) -> TopicRow | None:
    """None: it was never written to."""
    size, files = size_of(topics, name)
    if topic is None:
        return TopicRow(name=shown_name(name), is_open=False, bytes=size, files=files) if files else None
    groups = topic.opened_groups
    with topic.lock:
        state = topic.state
        if not state.exists:
            return None
        count = None if groups is None else len(groups.state.groups)
        lag = None
        if groups is not None and count and count <= _FEW_GROUPS:
            lags = [group_lag.lag(topic, group) for group in groups.state.groups.values()]
            lag = max((one for one in lags if one is not None), default=None)
        return TopicRow(
            name=shown_name(name),
            is_open=True,
            bytes=size,
            files=files,
            length=state.length,
            added=state.added,
            last_ns=time_of(state.last_id or None),
            groups=count,
            lag=lag,
        )


def size_of(topics: Topics, name: bytes) -> tuple[int, int]:
    """Bytes of the files that hold the messages, and how many files they are. The topic is not opened.

    Raises: DiskError.
    """
    folder = join(topics.folder, folder_name(name))
    known = _sizes.setdefault(topics, {})
    try:
        segments = sort_out(topics.files.list(folder)).segments
    except FileNotFoundError:  # deleted meanwhile, or never written to
        return 0, 0
    except OSError as error:
        raise from_os(error, "list the folder", folder) from error
    if len(known) > _MOST_KNOWN:
        known.clear()
    total = 0
    for number, segment in enumerate(segments):
        size = known.get((name, segment.name))
        if size is None:
            size = _size_of(topics, join(folder, segment.name))
            if number < len(segments) - 1:
                known[name, segment.name] = size
        total += size
    return total, len(segments)


def _size_of(topics: Topics, path: str) -> int:
    try:
        with closing(topics.files.open(path)) as file:
            return file.size()
    except FileNotFoundError:  # let go meanwhile
        return 0
    except OSError as error:
        raise from_os(error, "look at the file", path) from error


LIST: Final = Operation(
    name="topics.list",
    method="GET",
    path="/topics",
    summary="Topics by name",
    right=("topics", "read"),
    asks=TopicListAsks,
    gives=TopicList,
    do=_list,
    errors=("bad_name", "disk_error"),
)
