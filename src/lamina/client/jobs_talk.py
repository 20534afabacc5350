"""All talks with a job server: what ``Jobs`` does inside a process, said over a connection.

After a break nobody knows whether a command was done. It is asked again, for ``retry_s``, where that does no harm: what
only looks, what is the same when done twice, and an ending, which the server refuses the second time. A ``fail`` is
repeated only while the job is seen to be in the same attempt, a ``release`` never: by then the job may be somebody
else's. A lease whose answer got lost is asked again, too: its jobs come back when their time to run has passed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from lamina.client import jobs_reading as read
from lamina.client.jobs_asking import Talk, canonical, words
from lamina.client.jobs_giving import Giving
from lamina.client.talking import Ask, Patience
from lamina.client.wire import just_count
from lamina.engines.jobs.api import DAY_S, Seconds, check_count, check_lease, check_name, check_payload, to_ms
from lamina.engines.jobs.job import PLACES
from lamina.engines.jobs.views import JobResult, JobView, QueueView
from lamina.errors import BadJob, Disconnected, DuplicateResult, JobNotFound, WireError

_PAGE: Final = 100  # the most that one inspect gives
_BATCH: Final = 1000  # the most that one redrive takes
_LONGEST_WAIT_S: Final = 600.0  # in one command; a longer wait is several


class JobsTalk(Giving):
    """The talks of one server."""

    # -- doing work ------------------------------------------------------------------------------------------------

    def lease(self, names: Sequence[str], most: int, wait: Seconds) -> Talk[list[read.NumberedJob]]:
        checked = check_lease(names, most)
        end = time.monotonic() + to_ms("wait", wait) / 1000
        while True:
            left = min(max(end - time.monotonic(), 0.0), _LONGEST_WAIT_S)
            line = words("lease", *checked, round(left * 1000), f"-max={most}", "-attempts=1")
            found: list[read.NumberedJob] | None = yield from self._ask(line, reader=read.numbered, wait_s=left)
            if found or time.monotonic() >= end:
                return found or []

    def complete(self, id: str, result: bytes) -> Talk[None]:
        line = words("complete", canonical(id), len(check_payload(result)))
        yield from self._ask(line, result, is_done=DuplicateResult)

    def bury(self, id: str, error: bytes) -> Talk[None]:
        line = words("bury", canonical(id), len(check_payload(error)))
        yield from self._ask(line, error, is_done=DuplicateResult)

    def fail(self, id: str, error: bytes, attempt: int | None = None) -> Talk[None]:
        """``attempt``: ours, if it is known. Raises: JobNotFound, DuplicateResult; Disconnected."""
        line = words("fail", canonical(id), len(check_payload(error)))
        patience = Patience(self._endpoint, time.monotonic)
        is_second = False
        while True:
            try:
                if not is_second or (yield from self._is_still_ours(id, attempt)):
                    yield from self._ask(line, error, may_repeat=False)
                return
            except (DuplicateResult, JobNotFound):
                if is_second:
                    return
                raise
            except Disconnected as problem:
                patience.pause_before_next(Ask((), may_repeat=True), problem)  # looking again has rests of its own
                is_second = is_second or bool(problem.facts.get("sent", True))

    def _is_still_ours(self, id: str, attempt: int | None) -> Talk[bool]:
        """False: the attempt is over. Raises: Disconnected if nobody can say."""
        view = yield from self.show(id)
        if view.state in ("completed", "failed"):
            return False
        if attempt is not None:
            return view.state == "leased" and view.attempts == attempt
        if view.state != "leased":
            hint = "look at the job: it is not being worked on, so it failed, or its time had passed"
            raise WireError(f"{self._endpoint}: whether the fail of job {id} was counted is not known", hint=hint)
        return True

    def release(self, id: str, delay: Seconds) -> Talk[None]:
        yield from self._ask(words("release", canonical(id), to_ms("delay", delay)), may_repeat=False)

    def touch(self, id: str, ttr: Seconds) -> Talk[None]:
        yield from self._ask(words("touch", canonical(id), to_ms("ttr", ttr, 1, DAY_S)))

    # -- looking after it ------------------------------------------------------------------------------------------

    def result(self, id: str, wait: Seconds) -> Talk[JobResult | None]:
        end = time.monotonic() + to_ms("wait", wait) / 1000
        while True:
            left = min(max(end - time.monotonic(), 0.0), _LONGEST_WAIT_S)
            line = words("result", canonical(id), round(left * 1000))
            found: JobResult | None = yield from self._ask(line, reader=read.result, wait_s=left)
            if found or time.monotonic() >= end:
                return found

    def delete(self, id: str) -> Talk[None]:
        yield from self._ask(words("delete", canonical(id)), is_done=JobNotFound)

    def redrive(self, id: str) -> Talk[None]:
        yield from self._ask(words("redrive", canonical(id)), is_done=BadJob)

    def redrive_queue(self, name: str, limit: int) -> Talk[int]:
        """Sent once: what a lost answer counted nobody knows."""
        check_name(name)
        total = 0
        while (asked := min(check_count("limit", limit) - total, _BATCH)) > 0:
            line = words("redrive", name, asked)
            done: int = yield from self._ask(line, reader=just_count, may_repeat=False)
            total += done
            if done < asked:
                break
        return total

    def pause(self, name: str) -> Talk[None]:
        yield from self._ask(words("pause", check_name(name)))

    def resume(self, name: str) -> Talk[None]:
        yield from self._ask(words("resume", check_name(name)))

    def show(self, id: str) -> Talk[JobView]:
        found: list[JobView] = yield from self._ask(words("inspect view", canonical(id)), reader=read.job_views)
        return found[0]

    def listed(self, name: str, state: str, offset: int, limit: int) -> Talk[list[JobView]]:
        """Page by page: what comes or goes meanwhile may be missed or seen twice."""
        if state not in PLACES:
            raise BadJob(f"{state!r} is no state of a job", hint=f"one of {', '.join(PLACES)}")
        at, end = check_count("offset", offset), offset + check_count("limit", limit)
        found: list[JobView] = []
        while True:
            asked = min(end - at, _PAGE)
            line = words("inspect views", check_name(name), state, at, max(asked, 1))
            page: list[JobView] = yield from self._ask(line, reader=read.job_views)
            found += page[:asked]
            at += len(page)
            if not page or at >= end:  # fewer than asked for may be all that fits into one answer
                return found

    def queues(self) -> Talk[list[QueueView]]:
        found: list[QueueView] = []
        while True:
            line = words("inspect queue-views", len(found), _PAGE)
            page: list[QueueView] = yield from self._ask(line, reader=read.queue_views)
            if not page:
                return found
            found += page
