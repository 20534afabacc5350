"""Looking at queues over HTTP: which there are, how deep, and what waits in one, without taking anything.

Queues are known by their handles here (engines/queues/ids.py): ids and keys are for those who send and receive, and are
in no answer. A message has no id here either, only where it stands and a mark, by which the next page is found though
the head was received meanwhile.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Annotated, Final, Literal
from weakref import WeakKeyDictionary

import msgspec

from lamina.engines.queues import ids
from lamina.engines.queues.deliveries import Deliveries
from lamina.engines.queues.handles import Handles, depth
from lamina.engines.queues.looking import Looked, look_at_served
from lamina.engines.queues.message import NO_TTL, Message, Queue
from lamina.errors import BadOption
from lamina.server.http.names import Shown, shown
from lamina.server.http.operations import After, Asks, Gives, Limit, Place
from lamina.server.inside import Inside

RIGHT: Final = ("queues", "admin")
"""Who sees all queues, as for L.QUEUES: a right to use queues is one to use those whose ids one has."""

Handle = Annotated[str, msgspec.Meta(pattern="^[a-z2-7]{16}$")]
"""All 16 letters and digits of one."""
Beginning = Annotated[str, msgspec.Meta(pattern="^[a-z2-7]{0,16}$")]
"""Of handles."""

_MEASURED: Final = 1000  # messages whose bytes are added up
_MOST_BYTES: Final = 4 << 20  # of bodies in one answer
_CURSOR: Final = re.compile(r"([0-9]{1,9})\.([0-9a-f]{12})")

_handles: WeakKeyDictionary[Inside, Handles] = WeakKeyDictionary()


class QueueFacts(Gives, frozen=True, kw_only=True):
    """One queue, as operators see it."""

    handle: str
    messages: int
    """That wait, without the mark of the quota."""
    bytes: int | None = None
    """Of their bodies; none: nobody has added them up."""
    oldest_s: int | None = None
    """When the first that waits was sent, seconds since 1970."""
    oldest_age_s: int | None = None
    newest_s: int | None = None
    """When the last that waits was sent; none: it is not known without reading them all."""
    has_subscriber: bool
    is_in_hand: bool
    """The subscriber was given the first message, and has not acknowledged it."""
    is_suspended: bool
    """Nothing more is taken."""
    is_closed: bool
    """A sender met the quota: nothing is taken until all was received."""
    is_secured: bool
    """Senders have to show a key."""
    quota: int
    ttl_s: int
    """Seconds that a message is kept, unless it says otherwise itself; 0: for ever."""
    created_s: int
    """The day on which it was made, seconds since 1970."""
    idle_s: float | None = None
    """Seconds since somebody used it; none: that is not known."""
    problem: str = ""
    """What is odd about its files; it is healed when somebody uses the queue."""


class ListAsks(Asks, frozen=True, kw_only=True):
    """Which queues."""

    order: Literal["depth", "handle"] = "depth"
    """The deepest first, of which there is one page; or all, in order of their handles."""
    prefix: Beginning = ""
    """Of the handle; then they are in order of their handles."""
    limit: Limit = 50
    after: Beginning = ""
    """``next`` of the page before."""


class QueueList(Gives, frozen=True, kw_only=True):
    """Queues, and what is known of all of them."""

    queues: list[QueueFacts]
    next: str = ""
    """Ask with this as ``after`` for the next page; empty: there is none."""
    total: int
    """Queues that there are."""
    messages: int
    """That wait in all queues whose depth is known, marks included."""
    unknown: int = 0
    """Queues that nobody has used since the start: how deep they are is on disk only, and they are not among the
    deepest."""
    expired: int
    """Messages that expired since the start."""
    store: str
    """Where messages are: memory or journal."""
    quota: int


class OneAsks(Asks, frozen=True, kw_only=True):
    """Which queue."""

    handle: Annotated[str, msgspec.Meta(pattern="^[a-z2-7]{1,16}$")]
    """Or the beginning of it, if no other begins so."""


class BrowseAsks(OneAsks, frozen=True, kw_only=True):
    """Which messages."""

    limit: Limit = 50
    after: After = ""
    body_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 16)] = 4096
    """Of each body that are shown."""


class WaitingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One that waits."""

    number: int
    """1 is the next one to be received."""
    time_s: int
    """When it was sent, seconds since 1970."""
    age_s: int
    is_quota: bool
    """No message, but the mark that a sender met the quota."""
    is_loss: bool = False
    """No message, but the mark that messages were lost here."""
    has_expired: bool
    """It goes before it is received."""
    ttl_s: int | None = None
    """Seconds that it is kept, if it says so itself; 0: for ever."""
    flags: Shown
    body: Shown | None = None
    """None: it is a mark."""


class Messages(Gives, frozen=True, kw_only=True):
    """What waits in a queue, in order. Nothing was taken."""

    handle: str
    messages: list[WaitingMessage]
    next: str = ""
    """Ask with this as ``after`` for the next page; empty: there is none."""
    problem: str = ""


def queues_of(place: Place) -> Deliveries:
    """Raises: NotAllowed; NotReady."""
    place.check(*RIGHT)
    return place.is_there(place.inside.queues)


def handles_of(place: Place) -> Handles:
    """Raises: NotAllowed; NotReady."""
    deliveries, inside = queues_of(place), place.inside
    found = _handles.get(inside)
    if found is None or found.engine is not deliveries.engine:
        found = _handles[inside] = Handles(deliveries.engine)
        found.prepare()
    return found


async def list_queues(place: Place, asked: ListAsks) -> QueueList:
    handles, deliveries = handles_of(place), queues_of(place)
    return await place.in_thread(_list, handles, deliveries, asked)


def _list(handles: Handles, deliveries: Deliveries, asked: ListAsks) -> QueueList:
    engine = deliveries.engine
    in_memory = engine.keeper is engine
    looked, following = look_at_served(engine), ""
    deepest, ranking = handles.deepest(asked.limit)
    if asked.order == "depth" and not asked.prefix:
        found = deepest
    else:
        found, following = handles.page(asked.prefix, asked.after, asked.limit)
    return QueueList(
        queues=[facts(deliveries, looked, queue, reads=False) for _, queue in found],
        next=following,
        total=len(engine.state.queues),
        messages=engine.state.messages if in_memory else ranking.messages,
        unknown=ranking.unknown,
        expired=engine.expired,
        store=engine.options.store,
        quota=engine.quota,
    )


async def show_queue(place: Place, asked: OneAsks) -> QueueFacts:
    handles, deliveries = handles_of(place), queues_of(place)

    def show() -> QueueFacts:
        queue = handles.find(asked.handle)
        return facts(deliveries, look_at_served(deliveries.engine), queue, reads=True)

    return await place.in_thread(show)


def facts(deliveries: Deliveries, looked: Looked, queue: Queue, *, reads: bool) -> QueueFacts:
    """``reads``: what waits may be read for it, where it is on disk. Raises: DiskError."""
    engine, rid = deliveries.engine, queue.rid
    in_memory = engine.keeper is engine
    if not in_memory and queue.size == 0:  # nothing to look at
        waiting, is_closed, oldest, problem = 0, False, None, ""
    else:
        view = looked.view(queue)
        waiting, is_closed, oldest, problem = view.waiting, view.is_closed, view.oldest_s, view.problem
    size: int | None = None if waiting else 0
    newest: int | None = None
    if waiting and waiting <= _MEASURED and (in_memory or reads):
        messages = looked.messages(queue, _MEASURED + 1)
        size = sum(len(message.body or b"") for message in messages)
        newest = messages[-1].ts if messages else None
    receiver = deliveries.subscribers.get(rid)
    return QueueFacts(
        handle=ids.handle(rid),
        messages=waiting,
        bytes=size,
        oldest_s=oldest,
        oldest_age_s=None if oldest is None else max(engine.now() - oldest, 0),
        newest_s=newest,
        has_subscriber=receiver is not None,
        is_in_hand=receiver is not None and receiver.given.get(rid) is not None,
        is_suspended=queue.is_off,
        is_closed=is_closed,
        is_secured=queue.skey is not None,
        quota=engine.quota,
        ttl_s=engine.options.ttl_s if queue.ttl == NO_TTL else queue.ttl,
        created_s=queue.created_day,
        idle_s=None if in_memory else engine.keeper.idle_s(queue),
        problem=problem,
    )


# -- messages ----------------------------------------------------------------------------------------------------------


async def browse(place: Place, asked: BrowseAsks) -> Messages:
    handles = handles_of(place)
    return await place.in_thread(_browse, handles, asked)


def _browse(handles: Handles, asked: BrowseAsks) -> Messages:
    engine = handles.engine
    queue, looked = handles.find(asked.handle), look_at_served(engine)
    at, mark = _cursor(asked.after)
    found = looked.messages(queue, at + asked.limit + 1) if _may_wait(handles, queue) else []
    start = _behind(found, at, mark)
    page: list[WaitingMessage] = []
    size = 0
    for number, message in enumerate(found[start : start + asked.limit], start):
        if size > _MOST_BYTES:
            break
        page.append(_shown(handles, queue, message, number, asked.body_bytes))
        size += min(len(message.body or b""), asked.body_bytes)
    end = start + len(page)
    following = f"{end - 1}.{_mark(found[end - 1])}" if page and end < len(found) else ""
    problem = "; ".join(looked.warnings)
    return Messages(handle=ids.handle(queue.rid), messages=page, next=following, problem=problem)


def _may_wait(handles: Handles, queue: Queue) -> bool:
    return depth(queue, in_memory=handles.engine.keeper is handles.engine) != 0


def _shown(handles: Handles, queue: Queue, message: Message, number: int, most: int) -> WaitingMessage:
    engine = handles.engine
    now = engine.now()
    ttl = engine.options.ttl_s if queue.ttl == NO_TTL else queue.ttl
    return WaitingMessage(
        number=number + 1,
        time_s=message.ts,
        age_s=max(now - message.ts, 0),
        is_quota=message.is_marker and not message.is_loss,
        is_loss=message.is_loss,
        has_expired=message.has_expired(now, ttl),
        ttl_s=None if message.ttl == NO_TTL else message.ttl,
        flags=shown(message.flags),
        body=None if message.body is None else shown(message.body, most),
    )


def _mark(message: Message) -> str:
    """By which it is known again: of no use to anybody else."""
    return blake2b(message.id, digest_size=6, person=b"lamina mark").hexdigest()


def _cursor(after: str) -> tuple[int, str]:
    """Where the last one stood that was shown, and its mark. Raises: BadOption."""
    if not after:
        return 0, ""
    match = _CURSOR.fullmatch(after)
    if match is None:
        raise BadOption("after: it is no place in a queue", hint="give what the page before said as next")
    return int(match[1]) + 1, match[2]


def _behind(messages: list[Message], at: int, mark: str) -> int:
    """Where the page behind a mark begins. Those before it may be gone: then it stands nearer to the head."""
    if mark:
        for number in range(min(at, len(messages)) - 1, -1, -1):
            if _mark(messages[number]) == mark:
                return number + 1
    return 0  # it was received, and all before it: what is left is all behind it
