"""A real job server, killed over and over under load, against an oracle outside of it.

Each client speaks the workq protocol, has jobs and a queue of its own, and remembers what it was told. Commands go out
several at a time, so when the server dies some are in flight: of these the first few may have happened, in order, and
the rest not. Everything else must be as it was told, whatever the policy: a killed process loses nothing it answered.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from lamina.engines.jobs import codec
from lamina.log import Reader
from prefork import Process

CYCLES = 12 * int(os.environ.get("LAMINA_CAMPAIGN", "1"))
CLIENTS = 4
GONE, NEW, COMPLETED, FAILED, PENDING, LEASED = "gone", "0", "1", "2", "3", "4"
_SHORT_TTL_MS = 150


# -- the server -----------------------------------------------------------------------------------------------------


class Server:
    """``lamina workq-server`` as a process. It is gone when the ``with`` ends, however that ends."""

    def __init__(self, folder: Path, policy: str) -> None:
        flags = {"-listen": "127.0.0.1:0", "-cmdlog-path": folder, "-cmdlog-sync": policy, "-cmdlog-sync-int": 20}
        flags |= {"-cmdlog-seg-size": 20_000, "-cmdlog-clean-int": 50}
        self._command = ["workq-server", *(part for pair in flags.items() for part in pair)]
        self._errors = folder.with_name(f"{folder.name}.stderr")

    def __enter__(self) -> Server:
        with self._errors.open("ab") as errors:
            self._process = Process(self._command, stderr=errors)
        assert self._process.stdout is not None
        too_long = threading.Timer(60, self._process.kill)
        too_long.start()
        try:
            line = self._process.stdout.readline().decode()
            assert "workq on 127.0.0.1:" in line, f"the server did not start: {line}{self.complaints()}"
        except BaseException:
            self.kill()
            raise
        finally:
            too_long.cancel()
        self.port = int(line.split("127.0.0.1:")[1].split(",")[0])
        return self

    def __exit__(self, *problem: object) -> None:
        self.kill()

    def start_in_vain(self, seconds: float) -> None:
        """It is killed so soon that it has hardly begun to recover."""
        with self._errors.open("ab") as errors:
            self._process = Process(self._command, stderr=errors)
        try:
            time.sleep(seconds)
        finally:
            self.kill()

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """In order."""
        self._end(signal.SIGTERM)
        assert self._process.returncode == 0, self.complaints()

    def _end(self, how: signal.Signals) -> None:
        self._process.send_signal(how)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def complaints(self) -> str:
        return self._errors.read_text()[-2000:]


class Wire:
    """A connection. Raises ConnectionError when the server is gone."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._file = self._socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def line(self) -> bytes:
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server is gone")
        return line[:-2]

    def block(self, size: int) -> bytes:
        data = self._file.read(size + 2)
        if len(data) < size + 2:
            raise ConnectionError("the server is gone")
        return data[:-2]

    def close(self) -> None:
        self._file.close()
        self._socket.close()


# -- what a client knows --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Known:
    """A job as its client was told it is."""

    state: str = NEW
    attempts: int = 0
    fails: int = 0
    max_fails: int = 0
    result: bytes | None = None
    gone_by: float = float("inf")
    """When its life is over at the latest, by the monotonic clock."""

    @property
    def is_ready(self) -> bool:
        return self.state in (NEW, PENDING)


@dataclass(frozen=True)
class Command:
    """What was asked for, and what it does to the job when it is done."""

    act: str
    id: str
    text: bytes
    result: bytes = b""
    job: Known = field(default_factory=Known)

    def apply(self, jobs: dict[str, Known]) -> None:
        jobs[self.id] = self.job if self.act == "add" else self._changed(jobs[self.id])

    def _changed(self, job: Known) -> Known:
        if self.act == "delete":
            return replace(job, state=GONE)
        if self.act == "complete":
            return replace(job, state=COMPLETED, result=self.result)
        may_again = job.max_fails > job.fails + 1
        fails = job.fails + (may_again or job.fails > 0)
        return replace(job, state=PENDING if may_again else FAILED, fails=fails, result=self.result)


class Client(threading.Thread):
    """Adds, leases, completes, fails and deletes until the server is gone."""

    def __init__(self, number: int, jobs: dict[str, Known], rng: random.Random, port: int) -> None:
        super().__init__(name=f"client-{number}", daemon=True)
        self.queue = f"q{number}"
        self.jobs = jobs
        self.in_flight: list[Command] = []
        self.is_leasing = False
        self.answered = 0
        self.problem: BaseException | None = None
        self._rng, self._port = rng, port

    def run(self) -> None:
        try:
            wire = Wire(self._port)
            try:
                while True:
                    self._lease(wire) if self._rng.random() < 0.3 else self._batch(wire)
            finally:
                wire.close()
        except ConnectionError:
            return  # killed
        except BaseException as problem:
            self.problem = problem

    def _lease(self, wire: Wire) -> None:
        self.is_leasing = True
        wire.send(b"lease %b 1\r\n" % self.queue.encode())
        answer = wire.line()
        if answer != b"-TIMEOUT":
            assert answer == b"+OK 1", answer
            id, _, _, size = wire.line().split()
            wire.block(int(size))
            job = self.jobs[id.decode()]
            assert job.is_ready or job.gone_by < float("inf"), f"a job was handed out that is {job}"
            self.jobs[id.decode()] = replace(job, state=LEASED, attempts=job.attempts + 1)
        self.is_leasing = False
        self.answered += 1

    def _batch(self, wire: Wire) -> None:
        after = {id: job for id, job in self.jobs.items() if job.state != GONE}
        batch: list[Command] = []
        for _ in range(self._rng.choice([1, 1, 2, 5, 12])):
            batch.append(self._some_command(after))
            batch[-1].apply(after)
        self.in_flight = batch
        wire.send(b"".join(command.text for command in batch))
        while self.in_flight:
            answer = wire.line()
            command = self.in_flight[0]
            has_expired = answer == b"-NOT-FOUND" and time.monotonic() >= self.jobs[command.id].gone_by
            assert answer == b"+OK" or has_expired, f"{command}: {answer!r}"
            command.apply(self.jobs)
            if has_expired:
                self.jobs[command.id] = replace(self.jobs[command.id], state=GONE)
            self.in_flight = self.in_flight[1:]
            self.answered += 1

    def _some_command(self, jobs: dict[str, Known]) -> Command:
        """One that makes sense after those before it."""
        lasting = {id: job for id, job in jobs.items() if job.state != GONE and job.gone_by == float("inf")}
        open = [id for id, job in lasting.items() if job.state not in (COMPLETED, FAILED)]
        act = self._rng.choices(("add", "complete", "fail", "delete"), (5, 3, 1, 4))[0]
        if act in ("complete", "fail") and open:
            id, result = self._rng.choice(open), self._rng.randbytes(self._rng.choice([0, 3, 200]))
            return Command(act, id, f"{act} {id} {len(result)}\r\n".encode() + result + b"\r\n", result)
        if act == "delete" and lasting:
            id = self._rng.choice(list(lasting))
            return Command(act, id, f"delete {id}\r\n".encode())
        return self._add()

    def _add(self) -> Command:
        id = str(uuid.UUID(bytes=self._rng.randbytes(16), version=4))
        payload = self._rng.randbytes(self._rng.choice([0, 10, 300]))
        max_fails, is_short = self._rng.choice([0, 2, 3]), self._rng.random() < 0.1
        ttl = _SHORT_TTL_MS if is_short else 3_600_000
        line = f"add {id} {self.queue} 600000 {ttl} {len(payload)} -max-fails={max_fails}\r\n"
        gone_by = time.monotonic() + 5 if is_short else float("inf")
        known = Known(max_fails=max_fails, gone_by=gone_by)
        return Command("add", id, line.encode() + payload + b"\r\n", job=known)


# -- what the server says afterwards --------------------------------------------------------------------------------


def inspect(wire: Wire, ids: list[str]) -> dict[str, Known]:
    """The jobs as the server has them now."""
    found: dict[str, Known] = {}
    for start in range(0, len(ids), 100):
        some = ids[start : start + 100]
        wire.send("".join(f"inspect job {id}\r\n" for id in some).encode())
        for id in some:
            found[id] = _read_job(wire)
    done = [id for id, job in found.items() if job.state in (COMPLETED, FAILED)]
    for start in range(0, len(done), 100):
        wire.send("".join(f"result {id} 0\r\n" for id in done[start : start + 100]).encode())
        for id in done[start : start + 100]:
            assert wire.line() == b"+OK 1"
            _, has_succeeded, size = wire.line().split()
            assert (has_succeeded == b"1") == (found[id].state == COMPLETED)
            found[id] = replace(found[id], result=wire.block(int(size)))
    return found


def _read_job(wire: Wire) -> Known:
    answer = wire.line()
    if answer == b"-NOT-FOUND":
        return Known(GONE)
    assert answer == b"+OK 1", answer
    facts: dict[bytes, bytes] = {}
    lines = int(wire.line().split()[1])
    while len(facts) < lines:
        if len(facts) == 4:  # may hold line ends
            wire.block(len(b"payload ") + int(facts[b"payload-size"]))
            facts[b"payload"] = b""
            continue
        name, _, value = wire.line().partition(b" ")
        facts[name] = value
    state, attempts, fails = (facts[name].decode() for name in (b"state", b"attempts", b"fails"))
    return Known(state, int(attempts), int(fails), int(facts[b"max-fails"]))


def differences(told: dict[str, Known], found: dict[str, Known], now: float) -> Iterator[str]:
    for id, job in found.items():
        known = told.get(id, Known(GONE))
        if known.gone_by < float("inf"):
            if job.state != GONE and (known.state == GONE or now >= known.gone_by):
                yield f"{id}: its life was over, and it is {job}"
            continue
        mine, theirs = ((k.state, k.attempts, k.fails) for k in (known, job))
        is_final = known.state in (COMPLETED, FAILED)
        if mine != theirs and not (known.state == job.state == GONE):
            yield f"{id}: told {known}, found {job}"
        elif is_final and known.result != job.result:
            yield f"{id}: result told {known.result!r}, found {job.result!r}"


def reconcile(client: Client, found: dict[str, Known], now: float) -> None:
    """Hold what the server has against what the client was told; then know what became of what was in flight."""
    problems: list[str] = []
    told = dict(client.jobs)
    for done in range(len(client.in_flight) + 1):
        if done:
            client.in_flight[done - 1].apply(told)
        problems = list(differences(told, found, now))
        if client.is_leasing and len(problems) == 1:
            id = problems[0].partition(":")[0]
            if found[id].state == LEASED and told[id].is_ready and found[id].attempts == told[id].attempts + 1:
                told[id] = replace(told[id], state=LEASED, attempts=found[id].attempts)
                problems = []
        if not problems:
            client.jobs.clear()
            client.jobs.update(told)
            return
    raise AssertionError(f"{client.name}: {len(problems)} jobs are not as was answered: " + "\n".join(problems[:5]))


def check_all(clients: list[Client], port: int) -> None:
    wire = Wire(port)
    try:
        for client in clients:
            ids = list(dict.fromkeys([*client.jobs, *(command.id for command in client.in_flight)]))
            found = inspect(wire, ids)
            reconcile(client, found, time.monotonic())
            for id, job in found.items():
                if job.state == GONE and id in client.jobs:  # a short life that is over stays over
                    client.jobs[id] = replace(client.jobs[id], state=GONE)
    finally:
        wire.close()


# -- the test -------------------------------------------------------------------------------------------------------


def load(server: Server, known: list[dict[str, Known]], rng: random.Random, seconds: float) -> list[Client]:
    """Let the clients work, and kill the server under them."""
    clients = [Client(number, jobs, random.Random(rng.random()), server.port) for number, jobs in enumerate(known)]
    for client in clients:
        client.start()
    time.sleep(seconds)
    server.kill()
    for client in clients:
        client.join(30)
        assert not client.is_alive()
        if client.problem is not None:
            raise client.problem
    return clients


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["always", "interval", "os"])
def test_a_killed_server_has_done_everything_it_answered(tmp_path: Path, policy: str) -> None:
    rng = random.Random(policy)
    folder = tmp_path / "jobs"
    known: list[dict[str, Known]] = [{} for _ in range(CLIENTS)]
    clients: list[Client] = []
    answered = 0
    for _ in range(CYCLES):
        if rng.random() < 0.25:
            Server(folder, policy).start_in_vain(rng.uniform(0, 0.15))
        with Server(folder, policy) as server:
            check_all(clients, server.port)
            clients = load(server, known, rng, rng.choice([0.02, 0.1, 0.3, 0.6]) * rng.random() + 0.01)
            answered += sum(client.answered for client in clients)
    with Server(folder, policy) as server:
        check_all(clients, server.port)
        for client in clients:
            client.in_flight, client.is_leasing = [], False
        server.stop()
    with Server(folder, policy) as server:  # an orderly stop loses nothing either
        check_all(clients, server.port)
    assert answered > CYCLES * 10
    in_log = {record.payload[1:17] for record in Reader(str(folder)).read() if record.payload[0] == codec.ADD}
    gone = {uuid.UUID(id).bytes for jobs in known for id, job in jobs.items() if job.state == GONE}
    assert gone - in_log, "nothing was ever cleaned away"


def test_no_server_is_left_behind(tmp_path: Path) -> None:
    with contextlib.suppress(ZeroDivisionError), Server(tmp_path / "jobs", "os") as server:
        raise ZeroDivisionError
    with pytest.raises(ConnectionError):
        Wire(server.port)
