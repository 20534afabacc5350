"""The workq door: connections, and answers that go out when what they say is on disk.

All on one event loop. Every whole command that arrived is run at once; the records of all connections that had
something to say in one turn of the loop are written together, and then each gets its answers in one write. A command
that waits (``lease``, ``run``, ``result``) holds up those behind it on its own connection only.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import AT_LEASED, AT_READY, AT_SCHEDULED, PLACES, Job
from lamina.engines.jobs.waiting import LeaseWaiter
from lamina.errors import JobNotFound, LaminaError
from lamina.server.workq import commands as c
from lamina.server.workq import replies
from lamina.server.workq.answers import Answers
from lamina.server.workq.parse import Parser

_MOST_WAITING = 1 << 20  # bytes behind a command that waits; a client that sends more is not read until it goes on
_MOST_PER_TURN = 1 << 16  # bytes of a client that are taken before others have their turn
_MOST_COMMANDS = 500  # of a client that are run before others have their turn
_MOST_SHOWN = 4 << 20  # bytes of payloads in one inspect
_MOST_UNSENT = 1 << 20  # bytes of answers that are made before some are handed over


class WorkqDoor:
    """What the connections share. Make one per engine, on its loop."""

    def __init__(self, engine: JobEngine, *, max_connections: int = 10_000) -> None:
        self.engine = engine
        self.loop = asyncio.get_running_loop()
        self.answers = Answers(engine, self.loop)
        self.connections: set[Connection] = set()
        self.max_connections = max_connections
        self.started_ns = engine.clock.now_ns()
        self._thread = threading.get_ident()
        self._timer: asyncio.TimerHandle | None = None
        engine.on_due = self._come_at_due
        self._come_at_due()

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
            wait = self.engine.tick()
        except Exception:  # the log has failed, or memory ran out; whoever asks for a change is told
            wait = 1.0
        self.answers.flush_soon()
        if wait is not None:
            # asyncio's clocks do not like far ends; waking once an hour costs nothing.
            self._timer = self.loop.call_later(min(wait, 3600), self._tick)

    async def close(self) -> None:
        """Let every answer that is due go out, then hang up."""
        if self._timer is not None:
            self._timer.cancel()
        self.engine.on_due = None
        for connection in self.connections:
            connection.stop()
        await self.answers.all_settled()
        for connection in list(self.connections):
            connection.hang_up()


class Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, door: WorkqDoor) -> None:
        self.door = door
        self.engine = door.engine
        self.answers = door.answers
        self.parser = Parser()
        self.backlog: deque[c.Command] = deque()
        self.cancel: Callable[[], bool] | None = None
        """Gives up the command that waits, None if none does. False if its answer is under way."""
        self.is_closing = False
        self.has_ended = self.is_stopped = False
        self.is_clogged = False
        self.is_paused = False
        self.transport: asyncio.Transport | None = None
        # Answers that were not handed over to the transport yet, and what has to be on disk before each is.
        self.out: list[bytes] = []
        self.positions: list[int] = []
        self.unsent = 0  # bytes of them
        self.held = 0  # turns whose answers wait for the disk
        self.unread = bytearray()  # what came while commands had to wait
        self.turn_bytes = 0  # that came in this turn

    # -- the socket ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport = cast(asyncio.Transport, transport)
        if len(self.door.connections) >= self.door.max_connections:
            transport.write(replies.TOO_MANY)
            transport.close()
            return
        self.door.connections.add(self)
        keep_alive(transport)

    def data_received(self, data: bytes) -> None:
        self.turn_bytes += len(data)
        if self.unread or self.backlog or self.cancel is not None or len(data) > _MOST_PER_TURN:
            self.unread += data
        else:
            self._feed(data)
        self.work()

    def eof_received(self) -> bool:
        """No more will come. Whether the client still reads cannot be told, so it gets its answers, but no job."""
        self.is_closing = self.has_ended = True
        if self.give_up():
            self.say(replies.TIMEOUT)
        self.work()
        return True

    def connection_lost(self, problem: Exception | None) -> None:
        self.door.connections.discard(self)
        self.transport = None
        self._throw_away()
        self.give_up()

    def pause_writing(self) -> None:
        """The client does not read its answers: run none of its commands until it does."""
        self.is_clogged = True
        self._read_or_not()

    def resume_writing(self) -> None:
        self.is_clogged = False
        self.work()

    def stop(self) -> None:
        """Run no more commands; what was run is still answered."""
        self._throw_away()
        self.is_closing = self.is_stopped = True
        self.give_up()
        self._read_or_not()

    def hang_up(self) -> None:
        self.give_up()
        if self.transport is not None:
            self.transport.close()

    def give_up(self) -> bool:
        """False if nothing waits, or its answer is under way: then those behind it still have to wait for that."""
        if self.cancel is None or not self.cancel():
            return False
        self.cancel = None
        return True

    def _read_or_not(self) -> None:
        has_too_much = len(self.unread) > _MOST_WAITING or self.turn_bytes > _MOST_PER_TURN
        wants_pause = self.is_clogged or self.is_stopped or has_too_much
        if self.transport is not None and wants_pause != self.is_paused and not self.transport.is_closing():
            self.is_paused = wants_pause
            self.transport.pause_reading() if wants_pause else self.transport.resume_reading()

    # -- commands ------------------------------------------------------------------------------------------------

    def work(self) -> None:
        """Run what can be run."""
        backlog = self.backlog
        while self.cancel is None and not self.is_clogged and (backlog or self._read()):
            if len(self.out) >= _MOST_COMMANDS or self.unsent >= _MOST_UNSENT:
                break  # ``taken`` goes on
            command = backlog.popleft()
            try:
                _HANDLERS[type(command)](self, command)
            except LaminaError as problem:
                self.say_seen(replies.error(problem))
        if self.out or self.turn_bytes > _MOST_PER_TURN or self.is_done():
            self.answers.flush_soon(self)
        self._read_or_not()

    def _read(self) -> bool:
        """Get commands from what came, a piece at a time: a small command takes much more room when it is read."""
        while self.unread and not self.backlog:
            data = bytes(self.unread[:_MOST_PER_TURN])
            del self.unread[:_MOST_PER_TURN]
            self._feed(data)
        if self.has_ended and not self.backlog and not self.parser.is_closed:
            self.backlog.extend(self.parser.end())
        return bool(self.backlog)

    def _feed(self, data: bytes) -> None:
        self.backlog.extend(self.parser.feed(data))
        if self.parser.is_closed:
            self.is_closing = True
            self.unread.clear()

    def _throw_away(self) -> None:
        self.backlog.clear()
        self.unread.clear()

    def say(self, reply: bytes, position: int = 0) -> None:
        """Answer, once the log has come to ``position``."""
        self.out.append(reply)
        self.positions.append(position)
        self.unsent += len(reply)

    def say_seen(self, reply: bytes) -> None:
        """Answer what was seen: it is so if all is in the log that the state has."""
        self.say(reply, self.engine.newest_position())

    def taken(self) -> tuple[list[bytes], list[int]]:
        """What there is to say, taken over by the caller."""
        said = self.out, self.positions
        self.out, self.positions, self.unsent, self.turn_bytes = [], [], 0, 0
        self._read_or_not()
        if (self.backlog or self.unread) and self.cancel is None:
            self.door.loop.call_soon(self.work)
        return said

    def is_done(self) -> bool:
        return self.is_closing and not self.backlog and not self.unread and self.cancel is None

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
        self.say(b"+OK %d\r\n" % done, position)

    def _refuse(self, command: c.Refusal) -> None:
        for name in command.queues:
            self.engine.state.queue(name)
        self.say(replies.client_error(command.text))

    # -- commands that may wait ----------------------------------------------------------------------------------

    def _lease(self, command: c.Lease) -> None:
        jobs, position = self.engine.lease(command.names, command.most)
        if jobs:
            self.say(replies.leased(jobs), position)
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
            self._go_on(timer, replies.leased(jobs), position)

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
        except LaminaError:
            self.give_up()
            raise

    def _result(self, command: c.Result) -> None:
        def deliver(job: Job, position: int) -> None:
            self.door.on_loop(self._go_on, timer, replies.result(job), position)

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
        names = sorted(self.engine.state.queues)[command.offset : command.offset + command.limit]
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


def _up_to(size: int, jobs: Sequence[Job]) -> Sequence[Job]:
    """The first of them, as many as have payloads of so many bytes together; one at least."""
    for number, job in enumerate(jobs):
        size -= len(job.payload)
        if size < 0:
            return jobs[: max(number, 1)]
    return jobs


def keep_alive(transport: asyncio.Transport) -> None:
    """Notice within minutes that the machine of a client is gone: a worker that waits there must not get a job."""
    to = transport.get_extra_info("socket")
    if to is None or to.family not in (socket.AF_INET, socket.AF_INET6):
        return
    to.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):  # Linux
        to.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        to.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 20)
        to.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        to.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 120_000)


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
    c.Refusal: Connection._refuse,
    c.InspectServer: Connection._inspect_server,
    c.InspectQueue: Connection._inspect_queue,
    c.InspectQueues: Connection._inspect_queues,
    c.InspectJobs: Connection._inspect_jobs,
    c.InspectScheduled: Connection._inspect_scheduled,
    c.InspectState: Connection._inspect_state,
    c.InspectJob: Connection._inspect_job,
}
