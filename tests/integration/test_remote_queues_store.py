"""Queues and the store of a server that is killed and started again: nothing is lost, nothing is done twice unseen."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import lamina
from contract.ways import AllDoors
from lamina.errors import Disconnected, LogClosed, NotAllowed

LIMIT_S = 60.0
HOST = "127.0.0.1"
WORD, QUEUE_WORD, WRONG = "the word of the server", "the word of queues", "not the word"


def in_thread(work: Callable[[], Any]) -> Callable[[], Any]:
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as problem:  # told to who waits
            results.append(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result() -> Any:
        thread.join(LIMIT_S)
        assert results, "it still waits"
        if isinstance(results[0], BaseException):
            raise results[0]
        return results[0]

    return result


class Restarted:
    """A server that can be killed and started again, on the same ports and folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = AllDoors(folder)
        self.server.__enter__()
        self.ports = {"workq": self.server.workq, "resp": self.server.resp}
        self.url = self.server.url

    def kill(self) -> None:
        self.server.__exit__()

    def start(self) -> None:
        self.server = AllDoors(self.folder, **self.ports)
        self.server.__enter__()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarted]:
    """One for all tests: starting takes longer than most of them."""
    made = Restarted(tmp_path_factory.mktemp("served") / "data")
    try:
        yield made
    finally:
        made.kill()


class Cable:
    """A line to a server that can be cut behind a command: it arrives, and its answer does not."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server((HOST, 0))
        self.port = self._listener.getsockname()[1]
        self.swallows = threading.Event()
        """From now on answers are lost: the line is cut when one comes."""
        self.lost = 0
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((HOST, self._server_port))
                self._sockets += client, server
                for source, target, is_answer in ((client, server, False), (server, client, True)):
                    thread = threading.Thread(target=self._carry, args=(source, target, is_answer), daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _carry(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if is_answer and self.swallows.is_set():
                    self.lost += 1
                    break
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(LIMIT_S)
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(LIMIT_S)
        for each in self._sockets:
            each.close()


@contextmanager
def behind_a_cable(server: Restarted) -> Iterator[tuple[Cable, Any]]:
    cable = Cable(server.ports["resp"])
    try:
        with lamina.connect(f"lamina://{HOST}:{cable.port}", retry_s=0.2, timeout=LIMIT_S) as lm:
            yield cable, lm
    finally:
        cable.close()


def test_a_waiting_subscription_goes_on_when_the_server_is_there_again(server: Restarted) -> None:
    with lamina.connect(server.url, retry_s=LIMIT_S) as lm:
        rid, sid = lm.queues.create(key="k")
        kept = lm.queue(sid).send(b"kept")
        with lm.queue(rid, "k").subscribe(timeout=LIMIT_S) as messages:
            each = iter(messages)
            assert next(each).id == kept  # in hand, not acknowledged
            waits = in_thread(lambda: next(each))
            server.kill()
            server.start()
            lm.queue(sid).send(b"later")
            assert waits().body == b"later"
            assert messages.ended is None
        assert [message.body for message in lm.queue(rid, "k").subscribe(timeout=0)] == [b"later"]


def test_a_subscription_of_coroutines_goes_on_too(server: Restarted) -> None:
    async def story() -> None:
        async with lamina.connect(server.url, retry_s=LIMIT_S) as lm:
            rid, sid = await lm.queues.aio.create(key="k")
            async with lm.queue(rid, "k").aio.subscribe(timeout=LIMIT_S) as messages:
                waits = asyncio.ensure_future(anext(messages))
                await asyncio.sleep(0)
                server.kill()
                server.start()  # in this thread: it ends with the one that started it
                await lm.queue(sid).aio.send(b"later")
                assert (await waits).body == b"later"
                # Cancelled while it waits: nothing is lost, and the line is as good as before.
                waits = asyncio.ensure_future(anext(messages))
                await asyncio.sleep(0.05)
                waits.cancel()
                with suppress(asyncio.CancelledError):
                    await waits
                await lm.queue(sid).aio.send(b"last")
                assert (await anext(messages)).body == b"last"

    asyncio.run(story())


def test_an_unacknowledged_message_comes_again_and_can_be_acknowledged_then(server: Restarted) -> None:
    with lamina.connect(server.url, retry_s=LIMIT_S) as lm:
        rid, sid = lm.queues.create()
        sent = lm.queue(sid).send(b"x")
        box = lm.queue(rid)
        message = box.receive()
        assert message is not None
        waits = in_thread(lambda: lm.queue(rid).receive(timeout=LIMIT_S))
        assert waits().id == sent
        server.kill()
        server.start()
        again = lm.queue(rid).receive(timeout=LIMIT_S)
        assert again is not None and again.id == sent
        assert box.ack(message) is None  # given before the restart, over another connection
        assert lm.queue(rid).receive() is None


def test_a_send_whose_answer_was_lost_is_told_and_not_repeated(server: Restarted) -> None:
    with behind_a_cable(server) as (cable, lm):
        rid, sid = lm.queues.create()
        cable.swallows.set()
        with pytest.raises(Disconnected) as caught:
            lm.queue(sid).send(b"x")
        assert caught.value.facts["sent"] is True and caught.value.retryable
        assert cable.lost == 1
        cable.swallows.clear()
        assert lm.queue(rid).info().size == 1  # it was done, once


def test_an_acknowledgement_whose_answer_was_lost_is_repeated_and_takes_nothing_else(server: Restarted) -> None:
    with behind_a_cable(server) as (cable, lm):
        rid, sid = lm.queues.create()
        for body in (b"one", b"two"):
            lm.queue(sid).send(body)
        box = lm.queue(rid)
        message = box.receive()
        cable.swallows.set()
        with pytest.raises(Disconnected):
            box.ack(message)
        assert cable.lost > 1  # it was tried again
        cable.swallows.clear()
        assert box.ack(message).body == b"two"
        assert box.info().size == 1


def test_a_session_whose_answer_was_lost_is_not_repeated(server: Restarted) -> None:
    with behind_a_cable(server) as (cable, lm):
        lm.store.put(1, b"count", b"before")
        cable.swallows.set()
        with pytest.raises(Disconnected) as caught:
            lm.store.put(1, b"count", b"lost")
        assert caught.value.facts["sent"] is True
        assert cable.lost == 1
        with pytest.raises(Disconnected):  # reads are tried again, as long as they may
            lm.store.get(1, b"count")
        assert cable.lost > 2
        cable.swallows.clear()
        with lamina.connect(server.url) as other:
            other.store.wait_durable(other.store.epoch)
            assert other.store.get(1, b"count") == b"lost"


def test_a_connection_that_was_idle_while_the_server_restarted_is_made_anew(server: Restarted) -> None:
    """What cannot be asked twice must not fail because of a line that was dead before it was asked."""
    with lamina.connect(server.url, retry_s=LIMIT_S) as lm:
        rid, sid = lm.queues.create()
        epoch = lm.store.put(1, b"a", b"1")
        server.kill()
        server.start()
        lm.queue(sid).send(b"x")
        assert lm.store.put(1, b"a", b"2") > epoch
        message = lm.queue(rid).receive()
        assert message is not None and message.body == b"x"


def test_a_scan_goes_on_over_a_restart_at_the_same_moment(server: Restarted) -> None:
    keys = [b"%05d" % each for each in range(2500)]
    with lamina.connect(server.url, retry_s=LIMIT_S) as lm:
        with lm.store.session() as session:
            session.put_many(2, [(key, b"old") for key in keys])
        entries = lm.store.scan(2)
        found = [next(entries)]
        with lm.store.session() as session:
            session.put_many(2, [(key, b"new") for key in keys])
        server.kill()
        server.start()
        found += entries
        assert [each.key for each in found] == keys
        assert {each.value for each in found} == {b"old"}


def test_closing_ends_who_waits(server: Restarted) -> None:
    lm = lamina.connect(server.url)
    rid, _ = lm.queues.create()
    messages = lm.queue(rid).subscribe()
    waits = [in_thread(lambda: lm.queue(rid).receive(timeout=None)), in_thread(lambda: next(messages))]
    threading.Event().wait(0.1)
    lm.close()
    for each in waits:
        with pytest.raises((LogClosed, Disconnected)):
            each()
    with pytest.raises(LogClosed):
        lm.queues.stats()


def test_a_server_with_a_password_lets_in_who_knows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMINA_PASSWORD", WORD)
    monkeypatch.setenv("LAMINA_QUEUE_PASSWORD", QUEUE_WORD)
    with AllDoors(tmp_path / "data") as server:
        url = f"lamina://{HOST}:{server.resp}"
        with lamina.connect(url) as lm, pytest.raises(NotAllowed):
            lm.queues.stats()
        with lamina.connect(url, token=WRONG) as lm, pytest.raises(NotAllowed) as caught:
            lm.store.get(1, b"a")
        assert WRONG not in str(caught.value.as_dict())
        with lamina.connect(url, token=WORD) as lm:
            with pytest.raises(lamina.errors.QueueRefused):
                lm.queues.create()
            rid, sid = lm.queues.create(key="k", password=QUEUE_WORD)
            lm.queue(sid).send(b"x")
            with lm.queue(rid, "k").subscribe(timeout=0) as messages:
                assert [message.body for message in messages] == [b"x"]
            lm.store.put(1, b"a", b"1")
            assert [each.value for each in lm.store.scan(1)] == [b"1"]
