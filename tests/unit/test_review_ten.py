"""What a review found in looking at what nobody uses, in telling ids, and in turning clients away."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from http_lab import HttpLab
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.queues.journal.verify import Verified
from lamina.engines.topics import finding, ids
from lamina.engines.topics.topics import Topics
from lamina.errors import from_os
from lamina.log import OS
from lamina.log.files import Files
from lamina.log.files.memory import MemoryFiles
from lamina.server.http.ops import logs_verify
from lamina.server.resp import stream_info
from lamina.server.workq.door import WorkqDoor
from lamina.units import KIB
from resp_lab import Lab, Line, in_loop


def test_large_entries_behind_small_ones_are_looked_at_in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for ids gets fewer of them, and not that they are too large; and all wait for a few of them only."""
    files = MemoryFiles()
    topics = Topics.open("/topics", files=files, threaded=False)
    topic = topics.get_or_make(b"mail")
    for size in [1] * 511 + [KIB] * 489:
        topic.add([b"body", bytes(size)])
    topics.close()
    monkeypatch.setattr(finding, "MOST_BYTES", 256 * KIB)
    monkeypatch.setattr(stream_info, "_ENOUGH", 32 * KIB)
    topics = Topics.open("/topics", files=files, threaded=False)
    reopened = topics.get(b"mail")
    assert reopened is not None
    found, start = list[ids.EntryId](), ids.FIRST
    while page := stream_info._first_ids(reopened, start, ids.LAST, 1000):
        found += page
        start = ids.EntryId(page[-1] + 1)
    assert len(found) == len(set(found)) == 1000
    topics.close()


class Flight(Line):
    """The transport of TLS: what came along with the last of the handshake is handed over while it closes."""

    def __init__(self, data: bytes) -> None:
        super().__init__(("127.0.0.1", 1))
        self.data = data

    def close(self) -> None:
        if not self.is_closed:
            super().close()
            self.protocol.data_received(self.data)

    def get_extra_info(self, name: str) -> object:
        return self if name == "sslcontext" else super().get_extra_info(name)


@pytest.mark.parametrize("why", ["closed", "too many"])
@in_loop
async def test_nothing_is_run_of_who_is_turned_away(why: str) -> None:
    lab, engine = Lab(OS, max_connections=0 if why == "too many" else 10), JobEngine.open(None)
    jobs = WorkqDoor(engine, max_connections=0 if why == "too many" else 10)
    job = b"add 6ba7b810-9dad-11d1-80b4-00c04fd430c8 mail 1000 60000 1\r\nx\r\n"
    late = [(lab.door(), b"XADD mail * body tea\r\n"), (jobs(), job)]
    if why == "closed":
        await lab.door.close()
        await jobs.close()
    for connection, data in late:
        line = Flight(data)
        line.protocol = connection
        connection.connection_made(line)  # type: ignore[arg-type]
        assert line.is_closed and not connection.backlog and not connection.unread
    await lab.settle()
    assert not lab.topics.count() and not engine.state.jobs
    assert not lab.door.connections and not jobs.connections and not lab.house.sessions
    engine.close()


def test_queues_that_go_while_journals_are_verified_end_it_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with HttpLab(tmp_path, queues="journal") as lab:
        for _ in range(3):
            lab.redis("Q.SEND", lab.redis("Q.NEW")[1], "letter")
        folders = [path.parent for path in (lab.folder / "queues" / "messages").rglob("queue.log")]
        assert len(folders) == 3
        real = logs_verify.verify_journal

        def disturbed(files: Files, folder: str) -> Verified:
            if folder == str(folders[0]):
                shutil.rmtree(folder)
            if folder == str(folders[1]):
                error = OSError(errno.EIO, "Input/output error")
                raise from_os(error, "read the file", f"{folder}/1.log") from error
            return real(files, folder)

        monkeypatch.setattr(logs_verify, "verify_journal", disturbed)
        status, found = lab.post_json("/logs/verify", {"name": "queues/messages"})
        assert (status, found["work"]["outcome"]) == (200, "done")
        (damage,) = found["work"]["damage"]
        assert damage["file"].startswith("queue ") and "messages" not in damage["reason"]
