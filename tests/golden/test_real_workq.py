"""Folders that used all of ours open in the real workq server: ``make workq`` builds it, LAMINA_WORKQ names another."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from golden.test_jobs_golden import Story, clean, nothing, open_engine
from lamina.clock import SystemClock
from lamina.engines.jobs.views import show_id
from lamina.testing import ManualClock

_BUILT = Path(__file__).parents[2] / ".workq" / "workq-server"
SERVER = os.environ.get("LAMINA_WORKQ") or (str(_BUILT) if _BUILT.exists() else shutil.which("workq-server"))
pytestmark = pytest.mark.skipif(SERVER is None, reason="the real workq server is not here: make workq")


@contextmanager
def workq(folder: Path) -> Iterator[socket.socket]:
    """It runs, or it said why not."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    words = [str(SERVER), "-listen", f"{address[0]}:{address[1]}", "-cmdlog-path", str(folder)]
    said = folder.with_name("said")
    with said.open("wb") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out)
    try:
        until = time.monotonic() + 30
        while True:
            try:
                client = socket.create_connection(address, 30)
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > until:
                    pytest.fail(f"it did not start: {said.read_text()[-500:]}")
                time.sleep(0.05)
        with client:
            yield client
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("between", [nothing, clean])
def test_it_starts_on_a_folder_that_used_everything_and_has_the_same_jobs(tmp_path: Path, between) -> None:
    story = Story(tmp_path / "jobs", ManualClock(SystemClock().now_ns()))
    story.of_workq()
    story.of_ours()
    between(story.engine)
    ids = [job.id for job in story.engine.state.jobs.values() if not job.is_foreground]
    story.engine.close()
    with workq(story.folder) as client, client.makefile("rb") as answers:
        for id in ids:
            client.sendall(b"inspect job %b\r\n" % show_id(id).encode())
            assert answers.readline() == b"+OK 1\r\n", id.hex()
            head = answers.readline().split()
            for _ in range(int(head[1])):
                answers.readline()
    open_engine(story.folder, story.clock).close()
