"""``lamina jobs``, run as a program, on a server and on a folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lamina
import prefork
from integration.workq_server import HOST, Server
from lamina.client.workq import WorkqClient
from lamina.errors import BadOption
from lamina.units import parse_duration, show_duration
from waiting import wait_until

LAMINA = [sys.executable, "-m", "lamina"]
NOBODY = "11111111-1111-4111-8111-111111111111"
Done = subprocess.CompletedProcess[str]


def run(*arguments: object, **more: Any) -> Done:
    return prefork.run_text("jobs", *arguments, **more)


def lines(done: Done) -> list[dict[str, Any]]:
    """What was printed as JSON."""
    return [json.loads(line) for line in done.stdout.splitlines()]


class Place:
    """Where the commands of a test work: the same verbs for both."""

    def __init__(self, where: Server | Path) -> None:
        self.is_server = isinstance(where, Server)
        self.flags = ["--server", f"{HOST}:{where.port}"] if isinstance(where, Server) else ["--data", str(where)]

    def run(self, verb: str, *arguments: object, **more: Any) -> Done:
        return run(verb, *self.flags, *arguments, **more)

    def json(self, verb: str, *arguments: object) -> dict[str, Any]:
        done = self.run(verb, "--json", *arguments)
        assert done.returncode == 0, done.stderr
        (found,) = lines(done)
        return found

    def add(self, name: str, payload: bytes = b"x", **options: object) -> str:
        """Without a process, to be quick."""
        if self.is_server:
            with self.client() as client:
                return client.add(name, payload, **options)
        with lamina.open(self.flags[1]) as data:
            return data.jobs.add(name, payload, **options)

    def client(self) -> WorkqClient:
        return WorkqClient(HOST, int(self.flags[1].rpartition(":")[2]))

    def failed(self, name: str, count: int = 1) -> list[str]:
        """Jobs that have failed."""
        ids = [self.add(name) for _ in range(count)]
        if self.is_server:
            with self.client() as client:
                for id in ids:
                    client.fail(id, b"boom")
        else:
            with lamina.open(self.flags[1]) as data:
                for id in ids:
                    data.jobs.fail(id, b"boom")
        return ids


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("served"), command="serve") as server:
        yield server


@pytest.fixture
def served(server: Server) -> Place:
    """Each test takes a queue of its own, as they share the server."""
    return Place(server)


@pytest.fixture(params=["server", "data"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "server":
        return Place(request.getfixturevalue("server"))
    with lamina.open(tmp_path / "data") as data:
        assert data.jobs.queues() == []
    return Place(tmp_path / "data")


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    return "".join(char if char.isalnum() else "-" for char in request.node.name)


class TestAddAndShow:
    def test_add_prints_the_id_and_show_every_fact(self, place: Place, queue: str) -> None:
        added = place.run("add", queue, "to: you")
        assert (added.returncode, added.stderr) == (0, "")
        id = added.stdout.strip()
        facts = place.json("show", id)
        assert (facts["id"], facts["name"], facts["payload"], facts["state"]) == (id, queue, "to: you", "ready")
        assert (facts["ttr_ms"], facts["ttl_ms"], facts["priority"], facts["attempts"]) == (60_000, 86_400_000, 0, 0)
        assert abs(facts["created_ns"] - time.time_ns()) < 60 * 10**9
        human = place.run("show", id).stdout
        for part in (id, queue, "ready", "1m", "1d", "to: you"):
            assert part in human

    def test_every_option_of_add(self, place: Place, queue: str) -> None:
        id = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
        flags = [
            "--id",
            id,
            "--ttr",
            "90s",
            "--ttl",
            "2h",
            "--priority",
            "-7",
            "--max-attempts",
            "3",
            "--max-fails",
            "2",
        ]
        assert place.json("add", queue, *flags, "--unique", "key", "--backoff", "1.5", "--delay", "1h") == {
            "id": id,
            "name": queue,
        }
        facts = place.json("show", id)
        wanted = {
            "ttr_ms": 90_000,
            "ttl_ms": 7_200_000,
            "priority": -7,
            "max_attempts": 3,
            "max_fails": 2,
            "payload": "",
        }
        assert {key: facts[key] for key in wanted} == wanted
        assert facts["state"] == "scheduled"
        assert abs(facts["scheduled_ns"] - time.time_ns() - 3600 * 10**9) < 60 * 10**9
        again = place.run("add", queue, "--unique", "key")
        assert again.returncode == 1
        assert "duplicate_job" in again.stderr

    def test_a_payload_from_standard_input_may_be_any_bytes(self, place: Place, queue: str) -> None:
        body = bytes(range(256)) + b"\r\nadd x\r\n"
        id = prefork.run("jobs", "add", queue, "-", *place.flags, input=body).stdout.decode().strip()
        facts = place.json("show", id)
        assert "payload" not in facts
        assert bytes.fromhex(facts["payload_hex"]) == body
        assert "000102" in place.run("show", id).stdout.replace(" ", "")

    def test_a_time_that_is_past_and_one_that_comes(self, place: Place, queue: str) -> None:
        later = place.run("add", queue, "--at", "2099-01-01T00:00:00.5Z").stdout.strip()
        assert place.json("show", later)["scheduled_ns"] // 10**9 == 4_070_908_800
        refused = place.run("add", queue, "--at", "2020-01-01")
        assert refused.returncode == 2
        assert "past" in refused.stderr

    def test_the_payload_cannot_speak_to_the_terminal(self, place: Place, queue: str) -> None:
        id = place.add(queue, b"one\ntwo \x1b[31m[bold]")
        for done in (place.run("show", id), place.run("ls", queue), place.run("lease", queue)):
            assert "\x1b" not in done.stdout
            assert "[bold]" in done.stdout

    def test_the_same_id_twice(self, place: Place, queue: str) -> None:
        id = place.add(queue)
        again = place.run("add", queue, "--id", id)
        assert (again.returncode, again.stdout) == (1, "")
        assert "duplicate_job" in again.stderr

    def test_a_job_that_is_not_there(self, place: Place) -> None:
        for verb in ("show", "redrive"):
            done = place.run(verb, NOBODY, "--json")
            assert done.returncode == 1
            assert lines(done)[0]["error"]["code"] == "job_not_found"
            assert NOBODY in done.stderr

    def test_the_result_and_the_error_are_shown(self, place: Place, queue: str) -> None:
        (failed,) = place.failed(queue)
        assert place.json("show", failed)["last_error"] == "boom"
        id = place.add(queue)
        assert place.json("lease", queue, "--complete", "sent")["state"] == "completed"
        assert place.json("show", id)["result"] == "sent"


class TestLs:
    def test_queues_and_their_sizes(self, place: Place, queue: str) -> None:
        for delay in (0, 0, 3600):
            place.add(queue, delay=delay)
        place.failed(queue)
        done = place.run("ls", "--json")
        (found,) = [facts for facts in lines(done) if facts["name"] == queue]
        assert (found["ready"], found["scheduled"]) == (2, 1)
        (row,) = [line.split() for line in place.run("ls").stdout.splitlines() if queue in line]
        assert (found["leased"], found["failed"], found["is_paused"], found["waiting_workers"]) == (0, 1, False, 0)
        assert row[:8] == [queue, "2", "1", "0", "0", "1", "no", "0"]

    def test_jobs_of_a_queue_in_the_order_in_which_they_are_handed_out(self, place: Place, queue: str) -> None:
        ids = [place.add(queue, b"%d" % priority, priority=priority) for priority in (1, 3, 2)]
        found = lines(place.run("ls", queue, "--json"))
        assert [facts["id"] for facts in found] == [ids[1], ids[2], ids[0]]
        assert [facts["payload"] for facts in found] == ["3", "2", "1"]
        human = place.run("ls", queue, "--limit", "2").stdout
        assert ids[1] in human
        assert ids[0] not in human
        assert "--limit" in human

    def test_each_state(self, place: Place, queue: str) -> None:
        (failed,) = place.failed(queue)
        scheduled = place.add(queue, delay=3600)
        completed, leased, ready = (place.add(queue, priority=priority) for priority in (9, 8, 7))
        place.run("lease", queue, "--complete", "")
        place.run("lease", queue)
        places = {"failed": failed, "scheduled": scheduled, "completed": completed, "leased": leased, "ready": ready}
        for state, id in places.items():
            (facts,) = lines(place.run("ls", queue, "--state", state, "--json"))
            assert (facts["id"], facts["state"]) == (id, state)
            assert id in place.run("ls", queue, "--state", state).stdout

    def test_more_jobs_than_a_page_of_the_protocol(self, served: Place, queue: str) -> None:
        with served.client() as client:
            ids = [client.add(queue, b"%d" % number) for number in range(230)]
        found = lines(served.run("ls", queue, "--json", "--limit", "225"))
        assert [facts["id"] for facts in found] == ids[:225]

    def test_nothing_to_show(self, place: Place, queue: str, tmp_path: Path) -> None:
        place.add(queue)
        assert f"no failed jobs in {queue}" in place.run("ls", queue, "--state", "failed").stdout
        assert place.run("ls", queue, "--state", "failed", "--json").stdout == ""
        done = place.run("ls", "no-such-queue")
        assert done.returncode == 1
        assert "there is no queue no-such-queue" in done.stderr


class TestLease:
    def test_it_prints_the_job_which_stays_leased(self, place: Place, queue: str) -> None:
        id = place.add(queue, b"hello", ttr=30)
        assert place.json("lease", "another-queue", queue) == {
            "id": id,
            "name": queue,
            "state": "leased",
            "ttr_ms": 30_000,
            "payload": "hello",
        }
        assert place.json("show", id)["state"] == "leased"

    def test_no_job_is_an_exit_code_of_its_own(self, place: Place, queue: str) -> None:
        done = place.run("lease", queue)
        assert (done.returncode, done.stdout) == (3, "")
        assert f"no job in {queue}" in done.stderr
        assert lines(place.run("lease", queue, "--wait", "50ms", "--json")) == [{"id": None}]

    def test_it_waits_for_a_job(self, served: Place, queue: str) -> None:
        command = [*LAMINA, "jobs", "lease", queue, "--wait", "1m", *served.flags]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
            id = served.add(queue)
            assert id in worker.communicate(timeout=60)[0]
        assert worker.returncode == 0

    def test_it_waits_for_the_time_of_a_job(self, place: Place, queue: str) -> None:
        id = place.add(queue, delay=1)
        assert place.json("lease", queue, "--wait", "1m")["id"] == id

    def test_failing_says_whether_it_is_tried_again(self, place: Place, queue: str) -> None:
        id = place.add(queue, max_fails=2)
        assert place.json("lease", queue, "--fail", "once")["state"] == "ready"
        assert place.json("lease", queue, "--fail", "twice")["state"] == "failed"
        assert place.json("show", id)["last_error"] == "twice"


class TestCommand:
    def test_payload_in_result_out(self, place: Place, queue: str) -> None:
        id = place.add(queue, b"hello\n" * 50_000)
        done = place.run("lease", queue, "--json", "--", "tr", "a-z", "A-Z")
        assert done.returncode == 0, done.stderr
        (facts,) = lines(done)
        assert (facts["id"], facts["state"], facts["exit_code"]) == (id, "completed", 0)
        assert facts["result"] == "HELLO\n" * 50_000
        assert place.json("show", id)["result"] == "HELLO\n" * 50_000

    def test_a_command_that_fails_fails_the_job_with_its_complaints(self, place: Place, queue: str) -> None:
        id = place.add(queue)
        done = place.run("lease", queue, "--", "sh", "-c", "echo half; echo no such address >&2; exit 7")
        assert done.returncode == 4
        assert done.stderr == "no such address\n"
        assert "failed" in done.stdout
        facts = place.json("show", id)
        assert (facts["state"], facts["last_error"]) == ("failed", "no such address\n")

    def test_a_command_that_fails_without_a_word(self, place: Place, queue: str) -> None:
        ids = [place.add(queue) for _ in range(2)]
        for script in ("exit 3", "kill -9 $$"):
            assert place.run("lease", queue, "--", "sh", "-c", script).returncode == 4
        errors = [place.json("show", id)["last_error"] for id in ids]
        assert errors == ["exit code 3", "killed by signal 9"]

    def test_the_lease_is_extended_while_it_runs(self, place: Place, queue: str) -> None:
        id = place.add(queue, ttr=1)
        done = place.run("lease", queue, "--", "sh", "-c", "sleep 3; echo done")
        assert done.returncode == 0, done.stderr
        facts = place.json("show", id)
        assert (facts["state"], facts["attempts"], facts["result"]) == ("completed", 1, "done\n")

    def test_a_command_that_is_not_there_takes_no_job(self, place: Place, queue: str) -> None:
        id = place.add(queue)
        for command in (["no-such-command"], []):
            done = place.run("lease", queue, "--", *command)
            assert done.returncode == 2, done.stderr
        facts = place.json("show", id)
        assert (facts["state"], facts["attempts"]) == ("ready", 0)

    def test_the_options_of_the_command_are_not_ours(self, tmp_path: Path) -> None:
        done = run("lease", "q", "--data", tmp_path / "nowhere", "--", "echo", "--json", "--", "--server")
        assert (done.returncode, done.stdout) == (1, "")

    def test_a_command_that_cannot_be_started_gives_the_job_back(
        self, place: Place, queue: str, tmp_path: Path
    ) -> None:
        script = tmp_path / "script"
        script.write_text("#!/no/such/interpreter\n")
        script.chmod(0o700)
        id = place.add(queue)
        done = place.run("lease", queue, "--", script)
        assert done.returncode == 1
        assert "given back" in done.stderr
        assert place.json("show", id)["attempts"] == 0
        assert len(lines(place.run("ls", queue, "--json"))) == 1

    def test_a_result_that_is_too_large_fails_the_job(self, place: Place, queue: str) -> None:
        id = place.add(queue)
        assert place.run("lease", queue, "--", "head", "-c", "1048577", "/dev/zero").returncode == 4
        assert "1048577 bytes" in place.json("show", id)["last_error"]

    @pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
    def test_interrupted_it_stops_the_command_and_gives_the_job_back(
        self, place: Place, queue: str, tmp_path: Path, how: signal.Signals
    ) -> None:
        id = place.add(queue)
        started = tmp_path / "started"
        script = f"echo $$ > {started}.tmp; mv {started}.tmp {started}; sleep 1000; echo never"
        command = [*LAMINA, "jobs", "lease", queue, *place.flags, "--", "sh", "-c", script]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
            wait_until(started.exists)
            worker.send_signal(how)
            assert worker.communicate(timeout=60)[0] == ""
        assert worker.returncode == 130
        assert not Path(f"/proc/{started.read_text().strip()}").exists()
        assert place.json("show", id)["attempts"] == 0
        assert len(lines(place.run("ls", queue, "--json"))) == 1

    def test_a_job_that_somebody_else_ended_stops_the_command(self, served: Place, queue: str, tmp_path: Path) -> None:
        id = served.add(queue, ttr=0.5)
        started = tmp_path / "started"
        command = [*LAMINA, "jobs", "lease", queue, *served.flags, "--", "sh", "-c", f"touch {started}; sleep 1000"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as worker:
            wait_until(started.exists)
            with served.client() as client:
                client.complete(id, b"by somebody else")
            complaints = worker.communicate(timeout=60)[1]
        assert worker.returncode == 1
        assert f"job {id} is not ours any more" in complaints
        assert served.json("show", id)["result"] == "by somebody else"

    def test_it_goes_on_over_a_restart_of_the_server(self, tmp_path: Path, queue: str) -> None:
        started, goes_on = tmp_path / "started", tmp_path / "goes_on"
        script = f"touch {started}; while [ ! -e {goes_on} ]; do sleep 0.05; done; echo done"
        with Server(tmp_path / "data", command="serve") as first:
            place = Place(first)
            id = place.add(queue)
            command = [*LAMINA, "jobs", "lease", queue, *place.flags, "--", "sh", "-c", script]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
                wait_until(started.exists)
                first.kill()
                with Server(tmp_path / "data", "--workq", place.flags[1], command="serve"):
                    goes_on.touch()
                    assert "completed" in worker.communicate(timeout=60)[0]
                    assert place.json("show", id)["result"] == "done\n"


class TestChange:
    def test_complete_sets_the_result(self, place: Place, queue: str) -> None:
        id = place.add(queue)
        assert place.json("complete", id, "done well") == {"id": id, "state": "completed"}
        facts = place.json("show", id)
        assert (facts["state"], facts["result"]) == ("completed", "done well")
        again = place.run("complete", id)
        assert (again.returncode, "duplicate_result" in again.stderr) == (1, True)

    def test_fail_is_final_or_not(self, place: Place, queue: str) -> None:
        id = place.add(queue, max_fails=3)
        assert place.json("fail", id, "boom")["state"] != "failed"
        assert "to be tried again" in place.run("fail", id).stdout
        assert place.json("fail", id, "boom") == {"id": id, "state": "failed"}
        other = place.add(queue, max_fails=3)
        assert place.json("fail", "--bury", other, "boom") == {"id": other, "state": "failed"}
        assert place.json("show", other)["last_error"] == "boom"

    def test_delete_leaves_nothing(self, place: Place, queue: str) -> None:
        id = place.add(queue)
        assert place.json("delete", id, "--yes") == {"id": id, "state": "deleted", "is_done": True}
        gone = place.run("delete", id, "--yes")
        assert (gone.returncode, f"there is no job {id}" in gone.stderr) == (1, True)

    def test_a_paused_queue_hands_out_nothing(self, place: Place, queue: str) -> None:
        place.add(queue)
        assert place.json("pause", queue) == {"name": queue, "paused": True}
        assert place.run("lease", queue).returncode == 3
        assert place.run("resume", queue).stdout == f"{queue} resumed\n"
        assert place.run("lease", queue).returncode == 0


class TestRedrive:
    def test_one_job(self, place: Place, queue: str) -> None:
        (id,) = place.failed(queue)
        assert place.json("redrive", id) == {"redriven": 1, "is_done": True}
        (facts,) = lines(place.run("ls", queue, "--json"))
        assert (facts["id"], facts["attempts"]) == (id, 0)
        again = place.run("redrive", id)
        assert again.returncode == 2
        assert "only a failed job" in again.stderr

    def test_the_jobs_of_a_queue(self, place: Place, queue: str) -> None:
        place.failed(queue, 3)
        assert place.json("redrive", "--queue", queue, "--limit", "2") == {"redriven": 2, "is_done": True}
        assert "1 redriven" in place.run("redrive", "--queue", queue).stdout
        assert place.json("redrive", "--queue", queue) == {"redriven": 0, "is_done": True}
        assert len(lines(place.run("ls", queue, "--json"))) == 3
        done = place.run("redrive", "--queue", "no-such-queue")
        assert done.returncode == 1
        assert "there is no queue no-such-queue" in done.stderr


class TestClean:
    def test_what_belongs_to_jobs_that_are_gone_is_dropped(self, tmp_path: Path) -> None:
        data = tmp_path / "data"
        with Server(data, "--segment-bytes", 2000, command="serve") as server, Place(server).client() as client:
            ids = [client.add("mail", b"x" * 100) for _ in range(50)]
            for id in ids[:-1]:
                client.delete(id)
        before = sum(path.stat().st_size for path in (data / "jobs").glob("*.log"))
        (report,) = lines(run("clean", "--data", data, "--yes", "--json"))
        assert report["dropped"] > 40
        assert report["removed"] > 0
        assert report["bytes_before"] == before
        assert report["bytes_after"] < before / 2
        assert [facts["id"] for facts in lines(run("ls", "mail", "--data", data, "--json"))] == ids[-1:]
        again = run("clean", "--data", data, "--yes")
        assert again.returncode == 0
        assert "0 records dropped" in again.stdout

    def test_a_server_cleans_by_itself(self, served: Place) -> None:
        for flags in (served.flags, []):
            done = run("clean", *flags)
            assert done.returncode == 2
            assert "cleans by itself" in done.stderr
            assert "--data" in done.stderr


class TestWhere:
    VERBS = (["ls"], ["show", NOBODY], ["add", "q"], ["lease", "q"], ["redrive", NOBODY])

    @pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
    def test_no_server_there(self, verb: list[str]) -> None:
        done = run(*verb, "--server", "127.0.0.1:1")
        assert (done.returncode, done.stdout) == (1, "")
        message, hint = done.stderr.splitlines()
        assert "127.0.0.1:1" in message
        assert "lamina serve" in hint

    @pytest.mark.parametrize("verb", [*VERBS, ["clean"]], ids=lambda verb: verb[0])
    def test_a_folder_that_a_server_has(self, tmp_path: Path, verb: list[str]) -> None:
        with lamina.open(tmp_path) as data:
            data.jobs.add("q", b"")
            done = run(*verb, "--data", tmp_path, "--json")
        assert done.returncode == 1
        (found,) = lines(done)
        assert found["error"]["code"] == "log_locked"
        assert found["error"]["holder"] == f"process {os.getpid()}"
        assert f"process {os.getpid()}" in done.stderr
        assert "--server" in done.stderr

    @pytest.mark.parametrize("verb", [*VERBS, ["clean"]], ids=lambda verb: verb[0])
    def test_a_folder_that_is_not_there_is_made_by_add_only(self, tmp_path: Path, verb: list[str]) -> None:
        done = run(*verb, "--data", tmp_path / "new")
        assert (tmp_path / "new").exists() == (verb[0] == "add")
        assert done.returncode == (0 if verb[0] == "add" else 1)
        assert "Traceback" not in done.stderr

    def test_the_folder_of_the_jobs_instead_of_the_data_folder(self, tmp_path: Path) -> None:
        with lamina.open(tmp_path / "data") as data:
            data.jobs.add("q", b"")
        done = run("ls", "--data", tmp_path / "data" / "jobs")
        assert done.returncode == 2
        assert str(tmp_path / "data") in done.stderr
        done = run("ls", "--data", tmp_path)
        assert done.returncode == 2
        assert "holds no jobs" in done.stderr

    @pytest.mark.parametrize(
        "flags", [["--server", "x"], ["--server", "a:99999"], ["--server", "127.0.0.1:9922", "--data", "d"]], ids=str
    )
    def test_an_address_that_cannot_be(self, flags: list[str], tmp_path: Path) -> None:
        done = run("ls", *flags, cwd=tmp_path)
        assert done.returncode == 2
        assert list(tmp_path.iterdir()) == []


class TestBadInput:
    @pytest.mark.parametrize(
        "flags",
        [
            ["q", "--ttr", "soon"],
            ["q", "--ttr", "0"],
            ["q", "--ttr", "25h"],
            ["q", "--ttl", "31d"],
            ["q", "--priority", "2147483648"],
            ["q", "--max-attempts", "256"],
            ["q", "--max-fails", "-1"],
            ["q", "--at", "tomorrow"],
            ["q", "--at", "9999-12-31T23:59:59-12:00"],
            ["q", "--at", "2099-01-01", "--delay", "1s"],
            ["q", "--id", "5"],
            ["q", "--unique", "a b"],
            ["a b"],
            ["q\r\ndelete x"],
            [""],
            ["q" * 256],
        ],
        ids=lambda flags: " ".join(flags)[:40].strip(),
    )
    def test_add(self, tmp_path: Path, flags: list[str]) -> None:
        done = run("add", *flags, "--data", tmp_path / "new")
        assert (done.returncode, done.stdout) == (2, "")
        assert "Traceback" not in done.stderr
        assert list(tmp_path.iterdir()) == []

    def test_a_payload_that_is_too_large(self, place: Place, queue: str) -> None:
        done = place.run("add", queue, "-", input="x" * (1024 * 1024 + 1))
        assert done.returncode == 2
        assert "too many" in done.stderr

    @pytest.mark.parametrize(
        "arguments",
        [
            ["show", "x"],
            ["ls", "q", "--state", "lost"],
            ["ls", "q", "--limit", "0"],
            ["ls", "a b"],
            ["lease"],
            ["lease", "a b"],
            ["lease", "q", "--wait", "x"],
            ["lease", "q", "--wait", "2d"],
            ["lease", "q", "--complete", "a", "--fail", "b"],
            ["lease", "q", "--complete", "a", "--", "true"],
            ["redrive"],
            ["redrive", "x"],
            ["redrive", NOBODY, "--queue", "q"],
            ["redrive", NOBODY, "--limit", "5"],
        ],
        ids=" ".join,
    )
    def test_the_others(self, place: Place, arguments: list[str]) -> None:
        done = place.run(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30),
        ("1.5", 1.5),
        ("500ms", 0.5),
        ("10s", 10),
        ("5m", 300),
        ("2h", 7200),
        ("1d", 86400),
        (" 1.5 h ", 5400),
    ],
)
def test_a_duration_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "-1", "+1", "1e3", "1,5", "5 minutes", "1w", "0x1", "1_0", "nan", "9" * 50, "1."]
)
def test_what_is_no_duration_is_a_bad_option(text: str) -> None:
    with pytest.raises(BadOption, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.25, "250ms"),
        (1, "1s"),
        (1.5, "1.5s"),
        (60, "1m"),
        (90, "1m 30s"),
        (5400, "1h 30m"),
        (90061, "1d 1h"),
    ],
)
def test_a_duration_is_shown_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert show_duration(seconds) == text


def test_every_command_and_option_of_jobs_is_documented() -> None:
    from lamina.cli.jobs import jobs

    page = (Path(__file__).resolve().parents[2] / "docs/reference/cli.md").read_text()
    for name, command in jobs.commands.items():
        section = page.partition(f"### lamina jobs {name} ")[2].partition("\n##")[0]
        for parameter in command.params:
            if parameter.opts[0].startswith("-") and parameter.expose_value:  # the others are of every command
                assert parameter.opts[0] in section, f"{name} {parameter.opts}"
