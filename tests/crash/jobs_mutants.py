"""Planted mistakes of the jobs engine: small and plausible, each of which the tests must catch.

As in mutants.py, a mutant whose text is no longer there must be brought up to date: that is an error, not a pass.
"""

from __future__ import annotations

from crash.mutants import Mutant

_CUTS = "tests/crash/test_jobs_power_loss.py::test_no_power_cut_breaks_a_promise"
CUTS = (f"{_CUTS}_of", _CUTS)
SEEDS = (f"{_CUTS}[interval-1]", f"{_CUTS}[always-0]", *CUTS)
KILLS = ("tests/crash/test_jobs_kill.py::test_a_killed_server_has_done_everything_it_answered",)


def _first(script: str) -> tuple[str, ...]:
    """The story that shows it at once, and then all of them."""
    return (f"{_CUTS}_of[{script}-os]", *CUTS)


REDRIVEN, PAUSED = _first("redriven_jobs_go_on"), _first("paused_queues_stay_paused")
CHANGED, CLEANED = _first("checkpoints_while_jobs_change"), _first("cleaned_while_jobs_change")
FOUND = _first("found_segments_are_only_looked_at")
LEFT, COMPLETED = _first("old_segments_are_left_alone"), _first("completed_jobs_stay_completed")

TOUCHED = _first("touches_are_superseded")
RENEWED = (f"{_CUTS}_while_notes_of_before_are_written_anew", *CUTS)

ENGINE, CORE, CODEC = "engines/jobs/engine.py", "engines/jobs/core.py", "engines/jobs/codec.py"
CLEANER, UPKEEP, CHECKPOINT = "engines/jobs/cleaner.py", "engines/jobs/upkeep.py", "engines/jobs/checkpoint.py"
ANSWERS = "server/workq/answers.py"

MUTANTS = [
    # -- the engine and its log ----------------------------------------------------------------------------------
    Mutant(
        "answered before it is written",
        "engines/logged.py",
        "                self.log.wait(Position(position))\n",
        "                pass\n",
        CUTS,
    ),
    Mutant(
        "closed with records pending",
        "engines/logged.py",
        "            teardown.step(self.all_written)\n",
        "",
        SEEDS,
    ),
    Mutant(
        "an expired job leaves no record",
        ENGINE,
        "self._log(job, codec.EXPIRE)",
        "pass",
        COMPLETED,
    ),
    Mutant(
        "a lease is not logged",
        ENGINE,
        "self._log(job, codec.START)",
        "self.log.next_position",
        CHANGED,
    ),
    Mutant(
        "the end of a lease is not logged",
        ENGINE,
        "position = self._log(job, codec.TIMEOUT)",
        "position = self.log.next_position",
        SEEDS,
    ),
    Mutant(
        "a retry is logged as a failure for good",
        ENGINE,
        "self._note(job, codec.RETRY, delay, result)",
        "self._log(job, codec.FAIL, result)",
        CHANGED,
    ),
    Mutant(
        "a longer lease is not logged",
        ENGINE,
        "self._note(job, codec.TOUCH, ttr)",
        "self.log.next_position",
        REDRIVEN,
    ),
    Mutant(
        "a job given back is logged without its delay",
        ENGINE,
        "self._note(job, codec.RELEASE, delay)",
        "self._note(job, codec.RELEASE)",
        REDRIVEN,
    ),
    Mutant(
        "a resumed queue is logged as paused",
        ENGINE,
        "            kind = codec.PAUSE if pauses else codec.RESUME\n",
        "            kind = codec.PAUSE\n",
        PAUSED,
    ),
    Mutant(
        "a delete is not logged",
        ENGINE,
        "self._log(job, codec.DELETE)",
        "self.log.next_position",
        SEEDS,
    ),
    # -- replay --------------------------------------------------------------------------------------------------
    Mutant(
        "replay takes again what the checkpoint has",
        CORE,
        "        if job is None or (self.resumes_after and position <= job.changed):\n            return\n"
        "        if kind == 5",
        "        if job is None:\n            return\n        if kind == 5",
        CHANGED,
    ),
    Mutant(
        "replay takes notes again that the checkpoint has",
        CORE,
        "        elif job is None or (self.resumes_after and position <= job.changed):\n",
        "        elif job is None:\n",
        CHANGED,
    ),
    Mutant(
        "traits are given to whoever comes next",
        CORE,
        "        if self._traits[0] == position:\n",
        "        if self._traits[0]:\n",
        SEEDS,
    ),
    Mutant(
        "replay starts one record late",
        CORE,
        "            if times[number] > after:",
        "            if times[number] > after + 2:",
        REDRIVEN,
    ),
    Mutant(
        "replay passes over what is behind the checkpoint",
        CHECKPOINT,
        " replay(state, reader, position)",
        " 0 if position else replay(state, reader, position)",
        CUTS,
    ),
    # -- checkpoints ---------------------------------------------------------------------------------------------
    Mutant(
        "a checkpoint shows what the log has not synced",
        UPKEEP,
        "            log.wait(engine.all_written(), Level.SYNCED)\n",
        "            engine.all_written()\n",
        COMPLETED,
    ),
    Mutant(
        "a checkpoint shows what the log was not given",
        UPKEEP,
        "            log.wait(engine.all_written(), Level.SYNCED)\n",
        "            log.wait(log.written, Level.SYNCED)\n",
        SEEDS,
    ),
    Mutant("a checkpoint forgets failures", CHECKPOINT, "        job.fails,\n", "        0,\n", COMPLETED),
    Mutant(
        "a checkpoint takes jobs for older than they are",
        CHECKPOINT,
        "        job.changed,\n",
        "        job.added,\n",
        CHANGED,
    ),
    Mutant(
        "a checkpoint forgets unique keys",
        CORE,
        "        if job.unique and not job.is_processed:\n",
        "        if False:\n",
        REDRIVEN,
    ),
    Mutant("a checkpoint forgets leases", CHECKPOINT, "        job.lease_until,\n", "        0,\n", CUTS),
    Mutant(
        "a checkpoint forgets paused queues",
        CHECKPOINT,
        "for queue in state.queues.values() if queue.is_paused]",
        "for queue in state.queues.values() if False]",
        PAUSED,
    ),
    Mutant(
        "a checkpoint keeps what is in the foreground",
        CHECKPOINT,
        "if job is not None and not job.is_foreground]",
        "if job is not None]",
        SEEDS,
    ),
    Mutant(
        "a checkpoint says it covers what came while it was made",
        CHECKPOINT,
        "    end = _END + _NUMBER.pack(count + len(paused))\n",
        "    late = max((job.changed for job in state.jobs.values()), default=position)\n"
        "    paused.append(_START + _NUMBER.pack(max(late, position)))\n"
        "    end = _END + _NUMBER.pack(count + len(paused) - 1)\n",
        CHANGED,
    ),
    # -- cleaning ------------------------------------------------------------------------------------------------
    Mutant(
        "ends are dropped before beginnings",
        CLEANER,
        "        for name in sealed:\n            if should_stop",
        "        for name in reversed(sealed):\n            if should_stop",
        LEFT,
    ),
    Mutant(
        "ends are dropped though the beginning stays",
        CLEANER,
        "    return payload[1:17] in pinned.ids\n",
        "    return False\n",
        LEFT,
    ),
    Mutant(
        "cleaned by what is not synced",
        CLEANER,
        "        log.wait(self._engine.all_written(), Level.SYNCED)\n",
        "        self._engine.all_written()\n",
        CLEANED,
    ),
    Mutant(
        "cleaned by what the log was not given",
        CLEANER,
        "        log.wait(self._engine.all_written(), Level.SYNCED)\n",
        "        log.wait(log.written, Level.SYNCED)\n",
        CLEANED,
    ),
    Mutant(
        "cleaned without a checkpoint",
        CLEANER,
        "        if due:\n            self._checkpoint()\n",
        "",
        REDRIVEN,
    ),
    Mutant(
        "a pause is dropped while it holds",
        CLEANER,
        "            return (queue is not None and queue.is_paused) or text in pinned.pauses\n",
        "            return text in pinned.pauses\n",
        PAUSED,
    ),
    Mutant(
        "a resume is dropped though the pause stays",
        CLEANER,
        "            return (queue is not None and queue.is_paused) or text in pinned.pauses\n",
        "            return queue is not None and queue.is_paused\n",
        PAUSED,
    ),
    Mutant(
        "notes are taken for records of no job",
        CLEANER,
        "    if codec.is_note(payload):\n        kind, id, _, _ = codec.decode_note(payload)\n        job",
        "    if False:\n        kind, id, _, _ = codec.decode_note(payload)\n        job",
        REDRIVEN,
    ),
    Mutant(
        "a finished job is taken for gone",
        CLEANER,
        "    return job if job is not None and time_ns > job.added else None\n",
        "    return job if job is not None and time_ns > job.added and not job.is_processed else None\n",
        LEFT,
    ),
    Mutant(
        "traits are dropped before their job",
        CLEANER,
        "            return job if time_ns == job.added - 1 else None  # they stand",
        "            return job if time_ns > job.added else None  # they stand",
        REDRIVEN,
    ),
    Mutant("the active segment is cleaned too", CLEANER, "log.reader.segments()[:-1]", "log.reader.segments()", CUTS),
    Mutant(
        "segments that are passed over hold on to nothing",
        CLEANER,
        "                    self._pin(name, pinned)\n",
        "                    pass\n",
        LEFT,
    ),
    Mutant(
        "segments that are only looked at hold on to nothing",
        CLEANER,
        "            if job is None:\n                _pin_record(payload, pinned)\n",
        "            if job is None:\n                pass\n",
        FOUND,
    ),
    Mutant(
        "the newest touch is dropped",
        CLEANER,
        "    return time_ns < job.changed and _is_touch(payload)\n",
        "    return time_ns <= job.changed and _is_touch(payload)\n",
        TOUCHED,
    ),
    Mutant(
        "whatever was before the newest record is taken for superseded",
        CLEANER,
        "    return time_ns < job.changed and _is_touch(payload)\n",
        "    return time_ns < job.changed and codec.is_note(payload)\n",
        REDRIVEN,
    ),
    Mutant(
        "the fence is dropped",
        CLEANER,
        "        return kind == codec.FENCE or id in pinned.ids\n",
        "        return id in pinned.ids\n",
        TOUCHED,
    ),
    Mutant(
        "notes of before are written anew without a fence",
        CLEANER,
        "            if lives.has_old_notes:\n                engine.fence()\n",
        "",
        RENEWED,
    ),
    Mutant(
        "a note is written without a fence",
        ENGINE,
        "            self._append(codec.FENCE_RECORD)\n",
        "",
        TOUCHED,
    ),
    Mutant(
        "a note that is written anew gets the kind of another",
        CODEC,
        "    return encode_note(*decode_note(payload)) if payload",
        "    return encode_note(TOUCH, *decode_note(payload)[1:]) if payload",
        RENEWED,
    ),
    # -- the server ----------------------------------------------------------------------------------------------
    Mutant(
        "the server answers before it writes",
        ANSWERS,
        "        if log is not None and log.position > (log.synced if self._waits_for_sync else log.written):\n",
        "        if False:\n",
        KILLS,
    ),
]
