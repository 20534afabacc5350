"""``lamina topics``, run as a program, on a server and on a folder."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import lamina
import prefork
from integration.lamina_server import IS_STANDIN, LaminaServer, topic_server
from integration.redis_peer import HOST, RedisPeer
from integration.workq_server import Server
from lamina.client.refusals import refusal
from lamina.client.resp import RespClient
from lamina.errors import BadTopic, Disconnected, GroupExists, NoGroup, NotAllowed, StorageError, WireError

LAMINA = [sys.executable, "-m", "lamina"]
SOON = 20.0
Done = subprocess.CompletedProcess[str]


def run(*arguments: object, **more: Any) -> Done:
    return prefork.run_text("topics", *arguments, **more)


def lines(done: Done) -> list[dict[str, Any]]:
    """What was printed as JSON."""
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


class Place:
    """Where the commands of a test work: the same verbs for both."""

    def __init__(self, where: LaminaServer | RedisPeer | Path) -> None:
        self.where = where
        self.flags = ["--data", str(where)] if isinstance(where, Path) else ["--server", f"{HOST}:{where.port}"]

    def run(self, verb: str, *arguments: object, **more: Any) -> Done:
        return run(verb, *self.flags, *arguments, **more)

    def json(self, verb: str, *arguments: object) -> list[dict[str, Any]]:
        return lines(self.run(verb, "--json", *arguments))

    def fill(self, topic: str, count: int, start: int = 0) -> list[str]:
        """Without a process, to be quick."""
        messages = [{"n": number} for number in range(start, start + count)]
        if isinstance(self.where, Path):
            with lamina.open(self.where) as data:
                return data.topic(topic).publish_many(messages)
        with lamina.connect(f"lamina://{HOST}:{self.where.port}") as lm:
            return lm.topic(topic).publish_many(messages)

    def read_as_group(self, topic: str, group: str, consumer: str, count: int, acked: int = 0) -> None:
        """A group that begins at the start; its consumer takes some and acknowledges some of them."""
        if isinstance(self.where, Path):
            with lamina.open(self.where) as data:
                named = data.topic(topic)
                with named.subscribe(group, consumer=consumer, since="start", batch=max(count, 1), wait=0) as messages:
                    messages.ack([next(messages) for _ in range(count)][:acked])
            return
        with RespClient(HOST, self.where.port) as client:
            with suppress(GroupExists):
                client.ask("XGROUP", "CREATE", topic, group, 0)
            words = ("XREADGROUP", "GROUP", group, consumer, "COUNT", count, "STREAMS", topic, ">")
            found = client.ask(*words) if count else None
            if acked:
                client.ask("XACK", topic, group, *(id for id, _ in found[0][1][:acked]))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LaminaServer | RedisPeer]:
    with topic_server(tmp_path_factory.mktemp("served")) as server:
        yield server


@pytest.fixture
def served(server: LaminaServer | RedisPeer) -> Place:
    """Each test takes a topic of its own, as they share the server."""
    return Place(server)


@pytest.fixture(params=["server", "data"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "server":
        return Place(request.getfixturevalue("server"))
    return Place(tmp_path / "data")


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


class TestPublishAndTail:
    def test_publish_prints_the_id_and_tail_the_message(self, place: Place, topic: str) -> None:
        done = place.run("publish", topic, "item=tea", "note=a=b", "empty=")
        assert (done.returncode, done.stderr) == (0, "")
        id = done.stdout.strip()
        (facts,) = place.json("tail", topic)
        assert facts == {
            "id": id,
            "time_ms": int(id.split("-")[0]),
            "fields": {"item": "tea", "note": "a=b", "empty": ""},
        }
        assert abs(facts["time_ms"] - time.time() * 1000) < 60_000
        human = place.run("tail", topic).stdout
        assert id in human and "item=tea note=a=b empty=" in human

    def test_text_alone_is_the_field_value_and_an_id_may_be_given(self, place: Place, topic: str) -> None:
        assert place.json("publish", topic, "hello there", "--id", "5-1") == [{"topic": topic, "id": "5-1"}]
        assert place.json("tail", topic)[0]["fields"] == {"value": "hello there"}
        again = place.run("publish", topic, "x", "--id", "5-1")
        assert again.returncode == 2
        assert "bad_topic" in again.stderr

    def test_every_line_of_standard_input_is_a_message(self, place: Place, topic: str) -> None:
        text = "".join(f"line {number}\n" for number in range(3000)) + "\nno end"
        done = place.run("publish", topic, "-", input=text)
        assert done.returncode == 0, done.stderr
        assert "3,002 messages published" in done.stdout
        found = place.json("tail", topic, "-n", 3002)
        assert [facts["fields"]["value"] for facts in found] == text.split("\n")
        (nothing,) = lines(place.run("publish", topic, "-", "--json", input=""))
        assert nothing == {"topic": topic, "published": 0, "first_id": None, "last_id": None}

    @pytest.mark.parametrize("words", [(), ("a=1", "b"), ("a", "b"), ("a=1", "a=2")], ids=str)
    def test_what_is_no_message_is_refused_and_no_folder_made(self, tmp_path: Path, words: tuple[str, ...]) -> None:
        done = run("publish", "--data", tmp_path / "data", "t", *words)
        assert done.returncode == 2
        assert not (tmp_path / "data").exists()

    def test_bytes_that_are_no_text_are_in_hexadecimal(self, place: Place, topic: str) -> None:
        raw = os.fsdecode(b"\xff[bold]\x1b[31m")
        place.run("publish", topic, f"a={raw}")
        (facts,) = place.json("tail", topic)
        assert facts["pairs_hex"] == [[b"a".hex(), b"\xff[bold]\x1b[31m".hex()]]
        human = place.run("tail", topic).stdout
        assert "[bold]" in human and "\x1b" not in human

    def test_tail_shows_the_newest_or_all_since(self, place: Place, topic: str) -> None:
        ids = place.fill(topic, 2500)

        def shown(*flags: object) -> list[int]:
            return [int(facts["fields"]["n"]) for facts in place.json("tail", topic, *flags)]

        assert shown() == list(range(2490, 2500))
        assert shown("-n", 2) == [2498, 2499]
        assert shown("-n", 0) == []
        assert shown("-n", 1200) == list(range(1300, 2500))
        assert shown("--since", ids[2400]) == list(range(2400, 2500))
        assert shown("--since", ids[2400], "-n", 3) == [2497, 2498, 2499]
        assert (
            shown("--since", "-1h") == shown("--since", "2020-01-01") == shown("--since", "start") == list(range(2500))
        )
        assert shown("--since", "end") == shown("--since", "2099-01-01") == []

    @pytest.mark.parametrize("when", ["yesterday", "5-", "x-1"])
    def test_a_time_that_is_none_is_wrong_usage(self, place: Place, topic: str, when: str) -> None:
        place.fill(topic, 1)
        done = place.run("tail", topic, "--since", when)
        assert done.returncode == 2
        assert "1700000000123-0" in done.stderr

    def test_follow_goes_on_until_it_is_interrupted(self, served: Place, topic: str) -> None:
        served.fill(topic, 1)
        command = [*LAMINA, "topics", "tail", *served.flags, topic, "-f", "--json"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        timer = threading.Timer(SOON, process.kill)
        timer.start()
        try:
            assert json.loads(process.stdout.readline())["fields"] == {"n": "0"}
            for number in (1, 2):
                served.fill(topic, 1, start=number)
                assert json.loads(process.stdout.readline())["fields"] == {"n": str(number)}
            process.send_signal(signal.SIGINT)
            assert process.wait(SOON) == 130
        finally:
            timer.cancel()
            process.kill()
            process.communicate()

    def test_follow_waits_for_a_topic_that_is_not_there_yet(self, served: Place, topic: str) -> None:
        command = [*LAMINA, "topics", "tail", *served.flags, topic, "--follow", "--json"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        timer = threading.Timer(SOON, process.kill)
        timer.start()
        try:
            served.fill(topic, 1)
            assert json.loads(process.stdout.readline())["fields"] == {"n": "0"}
        finally:
            timer.cancel()
            process.kill()
            process.communicate()

    def test_a_folder_cannot_be_followed(self, tmp_path: Path) -> None:
        Place(tmp_path / "data").fill("t", 1)
        done = run("tail", "--data", tmp_path / "data", "t", "-f")
        assert (done.returncode, done.stdout) == (2, "")


class TestLs:
    def test_ls_shows_all_topics(self, tmp_path: Path) -> None:
        place = Place(tmp_path / "data")
        ids = place.fill("a/é", 3)
        place.fill("b", 1)
        place.read_as_group("b", "g", "c", 0)
        one, two = place.json("ls")
        assert one == {"name": "a/é", "length": 3, "added": 3, "first_id": ids[0], "last_id": ids[2], "groups": 0}
        assert (two["name"], two["groups"]) == ("b", 1)
        human = place.run("ls").stdout
        assert "a/é" in human and "messages" in human

    def test_ls_of_a_server(self, served: Place, topic: str) -> None:
        ids = served.fill(topic, 3)
        (found,) = [one for one in served.json("ls") if one["name"] == topic]
        assert found == {"name": topic, "length": 3, "added": 3, "first_id": ids[0], "last_id": ids[2], "groups": 0}

    def test_there_may_be_none(self, tmp_path: Path) -> None:
        (tmp_path / "data" / "topics").mkdir(parents=True)
        done = run("ls", "--data", tmp_path / "data")
        assert (done.returncode, done.stdout) == (0, "no topics\n")


class TestGroups:
    def test_groups_show_what_is_pending_and_what_is_behind(self, place: Place, topic: str) -> None:
        ids = place.fill(topic, 10)
        place.read_as_group(topic, "g", "c", 4, acked=1)
        place.read_as_group(topic, "other", "d", 0)
        group, other = place.json("groups", topic)
        assert (group["name"], group["pending"], group["lag"]) == ("g", 3, 6)
        assert (group["last_id"], group["oldest_pending"]) == (ids[3], ids[1])
        assert [(one["name"], one["pending"]) for one in group["consumers"]] == [("c", 3)]
        assert (other["name"], other["pending"], other["lag"]) == ("other", 0, 10)
        human = place.run("groups", topic).stdout
        for part in ("g", "other", "c", ids[3], ids[1]):
            assert part in human

    def test_a_topic_without_groups_says_so(self, place: Place, topic: str) -> None:
        place.fill(topic, 1)
        assert place.run("groups", topic).stdout.startswith("no groups in ")

    @pytest.mark.parametrize("verb", ["groups", "tail", "reset"])
    def test_a_topic_that_is_not_there_is_told(self, place: Place, topic: str, verb: str) -> None:
        place.fill("another", 1)
        more = ["g", "--to", "start"] if verb == "reset" else []
        done = place.run(verb, topic, *more, "--json")
        assert done.returncode == 2
        assert json.loads(done.stdout)["error"]["code"] == "bad_topic"


class TestReset:
    @pytest.mark.parametrize(
        ("to", "again", "skipped"), [("start", 6, 0), ("end", 0, 4), (3, 3, 0), (8, 0, 2), ("-1h", 6, 0), (6, 0, 0)]
    )
    def test_a_dry_run_tells_what_a_reset_then_does(
        self, place: Place, topic: str, to: str | int, again: int, skipped: int
    ) -> None:
        ids = place.fill(topic, 10)
        place.read_as_group(topic, "g", "c", 6, acked=4)
        moment = ids[to] if isinstance(to, int) else to
        (plan,) = place.json("reset", topic, "g", "--to", moment, "--dry-run")
        assert (plan["again"], plan["skipped"], plan["pending"]) == (again, skipped, 2)
        assert (plan["from_id"], plan["is_done"]) == (ids[5], False)
        assert place.json("groups", topic)[0]["last_id"] == ids[5]
        (done,) = place.json("reset", topic, "g", "--to", moment)
        assert (done["again"], done["skipped"], done["is_done"]) == (again, skipped, True)
        (group,) = place.json("groups", topic)
        assert (group["last_id"], group["pending"]) == (done["to_id"], 2)

    def test_it_is_told_to_people_too(self, place: Place, topic: str) -> None:
        place.fill(topic, 3)
        place.read_as_group(topic, "g", "c", 2)
        human = place.run("reset", topic, "g", "--to", "start", "--dry-run").stdout
        for part in ("2 messages delivered again", "0 messages skipped", "2 messages pending", "nothing was changed"):
            assert part in human
        assert "nothing was changed" not in place.run("reset", topic, "g", "--to", "start").stdout

    def test_a_group_that_is_not_there_is_told(self, place: Place, topic: str) -> None:
        place.fill(topic, 1)
        done = place.run("reset", topic, "nobody", "--to", "end", "--json")
        assert done.returncode == 1
        assert json.loads(done.stdout)["error"]["code"] == "no_group"


class TestWhy:
    def test_why_says_what_limits_would_do(self, tmp_path: Path) -> None:
        place = Place(tmp_path / "data")
        ids = place.fill("t", 10)
        (report,) = place.json("why", "t", "--retention", "age:7d,bytes:1GiB")
        assert (report["topic"], report["length"], report["oldest_entry"]) == ("t", 10, ids[0])
        assert report["retention"] == "age:7d,bytes:1GiB"
        assert report["answer"] in place.run("why", "t", "--retention", "age:7d,bytes:1GiB").stdout

    def test_what_cannot_be_told_is_refused(self, tmp_path: Path, served: Place, topic: str) -> None:
        place = Place(tmp_path / "data")
        place.fill("t", 1)
        served.fill(topic, 1)
        for where, name in ((place, "t"), (served, topic)):
            assert where.run("why", "nope").returncode == 2
            assert where.run("why", name, "--retention", "age").returncode == 2

    def test_a_server_tells_by_the_limits_it_has_or_by_others(self, served: Place, topic: str) -> None:
        ids = served.fill(topic, 3)
        (report,) = served.json("why", topic)
        assert (report["topic"], report["oldest_entry"], report["retention"]) == (topic, ids[0], "keep")
        (report,) = served.json("why", topic, "--retention", "length:2")
        assert report["retention"] == "length:2" and [one["limit"] for one in report["limits"]] == ["length:2"]


class TestPlaces:
    def test_looking_in_the_wrong_place_makes_nothing(self, tmp_path: Path) -> None:
        assert run("ls", "--data", tmp_path / "none").returncode == 1
        assert not (tmp_path / "none").exists()
        (tmp_path / "empty").mkdir()
        assert run("ls", "--data", tmp_path / "empty").returncode == 2
        assert list((tmp_path / "empty").iterdir()) == []
        Place(tmp_path / "data").fill("t", 1)
        assert run("ls", "--data", tmp_path / "data" / "topics" / "t").returncode == 2

    def test_server_and_data_exclude_each_other(self, tmp_path: Path) -> None:
        assert run("ls", "--data", tmp_path, "--server", "127.0.0.1:1").returncode == 2

    def test_a_folder_that_is_open_elsewhere_is_told(self, tmp_path: Path) -> None:
        with lamina.open(tmp_path) as data:
            data.topic("t").publish("x")
            done = run("ls", "--data", tmp_path)
        assert done.returncode == 1
        assert "log_locked" in done.stderr and "--server" in done.stderr

    def test_no_server_is_told(self) -> None:
        with socket.socket() as nobody:
            nobody.bind((HOST, 0))
            done = run("ls", "--server", f"{HOST}:{nobody.getsockname()[1]}", "--json")
        assert done.returncode == 1
        assert json.loads(done.stdout)["error"]["code"] == "disconnected"


class TestClient:
    def test_what_answers_but_is_no_such_server_is_told(self) -> None:
        answering = Answering(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        told = pytest.raises(WireError, match="no reply of a RESP server")
        with answering as port, RespClient(HOST, port, timeout=SOON) as client, told:
            client.ask("PING")

    @pytest.mark.parametrize("answer", [b"", b"$5\r\nhal"])
    def test_a_server_that_hangs_up_is_told_and_called_anew(self, answer: bytes) -> None:
        with Answering(answer, b"+PONG\r\n") as port, RespClient(HOST, port, timeout=SOON) as client:
            with pytest.raises(Disconnected):
                client.ask("PING")
            assert client.ask("PING") == b"PONG"

    def test_a_server_that_does_not_answer_is_told(self) -> None:
        with socket.create_server((HOST, 0)) as silent, pytest.raises(Disconnected):
            RespClient(HOST, silent.getsockname()[1], timeout=0.1).ask("PING")

    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            ("NOGROUP no such", NoGroup),
            ("BUSYGROUP there", GroupExists),
            ("MISCONF disk", StorageError),
            ("NOAUTH Authentication required.", NotAllowed),
            ("WRONGPASS invalid", NotAllowed),
            ("ERR unknown command 'XADD'", WireError),
            ("ERR whatever", BadTopic),
            ("WRONGTYPE Operation", WireError),
        ],
    )
    def test_refusals_are_errors(self, text: str, kind: type[Exception]) -> None:
        assert type(refusal(text)) is kind
        with Answering(f"-{text}\r\n+OK\r\n".encode()) as port, RespClient(HOST, port, timeout=SOON) as client:
            first, second = client.ask_all([("A",), ("B",)])
            assert (type(first), second) == (kind, b"OK")

    def test_a_password_is_asked_for(self, tmp_path: Path) -> None:
        with guarded_server(tmp_path / "data") as server:
            place = Place(server)
            refused = place.run("ls", "--json")
            assert refused.returncode == 1
            assert json.loads(refused.stdout)["error"]["code"] == "not_allowed"
            assert "LAMINA_PASSWORD" in refused.stderr
            wrong = place.run("ls", "--password", "wrong")
            assert wrong.returncode == 1 and "secret" not in wrong.stderr
            assert place.run("ls", "--password", "secret").returncode == 0
            assert place.run("ls", env={**os.environ, "LAMINA_PASSWORD": "secret"}).returncode == 0


class GuardedLamina(LaminaServer):
    """With a password from the start: nothing is asked of it without."""

    def __enter__(self) -> GuardedLamina:
        Server.__enter__(self)
        return self


@contextmanager
def guarded_server(folder: Path) -> Iterator[LaminaServer | RedisPeer]:
    if not IS_STANDIN:
        with GuardedLamina(folder, "--password", "secret") as server:
            yield server
        return
    with RedisPeer() as peer:
        with RespClient(HOST, peer.port) as client:
            client.ask("CONFIG", "SET", "requirepass", "secret")
        yield peer


class Answering:
    """A server that says one thing to each who calls, and hangs up."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = answers
        self._server = socket.create_server((HOST, 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        for answer in self._answers:
            with suppress(OSError):
                client, _ = self._server.accept()
                with client:
                    client.recv(1000)
                    client.sendall(answer)
                    client.shutdown(socket.SHUT_WR)
                    client.recv(1000)

    def __enter__(self) -> int:
        self._thread.start()
        return int(self._server.getsockname()[1])

    def __exit__(self, *problem: object) -> None:
        self._server.close()
        self._thread.join(SOON)
