"""What an audit has looked at, and what is wrong with it: the same values whoever found them, so that they add up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Final

SHOWN: Final = 20
"""Violations of one check that are told one by one; the rest is counted."""

FRAMES: Final = "frames"
ORDER: Final = "order"
WATERMARKS: Final = "watermarks"
MEANING: Final = "meaning"
JOB_ADDED: Final = "job-added"
JOB_ONCE: Final = "job-once"
JOB_ENDED: Final = "job-ended-once"
JOB_ATTEMPTS: Final = "job-attempts"
TOPIC_IDS: Final = "topic-ids"
TOPIC_REMOVALS: Final = "topic-removals"
GROUP_ACKS: Final = "group-acks"
GROUP_STORY: Final = "group-story"
QUEUE_HEADS: Final = "queue-heads"
QUEUE_ONCE: Final = "queue-once"
QUEUE_STORY: Final = "queue-story"
QUEUE_DUMPS: Final = "queue-dumps"
STORE: Final = "store"
EXPORT_ROWS: Final = "export-rows"
EXPORT_FILES: Final = "export-files"

WHAT: Final = {
    FRAMES: "every record reads back whole, with its checksum",
    ORDER: "times rise from record to record of a log",
    WATERMARKS: "no mark vouches for more than is there",
    MEANING: "every record is one that its engine knows",
    JOB_ADDED: "what happens to a job happens after it was added",
    JOB_ONCE: "no id is added twice while its job lives",
    JOB_ENDED: "a job that was completed or failed has no other end, unless it was driven again",
    JOB_ATTEMPTS: "an attempt is begun before it ends, and ends before the next is begun",
    TOPIC_IDS: "ids of a topic rise, and none is there twice",
    TOPIC_REMOVALS: "what is deleted or trimmed was there",
    GROUP_ACKS: "what is acknowledged was delivered to its group, and once",
    GROUP_STORY: "records are of groups that are there, and snapshots are whole",
    QUEUE_HEADS: "what is acknowledged, or expires, was sent and is the head of its queue",
    QUEUE_ONCE: "no message is twice in its queue",
    QUEUE_STORY: "records are of queues that are there, and no log is missing",
    QUEUE_DUMPS: "a dump holds what its last record says",
    STORE: "epochs rise, sessions are whole, sorted files are as their catalog says",
    EXPORT_ROWS: "the rows of the export are those of the log",
    EXPORT_FILES: "the files of the export hold what its manifest says",
}


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must not be."""

    log: str
    file: str
    position: int
    """The byte of the file at which the record begins; of an export, 0."""
    time_ns: int | None
    """Of the record; None: it has none."""
    reason: str


@dataclass(slots=True)
class Check:
    """One promise, over all logs."""

    name: str
    what: str
    rows: int = 0
    """Records that it was held against."""
    count: int = 0
    """Violations in all."""
    violations: list[Violation] = field(default_factory=list)
    """The first of them."""
    notes: list[str] = field(default_factory=list)
    """What is no violation and should be known."""

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


class Findings:
    """Of one log. Goes from task to driver."""

    def __init__(self, log: str) -> None:
        self.log = log
        self.checks: dict[str, Check] = {}

    def check(self, name: str) -> Check:
        known = self.checks.get(name)
        if known is None:
            known = self.checks[name] = Check(name, WHAT[name])
        return known

    def looked(self, name: str, rows: int) -> None:
        self.check(name).rows += rows

    def violated(self, name: str, file: str, position: int, time_ns: int | None, reason: str) -> None:
        check = self.check(name)
        check.count += 1
        if len(check.violations) < SHOWN:
            check.violations.append(Violation(self.log, file, position, time_ns, reason))

    def note(self, name: str, text: str) -> None:
        notes = self.check(name).notes
        if len(notes) < SHOWN:
            notes.append(f"{self.log}: {text}")


def together(found: Iterable[Findings]) -> list[Check]:
    """All checks that were made, in the order of ``WHAT``, each over all logs."""
    checks = {name: Check(name, what) for name, what in WHAT.items()}
    made = set()
    for one in found:
        for name, check in one.checks.items():
            made.add(name)
            whole = checks[name]
            whole.rows += check.rows
            whole.count += check.count
            whole.violations += check.violations[: SHOWN - len(whole.violations)]
            whole.notes += check.notes[: SHOWN - len(whole.notes)]
    return [check for name, check in checks.items() if name in made]
