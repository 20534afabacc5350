"""The jobs of a server when connections break: nothing is dropped in silence, nothing is done twice."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from contract.blocking import Blocking, LoopThread
from cutting_proxy import EAT, HOST, LOSE, CuttingProxy
from integration.secured_server import certificates
from integration.workq_server import LAMINA, Server
from lamina.client.endpoint import Endpoint
from lamina.client.jobs import RemoteJobs
from lamina.client.workq_lines import MOST_QUICK
from lamina.engines.jobs.views import JobResult
from lamina.errors import (
    Disconnected,
    DuplicateJob,
    DuplicateResult,
    JobNotFound,
    NotAllowed,
    WireError,
)

LONG = 60


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with Server(tmp_path_factory.mktemp("served"), command="serve") as server:
        yield server.port


@pytest.fixture
def proxy(port: int) -> Iterator[CuttingProxy]:
    with CuttingProxy(port) as proxy:
        yield proxy


@contextmanager
def in_the_way(way: str, endpoint: Endpoint) -> Iterator[Any]:
    """For threads, or for coroutines."""
    jobs = RemoteJobs(endpoint)
    if way == "threads":
        yield jobs
        jobs.close()
        return
    thread = LoopThread()
    try:
        yield Blocking(jobs.aio, thread)
    finally:
        thread.run(jobs.aio.closed())
        thread.stop()


@pytest.fixture(params=["threads", "coroutines"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def jobs(way: str, proxy: CuttingProxy) -> Iterator[Any]:
    """Behind the proxy."""
    with in_the_way(way, Endpoint(HOST, proxy.port, retry_s=LONG)) as jobs:
        yield jobs


@pytest.fixture
def other(port: int) -> Iterator[RemoteJobs]:
    """Not behind it."""
    jobs = RemoteJobs(Endpoint(HOST, port))
    yield jobs
    jobs.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return "".join(char if char.isalnum() else "-" for char in request.node.name)


@pytest.mark.parametrize("plan", [[EAT], [LOSE], [EAT, LOSE]])
class TestAgain:
    """What may be done again is, and only once."""

    def test_a_job_is_added_once(self, jobs: Any, other: RemoteJobs, proxy: CuttingProxy, name: str, plan: Any) -> None:
        proxy.plan.extend(plan)
        ids = [jobs.add(name, b"1"), jobs.add(name, b"2", unique="key")]
        assert [view.id for view in other.list(name)] == ids
        assert not proxy.plan

    def test_many_are_added_once(self, jobs: Any, other: RemoteJobs, proxy: CuttingProxy, name: str, plan: Any) -> None:
        proxy.plan.extend(plan)
        ids = jobs.add_many(name, [b"%d" % number for number in range(1000)])
        assert [view.id for view in other.list(name, limit=2000)] == ids

    def test_an_ending_is_told_once(
        self, jobs: Any, other: RemoteJobs, proxy: CuttingProxy, name: str, plan: Any
    ) -> None:
        done, failed, buried = other.add_many(name, [b""] * 3, max_fails=9)
        leased = jobs.lease_many(name, most=3)
        proxy.plan.extend(plan)
        leased[0].complete(b"yes")
        proxy.plan.extend(plan)
        leased[1].fail(b"no")
        proxy.plan.extend(plan)
        leased[2].bury(b"never")
        views = [other.show(id) for id in (done, failed, buried)]
        assert [view.state for view in views] == ["completed", "ready", "failed"]
        assert [view.fails for view in views] == [0, 1, 0]
        with pytest.raises(DuplicateResult):  # that is news, as nothing got lost
            jobs.complete(done)

    def test_looking_and_what_is_the_same_when_done_twice(
        self, jobs: Any, other: RemoteJobs, proxy: CuttingProxy, name: str, plan: Any
    ) -> None:
        id = other.add(name, b"x")
        other.fail(id, b"no")
        calls: list[tuple[Callable[[], object], object]] = [
            (lambda: jobs.show(id).payload, b"x"),
            (lambda: [view.id for view in jobs.list(name, "failed")], [id]),
            (lambda: name in [view.name for view in jobs.queues()], True),
            (lambda: jobs.result(id, wait=LONG), JobResult(id, False, b"no")),
            (lambda: jobs.redrive(id), None),
            (lambda: jobs.pause(name), None),
            (lambda: jobs.lease_many(name, most=1), []),
            (lambda: jobs.resume(name), None),
            (lambda: jobs.delete(id), None),
        ]
        for call, outcome in calls:
            proxy.plan.extend(plan)
            assert call() == outcome
            proxy.plan.clear()
        with pytest.raises(JobNotFound):
            jobs.delete(id)


class TestNotAgain:
    def test_a_fail_by_another_hand_is_left_alone(
        self, jobs: Any, other: RemoteJobs, proxy: CuttingProxy, name: str
    ) -> None:
        """The first try was done, and by now somebody else works on the job."""
        id = other.add(name, b"", max_fails=9)
        (job,) = jobs.lease_many(name, most=1)
        proxy.plan.append(LOSE)
        waiting = threading.Thread(target=lambda: other.lease_many(name, most=1, wait=LONG))
        waiting.start()
        job.fail(b"once")
        waiting.join(LONG)
        view = other.show(id)
        assert (view.state, view.fails, view.attempts) == ("leased", 1, 2)

    def test_a_fail_without_a_lease_is_told_to_be_unknown(
        self, jobs: Any, other: RemoteJobs, proxy: CuttingProxy, name: str
    ) -> None:
        id = other.add(name, b"", max_fails=9)
        proxy.plan.append(LOSE)
        with pytest.raises(WireError, match="not known"):
            jobs.fail(id)
        assert other.show(id).fails == 1

    @pytest.mark.parametrize("fate", [EAT, LOSE])
    def test_a_release_a_run_and_a_redrive_of_many(
        self, jobs: Any, other: RemoteJobs, proxy: CuttingProxy, name: str, fate: str
    ) -> None:
        other.add(name, b"")
        (job,) = jobs.lease_many(name, most=1)
        for call in (
            job.release,
            lambda: jobs.run(f"{name}-2", b"", timeout=0.01),
            lambda: jobs.redrive_queue(name),
        ):
            proxy.plan.append(fate)
            with pytest.raises(Disconnected, match="connection broke"):
                call()

    def test_a_key_that_somebody_else_has(self, jobs: Any, other: RemoteJobs, proxy: CuttingProxy, name: str) -> None:
        theirs = other.add(name, b"theirs", unique="key")
        proxy.plan.append(EAT)
        with pytest.raises(DuplicateJob):
            jobs.add(name, b"ours", unique="key")
        proxy.plan.append(EAT)
        with pytest.raises(DuplicateJob):
            jobs.add(name, b"ours", id=theirs)
        assert [view.id for view in other.list(name)] == [theirs]

    def test_a_lost_lease_comes_back_when_its_time_has_passed(
        self, jobs: Any, other: RemoteJobs, proxy: CuttingProxy, name: str
    ) -> None:
        id = other.add(name, b"", ttr=0.1)
        proxy.plan.append(LOSE)
        (job,) = jobs.lease_many(name, most=1, wait=LONG)
        assert (job.id, job.attempt) == (id, 2)


class TestAway:
    @pytest.mark.parametrize("retry_s", [0, 0.2])
    def test_what_is_unacknowledged_is_named(self, way: str, port: int, name: str, retry_s: float) -> None:
        with CuttingProxy(port) as proxy, in_the_way(way, Endpoint(HOST, proxy.port, retry_s=retry_s)) as jobs:
            proxy.plan.extend([EAT] * 1000)
            with pytest.raises(Disconnected, match="not acknowledged") as caught:
                jobs.add(name, b"")
            (lost,) = caught.value.facts["unacknowledged"]  # type: ignore[misc]
            with pytest.raises(Disconnected, match="3 jobs") as caught:
                jobs.add_many(name, [b""] * 3)
            assert len(caught.value.facts["unacknowledged"]) == 3  # type: ignore[arg-type]
            proxy.plan.clear()
            assert jobs.add(name, b"", id=lost) == lost
            assert len(jobs.list(name)) == 1

    def test_a_connection_that_went_while_idle_harms_nobody(self, jobs: Any, proxy: CuttingProxy, name: str) -> None:
        jobs.add(name, b"")
        proxy.cut()
        for thread in proxy._threads[1:]:
            thread.join(LONG)  # by then it is closed on both ends
        assert jobs.run(f"{name}-2", b"", timeout=0.01) is None, "run is sent once, over a connection that is there"

    def test_it_comes_back_in_time(self, way: str, tmp_path: Path, name: str) -> None:
        """A server that is killed and started again on its folder."""
        with Server(tmp_path, "--sync", "os", command="serve") as server:
            port = server.port
            endpoint = Endpoint(HOST, port, retry_s=LONG)
            with in_the_way(way, endpoint) as jobs:
                first = jobs.add(name, b"1")
                server.kill()
                ids: list[str] = []
                adding = threading.Thread(target=lambda: ids.append(jobs.add(name, b"2")))
                adding.start()
                with restarted(tmp_path, port):
                    adding.join(LONG)
                    assert [view.id for view in jobs.list(name)] == [first, *ids]
                    assert len(ids) == 1


@contextmanager
def restarted(folder: Path, port: int) -> Iterator[Server]:
    server = Server(folder, "--sync", "os", command="serve")
    server._words = [word.replace(f"{HOST}:0", f"{HOST}:{port}") for word in server._words]
    with server:
        yield server


@contextmanager
def saying(*answers: bytes) -> Iterator[int]:
    """A server that gives these answers, one for each thing that comes."""
    with socket.create_server((HOST, 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    for answer in answers:
                        connection.recv(1 << 16)
                        connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


class TestWhoWeAre:
    def test_a_server_without_users_says_so(self, way: str) -> None:
        with (
            saying(b"-CLIENT-ERROR Unknown command\r\n") as port,
            in_the_way(way, Endpoint(HOST, port, user="me", token="secret")) as jobs,  # noqa: S106
            pytest.raises(WireError, match="knows no users") as caught,
        ):
            jobs.queues()
        assert "secret" not in str(caught.value) + repr(jobs)

    @pytest.mark.parametrize("token", ["two words", "", "a\r\nb"])
    def test_a_token_that_cannot_be(self, way: str, port: int, token: str) -> None:
        with in_the_way(way, Endpoint(HOST, port, user="me", token=token)) as jobs, pytest.raises(Exception) as caught:
            jobs.queues()
        assert caught.type.__name__ == "BadJob"

    def test_users_and_their_rights(self, way: str, tmp_path: Path) -> None:
        made = subprocess.run(
            [LAMINA, "user", "add", "ann", "--allow", "jobs:write:mail*", "--data", tmp_path],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        token = next(word for word in made.stdout.split() if len(word) > 30)
        with Server(tmp_path, command="serve") as server:
            right = Endpoint(HOST, server.port, user="ann", token=token)
            with in_the_way(way, right) as jobs:
                id = jobs.add("mail-1", b"")
                assert jobs.show(id).id == id
                assert [view.name for view in jobs.queues()] == ["mail-1"]
                assert [view.id for view in jobs.list("mail-1")] == [id]
                with pytest.raises(NotAllowed):
                    jobs.add("other", b"")
                with pytest.raises(JobNotFound):
                    jobs.list("other")
            for wrong in (Endpoint(HOST, server.port), Endpoint(HOST, server.port, user="ann", token=token[::-1])):
                with in_the_way(way, wrong) as jobs, pytest.raises(NotAllowed):
                    jobs.queues()

    def test_over_tls(self, way: str, tmp_path: Path) -> None:
        made = certificates(tmp_path)
        flags = ("--tls-cert", made["cert"], "--tls-key", made["key"])
        with Server(tmp_path / "data", *flags, command="serve") as server:
            trusts = ssl.create_default_context(cafile=str(made["cert"]))
            with in_the_way(way, Endpoint(HOST, server.port, tls=trusts)) as jobs:
                ids = jobs.add_many("q", [bytes(100_000)] * 20)
                assert [len(job.payload) for job in jobs.lease_many("q", most=20)] == [100_000] * 20
                assert [jobs.show(id).state for id in ids] == ["leased"] * 20
            stranger = Endpoint(HOST, server.port, tls=ssl.create_default_context(), retry_s=0)
            with in_the_way(way, stranger) as jobs, pytest.raises(Disconnected, match="no safe connection"):
                jobs.queues()

    def test_no_tls_there(self, way: str, port: int) -> None:
        endpoint = Endpoint(HOST, port, tls=ssl.create_default_context(), retry_s=0, timeout=5)
        with in_the_way(way, endpoint) as jobs, pytest.raises(Disconnected):
            jobs.queues()


class TestMany:
    def test_threads_share_the_jobs(self, port: int, name: str) -> None:
        """Each command has a connection for itself; a few are kept."""
        jobs = RemoteJobs(Endpoint(HOST, port))
        done: list[str] = []

        def work() -> None:
            for _ in range(20):
                with jobs.lease(name, wait=LONG) as job:
                    assert job is not None
                    job.result = job.payload
                done.append(job.id)

        threads = [threading.Thread(target=work) for _ in range(12)]
        for thread in threads:
            thread.start()
        ids = jobs.add_many(name, [b"%d" % number for number in range(240)])
        for thread in threads:
            thread.join(LONG)
        assert sorted(done) == sorted(ids)
        assert [jobs.result(id) for id in ids] == [JobResult(id, True, b"%d" % n) for n, id in enumerate(ids)]
        assert len(jobs._lines._idle) <= MOST_QUICK
        jobs.close()

    def test_coroutines_of_two_loops_share_the_jobs(self, port: int, name: str) -> None:
        jobs = RemoteJobs(Endpoint(HOST, port))

        async def story() -> list[str]:
            ids = await asyncio.gather(*(jobs.aio.add(name, b"") for _ in range(200)))
            assert len(jobs.aio._lines._idle[asyncio.get_running_loop()]) <= MOST_QUICK
            await jobs.aio._lines.closed()
            return ids

        first = asyncio.run(story())
        jobs.aio._lines._is_closed = False  # all that is left of the first loop is gone; go on
        second = asyncio.run(story())
        assert len({*first, *second}) == 400
        assert len(jobs.list(name, limit=1000)) == 400
        jobs.close()

    def test_one_who_is_cancelled_takes_no_job_along(self, port: int, other: RemoteJobs, name: str) -> None:
        async def story() -> None:
            jobs = RemoteJobs(Endpoint(HOST, port)).aio
            waiting = asyncio.create_task(jobs.lease_many(name, most=1, wait=LONG))
            while not [view for view in await jobs.queues() if view.name == name and view.waiting_workers]:
                await asyncio.sleep(0.005)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            while [view for view in await jobs.queues() if view.name == name and view.waiting_workers]:
                await asyncio.sleep(0.005)
            await jobs.closed()

        asyncio.run(story())
        id = other.add(name, b"")
        assert [(job.id, job.attempt) for job in other.lease_many(name, most=1)] == [(id, 1)]

    def test_a_block_that_is_cancelled_fails_its_job(self, port: int, other: RemoteJobs, name: str) -> None:
        id = other.add(name, b"")

        async def story() -> None:
            jobs = RemoteJobs(Endpoint(HOST, port)).aio

            async def work() -> None:
                async with jobs.lease(name):
                    begun.set()
                    await asyncio.sleep(LONG)

            begun = asyncio.Event()
            working = asyncio.create_task(work())
            await begun.wait()
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working
            await jobs.closed()

        asyncio.run(story())
        assert other.show(id).last_error == b"CancelledError: "
