"""``lamina worker`` as a real process, over a real server: stopped in the middle, and the server killed under it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import lamina
from contract.ways import AllDoors
from integration.workq_server import HOST, LAMINA, Server
from lamina.client.endpoint import Endpoint
from lamina.client.jobs import RemoteJobs
from lamina.errors import TaskFailed
from lamina.tasks import TaskBook, make_task

LONG = 60.0
MODULE = """
import os, time
from lamina.client.endpoint import Endpoint
from lamina.client.jobs import RemoteJobs
from lamina.tasks import TaskBook

jobs = RemoteJobs(Endpoint("127.0.0.1", int(os.environ["PORT"])))
book = TaskBook(lambda: jobs)
nothing = 5


@book(name="write", ttr=2)
def write(number: int) -> int:
    while number >= 100 and os.path.exists("hold"):
        time.sleep(0.005)
    with open("ledger", "a") as ledger:
        ledger.write(f"{number}\\n")
    return 2 * number


@book(name="ask")
async def ask(text: str) -> str:
    return text.upper()


@book(name="wait", queue="slow", max_fails=3)
def wait(name: str) -> str:
    open(f"begun-{name}", "w").close()
    while not os.path.exists(f"go-{name}"):
        time.sleep(0.005)
    return name


@book(name="break")
def break_() -> None:
    raise RuntimeError("no")
"""


def write(number: int) -> int:
    return number


def ask(text: str) -> str:
    return text


def wait(name: str) -> str:
    return name


class Place:
    """A server, the jobs of its tasks, and a folder for workers."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder, self.server = folder, server
        self.jobs = RemoteJobs(Endpoint(HOST, server.port, retry_s=LONG))
        book = TaskBook(lambda: self.jobs)
        self.write = book(name="write", ttr=2)(write)
        self.ask = book(name="ask")(ask)
        self.wait = book(name="wait", queue="slow", max_fails=3)(wait)
        self.breaks = make_task(lambda: self.jobs, lambda: None, name="break")
        (folder / "tasks.py").write_text(MODULE)

    def words(self, *flags: object, app: str = "tasks:book") -> dict[str, Any]:
        words = [str(LAMINA), "worker", app, *map(str, flags)]
        return {"args": words, "cwd": self.folder, "env": {**os.environ, "PORT": str(self.server.port)}, "text": True}

    def work(self, *flags: object, app: str = "tasks:book") -> subprocess.CompletedProcess[str]:
        return subprocess.run(**self.words(*flags, app=app), capture_output=True, timeout=LONG, check=False)

    @contextmanager
    def worker(self, *flags: object) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            **self.words("--json", *flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            try:
                yield process
            finally:
                process.kill()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    folder = tmp_path / "work"
    folder.mkdir()
    with Server(tmp_path / "data", "--sync", "os", command="serve") as server:
        place = Place(folder, server)
        yield place
        place.jobs.close()


def until(is_so: Callable[[], object]) -> None:
    end = time.monotonic() + LONG
    while not is_so():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.01)


def test_what_is_ready_is_done(place: Place) -> None:
    numbers = place.write.put_many([(number,) for number in range(20)])
    texts = [place.ask.put(text) for text in ("a", "b")]
    other = place.wait.put("of another queue")
    done = place.work("--burst", "--json", "--queue", "tasks", "-c", 3)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["done"], report["failed"], report["released"]) == (22, 0, 0)
    assert [handle.result() for handle in numbers] == [2 * number for number in range(20)]
    assert [handle.result() for handle in texts] == ["A", "B"]
    assert place.jobs.show(other.id).state == "ready"
    assert sorted(map(int, (place.folder / "ledger").read_text().split())) == list(range(20))

    url = f"lamina://{HOST}?workq={place.server.port}"
    one = place.ask.put("c")
    assert place.work("--once", "--quiet", "--url", url, "--queue", "tasks").returncode == 0
    assert one.result() == "C"
    broken = place.breaks.put()
    assert place.work("--once", "--queue", "tasks").returncode == 4
    with pytest.raises(TaskFailed, match="RuntimeError: no"):
        broken.result()
    nothing = place.work("--once", "--queue", "tasks")
    assert (nothing.returncode, nothing.stdout) == (3, "")


def test_wrong_usage(place: Place) -> None:
    for app, text in (
        ("tasks", "MODULE:APP"),
        ("nowhere:lm", "no module"),
        ("tasks:missing", "has no"),
        ("tasks:nothing", "no tasks"),
    ):
        done = place.work(app=app)
        assert (done.returncode, text in done.stderr) == (2, True), done.stderr


def test_a_stop_lets_what_runs_come_to_its_end(place: Place) -> None:
    first, second = place.wait.put("one"), place.wait.put("two")
    with place.worker("-c", 1, "--queue", "slow") as worker:
        until((place.folder / "begun-one").exists)
        worker.send_signal(signal.SIGTERM)
        (place.folder / "go-one").touch()
        said, lines = worker.communicate(timeout=LONG)
    assert worker.returncode == 0, lines
    assert json.loads(said)["done"] == 1
    assert first.result() == "one"
    view = place.jobs.show(second.id)
    assert (view.state, view.attempts) == ("ready", 0)


def test_a_stop_gives_back_what_does_not_end(place: Place) -> None:
    handles = [place.wait.put("one"), place.wait.put("two")]
    with place.worker("-c", 2, "--grace", 0, "--queue", "slow") as worker:
        until((place.folder / "begun-one").exists)
        until((place.folder / "begun-two").exists)
        worker.send_signal(signal.SIGINT)
        said, lines = worker.communicate(timeout=LONG)
    assert worker.returncode == 0, lines
    assert json.loads(said)["released"] == 2
    for handle in handles:
        view = place.jobs.show(handle.id)
        assert (view.state, view.attempts, view.fails) == ("ready", 0, 0)


def test_a_server_that_is_killed_loses_no_job_and_none_is_told_twice(place: Place, tmp_path: Path) -> None:
    ledger = place.folder / "ledger"
    ledger.touch()
    (place.folder / "hold").touch()  # most of them are done behind the kill
    handles = place.write.put_many([(number,) for number in range(300)])
    with place.worker("-c", 4) as worker:
        assert worker.stderr is not None
        until(lambda: len(ledger.read_text().split()) >= 30)
        place.server.kill()
        (place.folder / "hold").unlink()
        told = []
        while not told or "trying again" not in told[-1]:  # it has noticed
            told.append(worker.stderr.readline())
            assert told[-1], told
        again = Server(tmp_path / "data", "--sync", "os", command="serve")
        again._words = [word.replace(f"{HOST}:0", f"{HOST}:{place.server.port}") for word in again._words]
        with again:
            results = [handle.result(wait=LONG) for handle in handles]
            worker.send_signal(signal.SIGTERM)
            said, lines = worker.communicate(timeout=LONG)
            lines = "".join(told) + lines
            assert {view.state for view in place.jobs.list("tasks", "completed", limit=1000)} == {"completed"}
            (queue,) = [view for view in place.jobs.queues() if view.name == "tasks"]
    assert worker.returncode == 0, lines
    report = json.loads(said)
    made = list(map(int, ledger.read_text().split()))
    assert results == [2 * number for number in range(300)]
    assert (queue.completed, queue.ready, queue.leased, queue.failed) == (300, 0, 0, 0)
    assert set(made) == set(range(300))
    assert report["done"] + report["not_ours"] == len(made), "how each call ended was told once"
    assert "trying again" in lines
    assert "can be had again" in lines


def test_the_page_about_workers_does_as_it_says(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/how-to/write-workers.md").read_text()
    module, caller = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "tasks.py").write_text(module)
    with AllDoors(tmp_path / "data") as server:
        surroundings = {"cwd": tmp_path, "env": {**os.environ, "LAMINA_URL": server.url}, "text": True}
        put = subprocess.run([sys.executable, "-c", caller], capture_output=True, check=True, **surroundings)
        words = [str(LAMINA), "worker", "tasks:lm", "--burst", "--json", "-c", "8"]
        done = subprocess.run(words, capture_output=True, check=True, timeout=LONG, **surroundings)
        assert json.loads(done.stdout)["done"] == 3
        jobs = RemoteJobs(Endpoint(HOST, server.workq))
        found = jobs.result(put.stdout.strip())
        jobs.close()
    assert found is not None
    assert found.result == b'"2 to you@example.org"'


def test_a_folder_without_a_server(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(
        "import lamina\nlm = lamina.open('data')\n@lm.task()\ndef double(number: int) -> int: return 2 * number\n"
    )
    caller = "from tasks import double, lm; print(double.put(21).id); lm.close()"
    put = subprocess.run([sys.executable, "-c", caller], cwd=tmp_path, capture_output=True, text=True, check=True)
    words = [str(LAMINA), "worker", "tasks:lm", "--burst"]
    subprocess.run(words, cwd=tmp_path, capture_output=True, check=True, timeout=LONG)
    with lamina.open(tmp_path / "data") as data:
        found = data.jobs.result(put.stdout.strip())
    assert found is not None
    assert found.result == b"42"
