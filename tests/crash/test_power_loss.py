"""Promise 1: an acknowledged record is never lost beyond what its sync policy states.

Stories (append, group commit, rotation, rewrite, close and reopen) are told against a disk that remembers; then every
disk that a power cut at any point could have left is opened and held against the promises. One in sixty is cut a
second time, inside its recovery. ``LAMINA_CAMPAIGN=10`` looks at fifty times as many.
"""

from __future__ import annotations

import os

import pytest

from crash.story import POLICIES, check, tell

CAMPAIGN = int(os.environ.get("LAMINA_CAMPAIGN", "0"))
PARTS = 2 * CAMPAIGN or 1
DISKS_PER_PART = int(os.environ.get("LAMINA_DISKS", "10000" if CAMPAIGN else "4000"))
"""Distinct disks looked at: 4 000 for each policy in every run of the tests; in a campaign, 20 000 times its number."""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("policy", POLICIES)
def test_no_power_cut_breaks_a_promise(policy: str, part: int) -> None:
    distinct: set[int] = set()
    count = 0
    seed = part * 1000
    while len(distinct) < DISKS_PER_PART:
        story = tell(policy, seed, steps=26, model="journalled" if seed % 4 == 3 else "strict")
        for state in story.disk.states(per_point=40, seed=seed):
            count += 1
            distinct.add(hash(frozenset(state.files.contents().items())))
            try:
                check(story, state, deep=count % 60 == 0)
            except BaseException as error:
                error.add_note(f"policy {policy}, seed {seed}, point {state.point}: {state.label}")
                raise
        seed += 1


def test_a_story_has_every_kind_of_event_in_it() -> None:
    """The exploration means something only if the stories do what they are meant to."""
    names = [path for seed in range(12) for path in tell("always", seed).disk.contents()]
    stories = [tell("always", seed, steps=26) for seed in range(12)]
    operations = {kind for story in stories for kind, _, _ in story.disk._operations}
    assert operations >= {"append", "sync", "names", "sync_folder"}
    assert any(name.endswith(".dat") for name in names)
    assert any(name.endswith("000000003.log") for name in names)
    steps = [what[0] for story in stories for kind, _, what in story.disk._operations if kind == "names"]
    renames = [step for step in steps if step[0]]
    assert any(new is not None for _, new, _ in renames), "no rewrite was ever renamed into place"
    assert any(new is None for _, new, _ in renames), "nothing was ever removed"
