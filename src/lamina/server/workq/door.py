"""The workq door: connections, and answers that go out when what they say is on disk.

All on one event loop. Every whole command that arrived is run at once; the records of all connections that had
something to say in one turn of the loop are written together, and then each gets its answers in one write. A command
that waits (``lease``, ``run``, ``result``) holds up those behind it on its own connection only.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from lamina.engines import loops
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import AT_LEASED, AT_READY, AT_SCHEDULED, PLACES, Job
from lamina.engines.jobs.waiting import LeaseWaiter
from lamina.engines.loops import MustWait
from lamina.errors import JobNotFound, LaminaError
from lamina.log.teardown import Teardown
from lamina.server.client import MOST_UNREAD, Client
from lamina.server.listening import hang_up_on_all
from lamina.server.output import Output
from lamina.server.refusals import Refusals
from lamina.server.security.gate import Changes, Gate
from lamina.server.security.strangers import MOST_BYTES, Stranger, Strangers
from lamina.server.security.users import EVERYBODY, User
from lamina.server.turns import Turns
from lamina.server.workq import commands as c
from lamina.server.workq import replies, views
from lamina.server.workq.answers import Answers
from lamina.server.workq.guard import MayNot, check, may_see, readable
from lamina.server.workq.parse import Parser

_MOST_SHOWN = 4 << 20  # bytes of payloads in one inspect
_EXPIRED_EVERY_S = 1.0


class WorkqDoor:
    """What the connections share. Make one per engine, on its loop."""

    def __init__(self, engine: JobEngine, *, max_connections: int = 10_000, gate: Gate | None = None) -> None:
        """``gate``: whom it lets in; None: everybody."""
        self.engine = engine
        self.gate = gate if gate is not None else Gate()
        self.loop = asyncio.get_running_loop()
        self.answers = Answers(engine, self.loop)
        self.turns = Turns(self.loop)
        self.connections: set[Connection] = set()
        self.refusals, self.accepted = Refusals(), 0
        self.output = Output()
        self.max_connections = max_connections
        self.is_closed = False
        self.started_ns = engine.clock.now_ns()
        self._thread = threading.get_ident()
        self._timer: asyncio.TimerHandle | None = None
        engine.on_due = self._come_at_due
        self._come_at_due()
        self.strangers = Strangers(self.loop)
        self._expiry_timer: asyncio.TimerHandle | None = None
        if self.gate.is_needed:
            self._send_expired_away()
        self.gate.listen(self._users_changed)

    def __call__(self) -> Connection:
        """A protocol for a new connection."""
        return Connection(self)

    def on_loop(self, call: Callable[..., object], *arguments: object) -> None:
        """The engine tells news also from the thread of its upkeep; connections live on the loop."""
        if threading.get_ident() == self._thread:
            call(*arguments)
        else:
            self.loop.call_soon_threadsafe(call, *arguments)

    def _come_at_due(self) -> None:
        self.on_loop(self._tick_soon)

    def _tick_soon(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_soon(self._tick)  # type: ignore[assignment]

    def _tick(self) -> None:
        self._timer = None
        try:
            with loops.at_once():
                wait = self.engine.tick()
        except MustWait:
            self.loop.run_in_executor(None, self.engine.be_ready).add_done_callback(self._tick_anew)
            return
        except Exception:  # the log has failed, or memory ran out; whoever asks for a change is told
            wait = 1.0
        self.answers.flush_soon()
        if wait is not None:
            # asyncio's clocks do not like far ends; waking once an hour costs nothing.
            self._timer = self.loop.call_later(min(wait, 3600), self._tick)

    def _tick_anew(self, ready: asyncio.Future[None]) -> None:
        if ready.exception() is not None:  # the disk refuses: whoever asks for a change is told
            self._timer = self.loop.call_later(1.0, self._tick)
        else:
            self._tick_soon()

    def _send_expired_away(self) -> None:
        """Also those who wait, and give no command that would be refused."""
        now_ns = self.gate.now_ns()
        for connection in list(self.connections):
            if connection.user is not None and connection.user.is_expired(now_ns):
                connection.send_away()
        self._expiry_timer = self.loop.call_later(_EXPIRED_EVERY_S, self._send_expired_away)

    def _users_changed(self, changes: Changes) -> None:
        for connection in list(self.connections):
            before = connection.user
            user = self.gate.stays(before, changes)
            if before is not None and user is not before:
                connection.send_away()
                connection.become(user)
        if self._expiry_timer is None and self.gate.is_needed:
            self._send_expired_away()

    async def close(self) -> None:
        """Let every answer that is due go out, then hang up. Who comes from now on is hung up on at once."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        self.engine.on_due = None
        with Teardown("the workq door") as teardown:
            await hang_up_on_all(self.connections, self.answers.all_settled(), teardown)


class Connection(Client):
    """One client."""

    def __init__(self, door: WorkqDoor) -> None:
        super().__init__(door, replies.TOO_MANY)
        self.engine = door.engine
        self.parser = Parser()
        self.user: User | None
        self.handlers: dict[type, Callable[[Connection, Any], None]]
        self.stranger: Stranger | None = None
        self.has_sent_much = False  # before it has logged in
        self.become(None if door.gate.is_needed else EVERYBODY)

    # -- who it is -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self.host = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        # Anew: users can have been made while it agreed on a key.
        self.become(None if self.door.gate.is_needed else EVERYBODY)
        if self.user is None:
            self._watch_stranger()

    def connection_lost(self, problem: Exception | None) -> None:
        super().connection_lost(problem)
        if self.stranger is not None:
            self.stranger.end()

    def become(self, user: User | None) -> None:
        """It has said who it is; None: it has to. Who may do everything pays nothing for there being others."""
        self.user = user
        if user is None:
            self.handlers, self.has_sent_much = _OF_STRANGERS, False
            return
        self.handlers = _HANDLERS if user.may_everything and user.expires_ns is None else _GUARDED
        if self.stranger is not None:
            self.stranger.end()
            self.stranger = None

    def send_away(self) -> None:
        """Whoever it was may not be that any more: it waits for nothing, and has to log in again."""
        self.become(None)
        if self.give_up():
            self.say(replies.NO_AUTH)
            self.answers.flush_soon(self)
            self.door.loop.call_soon(self.work)
        if self.stranger is None:
            self._watch_stranger()

    def _watch_stranger(self) -> None:
        self.stranger = self.door.strangers.watch(self.host, self._too_late)
        if self.stranger is None:
            self._refuse_stranger(replies.TOO_MANY_STRANGERS)

    def _too_late(self) -> None:
        self._refuse_stranger(replies.TOO_LATE)

    def _refuse_stranger(self, reply: bytes) -> None:
        if self.transport is not None and self.user is None and not self.is_closing:
            self._throw_away()
            self.parser.is_closed = self.is_closing = True
            self.say(reply)
            self.answers.flush_soon(self)

    def _auth(self, command: c.Auth) -> None:
        delay = self.door.gate.delay(command.token, self.host)
        if delay is None:
            self.say(replies.TOO_MANY_LOGINS)
        elif delay:
            self.cancel, self.most_unread = _cannot_be_cancelled, MOST_BYTES
            self.door.loop.call_later(delay, self._auth_late, command)
        else:
            self._log_in(command)

    def _auth_late(self, command: c.Auth) -> None:
        self.cancel, self.most_unread = None, MOST_UNREAD
        if self.transport is not None and not self.is_closing:
            self._log_in(command)
            self.answers.flush_soon(self)
            self.work()

    def _log_in(self, command: c.Auth) -> None:
        user = self.door.gate.login(command.user, command.token, self.host)
        if user is not None:
            self.become(user)
        self.say(replies.OK if user is not None else replies.BAD_AUTH)
        if self.user is None and self.has_sent_much:  # what came behind it at once counts only if it is wrong
            self._refuse_stranger(replies.TOO_MUCH)

    def _strange(self, command: c.Command) -> None:
        if self.has_sent_much:
            self._refuse_stranger(replies.TOO_MUCH)
        else:
            self.say(replies.NO_AUTH)

    def _guarded(self, command: c.Command) -> None:
        """Of one who may do some things, or for some time."""
        user = self.user
        if user is None or user.is_expired(self.door.gate.now_ns()):
            self.send_away()
            self.say(replies.NO_AUTH)
            return
        try:
            allowed = command if user.may_everything else check(user, self.engine, command)
        except MayNot:
            self.say(replies.NOT_ALLOWED)
            return
        _HANDLERS[type(command)](self, allowed)

    # -- commands ------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        if self.stranger is not None:
            self.has_sent_much = self.stranger.sent(len(data))
        self.backlog.extend(self.parser.feed(data))
        if self.parser.is_closed:
            self.is_closing = True
            self.unread.clear()
        elif self.user is None and self.has_sent_much and not self.backlog:
            self._refuse_stranger(replies.TOO_MUCH)

    def feed_end(self) -> None:
        if not self.parser.is_closed:
            self.backlog.extend(self.parser.end())

    def run(self, command: c.Command) -> None:
        try:
            self.handlers[type(command)](self, command)
        except LaminaError as problem:
            self.say_seen(replies.error(problem))
        except MustWait:
            self._wait_for_engine(command)

    def _wait_for_engine(self, command: c.Command) -> None:
        """Somebody has it, or the disk refuses records: a thread waits for it, then the command is run anew."""
        self.cancel = _cannot_be_cancelled
        ready = self.door.loop.run_in_executor(None, self.engine.be_ready)
        ready.add_done_callback(partial(self._engine_is_ready, command))

    def _engine_is_ready(self, command: c.Command, ready: asyncio.Future[None]) -> None:
        self.cancel = None
        problem = ready.exception()
        if self.transport is None:
            return
        if problem is not None:
            self.say_seen(replies.error(problem) if isinstance(problem, LaminaError) else replies.BROKEN)
            self.answers.flush_soon(self)
        else:
            self.backlog.appendleft(command)
        self.work()

    def gave_up(self) -> None:
        self.say(replies.TIMEOUT)

    def say_seen(self, reply: bytes) -> None:
        """Answer what was seen: it is so if all is in the log that the state has."""
        self.say(reply, self.engine.newest_position())

    def _add(self, command: c.Add) -> None:
        self.say(replies.OK, self.engine.add(*command))

    def _complete(self, command: c.Complete) -> None:
        self.say(replies.OK, self.engine.complete(command.id, command.result))

    def _fail(self, command: c.Fail) -> None:
        self.say(replies.OK, self.engine.fail(command.id, command.result))

    def _bury(self, command: c.Bury) -> None:
        self.say(replies.OK, self.engine.fail(command.id, command.result, for_good=True))

    def _delete(self, command: c.Delete) -> None:
        self.say(replies.OK, self.engine.delete(command.id))

    def _touch(self, command: c.Touch) -> None:
        self.say(replies.OK, self.engine.touch(command.id, command.ttr))

    def _release(self, command: c.Release) -> None:
        self.say(replies.OK, self.engine.release(command.id, command.delay))

    def _pause(self, command: c.Pause) -> None:
        self.say(replies.OK, self.engine.pause(command.name))

    def _resume(self, command: c.Resume) -> None:
        self.say(replies.OK, self.engine.pause(command.name, pauses=False))

    def _redrive(self, command: c.Redrive) -> None:
        if command.id is not None:
            self.say(replies.OK, self.engine.redrive(command.id))
            return
        assert command.name is not None
        done, position = self.engine.redrive_queue(command.name, command.limit)
        self.say(b"+OK %d\r\n" % done, position or self.engine.newest_position())

    def _refuse(self, command: c.Refusal) -> None:
        for name in command.queues:
            self.engine.state.queue(name)
        self.say(replies.client_error(command.text))

    # -- commands that may wait ----------------------------------------------------------------------------------

    def _lease(self, command: c.Lease) -> None:
        jobs, position = self.engine.lease(command.names, command.most)
        if jobs:
            self.say(_leased(command, jobs), position)
        elif command.wait and not self.has_ended:
            self._wait_for_job(command)
        else:
            self.say(replies.TIMEOUT)

    def _wait_for_job(self, command: c.Lease) -> None:
        def deliver(jobs: list[Job], position: int) -> None:
            self.door.on_loop(take, jobs, position)

        def take(jobs: list[Job], position: int) -> None:
            if self.transport is None:  # the client left while another thread handed them over
                self._give_back(jobs)
            self._go_on(timer, _leased(command, jobs), position)

        def time_is_up() -> None:
            if self.engine.leave(waiter):
                self._go_on(timer, replies.TIMEOUT)

        def cancel() -> bool:
            timer.cancel()
            return self.engine.leave(waiter)

        waiter = LeaseWaiter(command.names, command.most, deliver)
        timer = self.door.loop.call_later(command.wait / 1000, time_is_up)
        self.cancel = cancel
        try:
            self.engine.expect_job(waiter)
        except (LaminaError, MustWait):
            self.give_up()
            raise

    def _result(self, command: c.Result) -> None:
        def deliver(done: Job, position: int) -> None:
            if may_see(self.user, done):
                self.door.on_loop(self._go_on, timer, replies.result(done), position)
            else:  # the one it asked for was deleted, and another has its id
                self.door.on_loop(self._go_on, timer, replies.NOT_FOUND, position)

        def time_is_up() -> None:
            if self.engine.leave_result(command.id, deliver):
                self._go_on(timer, replies.TIMEOUT)

        def cancel() -> bool:
            timer.cancel()
            return self.engine.leave_result(command.id, deliver)

        job = self.engine.expect_result(command.id, deliver)
        if job.is_processed:
            self.say(replies.result(job), 0 if job.is_foreground else job.changed)
            return
        if self.has_ended:
            self.engine.leave_result(command.id, deliver)
            self.say(replies.TIMEOUT)
            return
        timer = self.door.loop.call_later(command.wait / 1000, time_is_up)
        self.cancel = cancel

    def _run(self, command: c.Run) -> None:
        if self.has_ended:
            self.say(replies.TIMEOUT)
            return
        timer: asyncio.TimerHandle

        def deliver(done: Job, position: int) -> None:
            if done is job:  # else it was deleted, and another has its id
                self.door.on_loop(self._go_on, timer, replies.result(done))
                self.door.on_loop(self.door.loop.call_soon, self.engine.forget, done)

        def time_is_up() -> None:
            nonlocal timer
            left = (job.lease_until - self.engine.clock.now_ns()) / 1e9
            if job.at == AT_LEASED and left > 0:
                timer = self.door.loop.call_later(left, time_is_up)
                return
            self.engine.leave_result(command.id, deliver)
            self.engine.forget(job)
            self._go_on(timer, replies.TIMEOUT)

        def cancel() -> bool:
            timer.cancel()
            self.engine.forget(job)
            return self.engine.leave_result(command.id, deliver) or not job.is_processed

        timer = self.door.loop.call_later(command.wait / 1000, time_is_up)
        self.cancel = cancel
        try:
            job = self.engine.run(command.id, command.name, command.ttr, command.payload, command.priority)
        except LaminaError:
            timer.cancel()
            self.cancel = None
            raise
        self.engine.expect_result(command.id, deliver)

    def _go_on(self, timer: asyncio.TimerHandle, reply: bytes, position: int = 0) -> None:
        """The command that waited has its answer; those behind it are next, but not from inside the engine."""
        timer.cancel()
        self.cancel = None
        self.say(reply, position)
        self.answers.flush_soon(self)
        self.door.loop.call_soon(self.work)

    def _give_back(self, jobs: list[Job]) -> None:
        with suppress(LaminaError):
            for job in jobs:
                self.engine.release(job.id)

    # -- looking -------------------------------------------------------------------------------------------------

    def _inspect_server(self, command: c.InspectServer) -> None:
        clients = len(self.door.connections)
        self.say_seen(replies.server(clients, self.engine.evicted, self.door.started_ns))

    def _inspect_queue(self, command: c.InspectQueue) -> None:
        queue = self.engine.state.queues.get(command.name)
        self.say_seen(replies.NOT_FOUND if queue is None else replies.queues([queue]))

    def _inspect_queues(self, command: c.InspectQueues) -> None:
        names = readable(self.user, sorted(self.engine.state.queues))[command.offset : command.offset + command.limit]
        self.say_seen(replies.queues([self.engine.state.queues[name] for name in names]))

    def _inspect_jobs(self, command: c.InspectJobs) -> None:
        self._inspect_list(command.name, AT_READY, command.offset, command.limit)

    def _inspect_scheduled(self, command: c.InspectScheduled) -> None:
        self._inspect_list(command.name, AT_SCHEDULED, command.offset, command.limit)

    def _inspect_state(self, command: c.InspectState) -> None:
        self._inspect_list(command.name, PLACES.index(command.state), command.offset, command.limit)

    def _inspect_list(self, name: str, place: int, offset: int, limit: int) -> None:
        queue = self.engine.state.queues.get(name)
        if queue is None:
            raise JobNotFound("no such queue")
        self.say_seen(replies.jobs(_up_to(_MOST_SHOWN, queue.lists[place].some(offset, limit))))

    def _inspect_job(self, command: c.InspectJob) -> None:
        self.say_seen(replies.jobs([self.engine.job(command.id)]))

    def _inspect_view(self, command: c.InspectView) -> None:
        self.say_seen(views.job(self.engine, command.id))

    def _inspect_views(self, command: c.InspectViews) -> None:
        place = PLACES.index(command.state)
        self.say_seen(views.jobs(self.engine, command.name, place, command.offset, command.limit))

    def _inspect_queue_views(self, command: c.InspectQueueViews) -> None:
        names = readable(self.user, sorted(self.engine.state.queues))[command.offset : command.offset + command.limit]
        self.say_seen(views.queues(self.engine, names))


def _cannot_be_cancelled() -> bool:
    """It is done in any case."""
    return False


def _leased(command: c.Lease, jobs: Sequence[Job]) -> bytes:
    return views.leased(jobs) if command.tells_attempts else replies.leased(jobs)


def _up_to(size: int, jobs: Sequence[Job]) -> Sequence[Job]:
    """The first of them, as many as have payloads of so many bytes together; one at least."""
    for number, job in enumerate(jobs):
        size -= len(job.payload)
        if size < 0:
            return jobs[: max(number, 1)]
    return jobs


_HANDLERS: dict[type, Callable[[Connection, Any], None]] = {
    c.Add: Connection._add,
    c.Run: Connection._run,
    c.Lease: Connection._lease,
    c.Complete: Connection._complete,
    c.Fail: Connection._fail,
    c.Bury: Connection._bury,
    c.Delete: Connection._delete,
    c.Result: Connection._result,
    c.Touch: Connection._touch,
    c.Release: Connection._release,
    c.Redrive: Connection._redrive,
    c.Pause: Connection._pause,
    c.Resume: Connection._resume,
    c.Auth: Connection._auth,
    c.Refusal: Connection._refuse,
    c.InspectServer: Connection._inspect_server,
    c.InspectQueue: Connection._inspect_queue,
    c.InspectQueues: Connection._inspect_queues,
    c.InspectJobs: Connection._inspect_jobs,
    c.InspectScheduled: Connection._inspect_scheduled,
    c.InspectState: Connection._inspect_state,
    c.InspectJob: Connection._inspect_job,
    c.InspectView: Connection._inspect_view,
    c.InspectViews: Connection._inspect_views,
    c.InspectQueueViews: Connection._inspect_queue_views,
}
_OF_STRANGERS: dict[type, Callable[[Connection, Any], None]]
_OF_STRANGERS = dict.fromkeys(_HANDLERS, Connection._strange) | {c.Auth: Connection._auth}
_GUARDED: dict[type, Callable[[Connection, Any], None]]
_GUARDED = dict.fromkeys(_HANDLERS, Connection._guarded) | {c.Auth: Connection._auth}
