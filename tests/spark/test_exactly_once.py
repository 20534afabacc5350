"""Streams whose driver is killed over and over, while servers append, rotate and clean: each record once.

``LAMINA_CAMPAIGN=10`` kills ten times.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest

pytest.importorskip("pyspark")

import pyarrow.dataset as ds
import pyarrow.parquet as pq

from integration.lamina_server import LaminaServer
from integration.resp_wire import Wire
from integration.workq_server import Server, add, job_id, raw_id
from lamina.engines.jobs import codec
from lamina.pipeline.tables import scan

KILLS = max(2, int(os.environ.get("LAMINA_CAMPAIGN", "1")))
DRIVER = Path(__file__).with_name("exactly_once_driver.py")
PATIENCE_S = 300
STARTS = 6
PACE_S = 0.05
ENOUGH = 500
"""Jobs that are deleted before the last kill: whichever stream is ahead, there are files of the log to clean."""


class Appending(threading.Thread):
    """Writes a few records at a time until it is told to end."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._is_over = threading.Event()
        self.written = 0
        self.problem: BaseException | None = None
        self.start()

    def write_some(self, first: int) -> int:
        """Those from that number on. Returns the next."""
        raise NotImplementedError

    def run(self) -> None:
        try:
            while not self._is_over.wait(PACE_S):
                self.written = self.write_some(self.written)
        except BaseException as problem:
            self.problem = problem

    def check(self) -> None:
        if self.problem is not None:
            raise self.problem

    def close(self) -> None:
        """Its connection."""
        raise NotImplementedError

    def end(self) -> None:
        self._is_over.set()
        self.join(60)
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.end()


class Adding(Appending):
    """Jobs that are added, and soon deleted: then cleaning takes their records, unless somebody has yet to read them.

    Deleted only when the stream has said where it is: what was cleaned before is not promised.
    """

    def __init__(self, server: Server, folder: Path) -> None:
        self._client = server.client()
        self._position = folder / "jobs/consumers/test"
        self.deleted: list[int] = []
        super().__init__()

    def write_some(self, first: int) -> int:
        self._ask([add(number, payload=b"job %d" % number) for number in range(first, first + 10)])
        if first and self._position.exists():
            gone = range(first - 10, first)
            self._ask([b"delete %b\r\n" % job_id(number).encode() for number in gone])
            self.deleted.extend(gone)
        return first + 10

    def close(self) -> None:
        self._client.close()

    def _ask(self, commands: list[bytes]) -> None:
        self._client.send(b"".join(commands))
        for _ in commands:
            answer = self._client.line()
            assert answer.startswith(b"+OK"), answer


class Publishing(Appending):
    """Messages of a few topics, and now and then of a new one."""

    def __init__(self, server: LaminaServer) -> None:
        self._wire = Wire(server.port)
        super().__init__()

    def write_some(self, first: int) -> int:
        for answer in self._wire.ask_all(
            [
                ("XADD", f"events.{number % 3 + number // 4000}", "*", "n", number, "room", "x" * 50)
                for number in range(first, first + 20)
            ]
        ):
            assert type(answer) is bytes, answer
        return first + 20

    def close(self) -> None:
        self._wire.close()


class Driver:
    """A process with the streams, and what it has said."""

    def __init__(self, jobs: Path, topics: Path, out: Path, how: str) -> None:
        self._words = [sys.executable, str(DRIVER), str(jobs), str(topics), str(out), how]
        self._log = out.with_suffix(".log")
        self._starts = 0
        self.start()

    def start(self) -> None:
        self._starts += 1
        with self._log.open("wb") as said:
            self._process = subprocess.Popen(self._words, stdout=said, stderr=said, start_new_session=True)

    def wait(self, what: Callable[[], bool]) -> None:
        """Until that is so, or it has ended well.

        Spark gives its workers ten seconds to start. On a machine that has too much to do they may need more; then the
        driver ends with an error, which is as good as being killed.
        """
        end = time.monotonic() + PATIENCE_S
        while not what() and (code := self._process.poll()) != 0:
            said = self._log.read_text(errors="replace")
            if code is not None and "failed to connect back" in said and self._starts < STARTS:
                self.start()
                continue
            assert code is None, said[-3000:]
            assert time.monotonic() < end, said[-3000:]
            time.sleep(0.02)

    def kill(self) -> None:
        """Python and the machine of Java, at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def commits(out: Path) -> int:
    return sum(1 for _ in (out / "checkpoints").glob("*/commits/[0-9]*"))


@pytest.mark.slow
def test_each_record_once_whenever_the_driver_is_killed(tmp_path: Path) -> None:
    jobs, topics, out = (tmp_path / name for name in ("jobs", "topics", "out"))
    rng = random.Random(time.time_ns())
    flags = ("--sync", "os", "--segment-bytes", 20_000, "--reserve-bytes", 0)
    with (
        Server(jobs, *flags, "--clean-ms", 200, "--history-s", 0, command="serve") as job_server,
        LaminaServer(topics, *flags) as topic_server,
    ):
        with Adding(job_server, jobs) as adding, Publishing(topic_server) as publishing:
            # Before a stream can begin there has to be something.
            while not (adding.written and publishing.written):
                adding.check()
                publishing.check()
                time.sleep(0.01)
            for kills_left in reversed(range(KILLS)):
                before = commits(out)
                driver = Driver(jobs, topics, out, "along")

                def is_far_enough(before: int = before, enough: int = 0 if kills_left else ENOUGH) -> bool:
                    adding.check()
                    publishing.check()
                    return commits(out) > before and len(adding.deleted) >= enough

                try:
                    driver.wait(is_far_enough)
                    time.sleep(rng.uniform(0, 1.5))
                finally:
                    driver.kill()
        adding.check()
        publishing.check()
        driver = Driver(jobs, topics, out, "finish")
        try:
            driver.wait(lambda: False)
        finally:
            driver.kill()
        assert job_server.complaints() == topic_server.complaints() == ""
        wait_until_cleaned(jobs, adding)
    check_jobs(out / "jobs", adding)
    check_topics(out / "batches", publishing.written)


def wait_until_cleaned(jobs: Path, adding: Adding) -> None:
    """The server does it when it has time."""
    end = time.monotonic() + PATIENCE_S
    while scan(str(jobs), view="jobs", columns=["kind"]).read_all().num_rows == adding.written + len(adding.deleted):
        assert time.monotonic() < end, "nothing was cleaned under the stream"
        time.sleep(0.1)


def check_jobs(sink: Path, adding: Adding) -> None:
    tables = [pq.read_table(sink / name) for name in files_that_count(sink)]
    times = Counter(time_ns for table in tables for time_ns in table["time_ns"].to_pylist())
    assert [time_ns for time_ns, count in times.items() if count > 1] == []
    found = Counter(payload[:17] for table in tables for payload in table["payload"].to_pylist())
    assert [number for number in range(adding.written) if found[bytes([codec.ADD]) + raw_id(number)] != 1][:10] == []
    assert [number for number in adding.deleted if found[bytes([codec.DELETE]) + raw_id(number)] != 1][:10] == []
    assert adding.deleted, "no job was deleted: there was nothing to clean"


def files_that_count(sink: Path) -> list[str]:
    """As the sink's own list has them: a batch that was killed may have left others."""
    files: list[str] = []
    for part in sorted((sink / "_spark_metadata").glob("[0-9]*"), key=lambda path: int(path.stem)):
        names = [json.loads(line)["path"].rpartition("/")[2] for line in part.read_text().splitlines()[1:]]
        files = names if part.suffix == ".compact" else files + names
    return files


def check_topics(sink: Path, published: int) -> None:
    table = ds.dataset([str(path) for path in sink.glob("*/*.parquet")], format="parquet").to_table()
    found = Counter(int(n) for n in table["n"].to_pylist())
    assert [number for number in range(published) if found[number] != 1][:10] == []
    assert len(found) == published
