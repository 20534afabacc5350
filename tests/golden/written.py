"""Data folders as a version of lamina writes them, with all engines and what they can do in use; and what is in one.

    python -m golden.written OUT        with the version to be kept: packs folders and what they hold into OUT

They are made once and committed, so that later versions are held to opening them (test_written.py).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
_SMALL = "4096"  # bytes of a segment: several files of each log
STORES = ("memory", "journal")
ENDS = {"stopped": signal.SIGTERM, "killed": signal.SIGKILL}


# -- writing ---------------------------------------------------------------------------------------------------------


@contextmanager
def _server(folder: Path, store: str, end: signal.Signals) -> Iterator[tuple[int, int]]:
    program = Path(sys.executable).parent / "lamina"
    words = ["serve", "--data", str(folder), "--resp", f"{HOST}:0", "--workq", f"{HOST}:0", "--http", f"{HOST}:0"]
    words += ["--queues", store, "--segment-bytes", _SMALL, "--reserve-bytes", "0", "--sync", "always"]
    process = subprocess.Popen([str(program), *words], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        ports = {door: int(port) for door, port in re.findall(rf"(resp|workq) on {re.escape(HOST)}:(\d+)", line)}
        yield ports["resp"], ports["workq"]
        process.send_signal(end)
        process.wait(60)
    finally:
        process.kill()
        process.wait()


def write(folder: Path, store: str, end: signal.Signals) -> dict[str, Any]:
    """Returns what only clients know: ids of queues and their keys."""
    import redis

    import lamina

    known: dict[str, Any] = {}
    for run in range(2):  # the second opens what the first left
        with (
            _server(folder, store, end if run else signal.SIGTERM) as (resp, workq),
            lamina.connect(f"lamina://{HOST}:{resp}?workq={workq}") as remote,
            redis.Redis(HOST, resp) as client,
        ):
            _jobs(remote.jobs, run)
            _topics(client, run)
            known[f"queues {run}"] = _queues(client)
            _store(client, run)
            client.execute_command("L.DUMP", "queues")
            time.sleep(1.5)  # the history of the server gets a record
            _jobs(remote.jobs, run + 10)
            _topics(client, run + 10)
            known[f"queues {run + 10}"] = _queues(client)
            _store(client, run + 10)
    return known


def _jobs(jobs: Any, run: int) -> None:
    for number in range(30):
        jobs.add(f"many-{run}", b"payload %d" % number, priority=number % 3, ttl=2_500_000)
    jobs.add(f"unique-{run}", b"once", unique=f"key-{run}", ttl=2_500_000)
    jobs.add(f"retried-{run}", b"fails", max_fails=3, backoff=1000, ttl=2_500_000)
    jobs.add(f"dead-{run}", b"fails for good", max_fails=1, ttl=2_500_000)
    jobs.add(f"released-{run}", b"given back", ttl=2_500_000)
    jobs.add(f"done-{run}", b"with a result", ttl=2_500_000)
    jobs.add(f"touched-{run}", b"takes long", ttl=2_500_000, ttr=50_000)
    deleted = jobs.add(f"deleted-{run}", b"goes", ttl=2_500_000)
    redriven = jobs.add(f"redriven-{run}", b"comes back", max_fails=1, ttl=2_500_000)
    for name, end in (("retried", "fail"), ("dead", "fail"), ("released", "release"), ("done", "complete")):
        (job,) = jobs.lease_many(f"{name}-{run}", most=1)
        getattr(jobs, end)(job.id, *([b"said so"] if end != "release" else []))
    (job,) = jobs.lease_many(f"redriven-{run}", most=1)
    jobs.fail(job.id, b"once")
    jobs.redrive(redriven)
    (job,) = jobs.lease_many(f"touched-{run}", most=1)
    jobs.touch(job.id, 80_000)
    for job in jobs.lease_many(f"many-{run}", most=5):
        jobs.complete(job.id)
    jobs.delete(deleted)
    jobs.pause(f"many-{run}")
    if run % 10:
        jobs.resume(f"many-{run}")


def _topics(client: Any, run: int) -> None:
    for number in range(60):
        client.xadd("orders", {"number": f"{run}-{number}", "item": b"\0\xffbytes" * 10})
    client.xadd("trimmed", {"n": run}, maxlen=2)
    with suppress(Exception):
        client.xgroup_create("orders", "workers", "0")
        client.xgroup_create("orders", "late", "$")
    got = client.xreadgroup("workers", f"ann-{run}", {"orders": ">"}, count=20)
    ids = [id for id, _ in got[0][1]]
    client.xack("orders", "workers", *ids[:10])
    client.xclaim("orders", "workers", "bob", 0, ids[10:13])
    client.xdel("orders", *ids[3:6], ids[8])
    client.xgroup_createconsumer("orders", "workers", f"idle-{run}")
    for number in range(5):
        client.xadd(f"topic/{run}:ü", {"n": number})
    client.xtrim(f"topic/{run}:ü", maxlen=3, approximate=False)
    client.xadd(f"gone-{run}", {"n": 1})
    client.delete(f"gone-{run}")
    client.xadd(f"before-{run}", {"n": 1})
    client.rename(f"before-{run}", f"behind-{run}")


def _queues(client: Any) -> list[list[str]]:
    found = []
    for number in range(4):
        rid, sid = client.execute_command("Q.NEW")
        for message in range(number * 2):
            client.execute_command("Q.SEND", sid, b"message %d" % message)
        if number > 1:
            id = client.execute_command("Q.GET", rid)[0]
            client.execute_command("Q.ACK", rid, id)
        found.append([rid.decode(), sid.decode()])
    return found


def _store(client: Any, run: int) -> None:
    for number in range(60):
        client.execute_command("S.WRITE", "1", "PUT", f"key-{number % 40}", f"value {run} {number} " * 3)
    client.execute_command("S.WRITE", "2", "PUT", f"run-{run}", "other storage")
    client.execute_command("S.WRITE", "1", "DEL", "key-7")
    if not run % 10:
        client.execute_command("S.ROTATE")
        client.execute_command("S.COMPACT")


# -- looking ---------------------------------------------------------------------------------------------------------


def seen(folder: Path, store: str, now_ns: int, known: dict[str, Any]) -> dict[str, Any]:
    """What is in a folder, by the engines of this version, when it is ``now_ns``. It is opened, so give a copy."""
    return {
        "jobs": _jobs_seen(folder, now_ns),
        "topics": _topics_seen(folder, now_ns),
        "queues": _queues_seen(folder, store, now_ns, known),
        "store": _store_seen(folder),
    }


def _jobs_seen(folder: Path, now_ns: int) -> dict[str, Any]:
    from lamina.engines.jobs.engine import JobEngine
    from lamina.engines.jobs.views import JobView
    from lamina.testing import ManualClock

    engine = JobEngine.open(str(folder / "jobs"), clock=ManualClock(now_ns), threaded=False)
    try:
        jobs = [JobView.of(job) for queue in engine.state.queues.values() for jobs in queue.lists for job in jobs]
        paused = sorted(name for name, queue in engine.state.queues.items() if queue.is_paused)
    finally:
        engine.close()
    found = {job.id: {name: _plain(getattr(job, name)) for name in job.__slots__ if name != "id"} for job in jobs}
    return {"jobs": dict(sorted(found.items())), "paused": paused}


def _topics_seen(folder: Path, now_ns: int) -> dict[str, Any]:
    from lamina.engines.topics import ids
    from lamina.engines.topics.topics import Topics
    from lamina.testing import ManualClock

    topics = Topics.open(str(folder / "topics"), clock=ManualClock(now_ns), threaded=False)
    found: dict[str, Any] = {}
    try:
        for name in sorted(topics.names()):
            topic = topics.get(name)
            assert topic is not None
            entries, _ = topic.read(ids.FIRST)
            state = topic.state
            facts = [state.last_id, state.added, state.length, state.max_deleted]
            groups = {
                group.name.decode(): {
                    "last": group.last_id,
                    "pending": [
                        [id, entry.consumer.name.decode(), entry.deliveries]
                        for id, entry in sorted(group.pending.items())
                    ],
                    "consumers": sorted(consumer.decode() for consumer in group.consumers),
                }
                for group in topic.groups.state.groups.values()
            }
            shown = [[ids.show(id).decode(), *map(_plain, fields)] for id, fields in entries]
            found[name.decode()] = {"facts": facts, "entries": shown, "groups": groups}
    finally:
        topics.close()
    return found


def _queues_seen(folder: Path, store: str, now_ns: int, known: dict[str, Any]) -> dict[str, Any]:
    import lamina
    from lamina.engines.queues.options import QueueOptions
    from lamina.testing import ManualClock

    found: dict[str, Any] = {}
    with lamina.open(folder, clock=ManualClock(now_ns), queues=QueueOptions(store=store)) as data:
        for run in known.values():
            for rid, _ in run:
                messages = []
                queue = data.queue(rid)
                while (message := queue.receive()) is not None:
                    messages.append(message.body.decode())
                    queue.ack(message)
                found[rid] = messages
    return found


def _store_seen(folder: Path) -> dict[str, Any]:
    from lamina.engines.store.api import Store

    with Store.open(str(folder / "store")) as store:
        found = {
            str(storage): {entry.key.decode(): _plain(entry.value) for entry in store.scan(storage)}
            for storage in (1, 2)
        }
        return {"entries": found, "last epoch": store.last_epoch}


def _plain(value: Any) -> Any:
    return value.decode("latin-1") if isinstance(value, bytes) else value


# -- both ------------------------------------------------------------------------------------------------------------


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for store in STORES:
        for end, signal_ in ENDS.items():
            name = f"{store}-{end}"
            folder = out / "data"
            known = write(folder, store, signal_)
            now_ns = time.time_ns()
            copy, expected = out / "copy", out / "expected.json"
            shutil.copytree(folder, copy)
            facts = {"store": store, "now_ns": now_ns, "known": known, "seen": seen(copy, store, now_ns, known)}
            expected.write_text(json.dumps(facts, sort_keys=True))
            with tarfile.open(out / f"{name}.tar.gz", "w:gz") as tar:
                tar.add(folder, arcname="data", filter=_of_nobody)
                tar.add(expected, arcname=expected.name, filter=_of_nobody)
            expected.unlink()
            shutil.rmtree(folder)
            shutil.rmtree(copy)


def _of_nobody(each: tarfile.TarInfo) -> tarfile.TarInfo:
    each.uid = each.gid = 0
    each.uname = each.gname = ""
    return each


if __name__ == "__main__":
    os.umask(0o077)
    main(Path(sys.argv[1]))
