"""Numbers over HTTP that no schema bounds, and what is at the end of its numbers: taken or refused, and what goes out
can be held in 64 bits."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from http_lab import HttpLab

MOST = (1 << 63) - 1
LAST = f"{(1 << 64) - 1}-{(1 << 64) - 1}"
NUMBERS = [
    sign * (edge + near) for edge in (0, 1 << 62, 1 << 63, 1 << 64, 10**30) for near in (-1, 0, 1) for sign in (1, -1)
]
JOB = "01234567-89ab-4def-8123-456789abcdef"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpLab]:
    with HttpLab(tmp_path_factory.mktemp("numbers")) as lab:
        yield lab


def check(answered: tuple[int, Any], asked: object) -> None:
    status, answer = answered
    assert status < 500, (asked, answer)
    if status == 200:
        assert all(-MOST - 1 <= each <= MOST for each in integers(answer)), (asked, answer)


def integers(answer: Any) -> Iterator[int]:
    if isinstance(answer, dict):
        answer = list(answer.values())
    if isinstance(answer, list):
        for each in answer:
            yield from integers(each)
    elif isinstance(answer, int):
        yield answer


def test_numbers_that_no_schema_bounds_are_taken_or_refused(lab: HttpLab) -> None:
    lab.redis("XADD", "t", "1-1", "f", "v")
    lab.redis("S.WRITE", "1", "PUT", "k", "v")
    for number in NUMBERS:
        for path in ("/store/scan", "/store/key"):
            check(lab.get_json(path, storage=number, key="k"), (path, number))
        check(lab.get_json("/audit", before_ns=number), number)
        for when in (str(number), f"{number}ns", f"{number}ms", f"-{number}s", f"{number}-{number}"):
            check(lab.get_json("/topics/entries", name="t", since=when, until=when), when)
            check(lab.get_json("/store/scan", storage=1, as_of=when), when)
        for path, body in (
            ("/store/put", {"storage": number, "key": "k", "value": "v"}),
            ("/store/remove", {"storage": number, "key": "k"}),
            ("/store/clean", {"keep_epoch": number}),
            ("/topics/trim", {"name": "t", "keep": number}),
            ("/topics/trim", {"name": "t", "before": f"{number}-{number}"}),
            ("/topics/publish", {"name": "t", "body": "x", "id": f"{number}-{number}"}),
            ("/topics/groups/create", {"name": "t", "group": f"g{number}", "at": f"{number}-{number}"}),
            ("/jobs/queues/q/add", {"payload": "x", "priority": number, "ttl_s": number}),
        ):
            for dry_run in (True, False):
                check(lab.post_json(path, {**body, "dry_run": dry_run}), (path, body))
    assert lab.get_json("/topics/one", name="t")[0] == lab.get_json("/store/key", storage=1, key="k")[0] == 200


def test_a_topic_at_the_end_of_its_ids_is_shown(lab: HttpLab) -> None:
    lab.redis("XADD", "end", "1-1", "f", "v")
    lab.redis("XADD", "end", LAST, "f", "v")
    lab.redis("XSETID", "end", LAST, "ENTRIESADDED", str(1 << 62))
    for group in ("behind", "pending"):
        lab.redis("XGROUP", "CREATE", "end", group, LAST if group == "behind" else "0", "ENTRIESREAD", str(1 << 62))
    lab.redis("XREADGROUP", "GROUP", "pending", "c", "STREAMS", "end", ">")
    lab.redis("XCLAIM", "end", "pending", "c", "0", LAST, "RETRYCOUNT", str(1 << 62))
    for path, more in (
        ("/topics", {}),
        ("/topics/one", {"name": "end"}),
        ("/topics/why", {"name": "end"}),
        ("/topics/entries", {"name": "end"}),
        ("/topics/entry", {"name": "end", "id": LAST}),
        ("/topics/groups", {"name": "end"}),
        ("/topics/group", {"name": "end", "group": "behind"}),
        ("/topics/pending", {"name": "end", "group": "pending"}),
        ("/overview", {}),
    ):
        answered = lab.get_json(path, **more)
        assert answered[0] == 200, (path, answered)
        check(answered, path)
    for to in ("start", "end", LAST, "0-0"):
        check(lab.post_json("/topics/groups/reset", {"name": "end", "group": "behind", "to": to, "dry_run": True}), to)
    assert lab.redis("XINFO", "GROUPS", "end")
    assert lab.request("GET", "/metrics").status == 200


def test_a_job_for_the_end_of_time_is_shown(lab: HttpLab) -> None:
    with lab.remote() as lm:
        lm.jobs.add("late", b"x", id=JOB, at=datetime.max.replace(tzinfo=UTC))
        assert lm.jobs.show(JOB).scheduled_ns == MOST
    for path in (f"/jobs/one/{JOB}", f"/jobs/one/{JOB}/timeline", "/jobs/queues/late", "/jobs/queues", "/overview"):
        answered = lab.get_json(path)
        assert answered[0] == 200, answered
        check(answered, path)
    for state in ("ready", "scheduled"):
        check(lab.get_json("/jobs/queues/late/jobs", state=state), state)


def test_all_of_it_closes_and_opens_again(tmp_path: Path) -> None:
    with HttpLab(tmp_path) as lab:
        lab.redis("XADD", "end", LAST, "f", "v")
        with lab.remote() as lm:
            lm.jobs.add("late", b"x", at=datetime.max.replace(tzinfo=UTC))
        lab.restart()
        assert lab.redis("XLEN", "end") == 1
        assert lab.get_json("/jobs/queues/late")[0] == 200
