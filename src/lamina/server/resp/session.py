"""What a command knows of the client that gave it, and of the house all clients share.

A command is a function ``(session, args) -> bytes`` (dispatch.py): ``args[0]`` is its name as it was typed, the answer
is ready for the wire. It raises ``Refusal``, or an error of the engine, when it changes nothing. When it changes or
shows what a log has to have before the answer may go out, it says so with ``session.rest_on``. A command that has to
wait returns a ``Wait`` instead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import ref

from lamina.clock import Clock
from lamina.engines.logged import Logged
from lamina.engines.topics.topics import Topics
from lamina.errors import LogClosed
from lamina.log.writer import Log
from lamina.server.resp.settings import Settings
from lamina.server.security.gate import Gate
from lamina.server.security.users import EVERYBODY, User

if TYPE_CHECKING:
    from lamina.engines.queues.deliveries import Deliveries, Receiver
    from lamina.engines.topics.topic import Topic
    from lamina.engines.topics.walk import Walk
    from lamina.engines.topics.why import WhyReport
    from lamina.server.resp.store_house import StoreHouse
    from lamina.server.security.strangers import Stranger

_MOST_SEEN: Final = 1000  # logs that a client has seen, before it is looked which of them are closed
Args = list[bytes]
Mark = tuple[Logged, int]
"""An engine, and the position its log has to come to."""


class Refusal(Exception):
    """An error for the client that asked. Nothing was changed."""

    def __init__(self, text: bytes | str) -> None:
        """``text`` begins with a code in capitals: ``ERR syntax error``."""
        super().__init__(text)
        self.text = text.encode() if isinstance(text, str) else text


class Wait(NamedTuple):
    """A command that waits until one of ``keys`` changes so that ``attempt`` has an answer."""

    keys: Sequence[bytes]
    seconds: float | None
    """None: for ever."""
    attempt: Callable[[], bytes | None]
    """Called again when a key has changed; raises as a command does."""
    time_is_up: bytes | Callable[[], bytes]
    """The answer when nothing came."""
    happens: Callable[[], Awaitable[object]] | None = None
    """Something else than a key that may come about: then ``attempt`` is called, too."""
    must_finish: bool = False
    """It is done in any case: a client that says no more is told how it ended."""
    rests_on: Sequence[bytes] = ()
    """Keys that ``attempt`` works on beside those."""
    is_shared: bool = False
    """``attempt`` changes nothing and works on one topic at most: it may run beside others."""
    is_due: bool = False
    """There may be an answer already: it is tried in the next round (waiting.py), whether a key changes or not."""


class Large(NamedTuple):
    """An answer that is made a piece at a time (large_replies.py): the entries of a topic that ``walk`` gives."""

    topic: Topic
    walk: Walk


class House:
    """What all clients share."""

    def __init__(
        self,
        topics: Topics,
        clock: Clock,
        settings: Settings | None = None,
        *,
        password: bytes | None = None,
        gate: Gate | None = None,
    ) -> None:
        """``password``: in place of a gate that knows nothing else."""
        self.topics = topics
        self.clock = clock
        self.settings = settings or Settings()
        self.gate = gate if gate is not None else Gate(password=password, clock=clock)
        self.changed: Callable[[bytes], None] = lambda key: None
        """Told of each key of which somebody may have waited for a change."""
        self.why: Callable[[bytes, Topic, str | None], WhyReport] | None = None
        """Tells why a topic is as large as it is, by these limits or by its own (engines/topics/why.py)."""
        self.has_due: Callable[[], bool] = lambda: False
        """Some who waited are yet to be served: who asks for what is new comes behind them."""
        self.queues: Deliveries | None = None
        """None: queues are not served."""
        self.store: StoreHouse | None = None
        """None: the store is not served."""
        self.queue_password: bytes | None = None
        """What has to be said to make a queue; None: nothing."""
        self.expect_all: Callable[[bytes], None] = lambda beginning: None
        """Lets all try again who wait for a key that begins so."""
        self.stops: Callable[[], object] = lambda: None
        """Called when the door closes: what takes long is given up."""
        self.dump: Callable[[], object] | None = None
        """Dumps the queues; takes a while."""
        self.shown: tuple[object, bytes, int] = (None, b"", 0)
        """What was last shown to one who waited, and of what: the next one often asks for the same."""
        self.taken: Mapping[bytes, object] = {}
        """Keys that workers have, or are waited for by some."""
        self.sessions: dict[int, Session] = {}
        self.started_ns = clock.now_ns()
        self.commands = 0
        """That were run since the start."""
        self.reads_on = 0
        """Those of them that ask for what is new, and may wait for it."""
        self.connections = 0
        """That were ever made."""
        self._next_id = 0

    def enter(self, address: bytes = b"", local_address: bytes = b"") -> Session:
        """A client came."""
        self._next_id += 1
        self.connections += 1
        session = self.sessions[self._next_id] = Session(self, self._next_id, address, local_address)
        return session

    def leave(self, session: Session) -> None:
        self.sessions.pop(session.id, None)
        self.let_go_of_queues(session)

    def let_go_of_queues(self, session: Session) -> None:
        """Nothing is given to it any more."""
        receiver, session.receiver = session.receiver, None  # the two would keep each other in memory
        if receiver is not None and self.queues is not None:
            self.queues.leave(receiver)

    def forget_closed(self) -> None:
        """Topics went: let nothing keep them in memory."""
        self.shown = (None, b"", 0)
        for session in self.sessions.values():
            session.forget_closed()


class Session:
    """One client, from when it came to when it left."""

    def __init__(self, house: House, id: int, address: bytes, local_address: bytes) -> None:
        self.house = house
        self.topics = house.topics
        self.id = id
        self.address = address
        self.local_address = local_address
        self.came_ns = house.clock.now_ns()
        self.heard_at = house.clock.monotonic()
        self.last_command = b"NULL"
        self.hang_up: Callable[[], None] = lambda: None
        """Closes the connection, after the answers that are due."""
        self.must_close = False
        """Set by a command: close when its answer is out."""
        self.marks: list[Mark] = []
        """Of the command that is being run."""
        self.seen: dict[ref[Logged], int] = {}
        """How far each log was of which this client was answered something: what WAITAOF waits for. What was closed was
        synced; so an engine that is used by nobody else may go."""
        self.most_seen = _MOST_SEEN
        self.is_waiting = False
        self.asks_for_new = False
        """The command that is being run may wait for what is new."""
        self.push: Callable[[bytes, Any, int], None] = _to_nobody
        """Says what nobody asked for just now, once an engine has come to a position."""
        self.receiver: Receiver | None = None
        """What it was given from queues."""
        self.behind: list[tuple[bytes, Any, int]] = []
        """What is to be pushed behind the answer of the command that is being run."""
        self.stranger: Stranger | None = None
        """While it has not logged in: what it may do until then."""
        self.start_over()

    def forget_closed(self) -> None:
        """Of what it has seen."""
        for known in list(self.seen):
            engine = known()
            if engine is None or (isinstance(engine.log, Log) and isinstance(engine.log.failure, LogClosed)):
                del self.seen[known]
        self.most_seen = max(_MOST_SEEN, 2 * len(self.seen))

    @property
    def host(self) -> str:
        """The address that it came from, without the port."""
        return self.address.rpartition(b":")[0].decode()

    def start_over(self) -> None:
        """As a client that just came: what RESET does."""
        self.version = 2
        self.database = 0
        self.name = self.library_name = self.library_version = b""
        self.become(None if self.house.gate.is_needed else EVERYBODY)
        self.says_nothing = False
        """CLIENT REPLY OFF."""
        self.skip_next = 0
        """CLIENT REPLY SKIP: 2 while that command itself runs, 1 for the one behind it."""
        self.is_no_evict = self.is_no_touch = False
        self.held: dict[bytes, None] = {}
        """Ids of queues whose keys it has shown."""
        self.house.let_go_of_queues(self)
        self.forget_transaction()

    def become(self, user: User | None) -> None:
        """It has said who it is; None: it has to."""
        self.user = user
        self.is_known = user is not None
        self.is_free = user is not None and user.may_everything and user.expires_ns is None
        """Nothing has to be asked before a command of it is run."""
        if user is not None and self.stranger is not None:
            self.stranger.end()
            self.stranger = None

    def log_out(self) -> None:
        """Its time is over, or it was taken off: what it was given goes, too."""
        self.become(None)
        self.held.clear()
        self.house.let_go_of_queues(self)
        self.is_spoiled = self.queue is not None

    def forget_transaction(self) -> None:
        self.queue: list[Args] | None = None
        """Commands behind MULTI."""
        self.queued_bytes = 0
        self.is_spoiled = False
        """One of them was refused: EXEC runs none."""
        self.is_in_exec = False
        self.watched: dict[bytes, object] = {}

    def listens(self) -> bool:
        """It has subscribed to a queue: it may be silent for as long as it likes."""
        return self.receiver is not None and len(self.receiver.given) > len(self.receiver.gets)

    def rest_on(self, engine: Logged, position: int) -> None:
        """The answer is true once the log of ``engine`` has come to ``position``."""
        if position:
            self.marks.append((engine, position))


def _to_nobody(reply: bytes, engine: Any, position: int) -> None:
    """For who cannot be told anything."""
