"""Clients in bad company: forks, closing in the middle, servers that send them away, wrong urls and payloads."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import lamina
from contract.ways import AllDoors
from lamina.client.connecting import Remote
from lamina.client.keeping import LeaseKeeper
from lamina.client.leased import AsyncRemoteLeased, RemoteLeased
from lamina.errors import BadJob, BadOption, Disconnected, LaminaError, LogClosed, NoMessage

LONG = 60.0
HANG_UP = b""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AllDoors]:
    with AllDoors(tmp_path_factory.mktemp("review") / "data") as running:
        yield running


@pytest.fixture
def lm(server: AllDoors) -> Iterator[Remote]:
    with lamina.connect(server.url) as remote:
        yield remote


class TestAddresses:
    @pytest.mark.parametrize(
        "url",
        [
            "lamina://me:s3cr/et@host",
            "lamina://me:s3cr?et@host",
            "lamina://me:s3cr#et@host",
            "lamina://me:12?s3cr=et@host",
            "lamina://me:12?s3cret@host",
            "lamina://me:s3cret@[::1",
            "lamina://me:s3cret\u2100@host",
            "lamina://me:s3cret@host:port",
        ],
    )
    def test_no_part_of_a_token_is_in_an_error(self, url: str) -> None:
        with pytest.raises(BadOption) as caught:
            lamina.connect(url)
        told = f"{caught.value} {caught.value!r} {caught.value.facts}"
        assert not [part for part in ("s3cr", "et@", "'et'") if part in told]

    @pytest.mark.parametrize("place", ["h:0", "h?workq=99999", "h?workq=-1", "h?resp=0", "h?workq=unix:"])
    def test_a_door_that_cannot_be_is_refused_at_once(self, place: str) -> None:
        with pytest.raises(BadOption, match="a port is a number"):
            lamina.connect(f"lamina://{place}")

    @pytest.mark.parametrize("times", [{"timeout": 0}, {"timeout": -1}, {"timeout": float("inf")}, {"retry_s": -1}])
    def test_times_that_cannot_be_are_refused_at_once(self, times: dict[str, float]) -> None:
        with pytest.raises(BadOption, match="cannot be"):
            lamina.connect("lamina://127.0.0.1", **times)  # type: ignore[arg-type]


class TestForks:
    def test_parent_and_child_do_not_take_answers_of_one_another(self, lm: Remote) -> None:
        def use(who: str) -> None:
            topic = lm.topic(f"fork-{who}")
            for count in range(1, 100):
                topic.publish({"by": who})
                found = topic.stats()
                assert (found.name, found.length) == (topic.name, count)
                assert lm.jobs.show(lm.jobs.add(f"fork-{who}", who.encode())).payload == who.encode()

        lm.topic("fork-before").publish({"a": "b"})  # there are connections that both would have
        lm.jobs.add("fork-before", b"")
        child = os.fork()
        if child == 0:
            try:
                use("child")
                os._exit(0)
            except BaseException:
                os._exit(1)
        try:
            use("parent")
        finally:
            _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0

    def test_a_child_extends_leases_of_its_own(self) -> None:
        @dataclass
        class Lease:
            id: str
            ttr_s: float = 0.2

        touched: list[str] = []
        keeper = LeaseKeeper(lambda job, ttr_s: touched.append(job))
        keeper.keep(Lease("of the parent"))
        child = os.fork()
        if child == 0:
            touched.clear()
            keeper.keep(Lease("of the child"))
            end = time.monotonic() + LONG
            while not touched and time.monotonic() < end:
                time.sleep(0.01)
            os._exit(0 if set(touched) == {"of the child"} else 1)
        _, status = os.waitpid(child, 0)
        keeper.stop()
        assert os.waitstatus_to_exitcode(status) == 0


async def queues(remote: Remote) -> object:
    return await remote.jobs.aio.queues()


class TestClosing:
    def test_nothing_is_done_after_it(self, server: AllDoors) -> None:
        untouched, used = lamina.connect(server.url), lamina.connect(server.url)
        used.jobs.queues()
        for remote in (untouched, used):
            remote.close()
            with pytest.raises(LogClosed):
                remote.jobs.queues()
            with pytest.raises(LogClosed):
                asyncio.run(queues(remote))
            with pytest.raises(LogClosed):
                remote.topics.names()

    def test_a_coroutine_that_may_ask_again_does_not_once_it_is_closed(self, server: AllDoors) -> None:
        async def close_under_it() -> None:
            remote = lamina.connect(server.url)
            rid, _ = await remote.queues.aio.create()
            waiting = asyncio.create_task(remote.queue(rid).aio.receive(timeout=LONG))
            while not remote._async_lines._busy.get(asyncio.get_running_loop()):
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)
            await remote.aclose()
            with pytest.raises(LogClosed):
                await asyncio.wait_for(waiting, LONG / 2)

        asyncio.run(close_under_it())

    def test_a_subscription_to_a_queue_is_closed_twice(self, lm: Remote) -> None:
        rid, sid = lm.queues.create()
        lm.queue(sid).send(b"one")
        subscription = lm.queue(rid).subscribe(timeout=LONG)
        message = next(subscription)
        subscription.close()
        subscription.close()
        with pytest.raises(NoMessage):
            subscription.ack(message)
        assert list(subscription) == []

        async def the_same() -> None:
            subscription = lm.queue(rid).aio.subscribe(timeout=LONG)
            message = await anext(subscription)
            await subscription.close()
            await subscription.close()
            with pytest.raises(NoMessage):
                await subscription.ack(message)
            await lm.aclose()

        asyncio.run(the_same())

    def test_a_subscription_that_could_not_begin_is_in_nobodys_way(self, unused_port: int) -> None:
        with lamina.connect(f"lamina://127.0.0.1:{unused_port}", retry_s=0) as remote:
            problems = []
            for _ in range(2):
                try:
                    remote.topic("t").subscribe("g")
                except LaminaError as problem:
                    problems.append(problem)  # and with it the subscription
            assert [type(problem) for problem in problems] == [Disconnected, Disconnected]

            async def the_same() -> list[type]:
                problems = []
                for _ in range(2):
                    try:
                        async with remote.topic("t").aio.subscribe("g2"):
                            pass
                    except LaminaError as problem:
                        problems.append(problem)
                return [type(problem) for problem in problems]

            assert asyncio.run(the_same()) == [Disconnected, Disconnected]

    def test_loops_that_are_over_leave_no_sockets_behind(self, lm: Remote) -> None:
        async def use() -> None:
            await lm.topic("loops").aio.publish({"a": "b"})
            await lm.jobs.aio.add("loops", b"")

        before = len(os.listdir("/proc/self/fd"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            for _ in range(20):
                asyncio.run(use())
            lm.close()
            gc.collect()
        assert len(os.listdir("/proc/self/fd")) <= before + 2


@pytest.fixture
def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def test_a_machine_that_is_gone_is_noticed_however_long_an_answer_may_take(lm: Remote) -> None:
    lm.topics.names()
    (line,) = lm._lines._idle
    assert line._socket is not None
    assert line._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)

    async def the_same() -> object:
        await lm.topics.aio.names()
        (line,) = lm._async_lines._idle[asyncio.get_running_loop()]
        assert line._stream is not None
        option = line._stream[1].get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        await lm.aclose()
        return option

    assert asyncio.run(the_same())


def test_who_follows_misses_nothing_from_then_on(lm: Remote) -> None:
    topic = lm.topic("followed")
    topic.publish({"a": "before"})
    coming = topic.follow(wait=LONG / 10)
    topic.publish({"a": "behind"})
    assert [message["a"] for message, _ in zip(coming, range(1), strict=False)] == [b"behind"]


class TestAddMany:
    def test_an_error_says_what_was_added(self, lm: Remote) -> None:
        """Else nobody could go on without adding some twice."""
        payloads = [b"%d" % number for number in range(300)]

        def broken() -> Iterator[bytes]:
            yield from payloads
            lm.jobs._lines.close()
            yield from payloads

        remote_jobs = lm.jobs.lasting(0)
        with pytest.raises(BadJob) as refused:
            remote_jobs.add_many("some", [*payloads, b"x" * (1 << 24)])
        assert len(refused.value.facts["added"]) == len(payloads) == len(remote_jobs.list("some", limit=1000))
        remote_jobs.close()
        with pytest.raises(LogClosed) as closed:
            lm.jobs.add_many("others", broken())
        added = closed.value.facts["added"]
        again = lm.jobs.lasting(0)
        assert [job.id for job in again.list("others", limit=1000)] == added
        assert len(added) == 256
        again.close()


class TestLeases:
    def test_work_that_is_done_and_could_not_be_told_is_not_failed(
        self, lm: Remote, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def lost(job: object, result: bytes = b"") -> None:
            raise Disconnected("it broke", hint="", sent=True)

        async def lost_as_well(job: object, result: bytes = b"") -> None:
            lost(job)

        monkeypatch.setattr(RemoteLeased, "complete", lost)
        monkeypatch.setattr(AsyncRemoteLeased, "complete", lost_as_well)
        ids = [lm.jobs.add("untold", b""), lm.jobs.add("untold", b"")]
        with pytest.raises(Disconnected), lm.jobs.lease("untold"):
            pass

        async def the_same() -> None:
            try:
                async with lm.jobs.aio.lease("untold"):
                    pass
            finally:
                await lm.jobs.aio.closed()

        with pytest.raises(Disconnected):
            asyncio.run(the_same())
        assert [lm.jobs.show(id).state for id in ids] == ["leased", "leased"]

    def test_a_lease_is_kept_whatever_went_wrong_once(self) -> None:
        @dataclass
        class Lease:
            id: str = "one"
            ttr_s: float = 0.1

        tries: list[str] = []

        def touch(id: str, ttr_s: float) -> None:
            tries.append(id)
            if len(tries) == 1:
                raise RuntimeError("nobody thought of that")

        keeper = LeaseKeeper(touch)
        keeper.keep(Lease())
        end = time.monotonic() + LONG
        while len(tries) < 2:
            assert time.monotonic() < end
            time.sleep(0.005)
        keeper.stop()


@contextmanager
def scripted(*script: tuple[bytes, Sequence[bytes]]) -> Iterator[tuple[int, threading.Event]]:
    """A server that greets each connection with bytes of its own, and gives answers to what it is sent.

    After the last answer of a connection, but for the last one, it waits for the event, says that nobody may be here,
    and hangs up.
    """
    sends_away, went = threading.Event(), threading.Event()

    def serve() -> None:
        for number, (greeting, answers) in enumerate(script):
            with listener.accept()[0] as client:
                client.sendall(greeting)
                for answer in answers:
                    client.recv(1 << 16)
                    client.sendall(answer)
                if HANG_UP in answers:
                    continue
                if number < len(script) - 1 and answers:
                    sends_away.wait(LONG)
                    client.sendall(b"-NOAUTH Authentication required.\r\n")
                elif answers:
                    went.wait(LONG)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield listener.getsockname()[1], sends_away
        finally:
            sends_away.set()
            went.set()


class TestSentAway:
    def test_an_idle_connection_that_was_sent_away_is_not_used(self) -> None:
        """A server does so when rights change; what it says then is no answer to the next command."""

        async def use(port: int, sends_away: threading.Event) -> list[int]:
            async with lamina.connect(f"lamina://127.0.0.1:{port}") as remote:
                ended = [(await remote.topics.aio.names())]
                (idle,) = remote._async_lines._idle[asyncio.get_running_loop()]
                assert idle._stream is not None
                sends_away.set()
                while not idle._stream[0]._eof:  # type: ignore[attr-defined]
                    await asyncio.sleep(0.001)
                ended.append(await remote.topics.aio.names())
                return [len(names) for names in ended]

        names = b"*2\r\n$1\r\n0\r\n*%d\r\n"
        with scripted((b"", [names % 0]), (b"", [names % 0])) as (port, sends_away):
            assert asyncio.run(use(port, sends_away)) == [0, 0]

    @pytest.mark.parametrize("who", ["", " that are not authenticated"])
    def test_a_server_without_room_is_asked_again_as_it_did_nothing(self, who: str) -> None:
        no_room = b"-ERR max number of clients%s reached\r\n" % who.encode()
        script = [(no_room, []), (b"", [b"$3\r\n1-1\r\n"])]
        with scripted(*script) as (port, _), lamina.connect(f"lamina://127.0.0.1:{port}") as remote:
            assert remote.topic("t").publish({"a": "b"}) == "1-1"
        with scripted(*script) as (port, _):

            async def the_same() -> str:
                async with lamina.connect(f"lamina://127.0.0.1:{port}") as remote:
                    return await remote.topic("t").aio.publish({"a": "b"})

            assert asyncio.run(the_same()) == "1-1"

    def test_what_broke_while_logging_in_was_not_sent(self) -> None:
        """So it is asked for once more."""
        script = [(b"", [HANG_UP]), (b"", [b"+OK\r\n", b"$3\r\n1-1\r\n"])]
        with scripted(*script) as (port, _), lamina.connect(f"lamina://:token@127.0.0.1:{port}") as remote:
            assert remote.topic("t").publish({"a": "b"}) == "1-1"
        with scripted(*script) as (port, _):

            async def the_same() -> str:
                async with lamina.connect(f"lamina://:token@127.0.0.1:{port}") as remote:
                    return await remote.topic("t").aio.publish({"a": "b"})

            assert asyncio.run(the_same()) == "1-1"


def test_a_socket_that_cannot_be_reached_is_not_left_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with lamina.connect(f"lamina://h?resp=unix:{tmp_path}/nobody", retry_s=0) as remote:
        with pytest.raises(Disconnected) as caught:
            remote.topics.names()
        assert len(os.listdir("/proc/self/fd")) == before, "though the error is there, and all that led to it"
        del caught
