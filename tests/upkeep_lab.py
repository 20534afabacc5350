"""Histories of jobs and queues for the upkeep jobs of the pipeline, and what the engines make of them by themselves."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

from lamina.clock import ManualClock
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.upkeep import Upkeep
from lamina.engines.queues import folding
from lamina.errors import LaminaError
from lamina.log import LogOptions
from lamina.log.formats import QUEUE_STORE
from lamina.testing import MemoryFiles
from queues_store_lab import FOLDER, NOW, START_NS, TTL, file_of, id_of, random_records

START = 1_700_000_000 * 10**9
LATER = START + 3600 * 10**9


def contents(data: Path) -> dict[str, bytes]:
    """All files, but for locks, which name a process."""
    found = {str(path.relative_to(data)): path.read_bytes() for path in data.rglob("*") if path.is_file()}
    return {name: held for name, held in found.items() if not name.endswith(".lock")}


# -- jobs ------------------------------------------------------------------------------------------------------------


def some_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def jobs_folder(data: Path, seed: int = 1, steps: int = 300) -> Path:
    """A folder with a random history in many small segments."""
    draw, clock = random.Random(seed), ManualClock(START)
    folder = data / "jobs"
    engine = JobEngine.open(str(folder), options=LogOptions(segment_bytes=1500), clock=clock, threaded=False)
    added = 0
    for _ in range(steps):
        clock.advance(draw.choice((0.001, 0.5, 3)))
        engine.tick()
        known = list(engine.state.jobs)
        choice, queue = draw.random(), draw.choice("abc")
        if choice < 0.45 or not known:
            added += 1
            unique = f"k{added}" if draw.random() < 0.2 else ""
            ttl = draw.choice((1000, 60_000, 86_400_000))
            engine.add(some_id(added), queue, 5000, ttl, b"payload", max_fails=draw.choice((0, 3)), unique=unique)
        elif choice < 0.6:
            engine.lease(["a", "b", "c"], 2)
            for job in list(engine.state.jobs.values()):
                if job.lease_until and draw.random() < 0.5:
                    engine.touch(job.id, 5000)
        elif choice < 0.8:
            job = engine.state.jobs[draw.choice(known)]
            if not job.is_processed:
                engine.complete(job.id, b"done") if draw.random() < 0.6 else engine.fail(job.id, b"not done")
        elif choice < 0.95:
            engine.delete(draw.choice(known))
        else:
            engine.pause(queue, pauses=draw.random() < 0.6)
        engine.push()
    engine.close()
    return data


def sealed(data: Path) -> dict[str, bytes]:
    """Without the active segment, which has marks of every opening."""
    found = {name: held for name, held in contents(data).items() if name.endswith(".log")}
    return {name: held for name, held in found.items() if name != max(found)}


def cleaned_by_the_engine(data: Path, now: int) -> None:
    engine = JobEngine.open(str(data / "jobs"), clock=ManualClock(now), threaded=False)
    Upkeep(engine).clean(everything=True)
    engine.close()


# -- queues ----------------------------------------------------------------------------------------------------------

LOG, DUMP = "smp-server-store-{}.log", "smp-server-store-{}.dump"
PIECE, BUCKET = 700, 2000  # so that there are many of both


def history(draw: random.Random, count: int = 60, times: int = 5) -> list[bytes]:
    """Records of many queues."""
    stories = [[_renamed(record, which) for record in random_records(draw, count)] for which in range(times)]
    found = []
    while stories:
        story = draw.choice(stories)
        found.append(story.pop(0))
        stories = [story for story in stories if story]
    return found


def _renamed(record: bytes, which: int) -> bytes:
    for name in "abcd":
        record = record.replace(id_of(name), id_of(f"{name}{which}"))
    return record


def store(draw: random.Random) -> dict[str, bytes]:
    """Files as dumps and crashes leave them: a dump, some logs, some with a torn tail."""
    records = history(draw)
    cuts = sorted(draw.sample(range(len(records)), draw.randint(1, 4)))
    edges = [0, *cuts, len(records)]
    files = MemoryFiles()
    files.make_folder(FOLDER)
    first_kept = draw.choice([0, 0, 1])  # of the logs; the dump has what was before
    for number, (start, end) in enumerate(pairwise(edges)):
        marks = [QUEUE_STORE.watermark(START_NS + start - 1)] if start and draw.random() < 0.5 else []
        data = file_of(*marks, *records[start:end], first_ns=START_NS + start)
        if draw.random() < 0.3:
            data += draw.choice([b"\x01", b"\x01\0\0\0\x0e" + draw.randbytes(9), bytes(600)])
        files.write(f"{FOLDER}/{LOG.format(number)}", data)
    if first_kept or draw.random() < 0.5:
        folding.fold(files, FOLDER, 0, now=0, ttl=0)
        files.remove(f"{FOLDER}/{LOG.format(0)}")
    return {path.removeprefix(f"{FOLDER}/"): data for path, data in files.contents().items()}


def some_store() -> dict[str, bytes]:
    """A dump and two logs."""
    records = history(random.Random(7))
    files = MemoryFiles({f"{FOLDER}/{LOG.format(0)}": file_of(*records[:100])})
    folding.fold(files, FOLDER, 0, now=0, ttl=0)
    return {
        DUMP.format(0): files.contents()[f"{FOLDER}/{DUMP.format(0)}"],
        LOG.format(1): file_of(*records[100:200], first_ns=START_NS + 100),
        LOG.format(2): file_of(*records[200:], first_ns=START_NS + 200),
    }


Outcome = tuple[str, object]


def folded_by_the_engine(
    found: dict[str, bytes], number: int, *, keeps_messages: bool = True, force: bool = False
) -> Outcome:
    files = MemoryFiles({f"{FOLDER}/{name}": data for name, data in found.items()})
    try:
        report = folding.fold(
            files, FOLDER, number, now=NOW, ttl=TTL, keeps_messages=keeps_messages, force=force, clock=ManualClock()
        )
    except LaminaError as error:
        return type(error).__name__, (error.message, error.facts)
    return "", (report, files.contents()[f"{FOLDER}/{DUMP.format(number)}"])
