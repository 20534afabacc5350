"""The RESP door: connections of Redis clients, and answers that go out when what they say is as safe as promised.

All on one event loop. Every whole command that arrived is run at once; the records of all connections that had
something to say in one turn of the loop are written together, and then each gets its answers in one write. A command
that waits holds up those behind it on its own connection only; one that would have to wait for the disk, or for a lock,
is run by a worker thread (engines/loops.py, server/workers.py).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Any, Final
from weakref import ref

from lamina.engines.logged import Logged
from lamina.engines.loops import MustWait
from lamina.errors import InputError, LaminaError, StorageError
from lamina.log.teardown import Teardown
from lamina.server import client
from lamina.server.listening import hang_up_on_all
from lamina.server.output import Output
from lamina.server.refusals import Refusals
from lamina.server.resp import dispatch, replies, runs
from lamina.server.resp.answers import Answers, Pushed
from lamina.server.resp.commands import COMMANDS
from lamina.server.resp.guard import NOAUTH, may_add
from lamina.server.resp.large_replies import LargeReply
from lamina.server.resp.protocol import MAX_ARGS, Parser
from lamina.server.resp.runs import Added, Run, Writes, grouped
from lamina.server.resp.session import Args, House, Large, Refusal, Session, Wait, _to_nobody
from lamina.server.resp.store_commands import write_many
from lamina.server.resp.waiting import IN_WORKER, Waiting
from lamina.server.security.gate import Changes
from lamina.server.security.strangers import MOST_BYTES, Strangers
from lamina.server.turns import Turns
from lamina.server.workers import Workers
from lamina.units import MIB

_TOO_MANY: Final = replies.error(b"ERR max number of clients reached")
_MOST_COMMAND: Final = 72 * MIB  # bytes of any command: a record is smaller than that
_IDLE_EVERY_S: Final = 1.0
_EXPIRED_EVERY_S: Final = 1.0
_CHANGED: Final = b"NOPERM the rights of this user were changed, ask again"
_OF_BROWSERS: Final = frozenset((b"post", b"host:"))
_OF_BROWSERS_BEGIN: Final = (b"P", b"p", b"H", b"h")

logger = logging.getLogger("lamina.resp")


class RespDoor:
    """What the connections share. Make one per house, on the loop."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.loop = asyncio.get_running_loop()
        self.answers = Answers(self.loop)
        self.workers = Workers(self.loop)
        self.waiting = Waiting(self.loop, lambda: house.commands - house.reads_on, perf_counter)
        self.turns = Turns(self.loop)
        self.connections: set[Connection] = set()
        self.refusals, self.accepted = Refusals(), 0
        self.output = Output()
        self.max_connections = house.settings.max_connections
        self.is_closed = False
        self._thread = threading.get_ident()
        house.changed, house.has_due = self._changed, self.waiting.has_due
        house.expect_all = self.waiting.expect_all
        house.topics.taken = house.taken = self.workers.taken
        dispatch.HANDLERS.update(COMMANDS)
        self._idle_timer: asyncio.TimerHandle | None = None
        if house.settings.idle_s:
            self._hang_up_on_idle()
        self.strangers = Strangers(self.loop)
        self._expiry_timer: asyncio.TimerHandle | None = None
        if house.gate.is_needed:
            self._send_expired_away()
        house.gate.listen(self._users_changed)

    def __call__(self) -> Connection:
        """A protocol for a new connection."""
        return Connection(self)

    def on_loop(self, call: Callable[..., object], *arguments: object) -> None:
        """Workers run commands, too; connections and those who wait live on the loop."""
        if threading.get_ident() == self._thread:
            call(*arguments)
        else:
            self.loop.call_soon_threadsafe(call, *arguments)

    def _changed(self, key: bytes) -> None:
        self.on_loop(self.waiting.changed, key)

    def hang_up_after(self, idle_s: int) -> None:
        """Hang up on clients that are silent for so many seconds from now on; 0: on none."""
        self.house.settings.idle_s = idle_s
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if idle_s:
            self._hang_up_on_idle()

    def _hang_up_on_idle(self) -> None:
        silent_since = self.house.clock.monotonic() - self.house.settings.idle_s
        for connection in list(self.connections):
            is_owed = connection.session.is_waiting or connection.held or connection.out or connection.session.listens()
            if not is_owed and connection.session.heard_at < silent_since:
                connection.hang_up()
        self._idle_timer = self.loop.call_later(_IDLE_EVERY_S, self._hang_up_on_idle)

    def _send_expired_away(self) -> None:
        """Also those who wait, or are pushed messages, and give no command that would be refused."""
        now_ns = self.house.gate.now_ns()
        for connection in list(self.connections):
            session = connection.session
            is_over = session.user is not None and session.user.is_expired(now_ns)
            was_found = session.user is None and session.stranger is None  # by a command that it gave
            if (is_over or was_found) and not connection.is_closing:
                connection.send_away(NOAUTH)
        self._expiry_timer = self.loop.call_later(_EXPIRED_EVERY_S, self._send_expired_away)

    def _users_changed(self, changes: Changes) -> None:
        for connection in list(self.connections):
            before = connection.session.user
            if before is None:
                continue
            user = self.house.gate.stays(before, changes)
            if user is not before:
                connection.send_away(_CHANGED if user is not None else NOAUTH)
                connection.session.become(user)
        if self._expiry_timer is None and self.house.gate.is_needed:
            self._send_expired_away()

    async def close(self) -> None:
        """Let every answer that is due go out, then hang up. Who comes from now on is hung up on at once."""
        self.is_closed = True
        with Teardown("the RESP door") as teardown:
            teardown.step(self.house.stops)
            for timer in (self._expiry_timer, self._idle_timer):
                if timer is not None:
                    timer.cancel()
            await hang_up_on_all(self.connections, self._all_answered(), teardown)
            teardown.step(self.workers.close)

    async def _all_answered(self) -> None:
        await self.workers.all_done()
        await self.answers.all_settled()


class Connection(client.Client):
    """One client."""

    def __init__(self, door: RespDoor) -> None:
        super().__init__(door, _TOO_MANY)
        self.house = door.house
        self.waiting = door.waiting
        self.session: Session
        self.parser = Parser(door.house.settings.max_bulk, MAX_ARGS)
        self.waiter: Waiter | None = None
        self.stream: LargeReply | None = None
        self.needs: dict[Logged, int] = {}
        """How far each log has to be for the answers that were not handed over yet."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not before: one whose TLS handshake fails never comes in, so nobody would tell that it left.
        self.session = self.house.enter()
        self.session.hang_up = partial(self.door.on_loop, self.hang_up)
        self.session.push = self._push
        super().connection_made(transport)
        self.session.address = _address(transport, "peername")
        self.session.local_address = _address(transport, "sockname")
        if not self.session.is_known:
            self._watch_stranger()

    def _watch_stranger(self) -> None:
        """Who has not said who it is may not wait for long, nor come in crowds."""
        self.session.stranger = self.door.strangers.watch(self.session.host, self._too_late)
        if self.session.stranger is None:
            self._refuse_stranger(b"ERR max number of clients that are not authenticated reached")

    def _too_late(self) -> None:
        self._refuse_stranger(b"NOAUTH Authentication took too long.")

    def _refuse_stranger(self, text: bytes) -> None:
        if self.transport is not None and not self.session.is_known and not self.is_closing:
            self._end()
            self.say(replies.error(text), [])
            self.answers.flush_soon(self)

    def send_away(self, why: bytes) -> None:
        """Whoever it was may not be that any more: it waits for nothing, is given nothing, and has to log in again."""
        self.session.log_out()
        if self.waiter is not None and not self.waiter.wait.must_finish:
            self.waiter.refuse(why)
        if self.session.stranger is None:
            self._watch_stranger()

    def connection_lost(self, problem: Exception | None) -> None:
        super().connection_lost(problem)
        if self.session.stranger is not None:
            self.session.stranger.end()
        self.waiter = None  # the two would keep each other in memory
        self.house.leave(self.session)
        self.session.hang_up = _nothing  # the two would keep each other in memory
        self.session.push = _to_nobody

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.stream is not None:
            self.stream.go_on()

    def leave(self) -> None:
        super().leave()
        self.house.let_go_of_queues(self.session)

    # -- commands ----------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        self.session.heard_at = self.house.clock.monotonic()
        parser = self.parser
        commands = parser.feed(data)
        self.backlog.extend(grouped(commands))
        problem = parser.error
        if problem is None and parser.pending > MOST_BYTES:
            if not self.session.is_known and not self.backlog:
                problem = b"unauthenticated bulk length"
            elif parser.pending > _MOST_COMMAND:
                problem = b"a command of more than %d bytes" % _MOST_COMMAND
        if problem is not None and not self.is_closing:
            self.backlog.append(Refusal(b"ERR Protocol error: " + problem))
            self.is_closing = True
            self.unread.clear()

    def run(self, command: Args | Run | Writes | Refusal) -> None:
        if isinstance(command, list):
            self._run_one(command)
        elif isinstance(command, Run):
            self._run_many(command)
        elif isinstance(command, Writes):
            self._run_writes(command.commands)
        else:
            self._end()
            self.say(replies.error(command.text), [])

    def _run_many(self, run: Run) -> None:
        session = self.session
        may = session.is_free or may_add(session, run.key)
        if may and session.queue is None and not session.says_nothing and not session.skip_next:
            try:
                self._have_added(run, _added(session, run))
            except MustWait:
                InWorker(self, (run.key,), partial(_added, session, run), partial(self._have_added, run))
        else:
            self._have_added(run, None)

    def _have_added(self, run: Run, added: Added | None) -> None:
        """Answer those of a run that were added; the others tell why not, one by one."""
        session, done = self.session, 0
        if added is not None and added.ids:
            done = len(added.ids)
            session.last_command = b"xadd"
            self.house.commands += done
            self.needs[added.topic] = session.seen[ref(added.topic)] = added.positions[-1]
            if len(session.seen) > session.most_seen:
                session.forget_closed()
            self.waiting.changed(run.key)
            self.say(added.answer(), added)
        if done < len(run.commands):
            self.backlog.extendleft(reversed(run.commands[done:]))

    def _run_writes(self, commands: list[Args]) -> None:
        """Write sessions as far as that goes at once; the others tell why not, one by one."""
        session, done = self.session, 0
        if session.is_free and session.queue is None and not session.says_nothing and not session.skip_next:
            written = write_many(session, commands)
            if written is not None:
                done, reply, rest = written
                session.last_command = b"s.write"
                self.house.commands += done
                for engine, position in rest:
                    self.needs[engine] = max(position, self.needs.get(engine, 0))
                for _ in range(done):
                    self.say(reply, rest)
        if done < len(commands):
            self.backlog.extendleft(reversed(commands[done:]))

    def _run_one(self, command: Args) -> None:
        session = self.session
        if command[0][:1] in _OF_BROWSERS_BEGIN and command[0].lower() in _OF_BROWSERS:
            # A page that a browser shows may have it post to this port: no line of that may be run as a command.
            logger.warning("a web browser spoke to the RESP door from %s", session.address.decode())
            self._end()
            return
        session.last_command = command[0]
        self.house.commands += 1
        try:
            answer = dispatch.run(session, command)
        except MustWait:
            session.marks, session.behind = [], []
            keys = dispatch.keys_of(session, command)
            work, is_shared = partial(dispatch.run, session, command), dispatch.only_reads(command, keys)
            InWorker(self, keys, work, self._have_run, is_shared=is_shared)
            return
        except Exception:
            answer = self._broken(command)
        if session.asks_for_new:
            session.asks_for_new = False
            self.house.reads_on += 1
        if isinstance(answer, Wait):
            Waiter(self, answer).begin()
        elif isinstance(answer, Large):
            LargeReply(self, answer)
        else:
            self.answer(answer)
        if session.must_close:
            self._end()

    def _have_run(self, answer: bytes | Wait | Large) -> None:
        """A worker has run a command: answer it."""
        if self.session.asks_for_new:
            self.session.asks_for_new = False
            self.house.reads_on += 1
        if isinstance(answer, Wait):  # meanwhile a key may have changed, when nobody waited for it yet
            Waiter(self, answer._replace(is_due=True)).begin()
        elif isinstance(answer, Large):
            LargeReply(self, answer)
        else:
            self.answer(answer)
        if self.session.must_close:
            self._end()

    def _broken(self, command: Args, problem: BaseException | None = None) -> bytes:
        """A mistake of ours, or no memory. It is told to this client, and to whoever runs the server."""
        logger.error("%r failed", command[0][:64], exc_info=problem or True)
        return replies.error(b"ERR internal error: the command failed, see the log of the server")

    def _end(self) -> None:
        """Run nothing more, and close when all is answered."""
        self.is_closing = True
        self._throw_away()

    def gave_up(self) -> None:
        """As when the time is up: those behind it are answered in their turn."""
        if self.waiter is not None:
            self.waiter.time_is_up()

    def answer(self, reply: bytes) -> None:
        """Say it, once all is safe that the command told it rests on."""
        session = self.session
        marks, session.marks = session.marks, []
        for engine, position in marks:
            if position > self.needs.get(engine, 0):
                self.needs[engine] = position
                known = ref(engine)
                if position > session.seen.get(known, 0):
                    session.seen[known] = position
                    if len(session.seen) > session.most_seen:
                        session.forget_closed()
        if session.skip_next or session.says_nothing:
            session.skip_next = max(session.skip_next - 1, 0)
            reply = b""
        self.say(reply, marks)
        if session.behind:
            behind, session.behind = session.behind, []
            for pushed in behind:
                self.push(*pushed)

    def _push(self, reply: bytes, engine: Logged, position: int) -> None:
        """``push`` from any thread."""
        self.door.on_loop(self.push, reply, engine, position)

    def push(self, reply: bytes, engine: Logged, position: int) -> None:
        """Say what was not asked for, once the log of ``engine`` has come to ``position``; never, if it never does."""
        if self.stream is not None and self.stream.has_begun:
            self.stream.behind.append((reply, engine, position))
            return
        if position > self.needs.get(engine, 0):
            self.needs[engine] = position
        self.say(reply, Pushed(((engine, position),)))
        self.answers.flush_soon(self)


def _added(session: Session, run: Run) -> Added | None:
    """None: the commands tell why, one by one."""
    try:
        return runs.add(session, run)
    except (InputError, StorageError):
        return None


class InWorker:
    """What a worker does for a connection; commands behind it wait. ``then`` is given what came of it, on the loop."""

    def __init__(
        self,
        connection: Connection,
        keys: Iterable[bytes],
        work: Callable[[], Any],
        then: Callable[[Any], None],
        *,
        is_shared: bool = False,
    ) -> None:
        self._connection, self._then = connection, then
        connection.session.is_waiting = True
        connection.cancel = self._cancel
        connection.door.workers.run(keys, work, self._done, is_shared=is_shared)

    def _cancel(self) -> bool:
        """It is done in any case."""
        return False

    def _done(self, result: Any, problem: BaseException | None) -> None:
        connection = self._connection
        connection.cancel, connection.session.is_waiting = None, False
        if connection.transport is None:
            return
        if problem is not None:
            connection.answer(connection._broken([connection.session.last_command], problem))
        else:
            self._then(result)
        connection.answers.flush_soon(connection)


class Waiter:
    """A command that waits. ``connection.cancel`` gives it up."""

    def __init__(self, connection: Connection, wait: Wait) -> None:
        self.connection = connection
        self.wait = wait
        self.keys = tuple(dict.fromkeys(wait.keys))
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_in_worker = False
        self._next: Callable[[], bytes | None] | None = None
        """To be tried when the worker is done."""

    def begin(self) -> None:
        connection, wait = self.connection, self.wait
        # What was seen before it began to wait is of no interest: nothing is answered from it.
        connection.session.marks = []
        connection.session.is_waiting = True
        connection.cancel, connection.waiter = self.cancel if wait.must_finish else self.give_up, self
        if connection.session.stranger is not None:
            connection.most_unread = MOST_BYTES
        waiting = connection.door.waiting
        waiting.add(self)
        if wait.is_due and wait.keys:
            waiting.expect(self)
        if wait.seconds is not None:
            self._timer = connection.door.loop.call_later(wait.seconds, self.time_is_up)
        if wait.happens is not None:
            self._task = connection.door.loop.create_task(self._happened(wait))

    async def _happened(self, wait: Wait) -> None:
        assert wait.happens is not None
        try:
            await wait.happens()
        except Exception:  # a mistake of ours, or no memory: those behind it must not wait for ever
            self._task = None
            self._try(lambda: self.connection._broken([self.connection.session.last_command]))
            return
        finally:
            self._task = None
        self.try_again()

    def try_again(self) -> int:
        return self._try(self.wait.attempt)

    def time_is_up(self) -> None:
        answer = self.wait.time_is_up
        last = self.wait.attempt if self.wait.is_due else lambda: None  # it may have waited for its turn only
        self._try(lambda: last() or (answer() if callable(answer) else answer))

    def refuse(self, why: bytes) -> None:
        """The user of the client may not do that any more."""
        self._try(lambda: replies.error(why))

    def _try(self, attempt: Callable[[], bytes | None]) -> int:
        if self._is_in_worker:
            if self._next is None or attempt != self.wait.attempt:
                self._next = attempt
            return 0
        was = self.connection.thread.begin_at_once()
        try:
            answer = self._answer(attempt)
        except MustWait:
            self.connection.session.marks = []
            self._is_in_worker = True
            keys, is_shared = [*self.keys, *self.wait.rests_on], self.wait.is_shared
            self.connection.door.workers.run(keys, lambda: self._answer(attempt), self._tried, is_shared=is_shared)
            return IN_WORKER
        finally:
            self.connection.thread.end_at_once(was)
        return self._end(answer)

    def _answer(self, attempt: Callable[[], bytes | None]) -> bytes | None:
        """On the loop, or in a worker."""
        try:
            return attempt()
        except (Refusal, LaminaError) as problem:
            return replies.error(dispatch.text_of(problem))
        except Exception as problem:
            return self.connection._broken([self.connection.session.last_command], problem)

    def _tried(self, answer: bytes | None, problem: BaseException | None) -> None:
        """A worker did."""
        self._is_in_worker = False
        waiting = self.connection.door.waiting
        if self.connection.waiter is not self:  # its client left
            waiting.came_back(self, 0)
            return
        if problem is not None:
            answer = self.connection._broken([self.connection.session.last_command], problem)
        following, self._next = self._next, None
        size = self._end(answer)
        waiting.came_back(self, size)
        if answer is None:
            if following is not None:
                self._try(following)
            elif self.connection.has_ended:
                self.time_is_up()

    def _end(self, answer: bytes | None) -> int:
        """Say it, if there is an answer. Returns how many bytes it has."""
        connection = self.connection
        if answer is None:
            connection.session.marks = []
            return 0
        self.give_up()
        connection.cancel = connection.waiter = None
        connection.answer(answer)
        connection.answers.flush_soon(connection)  # then it goes on with what is behind: first all who wait are served
        return len(answer)

    def cancel(self) -> bool:
        """For what is done in any case: its client is told, unless it is gone."""
        return self.connection.transport is None and self.give_up()

    def give_up(self) -> bool:
        """False while a worker has it: then it is answered soon."""
        if self._is_in_worker and self.connection.transport is not None:
            return False
        self.connection.session.is_waiting = False
        self.connection.most_unread = client.MOST_UNREAD
        self.connection.door.waiting.remove(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        return True


def _nothing() -> None:
    """For who has nothing to hang up."""


def _address(transport: asyncio.BaseTransport, which: str) -> bytes:
    found = transport.get_extra_info(which)
    if isinstance(found, str) and found:  # a socket of the file system, as Redis shows it
        return f"{found}:0".encode(errors="surrogateescape")
    with suppress(TypeError, IndexError, ValueError):
        host, port = found[:2]
        return f"[{host}]:{port}".encode() if ":" in str(host) else f"{host}:{port}".encode()
    return b""
