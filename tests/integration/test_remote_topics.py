"""The topics of a server when it goes, when connections break, and when many use them at once."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import lamina
from contract.blocking import Blocking, LoopThread
from contract.ways import AllDoors
from cutting_proxy import EAT, HOST, LOSE, CuttingProxy
from lamina.client.resp import RespClient
from lamina.errors import Disconnected, LogClosed
from waiting import wait_until

SOON = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AllDoors]:
    with AllDoors(tmp_path_factory.mktemp("served") / "data") as server:
        yield server


@pytest.fixture
def proxy(server: AllDoors) -> Iterator[CuttingProxy]:
    with CuttingProxy(server.resp) as proxy:
        yield proxy


@pytest.fixture
def direct(server: AllDoors) -> Iterator[lamina.Remote]:
    with lamina.connect(server.url) as lm:
        yield lm


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def at(port: int, **more: Any) -> lamina.Remote:
    return lamina.connect(f"lamina://{HOST}:{port}", **more)


@pytest.fixture
def both() -> Iterator[list[Callable[[Any], Any]]]:
    """What makes of a topic one for threads, and one for coroutines, which looks the same."""
    thread = LoopThread()
    try:
        yield [lambda topic: topic, lambda topic: Blocking(topic.aio, thread)]
    finally:
        thread.stop()


@pytest.fixture(params=["threads", "coroutines"])
def twin(request: pytest.FixtureRequest, both: list[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    return both[request.param == "coroutines"]


def numbers(messages: Any) -> list[int]:
    return [int(message["n"]) for message in messages]


# -- a server that goes ------------------------------------------------------------------------------------------------


def test_a_subscription_goes_on_when_the_server_was_killed(tmp_path: Path, twin: Any) -> None:
    folder = tmp_path / "data"
    with AllDoors(folder) as server, at(server.resp) as lm:
        topic = twin(lm.topic("t"))
        topic.publish_many({"n": number} for number in range(4))
        messages = topic.subscribe("g", since="start", batch=3, wait=SOON)
        taken = iter(messages)
        acked, held = next(taken), next(taken)  # the third is ready, the fourth is not given to anybody
        acked.ack()
        server.kill()
        with AllDoors(folder, resp=server.resp), at(server.resp) as other:
            found = numbers([next(taken), next(taken)])
            waits = threading.Timer(0.3, lambda: other.topic("t").publish({"n": 4}))
            waits.start()
            last = next(taken)
            waits.join()
            assert [*found, int(last["n"])] == [2, 3, 4]  # what is in our hands does not come again
            held.ack()
            assert messages.ack([last]) == 1
            messages.close()
            with other.topic("t").subscribe("g", wait=0) as again:
                assert numbers(again) == [2, 3]


def test_who_waits_for_long_waits_for_a_server_that_comes_back_and_who_does_not_is_told(
    tmp_path: Path, both: list[Callable[[Any], Any]]
) -> None:
    folder = tmp_path / "data"
    with AllDoors(folder) as server, at(server.resp, retry_s=0.1) as lm:
        topics = [twin(lm.topic("t")) for twin in both]
        patient = [topic.subscribe(f"patient{way}", since="start", wait=SOON) for way, topic in enumerate(topics)]
        short = [topic.subscribe(f"short{way}", since="start", wait=0.2) for way, topic in enumerate(topics)]
        assert [list(messages) for messages in short] == [[], []]
        found: list[int] = []
        waits = [
            threading.Thread(target=lambda of: found.append(int(next(iter(of))["n"])), args=(of,)) for of in patient
        ]
        for each in waits:
            each.start()
        server.kill()
        for topic, messages in zip(topics, short, strict=True):
            for _ in range(2):
                with pytest.raises(Disconnected):
                    next(iter(messages))
            with pytest.raises(Disconnected) as told:
                topic.publish("x")
            assert told.value.facts["unacknowledged"] in (0, 1)  # one where the connection was not yet known to be gone
            with pytest.raises(Disconnected) as told:
                topic.publish_many(["x"])
            assert told.value.facts["unacknowledged"] == 0
        with AllDoors(folder, resp=server.resp), at(server.resp) as other:
            other.topic("t").publish({"n": 7})
            for each in waits:
                each.join(SOON)
            assert found == [7, 7]
            assert [numbers(messages) for messages in short] == [[7], [7]]
            for messages in [*patient, *short]:
                messages.close()


def test_reading_and_following_go_on_when_connections_break(
    proxy: CuttingProxy, direct: lamina.Remote, name: str, twin: Any
) -> None:
    direct.topic(name).publish_many({"n": number} for number in range(1500))
    with at(proxy.port) as lm:
        topic = twin(lm.topic(name))
        found = []
        for count, message in enumerate(topic.read()):
            found.append(message)
            if count % 300 == 0:
                proxy.cut()
                proxy.plan.extend([LOSE, EAT])
        assert numbers(found) == list(range(1500))
        following = iter(topic.follow(since="start", wait=0.5))
        found = [next(following) for _ in range(100)]
        proxy.cut()
        assert numbers([*found, *following]) == list(range(1500))


# -- connections that break --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fate", [EAT, LOSE])
def test_one_message_is_sent_once(proxy: CuttingProxy, direct: lamina.Remote, name: str, twin: Any, fate: str) -> None:
    with at(proxy.port) as lm:
        topic = twin(lm.topic(name))
        proxy.plan.append(fate)
        with pytest.raises(Disconnected) as told:
            topic.publish({"n": 1})
        assert told.value.facts["unacknowledged"] == 1
        wait_until(lambda: direct.topic(name).stats().length == (fate == LOSE))
        topic.publish({"n": 2})
    assert numbers(direct.topic(name).read()) == ([1, 2] if fate == LOSE else [2])


class Cutter(CuttingProxy):
    """Hangs up when so many bytes went through, in the one direction or the other; once."""

    def __init__(self, server: int, to_server: int | None, to_client: int | None) -> None:
        super().__init__(server)
        self._left: list[int | None] = [to_server, to_client]

    def _pump(self, client: socket.socket, server: socket.socket) -> None:
        ends = (client, server)
        while True:
            for source in select.select(ends, [], [])[0]:
                way = ends.index(source)
                if not (data := source.recv(1 << 14)):
                    return
                left = self._left[way]
                if left is not None:
                    self._left[way] = left - len(data)
                    if len(data) >= left:
                        self._left[way] = None
                        with suppress(OSError):
                            ends[1 - way].sendall(data[:left])
                        return
                ends[1 - way].sendall(data)


CUTS = [(10, None), (60_000, None), (90_000, None), (None, 1), (None, 30), (None, 23_000), (None, 40_000)]


@pytest.mark.parametrize(("to_server", "to_client"), CUTS)
def test_many_are_told_published_or_not_known(
    server: AllDoors, direct: lamina.Remote, name: str, twin: Any, to_server: int | None, to_client: int | None
) -> None:
    with Cutter(server.resp, to_server, to_client) as proxy, at(proxy.port) as lm:
        with pytest.raises(Disconnected) as told:
            twin(lm.topic(name)).publish_many({"n": number} for number in range(5000))
        published, unknown = told.value.facts["published"], told.value.facts["unacknowledged"]
    assert isinstance(published, list) and isinstance(unknown, int)
    assert len(published) in range(0, 5000, 1000)
    assert unknown == 1000
    with direct.topic(name).subscribe("quiet", since="start", wait=0.2) as messages:
        list(messages)  # the server may still be reading what it was sent
    found = list(direct.topic(name).read())
    assert numbers(found) == list(range(len(found)))  # each once, in order, and none is left out
    assert len(published) <= len(found) <= len(published) + unknown
    assert [message.id for message in found[: len(published)]] == published


def test_nothing_is_skipped_or_lost_when_the_connection_breaks_again_and_again(
    proxy: CuttingProxy, direct: lamina.Remote, name: str, twin: Any
) -> None:
    count = 400
    with at(proxy.port) as lm:
        topic = twin(lm.topic(name))
        messages = topic.subscribe("g", since="start", batch=7, wait=SOON)
        direct.topic(name).publish_many({"n": number} for number in range(count))
        found: list[int] = []
        for message in messages:
            found.append(int(message["n"]))
            if len(found) % 20 == 0:
                proxy.plan.append(LOSE if len(found) % 40 else EAT)
            message.ack()
            if len(found) == count:
                break
        messages.close()
    assert sorted(found) == list(range(count))
    (group,) = direct.topic(name).groups()
    assert (group.pending, group.lag) == (0, 0)


def test_autoack_over_connections_that_break(proxy: CuttingProxy, direct: lamina.Remote, name: str, twin: Any) -> None:
    direct.topic(name).publish_many({"n": number} for number in range(100))
    with (
        at(proxy.port) as lm,
        twin(lm.topic(name)).subscribe("g", since="start", batch=7, wait=0.3, autoack=True) as messages,
    ):
        found = []
        for message in messages:
            found.append(int(message["n"]))
            if len(found) % 30 == 0:
                proxy.cut()
    assert sorted(found) == list(range(100))
    assert direct.topic(name).groups()[0].pending == 0


def test_closing_the_connection_ends_who_waits(server: AllDoors, name: str) -> None:
    lm = at(server.resp)
    messages = lm.topic(name).subscribe("g")
    later = threading.Timer(0.2, lm.close)
    later.start()
    with pytest.raises(LogClosed):
        next(messages)
    later.join()


# -- coroutines --------------------------------------------------------------------------------------------------------


def test_cancelling_closes_the_connection_and_loses_no_message(
    server: AllDoors, direct: lamina.Remote, name: str
) -> None:
    def waiting() -> int:
        with RespClient(HOST, server.resp) as line:
            return int(line.ask("CLIENT", "LIST").lower().count(b"cmd=xreadgroup"))

    async def run() -> list[int]:
        lm = at(server.resp)
        found: list[int] = []
        async with lm.topic(name).aio.subscribe("g", since="start", batch=3) as messages:
            taking = asyncio.ensure_future(anext(messages))
            while not await asyncio.to_thread(waiting):
                await asyncio.sleep(0.01)
            taking.cancel()
            with suppress(asyncio.CancelledError):
                await taking
            while await asyncio.to_thread(waiting):  # the server sees that nobody waits there any more
                await asyncio.sleep(0.01)
            publisher = asyncio.to_thread(direct.topic(name).publish_many, [{"n": number} for number in range(50)])
            publishing = asyncio.ensure_future(publisher)
            tries = 0
            while len(found) < 50:
                tries += 1
                try:
                    async with asyncio.timeout(0.0005 * (tries % 7) if tries < 300 else SOON):
                        message = await anext(messages)
                except TimeoutError:
                    continue
                found.append(int(message["n"]))
                await message.ack()
            await publishing
        await lm.aclose()
        return found

    assert sorted(asyncio.run(asyncio.wait_for(run(), SOON))) == list(range(50))
    assert direct.topic(name).groups()[0].pending == 0


# -- many at once ------------------------------------------------------------------------------------------------------


def test_one_topic_for_eight_threads(server: AllDoors, name: str) -> None:
    problems: list[BaseException] = []
    taken: list[int] = []
    with at(server.resp) as lm:
        topic = lm.topic(name)

        def work(me: int) -> None:
            try:
                for number in range(20):
                    topic.publish({"n": me * 1000 + number})
                topic.publish_many({"n": me * 1000 + number} for number in range(20, 120))
                assert len(list(topic.read(last=50))) == 50
                assert topic.stats().length >= 120
                with topic.subscribe("g", consumer=str(me), since="start", batch=10, wait=0.5, autoack=True) as mine:
                    taken.extend(numbers(mine))
            except BaseException as problem:
                problems.append(problem)

        threads = [threading.Thread(target=work, args=(me,)) for me in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SOON)
        assert not problems
        wanted = sorted(me * 1000 + number for me in range(8) for number in range(120))
        assert sorted(numbers(topic.read())) == wanted
        assert sorted(taken) == wanted
        for me in range(8):
            mine = [number for number in numbers(topic.read()) if number // 1000 == me]
            assert mine == sorted(mine)
