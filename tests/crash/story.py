"""A life of a log against a disk that remembers, and the promises every disk after a power cut must keep."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from lamina.log import formats, rewrite
from lamina.log.files import Files
from lamina.log.naming import NUMBERED, TIMED, Family, sort_out
from lamina.log.options import LogOptions
from lamina.log.reader import Reader
from lamina.log.sync import ALWAYS, OS, Level, Sync, interval
from lamina.log.writer import Log
from lamina.testing import ManualClock, PowerLoss, PowerLossState

POLICIES: dict[str, Sync] = {"always": ALWAYS, "interval": interval(1000), "os": OS}
FOLDER = "data"


@dataclass(frozen=True)
class Acked:
    """The caller was told that everything up to ``position`` has reached ``level``."""

    position: int
    level: Level


@dataclass(frozen=True)
class Dropped:
    """A rewrite was asked to leave these records out; from here on they may be there or not."""

    times: frozenset[int]


@dataclass
class Story:
    """What was appended, in order, and the disk it was appended to."""

    disk: PowerLoss
    clock: ManualClock
    policy: Sync
    family: Family
    format: formats.Format
    appended: list[tuple[int, bytes]] = field(default_factory=list)

    def open(self, files: Files | None = None) -> Log:
        return Log.open(
            FOLDER,
            files=files or self.disk,
            clock=self.clock,
            family=self.family,
            format=self.format,
            options=LogOptions(sync=self.policy, segment_bytes=1500, gather_bytes=1 << 30),
            threaded=False,
        )

    def append(self, log: Log, payloads: list[bytes]) -> int:
        last = log.append_many(payloads)
        first = last - len(payloads) + 1
        self.appended += [(first + number, payload) for number, payload in enumerate(payloads)]
        return last

    def note_progress(self, log: Log) -> None:
        """Whatever the log says of itself is a promise too."""
        self.disk.note(Acked(log.written, Level.WRITTEN))
        self.disk.note(Acked(log.synced, Level.SYNCED))


def tell(policy: str, seed: int, *, steps: int = 24, model: str = "strict") -> Story:
    """Append, gather, wait, rotate, rewrite, close and reopen, as ``seed`` says."""
    rng = random.Random(f"{policy}/{seed}")
    family, format = ((NUMBERED, formats.JOBS), (TIMED, formats.TOPIC), (NUMBERED, formats.PLAIN))[seed % 3]
    story = Story(PowerLoss(model=model), ManualClock(), POLICIES[policy], family, format)
    log = story.open()
    for _ in range(steps):
        story.clock.advance(rng.choice([0, 0.0001, 0.3]))
        act = rng.random()
        if act < 0.5:
            position = story.append(log, [_payload(rng) for _ in range(rng.choice([1, 1, 1, 2, 5]))])
            if rng.random() < 0.8:
                log.wait(position)
                story.note_progress(log)
        elif act < 0.62:  # group commit: several calls, one round, somebody waits for more than the policy
            for _ in range(rng.randint(2, 6)):
                position = story.append(log, [_payload(rng)])
            log.wait(position, rng.choice([Level.WRITTEN, Level.SYNCED]))
            story.note_progress(log)
        elif act < 0.75:
            log.run_round()
            story.note_progress(log)
        elif act < 0.82:
            log.rotate()
            story.note_progress(log)
        elif act < 0.88:
            _rewrite_one(story, rng)
        elif act < 0.94:  # the process is killed and started again: what it serves then is promised
            story.disk.drop_locks()
            log = story.open()
            served = [record.time_ns for record in log.reader.read()]
            story.appended = [pair for pair in story.appended if pair[0] <= max(served, default=0)]
            story.disk.note(Acked(max(served, default=0), Level.SYNCED))
        else:
            log.close()
            story.disk.note(Acked(log.synced, Level.SYNCED))
            if rng.random() < 0.3:
                story.clock.jump(-3600)
            log = story.open()
            story.note_progress(log)
    log.run_round()
    story.note_progress(log)
    if seed % 2:
        log.close()
        story.disk.note(Acked(log.synced, Level.SYNCED))
    return story


def _payload(rng: random.Random) -> bytes:
    # Type 5 is a command of workq, 0x92 0x01 a topic entry: none of the two has the form of a mark.
    return b"\x05" + rng.randbytes(rng.choice([0, 3, 40, 40, 200, 700]))


def _rewrite_one(story: Story, rng: random.Random) -> None:
    """Drop some records of a sealed file, as cleaning does; now and then all of them."""
    segments = sort_out(story.disk.list(FOLDER)).of_family(story.family)
    if len(segments) < 2:
        return
    share = rng.choice([0.3, 0.3, 1.0])
    name = rng.choice(segments[:-1])
    inside = [
        record.time_ns
        for record in Reader(FOLDER, family=story.family, files=story.disk).read()
        if record.file == name.name
    ]
    dropped = frozenset(time_ns for time_ns in inside if rng.random() < share)
    story.disk.note(Dropped(dropped))
    rewrite.drop_records(story.disk, FOLDER, name, story.family, lambda time_ns, payload: time_ns not in dropped)


def check(story: Story, state: PowerLossState, *, deep: bool = False) -> None:
    """Open a disk after a cut and hold it against the promises. Raises AssertionError naming the broken one."""
    synced = max((note.position for note in state.notes if _is(note, Level.SYNCED)), default=0)
    written = max((note.position for note in state.notes if _is(note, Level.WRITTEN)), default=0)
    promised = max(synced, written) if state.is_kill else synced
    dropped = set().union(*(note.times for note in state.notes if isinstance(note, Dropped)))
    files = PowerLoss(state.files.contents()) if deep else state.files

    log = story.open(files)
    found = [(record.time_ns, record.payload) for record in log.reader.read()]
    _check_records(story, found, promised, dropped)

    # What was found once stays, and what is appended now joins it.
    log.append(b"\x05after the cut", until=Level.SYNCED)
    log.close()
    again = story.open(files)
    assert again.report.was_clean, "an orderly stop was not recognised"
    after = [(record.time_ns, record.payload) for record in again.reader.read()]
    assert after[:-1] == found, "records changed from one open to the next"
    assert after[-1][1] == b"\x05after the cut", "a record appended after recovery is gone"
    again.close()

    if deep:
        assert isinstance(files, PowerLoss)
        _check_cut_inside_recovery(story, files, found, promised, dropped)


def _is(note: object, level: Level) -> bool:
    return isinstance(note, Acked) and note.level is level


def _check_records(story: Story, found: list[tuple[int, bytes]], promised: int, dropped: set[int]) -> None:
    times = [time_ns for time_ns, _ in found]
    assert times == sorted(set(times)), "a record is there twice, or out of order"
    appended = dict(story.appended)
    for time_ns, payload in found:
        assert appended.get(time_ns) == payload, "a record that was never appended, or was altered"
    end = max(times, default=0)
    assert end >= promised or not any(t <= promised for t in appended if t not in dropped and t > end), (
        "an acknowledged record is lost"
    )
    missing = {t for t in appended if t <= max(end, promised)} - set(times) - dropped
    assert not missing, "a record is missing before the end: a hole, or an acknowledged record is lost"


def _check_cut_inside_recovery(
    story: Story, files: PowerLoss, found: list[tuple[int, bytes]], promised: int, dropped: set[int]
) -> None:
    """The power goes again while the first recovery is at work, or right after what it served was read."""
    for second in files.states(per_point=6):
        log = story.open(second.files)
        refound = [(record.time_ns, record.payload) for record in log.reader.read()]
        extra = [pair for pair in refound if pair[1] == b"\x05after the cut"]
        _check_records(story, [pair for pair in refound if pair not in extra], promised, dropped)
        log.close()
