"""Promise 1 for jobs: no acknowledged change is lost beyond the policy, no deleted or completed job comes back.

Stories (jobs_story.py) are told against a disk that remembers, by seed and by hand; then disks that a power cut at any
point could have left are opened and held against the promises, with their checkpoint and without it. Some are cut a
second time, inside their recovery. ``LAMINA_DISKS=20000`` looks at so many for each policy, ``LAMINA_CAMPAIGN=10`` at
ten times as many.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable

import pytest

from crash.jobs_story import (
    IDS,
    POLICIES,
    QUEUES,
    Disk,
    Story,
    as_it_was,
    check,
    digest,
    records,
    some_states,
    tell,
)
from lamina.engines.jobs import codec
from lamina.engines.jobs.core import State
from lamina.engines.jobs.job import AT_LEASED, AT_READY
from lamina.log.reader import Reader
from lamina.testing import ManualClock

PARTS = 2 * int(os.environ.get("LAMINA_CAMPAIGN", "1"))
DISKS = int(os.environ.get("LAMINA_DISKS", "2000"))
"""Distinct disks after a first cut, for each policy, in the two parts of a run."""

# -- told by hand ---------------------------------------------------------------------------------------------------


def deleted_jobs_stay_deleted(story: Story) -> None:
    """The end of a job in a later segment than its beginning, both cleaned; then the same ids again."""
    for number in range(4):
        story.add(number, size=200)
    for number in range(4):
        story.say("delete", IDS[number])
    story.log.rotate()
    story.clean()
    for number in range(4):
        story.add(number, "b", size=30)
    story.say("delete", IDS[0])
    story.log.rotate()
    story.add(0, "c")
    story.clean()
    story.say("delete", IDS[0])
    story.say("delete", IDS[1])
    story.log.rotate()
    story.add(9)
    story.clean()


def completed_jobs_stay_completed(story: Story) -> None:
    """Lease, fail, retry, complete; results outlive cleaning until the job's time is over."""
    story.add(0, max_fails=3, ttl=10_000)
    story.add(1, ttl=4000, max_attempts=2)
    story.add(2)
    story.say("lease", ["a"], 2)
    story.say("fail", IDS[0], b"once")
    story.say("lease", ["a"])
    story.say("complete", IDS[0], b"done")
    story.log.rotate()
    story.pass_time(1.1)  # the lease of 1 is over
    story.say("lease", ["a"])
    story.clean()
    story.pass_time(3)  # and its life
    story.engine.tick()
    story.settle(story.moments[-1].position)
    story.log.rotate()
    story.clean()
    story.say("complete", IDS[2], b"too")
    story.checkpoint()
    story.pass_time(9)
    story.engine.tick()
    story.clean()


def old_segments_are_left_alone(story: Story) -> None:
    """A cycle that passes over old segments must keep what ends the jobs that begin in them."""
    story.add(0, ttl=86_000_000, size=300)
    story.add(1, ttl=86_000_000, size=300)
    story.log.rotate()
    story.add(2)
    story.clean(everything=False)  # learns that the first segment is not worth a visit for long
    story.say("delete", IDS[0])
    story.say("lease", ["a"], 2)
    story.say("complete", IDS[1], b"r")
    story.log.rotate()
    story.add(3)
    story.clean(everything=False)
    story.log.rotate()
    story.add(4)
    story.clean(everything=False)
    story.say("delete", IDS[1])
    story.log.rotate()
    story.add(5)
    story.clean(everything=False)
    story.clean()


def found_segments_are_only_looked_at(story: Story) -> None:
    """The first cycle behind a start does not clean what was there before: its jobs end in segments that it cleans."""
    story.add(0, ttl=86_000_000)
    story.add(1, ttl=86_000_000)
    story.say("pause", "b")
    story.close()
    story.log.rotate()
    story.say("delete", IDS[0])
    story.say("lease", ["a"])
    story.say("pause", "b", pauses=False)
    story.add(2)
    story.say("delete", IDS[2])
    story.log.rotate()
    story.add(3)
    story.clean(everything=False)
    story.say("complete", IDS[1], b"r")
    story.log.rotate()
    story.add(4)
    story.clean(everything=False)
    story.kill()
    story.clean(everything=False)


def paused_queues_stay_paused(story: Story) -> None:
    for number, queue in enumerate(QUEUES):
        story.add(number, queue)
        story.say("pause", queue)
    story.log.rotate()
    story.say("pause", "a", pauses=False)
    story.add(4, "b", size=400, ttl=86_000_000)
    story.clean(everything=False)
    story.say("pause", "b", pauses=False)
    story.checkpoint()
    story.say("pause", "b")
    story.say("pause", "b", pauses=False)
    story.log.rotate()
    story.add(5, "a")
    story.clean(everything=False)
    story.clean()
    story.say("pause", "c", pauses=False)
    story.say("delete", IDS[2])
    story.log.rotate()
    story.say("lease", ["b", "c"], 2)
    story.clean()


def checkpoints_while_jobs_change(story: Story) -> None:
    """Every job changes while its slice of the checkpoint waits, or right behind it."""
    for number in range(8):
        story.add(number, max_fails=3, settles=False)
    story.say("lease", ["a"], 6)
    turn = iter(range(1000))

    def between(may_wait: bool) -> None:
        for _ in range(2):
            _change(story, next(turn) * 3 % 8, settles=may_wait)

    for _ in range(3):
        story.disk.between = between
        story.checkpoint()
        story.disk.between = None
        story.add(9)
        story.say("delete", IDS[9])
    story.kill()
    story.disk.between = between
    story.clean()
    story.disk.between = None
    story.kill()


def _change(story: Story, number: int, *, settles: bool) -> None:
    """The next thing that can happen to this job, so that each record counts: taken twice, it would show."""
    job = story.engine.state.jobs.get(IDS[number])
    if job is None:
        story.add(number, settles=settles, max_fails=3)
    elif job.at == AT_READY:
        story.say("lease", ["a"], settles=settles)
    elif job.at == AT_LEASED:
        act, *more = (("fail", b"x"), ("complete", b"x"), ("fail", b"y"), ("release", 0), ("delete",))[number % 5]
        story.say(act, IDS[number], *more, settles=settles)
    else:
        story.say("delete", IDS[number], settles=settles)


def cleaned_while_jobs_change(story: Story) -> None:
    """Jobs are leased and deleted while the segments before theirs are cleaned, and nobody waits for the answers."""
    for number in range(8):
        story.add(number, size=250)
    turn = iter(range(1, 8))

    def between(may_wait: bool) -> None:
        story.say("lease", ["a"], settles=False)
        if number := next(turn, 0):
            story.say("delete", IDS[number], settles=False)

    story.log.rotate()
    story.add(9)
    story.checkpoint()
    story.say("delete", IDS[0])
    story.disk.between = between
    story.clean()
    story.disk.between = None
    story.add(0)


def redriven_jobs_go_on(story: Story) -> None:
    """Failed, driven again, given back, touched; all of it in segments of their own."""
    story.add(0, backoff=200, max_fails=2, unique="k")
    story.add(1, unique="k")  # refused: the key is taken
    story.say("lease", ["a"])
    story.log.rotate()
    story.say("fail", IDS[0], b"one")
    story.pass_time(0.3)
    story.say("lease", ["a"])
    story.say("fail", IDS[0], b"two")
    story.add(1, unique="k")
    story.log.rotate()
    story.say("redrive", IDS[0])  # refused: the key is taken again
    story.checkpoint()
    story.say("delete", IDS[1])
    story.say("redrive", IDS[0])
    story.log.rotate()
    story.say("lease", ["a"])
    story.say("touch", IDS[0], 9000)
    story.clean()
    story.say("release", IDS[0], 100)
    story.log.rotate()
    story.pass_time(0.2)
    story.say("lease", ["a"])
    story.clean()
    story.say("complete", IDS[0], b"three")
    story.close()
    story.say("delete", IDS[0])


def touches_are_superseded(story: Story) -> None:
    """Two jobs are kept alive over many segments, and their story goes on in each of the ways there are."""
    for number in range(4):
        story.add(number, ttr=60_000, ttl=86_000_000, max_fails=9)
    story.say("lease", ["a"], 4)
    for turn in range(12):
        for number in (0, 1) if turn % 3 else (0, 1, 2, 3):
            story.say("touch", IDS[number], 60_000 + turn)
        story.pass_time(0.5)
        if turn == 4:
            story.say("release", IDS[2])
            story.say("complete", IDS[3], b"r")
        if turn == 7:
            story.say("fail", IDS[0], b"again")
            story.say("lease", ["a"], 2)
        story.log.rotate()
        story.clean(everything=turn % 2 == 0)
        if turn == 8:
            story.kill()
    story.close()
    story.say("touch", IDS[1], 5)
    story.clean(everything=False)
    story.clean(everything=False)
    story.pass_time(1)
    story.engine.tick()
    story.log.rotate()
    story.clean()


def the_clock_goes_back(story: Story) -> None:
    """Restarts an hour earlier each time: positions go on, and what the checkpoint covers is not mistaken for new."""
    for turn in range(3):
        story.add(turn, ttl=30_000)
        story.add(5, ttl=10_000_000)
        story.say("lease", ["a"])
        story.say("delete", IDS[5])
        story.log.rotate()
        story.clean()
        story.close(-3600)
        story.add(8 + turn)
        story.kill()


SCRIPTS: dict[str, Callable[[Story], None]] = {
    script.__name__: script
    for script in (
        deleted_jobs_stay_deleted,
        completed_jobs_stay_completed,
        old_segments_are_left_alone,
        found_segments_are_only_looked_at,
        paused_queues_stay_paused,
        checkpoints_while_jobs_change,
        cleaned_while_jobs_change,
        redriven_jobs_go_on,
        touches_are_superseded,
        the_clock_goes_back,
    )
}


def play(script: str, policy: str, *, segment_bytes: int = 700, model: str = "strict") -> Story:
    story = Story(
        Disk(model=model), ManualClock(), POLICIES[policy], random.Random(script), segment_bytes=segment_bytes
    )
    SCRIPTS[script](story)
    story.round()
    return story


# -- the tests ------------------------------------------------------------------------------------------------------


def look_at(story: Story, name: str, *, points: int, seed: int, count: int = 0) -> set[int]:
    """Check disks that the story could have left, a few at each of some points. Returns their digests."""
    seen: set[int] = set()
    for state in some_states(story.disk, random.Random(seed), points=points):
        seen.add(digest(state))
        try:
            check(story, state, variant=count + len(seen))
        except BaseException as error:
            error.add_note(f"{name}, point {state.point} of {story.disk.points}: {state.label}")
            raise
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("policy", POLICIES)
def test_no_power_cut_breaks_a_promise(policy: str, part: int) -> None:
    distinct: set[int] = set()
    seed = part * 1000
    while len(distinct) < DISKS // 2:
        story = tell(policy, seed, model="journalled" if seed % 4 == 3 else "strict")
        distinct |= look_at(story, f"policy {policy}, seed {seed}", points=30, seed=seed, count=len(distinct))
        seed += 1


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("script", SCRIPTS)
def test_no_power_cut_breaks_a_promise_of(script: str, policy: str) -> None:
    for segment_bytes, model in ((400, "strict"), (900, "journalled")):
        story = play(script, policy, segment_bytes=segment_bytes, model=model)
        look_at(story, f"policy {policy}, segments of {segment_bytes}", points=DISKS // 150, seed=segment_bytes)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("script", ["redriven_jobs_go_on", "paused_queues_stay_paused", "touches_are_superseded"])
def test_no_power_cut_breaks_a_promise_while_notes_of_before_are_written_anew(script: str, policy: str) -> None:
    before = play(script, policy, segment_bytes=400)
    before.say("pause", "c")
    before.close()
    contents = as_it_was(before.disk.contents())
    assert any(codec.is_old_note(record.payload) for record in records(contents))

    def first() -> State:
        return before.load(contents)[0]

    clock = ManualClock(before.clock.now_ns())
    story = Story(Disk(contents), clock, POLICIES[policy], random.Random(script), 400, first)
    story.add(8, unique="new", backoff=5)
    story.clean(everything=False)
    story.clean(everything=False)
    story.say("pause", "c")
    story.log.rotate()
    story.clean()
    story.round()
    assert not any(codec.is_old_note(record.payload) for record in records(story.disk.contents()))
    look_at(story, f"policy {policy}, former notes", points=DISKS // 150, seed=1)


def test_the_stories_have_every_kind_of_event_in_them() -> None:
    """The exploration means something only if the stories do what they are meant to."""
    stories = [tell("always", seed) for seed in range(30)]
    done = Counter(act for story in stories for act in story.done)
    acts = {"add", "lease", "complete", "fail", "delete", "touch", "release", "redrive", "redrive_queue", "pause"}
    assert set(done) >= acts | {"tick", "deliver", "checkpoint", "rewritten", "removed", "skipped"}

    written: Counter[str] = Counter()
    for story in stories:
        for record in Reader("data", files=story.disk).read():
            kind = codec.decode_note(record.payload)[0] if codec.is_note(record.payload) else -record.payload[0]
            written[
                codec.NAMES[-kind] if kind < 0 else codec.NOTE_NAMES[kind] if kind < codec.BEYOND else "beyond"
            ] += 1
    assert set(written) == {*codec.NAMES, *codec.NOTE_NAMES, "beyond"} - {""}
    assert all(len(story.moments) > 5 for story in stories)


def test_a_checkpoint_is_made_in_slices_between_which_jobs_change() -> None:
    story = play("checkpoints_while_jobs_change", "always")
    assert {"checkpoint", "lease", "complete", "delete"} <= story.done
    pieces = [what for kind, number, what in story.disk._operations if number in story.disk._temporary]
    assert len(pieces) > 20


def test_a_job_is_there_with_its_traits_or_not_at_all() -> None:
    story = Story(Disk(), ManualClock(), POLICIES["always"], random.Random(0))
    story.add(0, unique="only one of these", backoff=500)
    for state in story.disk.states():
        check(story, state)


def test_a_lease_lasts_as_long_as_it_says_though_nobody_waited_for_what_was_before() -> None:
    story = Story(Disk(), ManualClock(), POLICIES["always"], random.Random(0))
    story.add(0, ttr=5000, settles=False)
    story.pass_time(10)
    story.say("lease", ["a"])
    assert story.engine.job(IDS[0]).lease_until >= story.clock.now_ns() + 5_000_000_000
