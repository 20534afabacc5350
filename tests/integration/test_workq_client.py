"""The client of the workq protocol: against a real server, and against one that misbehaves."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from integration.workq_server import Server
from lamina.client.workq import WorkqClient
from lamina.errors import (
    BadJob,
    Disconnected,
    DiskFull,
    DuplicateJob,
    DuplicateResult,
    JobNotFound,
    LaminaError,
    NotLeased,
    StorageError,
    WireError,
)

NOBODY = "11111111-1111-4111-8111-111111111111"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with Server(tmp_path_factory.mktemp("served"), command="serve") as server:
        yield server.port


@pytest.fixture
def client(port: int) -> Iterator[WorkqClient]:
    with WorkqClient("127.0.0.1", port, timeout=60) as client:
        yield client


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    return "".join(char if char.isalnum() else "-" for char in request.node.name)


class TestWork:
    def test_a_job_from_add_to_result(self, client: WorkqClient, queue: str) -> None:
        id = client.add(queue, b"to: \r\nyou", ttr=30)
        assert client.result(id) is None
        job = client.lease(queue)
        assert job is not None
        assert (job.id, job.name, job.ttr_s, job.payload) == (id, queue, 30, b"to: \r\nyou")
        assert client.lease(queue) is None
        client.complete(id, b"sent\r\n")
        result = client.result(id)
        assert result is not None
        assert (result.id, result.is_success, result.result) == (id, True, b"sent\r\n")
        with pytest.raises(DuplicateResult):
            client.fail(id, b"")

    def test_every_option_arrives(self, client: WorkqClient, queue: str) -> None:
        at = datetime.now(UTC) + timedelta(hours=1)
        options = {"ttr": 1.5, "ttl": 60, "priority": -3, "max_attempts": 4, "max_fails": 5}
        id = client.add(queue, b"", at=at, unique="key", backoff=2, **options)
        (block,) = client.inspect("job", id)
        wanted = {"ttr": b"1500", "ttl": b"60000", "priority": b"-3", "max-attempts": b"4", "max-fails": b"5"}
        assert block.title == id
        assert {key: block.facts[key] for key in wanted} == wanted
        assert block.facts["time"] == f"{at:%Y-%m-%dT%H:%M:%SZ}".encode()
        with pytest.raises(DuplicateJob):
            client.add(queue, unique="key")

    def test_several_jobs_at_once(self, client: WorkqClient, queue: str) -> None:
        ids = [client.add(queue, b"%d" % number) for number in range(5)]
        assert [job.id for job in client.lease_many(queue, most=3)] == ids[:3]
        assert [job.id for job in client.lease_many(queue, "other", most=1000, wait=1)] == ids[3:]

    def test_touch_release_fail_bury_redrive_delete(self, client: WorkqClient, queue: str) -> None:
        id = client.add(queue, max_fails=2)
        with pytest.raises(NotLeased):
            client.touch(id, 10)
        for give_back in (client.release, client.fail):
            job = client.lease(queue)
            assert job is not None
            client.touch(id, 10)
            give_back(id)
        client.bury(id, b"hopeless")
        result = client.result(id)
        assert result is not None
        assert (result.is_success, result.result) == (False, b"hopeless")
        client.redrive(id)
        with pytest.raises(BadJob, match="Not failed"):
            client.redrive(id)
        client.fail(id)
        client.fail(id)
        assert client.redrive_queue(queue) == 1
        client.delete(id)
        with pytest.raises(JobNotFound):
            client.delete(id)

    def test_a_paused_queue_hands_out_nothing(self, client: WorkqClient, queue: str) -> None:
        client.add(queue)
        client.pause(queue)
        assert client.lease(queue) is None
        client.resume(queue)
        assert client.lease(queue) is not None

    def test_waiting_ends_with_the_job(self, port: int, client: WorkqClient, queue: str) -> None:
        ids = []

        def add() -> None:
            with WorkqClient("127.0.0.1", port) as other:
                ids.append(other.add(queue))

        adder = threading.Timer(0.3, add)
        adder.start()
        job = client.lease(queue, wait=60)
        adder.join()
        assert job is not None
        assert [job.id] == ids

    def test_inspect(self, client: WorkqClient, queue: str) -> None:
        client.add(queue, b"payload 1\r\nttr 5\r\n")
        client.add(queue, b"")
        assert client.inspect("queue", queue)[0].facts == {"ready-len": b"2", "scheduled-len": b"0"}
        payloads = [block.facts["payload"] for block in client.inspect("state", queue, "ready", 0, 100)]
        assert payloads == [b"payload 1\r\nttr 5\r\n", b""]
        assert client.inspect("server")[0].facts.keys() == {"active-clients", "evicted-jobs", "started"}

    def test_the_largest_payload(self, client: WorkqClient, queue: str) -> None:
        body = bytes(1 << 20)
        client.add(queue, body)
        job = client.lease(queue)
        assert job is not None
        assert job.payload == body


class TestRefused:
    """Before anything is sent, or by the server; the connection goes on."""

    @pytest.mark.parametrize(
        ("call", "error"),
        [
            (lambda client: client.add("a b"), BadJob),
            (lambda client: client.add("q\r\ndelete x"), BadJob),
            (lambda client: client.add("q", bytes((1 << 20) + 1)), BadJob),
            (lambda client: client.add("q", ttr=100_000), BadJob),
            (lambda client: client.add("q", at=datetime(2020, 1, 1, tzinfo=UTC)), BadJob),
            (lambda client: client.lease(), BadJob),
            (lambda client: client.lease("q", wait=-1), BadJob),
            (lambda client: client.lease_many("q", most=1001), BadJob),
            (lambda client: client.complete("x", b""), BadJob),
            (lambda client: client.complete(NOBODY, b""), JobNotFound),
            (lambda client: client.result(NOBODY), JobNotFound),
            (lambda client: client.release(NOBODY), JobNotFound),
            (lambda client: client.redrive_queue("no-such-queue"), JobNotFound),
            (lambda client: client.redrive_queue("no-such-queue", 0), BadJob),
            (lambda client: client.inspect("queue", "a b"), BadJob),
            (lambda client: client.inspect("nothing"), WireError),
        ],
    )
    def test_it(self, client: WorkqClient, call: Callable[[WorkqClient], object], error: type[LaminaError]) -> None:
        with pytest.raises(error):
            call(client)
        assert client.inspect("server")[0].title == "server"


@contextmanager
def answering(answer: bytes, *, hangs: bool = False) -> Iterator[int]:
    """A server that reads something, says ``answer``, and hangs up (or ``hangs``)."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        is_over = threading.Event()

        def serve() -> None:
            with suppress(OSError):  # nobody comes, or does not listen to the end
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(answer)
                    if hangs:
                        is_over.wait(60)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            is_over.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


class TestBadServer:
    @pytest.mark.parametrize(
        ("answer", "error", "text"),
        [
            (b"-SERVER-ERROR Disk full, nothing was changed, try again\r\n", DiskFull, "Disk full"),
            (b"-SERVER-ERROR Read-only mode triggered by cmdlog circuit breaker\r\n", StorageError, "Read-only"),
            (b"-SERVER-ERROR something new\r\n", StorageError, "something new"),
            (b"-SERVER-ERROR Too many connections\r\n", Disconnected, "Too many"),
            (b"-CLIENT-ERROR Invalid TTR\r\n", BadJob, "Invalid TTR"),
            (b"-WHATEVER\r\n", BadJob, "WHATEVER"),
            (b"", Disconnected, "hung up"),
            (b"+O", WireError, "no answer of"),
            (b"+OK 1\r\n", Disconnected, "hung up"),
            (b"+OK 1\r\n" + NOBODY.encode() + b" q 1000 50\r\nhalf", Disconnected, "hung up"),
            (b"+OK 1\r\n" + NOBODY.encode() + b" q 1000 99999999999\r\n", WireError, "99999999999"),
            (b"+OK 1\r\n" + NOBODY.encode() + b" q 1000 2\r\nlonger", WireError, "no answer of"),
            (b"+OK one\r\n", WireError, "no answer of"),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", WireError, "HTTP/1.1"),
            (b"\xff\xfe\r\n", WireError, "no answer of"),
            (b"x" * 200_000, WireError, "no answer of"),
        ],
    )
    def test_what_it_says_is_an_error_of_ours(self, answer: bytes, error: type[LaminaError], text: str) -> None:
        with (
            answering(answer) as port,
            WorkqClient("127.0.0.1", port, timeout=60) as client,
            pytest.raises(error, match=text),
        ):
            client.lease("q")

    def test_one_that_never_answers(self) -> None:
        with (
            answering(b"", hangs=True) as port,
            WorkqClient("127.0.0.1", port, timeout=0.2) as client,
            pytest.raises(Disconnected, match="no answer in time") as caught,
        ):
            client.add("q")
        assert "not known" in caught.value.hint
        assert caught.value.retryable

    def test_none_there(self) -> None:
        with (
            WorkqClient("127.0.0.1", 1) as client,
            pytest.raises(Disconnected, match=r"127\.0\.0\.1:1: cannot connect"),
        ):
            client.add("q")

    def test_a_name_that_is_no_host(self) -> None:
        for host in ("no-such-host.invalid", "a..b", "x" * 300):
            with WorkqClient(host, 1) as client, pytest.raises(Disconnected):
                client.add("q")

    def test_the_next_command_connects_anew(self, port: int, queue: str) -> None:
        client = WorkqClient("127.0.0.1", port)
        id = client.add(queue)
        client.close()
        assert client.inspect("job", id)[0].title == id
        client.close()
        client.close()

    def test_too_many_connections(self, tmp_path: Path) -> None:
        with (
            Server(tmp_path, "--max-connections", 1, command="serve") as server,
            WorkqClient("127.0.0.1", server.port) as first,
            WorkqClient("127.0.0.1", server.port) as second,
        ):
            first.inspect("server")
            for _ in range(2):
                with pytest.raises(Disconnected):
                    second.inspect("server")
            first.inspect("server")


def test_the_client_is_small() -> None:
    for path in (Path(__file__).resolve().parents[2] / "src/lamina/client").glob("*.py"):
        assert len(path.read_text().splitlines()) <= 400
